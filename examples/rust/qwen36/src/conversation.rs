//! A conversation: messages, a session that follows them, answers as they come.

use std::ops::ControlFlow;

use crate::answer::{Part, Splitter, ToolCall, OPEN_THINK};
use crate::chat::{ChatOptions, ChatTemplate};
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::model::Model;
use crate::session::{GenerateOptions, Generated, Session};
use crate::tokenizer::Tokenizer;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The system; only the first message may be its.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
    /// What the model thought before.
    pub reasoning: String,
    /// The tools that the model calls.
    pub tool_calls: Vec<ToolCall>,
}

impl Message {
    /// A message that is nothing but text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), reasoning: String::new(), tool_calls: Vec::new() }
    }

    fn write_json(&self, json: &mut String) {
        let members = [("role", self.role.name()), ("content", &self.content), ("reasoning_content", &self.reasoning)];
        // An empty reasoning is given too: without it some templates look for one in the content.
        let count = if self.role == Role::Assistant { 3 } else { 2 };
        json::object(json, members.into_iter().take(count));
        if !self.tool_calls.is_empty() {
            json.pop();
            json.push_str(r#", "tool_calls": ["#);
            for (index, call) in self.tool_calls.iter().enumerate() {
                json.push_str(if index > 0 { ", " } else { "" });
                call.write_json(json);
            }
            json.push_str("]}");
        }
    }
}

/// Messages as JSON, in OpenAI's form: what [`ChatTemplate`] takes.
pub fn messages_json<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let mut json = String::from("[");
    for (index, message) in messages.into_iter().enumerate() {
        json.push_str(if index > 0 { ", " } else { "" });
        message.write_json(&mut json);
    }
    json.push(']');
    json
}

/// An answer of the model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// What it is, as it stands in the conversation.
    pub message: Message,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that earlier turns had computed.
    pub reused: usize,
    /// Why it ended, and how long it took.
    pub generated: Generated,
}

/// A conversation with a model. Each answer makes the session follow the messages; where what it has computed stands
/// unchanged at the beginning of the next prompt, only the rest is computed. Most templates leave the reasoning of older
/// answers out, which changes it; [`ChatOptions::preserve_thinking`] keeps the reasoning, where the template can do that.
pub struct Conversation {
    /// The messages. They may be changed between two answers.
    pub messages: Vec<Message>,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    session: Session,
    chat_options: ChatOptions,
    generate_options: GenerateOptions,
}

impl Conversation {
    /// An empty one; an answer has 1024 tokens at most.
    pub fn new(model: &Model, template: ChatTemplate) -> Result<Self> {
        let none = || Error::new(ErrorKind::NoTokenizer, "a conversation needs a tokenizer");
        Ok(Self {
            messages: Vec::new(),
            template,
            tokenizer: model.tokenizer().ok_or_else(none)?,
            session: model.session()?,
            chat_options: ChatOptions::new(),
            generate_options: GenerateOptions::new(1024),
        })
    }

    /// How messages are rendered: tools, thinking.
    pub fn chat_options(mut self, options: ChatOptions) -> Self {
        self.chat_options = options;
        self
    }

    /// How answers are generated: their length, stop strings.
    pub fn generate_options(mut self, options: GenerateOptions) -> Self {
        self.generate_options = options;
        self
    }

    /// Begins with a message of the system.
    pub fn system(mut self, content: impl Into<String>) -> Self {
        self.messages.insert(0, Message::new(Role::System, content));
        self
    }

    /// The session, whose sampling options and interrupter are those of the answers.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Adds a message of the user, and its answer. `on_piece` receives the text of the answer as it comes; Break ends it.
    /// What came of an answer is kept, also when it ends with an error; when no token came, and after a panic of
    /// `on_piece`, the messages are those from before the question.
    pub fn ask(
        &mut self,
        content: impl Into<String>,
        on_piece: impl FnMut(Part, &str) -> ControlFlow<()>,
    ) -> Result<Answer> {
        self.generate(Some(Message::new(Role::User, content)), on_piece)
    }

    /// Adds the answer to the messages as they are, such as after [`Conversation::add_tool_result`].
    pub fn answer(&mut self, on_piece: impl FnMut(Part, &str) -> ControlFlow<()>) -> Result<Answer> {
        self.generate(None, on_piece)
    }

    /// Adds what a tool gave. Results stand in the order of the calls.
    pub fn add_tool_result(&mut self, content: impl Into<String>) {
        self.messages.push(Message::new(Role::Tool, content));
    }

    fn generate(
        &mut self,
        question: Option<Message>,
        mut on_piece: impl FnMut(Part, &str) -> ControlFlow<()>,
    ) -> Result<Answer> {
        let json = messages_json(self.messages.iter().chain(&question));
        let prompt = self.template.encode(&self.tokenizer, &json, &self.chat_options)?;
        let mut splitter = Splitter::new(self.begins_in_thought(&prompt)?, self.chat_options.has_tools());
        let reused = self.session.sync(&prompt)?;
        let mut give = |pieces: Vec<(Part, String)>| pieces.iter().try_for_each(|(part, text)| on_piece(*part, text));
        let mut flow = ControlFlow::Continue(());
        let result = self.session.generate(self.generate_options.clone(), |_, text| {
            let pieces = splitter.push(text);
            flow = if flow.is_break() { flow } else { give(pieces) };
            flow
        });
        let rest = splitter.finish();
        if flow.is_continue() {
            let _ = give(rest); // there is nothing left to end
        }
        let message = message_of(splitter);
        if self.session.len() > prompt.len() {
            self.messages.extend(question);
            self.messages.push(message.clone());
        }
        Ok(Answer { message, prompt_tokens: prompt.len(), reused, generated: result? })
    }

    /// Whether the template let the answer begin within `<think>`.
    fn begins_in_thought(&self, prompt: &[i32]) -> Result<bool> {
        let tail = self.tokenizer.decode_text(&prompt[prompt.len().saturating_sub(8)..], false)?;
        Ok(tail.trim_end().ends_with(OPEN_THINK))
    }
}

fn message_of(mut splitter: Splitter) -> Message {
    let tool_calls = std::mem::take(&mut splitter.calls);
    let (reasoning, content) = splitter.into_parts();
    Message { role: Role::Assistant, content, reasoning, tool_calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_messages() {
        assert_eq!(messages_json(&[]), "[]");
        let mut answer = Message::new(Role::Assistant, "I look.");
        answer.tool_calls = vec![ToolCall { name: "f".into(), arguments: vec![] }; 2];
        let messages = [Message::new(Role::System, "a\"b"), answer, Message::new(Role::Tool, "1\n2")];
        let call = r#"{"type": "function", "function": {"name": "f", "arguments": {}}}"#;
        let expected = [
            r#"[{"role": "system", "content": "a\"b"}, "#,
            r#"{"role": "assistant", "content": "I look.", "reasoning_content": "", "tool_calls": ["#,
            &format!("{call}, {call}]}}, "),
            r#"{"role": "tool", "content": "1\n2"}]"#,
        ];
        assert_eq!(messages_json(&messages), expected.concat());
    }
}
