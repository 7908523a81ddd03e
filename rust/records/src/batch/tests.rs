use super::*;
use crate::control::{ControlType, EndTxnMarker, build_marker, parse_control_record};
use crate::record::MIN_RECORD_SIZE;
use crate::{BatchBuilder, BatchParams, Header, rebuild};

const LIMIT: usize = 1 << 20;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

/// Spec 1.4.
const G1: &str = "00000000000000000000003dffffffff02e641a44b0000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff0000000116000000010a68656c6c6f00";
const G2: &str = "00000000000000050000004700000002020a1cf9b100100000000100000000000003e800000000000003ed0000000000000007000100000003000000021a000000026b04763002026802780e000a02026b0100";
const G3: &str = "000000000000000700000042000000020275eb436a00300000000000000000000007d000000000000007d000000000000000070001ffffffff000000012000000008000000010c00000000000000";

fn parse(bytes: &[u8]) -> RecordBatch {
    RecordBatch::parse(&Bytes::copy_from_slice(bytes)).unwrap().unwrap()
}

#[allow(clippy::type_complexity)]
fn read_all(slice: &RecordsSlice) -> Result<Vec<(i64, i64, Option<Vec<u8>>, Option<Vec<u8>>)>, RecordError> {
    let mut cursor = RecordCursor::new();
    let mut out = Vec::new();
    while let Some(r) = cursor.next(slice)? {
        out.push((
            r.offset,
            r.timestamp,
            r.key.map(<[u8]>::to_vec),
            r.value.map(<[u8]>::to_vec),
        ));
    }
    Ok(out)
}

/// A batch of `count` records `v0`, `v1`, ... one millisecond apart.
fn sample(count: i32, params: &BatchParams) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(0);
    for i in 0..count {
        builder.append(1000 + i64::from(i), None, Some(format!("v{i}").as_bytes()), &[]);
    }
    builder.build(params)
}

