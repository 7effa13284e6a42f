//! The tokenizer, and the decoder that makes text of tokens as they come.

use std::marker::PhantomData;
use std::mem::zeroed;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

use qwen36_sys as sys;

use crate::error::{check, fill, struct_size, Error, ErrorKind, Result};
use crate::model::{path_text, Model};

/// Text to token ids and back.
pub struct Tokenizer {
    raw: NonNull<sys::qwen36_tokenizer>,
    /// The model that lends it; None for one that is destroyed with this.
    owner: Option<Model>,
}

// SAFETY: the library lets any number of threads use a tokenizer.
unsafe impl Send for Tokenizer {}
unsafe impl Sync for Tokenizer {}

impl Tokenizer {
    /// Loads the tokenizer of a model directory, without any weights.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self> {
        let path = path_text(directory.as_ref())?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid during the call.
        check(|error| unsafe { sys::qwen36_tokenizer_load(path.as_ptr(), ptr::null(), &mut raw, error) })?;
        Ok(Self { raw: NonNull::new(raw).expect("a loaded tokenizer"), owner: None })
    }

    pub(crate) fn of_model(model: &Model) -> Option<Self> {
        // SAFETY: the model is alive, and its clone keeps the tokenizer so.
        let raw = unsafe { sys::qwen36_model_tokenizer(model.raw()) };
        NonNull::new(raw as *mut _).map(|raw| Self { raw, owner: Some(model.clone()) })
    }

    pub(crate) fn raw(&self) -> *const sys::qwen36_tokenizer {
        self.raw.as_ptr()
    }

    /// The ids of a text. The text of an added token, such as `<|im_end|>`, is ordinary text.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        self.encode_flags(text, 0)
    }

    /// The same, but the text of an added token becomes that token.
    pub fn encode_special(&self, text: &str) -> Result<Vec<i32>> {
        self.encode_flags(text, sys::QWEN36_ENCODE_PARSE_SPECIAL)
    }

    fn encode_flags(&self, text: &str, flags: u32) -> Result<Vec<i32>> {
        let (data, length) = (text.as_ptr().cast(), text.len());
        // SAFETY: the text and the buffer are valid for their lengths.
        fill(|ids, capacity, count, error| unsafe {
            sys::qwen36_tokenizer_encode(self.raw(), data, length, flags, ids, capacity, count, error)
        })
    }

    /// The bytes that ids stand for, which need not be whole UTF-8. `skip_special`: special tokens give none.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<Vec<u8>> {
        let flags = if skip_special { sys::QWEN36_DECODE_SKIP_SPECIAL } else { 0 };
        // SAFETY: the ids and the buffer are valid for their lengths.
        fill(|text: *mut u8, capacity, count, error| unsafe {
            let (data, length) = (ids.as_ptr(), ids.len());
            sys::qwen36_tokenizer_decode(self.raw(), data, length, flags, text.cast(), capacity, count, error)
        })
    }

    /// The text that ids stand for; what is not UTF-8 is U+FFFD. For tokens as they come: [`Tokenizer::decoder`].
    pub fn decode_text(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.decode(ids, skip_special)?).into_owned())
    }

    /// The bytes of one token; None for an unknown id.
    pub fn token_bytes(&self, token: i32) -> Option<&[u8]> {
        let mut length = 0;
        // SAFETY: the bytes live as long as the tokenizer.
        unsafe {
            let bytes = sys::qwen36_tokenizer_bytes(self.raw(), token, &mut length);
            (!bytes.is_null()).then(|| slice::from_raw_parts(bytes.cast(), length))
        }
    }

    /// The id whose bytes are exactly these.
    pub fn token_id(&self, bytes: impl AsRef<[u8]>) -> Option<i32> {
        let bytes = bytes.as_ref();
        // SAFETY: the bytes are valid for their length.
        let id = unsafe { sys::qwen36_tokenizer_id(self.raw(), bytes.as_ptr().cast(), bytes.len()) };
        (id >= 0).then_some(id)
    }

    /// Whether a token is marked special.
    pub fn is_special(&self, token: i32) -> bool {
        // SAFETY: any id may be asked for.
        unsafe { sys::qwen36_tokenizer_is_special(self.raw(), token) != 0 }
    }

    /// Number of token ids: the highest id + 1.
    pub fn size(&self) -> usize {
        // SAFETY: the tokenizer is alive.
        unsafe { sys::qwen36_tokenizer_size(self.raw()) as usize }
    }

    /// A decoder that makes text of tokens as they come. `skip_special`: special tokens give no text.
    pub fn decoder(&self, skip_special: bool) -> Result<Decoder<'_>> {
        self.decoder_with_stops(skip_special, &[])
    }

    /// The same, whose text ends where one of the stop strings begins.
    pub fn decoder_with_stops(&self, skip_special: bool, stops: &[&str]) -> Result<Decoder<'_>> {
        let stops = Stops::new(stops);
        let mut raw = ptr::null_mut();
        // SAFETY: all fields may be zero, and init fills them; the pointers are valid during the calls.
        unsafe {
            let mut options: sys::qwen36_decoder_options = zeroed();
            sys::qwen36_decoder_options_init(&mut options, struct_size::<sys::qwen36_decoder_options>() as usize);
            options.flags = if skip_special { sys::QWEN36_DECODE_SKIP_SPECIAL } else { 0 };
            options.stops = stops.texts.as_ptr();
            options.stop_lengths = stops.lengths.as_ptr();
            options.stop_count = stops.texts.len();
            check(|error| sys::qwen36_decoder_create(self.raw(), &options, &mut raw, error))?;
        }
        Ok(Decoder { raw: NonNull::new(raw).expect("a created decoder"), tokenizer: PhantomData })
    }
}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: made by qwen36_tokenizer_load, and nothing refers to it any more.
            unsafe { sys::qwen36_tokenizer_destroy(self.raw.as_ptr()) }
        }
    }
}

