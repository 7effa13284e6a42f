//! The safe interface with the small model of the tree.

use qwen36::{
    memory_estimate, sample, step, ChatOptions, ChatTemplate, Cpu, Error, ErrorKind, Finish, GenerateOptions,
    Interrupter, KvDtype, LogLevel, Logits, Model, ModelOptions, Numerics, Progress, Session, SessionOptions,
    Tokenizer,
};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const DEMO_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo-model");
const PROMPT: &str = "It was a dark night, and";

fn load(options: ModelOptions) -> Model {
    Model::load(DEMO_MODEL, options.threads(1)).unwrap()
}

fn model() -> Model {
    load(ModelOptions::new())
}

fn encode(model: &Model, text: &str) -> Vec<i32> {
    model.tokenizer().unwrap().encode(text).unwrap()
}

/// A greedy session that has the prompt pending.
fn prompted(model: &Model) -> Session {
    let mut session = model.session().unwrap();
    session.set_sampling(model.sampling().unwrap().temperature(0.0)).unwrap();
    session.append(&encode(model, PROMPT), Logits::Last).unwrap();
    session
}

fn generate(session: &mut Session, tokens: i32) -> String {
    let mut text = String::new();
    let on_text = |_, piece: &str| {
        text.push_str(piece);
        ControlFlow::Continue(())
    };
    session.generate(GenerateOptions::new(tokens), on_text).unwrap();
    text
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn panic_text(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("a panic");
    panic.downcast_ref::<&str>().unwrap().to_string()
}

fn argmax(logits: &[f32]) -> i32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].partial_cmp(&logits[b]).unwrap().then(b.cmp(&a)));
    best.unwrap() as i32
}

#[test]
fn objects_may_move_between_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Model>();
    sync::<Model>();
    send::<Tokenizer>();
    sync::<Tokenizer>();
    send::<Session>();
    send::<Interrupter>();
    sync::<Interrupter>();
    send::<ChatTemplate>();
    sync::<ChatTemplate>();
}

#[test]
fn model_and_options() {
    let options =
        ModelOptions::new().numerics(Numerics::Reference).cpu(Cpu::Portable).context_length(100).max_sessions(2);
    let estimate = memory_estimate(DEMO_MODEL, &options).unwrap();
    let model = load(options);
    let info = model.info().unwrap();
    assert_eq!((info.is_moe, info.layers, info.context_length, info.max_sessions), (1, 8, 100, 2));
    assert_eq!((info.numerics, info.cpu_tier), (Numerics::Reference as i32, Cpu::Portable as i32));
    assert_eq!(info.kv_dtype, KvDtype::F32 as i32);
    assert_eq!(estimate.weight_bytes, info.weight_bytes);
    assert_eq!(model.end_tokens().unwrap().len(), 2);
    assert_eq!((qwen36::version(), qwen36::backend()), ("0.1.0", "cpu"));
}

#[test]
fn errors_have_kind_status_and_text() {
    let error = Model::load("no/such/directory", ModelOptions::new()).err().unwrap();
    assert_eq!((error.kind(), error.status()), (ErrorKind::FileNotFound, -20));
    assert!(error.message().contains("no/such/directory") && error.to_string() == error.message());
    assert_eq!(kind(Model::load(DEMO_MODEL, ModelOptions::new().threads(0))), ErrorKind::Argument);
    assert_eq!(kind(Model::load("a\0b", ModelOptions::new())), ErrorKind::Argument);
    assert_eq!(kind(Tokenizer::load("no/such/directory")), ErrorKind::FileNotFound);
}

#[test]
fn log_and_progress() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (seen, mut last) = (lines.clone(), (0, 0));
    let log = move |level, line: &str| seen.lock().unwrap().push((level, line.to_string()));
    let progress = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    let model = load(ModelOptions::new().log(log).progress(progress));
    assert!(last.0 == last.1 && last.1 > 0);
    drop(model);
    let lines = lines.lock().unwrap();
    assert!(lines.iter().any(|(level, line)| *level == LogLevel::Info && line.contains("loaded")));
}

#[test]
fn a_load_is_cancelled_and_a_panic_goes_on() {
    let cancelled = Model::load(DEMO_MODEL, ModelOptions::new().progress(|_, _| ControlFlow::Break(())));
    assert_eq!(kind(cancelled), ErrorKind::Cancelled);
    let text = panic_text(|| drop(load(ModelOptions::new().progress(|_, _| panic!("in progress")))));
    assert_eq!(text, "in progress");
    assert_eq!(panic_text(|| drop(load(ModelOptions::new().log(|_, _| panic!("in log"))))), "in log");
}

