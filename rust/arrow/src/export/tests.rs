use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType};
use arrow_array::{Array, StructArray};
use bytes::Bytes;
use fletchlog_records::batch::set_max_timestamp;
use fletchlog_records::{
    BatchBuilder, BatchParams, Compression, Header, NO_TIMESTAMP, RecordBatch as KafkaBatch, TimestampType,
};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq)]
struct Row {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    topic: String,
    partition: i32,
    offset: i64,
    /// Microseconds.
    timestamp: Option<i64>,
    timestamp_type: i32,
    headers: Option<Vec<(String, Option<Vec<u8>>)>>,
}

/// The rows of an exported batch, after a complete validation of its arrays.
fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    let binary = |column: &ArrayRef, i: usize| {
        let column = column.as_binary::<i32>();
        column.is_valid(i).then(|| column.value(i).to_vec())
    };
    let headers = |i: usize| {
        let list = batch.column_by_name("headers")?.as_list::<i32>();
        let entries: StructArray = list.is_valid(i).then(|| list.value(i).as_struct().clone())?;
        let keys = entries.column(0).as_string::<i32>();
        Some(
            (0..entries.len())
                .map(|h| (keys.value(h).to_owned(), binary(entries.column(1), h)))
                .collect(),
        )
    };
    let timestamps = batch.column(5).as_primitive::<TimestampMicrosecondType>();
    (0..batch.num_rows())
        .map(|i| Row {
            key: binary(batch.column(0), i),
            value: binary(batch.column(1), i),
            topic: batch.column(2).as_string::<i32>().value(i).to_owned(),
            partition: batch.column(3).as_primitive::<Int32Type>().value(i),
            offset: batch.column(4).as_primitive::<Int64Type>().value(i),
            timestamp: timestamps.is_valid(i).then(|| timestamps.value(i)),
            timestamp_type: batch.column(6).as_primitive::<Int32Type>().value(i),
            headers: headers(i),
        })
        .collect()
}

/// What the plain decoder of the records crate makes of a slice, up to a timestamp that microseconds cannot hold.
fn plainly(tp: &TopicPartition, slice: &RecordsSlice, include_headers: bool) -> Vec<Row> {
    let mut cursor = RecordCursor::new();
    let mut rows = Vec::new();
    while let Ok(Some(record)) = cursor.next(slice) {
        let Some(microseconds) = record.timestamp.checked_mul(1000) else {
            break;
        };
        let headers: Vec<_> = record
            .headers()
            .map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec)))
            .collect();
        rows.push(Row {
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            topic: tp.topic.to_string(),
            partition: tp.partition,
            offset: record.offset,
            timestamp: (record.timestamp != NO_TIMESTAMP).then_some(microseconds),
            timestamp_type: i32::from(slice.timestamp_type as i8),
            headers: (include_headers && !headers.is_empty()).then_some(headers),
        });
    }
    rows
}

/// Of all columns, or all but the headers.
fn rows_builder(include_headers: bool) -> RowsBuilder {
    RowsBuilder::of(Column::of_kafka(include_headers), TimeRange::ALL)
}

fn kafka_schema(include_headers: bool) -> SchemaRef {
    schema_of(Column::of_kafka(include_headers))
}

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

fn slice_of(bytes: &Bytes) -> RecordsSlice {
    KafkaBatch::parse(bytes).unwrap().unwrap().records(1 << 28).unwrap()
}

/// `count` records `0`, `1`, ... from `base_offset` on, one per millisecond.
fn sample(base_offset: i64, count: usize) -> RecordsSlice {
    let mut builder = BatchBuilder::with_capacity(0);
    for i in 0..count {
        builder.append(i64::try_from(i).unwrap(), None, Some(i.to_string().as_bytes()), &[]);
    }
    slice_of(&builder.build(&BatchParams {
        base_offset,
        ..BatchParams::default()
    }))
}

