//! The one way from Python into the engine: without the GIL, interruptible, panics contained.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::errors::Failure;
use crate::logging;

/// Runs one call of the engine detached from Python.
///
/// The callback handed to `call` answers whether a signal handler wants to stop the call; the engine asks about every
/// 50 ms while it waits, with no lock held. Signals are handled on the main thread only; other threads are woken with `Consumer.wakeup`.
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
            if let Some(error) = Python::attach(|py| py.check_signals().err()) {
                raised.get_or_insert(error);
            }
            raised.is_some()
        };
        logging::emit_after(|| {
            catch_unwind(AssertUnwindSafe(|| call(&mut stop))).unwrap_or_else(|panic| Err(Failure::panic(&*panic)))
        })
    });
    match raised {
        Some(error) => Err(error),
        None => outcome.map_err(|failure| failure.into_py(py)),
    }
}
