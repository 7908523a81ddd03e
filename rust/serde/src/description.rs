//! Readers by a description in JSON, for tasks that get no objects: those of Spark's format `fletchlog-columnar`.
//!
//! ```text
//! {"format": "avro", "schema": "..", "reader_schema": ".."}
//! {"format": "confluent", "readers": {"7": {"format": ..}}}
//! ```
//!
//! `python/fletchlog/serde/formats.py` writes them.

use std::sync::Arc;

use arrow_schema::DataType;
use serde_json::{Map, Value};

use crate::avro::AvroReader;
use crate::confluent::{ConfluentReader, OfSchema, SchemaId};
use crate::decode::ReadValue;
use crate::reason::SchemaError;

/// The reader that a description names.
///
/// # Errors
///
/// Not such a description, or a schema that cannot work.
pub fn reader_of(description: &Value) -> Result<Arc<dyn ReadValue>, SchemaError> {
    let Some(parts) = description.as_object() else {
        return Err(invalid(format!("{description} describes no reader")));
    };
    match text(parts, "format")? {
        "avro" => {
            let reader_schema = parts.get("reader_schema").and_then(Value::as_str);
            Ok(Arc::new(AvroReader::new(text(parts, "schema")?, reader_schema)?))
        }
        "confluent" => confluent(parts),
        other => Err(invalid(format!("values of the format {other} are not decoded here"))),
    }
}

fn confluent(parts: &Map<String, Value>) -> Result<Arc<dyn ReadValue>, SchemaError> {
    let Some(readers) = parts.get("readers").and_then(Value::as_object) else {
        return Err(invalid("a description of confluent has no readers".to_owned()));
    };
    let mut schemas = Vec::with_capacity(readers.len());
    let mut data_type = DataType::Null;
    for (id, description) in readers {
        let Ok(number) = id.parse() else {
            return Err(invalid(format!("{id} is no schema id")));
        };
        let schema = match reader_of(description) {
            Ok(reader) => {
                data_type = reader.data_type().clone();
                OfSchema::Reader(reader)
            }
            Err(SchemaError::Unresolvable(why)) => OfSchema::Malformed(why),
            Err(invalid) => return Err(invalid),
        };
        schemas.push((SchemaId::Id(number), schema));
    }
    Ok(Arc::new(ConfluentReader::new(data_type, schemas)?))
}

fn text<'a>(parts: &'a Map<String, Value>, name: &str) -> Result<&'a str, SchemaError> {
    let found = parts.get(name).and_then(Value::as_str);
    found.ok_or_else(|| invalid(format!("a description of a reader has no {name}")))
}

fn invalid(message: String) -> SchemaError {
    SchemaError::Invalid(message)
}
