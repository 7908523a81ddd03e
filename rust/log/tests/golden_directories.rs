//! Directories that a real Kafka wrote: every partition opens, read-only and for writing, and gives the recorded records
//! (tests/golden/directories).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::*;
use fletchlog_log::checkpoint::read_offset_checkpoint;
use fletchlog_log::file_name::{LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, parse_partition_dir};
use fletchlog_log::{FetchBound, LogConfig, OpenMode, PartitionLog};
use fletchlog_records::{BatchIter, RecordCursor, TimestampType, TopicPartition};
use serde_json::Value;

fn manifest(name: &str) -> Value {
    let path = golden(&format!("directories/{name}.manifest.json.gz"));
    let output = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a consumer sees: (offset, timestamp, type, leader epoch) and the value, without control records and, below the
/// last stable offset, without aborted transactions.
type Seen = Vec<(i64, i64, TimestampType, i32, Option<Vec<u8>>)>;

fn consume(log: &PartitionLog, bound: FetchBound) -> Seen {
    let mut seen = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let info = log.read(offset, 4000, true, bound).unwrap();
        let mut aborted: Vec<(i64, i64)> = info.aborted_transactions.clone().unwrap_or_default();
        aborted.sort_by_key(|(_, first)| *first);
        let mut open: BTreeSet<i64> = BTreeSet::new();
        let before = offset;
        for batch in BatchIter::new(info.records) {
            let batch = batch.unwrap();
            batch.ensure_valid().unwrap();
            let header = *batch.header();
            aborted.retain(|(producer, first)| {
                let begun = *first <= header.last_offset();
                if begun {
                    open.insert(*producer);
                }
                !begun
            });
            offset = offset.max(header.next_offset());
            if header.is_control() {
                open.remove(&header.producer_id);
                continue;
            }
            if header.is_transactional() && open.contains(&header.producer_id) {
                continue;
            }
            let slice = batch.records(usize::MAX).unwrap();
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&slice).unwrap() {
                if record.offset >= before {
                    seen.push((
                        record.offset,
                        record.timestamp,
                        slice.timestamp_type,
                        slice.leader_epoch,
                        record.value.map(<[u8]>::to_vec),
                    ));
                }
            }
        }
        if offset == before {
            return seen;
        }
    }
}

fn check(log: &PartitionLog, recorded: &Value, what: &str) {
    let uncommitted = &recorded["consumer"]["read_uncommitted"];
    assert_eq!(
        log.log_start_offset(),
        uncommitted["begin"].as_i64().unwrap(),
        "{what}: begin"
    );
    assert_eq!(
        log.high_watermark(),
        uncommitted["end"].as_i64().unwrap(),
        "{what}: end"
    );
    let seen = consume(log, FetchBound::HighWatermark);
    let records = uncommitted["records"].as_array().unwrap();
    assert_eq!(seen.len(), records.len(), "{what}: records");
    for ((offset, timestamp, timestamp_type, epoch, value), record) in seen.iter().zip(records) {
        assert_eq!(*offset, record["offset"].as_i64().unwrap(), "{what}");
        assert_eq!(*timestamp, record["ts"].as_i64().unwrap(), "{what}: {offset}");
        assert_eq!(
            format!("{timestamp_type:?}"),
            record["tsType"].as_str().unwrap(),
            "{what}: {offset}"
        );
        assert_eq!(
            i64::from(*epoch),
            record["leaderEpoch"].as_i64().unwrap(),
            "{what}: {offset}"
        );
        match &record["value"] {
            Value::Null => assert_eq!(*value, None, "{what}: {offset}"),
            Value::String(text) => assert_eq!(value.as_deref(), Some(&hex(text)[..]), "{what}: {offset}"),
            long => assert_eq!(
                value.as_ref().map(Vec::len),
                long["len"].as_u64().map(|n| usize::try_from(n).unwrap()),
                "{what}: {offset}"
            ),
        }
    }
    let committed = &recorded["consumer"]["read_committed"];
    assert_eq!(
        log.last_stable_offset(),
        committed["end"].as_i64().unwrap(),
        "{what}: last stable offset"
    );
    let seen: Vec<i64> = consume(log, FetchBound::LastStableOffset)
        .into_iter()
        .map(|(offset, ..)| offset)
        .collect();
    let offsets: Vec<i64> = serde_json::from_value(committed["offsets"].clone()).unwrap();
    assert_eq!(seen, offsets, "{what}: read_committed");
}

fn snapshot_of_tree(dir: &Path) -> BTreeMap<String, (u64, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        all.insert(
            entry.file_name().into_string().unwrap(),
            (metadata.len(), metadata.modified().unwrap()),
        );
    }
    all
}

