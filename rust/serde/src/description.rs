//! Readers by a description in JSON, for tasks that get no objects: those of Spark's format `fletchlog-columnar`.
//!
//! ```text
//! {"format": "avro", "schema": "..", "reader_schema": ".."}
//! {"format": "protobuf", "descriptors": "(a FileDescriptorSet, in Base64)", "message": "shop.Order",
//!  "written": "(those of the file whose message indexes values begin with)"}
//! {"format": "json", "type": TYPE}
//! {"format": "json-schema", "schema": "..", "references": {NAME: ".."}, "type": TYPE}
//! {"format": "long"}                                          string, short, integer, float, double likewise
//! {"format": "confluent", "readers": {"7": {"format": ..}, "89791762-2336-4186-9674-299b90a802e2": {"format": ..}}}
//!
//! TYPE = "int64" | "timestamp[us, tz=UTC]" | ..               as pyarrow names it
//!      | {"list": TYPE} | {"map": [TYPE, TYPE]} | {"struct": [[NAME, TYPE], ..]}
//! ```
//!
//! `python/fletchlog/serde/formats.py` writes them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::avro::AvroReader;
use crate::confluent::{ConfluentReader, OfSchema};
use crate::decode::ReadValue;
use crate::json::{JsonReader, JsonSchema, JsonSchemaReader};
use crate::primitive::Primitive;
use crate::protobuf::ProtobufReader;
use crate::reason::{SchemaError, named};

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
        "protobuf" => {
            let bytes = |text: &str| {
                let bytes = STANDARD.decode(text);
                bytes.map_err(|error| invalid(format!("no descriptors: {error}")))
            };
            let descriptors = bytes(text(parts, "descriptors")?)?;
            let written = parts.get("written").and_then(Value::as_str).map(bytes).transpose()?;
            Ok(Arc::new(ProtobufReader::new(
                &descriptors,
                text(parts, "message")?,
                written.as_deref(),
            )?))
        }
        "json" => Ok(Arc::new(json(parts)?)),
        "json-schema" => {
            let references = parts.get("references").and_then(Value::as_object);
            let references = references.into_iter().flatten();
            let texts = references.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
            let schema = JsonSchema::new(text(parts, "schema")?, &texts.collect())?;
            Ok(Arc::new(JsonSchemaReader::new(schema, Arc::new(json(parts)?))))
        }
        "string" => Ok(Arc::new(Primitive::new(&DataType::Utf8)?)),
        "short" => Ok(Arc::new(Primitive::new(&DataType::Int16)?)),
        "integer" => Ok(Arc::new(Primitive::new(&DataType::Int32)?)),
        "long" => Ok(Arc::new(Primitive::new(&DataType::Int64)?)),
        "float" => Ok(Arc::new(Primitive::new(&DataType::Float32)?)),
        "double" => Ok(Arc::new(Primitive::new(&DataType::Float64)?)),
        "boolean" => Ok(Arc::new(Primitive::new(&DataType::Boolean)?)),
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
        let id = id.parse().map_err(invalid)?;
        let schema = match reader_of(description) {
            Ok(reader) => {
                data_type = reader.data_type().clone();
                OfSchema::Reader(reader)
            }
            Err(SchemaError::Unresolvable(why)) => OfSchema::Malformed(why),
            Err(invalid) => return Err(invalid),
        };
        schemas.push((id, schema));
    }
    Ok(Arc::new(ConfluentReader::new(data_type, schemas)?))
}

fn json(parts: &Map<String, Value>) -> Result<JsonReader, SchemaError> {
    JsonReader::new(&type_of(parts.get("type").unwrap_or(&Value::Null))?)
}

