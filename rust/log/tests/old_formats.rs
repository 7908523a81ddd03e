//! Segments of message formats v0 and v1 are read, looked up by time, and refused as input (spec 1.6).

use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use fletchlog_log::scan::{Scan, ScanOrder, ScanRange};
use fletchlog_log::{AppendOrigin, CleanerOptions, FetchBound, OpenMode};
use fletchlog_records::Compression;
use fletchlog_records::crc::crc32;

/// An entry with this offset: length and checksum in front of what is inside.
fn framed(offset: i64, body: &[u8]) -> Vec<u8> {
    let mut entry = offset.to_be_bytes().to_vec();
    entry.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
    entry.extend_from_slice(&crc32(body).to_be_bytes());
    entry.extend_from_slice(body);
    entry
}

/// One uncompressed entry.
fn entry(magic: u8, offset: i64, timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut body = vec![magic, 0];
    if magic == 1 {
        body.extend_from_slice(&timestamp.to_be_bytes());
    }
    body.extend_from_slice(&(-1i32).to_be_bytes());
    body.extend_from_slice(&i32::try_from(value.len()).unwrap().to_be_bytes());
    body.extend_from_slice(value);
    framed(offset, &body)
}

#[test]
fn old_segments_are_read_and_new_batches_follow_them() {
    for magic in [0, 1] {
        let (fs, dir) = memory();
        fs.create_dir_all(&dir).unwrap();
        let whole: Vec<u8> = (0..9)
            .flat_map(|i| entry(magic, i, 100 + i * 10, b"0123456789"))
            .collect();
        assert_eq!(whole.len(), 9 * if magic == 0 { 36 } else { 44 });
        fs.replace(&dir.join("00000000000000000000.log"), &[&whole[..], &[0; 9]].concat())
            .unwrap();
        let expected: Vec<_> = (0..9)
            .map(|i| (i, if magic == 0 { -1 } else { 100 + i * 10 }, b"0123456789".to_vec()))
            .collect();
        let check = |mode: OpenMode| {
            let log = open(&fs, &dir, small_segments(10_000), mode);
            assert_eq!(
                read_all(&log, FetchBound::HighWatermark, 100)[..9],
                expected,
                "v{magic} {mode:?}"
            );
            let found = log.fetch_offset_by_timestamp(155, FetchBound::HighWatermark).unwrap();
            assert_eq!(
                (found.offset, found.timestamp),
                if magic == 0 { (-1, -1) } else { (6, 160) },
                "v{magic} {mode:?}"
            );
            log
        };
        let log = Arc::new(check(READ_ONLY));
        let range = ScanRange::resolve(log, Some(2), Some(7), FetchBound::HighWatermark).unwrap();
        let mut scan = Scan::new(&[range], FetchBound::HighWatermark, ScanOrder::Offset);
        let counts = std::iter::from_fn(|| scan.next_count().unwrap());
        assert_eq!(counts.sum::<u64>(), 5);
        let log = check(UNCLEAN);
        assert_eq!(append(&log, batch(&[(50, b"new")])).first_offset, 9);
        let old = Bytes::from(entry(magic, 0, 0, b"x"));
        assert_eq!(code(log.append_as_leader(old, 0, AppendOrigin::Client, NOW)), 87);
        log.close().unwrap();
        assert_eq!(check(CLEAN).log_end_offset(), 10);
    }
}

/// The v1 wrapper of keyed entries with these inner offsets, compressed; its own offset is `last`.
fn wrapper(last: i64, entries: &[(i64, u8)]) -> Vec<u8> {
    let sealed = |offset: i64, attributes: u8, key: &[u8], value: &[u8]| {
        let mut body = vec![1, attributes];
        body.extend_from_slice(&NOW.to_be_bytes());
        if key.is_empty() {
            body.extend_from_slice(&(-1i32).to_be_bytes());
        } else {
            body.extend_from_slice(&1i32.to_be_bytes());
            body.extend_from_slice(key);
        }
        body.extend_from_slice(&i32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(value);
        framed(offset, &body)
    };
    let inner: Vec<u8> = entries
        .iter()
        .flat_map(|(offset, key)| sealed(*offset, 0, &[*key], b"value"))
        .collect();
    let mut compressed = Vec::new();
    Compression::Gzip.compress(&inner, None, &mut compressed);
    sealed(last, 1, b"", &compressed)
}

/// Kafka: `MemoryRecordsBuilder#appendWithOffset` refuses them too.
#[test]
fn a_wrapper_whose_offsets_go_backwards_is_not_cleaned_into_a_broken_batch() {
    let (fs, dir) = memory();
    fs.create_dir_all(&dir).unwrap();
    // Offsets 8, 14, 10: the first is replaced by the last, so the batch must be written anew.
    let segment = wrapper(10, &[(3, b'a'), (9, b'b'), (5, b'a')]);
    let path = dir.join("00000000000000000000.log");
    fs.replace(&path, &segment).unwrap();
    let log = open(&fs, &dir, compacted::config(), CLEAN);
    log.roll(NOW).unwrap();
    let cleanable = log.cleanable(Some(0), NOW).unwrap();
    let refused = log.clean(&cleanable, &CleanerOptions::default(), NOW, &mut || false);
    assert!(refused.unwrap_err().to_string().contains("do not increase"));
    assert_eq!(fs.read(&path).unwrap(), segment);
}