fn golden_directory(name: &str, clean_shutdown: bool) {
    let dir = tempfile::tempdir().unwrap();
    untar(&format!("directories/{name}.tar.gz"), dir.path());
    let manifest = manifest(name);
    let fs = real();
    let starts = read_offset_checkpoint(&*fs, &dir.path().join(LOG_START_OFFSET_CHECKPOINT)).unwrap();
    let recovery_points = read_offset_checkpoint(&*fs, &dir.path().join(RECOVERY_POINT_CHECKPOINT)).unwrap();
    let partitions = manifest["partitions"].as_object().unwrap();
    assert!(partitions.len() >= 21);
    for (partition, recorded) in partitions {
        let (topic, number) = parse_partition_dir(partition).unwrap();
        let tp = TopicPartition::new(topic, number);
        let path = dir.path().join(partition);
        let log_start_offset = starts.get(&tp).copied().unwrap_or(0);
        let recovery_point = recovery_points.get(&tp).copied().unwrap_or(0);
        let read_only = OpenMode::ReadOnly {
            recovery_point,
            log_start_offset,
        };
        let before = snapshot_of_tree(&path);
        let open =
            |path: &Path, mode| PartitionLog::open(real(), path, tp.clone(), LogConfig::default(), mode, NOW).unwrap();
        let log = open(&path, read_only);
        check(&log, recorded, &format!("{name} {partition} read-only"));
        log.refresh(0).unwrap();
        check(&log, recorded, &format!("{name} {partition} read-only, refreshed"));
        assert_eq!(
            snapshot_of_tree(&path),
            before,
            "{partition}: a read-only log changed the directory"
        );

        let copy = dir.path().join(format!("copy-of-{partition}"));
        copy_dir(&path, &copy);
        let write = |clean_shutdown| OpenMode::Write {
            clean_shutdown,
            recovery_point,
            log_start_offset,
        };
        let log = open(&copy, write(clean_shutdown));
        check(&log, recorded, &format!("{name} {partition} writable"));
        compare_files(&copy, recorded, partition);
        let end = log.log_end_offset();
        assert_eq!(append(&log, batch(&[(NOW, b"on")])).first_offset, end);
        log.close().unwrap();
        for mode in [write(true), write(false), read_only] {
            let log = open(&copy, mode);
            let seen = consume(&log, FetchBound::HighWatermark);
            assert_eq!(seen.last().map(|record| record.0), Some(end), "{partition} {mode:?}");
            assert_eq!(
                seen.len(),
                recorded["consumer"]["read_uncommitted"]["records"]
                    .as_array()
                    .unwrap()
                    .len()
                    + 1
            );
        }
    }
}

/// The transaction indexes of a recovered log have what Kafka's tool printed of the originals. (After compaction the log
/// no longer has the aborted records that an entry speaks of, so recovery leaves such an entry out.)
fn compare_files(copy: &Path, recorded: &Value, partition: &str) {
    if partition.starts_with("g-compact") {
        return;
    }
    for (name, file) in recorded["files"].as_object().unwrap() {
        let Some(entries) = file["txnindex"].as_array() else {
            continue;
        };
        let bytes = std::fs::read(copy.join(name)).unwrap_or_default();
        let field = |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().unwrap());
        let found: Vec<_> = bytes
            .chunks(34)
            .map(|e| (field(e, 2), field(e, 10), field(e, 18), field(e, 26)))
            .collect();
        let number = |entry: &Value, key: &str| entry[key].as_i64().unwrap();
        let expected: Vec<_> = entries
            .iter()
            .map(|e| {
                (
                    number(e, "producerId"),
                    number(e, "firstOffset"),
                    number(e, "lastOffset"),
                    number(e, "lastStableOffset"),
                )
            })
            .collect();
        assert_eq!(found, expected, "{partition}/{name}");
    }
}

#[test]
fn a_directory_after_a_clean_stop_gives_the_recorded_records() {
    golden_directory("kafka-4.3.1-clean", true);
}

#[test]
fn a_directory_of_kafka_4_4_0_gives_the_recorded_records() {
    golden_directory("kafka-4.4.0-clean", true);
}

#[test]
fn a_directory_of_a_killed_broker_gives_the_recorded_records() {
    golden_directory("kafka-3.9.1-killed", false);
}

#[test]
fn complete_recovery_rebuilds_indexes_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    untar("directories/kafka-4.3.1-clean.tar.gz", dir.path());
    for partition in ["g-multi-ct-0", "g-multi-la-0", "g-txn-0", "g-idem-0"] {
        let path = dir.path().join(partition);
        let before = files(&path);
        // The intervals of these topics lie around these, as their entries show.
        let config = LogConfig {
            index_interval_bytes: if partition.starts_with("g-multi") { 600 } else { 1024 },
            ..LogConfig::default()
        };
        drop(open(&real(), &path, config, UNCLEAN));
        let after = files(&path);
        assert_eq!(
            after.keys().collect::<Vec<_>>(),
            before.keys().collect::<Vec<_>>(),
            "{partition}"
        );
        for (name, bytes) in after {
            if !name.ends_with(".snapshot") {
                assert_eq!(before.get(&name), Some(&bytes), "{partition}/{name}");
            }
        }
    }
}