fn type_of(described: &Value) -> Result<DataType, SchemaError> {
    let none = || invalid(format!("{described} describes no type"));
    if let Some(name) = described.as_str() {
        return scalar(name).ok_or_else(none);
    }
    let (kind, parts) = described
        .as_object()
        .and_then(|parts| parts.iter().next())
        .ok_or_else(none)?;
    match (kind.as_str(), parts) {
        ("list", item) => Ok(DataType::new_list(type_of(item)?, true)),
        ("map", Value::Array(parts)) => {
            let [key, value] = &parts[..] else { return Err(none()) };
            let entry = vec![
                Field::new("key", type_of(key)?, false),
                Field::new("value", type_of(value)?, true),
            ];
            let entries = Field::new("entries", DataType::Struct(entry.into()), false);
            Ok(DataType::Map(Arc::new(entries), false))
        }
        ("struct", Value::Array(fields)) => {
            let field = |field: &Value| match field.as_array().map(Vec::as_slice) {
                Some([Value::String(name), part]) => Ok(Field::new(name, type_of(part)?, true)),
                _ => Err(none()),
            };
            let fields = fields.iter().map(field).collect::<Result<Vec<_>, _>>()?;
            Ok(DataType::Struct(fields.into()))
        }
        _ => Err(none()),
    }
}

/// The type of a name, the way back of [`named`].
fn scalar(name: &str) -> Option<DataType> {
    use DataType as T;
    let units = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    let zone = name
        .split_once("tz=")
        .map(|(_, zone)| Arc::from(zone.trim_end_matches(']')));
    let plain = [
        T::Null,
        T::Boolean,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Float32,
        T::Float64,
        T::Utf8,
        T::LargeUtf8,
        T::Date32,
        T::Date64,
    ];
    let timed = units.into_iter().flat_map(|unit| {
        [
            T::Time32(unit),
            T::Time64(unit),
            T::Duration(unit),
            T::Timestamp(unit, zone.clone()),
        ]
    });
    if let Some(found) = plain.into_iter().chain(timed).find(|known| named(known) == name) {
        return Some(found);
    }
    let (kind, digits) = name.strip_suffix(')')?.split_once('(')?;
    let (precision, scale) = digits.split_once(", ")?;
    let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
    match kind {
        "decimal128" => Some(T::Decimal128(precision, scale)),
        "decimal256" => Some(T::Decimal256(precision, scale)),
        _ => None,
    }
}

fn text<'a>(parts: &'a Map<String, Value>, name: &str) -> Result<&'a str, SchemaError> {
    let found = parts.get(name).and_then(Value::as_str);
    found.ok_or_else(|| invalid(format!("a description of a reader has no {name}")))
}

fn invalid(message: String) -> SchemaError {
    SchemaError::Invalid(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_described_as_it_is_named() {
        for name in [
            "int64",
            "timestamp[us, tz=Europe/Berlin]",
            "timestamp[ns]",
            "decimal128(9, 2)",
            "date32[day]",
            "halffloat",
            "string",
            "time64[ns]",
        ] {
            assert_eq!(named(&scalar(name).unwrap()), name);
        }
        let described = serde_json::json!({"struct": [["a", {"list": "int8"}], ["m", {"map": ["string", "double"]}]]});
        let DataType::Struct(fields) = type_of(&described).unwrap() else {
            panic!()
        };
        assert_eq!(named(fields[1].data_type()), "map");
        for wrong in [
            serde_json::json!("int63"),
            serde_json::json!({"list": 1}),
            serde_json::json!({"map": ["string"]}),
            serde_json::json!(null),
        ] {
            assert!(type_of(&wrong).is_err());
        }
    }

    const GUID: &str = "89791762-2336-4186-9674-299b90a802e2";

    #[test]
    fn every_format_has_a_reader() {
        for described in [
            serde_json::json!({"format": "long"}),
            serde_json::json!({"format": "json", "type": {"struct": [["a", "int64"]]}}),
            serde_json::json!({"format": "json-schema", "schema": "{}", "type": "string"}),
            serde_json::json!({"format": "avro", "schema": "\"long\""}),
            serde_json::json!({"format": "confluent", "readers": {"7": {"format": "long"}, GUID: {"format": "long"}}}),
            serde_json::json!({"format": "json-schema", "schema": r#"{"$ref": "o"}"#, "references": {"o": "{}"}, "type": "string"}),
        ] {
            assert!(reader_of(&described).is_ok(), "{described}");
        }
        assert!(reader_of(&serde_json::json!({"format": "xml"})).is_err());
        for id in ["x", "89791762-2336-4186-9674", "897917622336-4186-9674-299b90a802e20"] {
            let described = serde_json::json!({"format": "confluent", "readers": {id: {"format": "long"}}});
            assert!(reader_of(&described).is_err(), "{id}");
        }
    }
}
