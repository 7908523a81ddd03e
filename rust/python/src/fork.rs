//! Handles that know their process and their state.
//!
//! A handle opened before `fork()` must not touch files, locks or threads of its parent: every entry compares the
//! process id with the one at opening, and a handle that is dropped in a child is leaked instead of closed. After a
//! panic inside the engine the handle cannot be trusted: later calls fail.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use pyo3::prelude::*;

use crate::errors::Failure;
use crate::gate::gate;
use crate::logging;
use crate::operation::awaited;

/// The id of this process: a system call for it takes longer than queueing a record. 0: ask the system.
static PROCESS: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_process() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Makes every forked child store its own id before anything else runs in it. Called when the module is loaded; it is never unloaded.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler stays loaded, since Python never unloads a module. It is safe in the child of a process with threads: it
        // calls getpid and stores a number, without locks or allocations. `tests/python/test_handles.py` forks.
        let watched = unsafe { libc::pthread_atfork(None, None, Some(note_process)) } == 0;
        // Stored only after the registration, so that no child keeps its parent's id.
        if watched {
            note_process();
        }
    });
}

fn process_id() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => std::process::id(),
        known => known,
    }
}

/// The kind, the process and the state of a handle.
#[derive(Debug)]
struct Stamp {
    what: &'static str,
    pid: u32,
    broken: AtomicBool,
}

impl Stamp {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            pid: process_id(),
            broken: AtomicBool::new(false),
        }
    }

    fn is_owner(&self) -> bool {
        self.pid == process_id()
    }

    fn check(&self) -> Result<(), Failure> {
        if !self.is_owner() {
            return Err(Failure::forked(self.what, self.pid));
        }
        if self.broken.load(Ordering::Relaxed) {
            return Err(Failure::broken(self.what));
        }
        Ok(())
    }
}

/// Marks a handle broken if the call panics.
struct Watch<'a>(&'a Stamp);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Relaxed);
        }
    }
}

/// The callback with which the engine asks [`gate`] whether to stop.
pub type Stop<'a> = &'a mut dyn FnMut() -> bool;

/// A thread-safe value that one process owns.
#[derive(Debug)]
pub struct Shared<T: Send> {
    stamp: Stamp,
    value: Option<T>,
}

impl<T: Send + Sync> Shared<T> {
    /// A value owned by this process.
    pub fn new(what: &'static str, value: T) -> Self {
        Self {
            stamp: Stamp::new(what),
            value: Some(value),
        }
    }

    /// The value, in the process that opened it.
    pub fn get(&self) -> Result<&T, Failure> {
        self.stamp.check()?;
        self.value.as_ref().ok_or_else(|| Failure::closed(self.stamp.what))
    }

    /// Calls the engine through the gate.
    pub fn call<R: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&T, Stop<'_>) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        gate(py, |stop| {
            let value = self.get()?;
            let _watch = Watch(&self.stamp);
            f(value, stop).map_err(Into::into)
        })
    }
}

impl<T: Send + Sync> Shared<T> {
    /// As [`Shared::call`], and inside an operation of an event loop suspended where it would sleep.
    pub fn awaited<R: Send + 'static, E: Into<Failure> + Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        f: impl FnOnce(&T, Stop<'_>) -> Result<R, E> + Send + 'static,
    ) -> PyResult<R>
    where
        T: 'static,
    {
        let this = Arc::clone(self);
        awaited(py, move |stop| {
            let value = this.get()?;
            let _watch = Watch(&this.stamp);
            f(value, stop).map_err(Into::into)
        })
    }

    /// Calls the engine with the GIL held: the call must neither wait nor call Python. It may only try locks, and only those whose holders
    /// do not need the GIL.
    pub fn at_once<R>(&self, py: Python<'_>, f: impl FnOnce(&T) -> R) -> PyResult<R> {
        let outcome = self.get().and_then(|value| {
            let _watch = Watch(&self.stamp);
            logging::emit_after(|| catch_unwind(AssertUnwindSafe(|| f(value))).map_err(|panic| Failure::panic(&*panic)))
        });
        outcome.map_err(|failure| failure.into_py(py))
    }
}

impl<T: Send> Drop for Shared<T> {
    fn drop(&mut self) {
        release(&self.stamp, self.value.take());
    }
}

/// A value that only one thread at a time may use: a second thread gets an error instead of waiting. So its lock may be held while the
/// engine checks for Ctrl-C.
#[derive(Debug)]
pub struct Exclusive<T: Send> {
    stamp: Stamp,
    value: Mutex<Slot<T>>,
}

/// Where the value is. The lock around it is held for a moment only: a call has the value, not the lock.
#[derive(Debug)]
enum Slot<T> {
    Free(Box<T>),
    InUse,
    Closed,
}

/// The value while a call has it.
struct Lease<'a, T: Send> {
    of: &'a Exclusive<T>,
    value: Option<Box<T>>,
}

impl<T: Send> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        *self.of.lock() = self.value.take().map_or(Slot::Closed, Slot::Free);
    }
}

impl<T: Send> Exclusive<T> {
    /// An open handle.
    pub fn new(what: &'static str, value: T) -> Self {
        Self {
            stamp: Stamp::new(what),
            value: Mutex::new(Slot::Free(Box::new(value))),
        }
    }

