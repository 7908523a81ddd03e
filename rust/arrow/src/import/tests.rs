use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, MapBuilder, StringBuilder};
use arrow_array::types::Int8Type as Key8;
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float64Array,
    Int8Array, Int32Array, Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray, NullArray,
    StringArray, StringViewArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt16Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn import(columns: Vec<(&str, ArrayRef)>) -> Result<ProducerBatch, ImportError> {
    ProducerBatch::try_new(&batch(columns))
}

fn value(column: impl Array + 'static) -> Vec<(&'static str, ArrayRef)> {
    vec![("value", Arc::new(column))]
}

fn with(name: &'static str, column: impl Array + 'static) -> Vec<(&'static str, ArrayRef)> {
    let rows = column.len();
    vec![("value", Arc::new(NullArray::new(rows))), (name, Arc::new(column))]
}

#[test]
fn values_of_every_bytes_type_are_read_also_when_sliced() {
    let long = "a value that no view holds inline";
    let text = [Some("zero"), Some(long), None, Some("")];
    let bytes: Vec<Option<&[u8]>> = text.iter().map(|t| t.map(str::as_bytes)).collect();
    let dictionary: DictionaryArray<Key8> = text.into_iter().collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BinaryArray::from(bytes.clone())),
        Arc::new(LargeBinaryArray::from(bytes.clone())),
        Arc::new(BinaryViewArray::from(bytes.clone())),
        Arc::new(StringArray::from(text.to_vec())),
        Arc::new(LargeStringArray::from(text.to_vec())),
        Arc::new(StringViewArray::from(text.to_vec())),
        Arc::new(dictionary),
    ];
    for column in columns {
        for (offset, len) in [(0, 4), (1, 3), (2, 1)] {
            let name = column.data_type().to_string();
            let rows = import(vec![
                ("key", column.slice(offset, len)),
                ("value", column.slice(offset, len)),
            ])
            .unwrap();
            assert_eq!((rows.len(), rows.has_headers()), (len, false));
            for row in 0..len {
                assert_eq!(rows.value(row), bytes[offset + row], "{name} {offset} {row}");
                assert_eq!(rows.key(row), bytes[offset + row], "{name} {offset} {row}");
            }
        }
    }
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some(b"ab"), None, Some(b"cd")].into_iter(), 2);
    let rows = import(value(fixed.unwrap().slice(1, 2))).unwrap();
    assert_eq!(
        (rows.value(0), rows.value(1), rows.key(1)),
        (None, Some(&b"cd"[..]), None)
    );
    let nulls = import(value(NullArray::new(2))).unwrap();
    assert_eq!(
        (nulls.len(), nulls.value(0), nulls.value(1), nulls.is_empty()),
        (2, None, None, false)
    );
}

#[test]
fn a_dictionary_of_nothing_but_nulls_is_read() {
    let keys = Int8Array::from(vec![None, None]);
    let dictionary = DictionaryArray::<Key8>::new(keys, Arc::new(StringArray::from(Vec::<&str>::new())));
    let rows = import(value(dictionary)).unwrap();
    assert_eq!((rows.value(0), rows.value(1)), (None, None));
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None]));
    let rows = import(value(DictionaryArray::<Key8>::new(Int8Array::from(vec![1, 0]), values))).unwrap();
    assert_eq!((rows.value(0), rows.value(1)), (None, Some(&b"x"[..])));
}

#[test]
fn partitions_of_every_integer_type_are_read() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from(vec![Some(3), None])),
        Arc::new(Int32Array::from(vec![Some(3), None])),
        Arc::new(Int64Array::from(vec![Some(3), None])),
        Arc::new(UInt16Array::from(vec![Some(3), None])),
        Arc::new(UInt64Array::from(vec![Some(3), None])),
    ];
    for column in columns {
        let rows = import(vec![("value", Arc::new(NullArray::new(2))), ("partition", column)]).unwrap();
        assert_eq!((rows.partition(0), rows.partition(1)), (Some(3), None));
    }
    let none = import(value(NullArray::new(1))).unwrap();
    assert_eq!((none.partition(0), none.timestamp(0)), (None, None));
    let nulls = import(with("partition", NullArray::new(1))).unwrap();
    assert_eq!(nulls.partition(0), None);
    let large = import(with("partition", Int64Array::from(vec![0, 1 << 31]))).unwrap_err();
    let reason = "partition 2147483648 is beyond 32 bits".to_owned();
    assert_eq!(
        large,
        ImportError::InvalidValue {
            column: "partition",
            row: 1,
            reason
        }
    );
}