/// `bytes` with a header field replaced and the CRC put right.
fn patched(bytes: &[u8], at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn g1_is_built_and_read_byte_for_byte() {
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(1_700_000_000_000, None, Some(b"hello"), &[]);
    let built = builder.build(&BatchParams::default());
    assert_eq!(&built[..], &hex(G1)[..]);
    let batch = parse(&hex(G1));
    batch.ensure_valid().unwrap();
    assert_eq!(batch.bytes().len(), 73);
    let slice = batch.records(LIMIT).unwrap();
    assert_eq!(
        read_all(&slice).unwrap(),
        [(0, 1_700_000_000_000, None, Some(b"hello".to_vec()))]
    );
    assert_eq!((slice.producer, slice.leader_epoch, slice.magic), ((-1, -1, -1), -1, 2));
}

#[test]
fn g2_is_built_and_read_byte_for_byte() {
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(
        1000,
        Some(b"k"),
        Some(b"v0"),
        &[Header {
            key: "h",
            value: Some(b"x"),
        }],
    );
    builder.append(1005, Some(b"k"), None, &[]);
    let built = builder.build(&BatchParams {
        base_offset: 5,
        producer_id: 7,
        producer_epoch: 1,
        base_sequence: 3,
        leader_epoch: 2,
        transactional: true,
        ..BatchParams::default()
    });
    assert_eq!(&built[..], &hex(G2)[..]);
    let batch = parse(&built);
    batch.ensure_valid().unwrap();
    let header = batch.header();
    assert_eq!(
        (header.last_offset(), header.next_offset(), header.last_sequence()),
        (6, 7, 4)
    );
    assert!(header.is_transactional() && !header.is_control() && header.has_producer_id());
    let slice = batch.records(LIMIT).unwrap();
    let mut cursor = RecordCursor::new();
    let first = cursor.next(&slice).unwrap().unwrap();
    assert_eq!((first.offset, first.timestamp, first.header_count), (5, 1000, 1));
    assert_eq!(
        first.headers().collect::<Vec<_>>(),
        [Header {
            key: "h",
            value: Some(b"x")
        }]
    );
    let second = cursor.next(&slice).unwrap().unwrap();
    assert_eq!(
        (second.offset, second.timestamp, second.key, second.value),
        (6, 1005, Some(&b"k"[..]), None)
    );
    assert_eq!(cursor.next(&slice).unwrap(), None);
}

#[test]
fn g3_is_built_and_read_byte_for_byte() {
    let marker = EndTxnMarker {
        control_type: ControlType::Commit,
        coordinator_epoch: 0,
    };
    assert_eq!(&build_marker(7, 7, 1, 2, 2000, marker)[..], &hex(G3)[..]);
    let batch = parse(&hex(G3));
    batch.ensure_valid().unwrap();
    assert!(batch.header().is_control() && batch.header().is_transactional());
    let slice = batch.records(LIMIT).unwrap();
    let record = RecordCursor::new().next(&slice).unwrap().unwrap();
    assert_eq!(parse_control_record(record.key.unwrap(), record.value), Some(marker));
}

#[test]
fn control_keys_that_are_short_or_of_a_negative_version_are_not_markers() {
    assert_eq!(parse_control_record(&[0, 0, 0], None), None);
    assert_eq!(parse_control_record(&[0xff, 0xff, 0, 1], None), None);
    let unknown = parse_control_record(&[0, 0, 0, 77], Some(&[0, 0, 0, 0, 9])).unwrap();
    assert_eq!(
        unknown,
        EndTxnMarker {
            control_type: ControlType::Other(77),
            coordinator_epoch: -1
        }
    );
    let abort = parse_control_record(&[0, 0, 0, 0], Some(&[0, 0, 0, 0, 0, 9, 1])).unwrap();
    assert_eq!(
        abort,
        EndTxnMarker {
            control_type: ControlType::Abort,
            coordinator_epoch: 9
        }
    );
}

#[test]
fn a_buffer_is_walked_batch_by_batch_and_a_partial_tail_is_left() {
    let one = sample(3, &BatchParams::default());
    let two = sample(
        2,
        &BatchParams {
            base_offset: 3,
            ..BatchParams::default()
        },
    );
    for tail in [0, 1, 16, 17, 60, 61, two.len() - 1] {
        let mut bytes = one.to_vec();
        bytes.extend_from_slice(&two);
        bytes.extend_from_slice(&two[..tail]);
        let len = bytes.len();
        let mut batches = BatchIter::new(Bytes::from(bytes));
        let offsets: Vec<i64> = batches
            .by_ref()
            .map(|batch| batch.unwrap().header().base_offset)
            .collect();
        assert_eq!(offsets, [0, 3], "tail of {tail}");
        assert_eq!(
            (batches.position(), len - batches.position()),
            (one.len() + two.len(), tail)
        );
    }
}

#[test]
fn a_bad_length_or_magic_is_reported_once_at_its_position() {
    let good = sample(1, &BatchParams::default());
    for (at, field) in [
        (8, &i32::to_be_bytes(13)[..]),
        (8, &i32::to_be_bytes(-1)),
        (16, &[3]),
        (16, &[0xff]),
    ] {
        let mut bad = good.to_vec();
        bad[at..at + field.len()].copy_from_slice(field);
        let mut bytes = good.to_vec();
        bytes.extend_from_slice(&bad);
        let mut batches = BatchIter::new(Bytes::from(bytes));
        assert!(batches.next().unwrap().is_ok());
        match batches.next().unwrap() {
            Err(RecordError::Corrupt { position, .. }) => assert_eq!(position, good.len()),
            other => panic!("{other:?}"),
        }
        assert!(batches.next().is_none());
    }
}

#[test]
fn a_v2_batch_below_61_bytes_is_corrupt() {
    let mut bytes = sample(1, &BatchParams::default()).to_vec();
    bytes[8..12].copy_from_slice(&i32::to_be_bytes(48));
    assert!(matches!(
        RecordBatch::parse(&Bytes::from(bytes)),
        Err(RecordError::Corrupt { .. })
    ));
}

#[test]
fn any_flipped_bit_under_the_crc_is_found_and_offset_and_epoch_are_outside_it() {
    let bytes = sample(2, &BatchParams::default());
    for at in 17..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x10;
        assert!(parse(&flipped).ensure_valid().is_err(), "byte {at}");
    }
    let mut patched = bytes.to_vec();
    set_offset_and_epoch(&mut patched, 1 << 40, 77);
    let batch = parse(&patched);
    batch.ensure_valid().unwrap();
    assert_eq!(
        (batch.header().base_offset, batch.header().partition_leader_epoch),
        (1 << 40, 77)
    );
    assert_eq!(&patched[17..], &bytes[17..]);
}

