//! Sessions: timelines of tokens, the steps that compute them, and what is sampled from them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use qwen36_sys as sys;

use crate::error::{check, fill, struct_size, Error, ErrorKind, Result};
use crate::hooks::Kept;
use crate::model::{path_text, read_stats, Model, Stats};
use crate::sampling::{empty, Logprobs, Sampling};
use crate::tokenizer::Stops;

/// Which logits an append wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None.
    None = sys::QWEN36_LOGITS_NONE as isize,
    /// Those after the last token.
    Last = sys::QWEN36_LOGITS_LAST as isize,
    /// A row for every token, given to the session's `on_logits`.
    All = sys::QWEN36_LOGITS_ALL as isize,
}

/// How a session stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is pending any more.
    Done,
    /// Tokens remain to be computed: step again.
    Pending,
    /// The session was interrupted; it stands at its last computed token.
    Interrupted,
}

impl Progress {
    fn from_status(status: i32) -> Self {
        match status {
            sys::QWEN36_INTERRUPTED => Self::Interrupted,
            sys::QWEN36_OK => Self::Done,
            _ => Self::Pending,
        }
    }
}

type OnLogits = dyn FnMut(usize, &[f32]) + Send;

struct LogitsHook {
    on_logits: Mutex<Box<OnLogits>>,
    kept: Kept,
}

unsafe extern "C" fn on_logits(
    user: *mut c_void,
    _session: *mut sys::qwen36_session,
    position: i32,
    logits: *const f32,
    vocab_size: i32,
) {
    let hook = &*(user as *const LogitsHook);
    let row = slice::from_raw_parts(logits, vocab_size as usize);
    hook.kept.run((), || {
        let mut callback = hook.on_logits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        callback(position as usize, row);
    });
}

/// How to create a session.
#[derive(Default)]
pub struct SessionOptions {
    context_length: Option<i32>,
    on_logits: Option<Box<OnLogits>>,
    prefix_space: u64,
}

impl SessionOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Capacity in tokens; by default the model's.
    pub fn context_length(mut self, tokens: i32) -> Self {
        self.context_length = Some(tokens);
        self
    }

    /// What was computed of one timeline serves all sessions of the same space (a tenant) that begin with the same
    /// tokens. By default 0; a fork has that of its twin.
    pub fn prefix_space(mut self, space: u64) -> Self {
        self.prefix_space = space;
        self
    }

    /// Receives position and row of every token appended with [`Logits::All`].
    pub fn on_logits(mut self, on_logits: impl FnMut(usize, &[f32]) + Send + 'static) -> Self {
        self.on_logits = Some(Box::new(on_logits));
        self
    }
}

fn restore_options(session: &sys::qwen36_session_options) -> sys::qwen36_restore_options {
    // SAFETY: all fields may be zero, and init fills them.
    let mut how: sys::qwen36_restore_options = unsafe {
        let mut how = zeroed();
        sys::qwen36_restore_options_init(&mut how, struct_size::<sys::qwen36_restore_options>() as usize);
        how
    };
    how.session = session;
    how
}

/// The session of the library; it ends with the last reference.
struct Inner {
    raw: NonNull<sys::qwen36_session>,
    hook: Option<Arc<LogitsHook>>,
    model: Model,
}

// SAFETY: a session may move between threads. What is shared between them is only used to interrupt, which the library
// allows at any time, and to destroy after everything else.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the session any more; the model and the hook end after it.
        unsafe { sys::qwen36_session_destroy(self.raw.as_ptr()) }
    }
}

/// Interrupts a session, from any thread and also while a call on it runs.
#[derive(Clone)]
pub struct Interrupter(Weak<Inner>);

impl Interrupter {
    /// Asks a running step to drop the session's tokens; without one the next step reports
    /// [`Progress::Interrupted`] at once. When the session is gone it does nothing.
    pub fn interrupt(&self) {
        if let Some(session) = self.0.upgrade() {
            // SAFETY: the session is alive; this call may run beside any other.
            unsafe { sys::qwen36_session_interrupt(session.raw.as_ptr()) }
        }
    }
}

