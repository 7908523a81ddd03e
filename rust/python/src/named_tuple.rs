//! Named tuples, made without a Python function call for each.
#![allow(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// Returns `tuple.__new__(class, fields)`, which the `__new__` of a named tuple calls. It calls the slot behind that method, because the
/// method itself would make another tuple of its arguments each time.
///
/// # Errors
/// `TypeError` if the class is not derived from `tuple`; `MemoryError`.
pub fn new<'py>(class: &Bound<'py, PyType>, fields: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    if !class.is_subclass_of::<PyTuple>()? {
        return Err(PyTypeError::new_err(format!("{class} is not derived from tuple")));
    }
    let arguments = PyTuple::new(py, [fields])?;
    // SAFETY: the thread is attached, as `class` proves. `tuple` is a static type, whose slots may be asked for from Python 3.10 on, and
    // its `tp_new` is never null; the slot has the type of a `newfunc` by definition. It needs a class derived from `tuple`, checked above,
    // and a tuple of arguments; it borrows both and returns a new reference, or null with an exception set. `tests/arrow/test_export.py`
    // compares its result with that of the class.
    unsafe {
        let slot = ffi::PyType_GetSlot(&raw mut ffi::PyTuple_Type, ffi::Py_tp_new);
        let tuple_new = std::mem::transmute::<*mut std::ffi::c_void, ffi::newfunc>(slot);
        let made = tuple_new(class.as_type_ptr(), arguments.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, made)
    }
}
