use proptest::prelude::*;

use super::*;
use crate::{RecordBatch, RecordCursor};

/// What `append` of this record takes.
fn size_of_next(
    builder: &BatchBuilder,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
) -> usize {
    let lengths = (key.map(<[u8]>::len), value.map(<[u8]>::len));
    record_size(
        builder.next_delta,
        builder.timestamp_delta(timestamp),
        lengths.0,
        lengths.1,
        headers,
    )
}

#[test]
fn a_default_batch_holds_910_ten_byte_records_in_16377_bytes() {
    // Spec 7.10.
    let mut builder = BatchBuilder::with_capacity(16384);
    let room = |builder: &BatchBuilder| 16384 - RECORD_BATCH_OVERHEAD - builder.records_size();
    while builder
        .append_within(room(&builder), 5, None, Some(&[b'x'; 10]), &[])
        .is_some()
    {}
    assert_eq!(builder.count(), 910);
    assert_eq!(builder.build(&BatchParams::default()).len(), 16377);
}

#[test]
fn an_empty_builder_gives_no_bytes_and_a_closed_one_starts_anew() {
    let mut builder = BatchBuilder::with_capacity(0);
    assert!(builder.build(&BatchParams::default()).is_empty());
    builder.append(7, None, Some(b"a"), &[]);
    builder.append(9, None, Some(b"b"), &[]);
    assert_eq!(builder.count(), 2);
    let first = builder.build(&BatchParams::default());
    assert_eq!((builder.count(), builder.records_size()), (0, 0));
    builder.append(7, None, Some(b"a"), &[]);
    builder.append(9, None, Some(b"b"), &[]);
    assert_eq!(builder.build(&BatchParams::default()), first);
}

#[test]
fn gaps_are_kept_and_the_next_offset_follows_the_last() {
    let mut builder = BatchBuilder::with_capacity(0);
    builder.append_at(3, 10, None, None, &[]);
    builder.append_at(900, 5, None, None, &[]);
    builder.append(20, None, None, &[]);
    let bytes = builder.build(&BatchParams {
        base_offset: 100,
        ..BatchParams::default()
    });
    let batch = RecordBatch::parse(&bytes).unwrap().unwrap();
    assert_eq!(
        (batch.header().records_count, batch.header().last_offset_delta),
        (3, 901)
    );
    assert_eq!((batch.header().base_timestamp, batch.header().max_timestamp), (10, 20));
    let slice = batch.records(1 << 20).unwrap();
    let mut cursor = RecordCursor::new();
    let mut read = Vec::new();
    while let Some(record) = cursor.next(&slice).unwrap() {
        read.push((record.offset, record.timestamp));
    }
    assert_eq!(read, [(103, 10), (1000, 5), (1001, 20)]);
}

#[test]
fn a_record_goes_where_it_has_room_and_the_first_always() {
    let (long, header) = ([b'x'; 9000], [Header { key: "h", value: None }]);
    let records: [(Option<&[u8]>, &[Header<'_>]); 4] = [
        (Some(&[b'x'; 10]), &[]),
        (None, &header),
        (Some(&long), &[]),
        (None, &[]),
    ];
    for limit in [0usize, 1, 19, 139, 9039, 9040, 9041, 16323] {
        let (mut two_steps, mut one_step) = (BatchBuilder::with_capacity(0), BatchBuilder::with_capacity(0));
        for time in 0..1000 {
            for (value, headers) in records {
                let size = size_of_next(&two_steps, time, None, value, headers);
                let room = limit.saturating_sub(two_steps.records_size());
                let fits = two_steps.count() == 0 || size <= room;
                if fits {
                    two_steps.append(time, None, value, headers);
                }
                assert_eq!(
                    one_step.append_within(room, time, None, value, headers),
                    fits.then_some(size)
                );
            }
        }
        assert_eq!(
            one_step.build(&BatchParams::default()),
            two_steps.build(&BatchParams::default())
        );
    }
}

#[test]
fn the_upper_bound_is_kafkas_formula() {
    assert_eq!(estimate_size_upper_bound(None, None, &[]), 61 + 21 + 1 + 1 + 1);
    assert_eq!(
        estimate_size_upper_bound(Some(64), Some(10), &[]),
        61 + 21 + 2 + 64 + 1 + 10 + 1
    );
    let headers = [
        Header {
            key: "h",
            value: Some(b"xy"),
        },
        Header { key: "", value: None },
    ];
    assert_eq!(
        estimate_size_upper_bound(None, None, &headers),
        61 + 21 + 1 + 1 + 1 + 2 + 3 + 1 + 1
    );
}

#[test]
fn the_quick_way_to_append_gives_the_bytes_of_the_general_one() {
    let lengths = [
        0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 127, 128, 8180, 8191, 8192, 20_000,
    ];
    let fields: Vec<Option<Vec<u8>>> = std::iter::once(None)
        .chain(lengths.map(|len| Some((0..len).map(|i: i32| i.to_le_bytes()[0]).collect())))
        .collect();
    for key in &fields {
        for value in &fields {
            for (time, offset) in [
                (0, 0),
                (63, 63),
                (64, 64),
                (-64, 8191),
                (-65, 8192),
                (8191, 5),
                (1 << 40, i32::MAX),
            ] {
                let (mut quick, mut general) = (BatchBuilder::with_capacity(0), BatchBuilder::with_capacity(0));
                general.push(usize::MAX, time, offset, key.as_deref(), value.as_deref(), &[]);
                let size = general.records_size();
                let mut quick_way =
                    |room| push_small(&mut quick.buf, room, time, offset, key.as_deref(), value.as_deref());
                assert_ne!(quick_way(size - 1), Small::Pushed(size), "no room");
                let done = quick_way(size) == Small::Pushed(size);
                assert_eq!(quick.buf == general.buf, done, "{time} {offset} {key:?} {value:?}");
                let small = general.records_size() <= 8193 && (-8192..8192).contains(&time) && offset < 8192;
                assert_eq!(done, small, "{time} {offset} {key:?} {value:?}");
            }
        }
    }
}

type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn row() -> impl Strategy<Value = Row> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..90));
    let time = prop_oneof![0i64..200, Just(-1), any::<i64>(), 0i64..100_000_000_000];
    (
        time,
        bytes(),
        bytes(),
        proptest::collection::vec((".{0,5}", bytes()), 0..3),
    )
}

