//! Errors, and the forms that calls into the library have in common.

use std::ffi::CStr;
use std::fmt;
use std::mem::size_of;
use std::os::raw::c_char;

use qwen36_sys as sys;

/// What a call of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! kinds {
    ($($(#[$text:meta])+ $name:ident = $constant:ident,)+) => {
        /// What went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$text])+ $name,)+
            /// An error that a later version of the library has.
            Other(i32),
        }

        impl ErrorKind {
            pub(crate) fn from_status(status: i32) -> Self {
                match status {
                    $(sys::$constant => Self::$name,)+
                    other => Self::Other(other),
                }
            }

            /// The status of the C interface.
            pub fn status(self) -> i32 {
                match self {
                    $(Self::$name => sys::$constant,)+
                    Self::Other(status) => status,
                }
            }
        }
    };
}

kinds! {
    /// The call was interrupted; the session stands at its last computed token.
    Interrupted = QWEN36_INTERRUPTED,
    /// A value outside its range.
    Argument = QWEN36_ERROR_ARGUMENT,
    /// The library is older than these bindings, and an option is set that it does not know.
    StructSize = QWEN36_ERROR_STRUCT_SIZE,
    /// An allocation failed.
    OutOfMemory = QWEN36_ERROR_OUT_OF_MEMORY,
    /// A buffer is too small.
    BufferTooSmall = QWEN36_ERROR_BUFFER_TOO_SMALL,
    /// Called from a callback of a call on the same model.
    Busy = QWEN36_ERROR_BUSY,
    /// The object was made by a parent process.
    Forked = QWEN36_ERROR_FORKED,
    /// The progress callback asked to stop.
    Cancelled = QWEN36_ERROR_CANCELLED,
    /// A broken invariant of the library.
    Internal = QWEN36_ERROR_INTERNAL,
    /// The operating system refused a thread, a lock or a map.
    System = QWEN36_ERROR_SYSTEM,
    /// A file or the directory does not exist.
    FileNotFound = QWEN36_ERROR_FILE_NOT_FOUND,
    /// A file exists, but cannot be opened, read or mapped.
    FileRead = QWEN36_ERROR_FILE_READ,
    /// A file changed while it was being read.
    FileChanged = QWEN36_ERROR_FILE_CHANGED,
    /// A JSON file is malformed.
    Json = QWEN36_ERROR_JSON,
    /// config.json: a value is missing, of wrong type or impossible.
    Config = QWEN36_ERROR_CONFIG,
    /// Not one of the two architectures.
    Architecture = QWEN36_ERROR_ARCHITECTURE,
    /// A rope_type that is not read.
    RopeType = QWEN36_ERROR_ROPE_TYPE,
    /// A quantization that is not read.
    Quantization = QWEN36_ERROR_QUANTIZATION,
    /// A violation of the safetensors format.
    Safetensors = QWEN36_ERROR_SAFETENSORS,
    /// A file of weights is missing.
    MissingShard = QWEN36_ERROR_MISSING_SHARD,
    /// The index names a shard that lacks the tensor, or a bad path.
    IndexMismatch = QWEN36_ERROR_INDEX_MISMATCH,
    /// A tensor is missing.
    MissingTensor = QWEN36_ERROR_MISSING_TENSOR,
    /// A tensor has another shape.
    TensorShape = QWEN36_ERROR_TENSOR_SHAPE,
    /// A tensor has another type.
    TensorDtype = QWEN36_ERROR_TENSOR_DTYPE,
    /// tie_word_embeddings contradicts the tensors.
    TiedHead = QWEN36_ERROR_TIED_HEAD,
    /// tokenizer.json is malformed or of another kind.
    Tokenizer = QWEN36_ERROR_TOKENIZER,
    /// The model directory has no tokenizer.json.
    NoTokenizer = QWEN36_ERROR_NO_TOKENIZER,
    /// The chat template is none that this version knows.
    ChatTemplate = QWEN36_ERROR_CHAT_TEMPLATE,
    /// A chat request is malformed, or the template refuses it.
    ChatMessages = QWEN36_ERROR_CHAT_MESSAGES,
    /// A file cannot be written; what stood under its name still does.
    FileWrite = QWEN36_ERROR_FILE_WRITE,
    /// A snapshot is damaged, cut short, or of another format.
    Snapshot = QWEN36_ERROR_SNAPSHOT,
    /// A whole snapshot, but of another model or arithmetic.
    SnapshotMismatch = QWEN36_ERROR_SNAPSHOT_MISMATCH,
    /// A token id outside the vocabulary.
    TokenId = QWEN36_ERROR_TOKEN_ID,
    /// The session's capacity in tokens is reached.
    ContextFull = QWEN36_ERROR_CONTEXT_FULL,
    /// No KV block or state slot is free: release some, and repeat the call.
    CacheFull = QWEN36_ERROR_CACHE_FULL,
    /// As many sessions exist as the model was loaded for.
    SessionsFull = QWEN36_ERROR_SESSIONS_FULL,
    /// No logits stand at the end of the timeline: step first.
    NoLogits = QWEN36_ERROR_NO_LOGITS,
    /// The logits hold a NaN or +infinity.
    NonFinite = QWEN36_ERROR_NON_FINITE,
    /// Bitmask and bias leave no token to choose.
    NoCandidate = QWEN36_ERROR_NO_CANDIDATE,
    /// No usable device, or an operation of the backend failed.
    Device = QWEN36_ERROR_DEVICE,
    /// The device had a fault or is gone: the model can only be dropped.
    DeviceLost = QWEN36_ERROR_DEVICE_LOST,
}