/// One timeline of tokens. Moves between threads, but serves one at a time:
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<qwen36::Session>();
/// ```
pub struct Session {
    inner: Arc<Inner>,
    not_sync: PhantomData<Cell<()>>,
}

impl Session {
    /// An empty timeline with the model's default sampling.
    pub fn new(model: &Model, options: SessionOptions) -> Result<Self> {
        Self::open(model, options, |native, raw, error| {
            // SAFETY: the options are filled, and the place is valid during the call.
            unsafe { sys::qwen36_session_create(model.raw(), native, raw, error) }
        })
    }

    /// A second session at the same point, at once, whatever the length: what is computed is shared until one of the
    /// two goes on. Sampling options are the same; give the fork another `stream`, or it draws the same tokens. It has
    /// the capacity of this session, and no callback.
    pub fn fork(&self) -> Result<Self> {
        self.fork_with(SessionOptions::new())
    }

    /// The same with another capacity, or with a callback.
    pub fn fork_with(&self, mut options: SessionOptions) -> Result<Self> {
        options.context_length = options.context_length.or(Some(self.capacity() as i32));
        Self::open(self.model(), options, |native, raw, error| {
            // SAFETY: the session is alive, the options are filled, and the place is valid during the call.
            unsafe { sys::qwen36_session_fork(self.raw(), native, raw, error) }
        })
    }