fn append_all(builder: &mut RowsBuilder, tp: &TopicPartition, slice: &RecordsSlice) -> usize {
    let mut cursor = RecordCursor::new();
    builder
        .append_records(tp, slice, &mut cursor, usize::MAX, i64::MIN, i64::MAX)
        .unwrap()
}

fn span(slice: &RecordsSlice, cursor: &mut RecordCursor, max: usize) -> RecordSpan {
    let start = cursor.position();
    let (count, first_offset, last_offset) = cursor.walk(slice, max).unwrap().unwrap();
    RecordSpan {
        slice: slice.clone(),
        start,
        end: cursor.position(),
        count,
        first_offset,
        last_offset,
    }
}

#[test]
fn the_schema_is_that_of_sparks_kafka_source() {
    let text: Vec<String> = kafka_schema(true)
        .fields()
        .iter()
        .map(|f| format!("{} {} {}", f.name(), f.data_type(), f.is_nullable()))
        .collect();
    assert_eq!(
        text,
        [
            "key Binary true",
            "value Binary true",
            "topic Utf8 true",
            "partition Int32 true",
            "offset Int64 true",
            "timestamp Timestamp(µs, \"UTC\") true",
            "timestampType Int32 true",
            "headers List(Struct(\"key\": Utf8, \"value\": Binary), field: 'element') true",
        ]
    );
    assert_eq!(kafka_schema(false).fields().len(), 7);
    let mut builder = rows_builder(true);
    let empty = builder.finish();
    assert_eq!((empty.num_rows(), empty.schema()), (0, kafka_schema(true)));
    append_all(&mut builder, &tp("t", 0), &sample(0, 3));
    assert_eq!(builder.finish().schema(), kafka_schema(true));
}

/// A record at each of these times.
fn at_times(times: &[i64]) -> BatchBuilder {
    let mut builder = BatchBuilder::with_capacity(0);
    times
        .iter()
        .for_each(|time| builder.append(*time, None, Some(b"v"), &[]));
    builder
}

const MOST: i64 = i64::MAX / 1000;

#[test]
fn times_are_microseconds_and_null_where_there_is_none() {
    let times = [NO_TIMESTAMP, 0, MOST, -MOST, -2, -1, NOW, 5];
    let mut bytes = at_times(&times).build(&BatchParams::default()).to_vec();
    let mut rows = rows_builder(false);
    append_all(&mut rows, &tp("t", 0), &slice_of(&Bytes::copy_from_slice(&bytes)));
    let found: Vec<_> = rows_of(&rows.finish()).iter().map(|row| row.timestamp).collect();
    assert_eq!(found, times.map(|time| (time != NO_TIMESTAMP).then_some(time * 1000)));
    set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, 77);
    append_all(&mut rows, &tp("t", 0), &slice_of(&Bytes::from(bytes)));
    assert!(
        rows_of(&rows.finish())
            .iter()
            .all(|r| (r.timestamp, r.timestamp_type) == (Some(77_000), 1))
    );
}

/// Records of one layout are taken in one go, whose times are not looked at one by one.
#[test]
fn records_of_one_layout_around_1970_may_have_no_timestamp() {
    let times: Vec<i64> = (-100..100).collect();
    let slice = slice_of(&at_times(&times).build(&BatchParams::default()));
    for column in [Column::Timestamp, Column::TimestampMillis] {
        let mut rows = RowsBuilder::of(&[column], TimeRange::ALL);
        append_all(&mut rows, &tp("t", 0), &slice);
        let column = Arc::clone(rows.finish().column(0));
        let nulls: Vec<_> = (0..200).filter(|row| column.is_null(*row)).collect();
        assert_eq!(nulls, [99], "{}", column.data_type());
    }
}

