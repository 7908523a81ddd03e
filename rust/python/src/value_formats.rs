//! The readers and writers of each format, for `fletchlog.serde`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema};
use fletchlog_serde::avro::{self, AvroReader, AvroWriter};
use fletchlog_serde::confluent::{self, ConfluentReader, OfSchema, SchemaId};
use fletchlog_serde::json::{self, JsonReader, JsonSchemaReader, JsonSchemaWriter, JsonWriter};
use fletchlog_serde::{ListReader, ListWriter, Primitive};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::gate::gate;
use crate::object_values::{ObjectReader, ObjectWriter};
use crate::table::Table;
use crate::value_columns::{Column, ValueReader, ValueWriter, only_batch, only_column, only_type, table};

/// Adds what is here, and what it makes, to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonSchema>()?;
    module.add_class::<ObjectReader>()?;
    module.add_class::<ObjectWriter>()?;
    module.add_class::<ValueReader>()?;
    module.add_class::<ValueWriter>()?;
    module.add_function(wrap_pyfunction!(avro_is_bounded, module)?)?;
    module.add_function(wrap_pyfunction!(avro_reader, module)?)?;
    module.add_function(wrap_pyfunction!(avro_writer, module)?)?;
    module.add_function(wrap_pyfunction!(confluent_reader, module)?)?;
    module.add_function(wrap_pyfunction!(json_decode_inferred, module)?)?;
    module.add_function(wrap_pyfunction!(json_reader, module)?)?;
    module.add_function(wrap_pyfunction!(json_refused, module)?)?;
    module.add_function(wrap_pyfunction!(json_writer, module)?)?;
    module.add_function(wrap_pyfunction!(list_reader, module)?)?;
    module.add_function(wrap_pyfunction!(list_writer, module)?)?;
    module.add_function(wrap_pyfunction!(primitive_reader, module)?)?;
    module.add_function(wrap_pyfunction!(primitive_writer, module)?)?;
    module.add_function(wrap_pyfunction!(schema_ids, module)?)?;
    module.add_function(wrap_pyfunction!(with_schema_headers, module)?)?;
    Ok(())
}

#[doc = stub!(primitive_reader)]
#[pyfunction]
pub fn primitive_reader(schema: &Bound<'_, PyAny>) -> PyResult<ValueReader> {
    let reader = Primitive::new(&only_type(schema)?).map_err(Failure::from)?;
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(primitive_writer)]
#[pyfunction]
pub fn primitive_writer(schema: &Bound<'_, PyAny>) -> PyResult<ValueWriter> {
    let writer = Primitive::new(&only_type(schema)?).map_err(Failure::from)?;
    Ok(ValueWriter::new(Arc::new(writer)))
}

#[doc = stub!(list_reader)]
#[pyfunction]
#[pyo3(signature = (items, size=None))]
pub fn list_reader(items: &ValueReader, size: Option<usize>) -> ValueReader {
    ValueReader::new(Arc::new(ListReader::new(items.reader(), size)))
}

#[doc = stub!(list_writer)]
#[pyfunction]
#[pyo3(signature = (items, size=None))]
pub fn list_writer(items: &ValueWriter, size: Option<usize>) -> ValueWriter {
    ValueWriter::new(Arc::new(ListWriter::new(items.writer(), size)))
}

#[doc = stub!(json_reader)]
#[pyfunction]
#[pyo3(signature = (schema, *, refuses_other_fields=false))]
pub fn json_reader(schema: &Bound<'_, PyAny>, refuses_other_fields: bool) -> PyResult<ValueReader> {
    let reader = JsonReader::new(&only_type(schema)?).map_err(Failure::from)?;
    let reader = if refuses_other_fields {
        reader.refusing_other_fields()
    } else {
        reader
    };
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(json_writer)]
#[pyfunction]
pub fn json_writer() -> ValueWriter {
    ValueWriter::new(Arc::new(JsonWriter))
}

#[doc = stub!(json_refused)]
#[pyfunction]
pub fn json_refused(py: Python<'_>, data: &[u8]) -> PyResult<Option<String>> {
    gate(py, |_| Ok(json::refused(data)))
}