    /// Writes the whole session, for [`Session::restore`]; the file appears whole under its name or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path.as_ref())?;
        // SAFETY: the session and the text are alive.
        check(|error| unsafe { sys::qwen36_session_save(self.raw(), path.as_ptr(), error) })?;
        Ok(())
    }

    /// The same as bytes.
    pub fn save_bytes(&self) -> Result<Vec<u8>> {
        // SAFETY: the buffer is valid for its capacity.
        fill(|memory: *mut u8, capacity, size, error| unsafe {
            sys::qwen36_session_save_memory(self.raw(), memory as *mut c_void, capacity, size, error)
        })
    }

    /// A new session that stands where the saved one stood.
    pub fn restore(model: &Model, path: impl AsRef<Path>, options: SessionOptions) -> Result<Self> {
        let path = path_text(path.as_ref())?;
        Self::open(model, options, |native, raw, error| {
            let how = restore_options(native);
            // SAFETY: the model is alive, and what the call reads is valid during it.
            unsafe { sys::qwen36_session_restore(model.raw(), path.as_ptr(), &how, raw, error) }
        })
    }

    /// The same from bytes.
    pub fn restore_bytes(model: &Model, bytes: &[u8], options: SessionOptions) -> Result<Self> {
        Self::open(model, options, |native, raw, error| {
            let how = restore_options(native);
            let memory = bytes.as_ptr() as *const c_void;
            // SAFETY: as above.
            unsafe { sys::qwen36_session_restore_memory(model.raw(), memory, bytes.len(), &how, raw, error) }
        })
    }

    fn open(
        model: &Model,
        options: SessionOptions,
        call: impl FnOnce(&sys::qwen36_session_options, *mut *mut sys::qwen36_session, *mut sys::qwen36_error) -> i32,
    ) -> Result<Self> {
        let hook = options
            .on_logits
            .map(|on_logits| Arc::new(LogitsHook { on_logits: Mutex::new(on_logits), kept: Kept::default() }));
        // SAFETY: all fields may be zero, and init fills them.
        let mut native: sys::qwen36_session_options = unsafe {
            let mut native = zeroed();
            let size = struct_size::<sys::qwen36_session_options>() as usize;
            sys::qwen36_session_options_init(model.raw(), &mut native, size);
            native
        };
        native.context_length = options.context_length.unwrap_or(native.context_length);
        native.prefix_space = options.prefix_space;
        if let Some(hook) = &hook {
            native.on_logits = Some(on_logits);
            native.user = Arc::as_ptr(hook) as *mut c_void; // kept as long as the session
        }
        let mut raw = ptr::null_mut();
        check(|error| call(&native, &mut raw, error))?;
        let raw = NonNull::new(raw).expect("a session");
        let inner = Arc::new(Inner { raw, hook, model: model.clone() });
        Ok(Self { inner, not_sync: PhantomData })
    }

    fn raw(&self) -> *mut sys::qwen36_session {
        self.inner.raw.as_ptr()
    }

    /// Lets a panic of a callback go on.
    fn resume(&self) {
        if let Some(hook) = &self.inner.hook {
            hook.kept.resume();
        }
        self.inner.model.resume();
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.inner.model
    }

    /// A handle that interrupts this session.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::downgrade(&self.inner))
    }

    /// Adds tokens as pending; computes nothing.
    pub fn append(&mut self, tokens: &[i32], logits: Logits) -> Result<()> {
        let (data, count) = (tokens.as_ptr(), tokens.len());
        // SAFETY: the tokens are valid for their count.
        check(|error| unsafe { sys::qwen36_session_append(self.raw(), data, count, logits as i32, error) })?;
        Ok(())
    }

    /// Makes the timeline equal to these tokens by the least work that is exact, with logits wanted after the last one.
    /// Returns how many leading tokens need not be computed again; the rest is pending.
    pub fn sync(&mut self, tokens: &[i32]) -> Result<usize> {
        let (data, count, mut reused) = (tokens.as_ptr(), tokens.len(), 0);
        // SAFETY: the tokens are valid for their count.
        check(|error| unsafe { sys::qwen36_session_sync(self.raw(), data, count, &mut reused, error) })?;
        Ok(reused)
    }

    /// Shortens the timeline to its first `length` tokens.
    pub fn rewind(&mut self, length: usize) -> Result<()> {
        // SAFETY: the session is alive.
        check(|error| unsafe { sys::qwen36_session_rewind(self.raw(), length, error) })?;
        Ok(())
    }

    /// Empties the timeline. Options stay.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: the session is alive.
        check(|error| unsafe { sys::qwen36_session_reset(self.raw(), error) })?;
        Ok(())
    }

    /// Tokens in the timeline.
    pub fn len(&self) -> usize {
        // SAFETY: the session is alive.
        unsafe { sys::qwen36_session_length(self.raw()) }
    }

    /// Whether the timeline is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leading tokens that have passed through the model; the others are pending.
    pub fn computed(&self) -> usize {
        // SAFETY: the session is alive.
        unsafe { sys::qwen36_session_computed(self.raw()) }
    }

    /// Tokens that fit.
    pub fn capacity(&self) -> usize {
        // SAFETY: the session is alive.
        unsafe { sys::qwen36_session_capacity(self.raw()) }
    }

    /// Tokens of the timeline: `session.tokens(..)` are all.
    pub fn tokens(&self, range: impl RangeBounds<usize>) -> Result<Vec<i32>> {
        let begin = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&index) => index + 1,
            Bound::Excluded(&index) => index,
            Bound::Unbounded => self.len(),
        };
        if end < begin || end > self.len() {
            return Err(Error::new(ErrorKind::Argument, format!("tokens {begin}..{end} are outside the timeline")));
        }
        let mut tokens = vec![0; end - begin];
        let (data, count) = (tokens.as_mut_ptr(), tokens.len());
        // SAFETY: the buffer is valid for its count.
        check(|error| unsafe { sys::qwen36_session_tokens(self.raw(), begin, count, data, error) })?;
        Ok(tokens)
    }

    /// The logits after the last computed token, one per id of the vocabulary. Borrowed until something changes them:
    ///
    /// ```compile_fail
    /// fn keeps(session: &mut qwen36::Session) -> qwen36::Result<f32> {
    ///     let logits = session.logits()?;
    ///     session.step()?;
    ///     Ok(logits[0])
    /// }
    /// ```
    pub fn logits(&self) -> Result<&[f32]> {
        let (mut logits, mut count) = (ptr::null(), 0);
        // SAFETY: the row is borrowed until a call that takes &mut self.
        unsafe {
            check(|error| sys::qwen36_session_logits(self.raw(), &mut logits, &mut count, error))?;
            Ok(slice::from_raw_parts(logits, count as usize))
        }
    }

    /// Appends tokens, computes them, and returns for each the natural logarithm of its probability.
    pub fn score(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        let mut values = vec![0.0; tokens.len()];
        let (data, count, place) = (tokens.as_ptr(), tokens.len(), values.as_mut_ptr());
        // SAFETY: tokens and values are valid for their count.
        let result = check(|error| unsafe { sys::qwen36_session_score(self.raw(), data, count, place, error) });
        self.resume();
        match result? {
            sys::QWEN36_INTERRUPTED => Err(Error::from_status(sys::QWEN36_INTERRUPTED)),
            _ => Ok(values),
        }
    }

    /// What this session did, and what it stands on.
    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: the session is alive, and the struct has its size.
        read_stats(|stats, error| unsafe { sys::qwen36_session_get_stats(self.raw(), stats, error) })
    }

    /// The sampling options in force.
    pub fn sampling(&self) -> Result<Sampling> {
        let mut native = empty();
        // SAFETY: the struct has its size.
        check(|error| unsafe { sys::qwen36_session_get_sampling(self.raw(), &mut native, error) })?;
        Ok(Sampling::from_native(&native))
    }

    /// Replaces the sampling options.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<()> {
        let native = sampling.to_native();
        // SAFETY: the struct has its size.
        check(|error| unsafe { sys::qwen36_session_set_sampling(self.raw(), &native, error) })?;
        Ok(())
    }

    /// Adds to the logits of tokens; -infinity forbids one. Replaces earlier biases; an empty slice removes them.
    pub fn set_bias(&mut self, bias: &[(i32, f32)]) -> Result<()> {
        let (tokens, values): (Vec<i32>, Vec<f32>) = bias.iter().copied().unzip();
        let (tokens_at, values_at) = (tokens.as_ptr(), values.as_ptr());
        // SAFETY: both arrays are valid for their count.
        check(|error| unsafe { sys::qwen36_session_set_bias(self.raw(), tokens_at, values_at, bias.len(), error) })?;
        Ok(())
    }

    /// Allowed tokens: bit t % 32 of word t / 32, `info.bitmask_words` words. None removes it.
    pub fn set_bitmask(&mut self, words: Option<&[u32]>) -> Result<()> {
        let (data, count) = words.map_or((ptr::null(), 0), |words| (words.as_ptr(), words.len()));
        // SAFETY: the words are valid for their count.
        check(|error| unsafe { sys::qwen36_session_set_bitmask(self.raw(), data, count, error) })?;
        Ok(())
    }

    /// Log-probabilities of the last token sampled, if the sampling options asked for them.
    pub fn logprobs(&self) -> Result<Logprobs> {
        const ROOM: usize = sys::QWEN36_LOGPROBS_MAX as usize;
        let (mut chosen, mut tokens, mut values, mut count) = (0.0, [0; ROOM], [0.0; ROOM], 0);
        let (tokens_at, values_at) = (tokens.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: both arrays are valid for their capacity.
        check(|error| unsafe {
            sys::qwen36_session_logprobs(self.raw(), &mut chosen, tokens_at, values_at, ROOM, &mut count, error)
        })?;
        let top = tokens.iter().copied().zip(values.iter().copied()).take(count).collect();
        Ok(Logprobs { chosen, top })
    }

    /// [`step`] for this session alone.
    pub fn step(&mut self) -> Result<Progress> {
        step(&mut [self], None)?.remove(0)
    }

    /// Steps until nothing is pending.
    pub fn compute(&mut self) -> Result<Progress> {
        loop {
            match self.step()? {
                Progress::Pending => continue,
                progress => return Ok(progress),
            }
        }
    }

    /// [`sample`] for this session alone.
    pub fn sample(&mut self) -> Result<i32> {
        sample(&mut [self])?.remove(0)
    }

    /// Continues the timeline: computes what is pending, then samples until something ends it. `on_text` receives every
    /// token with the text that became complete with it, at last -1; Break stops.
    pub fn generate(
        &mut self,
        options: GenerateOptions,
        mut on_text: impl FnMut(i32, &str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let mut hook = TextHook { on_text: &mut on_text, kept: Kept::default() };
        let (mut native, stops) = (options.native(), Stops::new(&options.stops));
        native.stops = stops.texts.as_ptr();
        native.stop_lengths = stops.lengths.as_ptr();
        native.stop_count = stops.texts.len();
        native.on_text = Some(on_text_hook);
        native.user = &mut hook as *mut TextHook as *mut c_void;
        // SAFETY: all fields may be zero; the hook outlives the call.
        let mut result: sys::qwen36_generate_result = unsafe { zeroed() };
        result.struct_size = struct_size::<sys::qwen36_generate_result>();
        let status = check(|error| unsafe { sys::qwen36_generate(self.raw(), &native, &mut result, error) });
        hook.kept.resume();
        self.resume();
        status?;
        Ok(Generated::from_native(&result))
    }
}

// ---- generation ----------------------------------------------------------------------------------------------------

struct TextHook<'a> {
    on_text: &'a mut dyn FnMut(i32, &str) -> ControlFlow<()>,
    kept: Kept,
}