#[test]
fn a_timestamp_that_microseconds_cannot_hold_is_an_error_in_front_of_its_record() {
    for (far, alike) in [(MOST + 1, 0), (-MOST - 1, 2), (i64::MAX, 100), (i64::MIN, 100)] {
        let mut times = vec![NOW; alike];
        times.extend([far, 7]);
        let slice = slice_of(&at_times(&times).build(&BatchParams::default()));
        let offset = i64::try_from(alike).unwrap();
        let expected = RecordError::Timestamp { offset, timestamp: far };
        let (mut builder, mut cursor) = (rows_builder(false), RecordCursor::new());
        let mut next = || builder.append_records(&tp("t", 0), &slice, &mut cursor, 1000, 0, i64::MAX);
        if alike > 0 {
            assert_eq!(next(), Ok(alike));
        }
        assert_eq!((next(), next()), (Err(expected.clone()), Err(expected.clone())));
        assert_eq!(builder.finish().num_rows(), alike);
        let whole = span(&slice, &mut RecordCursor::new(), usize::MAX);
        assert_eq!(builder.append_span(&tp("t", 0), &whole), Err(expected));
        assert_eq!(builder.rows(), 0, "a span is appended whole or not at all");
        // Who does not ask for the time, or asks for milliseconds, gets every record.
        for column in [Column::Value, Column::TimestampMillis] {
            let mut rows = RowsBuilder::of(&[column], TimeRange::ALL);
            rows.append_span(&tp("t", 0), &whole).unwrap();
            assert_eq!(rows.finish().num_rows(), times.len());
        }
    }
}

#[test]
fn rows_of_v0_entries_say_that_they_have_no_timestamp() {
    let mut slice = sample(0, 1);
    (slice.timestamp_type, slice.base_timestamp) = (TimestampType::NoTimestampType, -1);
    let mut rows = rows_builder(false);
    append_all(&mut rows, &tp("t", 0), &slice);
    let row = &rows_of(&rows.finish())[0];
    assert_eq!((row.timestamp, row.timestamp_type), (None, -1));
}

#[test]
fn several_topics_partitions_and_types_share_a_batch_in_the_order_they_came() {
    let mut builder = rows_builder(false);
    let mut expected = Vec::new();
    let mut stamped = sample(0, 4);
    (stamped.timestamp_type, stamped.max_timestamp) = (TimestampType::LogAppendTime, 9);
    for (tp, slice) in [
        (tp("a", 0), sample(0, 3)),
        (tp("a", 0), sample(3, 2)),
        (tp("a", 1), sample(0, 5)),
        (tp("a-much-longer-name", 1), sample(7, 1)),
        (tp("a", 0), stamped),
    ] {
        append_all(&mut builder, &tp, &slice);
        expected.extend(plainly(&tp, &slice, false));
    }
    assert_eq!(builder.rows(), 15);
    assert_eq!(rows_of(&builder.finish()), expected);
    assert_eq!((builder.rows(), builder.payload_bytes()), (0, 0));
}

#[test]
fn batches_of_any_size_follow_each_other() {
    let mut builder = rows_builder(false);
    for count in [1, 1024, 1025, 3, 5000, 1] {
        let mut expected = Vec::new();
        for tp in [tp("t", 0), tp("t", 1)] {
            let slice = sample(0, count);
            append_all(&mut builder, &tp, &slice);
            expected.extend(plainly(&tp, &slice, false));
        }
        assert_eq!(rows_of(&builder.finish()), expected, "{count}");
    }
}

#[test]
fn a_key_after_rows_without_keys_leaves_those_null() {
    let mut records = BatchBuilder::with_capacity(0);
    records.append(0, None, Some(b"a"), &[]);
    records.append(0, Some(b"k"), None, &[]);
    records.append(0, None, Some(b""), &[]);
    records.append(
        0,
        Some(b""),
        Some(b"a value that is longer than two pieces of the copy loop"),
        &[],
    );
    let mixed = slice_of(&records.build(&BatchParams::default()));
    let mut builder = rows_builder(false);
    let keyless = sample(0, 2000);
    append_all(&mut builder, &tp("t", 0), &keyless);
    append_all(&mut builder, &tp("t", 0), &mixed);
    append_all(&mut builder, &tp("t", 0), &keyless);
    let expected: Vec<Row> = [&keyless, &mixed, &keyless]
        .into_iter()
        .flat_map(|slice| plainly(&tp("t", 0), slice, false))
        .collect();
    assert_eq!(rows_of(&builder.finish()), expected);
    // The next batch has no key again.
    append_all(&mut builder, &tp("t", 0), &keyless);
    assert_eq!(rows_of(&builder.finish()), plainly(&tp("t", 0), &keyless, false));
}

