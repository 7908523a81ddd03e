//! Values that are made once for a process.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors::Failure;

/// The value of a cell, made by the first call. Two threads may both make one; the first is kept. Unlike in `get_or_try_init`, no thread
/// waits for another: a child forked while a parent's thread makes the value would wait forever, because it does not have that thread.
pub fn once<'a, T>(py: Python<'_>, cell: &'a PyOnceLock<T>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'a T> {
    if cell.get(py).is_none() {
        let made = make()?;
        let _ = cell.set(py, made); // This thread is attached, so no other can fork meanwhile.
    }
    cell.get(py)
        .ok_or_else(|| Failure::state("a value was not kept".to_owned()).into())
}