unsafe extern "C" fn on_text_hook(user: *mut c_void, token: i32, text: *const c_char, length: usize) -> i32 {
    let TextHook { on_text, kept } = &mut *(user as *mut TextHook);
    let text = String::from_utf8_lossy(slice::from_raw_parts(text.cast(), length));
    kept.run(ControlFlow::Break(()), || on_text(token, &text)).is_break() as i32
}

/// How to generate.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    max_tokens: i32,
    stops: Vec<String>,
    end_tokens: Option<Vec<i32>>,
    ignore_end_tokens: bool,
    skip_special: bool,
}

impl GenerateOptions {
    /// At most this many tokens.
    pub fn new(max_tokens: i32) -> Self {
        Self { max_tokens, stops: Vec::new(), end_tokens: None, ignore_end_tokens: false, skip_special: true }
    }

    /// The text ends where this one begins. May be repeated.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stops.push(text.into());
        self
    }

    /// Tokens that end the generation, instead of the model's.
    pub fn end_tokens(mut self, tokens: impl Into<Vec<i32>>) -> Self {
        self.end_tokens = Some(tokens.into());
        self
    }

    /// Whether an end token does not stop.
    pub fn ignore_end_tokens(mut self, yes: bool) -> Self {
        self.ignore_end_tokens = yes;
        self
    }

    /// Whether special tokens give no text.
    pub fn skip_special(mut self, yes: bool) -> Self {
        self.skip_special = yes;
        self
    }

    /// All but the stop strings. Points into self.
    fn native(&self) -> sys::qwen36_generate_options {
        // SAFETY: all fields may be zero, and init fills them.
        let mut native: sys::qwen36_generate_options = unsafe { zeroed() };
        let size = struct_size::<sys::qwen36_generate_options>() as usize;
        unsafe { sys::qwen36_generate_options_init(&mut native, size) };
        native.max_tokens = self.max_tokens;
        if let Some(tokens) = &self.end_tokens {
            native.end_tokens = tokens.as_ptr();
            native.end_token_count = tokens.len();
        }
        native.ignore_end_tokens = self.ignore_end_tokens.into();
        native.decode_flags = if self.skip_special { sys::QWEN36_DECODE_SKIP_SPECIAL } else { 0 };
        native
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model ended it.
    EndToken,
    /// The number of tokens.
    Length,
    /// The session is full.
    ContextFull,
    /// The callback said so.
    Callback,
    /// The session was interrupted.
    Interrupted,
    /// A stop string.
    Stop,
    /// A reason that a later version of the library has.
    Other(i32),
}