proptest! {
    #[test]
    fn what_is_appended_is_read_back_and_was_announced_in_size(
        rows in proptest::collection::vec(row(), 1..150),
        codec in 0u8..5,
    ) {
        let compression = Compression::from_id(codec).unwrap();
        let mut builder = BatchBuilder::with_capacity(0);
        for (timestamp, key, value, headers) in &rows {
            let headers: Vec<Header<'_>> =
                headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
            let announced = size_of_next(&builder, *timestamp, key.as_deref(), value.as_deref(), &headers);
            let before = builder.records_size();
            builder.append(*timestamp, key.as_deref(), value.as_deref(), &headers);
            prop_assert_eq!(builder.records_size() - before, announced);
            prop_assert!(
                announced + 61
                    <= estimate_size_upper_bound(key.as_ref().map(Vec::len), value.as_ref().map(Vec::len), &headers)
            );
        }
        let bytes = builder.build(&BatchParams { base_offset: 11, compression, ..BatchParams::default() });
        let batch = RecordBatch::parse(&bytes).unwrap().unwrap();
        batch.ensure_valid().unwrap();
        prop_assert_eq!(batch.header().max_timestamp, rows.iter().map(|row| row.0).max().unwrap().max(-1));
        let slice = batch.records(1 << 24).unwrap();
        let (mut cursor, mut walker) = (RecordCursor::new(), RecordCursor::new());
        for (i, (timestamp, key, value, headers)) in rows.iter().enumerate() {
            let offset = 11 + i64::try_from(i).unwrap();
            let record = cursor.next(&slice).unwrap().unwrap();
            prop_assert_eq!((record.offset, record.timestamp), (offset, *timestamp));
            prop_assert_eq!((record.key, record.value), (key.as_deref(), value.as_deref()));
            let read: Vec<_> = record.headers().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(&read, headers);
            prop_assert_eq!(walker.walk(&slice, 1).unwrap(), Some((1, offset, offset)));
            prop_assert_eq!(walker.position(), cursor.position());
        }
        prop_assert_eq!(cursor.next(&slice).unwrap(), None);
        prop_assert_eq!(walker.walk(&slice, 1).unwrap(), None);
    }
}

#[test]
fn a_builder_in_memory_that_was_used_before_builds_the_same_batch() {
    let fill = |mut builder: BatchBuilder| {
        (0..50).for_each(|time| builder.append(time, None, Some(&[b'x'; 100]), &[]));
        builder
    };
    for compression in Compression::ALL {
        let params = BatchParams {
            compression,
            ..BatchParams::default()
        };
        let expected = fill(BatchBuilder::with_capacity(0)).build(&params);
        let mut builder = fill(BatchBuilder::with_capacity(0));
        let size = builder.records_size();
        let spare = (compression != Compression::None).then(|| builder.pack(compression, None));
        assert_eq!((builder.is_packed(), builder.records_size()), (spare.is_some(), size));
        assert_eq!(builder.build(&params), expected);
        for again in spare.into_iter().chain([builder]) {
            assert_eq!((again.count(), again.records_size()), (0, 0));
            assert_eq!(fill(again).build(&params), expected);
        }
    }
}
