//! Values in Avro's encoding and in Confluent's wire format: whatever bytes there are, each is a row or has a reason, columns are valid, what was read is
//! the same after encoding and decoding it, and memory stays in proportion to the bytes.

use std::sync::{Arc, OnceLock};

use arrow_array::{Array, BinaryArray};
use fletchlog_serde::avro::{AvroReader, AvroWriter};
use fletchlog_serde::confluent::{ConfluentReader, OfSchema, SchemaId, schema_ids};
use fletchlog_serde::{ReadValue, decode, encode};

/// Bytes of columns that a byte of a value may become, and what any value may: fixed values, offsets of lists, 1,000 items of no bytes.
const PER_BYTE: usize = 512;
const PER_VALUE: usize = 256 * 1024;

/// Every kind of type.
const ALL: &str = r#"{"type": "record", "name": "All", "fields": [
    {"name": "number", "type": ["null", "long"]},
    {"name": "text", "type": "string"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "either", "type": ["int", "null", {"type": "array", "items": "double"}, {"type": "fixed", "name": "F", "size": 3}]},
    {"name": "lines", "type": {"type": "map", "values": {"type": "record", "name": "Line", "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {"name": "flags", "type": {"type": "array", "items": ["boolean", "null"]}}]}}}]}"#;
/// A reader's schema for it: other types, other scales, defaults.
const EVOLVED: &str = r#"{"type": "record", "name": "All", "fields": [
    {"name": "extra", "type": {"type": "array", "items": "string"}, "default": ["a", "b"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["Z"], "default": "Z"}},
    {"name": "number", "type": ["string", "null", "double"]},
    {"name": "lines", "type": {"type": "map", "values": {"type": "record", "name": "Line", "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}}]}}}]}"#;
/// A type within itself, which the reader leaves out.
const NESTED: &str = r#"{"type": "record", "name": "All", "fields": [
    {"name": "number", "type": "int"}, {"name": "inner", "type": {"type": "array", "items": "All"}}, {"name": "text", "type": "bytes"}]}"#;
const FLAT: &str = r#"{"type": "record", "name": "All", "fields": [{"name": "text", "type": "string"}, {"name": "number", "type": "long"}]}"#;

/// `[schema u8] [value]`
pub(super) fn avro(data: &[u8]) {
    static READERS: OnceLock<[AvroReader; 3]> = OnceLock::new();
    let readers = READERS.get_or_init(|| {
        let pairs = [(ALL, None), (ALL, Some(EVOLVED)), (NESTED, Some(FLAT))];
        pairs.map(|(writer, reader)| AvroReader::new(writer, reader).unwrap())
    });
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let number = usize::from(choice) % readers.len();
    let first = checked(&readers[number], bytes);
    if number == 0 {
        let writer = AvroWriter::new(ALL).unwrap();
        let written = encode(&writer, &first).unwrap();
        assert!(written.reasons.is_empty(), "{:?}", written.reasons);
        let again = decode(&readers[0], &written.column).unwrap();
        assert!(again.reasons.is_empty(), "{:?}", again.reasons);
        assert!(again.column.len() == 1 && again.column.is_null(0) == first.is_null(0));
        // NaN is not equal to itself
        assert!(encode(&writer, &again.column).unwrap().column.to_data() == written.column.to_data());
    }
}

/// `[magic u8 = 0] [schema id i32] [value]` or `[magic u8 = 1] [GUID] [value]`
pub(super) fn confluent(data: &[u8]) {
    static READER: OnceLock<ConfluentReader> = OnceLock::new();
    let reader = READER.get_or_init(|| {
        let of = |writer| OfSchema::Reader(Arc::new(AvroReader::new(writer, Some(FLAT)).unwrap()));
        let data_type = AvroReader::new(FLAT, None).unwrap().data_type().clone();
        let malformed = OfSchema::Malformed("no such schema".to_owned());
        let schemas = vec![
            (SchemaId::Id(1), of(NESTED)),
            (SchemaId::Id(0), of(FLAT)),
            (SchemaId::Guid([7; 16]), of(FLAT)),
            (SchemaId::Id(2), malformed),
        ];
        ConfluentReader::new(data_type, schemas).unwrap()
    });
    let row = checked(reader, data);
    let ids = schema_ids(&BinaryArray::from_iter_values([data])).unwrap();
    assert!(row.is_null(0) || matches!(ids[..], [SchemaId::Id(0 | 1) | SchemaId::Guid(_)]));
}

fn checked(reader: &dyn ReadValue, bytes: &[u8]) -> Arc<dyn Array> {
    let decoded = decode(reader, &BinaryArray::from_iter_values([bytes])).unwrap();
    decoded.column.to_data().validate_full().unwrap();
    assert!(decoded.column.is_null(0) != decoded.reasons.is_empty());
    let taken = decoded.column.get_array_memory_size();
    assert!(taken <= PER_VALUE + bytes.len() * PER_BYTE, "{taken} bytes");
    decoded.column
}
