//! Small Arrow tables for the engine's reports: traces, fault logs, inspections.

use std::collections::HashMap;

use arrow_array::{RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::capsule::{batch_to_py, schema_to_py, stream_to_py};
use crate::convert::counted;
use crate::interop;

#[doc = stub!(Table)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// A table of one batch.
    pub fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }

    /// The same rows under a schema with this metadata.
    pub fn with_metadata(mut self, metadata: HashMap<String, String>) -> Self {
        self.batch.schema_metadata_mut().extend(metadata);
        self
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let schema = self.batch.schema();
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        format!(
            "<fletchlog.types.Table: {} of {}>",
            counted(self.batch.num_rows(), "row"),
            columns.join(", ")
        )
    }

    /// What a notebook shows.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "table_html", None)
    }

    #[doc = stub!(Table.schema)]
    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "schema", None)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream_to_py(
            py,
            Box::new(RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema())),
        )
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        batch_to_py(py, self.batch.clone())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_to_py(py, &self.batch.schema())
    }

    #[doc = stub!(Table.to_pyarrow)]
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pyarrow", None)
    }

    #[doc = stub!(Table.to_pandas)]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(slf: &Bound<'py, Self>, options: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_pandas", options)
    }

    #[doc = stub!(Table.to_polars)]
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        interop::call(slf.as_any(), "to_polars", None)
    }
}
