//! The model: weights, tokenizer, cache, worker threads.

use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use qwen36_sys as sys;

use crate::error::{check, fill, struct_size, Error, ErrorKind, Result};
use crate::hooks::Kept;
use crate::sampling::Sampling;
use crate::session::{Session, SessionOptions};
use crate::tokenizer::Tokenizer;

/// How exact the arithmetic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// Activations, KV and states in float32.
    Reference = sys::QWEN36_NUMERICS_REFERENCE as isize,
    /// Activations may be rounded for matrix products; KV is BF16 by default.
    Fast = sys::QWEN36_NUMERICS_FAST as isize,
}

/// Storage of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    /// float32 with [`Numerics::Reference`], BF16 with [`Numerics::Fast`].
    Auto = sys::QWEN36_KV_AUTO as isize,
    /// float32.
    F32 = sys::QWEN36_KV_F32 as isize,
    /// BF16.
    Bf16 = sys::QWEN36_KV_BF16 as isize,
    /// 8-bit integers with float32 scales: about half of BF16.
    I8 = sys::QWEN36_KV_I8 as isize,
}

/// How the weight files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsAccess {
    /// Mapped: fast to load, shared between processes.
    Map = sys::QWEN36_WEIGHTS_MAP as isize,
    /// Copied into memory: immune to files that are truncated.
    Read = sys::QWEN36_WEIGHTS_READ as isize,
}

/// Instruction set of the CPU kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// The best one that the processor has.
    Auto = sys::QWEN36_CPU_AUTO as isize,
    /// C11 without extensions.
    Portable = sys::QWEN36_CPU_PORTABLE as isize,
    /// AVX2, FMA, F16C.
    Avx2 = sys::QWEN36_CPU_AVX2 as isize,
    /// AVX-512, with BF16 where the processor has it.
    Avx512 = sys::QWEN36_CPU_AVX512 as isize,
}

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For those who work on the library.
    Debug,
    /// What happens.
    Info,
    /// What should not be so.
    Warning,
}

/// Facts about a loaded model; `qwen36_model_info` in the header says what each field is.
pub type Info = sys::qwen36_model_info;

/// What a model or a session did, and what it holds; `qwen36_stats` in the header says what each field is.
pub type Stats = sys::qwen36_stats;

/// Bytes that a model would take.
pub type MemoryEstimate = sys::qwen36_memory_estimate;

type Log = dyn Fn(LogLevel, &str) + Send + Sync;
type OnProgress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

struct LogHook {
    log: Box<Log>,
    kept: Kept,
}

struct ProgressHook<'a> {
    progress: Box<OnProgress<'a>>,
    kept: Kept,
}

unsafe extern "C" fn on_log(user: *mut c_void, level: i32, message: *const c_char) {
    let hook = &*(user as *const LogHook);
    let message = CStr::from_ptr(message).to_string_lossy();
    let level = match level {
        0 => LogLevel::Debug,
        1 => LogLevel::Info,
        _ => LogLevel::Warning,
    };
    hook.kept.run((), || (hook.log)(level, &message));
}

unsafe extern "C" fn on_progress(user: *mut c_void, done: u64, total: u64) -> i32 {
    let ProgressHook { progress, kept } = &mut *(user as *mut ProgressHook);
    kept.run(ControlFlow::Break(()), || progress(done, total)).is_break() as i32
}

/// How to load a model; what is not set has the library's default.
pub struct ModelOptions<'a> {
    raw: sys::qwen36_model_options,
    prefix_directory: Option<CString>,
    log: Option<Arc<LogHook>>,
    progress: Option<ProgressHook<'a>>,
}