    /// Calls the engine through the gate.
    pub fn call<R: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T, Stop<'_>) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        let called = self.call_if_open(py, f)?;
        called.ok_or_else(|| Failure::closed(self.stamp.what).into())
    }

    /// As [`Exclusive::call`], and inside an operation of an event loop suspended where it would sleep.
    pub fn awaited<R: Send + 'static, E: Into<Failure> + Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        f: impl FnOnce(&mut T, Stop<'_>) -> Result<R, E> + Send + 'static,
    ) -> PyResult<R>
    where
        T: 'static,
    {
        let called = self.awaited_if_open(py, f)?;
        called.ok_or_else(|| Failure::closed(self.stamp.what).into_py(py))
    }

    /// As [`Exclusive::awaited`], but does nothing if it is closed.
    pub fn awaited_if_open<R: Send + 'static, E: Into<Failure> + Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        f: impl FnOnce(&mut T, Stop<'_>) -> Result<R, E> + Send + 'static,
    ) -> PyResult<Option<R>>
    where
        T: 'static,
    {
        let this = Arc::clone(self);
        awaited(py, move |stop| {
            this.enter(|slot| {
                slot.as_mut()
                    .map(|value| f(value, stop))
                    .transpose()
                    .map_err(Into::into)
            })
        })
    }

    /// Like [`Exclusive::call`], but does nothing if it is closed.
    pub fn call_if_open<R: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T, Stop<'_>) -> Result<R, E> + Send,
    ) -> PyResult<Option<R>> {
        gate(py, |stop| {
            self.enter(|slot| {
                slot.as_mut()
                    .map(|value| f(value, stop))
                    .transpose()
                    .map_err(Into::into)
            })
        })
    }

    /// Closes: takes the value out, so that later calls return `Closed`. Closing twice does nothing. Inside an operation of an event loop it is
    /// suspended where it would sleep.
    pub fn close<E: Into<Failure> + Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        f: impl FnOnce(T, Stop<'_>) -> Result<(), E> + Send + 'static,
    ) -> PyResult<()>
    where
        T: 'static,
    {
        let this = Arc::clone(self);
        awaited(py, move |stop| {
            this.enter(|slot| slot.take().map_or(Ok(()), |value| f(*value, stop).map_err(Into::into)))
        })
    }

    /// Text for a repr: never waits, never fails.
    pub fn peek(&self, f: impl FnOnce(&T) -> String) -> String {
        if !self.stamp.is_owner() {
            return "of another process".to_owned();
        }
        if self.stamp.broken.load(Ordering::Relaxed) {
            return "broken".to_owned();
        }
        match &*self.lock() {
            Slot::Free(value) => f(value),
            Slot::InUse => "in use by another call".to_owned(),
            Slot::Closed => "closed".to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Result<Lease<'_, T>, Failure> {
        let mut slot = self.lock();
        let value = match std::mem::replace(&mut *slot, Slot::InUse) {
            Slot::Free(value) => Some(value),
            Slot::Closed => None,
            Slot::InUse => return Err(Failure::concurrent(self.stamp.what)),
        };
        Ok(Lease { of: self, value })
    }

    fn enter<R>(&self, f: impl FnOnce(&mut Option<Box<T>>) -> Result<R, Failure>) -> Result<R, Failure> {
        self.stamp.check()?;
        let mut lease = self.lease()?;
        let _watch = Watch(&self.stamp);
        f(&mut lease.value)
    }
}

impl<T: Send> Drop for Exclusive<T> {
    fn drop(&mut self) {
        let slot = self.value.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Slot::Free(value) = std::mem::replace(slot, Slot::Closed) {
            release(&self.stamp, Some(value));
        }
    }
}

/// Drops the value of a handle that was not closed. In a forked child it is leaked: its threads and locks are the parent's. Otherwise it is
/// dropped detached from Python, because its threads may log while they end.
fn release<T: Send>(stamp: &Stamp, value: Option<T>) {
    let Some(value) = value else { return };
    if !stamp.is_owner() {
        std::mem::forget(value);
        return;
    }
    let mut value = Some(value);
    Python::try_attach(|py| {
        let value = value.take();
        py.detach(move || logging::emit_after(|| drop(value)));
    });
    drop(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(py: Python<'_>, error: &PyErr) -> String {
        error
            .get_type(py)
            .name()
            .map_or_else(|_| String::new(), |name| name.to_string())
    }

    /// Needs the interpreter that the crate is linked to, with the package on PYTHONPATH: `make test-binding`.
    #[test]
    fn a_panic_becomes_an_internal_error_and_breaks_only_its_handle() {
        Python::initialize();
        Python::attach(|py| {
            let exclusive = Exclusive::new("consumer", 1);
            let shared = Shared::new("broker", 1);
            let first = exclusive
                .call(py, |_, _| -> Result<(), Failure> { panic!("out of thin air") })
                .unwrap_err();
            assert_eq!(class_of(py, &first), "InternalError");
            assert!(first.to_string().contains("out of thin air"));
            let later = exclusive.call(py, |value, _| Ok::<_, Failure>(*value)).unwrap_err();
            assert!(later.to_string().contains("cannot be used any more"));

            assert_eq!(shared.call(py, |value, _| Ok::<_, Failure>(*value)).unwrap(), 1);
            let first = shared
                .call(py, |_, _| -> Result<(), Failure> { panic!("again") })
                .unwrap_err();
            assert_eq!(class_of(py, &first), "InternalError");
            assert!(shared.call(py, |value, _| Ok::<_, Failure>(*value)).is_err());
        });
    }
}
