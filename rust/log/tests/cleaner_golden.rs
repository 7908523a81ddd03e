//! The cleaner against Kafka's: the golden directories still hold the segments that a real cleaner (4.3.1) had read, as
//! `.deleted` files, beside those that it wrote from them. Ours, given the former, must write the latter byte for byte.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::*;
use fletchlog_log::{CleanerOptions, LogConfig, PartitionLog};
use fletchlog_records::TopicPartition;

struct Case {
    topic: &'static str,
    /// Base of the first segment that was not cleaned.
    active: i64,
    /// Dirty from here on.
    first_dirty: i64,
    /// When Kafka cleaned: the delete horizon that it wrote, less delete.retention.ms.
    now_ms: i64,
    delete_retention_ms: i64,
    index_interval_bytes: i32,
}

const CASES: [Case; 3] = [
    Case {
        topic: "g-compact",
        active: 269,
        first_dirty: 0,
        now_ms: 1_795_334_155_246 - 86_400_000,
        delete_retention_ms: 86_400_000,
        index_interval_bytes: 500,
    },
    Case {
        topic: "g-compact-dr0",
        active: 269,
        first_dirty: 0,
        now_ms: 1_795_247_755_205,
        delete_retention_ms: 0,
        index_interval_bytes: 4096,
    },
    Case {
        topic: "g-compact-txn",
        active: 180,
        first_dirty: 70,
        now_ms: 1_795_334_155_881 - 86_400_000,
        delete_retention_ms: 86_400_000,
        index_interval_bytes: 4096,
    },
];

fn is_cleaned_file(name: &str, active: i64) -> bool {
    let base: Option<i64> = name.split('.').next().and_then(|base| base.parse().ok());
    base.is_some_and(|base| base < active) && !name.ends_with(".snapshot")
}

/// What the cleaner found: `.deleted` files under their old names, nothing of what it wrote.
fn before_cleaning(golden: &Path, to: &Path, active: i64) {
    std::fs::create_dir_all(to).unwrap();
    for (name, bytes) in files(golden) {
        let name = match name.strip_suffix(".deleted") {
            Some(old) => old.to_string(),
            None if is_cleaned_file(&name, active) => continue,
            None => name,
        };
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

fn cleaned_files(dir: &Path, active: i64) -> BTreeMap<String, Vec<u8>> {
    let mut all = files(dir);
    all.retain(|name, _| is_cleaned_file(name, active) && !name.ends_with(".deleted"));
    all
}

#[test]
fn segments_are_cleaned_as_kafka_cleans_them_byte_for_byte() {
    let source = tempfile::tempdir().unwrap();
    untar("directories/kafka-4.3.1-clean.tar.gz", source.path());
    for case in CASES {
        let golden = source.path().join(format!("{}-0", case.topic));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}-0", case.topic));
        before_cleaning(&golden, &path, case.active);
        let config = LogConfig {
            segment_bytes: 8192,
            index_interval_bytes: case.index_interval_bytes,
            delete_retention_ms: case.delete_retention_ms,
            cleanup_compact: true,
            cleanup_delete: false,
            ..LogConfig::default()
        };
        let tp = TopicPartition::new(case.topic, 0);
        let log = PartitionLog::open(real(), &path, tp, config, CLEAN, case.now_ms).unwrap();
        let end = log.log_end_offset();
        let cleanable = log.cleanable(Some(case.first_dirty), case.now_ms).unwrap();
        assert_eq!(cleanable.first_uncleanable_offset, case.active, "{}", case.topic);
        let stats = log
            .clean(&cleanable, &CleanerOptions::default(), case.now_ms, &mut || false)
            .unwrap();
        assert_eq!(stats.end_offset, case.active);
        let (ours, kafkas) = (cleaned_files(&path, case.active), cleaned_files(&golden, case.active));
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            kafkas.keys().collect::<Vec<_>>(),
            "{}",
            case.topic
        );
        for (name, bytes) in &ours {
            assert!(*bytes == kafkas[name], "{} {name}", case.topic);
        }
        assert_eq!(log.log_end_offset(), end);
        log.close().unwrap();
    }
}
