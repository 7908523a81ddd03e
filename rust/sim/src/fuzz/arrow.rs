//! Records to columns and columns to records, each compared with a plain reading of the same bytes.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BinaryDictionaryBuilder, BinaryViewBuilder, LargeBinaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, Int64Array, ListArray, NullArray, RecordBatch, StringArray, StructArray,
    TimestampSecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use bytes::Bytes;
use fletchlog_arrow::{Column, ProducerBatch, RowsBuilder};
use fletchlog_records::{
    NO_TIMESTAMP, RecordCursor, RecordError, RecordsSlice, TimeRange, TimestampType, TopicPartition,
};

use super::{Input, Owned, records_of};

/// The headers of one record: keys and values.
type Headers = Vec<(String, Option<Vec<u8>>)>;

/// `[choices u8] [count u16] [base offset i64] [base timestamp i64] [records]`: bit 0 selects the headers, the others the rows of a batch;
/// all of them select columns and times, with which the same records are read again. The base offset is arbitrary and the count is rarely
/// right: the records decide.
pub(super) fn export(data: &[u8]) {
    let mut input = Input(data);
    let choices = input.byte();
    let slice = RecordsSlice {
        count: i32::from(input.u16()),
        base_offset: input.i64(),
        base_timestamp: input.i64(),
        max_timestamp: 7,
        timestamp_type: if choices & 2 == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        },
        leader_epoch: -1,
        magic: 2,
        producer: (-1, -1, -1),
        payload: Bytes::copy_from_slice(input.0),
    };
    let (mut expected, mut error) = records_of(&slice);
    let far = expected
        .iter()
        .position(|record| record.timestamp.checked_mul(1000).is_none());
    if let Some(far) = far {
        let Owned { offset, timestamp, .. } = expected[far];
        expected.truncate(far);
        error = Some(RecordError::Timestamp { offset, timestamp });
    }
    let with_headers = choices & 1 == 1;
    let most = usize::from(choices >> 2) + 1;
    some_columns(&slice, choices, most);
    let mut builder = RowsBuilder::of(Column::of_kafka(with_headers), TimeRange::ALL);
    let mut cursor = RecordCursor::new();
    let tp = TopicPartition::new("t", 3);
    let mut seen = 0;
    loop {
        match builder.append_records(&tp, &slice, &mut cursor, most, i64::MIN, i64::MAX) {
            Ok(0) => {
                // `i64::MAX` is the (exclusive) end of the range.
                let unwanted = expected.get(seen).is_some_and(|record| record.offset == i64::MAX);
                assert!(unwanted || (seen == expected.len() && error.is_none()));
                break;
            }
            Ok(rows) => {
                assert!(rows <= most);
                let batch = builder.finish();
                assert_eq!(batch.num_rows(), rows);
                same_rows(&batch, &expected[seen..seen + rows], with_headers);
                seen += rows;
            }
            Err(found) => {
                assert_eq!((seen, Some(&found)), (expected.len(), error.as_ref()));
                break;
            }
        }
    }
}

/// Reads the records with all columns and with some, and compares the results.
fn some_columns(slice: &RecordsSlice, choices: u8, most: usize) {
    let chosen = |place: &usize| choices >> place & 1 == 1;
    let places: Vec<usize> = (0..8).rev().filter(chosen).collect();
    // Milliseconds can represent every timestamp.
    let names = Column::ALL.map(|column| match column {
        Column::Timestamp => Column::TimestampMillis,
        other => other,
    });
    let columns: Vec<Column> = places.iter().map(|place| names[*place]).collect();
    let middle = slice.base_timestamp;
    let times = match choices % 3 {
        0 => TimeRange::ALL,
        1 => TimeRange::new(Some(middle), None),
        _ => TimeRange::new(None, Some(middle)),
    };
    let tp = TopicPartition::new("t", 3);
    let read = |columns: &[Column]| {
        let mut builder = RowsBuilder::of(columns, times);
        let mut cursor = RecordCursor::new();
        let mut batches = Vec::new();
        let failure = loop {
            let before = cursor.position();
            match builder.append_records(&tp, slice, &mut cursor, most, 0, i64::MAX) {
                Ok(_) if cursor.position() == before => break None,
                Ok(_) => batches.push(builder.finish()),
                Err(failure) => break Some(failure),
            }
        };
        (batches, failure)
    };
    let (all, failure) = read(&names);
    let (some, same_failure) = read(&columns);
    assert_eq!(failure, same_failure);
    let projected: Vec<_> = all.iter().map(|batch| batch.project(&places).unwrap()).collect();
    assert_eq!(some, projected);
}