#[test]
fn setting_equal_type_and_time_changes_nothing_and_else_the_crc_follows() {
    let bytes = sample(3, &BatchParams::default());
    let mut same = bytes.to_vec();
    // A wrong CRC would be put right by a rewrite: it must stay.
    same[17] ^= 1;
    let untouched = same.clone();
    set_max_timestamp(&mut same, TimestampType::CreateTime, 1002);
    assert_eq!(same, untouched);

    let mut stamped = bytes.to_vec();
    set_max_timestamp(&mut stamped, TimestampType::LogAppendTime, 5000);
    let batch = parse(&stamped);
    batch.ensure_valid().unwrap();
    assert_eq!(batch.header().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(batch.header().base_timestamp, 1000);
    let times: Vec<i64> = read_all(&batch.records(LIMIT).unwrap())
        .unwrap()
        .iter()
        .map(|r| r.1)
        .collect();
    assert_eq!(times, [5000; 3]);

    set_max_timestamp(&mut stamped, TimestampType::CreateTime, 1002);
    assert_eq!(stamped, bytes);
}

#[test]
fn more_or_fewer_records_than_declared_are_invalid() {
    let bytes = sample(3, &BatchParams::default());
    // One less: the bytes left over are found with the last declared record, which is not handed out.
    let fewer = parse(&patched(&bytes, 57, &i32::to_be_bytes(2)))
        .records(LIMIT)
        .unwrap();
    let mut cursor = RecordCursor::new();
    assert!(cursor.next(&fewer).unwrap().is_some());
    for _ in 0..2 {
        assert!(matches!(cursor.next(&fewer), Err(RecordError::Invalid { .. })));
        assert_eq!(cursor.returned(), 1);
    }
    for more in [4, i32::MAX] {
        let more = parse(&patched(&bytes, 57, &i32::to_be_bytes(more)))
            .records(LIMIT)
            .unwrap();
        let mut cursor = RecordCursor::new();
        assert_eq!(cursor.walk(&more, usize::MAX).unwrap(), Some((3, 0, 2)));
        assert!(matches!(cursor.walk(&more, 1), Err(RecordError::Invalid { .. })));
        assert!(matches!(cursor.next(&more), Err(RecordError::Invalid { .. })));
    }
    let negative = parse(&patched(&bytes, 57, &i32::to_be_bytes(-1)));
    assert!(matches!(negative.records(LIMIT), Err(RecordError::Invalid { .. })));
    let none = parse(&patched(&bytes, 57, &i32::to_be_bytes(0)))
        .records(LIMIT)
        .unwrap();
    assert_eq!(RecordCursor::new().next(&none).unwrap(), None);
    assert_eq!(RecordCursor::new().walk(&none, 5).unwrap(), None);
}

#[test]
fn unknown_codecs_are_errors_that_name_the_id() {
    for id in 5..8u8 {
        let batch = parse(&patched(&sample(1, &BatchParams::default()), 21, &[0, id]));
        assert_eq!(batch.header().compression(), None);
        match batch.records(LIMIT) {
            Err(RecordError::Decompression { codec, .. }) => assert_eq!(codec, id.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn offsets_beyond_63_bits_are_invalid_not_wrapped() {
    let bytes = sample(
        2,
        &BatchParams {
            base_offset: i64::MAX,
            ..BatchParams::default()
        },
    );
    let slice = parse(&bytes).records(LIMIT).unwrap();
    let mut cursor = RecordCursor::new();
    assert_eq!(cursor.next(&slice).unwrap().unwrap().offset, i64::MAX);
    assert!(matches!(cursor.next(&slice), Err(RecordError::Invalid { .. })));
}

#[test]
fn every_codec_carries_a_batch_and_a_limit_stops_it() {
    for compression in Compression::ALL {
        let bytes = sample(
            5000,
            &BatchParams {
                compression,
                ..BatchParams::default()
            },
        );
        let batch = parse(&bytes);
        batch.ensure_valid().unwrap();
        assert_eq!(batch.header().compression(), Some(compression));
        let slice = batch.records(LIMIT).unwrap();
        let records = read_all(&slice).unwrap();
        assert_eq!(records.len(), 5000);
        assert_eq!(records[4999], (4999, 5999, None, Some(b"v4999".to_vec())));
        assert!(batch.records(slice.payload.len()).is_ok());
        match batch.records(slice.payload.len() - 1) {
            Err(RecordError::DecompressionLimit { limit, .. }) => assert_eq!(limit, slice.payload.len() - 1),
            other => panic!("{compression:?}: {other:?}"),
        }
    }
}

#[test]
fn a_rebuilt_batch_keeps_offsets_times_and_producer_and_takes_the_codec() {
    let params = BatchParams {
        base_offset: 40,
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 17,
        leader_epoch: 3,
        transactional: true,
        ..BatchParams::default()
    };
    let original = parse(&sample(300, &params));
    let payload = original.records(LIMIT).unwrap().payload;
    for compression in Compression::ALL {
        let rebuilt = parse(&rebuild(original.header(), &payload, compression, None));
        rebuilt.ensure_valid().unwrap();
        let want = BatchHeader {
            crc: rebuilt.header().crc,
            batch_length: rebuilt.header().batch_length,
            attributes: original.header().attributes | i16::from(compression as u8),
            ..*original.header()
        };
        assert_eq!(*rebuilt.header(), want);
        assert_eq!(rebuilt.records(LIMIT).unwrap().payload, payload);
    }
}

#[test]
fn a_rebuilt_batch_takes_its_first_record_as_the_base_time() {
    // The header's base is 100 ms before the first record, its maximum is wrong.
    let bytes = sample(2, &BatchParams::default());
    let shifted = parse(&patched(&bytes, 27, &i64::to_be_bytes(900)));
    let mut payload = shifted.records(LIMIT).unwrap().payload.to_vec();
    payload[2] = 100 << 1 & 0x7f;
    let rebuilt = parse(&rebuild(shifted.header(), &payload, Compression::None, None));
    let first = 900 + i64::from(payload[2] >> 1);
    assert_eq!(
        (rebuilt.header().base_timestamp, rebuilt.header().max_timestamp),
        (first, first)
    );
    let times: Vec<i64> = read_all(&rebuilt.records(LIMIT).unwrap())
        .unwrap()
        .iter()
        .map(|r| r.1)
        .collect();
    assert_eq!(times, [first, 901]);
}

#[test]
fn a_record_is_never_smaller_than_the_least_size() {
    let mut builder = BatchBuilder::with_capacity(0);
    builder.append(0, None, None, &[]);
    assert_eq!(builder.records_size(), MIN_RECORD_SIZE);
}

#[test]
fn a_rebuilt_batch_of_log_append_time_keeps_it_over_its_records_own_times() {
    let mut stamped = sample(3, &BatchParams::default()).to_vec();
    set_max_timestamp(&mut stamped, TimestampType::LogAppendTime, 5000);
    let original = parse(&stamped);
    let payload = original.records(LIMIT).unwrap().payload;
    let rebuilt = parse(&rebuild(original.header(), &payload, Compression::Zstd, None));
    rebuilt.ensure_valid().unwrap();
    assert_eq!(rebuilt.header().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(
        (rebuilt.header().base_timestamp, rebuilt.header().max_timestamp),
        (1000, 5000)
    );
    assert_eq!(rebuilt.records(LIMIT).unwrap().payload, payload);
}
