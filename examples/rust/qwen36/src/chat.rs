//! Chat messages to the text, or the tokens, that the model was trained on.

use std::ffi::CString;
use std::mem::zeroed;
use std::path::Path;
use std::ptr::{self, NonNull};

use qwen36_sys as sys;

use crate::error::{check, fill, static_text, struct_size, Error, ErrorKind, Result};
use crate::model::path_text;
use crate::tokenizer::Tokenizer;

/// How a conversation is rendered; what is not set is as the template does by itself.
pub struct ChatOptions {
    raw: sys::qwen36_chat_options,
    tools: Option<String>,
    effort: Option<CString>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ChatOptions {
    /// The defaults.
    pub fn new() -> Self {
        // SAFETY: all fields may be zero, and init fills them.
        let raw = unsafe {
            let mut raw: sys::qwen36_chat_options = zeroed();
            sys::qwen36_chat_options_init(&mut raw, struct_size::<sys::qwen36_chat_options>() as usize);
            raw
        };
        Self { raw, tools: None, effort: None }
    }

    /// Tools as JSON, a list in OpenAI's form.
    pub fn tools(mut self, json: impl Into<String>) -> Self {
        self.tools = Some(json.into());
        self
    }

    /// Whether the text ends where the assistant's answer begins.
    pub fn add_generation_prompt(mut self, yes: bool) -> Self {
        self.raw.add_generation_prompt = yes.into();
        self
    }

    /// Whether the answer begins inside `<think>`.
    pub fn enable_thinking(mut self, yes: bool) -> Self {
        self.raw.enable_thinking = yes.into();
        self
    }

    /// Whether answers before the last query keep their reasoning.
    pub fn preserve_thinking(mut self, yes: bool) -> Self {
        self.raw.preserve_thinking = yes.into();
        self
    }

    /// Whether pictures and videos are numbered.
    pub fn add_vision_id(mut self, yes: bool) -> Self {
        self.raw.add_vision_id = yes.into();
        self
    }

    /// Whether an unknown template is rendered as the known one that is nearest.
    pub fn allow_nearest(mut self, yes: bool) -> Self {
        self.raw.allow_nearest = yes.into();
        self
    }

    /// Whether the text of a token inside a message becomes that token.
    pub fn parse_special_in_content(mut self, yes: bool) -> Self {
        self.raw.parse_special_in_content = yes.into();
        self
    }

    /// How long to think, for templates that know it: "low", "medium" or "xhigh".
    pub fn reasoning_effort(mut self, effort: &str) -> Result<Self> {
        let text = CString::new(effort).map_err(|_| Error::new(ErrorKind::Argument, "an effort holds a NUL"))?;
        self.effort = Some(text);
        Ok(self)
    }

    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// The options for a call, which point into self.
    fn native(&self) -> sys::qwen36_chat_options {
        let mut native = self.raw;
        if let Some(tools) = &self.tools {
            native.tools = tools.as_ptr().cast();
            native.tools_length = tools.len();
        }
        if let Some(effort) = &self.effort {
            native.reasoning_effort = effort.as_ptr();
        }
        native
    }
}

/// The chat template of a checkpoint. Messages are JSON: a list of {"role", "content", ...} in OpenAI's form.
pub struct ChatTemplate {
    raw: NonNull<sys::qwen36_chat_template>,
}

// SAFETY: the library lets any number of threads use a template.
unsafe impl Send for ChatTemplate {}
unsafe impl Sync for ChatTemplate {}

impl ChatTemplate {
    /// The template of a model directory.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self> {
        let path = path_text(directory.as_ref())?;
        // SAFETY: the path is valid during the call.
        Self::create(|place, error| unsafe { sys::qwen36_chat_template_load(path.as_ptr(), ptr::null(), place, error) })
    }

    /// The same from the text of a template.
    pub fn parse(text: &str) -> Result<Self> {
        // SAFETY: the text is valid for its length.
        Self::create(|place, error| unsafe {
            sys::qwen36_chat_template_parse(text.as_ptr().cast(), text.len(), ptr::null(), place, error)
        })
    }

    fn create(call: impl FnOnce(*mut *mut sys::qwen36_chat_template, *mut sys::qwen36_error) -> i32) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(|error| call(&mut raw, error))?;
        Ok(Self { raw: NonNull::new(raw).expect("a created template") })
    }

    /// "qwen3.6" and the like; "unknown" for a template that the library does not know.
    pub fn name(&self) -> &'static str {
        // SAFETY: names are static.
        unsafe { static_text(sys::qwen36_chat_template_name(self.raw.as_ptr())) }
    }

    /// The text of a conversation.
    pub fn render(&self, messages: &str, options: &ChatOptions) -> Result<String> {
        let native = options.native();
        // SAFETY: the options point into `options`; messages and buffer are valid for their lengths.
        let text = fill(|text: *mut u8, capacity, count, error| unsafe {
            let (data, length) = (messages.as_ptr().cast(), messages.len());
            sys::qwen36_chat_render(self.raw.as_ptr(), data, length, &native, text.cast(), capacity, count, error)
        })?;
        String::from_utf8(text).map_err(|_| Error::new(ErrorKind::Internal, "the template gave invalid UTF-8"))
    }

    /// The tokens of a conversation. The text of a token inside a message is ordinary text, so what a user types cannot
    /// end a turn.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &str, options: &ChatOptions) -> Result<Vec<i32>> {
        let native = options.native();
        // SAFETY: as for render.
        fill(|ids, capacity, count, error| unsafe {
            let (data, length) = (messages.as_ptr().cast(), messages.len());
            let (chat, tokenizer) = (self.raw.as_ptr(), tokenizer.raw());
            sys::qwen36_chat_encode(chat, tokenizer, data, length, &native, ids, capacity, count, error)
        })
    }
}

impl Drop for ChatTemplate {
    fn drop(&mut self) {
        // SAFETY: made by the library, and nothing refers to it any more.
        unsafe { sys::qwen36_chat_template_destroy(self.raw.as_ptr()) }
    }
}