fn same_rows(batch: &RecordBatch, expected: &[Owned], with_headers: bool) {
    let bytes = |name: &str| batch.column_by_name(name).unwrap().as_binary::<i32>().clone();
    let (keys, values) = (bytes("key"), bytes("value"));
    let offsets = batch.column_by_name("offset").unwrap().as_primitive::<Int64Type>();
    let times = batch
        .column_by_name("timestamp")
        .unwrap()
        .as_primitive::<TimestampMicrosecondType>();
    let partitions = batch.column_by_name("partition").unwrap().as_primitive::<Int32Type>();
    for (row, record) in expected.iter().enumerate() {
        let cell = |column: &arrow_array::BinaryArray| column.is_valid(row).then(|| column.value(row).to_vec());
        assert_eq!(cell(&keys), record.key);
        assert_eq!(cell(&values), record.value);
        assert_eq!((offsets.value(row), partitions.value(row)), (record.offset, 3));
        let time = times.is_valid(row).then(|| times.value(row));
        assert_eq!(
            time,
            (record.timestamp != NO_TIMESTAMP).then_some(record.timestamp * 1000)
        );
        if with_headers {
            assert_eq!(headers_of(batch, row), record.headers);
        }
    }
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
}

fn headers_of(batch: &RecordBatch, row: usize) -> Headers {
    let lists = batch.column_by_name("headers").unwrap().as_list::<i32>();
    if lists.is_null(row) {
        return Vec::new();
    }
    let headers = lists.value(row);
    let headers = headers.as_struct();
    let (keys, values) = (
        headers.column(0).as_string::<i32>(),
        headers.column(1).as_binary::<i32>(),
    );
    let one = |i| {
        (
            keys.value(i).to_owned(),
            values.is_valid(i).then(|| values.value(i).to_vec()),
        )
    };
    (0..headers.len()).map(one).collect()
}

type Cells = Vec<Option<Vec<u8>>>;

/// `[types u16] [slice u8] [cells]`: the same cells in any of Arrow's layouts, sliced, are read back unchanged.
pub(super) fn import(data: &[u8]) {
    let mut input = Input(data);
    let types = usize::from(input.u16());
    let (skip, rows) = (usize::from(input.byte() & 3), usize::from(input.byte() & 15));
    let all = skip + rows;
    let values = cells(&mut input, all, types % 7);
    let keys = cells(&mut input, all, types / 7 % 7);
    let headers: Vec<Headers> = (0..all).map(|_| header_cells(&mut input)).collect();
    let numbers: Vec<Option<i64>> = (0..all).map(|_| (input.byte() & 7 != 0).then(|| input.i64())).collect();
    let (partitions, partition_of) = partitions(&numbers, types / 49 % 3);
    let (times, time_of) = times(&numbers, types / 147 % 3);

    let batch = RecordBatch::try_from_iter_with_nullable([
        ("value", column(&values, types % 7), true),
        ("key", column(&keys, types / 7 % 7), true),
        ("headers", header_column(&headers), true),
        ("partition", partitions, true),
        ("timestamp", times, true),
    ]);
    let batch = batch.unwrap().slice(skip, rows);
    let found = match ProducerBatch::try_new(&batch) {
        Ok(found) => found,
        Err(error) => {
            let refused = (skip..all).any(|row| partition_of(row).is_err() || time_of(row).is_err());
            assert!(refused, "{error}");
            return;
        }
    };
    assert_eq!(found.len(), rows);
    let mut read = Vec::new();
    for (row, at) in (skip..all).enumerate() {
        assert_eq!(found.value(row), values[at].as_deref());
        assert_eq!(found.key(row), keys[at].as_deref());
        assert_eq!(Ok(found.partition(row)), partition_of(at));
        assert_eq!(
            Ok(found.timestamp(row)),
            time_of(at).map(|time| time.filter(|time| *time != NO_TIMESTAMP))
        );
        found.headers(row, &mut read);
        let expected: Vec<_> = headers[at]
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        assert_eq!(read, expected);
    }
}