impl Default for ModelOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> ModelOptions<'a> {
    /// The defaults.
    pub fn new() -> Self {
        // SAFETY: all fields may be zero, and init fills them.
        let raw = unsafe {
            let mut raw: sys::qwen36_model_options = zeroed();
            sys::qwen36_model_options_init(&mut raw, struct_size::<sys::qwen36_model_options>() as usize);
            raw
        };
        Self { raw, prefix_directory: None, log: None, progress: None }
    }

    /// How exact the arithmetic is.
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.raw.numerics = numerics as i32;
        self
    }

    /// Storage of the KV cache.
    pub fn kv_dtype(mut self, kv_dtype: KvDtype) -> Self {
        self.raw.kv_dtype = kv_dtype as i32;
        self
    }

    /// How the weight files are read.
    pub fn weights_access(mut self, access: WeightsAccess) -> Self {
        self.raw.weights_access = access as i32;
        self
    }

    /// Instruction set of the CPU kernels.
    pub fn cpu(mut self, cpu: Cpu) -> Self {
        self.raw.cpu_tier = cpu as i32;
        self
    }

    /// Workers including the calling thread.
    pub fn threads(mut self, threads: i32) -> Self {
        self.raw.threads = threads;
        self
    }

    /// Sessions that may exist at a time.
    pub fn max_sessions(mut self, sessions: i32) -> Self {
        self.raw.max_sessions = sessions;
        self
    }

    /// Tokens per session.
    pub fn context_length(mut self, tokens: i32) -> Self {
        self.raw.context_length = tokens;
        self
    }

    /// Rows of one step.
    pub fn max_batch_tokens(mut self, tokens: i32) -> Self {
        self.raw.max_batch_tokens = tokens;
        self
    }

    /// Whether what was computed for one timeline serves others that begin with the same tokens.
    pub fn prefix_reuse(mut self, reuse: bool) -> Self {
        self.raw.prefix_reuse = reuse as i32;
        self
    }

    /// Memory for KV blocks.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.raw.cache_bytes = bytes;
        self
    }

    /// Memory for snapshots of the recurrent state, without which no prefix can be reused.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Self {
        self.raw.snapshot_bytes = bytes;
        self
    }

    /// The share, in (0, 1], of the memory of this process that KV blocks, states and snapshots take together, instead
    /// of `cache_bytes`.
    pub fn memory_share(mut self, share: f32) -> Self {
        self.raw.memory_share = share;
        self
    }

    /// Which device, counted from 0.
    pub fn device(mut self, device: i32) -> Self {
        self.raw.device = device;
        self
    }

    /// Only kernels that every device can run.
    pub fn general_kernels(mut self, only: bool) -> Self {
        let tier = if only { sys::QWEN36_DEVICE_TIER_GENERAL } else { sys::QWEN36_DEVICE_TIER_AUTO };
        self.raw.device_tier = tier as i32;
        self
    }

    /// Logits that do not depend on what else a step holds, on a device too.
    pub fn batch_invariant(mut self, invariant: bool) -> Self {
        self.raw.batch_invariant = invariant.into();
        self
    }

    /// An existing directory in which prefixes outlive the process, and the bytes that its files may take together.
    pub fn prefix_directory(mut self, directory: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        let path = path_text(directory.as_ref())?;
        self.raw.prefix_directory = path.as_ptr(); // the text stays where it is while it moves
        self.raw.prefix_directory_bytes = bytes;
        self.prefix_directory = Some(path);
        Ok(self)
    }

    /// Receives messages for a log file, while the model lives.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        let hook = Arc::new(LogHook { log: Box::new(log), kept: Kept::default() });
        self.raw.log = Some(on_log);
        self.raw.log_user = Arc::as_ptr(&hook) as *mut c_void;
        self.log = Some(hook);
        self
    }

    /// Called now and then while loading, with bytes done and in all; Break cancels the load.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Some(ProgressHook { progress: Box::new(progress), kept: Kept::default() });
        self
    }

    fn resume(&self) {
        if let Some(hook) = &self.log {
            hook.kept.resume();
        }
        if let Some(hook) = &self.progress {
            hook.kept.resume();
        }
    }
}

/// A loaded checkpoint. A clone is one more reference to the same model; any number of threads may use it.
pub struct Model {
    raw: NonNull<sys::qwen36_model>,
    log: Option<Arc<LogHook>>,
}

