//! Sampling options.

use std::mem::zeroed;

use qwen36_sys as sys;

use crate::error::{struct_size, Error, Result};
use crate::model::Model;

macro_rules! sampling {
    ($($(#[$text:meta])+ $name:ident: $kind:ty,)+) => {
        /// How the next token is chosen. `model.sampling()?.temperature(0.0)` changes one of the model's defaults.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Sampling {
            $($(#[$text])+ pub $name: $kind,)+
        }

        impl Sampling {
            $($(#[$text])+
            pub fn $name(mut self, $name: $kind) -> Self {
                self.$name = $name;
                self
            })+

            pub(crate) fn from_native(native: &sys::qwen36_sampling) -> Self {
                Self { $($name: native.$name,)+ }
            }

            pub(crate) fn to_native(self) -> sys::qwen36_sampling {
                let mut native = empty();
                $(native.$name = self.$name;)+
                native
            }
        }
    };
}

sampling! {
    /// Keep the k most likely tokens; 0 off, 1 greedy.
    top_k: i32,
    /// 0 greedy, else logits are divided by it.
    temperature: f32,
    /// Keep the smallest set of at least this probability; 1 off.
    top_p: f32,
    /// Keep tokens of at least this part of the largest probability; 0 off.
    min_p: f32,
    /// Penalty of tokens in the timeline; 1 off.
    repetition_penalty: f32,
    /// Subtracted once for a token in the output; 0 off.
    presence_penalty: f32,
    /// Subtracted per occurrence in the output; 0 off.
    frequency_penalty: f32,
    /// -1 none; 0 the log-probability of the chosen token; n: also the n largest.
    logprobs: i32,
    /// Draws depend on seed, stream and position.
    seed: u64,
    /// Independent draws under one seed.
    stream: u64,
}

impl Sampling {
    pub(crate) fn defaults(model: &Model) -> Result<Self> {
        let mut native = empty();
        // SAFETY: the model is alive, and the struct has the size that is given.
        let status = unsafe { sys::qwen36_sampling_init(model.raw(), &mut native, native.struct_size as usize) };
        if status < 0 {
            return Err(Error::from_status(status));
        }
        Ok(Self::from_native(&native))
    }
}

pub(crate) fn empty() -> sys::qwen36_sampling {
    // SAFETY: all fields may be zero.
    let mut native: sys::qwen36_sampling = unsafe { zeroed() };
    native.struct_size = struct_size::<sys::qwen36_sampling>();
    native
}

/// Log-probabilities of a sampled token: its own, and those of the most likely tokens in descending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// That of the token that was chosen.
    pub chosen: f32,
    /// The most likely tokens, each with its log-probability.
    pub top: Vec<(i32, f32)>,
}