/// Cells that a layout can represent: all of 4 bytes in the fixed-size layout, all null in the null layout.
fn cells(input: &mut Input<'_>, rows: usize, layout: usize) -> Cells {
    let mut cells = Vec::new();
    for _ in 0..rows {
        let len = input.byte();
        let mut cell = input.take(if layout == 4 { 4 } else { usize::from(len >> 1) }).to_vec();
        if layout == 4 {
            cell.resize(4, 0);
        }
        cells.push((layout != 6 && len & 1 == 0).then_some(cell));
    }
    cells
}

fn column(cells: &Cells, layout: usize) -> ArrayRef {
    macro_rules! built {
        ($builder:expr) => {{
            let mut builder = $builder;
            cells.iter().for_each(|cell| builder.append_option(cell.as_deref()));
            Arc::new(builder.finish())
        }};
    }
    match layout {
        0 => built!(BinaryBuilder::new()),
        1 => built!(LargeBinaryBuilder::new()),
        2 => built!(BinaryViewBuilder::new()),
        3 => built!(BinaryDictionaryBuilder::<Int32Type>::new()),
        4 => {
            let cells = cells.iter().map(Option::as_deref);
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(cells, 4).unwrap())
        }
        // A null cell's value is not read: null cells of a sliced dictionary may have keys beyond its values.
        5 => built!(BinaryDictionaryBuilder::<arrow_array::types::UInt8Type>::new()),
        _ => Arc::new(NullArray::new(cells.len())),
    }
}

fn header_cells(input: &mut Input<'_>) -> Headers {
    let count = input.byte() & 3;
    let one = |_| {
        let len = input.byte();
        let key = String::from_utf8_lossy(input.take(usize::from(len & 7))).into_owned();
        let value = input.take(usize::from(len >> 4));
        (key, (len & 8 == 0).then(|| value.to_vec()))
    };
    (0..count).map(one).collect()
}

fn header_column(headers: &[Headers]) -> ArrayRef {
    let flat: Vec<_> = headers.iter().flatten().cloned().collect();
    let keys: StringArray = flat.iter().map(|(key, _)| Some(key.as_str())).collect();
    let values: arrow_array::BinaryArray = flat.iter().map(|(_, value)| value.as_deref()).collect();
    let fields = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
    ]);
    let entries = StructArray::try_new(fields.clone(), vec![Arc::new(keys), Arc::new(values)], None).unwrap();
    let offsets = OffsetBuffer::from_lengths(headers.iter().map(Vec::len));
    let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
    Arc::new(ListArray::try_new(item, offsets, Arc::new(entries), None).unwrap())
}

/// A column, and the expected value of each of its rows; `Err`: a number that cannot be sent.
type Numbers<'a, T> = (ArrayRef, Box<dyn Fn(usize) -> Result<Option<T>, ()> + 'a>);

fn partitions(numbers: &[Option<i64>], layout: usize) -> Numbers<'_, i32> {
    let narrow = |n: i64| i32::try_from(n).map_err(|_| ());
    match layout {
        0 => {
            let column = Int64Array::from(numbers.to_vec());
            (
                Arc::new(column),
                Box::new(move |row| numbers[row].map(narrow).transpose()),
            )
        }
        1 => {
            let wide: Vec<u64> = numbers.iter().map(|n| n.unwrap_or(-1).cast_unsigned()).collect();
            let nulls: NullBuffer = numbers.iter().map(Option::is_some).collect();
            let column = UInt64Array::new(wide.clone().into(), Some(nulls));
            let of = move |row: usize| {
                numbers[row]
                    .map(|_| i32::try_from(wide[row]).map_err(|_| ()))
                    .transpose()
            };
            (Arc::new(column), Box::new(of))
        }
        _ => (Arc::new(NullArray::new(numbers.len())), Box::new(|_| Ok(None))),
    }
}

fn times(numbers: &[Option<i64>], layout: usize) -> Numbers<'_, i64> {
    match layout {
        0 => {
            let column = TimestampSecondArray::from(numbers.to_vec());
            let of = |row: usize| numbers[row].map(|n| n.checked_mul(1000).ok_or(())).transpose();
            (Arc::new(column), Box::new(of))
        }
        1 => {
            let column = arrow_array::TimestampNanosecondArray::from(numbers.to_vec());
            (
                Arc::new(column),
                Box::new(|row| Ok(numbers[row].map(|n| n.div_euclid(1_000_000)))),
            )
        }
        _ => (
            Arc::new(Int64Array::from(numbers.to_vec())),
            Box::new(|row| Ok(numbers[row])),
        ),
    }
}