#[test]
fn timestamps_of_every_unit_become_milliseconds_rounded_down() {
    let check = |column: ArrayRef, want: [Option<i64>; 3]| {
        let rows = import(vec![("value", Arc::new(NullArray::new(3))), ("timestamp", column)]).unwrap();
        assert_eq!([0, 1, 2].map(|row| rows.timestamp(row)), want);
    };
    check(
        Arc::new(Int64Array::from(vec![Some(1), None, Some(-2)])),
        [Some(1), None, Some(-2)],
    );
    // No timestamp.
    check(
        Arc::new(Int64Array::from(vec![Some(1), None, Some(-1)])),
        [Some(1), None, None],
    );
    check(
        Arc::new(TimestampSecondArray::from(vec![Some(1), None, Some(-1)])),
        [Some(1000), None, Some(-1000)],
    );
    let millis = TimestampMillisecondArray::from(vec![Some(1), None, Some(i64::MIN)]).with_timezone("Europe/Berlin");
    check(Arc::new(millis), [Some(1), None, Some(i64::MIN)]);
    let micros = TimestampMicrosecondArray::from(vec![Some(1999), None, Some(-1001)]).with_timezone("UTC");
    check(Arc::new(micros), [Some(1), None, Some(-2)]);
    check(
        Arc::new(TimestampNanosecondArray::from(vec![Some(1_999_999), None, Some(-1)])),
        [Some(1), None, None],
    );
    let far = import(with("timestamp", TimestampSecondArray::from(vec![i64::MAX]))).unwrap_err();
    assert!(matches!(
        far,
        ImportError::InvalidValue {
            column: "timestamp",
            row: 0,
            ..
        }
    ));
}

fn entries() -> StructArray {
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "b"]));
    let values: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"1"[..]), None, Some(b"3")]));
    StructArray::from(vec![
        (Arc::new(Field::new("key", DataType::Utf8, true)), keys),
        (Arc::new(Field::new("value", DataType::Binary, true)), values),
    ])
}

fn read_headers(rows: &ProducerBatch, row: usize) -> Vec<(String, Option<Vec<u8>>)> {
    let mut out = vec![("left over", None)];
    rows.headers(row, &mut out);
    out.into_iter()
        .map(|(key, value)| (key.to_owned(), value.map(<[u8]>::to_vec)))
        .collect()
}

#[test]
fn headers_are_read_from_lists_large_lists_and_maps() {
    let item = Arc::new(Field::new("item", entries().data_type().clone(), true));
    let nulls = Some(NullBuffer::from(vec![true, false, true, true]));
    let list = ListArray::new(
        item.clone(),
        OffsetBuffer::from_lengths([1, 0, 0, 2]),
        Arc::new(entries()),
        nulls.clone(),
    );
    let large = LargeListArray::new(
        item,
        OffsetBuffer::from_lengths([1, 0, 0, 2]),
        Arc::new(entries()),
        nulls,
    );
    let mut map = MapBuilder::new(None, StringBuilder::new(), BinaryBuilder::new());
    map.keys().append_value("a");
    map.values().append_value(b"1");
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    for value in [None, Some(b"3")] {
        map.keys().append_value("b");
        map.values().append_option(value);
    }
    map.append(true).unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(list), Arc::new(large), Arc::new(map.finish())];
    for column in columns {
        for skip in 0..3 {
            let column = column.slice(skip, 4 - skip);
            let rows = import(vec![("value", Arc::new(NullArray::new(4 - skip))), ("headers", column)]).unwrap();
            assert!(rows.has_headers());
            let last = [("b".to_owned(), None), ("b".to_owned(), Some(b"3".to_vec()))];
            assert_eq!(read_headers(&rows, 3 - skip), last);
            assert_eq!(read_headers(&rows, 2 - skip), []);
            if skip == 0 {
                assert_eq!(read_headers(&rows, 0), [("a".to_owned(), Some(b"1".to_vec()))]);
                assert_eq!(read_headers(&rows, 1), []);
            }
        }
    }
    let none = import(with("headers", NullArray::new(1))).unwrap();
    assert_eq!(read_headers(&none, 0), []);
    assert_eq!(read_headers(&import(value(NullArray::new(1))).unwrap(), 0), []);
}

