//! Threads of the engine that call Python, and the end of the interpreter.
//!
//! An interpreter that ends (before CPython 3.14) ends each thread that waits for the GIL, in the middle of whatever Python code the thread
//! runs. If that code was called from Rust, the process aborts. So the end of the interpreter waits for such calls, and refuses new ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyModule;

use crate::logging;

/// The process (high 32 bits), whether its interpreter is ending (the highest of the low 32 bits), and the number of calls that run.
/// One number, and no lock: a forked child starts with what another thread of its parent was doing, and counts anew.
static STATE: AtomicU64 = AtomicU64::new(0);
const IS_ENDING: u64 = 1 << 31;

/// The state, from 0 in a new process.
fn of_this_process(state: u64) -> u64 {
    let pid = u64::from(std::process::id()) << 32;
    if state >> 32 << 32 == pid { state } else { pid }
}

/// One call that runs.
struct Running;

impl Running {
    /// `None`: the interpreter is ending.
    fn begin() -> Option<Self> {
        let begun = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let state = of_this_process(state);
            (state & IS_ENDING == 0).then_some(state + 1)
        });
        begun.ok().map(|_| Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            // A process that was forked during the call has not counted it.
            (of_this_process(state) & (IS_ENDING - 1) > 0).then(|| state - 1)
        });
    }
}

/// Calls Python on a thread that Python does not wait for at its end. `None`: the interpreter is ending, nothing was called.
pub fn call_python<R>(call: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let _running = Running::begin()?;
    Python::try_attach(call)
}

/// Registered with `atexit`: from here on no thread of the engine calls Python. Waits for the calls that run.
#[pyfunction]
fn end_calls(py: Python<'_>) {
    let running = || STATE.load(Ordering::Acquire) & (IS_ENDING - 1);
    let _ = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        Some(of_this_process(state) | IS_ENDING)
    });
    py.detach(|| {
        while running() > 0 {
            sleep(Duration::from_millis(1));
        }
        logging::emit();
    });
}

/// Makes the end of the interpreter wait for these threads.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end_calls = wrap_pyfunction!(end_calls, module)?;
    module.py().import("atexit")?.call_method1("register", (end_calls,))?;
    Ok(())
}
