//! What only Rust can say well: any bytes, and memory. What values mean is judged by fastavro, through Python.
#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BinaryArray};
use proptest::prelude::*;

use super::*;
use crate::{decode, encode};

const ORDER: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "either", "type": ["int", "null", {"type": "array", "items": "string"}]},
    {"name": "lines", "type": {"type": "map", "values": {"type": "record", "name": "Line", "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}}]}}}]}"#;
/// What the reader leaves out contains itself.
const LEFT_OUT: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "next", "type": ["null", "Order"]},
    {"name": "tail", "type": "boolean"}]}"#;
const ID_ONLY: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "double"}, {"name": "more", "type": {"type": "array", "items": "long"}, "default": [1, 2]}]}"#;

fn reader(writer: &str, reader: Option<&str>) -> AvroReader {
    AvroReader::new(writer, reader).unwrap()
}

#[test]
fn names_that_avro_does_not_have_are_refused() {
    let fixed = |name: &str| format!(r#"{{"type": "fixed", "name": "{name}", "size": 1}}"#);
    let field =
        |name: &str| format!(r#"{{"type": "record", "name": "R", "fields": [{{"name": "{name}", "type": "int"}}]}}"#);
    let symbol = |name: &str| format!(r#"{{"type": "enum", "name": "E", "symbols": ["{name}"]}}"#);
    assert!(Schema::parse(&fixed("int")).is_err() && Schema::parse(&fixed("n.int")).is_ok());
    for (name, is_one) in [
        ("a", true),
        ("_1", true),
        ("größe", true),
        ("1a", false),
        ("a-b", false),
        ("", false),
        ("a b", false),
    ] {
        for schema in [fixed(name), field(name), symbol(name), fixed(&format!("n.{name}"))] {
            assert_eq!(Schema::parse(&schema).is_ok(), is_one, "{schema}");
        }
    }
}

#[test]
fn pruned_fields_have_columns_and_the_others_are_skipped() {
    let whole = reader(ORDER, None);
    let fields = [vec!["id".to_owned()], vec!["lines".to_owned(), "at".to_owned()]];
    let pruned = whole.pruned(&fields).unwrap();
    let value: &[u8] = &[2, 2, 2, b'x', 4, 4, 2, b'a', 2, b'b', 0, 2, 2, b'k', 2, 5, 14, 0, 0];
    for (reader, columns) in [(&whole as &dyn ReadValue, 4), (pruned.as_ref(), 2)] {
        let values = BinaryArray::from_iter([Some(value), Some(&value[..value.len() - 1]), None]);
        let decoded = decode(reader, &values).unwrap();
        assert_eq!(decoded.reasons.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
        let rows = decoded.column.as_struct();
        assert_eq!((rows.num_columns(), rows.null_count()), (columns, 2));
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 1);
    }
    let unknown = whole.pruned(&[vec!["lines".to_owned(), "cost".to_owned()]]).map(|_| ());
    assert!(unknown.unwrap_err().to_string().contains("no field /lines/values/cost"));
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_have_a_reason(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)) {
        let readers = [reader(ORDER, None), reader(LEFT_OUT, Some(ID_ONLY))];
        for reader in readers {
            let values = BinaryArray::from_iter_values(&rows);
            let decoded = decode(&reader, &values).unwrap();
            prop_assert_eq!(decoded.column.len(), rows.len());
            for (row, _) in &decoded.reasons {
                prop_assert!(decoded.column.is_null(*row));
            }
            let none = decoded.column.null_count();
            prop_assert_eq!(none, decoded.reasons.len());
        }
    }

    #[test]
    fn what_was_read_is_written_and_read_as_it_was(rows in prop::collection::vec(prop::collection::vec(0_u8..9, 0..40), 1..40)) {
        let (reader, writer) = (reader(ORDER, None), AvroWriter::new(ORDER).unwrap());
        let first = decode(&reader, &BinaryArray::from_iter_values(&rows)).unwrap();
        let written = encode(&writer, &first.column).unwrap();
        prop_assert!(written.reasons.is_empty());
        let again = decode(&reader, &written.column).unwrap();
        prop_assert!(again.reasons.is_empty());
        prop_assert_eq!(first.column.to_data(), again.column.to_data());
    }
}
