//! The segments that real brokers wrote give the records that their consumers read.
#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use bytes::Bytes;
use fletchlog_records::{BatchIter, Compression, RecordCursor, TimestampType};
use serde_json::Value;

fn unzip(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/directories")
        .join(name);
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut out = Vec::new();
    flate2::read::MultiGzDecoder::new(&file[..])
        .read_to_end(&mut out)
        .unwrap();
    out
}

/// Regular files of a tar archive: 512-byte headers with the name at 0, the size in octal at 124 and the type at 156.
fn tar_files(tar: &[u8]) -> BTreeMap<String, Bytes> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    while at + 512 <= tar.len() && tar[at] != 0 {
        let text = |from: usize, len: usize| {
            let field = &tar[at + from..at + from + len];
            let end = field.iter().position(|&b| b == 0 || b == b' ').unwrap_or(len);
            String::from_utf8(field[..end].to_vec()).unwrap()
        };
        let size = usize::from_str_radix(&text(124, 12), 8).unwrap();
        if matches!(tar[at + 156], b'0' | 0) {
            files.insert(text(0, 100), Bytes::copy_from_slice(&tar[at + 512..at + 512 + size]));
        }
        at += 512 + size.div_ceil(512) * 512;
    }
    files
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A recorded key or value: null, hex, or (when long) its length and hash. The batch's CRC vouches for long bytes.
fn same(recorded: &Value, read: Option<&[u8]>) -> bool {
    match (recorded, read) {
        (Value::Null, None) => true,
        (Value::String(text), Some(read)) => *text == hex(read),
        (Value::Object(long), Some(read)) => long["len"].as_u64() == Some(read.len() as u64),
        _ => false,
    }
}

fn check_directory(name: &str) {
    let manifest: Value = serde_json::from_slice(&unzip(&format!("{name}.manifest.json.gz"))).unwrap();
    let files = tar_files(&unzip(&format!("{name}.tar.gz")));
    let mut codecs = [0; 5];
    let mut records_compared = 0;
    for (tp, partition) in manifest["partitions"].as_object().unwrap() {
        let Some(consumer) = partition["consumer"].get("read_uncommitted") else {
            continue;
        };
        let begin = consumer["begin"].as_i64().unwrap();
        let mut expected = consumer["records"].as_array().unwrap().iter();
        let prefix = format!("{tp}/");
        let segments = files
            .iter()
            .filter(|(path, _)| path.starts_with(&prefix) && path.ends_with(".log"));
        let mut next_offset = 0;
        for (path, segment) in segments {
            let mut batches = BatchIter::new(segment.clone());
            for batch in &mut batches {
                let batch = batch.unwrap_or_else(|error| panic!("{path}: {error}"));
                batch.ensure_valid().unwrap_or_else(|error| panic!("{path}: {error}"));
                let header = *batch.header();
                assert!(header.base_offset >= next_offset, "{path}: offsets descend");
                next_offset = header.next_offset();
                codecs[header.compression().unwrap() as usize] += 1;
                let slice = batch.records(64 << 20).unwrap();
                let mut walker = RecordCursor::new();
                let walked = walker.walk(&slice, usize::MAX).unwrap().map_or(0, |(count, ..)| count);
                assert_eq!(walked, usize::try_from(header.records_count).unwrap(), "{path}");
                let mut cursor = RecordCursor::new();
                while let Some(record) = cursor.next(&slice).unwrap() {
                    if header.is_control() || record.offset < begin {
                        continue;
                    }
                    let want = expected
                        .next()
                        .unwrap_or_else(|| panic!("{tp}: offset {} was not recorded", record.offset));
                    assert_eq!(want["offset"].as_i64(), Some(record.offset), "{tp}");
                    assert_eq!(want["ts"].as_i64(), Some(record.timestamp), "{tp} {}", record.offset);
                    let log_append = want["tsType"].as_str() == Some("LogAppendTime");
                    assert_eq!(slice.timestamp_type == TimestampType::LogAppendTime, log_append, "{tp}");
                    assert!(same(&want["key"], record.key), "{tp} {}: key", record.offset);
                    assert!(same(&want["value"], record.value), "{tp} {}: value", record.offset);
                    let headers: Vec<_> = record.headers().collect();
                    let recorded = want["headers"].as_array().unwrap();
                    assert_eq!(headers.len(), recorded.len(), "{tp} {}", record.offset);
                    for (header, recorded) in headers.iter().zip(recorded) {
                        assert!(
                            same(&recorded[0], Some(header.key.as_bytes())),
                            "{tp} {}",
                            record.offset
                        );
                        assert!(same(&recorded[1], header.value), "{tp} {}", record.offset);
                    }
                    assert_eq!(
                        want["leaderEpoch"].as_i64(),
                        Some(i64::from(slice.leader_epoch)),
                        "{tp}"
                    );
                    records_compared += 1;
                }
                assert_eq!(cursor.position(), slice.payload.len(), "{path}");
            }
            assert_eq!(batches.position(), segment.len(), "{path}: bytes after the last batch");
        }
        assert!(expected.next().is_none(), "{tp}: recorded records are missing");
    }
    assert!(records_compared > 4000, "{records_compared}");
    assert!(
        codecs.iter().all(|&batches| batches > 0),
        "{codecs:?} of {:?}",
        Compression::ALL
    );
}

#[test]
fn a_directory_of_kafka_4_3_1_after_a_clean_stop_gives_the_recorded_records() {
    check_directory("kafka-4.3.1-clean");
}

#[test]
fn a_directory_of_kafka_4_4_0_after_a_clean_stop_gives_the_recorded_records() {
    check_directory("kafka-4.4.0-clean");
}

#[test]
fn a_directory_of_kafka_3_9_1_after_a_kill_gives_the_recorded_records() {
    check_directory("kafka-3.9.1-killed");
}
