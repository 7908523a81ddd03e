//! The Arrow PyCapsule interface: record batches out, any Arrow data in, both without pyarrow. Also the few calls of the interpreter for
//! which PyO3 has no safe function.
#![allow(unsafe_code)]

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::convert::describe;
use crate::errors::Failure;

const STREAM: &std::ffi::CStr = c"arrow_array_stream";
const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

/// Makes the result of `__arrow_c_stream__`.
pub fn stream_to_py(py: Python<'_>, reader: Box<dyn RecordBatchReader + Send>) -> PyResult<Bound<'_, PyCapsule>> {
    let reader = Box::new(Released(Some(reader)));
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A stream that its consumer may release without the GIL (pyarrow does). PyO3 drops the stream's Python objects (an object store, a
/// callable for tokens); inside one of its own calls it does not notice that the GIL was released.
struct Released(Option<Box<dyn RecordBatchReader + Send>>);

impl Iterator for Released {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.as_mut()?.next()
    }
}

impl RecordBatchReader for Released {
    fn schema(&self) -> SchemaRef {
        let schema = self.0.as_ref().map(|reader| reader.schema());
        schema.unwrap_or_else(|| Arc::new(Schema::empty()))
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let reader = self.0.take();
        match Gil::hold() {
            // Drops without the GIL, in a way that PyO3 knows of. While the interpreter ends, drops with the GIL.
            Some(_gil) => drop(Python::try_attach(|py| py.detach(|| drop(reader)))),
            None => drop(reader),
        }
    }
}

/// Holds the GIL until it is dropped.
pub struct Gil(ffi::PyGILState_STATE);

impl Gil {
    /// Must be held to call Python from inside a stream. Its consumer may have released the GIL (pyarrow does), which PyO3 cannot detect:
    /// inside one of its own calls it assumes that the thread is still attached, and would use Python without the GIL. `None`: the thread
    /// is unknown to Python, and PyO3 attaches it as needed.
    pub fn hold() -> Option<Self> {
        // SAFETY: any thread may call both once an interpreter exists, and one loaded this module; a thread with a thread state may take
        // the GIL whether or not it holds it. `tests/arrow/test_export.py` logs from a stream that pyarrow pulls without the GIL.
        unsafe { (!ffi::PyGILState_GetThisThreadState().is_null()).then(|| Self(ffi::PyGILState_Ensure())) }
    }
}

impl Drop for Gil {
    fn drop(&mut self) {
        // SAFETY: undoes the `PyGILState_Ensure` of `hold`, on the same thread: a raw state is not `Send`.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Runs a call of a stream without the GIL, which its consumer may hold (polars) or not (pyarrow). The call may wait for a thread that
/// needs the GIL to read from an object store.
pub fn without_gil<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    match Gil::hold() {
        Some(_gil) => Python::attach(|py| py.detach(call)),
        None => call(),
    }
}

/// Whether this is the process's main interpreter: the one that `PyGILState_Ensure` uses, and so every thread that PyO3 attaches.
pub fn in_main_interpreter(_py: Python<'_>) -> bool {
    // SAFETY: the token proves that this thread is attached, so there is a current interpreter.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) == 0 }
}

/// Makes the result of `__arrow_c_schema__`.
pub fn schema_to_py<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(Failure::from)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Takes anything with `__arrow_c_schema__`.
pub fn schema_from_py(schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = schema.call_method0(pyo3::intern!(schema.py(), "__arrow_c_schema__"))?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds a valid `ArrowSchema` (checked by name above), which is only read and stays with its capsule.
    Ok(Schema::try_from(unsafe { pointer.as_ref() }).map_err(Failure::from)?)
}

/// Makes the result of `__arrow_c_array__` from one batch: (schema, array).
pub fn batch_to_py(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyTuple>> {
    let (array, schema) = to_ffi(&StructArray::from(batch).to_data()).map_err(Failure::from)?;
    PyTuple::new(
        py,
        [
            PyCapsule::new_with_value(py, schema, SCHEMA)?,
            PyCapsule::new_with_value(py, array, ARRAY)?,
        ],
    )
}

/// Arrow data from Python, as batches.
pub enum Incoming {
    /// From `__arrow_c_stream__`.
    Stream(RecordBatchStreamReader),
    /// From `__arrow_c_array__`.
    One(Option<RecordBatch>),
}

// SAFETY: the Arrow C stream interface lets the owner of a stream move it to another thread as long as calls do not overlap;
// `Incoming` owns its stream and is only used through `&mut self`. `tests/arrow/test_send_arrow.py` imports streams whose
// producer is Python code while the importing thread is detached.
unsafe impl Send for Incoming {}

impl Incoming {
    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        match self {
            Self::Stream(reader) => reader.schema(),
            Self::One(batch) => batch
                .as_ref()
                .map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema),
        }
    }
}

impl Iterator for Incoming {
    type Item = Result<RecordBatch, Failure>;
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Stream(reader) => reader.next().map(|batch| batch.map_err(Failure::from)),
            Self::One(batch) => batch.take().map(Ok),
        }
    }
}

/// Takes anything with `__arrow_c_stream__` or `__arrow_c_array__`.
pub fn arrow_from_py(data: &Bound<'_, PyAny>) -> PyResult<Incoming> {
    let py = data.py();
    if data.hasattr(pyo3::intern!(py, "__arrow_c_stream__"))? {
        let capsule = data.call_method0(pyo3::intern!(py, "__arrow_c_stream__"))?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: a capsule of this name holds a valid `ArrowArrayStream` (checked by name above); `from_raw` moves it out
        // and leaves a released stream behind, so the capsule's destructor does nothing.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }.map_err(Failure::from)?;
        return Ok(Incoming::Stream(reader));
    }
    if data.hasattr(pyo3::intern!(py, "__arrow_c_array__"))? {
        let pair = data.call_method0(pyo3::intern!(py, "__arrow_c_array__"))?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
        let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
        let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
        // SAFETY: capsules of these names hold a valid `ArrowSchema` and `ArrowArray` (checked by name above). The array is
        // moved out, which leaves a released one behind; the schema is only read and stays with its capsule.
        let data =
            unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) }.map_err(Failure::from)?;
        let batch = match data.data_type() {
            arrow_schema::DataType::Struct(_) => RecordBatch::from(StructArray::from(data)),
            other => {
                return Err(
                    Failure::argument(format!("expected a table or record batch, got an array of {other}")).into(),
                );
            }
        };
        return Ok(Incoming::One(Some(batch)));
    }
    Err(PyTypeError::new_err(format!(
        "expected Arrow data (an object with __arrow_c_stream__: pyarrow, polars, pandas >= 2.2, duckdb, ..), got {}",
        describe(data)
    )))
}
