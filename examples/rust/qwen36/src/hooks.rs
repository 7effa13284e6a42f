//! Callbacks: a panic in one must not unwind through the library. It is kept, and goes on when the call has returned.

use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Mutex;

/// A place for the first panic of some callbacks.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<Box<dyn Any + Send>>>);

impl Kept {
    /// Runs a callback, unless one has panicked already. `failed` is its result then.
    pub fn run<T>(&self, failed: T, callback: impl FnOnce() -> T) -> T {
        if self.place().is_some() {
            return failed;
        }
        // What the callback leaves behind is seen by the same caller who sees the panic.
        match catch_unwind(AssertUnwindSafe(callback)) {
            Ok(value) => value,
            Err(panic) => {
                *self.place() = Some(panic);
                failed
            }
        }
    }

    /// Lets a kept panic go on.
    pub fn resume(&self) {
        let panic = self.place().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
