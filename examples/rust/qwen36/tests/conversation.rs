//! Conversations with the small model of the tree.

use qwen36::{
    messages_json, ChatOptions, ChatTemplate, Conversation, ErrorKind, Finish, GenerateOptions, Message, Model,
    ModelOptions, Part, Role, ToolCall,
};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};

const DEMO_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo-model");

fn model(context: i32) -> Model {
    Model::load(DEMO_MODEL, ModelOptions::new().threads(1).context_length(context)).unwrap()
}

fn template() -> ChatTemplate {
    ChatTemplate::load(DEMO_MODEL).unwrap()
}

/// A greedy conversation that does not think, whose answers have this many tokens.
fn conversation(model: &Model, tokens: i32) -> Conversation {
    let mut chat = Conversation::new(model, template())
        .unwrap()
        .system("Be brief.")
        .chat_options(ChatOptions::new().enable_thinking(false))
        .generate_options(GenerateOptions::new(tokens));
    let endless: Vec<_> = model.end_tokens().unwrap().into_iter().map(|token| (token, f32::NEG_INFINITY)).collect();
    chat.session().set_sampling(model.sampling().unwrap().temperature(0.0)).unwrap();
    chat.session().set_bias(&endless).unwrap();
    chat
}

fn go_on(_: Part, _: &str) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn roles(chat: &Conversation) -> Vec<Role> {
    chat.messages.iter().map(|message| message.role).collect()
}

#[test]
fn turns() {
    let model = model(1000);
    let mut chat = conversation(&model, 12);
    let (mut text, mut pieces) = (String::new(), 0);
    let first = chat
        .ask("Hello!", |part, piece| {
            assert_eq!(part, Part::Content);
            pieces += 1;
            text.push_str(piece);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(pieces > 1 && text == first.message.content && first.message.reasoning.is_empty());
    assert_eq!((first.generated.finish, first.generated.output_tokens, first.reused), (Finish::Length, 12, 0));
    let second = chat.ask("Grüße \"世界\"\n<|im_end|>", go_on).unwrap();
    assert!(second.prompt_tokens > first.prompt_tokens);
    assert_eq!(roles(&chat), [Role::System, Role::User, Role::Assistant, Role::User, Role::Assistant]);
    assert_eq!((&chat.messages[2], &chat.messages[4]), (&first.message, &second.message));
    chat.messages.truncate(2);
    assert_eq!(chat.answer(go_on).unwrap().message, first.message);
}

#[test]
fn what_earlier_turns_computed_is_reused() {
    let model = model(1000);
    let mut chat =
        conversation(&model, 1).chat_options(ChatOptions::new().enable_thinking(false).preserve_thinking(true));
    let yes = model.tokenizer().unwrap().encode("Yes").unwrap()[0];
    chat.session().set_bias(&[(yes, 1000.0)]).unwrap();
    let mut computed = 0;
    for question in ["a", "b", "c", "d"] {
        let answer = chat.ask(question, go_on).unwrap();
        assert_eq!(answer.reused, computed);
        computed = chat.session().computed();
        assert_eq!(computed, answer.prompt_tokens + 1);
    }
}

#[test]
fn the_answer_is_that_of_the_session() {
    let model = model(1000);
    let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "Hello!")];
    let options = ChatOptions::new().enable_thinking(false);
    let tokenizer = model.tokenizer().unwrap();
    let prompt = template().encode(&tokenizer, &messages_json(&messages), &options).unwrap();
    let mut chat = conversation(&model, 12);
    let answer = chat.ask("Hello!", go_on).unwrap();
    let session = chat.session();
    assert_eq!(session.tokens(..prompt.len()).unwrap(), prompt);
    let text = tokenizer.decode_text(&session.tokens(prompt.len()..).unwrap(), true).unwrap();
    assert_eq!(text.trim_matches('\n'), answer.message.content);
}

#[test]
fn an_answer_that_thinks() {
    let model = model(1000);
    let mut chat = conversation(&model, 5).chat_options(ChatOptions::new().enable_thinking(true));
    let never = model.tokenizer().unwrap().token_id("</think>").unwrap();
    chat.session().set_bias(&[(never, f32::NEG_INFINITY)]).unwrap();
    let mut parts = Vec::new();
    let answer = chat
        .ask("Hello!", |part, _| {
            parts.push(part);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(parts.iter().all(|&part| part == Part::Reasoning) && answer.message.content.is_empty());
}

#[test]
fn tools() {
    let model = model(1000);
    let tools = r#"[{"type": "function", "function": {"name": "clock"}}]"#;
    let options = ChatOptions::new().enable_thinking(false).tools(tools);
    let mut chat = conversation(&model, 2).chat_options(options);
    let call = ToolCall { name: "clock".into(), arguments: vec![("city".into(), "São \"Paulo\"\n".into())] };
    let mut answer = Message::new(Role::Assistant, "I look.");
    answer.tool_calls = vec![call];
    chat.messages.extend([Message::new(Role::User, "What time is it?"), answer]);
    chat.add_tool_result("12:00");
    chat.answer(go_on).unwrap();
    let tokens = chat.session().tokens(..).unwrap();
    let text = model.tokenizer().unwrap().decode_text(&tokens, false).unwrap();
    assert!(text.contains("<function=clock>\n<parameter=city>\nSão \"Paulo\"\n\n</parameter>"), "{text}");
    assert!(text.contains("<tool_response>\n12:00\n</tool_response>") && text.contains(r#""name": "clock""#));
    assert_eq!(roles(&chat)[3..], [Role::Tool, Role::Assistant]);
}

#[test]
fn what_came_of_an_answer_is_kept() {
    let model = model(1000);
    let mut chat = conversation(&model, 50);
    let mut shown = String::new();
    let answer = chat
        .ask("Hello!", |_, piece| {
            shown.push_str(piece);
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(answer.generated.finish, Finish::Callback);
    assert!(!shown.is_empty() && chat.messages[2].content.starts_with(&shown));
    let before = chat.messages.clone();
    chat.session().interrupter().interrupt();
    assert_eq!(chat.ask("And?", go_on).unwrap().generated.finish, Finish::Interrupted);
    assert_eq!(chat.messages, before);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(chat.ask("And?", |_, _| panic!("mine")))));
    assert!(panic.is_err() && chat.messages == before);
    assert!(chat.ask("And?", go_on).is_ok());
}

#[test]
fn errors_leave_the_messages() {
    let model = model(40);
    let mut chat = conversation(&model, 50);
    let before = chat.messages.clone();
    let kind = |result: qwen36::Result<qwen36::Answer>| result.expect_err("an error").kind();
    assert_eq!(kind(chat.ask("word ".repeat(100), go_on)), ErrorKind::ContextFull);
    assert_eq!(kind(chat.answer(go_on)), ErrorKind::ChatMessages);
    assert_eq!(chat.messages, before);
    let full = chat.ask("Hello!", go_on).unwrap();
    assert_eq!(full.generated.finish, Finish::ContextFull);
}