#[test]
fn headers_are_lists_where_there_are_any_and_null_elsewhere() {
    let mut records = BatchBuilder::with_capacity(0);
    records.append(0, None, None, &[]);
    let two = [
        Header {
            key: "h",
            value: Some(b"x"),
        },
        Header { key: "h", value: None },
    ];
    records.append(0, None, None, &two);
    records.append(0, None, None, &[]);
    records.append(
        0,
        None,
        None,
        &[Header {
            key: "ä",
            value: Some(b""),
        }],
    );
    let slice = slice_of(&records.build(&BatchParams::default()));
    let mut builder = rows_builder(true);
    append_all(&mut builder, &tp("t", 0), &slice);
    append_all(&mut builder, &tp("t", 0), &slice);
    assert_eq!(builder.payload_bytes(), 2 * 5);
    let expected = plainly(&tp("t", 0), &slice, true);
    assert_eq!(expected.iter().filter(|row| row.headers.is_some()).count(), 2);
    assert_eq!(rows_of(&builder.finish()), [&expected[..], &expected[..]].concat());
    let mut without = rows_builder(false);
    append_all(&mut without, &tp("t", 0), &slice);
    assert_eq!(without.finish().num_columns(), 7);
}

#[test]
fn a_scan_takes_the_offsets_asked_for_and_continues_where_it_stopped() {
    let slice = sample(100, 50);
    let mut builder = rows_builder(false);
    let mut cursor = RecordCursor::new();
    let mut take = |max, from, to| {
        builder
            .append_records(&tp("t", 0), &slice, &mut cursor, max, from, to)
            .unwrap()
    };
    assert_eq!(take(0, 0, i64::MAX), 0);
    assert_eq!(take(3, 110, 140), 3);
    assert_eq!(take(usize::MAX, 0, 140), 27);
    assert_eq!(take(usize::MAX, 0, 140), 0);
    assert_eq!(take(usize::MAX, 145, i64::MAX), 5);
    assert_eq!(take(usize::MAX, 0, i64::MAX), 0);
    assert_eq!(cursor.returned(), 50);
    let offsets: Vec<i64> = rows_of(&builder.finish()).iter().map(|r| r.offset).collect();
    assert_eq!(offsets, (110..140).chain(145..150).collect::<Vec<_>>());
}

#[test]
fn what_is_not_asked_for_is_neither_counted_nor_reserved() {
    let slice = sample(0, 50_000);
    let mut builder = RowsBuilder::of(&[Column::Offset, Column::Topic], TimeRange::ALL);
    append_all(&mut builder, &tp("t", 0), &slice);
    assert_eq!((builder.rows(), builder.payload_bytes()), (50_000, 0));
    let columns = &builder.columns;
    let reserved = [
        columns.value.data.capacity(),
        columns.value.offsets.capacity(),
        columns.key.data.capacity(),
        columns.timestamps.capacity(),
    ];
    assert_eq!(reserved, [0; 4]);
    let batch = builder.finish();
    assert_eq!(batch.schema(), schema_of(&[Column::Offset, Column::Topic]));
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(49_999), 49_999);
    assert_eq!((builder.rows(), builder.finish().num_rows()), (0, 0));
}

#[test]
fn a_batch_of_no_columns_has_its_rows() {
    let mut builder = RowsBuilder::of(&[], TimeRange::ALL);
    append_all(&mut builder, &tp("t", 0), &sample(0, 3));
    assert_eq!(builder.finish().num_rows(), 3);
}

