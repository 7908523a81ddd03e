//! `ValueReader` and `ValueWriter`: columns of bytes <-> typed columns, for `fletchlog.serde`. A format has a function that makes each.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use fletchlog_serde::{ReadValue, Reason, SchemaError, WriteColumn, decode, encode};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsule::{arrow_from_py, schema_from_py, schema_to_py};
use crate::errors::Failure;
use crate::gate::gate;
use crate::object_values::{ObjectReader, ObjectWriter};
use crate::table::Table;

/// A table of one column, and for each row that has no value its number and the reason.
pub type Column = (Table, Vec<(usize, String)>);

#[doc = stub!(ValueReader)]
#[pyclass(frozen, module = "fletchlog._core")]
pub struct ValueReader {
    reader: Arc<dyn ReadValue>,
}

impl ValueReader {
    /// For Python.
    pub fn new(reader: Arc<dyn ReadValue>) -> Self {
        Self { reader }
    }

    /// What reads.
    pub fn reader(&self) -> Arc<dyn ReadValue> {
        Arc::clone(&self.reader)
    }
}

#[pymethods]
impl ValueReader {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_to_py(py, &schema(self.reader.data_type()))
    }

    #[doc = stub!(ValueReader.decode)]
    fn decode(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Column> {
        let column = only_column(data)?;
        let decoded = gate(py, |_| Ok(decode(self.reader.as_ref(), &column)?))?;
        table(decoded.column, decoded.reasons)
    }

    #[doc = stub!(ValueReader.objects)]
    fn objects(&self, py: Python<'_>) -> PyResult<Option<ObjectReader>> {
        ObjectReader::new(py, self.reader())
    }

    #[doc = stub!(ValueReader.pruned)]
    fn pruned(&self, fields: Vec<Vec<String>>) -> PyResult<Self> {
        Ok(Self::new(self.reader.pruned(&fields).map_err(Failure::from)?))
    }
}

#[doc = stub!(ValueWriter)]
#[pyclass(frozen, module = "fletchlog._core")]
pub struct ValueWriter {
    writer: Arc<dyn WriteColumn>,
}

impl ValueWriter {
    /// For Python.
    pub fn new(writer: Arc<dyn WriteColumn>) -> Self {
        Self { writer }
    }

    /// What writes.
    pub fn writer(&self) -> Arc<dyn WriteColumn> {
        Arc::clone(&self.writer)
    }
}

#[pymethods]
impl ValueWriter {
    #[doc = stub!(ValueWriter.column_type)]
    fn column_type<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        let column = only_column(data)?;
        let wanted = self.writer.column_type(column.data_type()).map_err(Failure::from)?;
        schema_to_py(py, &schema(&wanted))
    }

    #[doc = stub!(ValueWriter.encode)]
    fn encode(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Column> {
        let column = only_column(data)?;
        let encoded = gate(py, |_| Ok(encode(self.writer.as_ref(), &column)?))?;
        table(encoded.column, encoded.reasons)
    }

    #[doc = stub!(ValueWriter.objects)]
    fn objects(&self, py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<Option<ObjectWriter>> {
        ObjectWriter::new(py, self.writer(), only_type(schema)?)
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::argument(error.to_string())
    }
}

fn schema(data_type: &DataType) -> Schema {
    Schema::new(vec![Field::new("v", data_type.clone(), true)])
}

/// For Python.
pub fn table(column: ArrayRef, reasons: Vec<(usize, Reason)>) -> PyResult<Column> {
    let schema = Arc::new(schema(column.data_type()));
    let batch = RecordBatch::try_new(schema, vec![column]).map_err(Failure::from)?;
    let reasons = reasons
        .into_iter()
        .map(|(row, reason)| (row, reason.to_string()))
        .collect();
    Ok((Table::new(batch), reasons))
}

/// The one column of a record batch.
pub fn only_column(data: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let batch = only_batch(data)?;
    let none = || ArrowError::InvalidArgumentError("expected a record batch with one column".to_owned());
    let column = batch.columns().first().map(Arc::clone);
    Ok(column.ok_or_else(none).map_err(Failure::from)?)
}

/// A record batch.
pub fn only_batch(data: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let mut batches = arrow_from_py(data)?;
    let schema = batches.schema();
    let batch = batches.next().transpose()?;
    if batches.next().is_some() {
        return Err(Failure::argument("expected one record batch, got several").into());
    }
    // a stream of a batch without rows has no batch
    Ok(batch.unwrap_or_else(|| RecordBatch::new_empty(schema)))
}

/// The type of the one column of a schema.
pub fn only_type(schema: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let schema = schema_from_py(schema)?;
    let field = schema.fields().first().filter(|_| schema.fields().len() == 1);
    let none = || ArrowError::SchemaError("expected a schema of one column".to_owned());
    Ok(field
        .map(|field| field.data_type().clone())
        .ok_or_else(none)
        .map_err(Failure::from)?)
}