/// An error of the library: what went wrong, and one line of text about where and with which values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An error of which only the status is known.
    pub(crate) fn from_status(status: i32) -> Self {
        // SAFETY: the name is static.
        let name = unsafe { static_text(sys::qwen36_status_name(status)) };
        Self::new(ErrorKind::from_status(status), name)
    }

    fn from_native(status: i32, error: &sys::qwen36_error) -> Self {
        // SAFETY: the library ends its text with NUL, and an untouched one is empty.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy();
        if message.is_empty() {
            return Self::from_status(status);
        }
        Self::new(ErrorKind::from_status(status), message)
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The status of the C interface.
    pub fn status(&self) -> i32 {
        self.kind.status()
    }

    /// One line of text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Calls a function of the library with a place for its error. A status that is no error is the result.
pub(crate) fn check(call: impl FnOnce(*mut sys::qwen36_error) -> i32) -> Result<i32> {
    let mut error = sys::qwen36_error { struct_size: struct_size::<sys::qwen36_error>(), status: 0, message: [0; 504] };
    match call(&mut error) {
        status if status < 0 => Err(Error::from_native(status, &error)),
        status => Ok(status),
    }
}

/// What a function writes into a buffer of the caller: given buffer, capacity, the place for the count and that for the
/// error, it returns its status.
pub(crate) fn fill<T: Copy + Default>(
    mut call: impl FnMut(*mut T, usize, *mut usize, *mut sys::qwen36_error) -> i32,
) -> Result<Vec<T>> {
    let mut values = vec![T::default(); 64];
    loop {
        let mut count = 0;
        let result = check(|error| call(values.as_mut_ptr(), values.len(), &mut count, error));
        match result {
            Err(error) if error.kind() != ErrorKind::BufferTooSmall => return Err(error),
            Ok(_) if count <= values.len() => {
                values.truncate(count);
                return Ok(values);
            }
            _ => values.resize(count, T::default()),
        }
    }
}

pub(crate) fn struct_size<T>() -> u32 {
    size_of::<T>() as u32
}

/// # Safety
/// The text must be static, as the library's names are.
pub(crate) unsafe fn static_text(text: *const c_char) -> &'static str {
    CStr::from_ptr(text).to_str().unwrap_or("")
}