#[test]
fn records_outside_of_the_times_are_walked_but_are_no_rows() {
    let slice = sample(0, 50); // one record a millisecond, from 0 on
    let times = TimeRange::new(Some(10), Some(30));
    let mut builder = RowsBuilder::of(Column::of_kafka(false), times);
    let mut cursor = RecordCursor::new();
    let mut take = |max| {
        let rows = builder.append_records(&tp("t", 0), &slice, &mut cursor, max, 0, i64::MAX);
        (rows.unwrap(), cursor.returned())
    };
    assert_eq!(
        [take(5), take(7), take(20), take(99)],
        [(0, 5), (2, 12), (18, 32), (0, 50)]
    );
    let offsets: Vec<i64> = rows_of(&builder.finish()).iter().map(|r| r.offset).collect();
    assert_eq!(offsets, (10..30).collect::<Vec<_>>());
    // A malformed record behind records that are no rows is an error, again and again.
    let mut slice = sample(0, 20);
    slice.count = 21;
    let mut cursor = RecordCursor::new();
    let mut take = || builder.append_records(&tp("t", 0), &slice, &mut cursor, 99, 15, i64::MAX);
    assert_eq!(take(), Ok(5));
    assert_eq!(take().unwrap_err(), take().unwrap_err());
}

#[test]
fn a_malformed_record_ends_a_scan_before_it_and_is_then_the_error() {
    let mut slice = sample(0, 20);
    let mut at_ten = RecordCursor::new();
    at_ten.walk(&slice, 10).unwrap();
    let mut payload = slice.payload.to_vec();
    payload[at_ten.position() + 5] = 0x7f;
    slice.payload = Bytes::from(payload);
    let mut builder = rows_builder(false);
    let mut cursor = RecordCursor::new();
    let mut take = || builder.append_records(&tp("t", 0), &slice, &mut cursor, usize::MAX, 0, i64::MAX);
    assert_eq!(take(), Ok(10));
    let error = take().unwrap_err();
    assert_eq!(take().unwrap_err(), error);
    assert_eq!((cursor.returned(), cursor.position()), (10, at_ten.position()));
    assert_eq!(builder.finish().num_rows(), 10);
}

#[test]
fn bytes_after_the_last_record_withhold_it() {
    let mut slice = sample(0, 5);
    slice.count = 4;
    let mut builder = rows_builder(false);
    let mut cursor = RecordCursor::new();
    assert_eq!(
        builder.append_records(&tp("t", 0), &slice, &mut cursor, 9, 0, i64::MAX),
        Ok(3)
    );
    assert!(
        builder
            .append_records(&tp("t", 0), &slice, &mut cursor, 9, 0, i64::MAX)
            .is_err()
    );
}

#[test]
fn spans_give_their_rows_wherever_they_were_cut() {
    let slice = sample(40, 1000);
    let mut builder = rows_builder(false);
    let mut cursor = RecordCursor::new();
    for max in [1, 499, 500, 7] {
        let span = span(&slice, &mut cursor, max);
        builder.append_span(&tp("t", 3), &span).unwrap();
        if cursor.returned() == slice.count {
            break;
        }
    }
    assert_eq!(rows_of(&builder.finish()), plainly(&tp("t", 3), &slice, false));
}

