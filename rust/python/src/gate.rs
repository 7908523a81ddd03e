//! The one way from Python into the engine: without the GIL, interruptible, panics contained.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::Failure;
use crate::logging;

/// Runs one call of the engine detached from Python.
///
/// The callback passed to `call` returns whether a signal handler wants to stop the call; the engine asks it about every 50 ms while it
/// waits, with no lock held. Signals are handled on the main thread only; other threads are woken with `Consumer.wakeup`.
///
/// # Errors
/// The exception that the signal handler raised (KeyboardInterrupt), else the engine's failure as its Python class.
pub fn gate<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let mut raised: Option<PyErr> = None;
    let outcome = py.detach(|| {
        let mut stop = || {
            logging::emit();
            // An ending interpreter has no signals. The call continues: it may be a flush in a finalizer.
            if let Some(error) = Python::try_attach(|py| py.check_signals().err()).flatten() {
                raised.get_or_insert(error);
            }
            raised.is_some()
        };
        logging::emit_after(|| contained(|| call(&mut stop)))
    });
    if let Some(error) = raised {
        return Err(error);
    }
    outcome.map_err(|failure| {
        // Ctrl-C may have come in a part of the call that does not check for it, such as a request to an object store.
        py.check_signals().err().unwrap_or_else(|| failure.into_py(py))
    })
}

/// Runs a short call that keeps the GIL.
///
/// # Errors
/// Those of the call, also when it panics.
pub fn contained<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::panic(&*panic)))
}

/// Runs a call that checks for Ctrl-C while it holds locks. It runs in its own thread, while this thread, which holds no lock, checks every
/// 50 ms. That thread has ended when this returns.
///
/// # Errors
/// Those of the call, also when it panics.
pub fn beside<T: Send, E: Into<Failure> + Send>(
    stop: &mut dyn FnMut() -> bool,
    call: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T, E> + Send,
) -> Result<T, Failure> {
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        let worker = scope.spawn(|| {
            // Dropped when the call returns or panics.
            let _ended = ended;
            call(&mut || stopped.load(Ordering::Relaxed))
        });
        while end.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            if stop() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
        let outcome = worker.join().map_err(|panic| Failure::panic(&*panic))?;
        outcome.map_err(Into::into)
    })
}