/// What a generation did.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Generated {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens computed before the first sample.
    pub prompt_tokens: u64,
    /// Tokens sampled, the end token included.
    pub output_tokens: u64,
    /// Up to the first sampled token.
    pub prompt_time: Duration,
    /// From there on.
    pub output_time: Duration,
    /// The index of the stop string that ended it.
    pub stop: Option<usize>,
    /// The end token that ended it.
    pub end_token: Option<i32>,
}

impl Generated {
    fn from_native(result: &sys::qwen36_generate_result) -> Self {
        let finish = match result.finish as u32 {
            sys::QWEN36_FINISH_END_TOKEN => Finish::EndToken,
            sys::QWEN36_FINISH_LENGTH => Finish::Length,
            sys::QWEN36_FINISH_CONTEXT_FULL => Finish::ContextFull,
            sys::QWEN36_FINISH_CALLBACK => Finish::Callback,
            sys::QWEN36_FINISH_INTERRUPTED => Finish::Interrupted,
            sys::QWEN36_FINISH_STOP => Finish::Stop,
            _ => Finish::Other(result.finish),
        };
        Self {
            finish,
            prompt_tokens: result.prompt_tokens,
            output_tokens: result.output_tokens,
            prompt_time: Duration::from_secs_f64(result.prompt_seconds),
            output_time: Duration::from_secs_f64(result.output_seconds),
            stop: usize::try_from(result.stop).ok(),
            end_token: (result.end_token >= 0).then_some(result.end_token),
        }
    }
}