#[test]
fn a_span_that_lies_is_refused_and_leaves_nothing_behind() {
    let mut records = BatchBuilder::with_capacity(0);
    for i in 0u8..100 {
        let headers = [Header {
            key: "h",
            value: (i % 2 == 0).then_some(b"x"),
        }; 3];
        let key = (i % 3 == 0).then_some(&b"key"[..]);
        records.append(
            i64::MAX / 1000 - i64::from(i),
            key,
            (i % 5 > 0).then_some(b"v"),
            &headers[..usize::from(i % 4)],
        );
    }
    let slice = slice_of(&records.build(&BatchParams::default()));
    let whole = span(&slice, &mut RecordCursor::new(), usize::MAX);
    let mut cursor = RecordCursor::new();
    let part = span(&slice, &mut cursor, 60);
    let lies = [
        RecordSpan {
            count: 61,
            ..part.clone()
        },
        RecordSpan {
            count: 59,
            ..part.clone()
        },
        RecordSpan {
            end: part.end - 1,
            ..part.clone()
        },
        RecordSpan {
            end: part.end + 1,
            ..part.clone()
        },
        RecordSpan {
            start: 1,
            ..part.clone()
        },
        RecordSpan {
            count: 101,
            ..whole.clone()
        },
        RecordSpan {
            count: usize::MAX,
            ..whole.clone()
        },
        RecordSpan {
            end: usize::MAX,
            count: 101,
            ..whole.clone()
        },
        RecordSpan {
            start: usize::MAX,
            ..whole.clone()
        },
    ];
    let mut builder = rows_builder(true);
    builder.append_span(&tp("t", 0), &whole).unwrap();
    for lie in lies {
        assert!(builder.append_span(&tp("u", 1), &lie).is_err(), "{lie:?}");
        assert_eq!(builder.rows(), 100);
    }
    builder.append_span(&tp("t", 0), &part).unwrap();
    let rows = rows_of(&builder.finish());
    let expected = plainly(&tp("t", 0), &slice, true);
    assert_eq!(rows, [&expected[..], &expected[..60]].concat());
}

#[test]
fn a_batch_that_is_still_read_is_not_written_over() {
    let mut builder = rows_builder(false);
    let (first, second) = (sample(0, 30_000), sample(500_000, 30_000));
    append_all(&mut builder, &tp("t", 0), &first);
    let held = builder.finish();
    for _ in 0..3 {
        append_all(&mut builder, &tp("t", 0), &second);
        assert_eq!(rows_of(&builder.finish()), plainly(&tp("t", 0), &second, false));
    }
    assert_eq!(rows_of(&held), plainly(&tp("t", 0), &first, false));
}

#[test]
fn memory_of_a_dropped_batch_is_used_again() {
    let mut builder = rows_builder(false);
    let slice = sample(0, 1000);
    let mut export = || {
        (0..60).for_each(|_| assert_eq!(append_all(&mut builder, &tp("t", 0), &slice), 1000));
        let batch = builder.finish();
        (batch.column(1).as_binary::<i32>().value_data().as_ptr(), batch)
    };
    // The first batch finds out how much room is needed.
    drop(export());
    let (memory, batch) = export();
    let (other, second) = export();
    assert_ne!(other, memory, "still read");
    drop((batch, second));
    let again = export().0;
    assert!(again == memory || again == other);
}

#[test]
fn memory_of_a_builder_serves_one_of_other_columns_and_times() {
    let slice = sample(0, 30_000);
    let mut all = rows_builder(false);
    append_all(&mut all, &tp("t", 0), &slice);
    drop(all.finish());
    let memory = all.idle_bytes().unwrap();
    let (columns, times) = ([Column::Value, Column::Offset], TimeRange::new(Some(10), Some(20_000)));
    let mut reused = all.reused(&columns, times);
    // All but what a sparse column keeps.
    assert!(reused.idle_bytes().unwrap() > memory / 2);
    let mut fresh = RowsBuilder::of(&columns, times);
    for builder in [&mut reused, &mut fresh] {
        builder
            .append_records(&tp("t", 0), &slice, &mut RecordCursor::new(), usize::MAX, 0, i64::MAX)
            .unwrap();
    }
    let (reused, fresh) = (reused.finish(), fresh.finish());
    assert_eq!((reused.num_rows(), &reused), (19_990, &fresh));
}

#[test]
fn a_builder_is_idle_without_rows_and_while_few_of_its_batches_are_still_read() {
    let mut builder = rows_builder(false);
    let slice = sample(0, 50_000);
    let mut batch = || {
        append_all(&mut builder, &tp("t", 0), &slice);
        let has_rows = builder.idle_bytes();
        (has_rows, builder.finish(), builder.idle_bytes())
    };
    let (has_rows, first, one_read) = batch();
    let others: Vec<_> = (0..4).map(|_| batch()).collect();
    assert_eq!((has_rows, others[3].2), (None, None));
    drop((first, others));
    let all_free = builder.idle_bytes();
    assert!(one_read.is_some() && one_read < all_free, "{one_read:?} {all_free:?}");
}

