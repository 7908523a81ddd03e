use proptest::prelude::*;

use super::*;
use crate::{BatchIter, RecordBatch, RecordCursor};

type Read = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn entry(magic: i8, attributes: u8, offset: i64, time: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![magic.to_be_bytes()[0], attributes];
    if magic > 0 {
        body.extend_from_slice(&time.to_be_bytes());
    }
    for field in [key, value] {
        body.extend_from_slice(&field.map_or(-1, |f| i32::try_from(f.len()).unwrap()).to_be_bytes());
        body.extend_from_slice(field.unwrap_or_default());
    }
    let mut out = offset.to_be_bytes().to_vec();
    out.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
    out.extend_from_slice(&crc32(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn wrapper(magic: i8, codec: Compression, attributes: u8, offset: i64, time: i64, inner: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    codec.compress(inner, None, &mut value);
    entry(magic, codec as u8 | attributes, offset, time, None, Some(&value))
}

fn parse(bytes: &[u8]) -> RecordBatch {
    RecordBatch::parse(&Bytes::copy_from_slice(bytes)).unwrap().unwrap()
}

fn read(batch: &RecordBatch) -> Result<Vec<Read>, RecordError> {
    batch.ensure_valid()?;
    let slice = batch.records(1 << 20)?;
    let mut cursor = RecordCursor::new();
    let mut out = Vec::new();
    while let Some(r) = cursor.next(&slice)? {
        assert_eq!(r.header_count, 0);
        out.push((
            r.offset,
            r.timestamp,
            r.key.map(<[u8]>::to_vec),
            r.value.map(<[u8]>::to_vec),
        ));
    }
    Ok(out)
}

#[test]
fn plain_entries_of_both_formats_are_read() {
    let v0 = entry(0, 0, 7, 0, None, Some(b"0123456789"));
    let v1 = entry(1, 0, 8, 1234, Some(b"k"), None);
    assert_eq!((v0.len(), entry(1, 0, 0, 0, None, Some(b"0123456789")).len()), (36, 44));
    let batches: Vec<RecordBatch> = BatchIter::new(Bytes::from([v0, v1].concat()))
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        read(&batches[0]).unwrap(),
        [(7, -1, None, Some(b"0123456789".to_vec()))]
    );
    assert_eq!(read(&batches[1]).unwrap(), [(8, 1234, Some(b"k".to_vec()), None)]);
    let (first, second) = (batches[0].header(), batches[1].header());
    assert_eq!(
        (first.magic, first.timestamp_type(), first.max_timestamp),
        (0, TimestampType::NoTimestampType, -1)
    );
    assert_eq!(
        (second.magic, second.timestamp_type(), second.max_timestamp),
        (1, TimestampType::CreateTime, 1234)
    );
    assert_eq!(
        (
            first.base_offset,
            first.last_offset(),
            first.next_offset(),
            first.size_in_bytes()
        ),
        (7, 7, 8, 36)
    );
    assert_eq!(
        (first.producer_id, first.base_sequence, first.last_sequence()),
        (-1, -1, -1)
    );
    assert!(!first.is_control() && !first.is_transactional());
}

#[test]
fn v1_log_append_time_is_every_records_time() {
    let inner = [entry(1, 0, 0, 5, None, None), entry(1, 0, 1, 6, None, None)].concat();
    let batch = parse(&wrapper(1, Compression::Gzip, 0x08, 11, 999, &inner));
    let slice = batch.records(1000).unwrap();
    assert_eq!(slice.timestamp_type, TimestampType::LogAppendTime);
    assert_eq!(read(&batch).unwrap(), [(10, 999, None, None), (11, 999, None, None)]);
}

#[test]
fn v0_wrappers_hold_absolute_offsets_and_v1_wrappers_relative_ones() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
        let inner = [
            entry(0, 0, 20, 0, None, Some(b"a")),
            entry(0, 0, 23, 0, Some(b"k"), Some(b"b")),
        ]
        .concat();
        let v0 = read(&parse(&wrapper(0, codec, 0, 23, 0, &inner))).unwrap();
        assert_eq!(
            v0,
            [
                (20, -1, None, Some(b"a".to_vec())),
                (23, -1, Some(b"k".to_vec()), Some(b"b".to_vec()))
            ]
        );
        // Relative 0 and 3 (compacted in between), the wrapper at the offset of the last.
        let inner = [
            entry(1, 0, 0, 50, None, Some(b"a")),
            entry(1, 0, 3, 40, None, Some(b"b")),
        ]
        .concat();
        let batch = parse(&wrapper(1, codec, 0, 103, 50, &inner));
        let v1 = read(&batch).unwrap();
        assert_eq!(
            v1,
            [
                (100, 50, None, Some(b"a".to_vec())),
                (103, 40, None, Some(b"b".to_vec()))
            ]
        );
        assert_eq!((batch.header().next_offset(), batch.header().records_count), (104, -1));
        // As produced by some clients: the wrapper still at 0.
        let produced = read(&parse(&wrapper(1, codec, 0, 0, 50, &inner))).unwrap();
        assert_eq!(produced.iter().map(|r| r.0).collect::<Vec<_>>(), [0, 3]);
    }
}