#[test]
fn tokenizer_and_decoder() {
    let text = "Grüße, 世界! 🦊 <|im_end|> and so on. ".repeat(20);
    let tokenizer = Tokenizer::load(DEMO_MODEL).unwrap();
    let ids = tokenizer.encode(&text).unwrap();
    assert_eq!(tokenizer.decode_text(&ids, false).unwrap(), text);
    assert_eq!(model().tokenizer().unwrap().encode(&text).unwrap(), ids);
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec()).collect();
    assert_eq!(bytes, text.as_bytes());
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    assert_eq!(tokenizer.encode_special("<|im_end|>").unwrap(), [end]);
    assert!(tokenizer.is_special(end) && tokenizer.size() > end as usize);
    assert_eq!(tokenizer.decode(&[end], true).unwrap(), b"");
    assert_eq!((tokenizer.token_bytes(-1), tokenizer.token_id("no such token")), (None, None));
    assert_eq!(kind(tokenizer.decode(&[-1], false)), ErrorKind::TokenId);

    let mut decoder = tokenizer.decoder(true).unwrap();
    let mut pieces = String::new();
    for id in ids {
        pieces.push_str(decoder.push(id).unwrap());
    }
    pieces.push_str(decoder.finish().unwrap());
    assert_eq!(pieces, text);
}

#[test]
fn greedy_text_is_that_of_the_example() {
    let build =
        std::env::var("BUILD").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../build/cpu").into());
    let output = Command::new(format!("{build}/examples/generate"))
        .args(["-m", DEMO_MODEL, "-p", PROMPT, "-n", "40", "--temp", "0", "--quiet"])
        .output()
        .unwrap();
    let expected = String::from_utf8(output.stdout).unwrap();
    assert_eq!(format!("{PROMPT}{}\n", generate(&mut prompted(&model()), 40)), expected);
}

#[test]
fn step_sample_and_logits() {
    let model = model();
    let mut session = prompted(&model);
    let count = session.len();
    assert_eq!(kind(session.logits().map(|_| ())), ErrorKind::NoLogits);
    assert_eq!(kind(session.sample()), ErrorKind::NoLogits);
    assert_eq!((session.computed(), session.step(), session.computed()), (0, Ok(Progress::Done), count));
    let best = argmax(session.logits().unwrap());
    assert_eq!(session.logits().unwrap().len(), model.info().unwrap().vocab_size as usize);
    assert_eq!(session.sample(), Ok(best));
    assert_eq!(session.tokens(count..).unwrap(), [best]);
    session.rewind(count).unwrap();
    assert_eq!(session.sample(), Ok(best));
    assert_eq!(kind(session.tokens(..=count + 1)), ErrorKind::Argument);
    session.reset().unwrap();
    assert!(session.is_empty() && session.capacity() == 4096);
}

#[test]
fn sync_and_score() {
    let model = model();
    let mut session = prompted(&model);
    let prompt = session.tokens(..).unwrap();
    session.compute().unwrap();
    let expected = session.logits().unwrap().to_vec();
    assert_eq!(session.sync(&prompt), Ok(prompt.len()));
    assert_eq!(session.sync(&prompt[1..]), Ok(0));
    assert_eq!(session.sync(&prompt), Ok(0));
    session.compute().unwrap();
    assert_eq!(session.logits().unwrap(), expected);
    session.reset().unwrap();
    let scores = session.score(&prompt).unwrap();
    assert!(scores.len() == prompt.len() && scores[0] == 0.0 && scores[1..].iter().all(|&value| value < 0.0));
    assert_eq!(kind(session.append(&[1, -1], Logits::Last)), ErrorKind::TokenId);
    assert_eq!(session.len(), prompt.len());
}

#[test]
fn a_batch_gives_the_same_as_each_alone() {
    let model = model();
    let alone = generate(&mut prompted(&model), 6);
    let (mut first, mut second) = (prompted(&model), prompted(&model));
    second.append(&[5, 6, 7], Logits::Last).unwrap();
    let count = first.len();
    for _ in 0..6 {
        while step(&mut [&mut first, &mut second], Some(8)).unwrap().contains(&Ok(Progress::Pending)) {}
        assert!(sample(&mut [&mut first, &mut second]).unwrap().iter().all(|token| token.is_ok()));
    }
    let tokens = first.tokens(count..).unwrap();
    assert_eq!(model.tokenizer().unwrap().decode_text(&tokens, true).unwrap(), alone);
}