// ---- one iteration over sessions of one model ----------------------------------------------------------------------

fn pointers(sessions: &[&mut Session]) -> Vec<*mut sys::qwen36_session> {
    sessions.iter().map(|session| session.raw()).collect()
}

/// The outcome of each session, or the error of the whole call when no session has one. The first error of a session
/// carries the text.
fn outcomes<T>(result: Result<i32>, statuses: &[i32], value: impl Fn(usize) -> T) -> Result<Vec<Result<T>>> {
    let mut first = result.err();
    if statuses.iter().all(|&status| status >= 0) {
        if let Some(error) = first {
            return Err(error);
        }
    }
    let outcome = |(index, &status): (usize, &i32)| match status {
        status if status >= 0 => Ok(value(index)),
        status => Err(first.take().unwrap_or_else(|| Error::from_status(status))),
    };
    Ok(statuses.iter().enumerate().map(outcome).collect())
}

/// Computes pending tokens of sessions of one model, at most `max_tokens`. Each session has its own outcome: one that
/// fails does not stop the others. Err is a failure of the whole call.
pub fn step(sessions: &mut [&mut Session], max_tokens: Option<i32>) -> Result<Vec<Result<Progress>>> {
    let pointers = pointers(sessions);
    let mut statuses = vec![0; pointers.len()];
    let (count, statuses_at) = (pointers.len(), statuses.as_mut_ptr());
    let options = max_tokens.map(|max_tokens| sys::qwen36_step_options {
        struct_size: struct_size::<sys::qwen36_step_options>(),
        max_tokens,
    });
    let options_at = options.as_ref().map_or(ptr::null(), |options| options as *const _);
    // SAFETY: the arrays are valid for their count, and the sessions are borrowed.
    let result = check(|error| unsafe { sys::qwen36_step(pointers.as_ptr(), count, options_at, statuses_at, error) });
    sessions.iter().for_each(|session| session.resume());
    outcomes(result, &statuses, |index| Progress::from_status(statuses[index]))
}

/// Chooses the next token of every session and appends it as pending. Outcomes as for [`step`].
pub fn sample(sessions: &mut [&mut Session]) -> Result<Vec<Result<i32>>> {
    let pointers = pointers(sessions);
    let (mut tokens, mut statuses) = (vec![-1; pointers.len()], vec![0; pointers.len()]);
    let (count, tokens_at, statuses_at) = (pointers.len(), tokens.as_mut_ptr(), statuses.as_mut_ptr());
    // SAFETY: the arrays are valid for their count, and the sessions are borrowed.
    let result = check(|error| unsafe { sys::qwen36_sample(pointers.as_ptr(), count, tokens_at, statuses_at, error) });
    outcomes(result, &statuses, |index| tokens[index])
}
