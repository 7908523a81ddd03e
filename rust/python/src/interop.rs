//! Calls of `fletchlog.interop`, which imports pyarrow, pandas and polars only when they are needed.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Calls `fletchlog.interop.<function>(value, **options)`.
pub fn call<'py>(
    value: &Bound<'py, PyAny>,
    function: &str,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    value
        .py()
        .import("fletchlog.interop")?
        .call_method(function, (value,), options)
}