#[test]
fn one_full_session_does_not_stop_its_neighbour() {
    let model = model();
    let mut large = prompted(&model);
    let options = SessionOptions::new().context_length(large.len() as i32);
    let mut small = Session::new(&model, options).unwrap();
    small.append(&large.tokens(..).unwrap(), Logits::Last).unwrap();
    step(&mut [&mut small, &mut large], None).unwrap();
    let outcomes = sample(&mut [&mut small, &mut large]).unwrap();
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::ContextFull);
    assert_eq!(outcomes[1], Ok(*large.tokens(..).unwrap().last().unwrap()));
    assert_eq!(kind(step(&mut [&mut large], Some(0))), ErrorKind::Argument);
    assert_eq!(kind(step(&mut [], None)), ErrorKind::Argument);
}

#[test]
fn sampling_bias_and_bitmask() {
    let model = model();
    let mut session = prompted(&model);
    session.compute().unwrap();
    let (count, best) = (session.len(), argmax(session.logits().unwrap()));
    let choice = |session: &mut Session| {
        let token = session.sample();
        session.rewind(count).unwrap();
        token
    };
    let sampling = session.sampling().unwrap();
    assert_eq!((sampling.temperature, sampling.seed), (0.0, 0));
    session.set_sampling(sampling.logprobs(3)).unwrap();
    assert_eq!(kind(session.set_sampling(sampling.top_p(2.0))), ErrorKind::Argument);
    assert_eq!(choice(&mut session), Ok(best));
    let logprobs = session.logprobs().unwrap();
    assert!(logprobs.top.len() == 3 && logprobs.top[0] == (best, logprobs.chosen));
    session.set_bias(&[(77, 1000.0)]).unwrap();
    assert_eq!(choice(&mut session), Ok(77));
    let mut mask = vec![0; model.info().unwrap().bitmask_words as usize];
    mask[100 / 32] |= 1 << (100 % 32);
    session.set_bitmask(Some(&mask)).unwrap();
    assert_eq!(choice(&mut session), Ok(100));
    session.set_bias(&[(100, f32::NEG_INFINITY)]).unwrap();
    assert_eq!(kind(choice(&mut session)), ErrorKind::NoCandidate);
    session.set_bias(&[]).unwrap();
    session.set_bitmask(None).unwrap();
    assert_eq!(choice(&mut session), Ok(best));
}

#[test]
fn why_a_generation_ends() {
    let model = model();
    let mut session = prompted(&model);
    let go_on = |_, _: &str| ControlFlow::Continue(());
    let generated = session.generate(GenerateOptions::new(3), go_on).unwrap();
    assert_eq!((generated.finish, generated.output_tokens), (Finish::Length, 3));
    assert!(generated.prompt_time > Duration::ZERO && generated.prompt_tokens > 3);
    let stopped = session.generate(GenerateOptions::new(3), |_, _| ControlFlow::Break(())).unwrap();
    assert_eq!((stopped.finish, stopped.output_tokens), (Finish::Callback, 1));
    session.interrupter().interrupt();
    assert_eq!(session.generate(GenerateOptions::new(3), go_on).unwrap().finish, Finish::Interrupted);
    let end = model.end_tokens().unwrap()[0];
    session.set_bias(&[(end, 1000.0)]).unwrap();
    assert_eq!(session.generate(GenerateOptions::new(3), go_on).unwrap().finish, Finish::EndToken);
    assert_eq!(
        session.generate(GenerateOptions::new(2).ignore_end_tokens(true), go_on).unwrap().finish,
        Finish::Length
    );
}

