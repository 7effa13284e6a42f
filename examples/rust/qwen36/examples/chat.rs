//! A conversation on the command line: chat -m MODEL-DIRECTORY
//!
//! On a terminal it asks for messages. From a file or a pipe it takes each line as a message and prints `> MESSAGE`,
//! the answer, and an empty line. Rates go to standard error.

use qwen36::{Answer, ChatOptions, ChatTemplate, Conversation, Finish, GenerateOptions, Model, ModelOptions, Part};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::os::raw::c_int;

const HELP: &str = "\
usage: chat -m DIRECTORY [options]
A conversation with the model in DIRECTORY. On a terminal Ctrl-D ends it; otherwise each line of input is a message.
  -m, --model DIR          the model directory, as published
  -s, --system TEXT        a system message
  -n, --max-tokens N       tokens of an answer at most, thought included (default 1024)
      --think HOW          on: to think; off: not to; hide: to think unseen (default: as the template does, unseen)
      --preserve-thinking  older answers keep their thoughts, if the template can do that
      --greedy             always the most likely token
      --seed S             seed of the draws (default 0)
      --context N          room for the conversation, in tokens (default 4096)
";

#[derive(Default)]
struct Arguments {
    model: String,
    system: Option<String>,
    max_tokens: Option<i32>,
    think: Option<String>,
    preserve_thinking: bool,
    greedy: bool,
    seed: u64,
    context: Option<i32>,
}

/// None: help was asked for.
fn parse(words: impl IntoIterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, given) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_string(), Some(value.to_string())),
            _ => (word, None),
        };
        let mut value = || given.clone().or_else(|| words.next()).ok_or(format!("{name} wants a value"));
        match name.as_str() {
            "-m" | "--model" => arguments.model = value()?,
            "-s" | "--system" => arguments.system = Some(value()?),
            "-n" | "--max-tokens" => arguments.max_tokens = Some(number(&value()?)?),
            "--think" => arguments.think = Some(value()?),
            "--preserve-thinking" => arguments.preserve_thinking = true,
            "--greedy" => arguments.greedy = true,
            "--seed" => arguments.seed = number(&value()?)?,
            "--context" => arguments.context = Some(number(&value()?)?),
            "--help" => return Ok(None),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    match arguments.think.as_deref() {
        _ if arguments.model.is_empty() => Err("a model is missing (-m DIRECTORY)".to_string()),
        None | Some("on" | "off" | "hide") => Ok(Some(arguments)),
        Some(other) => Err(format!("--think is on, off or hide, not {other}")),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(format!("{text} is no whole number, or too large"))
}

/// What stands around the parts of an answer; an answer without any is an empty line.
fn open(part: Part) -> &'static str {
    match part {
        Part::Reasoning => "<think>\n",
        Part::Content => "",
    }
}

fn close(part: Option<Part>) -> &'static str {
    match part {
        None => "\n",
        Some(Part::Reasoning) => "\n</think>\n\n",
        Some(Part::Content) => "\n\n",
    }
}

fn report(answer: &Answer) {
    let generated = &answer.generated;
    let seconds = (generated.prompt_time + generated.output_time).as_secs_f64();
    let rate = if seconds > 0.0 { generated.output_tokens as f64 / seconds } else { 0.0 };
    let ended = match generated.finish {
        Finish::EndToken => "end token",
        Finish::Length => "length",
        Finish::ContextFull => "context full",
        Finish::Callback => "output closed",
        _ => "another reason",
    };
    eprintln!(
        "[{} prompt tokens, {} of them reused, {} tokens at {rate:.1}/s, ended by: {ended}]",
        answer.prompt_tokens, answer.reused, generated.output_tokens
    );
}

/// What stands before a piece of an answer, given the part that the piece before it is of.
fn between(last: Option<Part>, part: Part) -> String {
    match last {
        None => open(part).to_string(),
        Some(last) if last == part => String::new(),
        Some(_) => [close(last), open(part)].concat(),
    }
}

/// One answer as it comes, and an empty line.
fn write_answer(chat: &mut Conversation, message: &str, thoughts: bool) -> Result<(), Box<dyn Error>> {
    let (mut out, mut last, mut written) = (io::stdout(), None, Ok(()));
    let answer = chat.ask(message, |part, text| {
        if part == Part::Reasoning && !thoughts {
            return ControlFlow::Continue(());
        }
        written = write!(out, "{}{text}", between(last, part)).and_then(|()| out.flush());
        last = Some(part);
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    written?;
    if last.is_some() || answer.is_ok() {
        write!(out, "{}", close(last))?;
        out.flush()?;
    }
    report(&answer?);
    Ok(())
}

extern "C" {
    fn isatty(descriptor: c_int) -> c_int;
}

fn converse(chat: &mut Conversation, thoughts: bool) -> Result<(), Box<dyn Error>> {
    // SAFETY: any number may be asked for.
    let terminal = unsafe { isatty(0) } != 0;
    let (mut input, mut line) = (io::stdin().lock(), Vec::new());
    loop {
        if terminal {
            print!("> ");
            io::stdout().flush()?;
        }
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let message = text.trim_end_matches(&['\n', '\r'][..]);
        if message.trim().is_empty() {
            continue;
        }
        if !terminal {
            println!("> {message}");
        }
        write_answer(chat, message, thoughts)?;
    }
    if terminal {
        println!();
    }
    Ok(())
}

fn chat(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let context = arguments.context.unwrap_or(4096);
    let model = Model::load(&arguments.model, ModelOptions::new().max_sessions(1).context_length(context))?;
    let mut options = ChatOptions::new();
    if let Some(think) = &arguments.think {
        options = options.enable_thinking(think != "off");
    }
    if arguments.preserve_thinking {
        options = options.preserve_thinking(true);
    }
    let mut chat = Conversation::new(&model, ChatTemplate::load(&arguments.model)?)?
        .chat_options(options)
        .generate_options(GenerateOptions::new(arguments.max_tokens.unwrap_or(1024)));
    if let Some(system) = arguments.system {
        chat = chat.system(system);
    }
    let mut sampling = model.sampling()?.seed(arguments.seed);
    if arguments.greedy {
        sampling = sampling.temperature(0.0);
    }
    chat.session().set_sampling(sampling)?;
    converse(&mut chat, arguments.think.as_deref() == Some("on"))
}

fn main() {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return print!("{HELP}"),
        Err(text) => {
            eprintln!("chat: {text}\nTry 'chat --help'.");
            std::process::exit(2);
        }
    };
    if let Err(error) = chat(arguments) {
        eprintln!("chat: {error}");
        std::process::exit(1);
    }
}