#[test]
fn a_null_header_key_is_refused_with_its_row() {
    let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let values: ArrayRef = Arc::new(StringArray::from(vec!["1", "2"]));
    let entries = StructArray::from(vec![
        (Arc::new(Field::new("key", DataType::Utf8, true)), keys),
        (Arc::new(Field::new("value", DataType::Utf8, true)), values),
    ]);
    let item = Arc::new(Field::new("item", entries.data_type().clone(), true));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([1, 1]), Arc::new(entries), None);
    assert!(import(with("headers", list.slice(0, 1))).is_ok());
    let error = import(with("headers", list)).unwrap_err();
    assert!(
        matches!(
            error,
            ImportError::InvalidValue {
                column: "headers",
                row: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn wrong_tables_are_refused_with_what_is_accepted() {
    let missing = import(vec![("key", Arc::new(NullArray::new(1)))])
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("\"value\" is missing") && missing.contains("Utf8View"),
        "{missing}"
    );
    let unknown = import(with("colour", NullArray::new(1))).unwrap_err().to_string();
    assert!(
        unknown.contains("\"colour\"") && unknown.contains("value, key, partition, timestamp, headers"),
        "{unknown}"
    );
    let double = import(vec![
        ("value", Arc::new(NullArray::new(1))),
        ("value", Arc::new(NullArray::new(1))),
    ]);
    assert_eq!(
        double.unwrap_err(),
        ImportError::DuplicateColumn {
            column: "value".to_owned()
        }
    );
    let number = || Float64Array::from(vec![1.0]);
    let wrong = [
        (value(Int64Array::from(vec![1])), "value", "Int64"),
        (with("key", BooleanArray::from(vec![true])), "key", "Boolean"),
        (with("partition", number()), "partition", "Float64"),
        (with("timestamp", StringArray::from(vec!["now"])), "timestamp", "Utf8"),
        (with("headers", number()), "headers", "Float64"),
    ];
    for (columns, name, got) in wrong {
        match import(columns).unwrap_err() {
            ImportError::WrongType {
                column,
                got: found,
                accepted,
            } => {
                assert_eq!((column, found.as_str()), (name, got));
                assert!(accepted.contains("Null"));
            }
            other => panic!("{other}"),
        }
    }
    let item = Arc::new(Field::new("item", DataType::Binary, true));
    let values: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]]));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([1]), values, None);
    assert!(matches!(
        import(with("headers", list)).unwrap_err(),
        ImportError::WrongType { column: "headers", .. }
    ));
}

#[test]
fn columns_that_the_log_decides_are_ignored_so_that_an_export_can_be_produced_again() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", Arc::new(NullArray::new(1))),
        ("value", Arc::new(StringArray::from(vec!["v"]))),
        ("topic", Arc::new(StringArray::from(vec!["t"]))),
        ("offset", Arc::new(Int64Array::from(vec![5]))),
        ("timestampType", Arc::new(Int32Array::from(vec![0]))),
    ];
    assert_eq!(import(columns).unwrap().value(0), Some(&b"v"[..]));
    let empty = ProducerBatch::try_new(
        &crate::RowsBuilder::of(&crate::Column::ALL, fletchlog_records::TimeRange::ALL).finish(),
    )
    .unwrap();
    assert!(empty.is_empty() && empty.has_headers());
}