#[test]
fn stop_strings_and_end_tokens() {
    let model = model();
    let mut session = prompted(&model);
    let prompt = session.tokens(..).unwrap();
    let mut text = String::new();
    let on_text = |_, piece: &str| {
        text.push_str(piece);
        ControlFlow::Continue(())
    };
    let options = GenerateOptions::new(40).stop("nothing").stop(" and the");
    let generated = session.generate(options, on_text).unwrap();
    assert_eq!((generated.finish, generated.stop, generated.end_token), (Finish::Stop, Some(1), None));
    assert!(!text.is_empty() && !text.contains(" and the"));
    let third = session.tokens(prompt.len()..).unwrap()[2];
    session.sync(&prompt).unwrap();
    let options = GenerateOptions::new(40).end_tokens([third]);
    let generated = session.generate(options, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((generated.finish, generated.stop, generated.end_token), (Finish::EndToken, None, Some(third)));

    let tokenizer = model.tokenizer().unwrap();
    let mut decoder = tokenizer.decoder_with_stops(true, &["dark"]).unwrap();
    let mut text = String::new();
    for token in tokenizer.encode("It was a darkness.").unwrap() {
        text.push_str(decoder.push(token).unwrap());
    }
    text.push_str(decoder.finish().unwrap());
    assert_eq!((text.as_str(), decoder.stopped()), ("It was a ", Some(0)));
}

#[test]
fn a_panic_in_on_text_goes_on_and_the_session_is_well() {
    let model = model();
    let mut session = prompted(&model);
    let count = session.len();
    let text = panic_text(|| drop(session.generate(GenerateOptions::new(9), |_, _| panic!("in on_text"))));
    assert_eq!((text.as_str(), session.len()), ("in on_text", count + 1));
    assert!(!generate(&mut session, 3).is_empty());
}

#[test]
fn rows_of_all_logits() {
    let model = model();
    let (sender, receiver) = channel();
    let options = SessionOptions::new().on_logits(move |position, row| sender.send((position, row.to_vec())).unwrap());
    let mut session = Session::new(&model, options).unwrap();
    session.append(&[1, 2, 3], Logits::All).unwrap();
    session.compute().unwrap();
    let rows: Vec<_> = receiver.try_iter().collect();
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(rows[2].1, session.logits().unwrap());

    let failing = SessionOptions::new().on_logits(|_, _| panic!("in on_logits"));
    let mut session = Session::new(&model, failing).unwrap();
    session.append(&[1, 2, 3], Logits::All).unwrap();
    assert_eq!(panic_text(|| drop(session.step())), "in on_logits");
    assert_eq!(session.computed(), 3);
}

#[test]
fn a_running_step_is_interrupted_from_another_thread() {
    let options = ModelOptions::new().numerics(Numerics::Reference).cpu(Cpu::Portable).max_batch_tokens(4096);
    let model = load(options);
    let mut session = model.session().unwrap();
    session.append(&vec![7; 4000], Logits::Last).unwrap();
    let interrupter = session.interrupter();
    let other = interrupter.clone();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        other.interrupt();
    });
    assert_eq!(session.step(), Ok(Progress::Interrupted));
    thread.join().unwrap();
    assert_eq!((session.computed(), session.len()), (0, 4000));
    drop(session);
    interrupter.interrupt();
}

#[test]
fn objects_may_end_in_any_order() {
    let model = load(ModelOptions::new().max_sessions(1));
    let copy = model.clone();
    let tokenizer = model.tokenizer().unwrap();
    let mut session = prompted(&model);
    assert_eq!(kind(copy.session().map(|_| ())), ErrorKind::SessionsFull);
    drop(model);
    drop(copy);
    assert!(!generate(&mut session, 3).is_empty());
    let again = thread::spawn(move || {
        session.reset().unwrap();
        let model = session.model().clone();
        drop(session);
        generate(&mut prompted(&model), 3)
    });
    assert!(!again.join().unwrap().is_empty());
    assert!(!tokenizer.encode("a b").unwrap().is_empty());
}

#[test]
fn chat() {
    let messages = r#"[{"role": "user", "content": "Grüße<|im_end|>"}]"#;
    let template = ChatTemplate::load(DEMO_MODEL).unwrap();
    let tokenizer = Tokenizer::load(DEMO_MODEL).unwrap();
    let text = template.render(messages, &ChatOptions::new()).unwrap();
    assert!(text.starts_with("<|im_start|>user\nGrüße<|im_end|><|im_end|>\n<|im_start|>assistant\n"));
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    let ends = |options| {
        let ids = template.encode(&tokenizer, messages, &options).unwrap();
        ids.iter().filter(|&&id| id == end).count()
    };
    assert_eq!(ends(ChatOptions::new()), 1);
    assert_eq!(ends(ChatOptions::new().parse_special_in_content(true)), 2);
    let tools = r#"[{"type": "function", "function": {"name": "clock"}}]"#;
    let options = ChatOptions::new().tools(tools).enable_thinking(false).add_generation_prompt(true);
    assert!(template.render(messages, &options).unwrap().contains("clock"));
    assert_eq!(kind(template.render("[]", &ChatOptions::new())), ErrorKind::ChatMessages);
    let unknown = ChatTemplate::parse("{{ messages }}").unwrap();
    assert_eq!(unknown.name(), "unknown");
    assert_eq!(kind(unknown.render(messages, &ChatOptions::new())), ErrorKind::ChatTemplate);
    assert!(unknown.render(messages, &ChatOptions::new().allow_nearest(true)).is_ok());
}