#[doc = stub!(json_decode_inferred)]
#[pyfunction]
pub fn json_decode_inferred(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Column> {
    let column = only_column(data)?;
    let decoded = gate(py, |_| Ok(json::decode_inferred(&column)?))?;
    table(decoded.column, decoded.reasons)
}

#[doc = stub!(JsonSchema)]
#[pyclass(frozen, module = "fletchlog._core")]
pub struct JsonSchema {
    schema: json::JsonSchema,
}

#[pymethods]
impl JsonSchema {
    #[new]
    fn new(schema: &str, references: HashMap<String, String>) -> PyResult<Self> {
        let schema = json::JsonSchema::new(schema, &references).map_err(Failure::from)?;
        Ok(Self { schema })
    }

    #[doc = stub!(JsonSchema.reader)]
    fn reader(&self, values: &ValueReader) -> ValueReader {
        ValueReader::new(Arc::new(JsonSchemaReader::new(self.schema.clone(), values.reader())))
    }

    #[doc = stub!(JsonSchema.writer)]
    fn writer(&self) -> ValueWriter {
        ValueWriter::new(Arc::new(JsonSchemaWriter::new(&self.schema)))
    }

    #[doc = stub!(JsonSchema.refused_value)]
    fn refused_value(&self, py: Python<'_>, data: &[u8]) -> PyResult<Option<String>> {
        gate(py, |_| Ok(self.schema.refused(data).map(|reason| reason.to_string())))
    }

    #[doc = stub!(JsonSchema.refused)]
    fn refused(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Vec<(usize, String)>> {
        let column = only_column(data)?;
        Ok(gate(py, |_| Ok(self.schema.refused_rows(&column)?))?
            .into_iter()
            .map(|(row, reason)| (row, reason.to_string()))
            .collect())
    }
}

#[doc = stub!(avro_reader)]
#[pyfunction]
#[pyo3(signature = (schema, reader_schema=None))]
pub fn avro_reader(schema: &str, reader_schema: Option<&str>) -> PyResult<ValueReader> {
    let reader = AvroReader::new(schema, reader_schema).map_err(Failure::from)?;
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(avro_writer)]
#[pyfunction]
pub fn avro_writer(schema: &str) -> PyResult<ValueWriter> {
    let writer = AvroWriter::new(schema).map_err(Failure::from)?;
    Ok(ValueWriter::new(Arc::new(writer)))
}

#[doc = stub!(avro_is_bounded)]
#[pyfunction]
pub fn avro_is_bounded(schema: &str) -> PyResult<bool> {
    Ok(avro::is_bounded(schema).map_err(Failure::from)?)
}

/// A schema id: a number, or the 16 bytes of a GUID.
#[derive(FromPyObject)]
pub enum Id {
    /// Within a context of the registry.
    Number(i32),
    /// Everywhere.
    Guid([u8; 16]),
}

#[doc = stub!(confluent_reader)]
#[pyfunction]
pub fn confluent_reader(
    like: &ValueReader,
    readers: Vec<(Id, PyRef<'_, ValueReader>)>,
    malformed: Vec<(Id, String)>,
) -> PyResult<ValueReader> {
    let read = readers
        .into_iter()
        .map(|(id, reader)| (schema_id(id), OfSchema::Reader(reader.reader())));
    let not_read = malformed
        .into_iter()
        .map(|(id, why)| (schema_id(id), OfSchema::Malformed(why)));
    let data_type = like.reader().data_type().clone();
    let reader = ConfluentReader::new(data_type, read.chain(not_read).collect()).map_err(Failure::from)?;
    Ok(ValueReader::new(Arc::new(reader)))
}

#[doc = stub!(schema_ids)]
#[pyfunction]
pub fn schema_ids(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
    let column = only_column(data)?;
    let ids = gate(py, |_| Ok(confluent::schema_ids(&column)?))?;
    let found = ids.into_iter().map(|id| match id {
        SchemaId::Id(number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
        SchemaId::Guid(guid) => Ok(PyBytes::new(py, &guid).into_any().unbind()),
    });
    found.collect()
}

#[doc = stub!(with_schema_headers)]
#[pyfunction]
pub fn with_schema_headers(py: Python<'_>, data: &Bound<'_, PyAny>, name: &str) -> PyResult<Table> {
    let Some([values, headers]) = only_batch(data)?.columns().first_chunk().cloned() else {
        return Err(Failure::argument("expected a record batch of values and headers").into());
    };
    let made = gate(py, |_| {
        let values = values.as_binary_opt::<i32>();
        let values = values.ok_or_else(|| Failure::argument("expected values of binary"))?;
        Ok(confluent::with_headers(values, &headers, name)?)
    })?;
    let schema = Schema::new(vec![Field::new("v", made.data_type().clone(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![made]).map_err(Failure::from)?;
    Ok(Table::new(batch))
}

fn schema_id(id: Id) -> SchemaId {
    match id {
        Id::Number(number) => SchemaId::Id(number),
        Id::Guid(guid) => SchemaId::Guid(guid),
    }
}
