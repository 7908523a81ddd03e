//! What a real broker (4.3.1) answered to lookups by time (tests/golden/list-offsets-vectors.json).
//!
//! Ours, not in these vectors: a segment wholly below the log start hides nothing (spec 5.3).

use std::sync::Arc;

use crate::common::*;
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::BatchParams;
use serde_json::Value;

const MARKER_TIME: i64 = 1_795_249_187_328;

fn append_at(log: &PartitionLog, times: &[i64]) {
    let records: Vec<(i64, &[u8])> = times.iter().map(|t| (*t, &b"v"[..])).collect();
    log.append_as_leader(batch(&records), 0, AppendOrigin::Client, MARKER_TIME)
        .unwrap();
}

fn lookup(log: &PartitionLog, step: &Value, name: &str) {
    let outcome = &step["outcome"];
    // Special timestamps that a protocol version does not know are refused before the log is asked.
    if outcome["error"].as_i64() != Some(0) {
        return;
    }
    let bound = if step["isolation"] == 1 {
        FetchBound::LastStableOffset
    } else {
        FetchBound::HighWatermark
    };
    let found = log
        .fetch_offset_by_timestamp(step["target"].as_i64().unwrap(), bound)
        .unwrap();
    let what = format!("{name}: {step}");
    assert_eq!(found.offset, outcome["offset"].as_i64().unwrap(), "{what}");
    assert_eq!(found.timestamp, outcome["timestamp"].as_i64().unwrap(), "{what}");
    if let Some(epoch) = outcome["leaderEpoch"].as_i64() {
        assert_eq!(i64::from(found.leader_epoch), epoch, "{what}");
    }
}

#[test]
fn every_recorded_lookup_gets_the_brokers_answer() {
    let vectors = golden_json("list-offsets-vectors.json");
    let b = vectors["b"].as_i64().unwrap();
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| MARKER_TIME)));
    let mut compared = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let Some(lookups) = case["lookups"].as_array() else {
            continue;
        };
        let config = match case["config"]["internal.segment.bytes"].as_i64() {
            Some(bytes) => LogConfig {
                segment_bytes: i32::try_from(bytes).unwrap(),
                ..LogConfig::default()
            },
            None => LogConfig::default(),
        };
        let dir = std::path::Path::new("/data").join(case["topic"].as_str().unwrap());
        let log = PartitionLog::open(Arc::clone(&fs), &dir, tp(), config, CLEAN, MARKER_TIME).unwrap();
        let mut batches: Vec<Vec<i64>> = serde_json::from_value(case["batches"].clone()).unwrap_or_default();
        batches.reverse();
        if name.contains("transaction") {
            append_at(&log, &[b]);
            let params = BatchParams {
                producer_id: 8000,
                producer_epoch: 0,
                base_sequence: 0,
                transactional: true,
                ..BatchParams::default()
            };
            log.append_as_leader(batch_of(&params, &[(b + 10, b"v")]), 0, AppendOrigin::Client, b)
                .unwrap();
            append_at(&log, &[b + 20]);
        }
        // The case without timestamps appends its second batch after the lookups that its first batch answers.
        let one_by_one = name.contains("without timestamp");
        if one_by_one {
            append_at(&log, &batches.pop().unwrap());
        }
        while let Some(times) = batches.pop_if(|_| !one_by_one) {
            append_at(&log, &times);
        }
        if let Some(segments) = case["segments"].as_array() {
            let names: Vec<String> = log
                .segments()
                .iter()
                .map(|(base, _)| format!("{base:020}.log"))
                .collect();
            assert_eq!(&names.into_iter().map(Value::from).collect::<Vec<_>>(), segments);
        }
        if let Some(low) = case["deleteRecords"]["low"].as_i64() {
            assert_eq!(log.delete_records(Some(low)).unwrap(), low);
        }
        for (i, step) in lookups.iter().enumerate() {
            if one_by_one && i == 4 {
                append_at(&log, &batches.pop().unwrap());
            }
            match step.as_str() {
                None => lookup(&log, step, name),
                Some("deleteRecords(-1)") => drop(log.delete_records(None).unwrap()),
                Some("append ts b+7 at 6") => append_at(&log, &[b + 7]),
                Some("commit") => {
                    use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
                    let marker = EndTxnMarker {
                        control_type: ControlType::Commit,
                        coordinator_epoch: 0,
                    };
                    let commit = build_marker(0, 8000, 0, -1, MARKER_TIME, marker);
                    log.append_as_leader(commit, 0, AppendOrigin::Coordinator, MARKER_TIME)
                        .unwrap();
                }
                Some(other) => panic!("unknown step {other}"),
            }
            compared += 1;
        }
    }
    assert!(compared > 80, "{compared} lookups compared");
}

#[test]
fn the_vectors_of_the_specification_hold() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    for offset in 0..10 {
        append_at(&log, &[400 + offset * 10]);
    }
    let find = |log: &PartitionLog, target| {
        log.fetch_offset_by_timestamp(target, FetchBound::HighWatermark)
            .unwrap()
            .offset
    };
    for (target, offset) in [(399, 0), (401, 1), (420, 2), (421, 3), (430, 3), (431, 4), (491, -1)] {
        assert_eq!(find(&log, target), offset, "{target}");
    }
    let log = open(&fs, &dir.with_file_name("u-0"), LogConfig::default(), CLEAN);
    append_at(&log, &[10, 50, 30, 20, 60]);
    for (target, offset) in [(20, 1), (55, 4), (51, 4), (10, 0), (61, -1), (-3, 4), (-7, -1)] {
        assert_eq!(find(&log, target), offset, "{target}");
    }
}

#[test]
fn a_segment_below_the_log_start_hides_nothing() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(100), CLEAN);
    for time in [500, 100, 200, 300] {
        append_at(&log, &[time]);
    }
    assert!(log.segments().len() >= 4);
    log.delete_records(Some(1)).unwrap();
    let find = |target| {
        log.fetch_offset_by_timestamp(target, FetchBound::HighWatermark)
            .unwrap()
            .offset
    };
    assert_eq!((find(50), find(150), find(400)), (1, 2, -1));
}