#[test]
fn broken_wrappers_are_invalid() {
    let plain = entry(1, 0, 0, 0, None, Some(b"a"));
    let nested = wrapper(1, Compression::Gzip, 0, 0, 0, &plain);
    let mut bad_crc = plain.clone();
    bad_crc[13] ^= 1;
    let mut long_key = entry(1, 0, 0, 0, Some(b"kk"), None);
    long_key[29] = 77;
    let crc = crc32(&long_key[16..]);
    long_key[12..16].copy_from_slice(&crc.to_be_bytes());
    let cases = [
        (wrapper(1, Compression::Gzip, 0, 5, 0, &[]), "holds no records"),
        (wrapper(1, Compression::Gzip, 0, 5, 0, &nested), "within a compressed"),
        (
            wrapper(1, Compression::Gzip, 0, 5, 0, &entry(0, 0, 0, 0, None, None)),
            "another magic",
        ),
        (
            wrapper(1, Compression::Gzip, 0, 5, 0, &plain[..plain.len() - 1]),
            "cut off",
        ),
        (wrapper(1, Compression::Gzip, 0, 5, 0, &plain[..9]), "cut off"),
        (
            wrapper(1, Compression::Gzip, 0, 5, 0, &long_key),
            "longer than its entry",
        ),
        (
            wrapper(1, Compression::Gzip, 0, 5, 0, &entry(1, 0, 9, 0, None, None)),
            "below that of its last",
        ),
        (entry(1, Compression::Gzip as u8, 5, 0, None, None), "no value"),
    ];
    for (bytes, reason) in cases {
        match read(&parse(&bytes)) {
            Err(RecordError::Invalid {
                base_offset: 5,
                reason: got,
            }) => assert!(got.contains(reason), "{got}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
    // The checksum of an entry that only we get to see.
    let error = read(&parse(&wrapper(1, Compression::Gzip, 0, 5, 0, &bad_crc))).unwrap_err();
    assert!(error.to_string().contains("CRC"), "{error}");
    for codec in [4, 5, 7] {
        let error = read(&parse(&entry(1, codec, 5, 0, None, Some(b"x")))).unwrap_err();
        assert!(matches!(error, RecordError::Decompression { .. }), "{error}");
    }
}

#[test]
fn a_flipped_bit_and_a_short_entry_are_corrupt_and_the_limit_holds() {
    let good = entry(1, 0, 5, 9, Some(b"key"), Some(b"value"));
    for at in 12..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let verdict = RecordBatch::parse(&Bytes::from(bad)).map(|batch| batch.map(|batch| batch.ensure_valid()));
        assert!(!matches!(verdict, Ok(Some(Ok(())))), "byte {at}");
    }
    let mut short = good.clone();
    short[8..12].copy_from_slice(&21i32.to_be_bytes());
    assert!(matches!(
        RecordBatch::parse(&Bytes::from(short)),
        Err(RecordError::Corrupt { .. })
    ));
    let limited = parse(&good).records(good.len() - 1);
    assert!(matches!(limited, Err(RecordError::DecompressionLimit { .. })));
    let bomb = wrapper(
        1,
        Compression::Gzip,
        0,
        0,
        0,
        &entry(1, 0, 0, 0, None, Some(&[0; 100_000])),
    );
    assert!(matches!(
        parse(&bomb).records(50_000),
        Err(RecordError::DecompressionLimit { .. })
    ));
}

proptest! {
    #[test]
    fn damaged_wrappers_give_records_or_errors(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..5),
        magic in 0i8..2,
        offsets in proptest::collection::vec(any::<i64>(), 1..4),
    ) {
        let inner: Vec<u8> = offsets.iter().flat_map(|&o| entry(magic, 0, o, o, None, Some(b"v"))).collect();
        let mut inner_damaged = inner.clone();
        for (at, byte) in &damage {
            let at = at.index(inner_damaged.len());
            inner_damaged[at] = *byte;
        }
        for inner in [inner, inner_damaged] {
            let batch = parse(&wrapper(magic, Compression::Lz4, 0, offsets[0], 1, &inner));
            if let Ok(slice) = batch.records(1 << 16) {
                let mut cursor = RecordCursor::new();
                while let Ok(Some(_)) = cursor.next(&slice) {}
            }
        }
    }
}