// SAFETY: the library lets any number of threads use a model, and the log callback is Send and Sync.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    /// Loads a model directory as published.
    pub fn load(directory: impl AsRef<Path>, mut options: ModelOptions<'_>) -> Result<Self> {
        let path = path_text(directory.as_ref())?;
        if let Some(hook) = &mut options.progress {
            options.raw.progress = Some(on_progress);
            options.raw.progress_user = hook as *mut ProgressHook as *mut c_void;
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid during the call; the log hook is kept by the model, and progress is not
        // called after the load.
        let result = check(|error| unsafe { sys::qwen36_model_load(path.as_ptr(), &options.raw, &mut raw, error) });
        let model = NonNull::new(raw).map(|raw| Self { raw, log: options.log.clone() });
        options.resume();
        result?;
        Ok(model.expect("a loaded model"))
    }

    pub(crate) fn raw(&self) -> *mut sys::qwen36_model {
        self.raw.as_ptr()
    }

    /// Lets a panic of the log callback go on.
    pub(crate) fn resume(&self) {
        if let Some(hook) = &self.log {
            hook.kept.resume();
        }
    }

    /// Facts about the model.
    pub fn info(&self) -> Result<Info> {
        // SAFETY: all fields may be zero; the pointers are valid during the call.
        unsafe {
            let mut info: Info = zeroed();
            info.struct_size = struct_size::<Info>();
            check(|error| sys::qwen36_model_get_info(self.raw(), &mut info, error))?;
            Ok(info)
        }
    }

    /// What all sessions did since the model was loaded, how full its memory is, and where the time went.
    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: the struct has its size.
        read_stats(|stats, error| unsafe { sys::qwen36_model_get_stats(self.raw(), stats, error) })
    }

    /// Forgets what is kept of timelines that no session stands on any more, and every snapshot.
    pub fn clear_cache(&self) -> Result<()> {
        // SAFETY: the model is alive.
        check(|error| unsafe { sys::qwen36_model_clear_cache(self.raw(), error) })?;
        Ok(())
    }

    /// Writes the prefixes that are known now into the directory of prefixes.
    pub fn flush_prefixes(&self) -> Result<()> {
        // SAFETY: the model is alive.
        check(|error| unsafe { sys::qwen36_model_flush_prefixes(self.raw(), error) })?;
        Ok(())
    }

    /// The tokens that end a generation.
    pub fn end_tokens(&self) -> Result<Vec<i32>> {
        // SAFETY: the buffer is valid for its capacity.
        fill(|ids, capacity, count, error| unsafe {
            sys::qwen36_model_end_tokens(self.raw(), ids, capacity, count, error)
        })
    }

    /// The model's tokenizer, None if its directory has none. It keeps the model alive.
    pub fn tokenizer(&self) -> Option<Tokenizer> {
        Tokenizer::of_model(self)
    }

    /// The model's default sampling options.
    pub fn sampling(&self) -> Result<Sampling> {
        Sampling::defaults(self)
    }

    /// A new session with default options.
    pub fn session(&self) -> Result<Session> {
        Session::new(self, SessionOptions::new())
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        // SAFETY: the model is alive; retain returns its argument.
        unsafe { sys::qwen36_model_retain(self.raw()) };
        Self { raw: self.raw, log: self.log.clone() }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: this reference is dropped once.
        unsafe { sys::qwen36_model_release(self.raw()) }
    }
}

/// What a function writes into a place for statistics.
pub(crate) fn read_stats(call: impl FnOnce(*mut Stats, *mut sys::qwen36_error) -> i32) -> Result<Stats> {
    // SAFETY: all fields may be zero.
    let mut stats: Stats = unsafe { zeroed() };
    stats.struct_size = struct_size::<Stats>();
    check(|error| call(&mut stats, error))?;
    Ok(stats)
}

/// What a model of a directory would take with these options, in bytes; reads configuration and headers only.
pub fn memory_estimate(directory: impl AsRef<Path>, options: &ModelOptions<'_>) -> Result<MemoryEstimate> {
    let path = path_text(directory.as_ref())?;
    // SAFETY: all fields may be zero; the pointers are valid during the call.
    unsafe {
        let mut estimate: MemoryEstimate = zeroed();
        estimate.struct_size = struct_size::<MemoryEstimate>();
        let result = check(|error| sys::qwen36_memory_estimate_read(path.as_ptr(), &options.raw, &mut estimate, error));
        options.resume();
        result.map(|_| estimate)
    }
}

pub(crate) fn path_text(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::new(ErrorKind::Argument, "a path holds a NUL"))
}
