//! The declarations of `qwen36.h`, as bindgen makes them; the header says what they mean. The crate `qwen36` is the
//! safe way to use them.

#![allow(non_camel_case_types)]

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
