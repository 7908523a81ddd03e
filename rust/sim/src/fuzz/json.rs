//! JSON values: whatever bytes there are, each is a row or has a reason, columns are valid, and what was read is the same after encoding and decoding it.

use std::sync::{Arc, OnceLock};

use arrow_array::{Array, BinaryArray};
use arrow_schema::{DataType, Field, TimeUnit};
use fletchlog_serde::json::{JsonReader, JsonWriter, decode_inferred};
use fletchlog_serde::{decode, encode};

/// `[whether the type is inferred u8] [value]`
pub(super) fn json(data: &[u8]) {
    static READER: OnceLock<JsonReader> = OnceLock::new();
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    if choice % 2 == 1 {
        let decoded = decode_inferred(&BinaryArray::from_iter_values([bytes])).unwrap();
        decoded.column.to_data().validate_full().unwrap();
        if decoded.reasons.is_empty() {
            let reader = JsonReader::new(decoded.column.data_type()).unwrap();
            same(&reader, &decoded.column);
        }
        return;
    }
    let reader = READER.get_or_init(|| JsonReader::new(&every_type()).unwrap());
    let decoded = decode(reader, &BinaryArray::from_iter_values([bytes])).unwrap();
    decoded.column.to_data().validate_full().unwrap();
    // null is a value of JSON, too
    assert!(decoded.reasons.is_empty() || decoded.column.is_null(0));
    same(reader, &decoded.column);
}

fn same(reader: &JsonReader, column: &Arc<dyn Array>) {
    let written = encode(&JsonWriter, column).unwrap();
    assert!(written.reasons.is_empty(), "{:?}", written.reasons);
    let again = decode(reader, &written.column).unwrap();
    assert!(again.reasons.is_empty(), "{:?}", again.reasons);
    assert!(again.column.to_data() == column.to_data());
}

fn every_type() -> DataType {
    let entry = vec![
        Field::new("key", DataType::Int64, false),
        Field::new("value", DataType::new_list(DataType::Float32, true), true),
    ];
    let entries = Field::new("entries", DataType::Struct(entry.into()), false);
    let fields = vec![
        Field::new("n", DataType::Int8, true),
        Field::new("f", DataType::Float64, true),
        Field::new("t", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("d", DataType::Date32, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
        Field::new("c", DataType::Time64(TimeUnit::Microsecond), true),
        Field::new("x", DataType::Decimal256(50, 3), true),
        Field::new(
            "p",
            DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Int32, true)), 2),
            true,
        ),
        Field::new("m", DataType::Map(Arc::new(entries), false), true),
    ];
    DataType::Struct(fields.into())
}
