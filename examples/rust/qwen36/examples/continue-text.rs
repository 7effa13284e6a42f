//! Continues a text: continue-text MODEL-DIRECTORY TEXT [TOKENS]

use qwen36::{GenerateOptions, Logits, Model, ModelOptions, Result};
use std::io::Write;
use std::ops::ControlFlow;

fn continue_text(directory: &str, text: &str, tokens: i32) -> Result<()> {
    let model = Model::load(directory, ModelOptions::new().max_sessions(1))?;
    let tokenizer = model.tokenizer().expect("a model with a tokenizer");
    let mut session = model.session()?;
    session.set_sampling(model.sampling()?.temperature(0.0))?;
    session.append(&tokenizer.encode_special(text)?, Logits::Last)?;
    print!("{text}");
    session.generate(GenerateOptions::new(tokens), |_, piece| {
        print!("{piece}");
        match std::io::stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    println!();
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() < 3 {
        eprintln!("usage: continue-text MODEL-DIRECTORY TEXT [TOKENS]");
        std::process::exit(2);
    }
    let tokens = words.get(3).and_then(|word| word.parse().ok()).unwrap_or(40);
    if let Err(error) = continue_text(&words[1], &words[2], tokens) {
        eprintln!("continue-text: {error}");
        std::process::exit(1);
    }
}