const NOW: i64 = 1_700_000_000_000;

type Fields = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn fields() -> impl Strategy<Value = Fields> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80));
    let any_time = any::<i64>().prop_map(|time| time / 1000);
    let time = prop_oneof![0i64..100, 0i64..100_000, NOW..NOW + 100, Just(NO_TIMESTAMP), any_time];
    let headers = prop_oneof![
        4 => Just(Vec::new()),
        1 => proptest::collection::vec((".{0,4}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9))), 1..3),
    ];
    (time, bytes(), bytes(), headers)
}

/// Records without anything in common, or runs of records of one layout.
fn rows() -> impl Strategy<Value = Vec<Fields>> {
    let run = (fields(), 1..30u8, 0..3i64).prop_map(|(fields, count, step)| {
        let filled = |bytes: &Option<Vec<u8>>, i: u8| bytes.as_ref().map(|bytes| vec![i; bytes.len()]);
        let record = |i: u8| {
            let (timestamp, key, value, headers) = &fields;
            let timestamp = timestamp.saturating_add(step * i64::from(i));
            (timestamp, filled(key, i), filled(value, i), headers.clone())
        };
        (0..count).map(record).collect::<Vec<_>>()
    });
    prop_oneof![
        1 => proptest::collection::vec(fields(), 1..40),
        2 => proptest::collection::vec(run, 1..5).prop_map(|runs| runs.concat()),
    ]
}

fn encode(rows: &[Fields], base_offset: i64, compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(0);
    for (timestamp, key, value, headers) in rows {
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        builder.append(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.build(&BatchParams {
        base_offset,
        compression,
        ..BatchParams::default()
    })
}

proptest! {
    #[test]
    fn the_columns_are_what_the_plain_decoder_reads(
        batches in proptest::collection::vec((rows(), 0..2i32, 0u8..5), 1..6),
        keys in any::<bool>(),
        include_headers in any::<bool>(),
        cut in 1usize..50,
    ) {
        let mut builder = rows_builder(include_headers);
        let (mut expected, mut offset) = (Vec::new(), 0);
        for (mut rows, partition, codec) in batches {
            if !keys {
                rows.iter_mut().for_each(|row| row.1 = None);
            }
            let slice = slice_of(&encode(&rows, offset, Compression::from_id(codec).unwrap()));
            let tp = tp("topic", partition);
            offset += i64::try_from(rows.len()).unwrap();
            let mut cursor = RecordCursor::new();
            if partition == 0 {
                while cursor.returned() < slice.count {
                    builder.append_records(&tp, &slice, &mut cursor, cut, 0, i64::MAX).unwrap();
                }
            } else {
                while cursor.returned() < slice.count {
                    builder.append_span(&tp, &span(&slice, &mut cursor, cut)).unwrap();
                }
            }
            expected.extend(plainly(&tp, &slice, include_headers));
        }
        prop_assert_eq!(builder.rows(), expected.len());
        prop_assert_eq!(rows_of(&builder.finish()), expected);
    }

    #[test]
    fn milliseconds_hold_every_timestamp(times in proptest::collection::vec(
        prop_oneof![any::<i64>(), -3i64..3, NOW..NOW + 9, Just(i64::MIN), Just(i64::MAX)], 1..60,
    )) {
        let slice = slice_of(&at_times(&times).build(&BatchParams::default()));
        let mut rows = RowsBuilder::of(&[Column::TimestampMillis], TimeRange::ALL);
        append_all(&mut rows, &tp("t", 0), &slice);
        let batch = rows.finish();
        let column = batch.column_by_name("timestamp").unwrap().as_primitive::<TimestampMillisecondType>();
        let found: Vec<_> = column.iter().collect();
        let expected = times.iter().map(|time| (*time != NO_TIMESTAMP).then_some(*time));
        prop_assert_eq!(found, expected.collect::<Vec<_>>());
        prop_assert_eq!(batch.schema(), schema_of(&[Column::TimestampMillis]));
    }

    #[test]
    fn some_columns_of_a_range_of_times_are_those_columns_of_its_rows(
        batches in proptest::collection::vec((rows(), 0..2i32, 0u8..5), 1..6),
        columns in Just(Column::ALL.to_vec()).prop_shuffle(),
        number in 1..8usize,
        (start, end) in (proptest::option::of(-2i64..120), proptest::option::of(-2i64..120)),
        cut in 1usize..50,
    ) {
        let times = TimeRange::new(start, end);
        let columns = &columns[..number];
        let mut all = RowsBuilder::of(&Column::ALL, times);
        let mut some = RowsBuilder::of(columns, times);
        let (mut expected, mut offset) = (Vec::new(), 0);
        for (rows, partition, codec) in batches {
            let slice = slice_of(&encode(&rows, offset, Compression::from_id(codec).unwrap()));
            let tp = tp("topic", partition);
            offset += i64::try_from(rows.len()).unwrap();
            for builder in [&mut all, &mut some] {
                let mut cursor = RecordCursor::new();
                while cursor.returned() < slice.count {
                    if partition == 0 {
                        builder.append_records(&tp, &slice, &mut cursor, cut, 0, i64::MAX).unwrap();
                    } else {
                        builder.append_span(&tp, &span(&slice, &mut cursor, cut)).unwrap();
                    }
                }
            }
            let mut cursor = RecordCursor::new();
            let milliseconds = std::iter::from_fn(|| Some(cursor.next(&slice).unwrap()?.timestamp));
            let rows = plainly(&tp, &slice, true).into_iter().zip(milliseconds);
            expected.extend(rows.filter(|(_, time)| times.contains(*time)).map(|(row, _)| row));
        }
        prop_assert_eq!((all.rows(), some.rows()), (expected.len(), expected.len()));
        let all = all.finish();
        let places: Vec<usize> = columns.iter().map(|column| *column as usize).collect();
        prop_assert_eq!(some.finish(), all.project(&places).unwrap());
        prop_assert_eq!(rows_of(&all), expected);
    }

    #[test]
    fn the_offsets_asked_for_are_those_of_the_whole(
        rows in rows(),
        (start, end) in (0..150i64, 0..150i64),
        max in 1usize..60,
        append_time in any::<bool>(),
    ) {
        let mut slice = slice_of(&encode(&rows, 5, Compression::None));
        if append_time {
            slice.timestamp_type = TimestampType::LogAppendTime;
        }
        let mut expected = plainly(&tp("t", 0), &slice, true);
        expected.retain(|row| (start..end).contains(&row.offset));
        let (mut builder, mut cursor) = (rows_builder(true), RecordCursor::new());
        while builder.append_records(&tp("t", 0), &slice, &mut cursor, max, start, end).unwrap() > 0 {}
        prop_assert_eq!(rows_of(&builder.finish()), expected);
    }

    #[test]
    fn damaged_records_give_the_rows_before_them(
        rows in rows(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        count in 0i32..60,
    ) {
        let mut slice = slice_of(&encode(&rows, 0, Compression::None));
        let mut payload = slice.payload.to_vec();
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        (slice.payload, slice.count) = (Bytes::from(payload), count);
        let expected = plainly(&tp("t", 0), &slice, true);
        let mut builder = rows_builder(true);
        let mut cursor = RecordCursor::new();
        let appended =
            builder.append_records(&tp("t", 0), &slice, &mut cursor, usize::MAX, i64::MIN, i64::MAX).unwrap_or(0);
        prop_assert_eq!(appended, expected.len());
        prop_assert_eq!(rows_of(&builder.finish()), expected);
    }
}