/// Stop strings as the library takes them. They borrow the texts: those must live longer.
pub(crate) struct Stops {
    pub texts: Vec<*const c_char>,
    pub lengths: Vec<usize>,
}

impl Stops {
    pub fn new(stops: &[impl AsRef<str>]) -> Self {
        let texts = stops.iter().map(|stop| stop.as_ref().as_ptr().cast()).collect();
        let lengths = stops.iter().map(|stop| stop.as_ref().len()).collect();
        Self { texts, lengths }
    }
}

/// Tokens to text, one by one: the pieces are whole characters and add up to the text.
pub struct Decoder<'t> {
    raw: NonNull<sys::qwen36_decoder>,
    tokenizer: PhantomData<&'t Tokenizer>,
}

// SAFETY: a decoder may move between threads.
unsafe impl Send for Decoder<'_> {}

type DecoderText = (*const c_char, usize);

impl Decoder<'_> {
    /// The text that is complete with this token, possibly empty.
    pub fn push(&mut self, token: i32) -> Result<&str> {
        let (mut text, mut length) = (ptr::null(), 0);
        let raw = self.raw.as_ptr();
        // SAFETY: the pointers are valid during the call.
        check(|error| unsafe { sys::qwen36_decoder_push(raw, token, &mut text, &mut length, error) })?;
        self.text((text, length))
    }

    /// The index of the stop string that ended the text; also after `finish`, until the next `push`.
    pub fn stopped(&self) -> Option<usize> {
        // SAFETY: the decoder is alive.
        usize::try_from(unsafe { sys::qwen36_decoder_stopped(self.raw.as_ptr()) }).ok()
    }

    /// Ends the text: what was held back comes out, a character that never came whole as U+FFFD. The decoder is then as
    /// new.
    pub fn finish(&mut self) -> Result<&str> {
        let (mut text, mut length) = (ptr::null(), 0);
        let raw = self.raw.as_ptr();
        // SAFETY: the pointers are valid during the call.
        check(|error| unsafe { sys::qwen36_decoder_finish(raw, &mut text, &mut length, error) })?;
        self.text((text, length))
    }

    fn text(&mut self, (text, length): DecoderText) -> Result<&str> {
        // SAFETY: borrowed until the next call on the decoder, which takes &mut self.
        let bytes = unsafe { slice::from_raw_parts(text.cast(), length) };
        std::str::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::Internal, "the decoder gave invalid UTF-8"))
    }
}

impl Drop for Decoder<'_> {
    fn drop(&mut self) {
        // SAFETY: made by qwen36_decoder_create, and nothing refers to it any more.
        unsafe { sys::qwen36_decoder_destroy(self.raw.as_ptr()) }
    }
}
