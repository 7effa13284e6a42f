#![doc = include_str!("../../README.md")]
#![warn(missing_docs)]

mod answer;
mod chat;
mod conversation;
mod error;
mod hooks;
mod json;
mod model;
mod sampling;
mod session;
mod tokenizer;

pub use answer::{Part, ToolCall};
pub use chat::{ChatOptions, ChatTemplate};
pub use conversation::{messages_json, Answer, Conversation, Message, Role};
pub use error::{Error, ErrorKind, Result};
pub use model::{
    memory_estimate, Cpu, Info, KvDtype, LogLevel, MemoryEstimate, Model, ModelOptions, Numerics, Stats, WeightsAccess,
};
pub use sampling::{Logprobs, Sampling};
pub use session::{
    sample, step, Finish, GenerateOptions, Generated, Interrupter, Logits, Progress, Session, SessionOptions,
};
pub use tokenizer::{Decoder, Tokenizer};

/// The version of the library that runs, such as "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: the text is static.
    unsafe { error::static_text(qwen36_sys::qwen36_version_string()) }
}

/// The backend that the library was built with: "cpu" or "cuda".
pub fn backend() -> &'static str {
    // SAFETY: the text is static.
    unsafe { error::static_text(qwen36_sys::qwen36_backend_name()) }
}
