//! What a real broker (4.3.1) made of damaged directories, started cleanly, uncleanly with recovery point 0, and uncleanly
//! with the recovery point at the log end (tests/golden/recovery-vectors.json, recovery-inputs.tar.gz).
//!
//! Listed differences, all decisions of ours:
//! - `act-cut-two-batches` after a clean stop: the broker believes an index entry that points at the end of the file and
//!   would write offsets a second time (end 61); here the active segment is recovered (end 64, as after an unclean stop).
//! - a torn tail after a clean stop is cut (the broker leaves the bytes in the file).
//! - damaged indexes are rebuilt when they are used, so that lookups find what a full scan finds.
//! - a batch whose offsets do not follow those before it is damage ([`OUT_OF_ORDER`]): below the recovery point, and after a clean
//!   stop, the log is refused, otherwise it is cut there (the broker keeps such a batch).
//! - a damaged `leader-epoch-checkpoint` after an unclean stop is made anew from the batches (the broker stops).
//! - topic ids (`meta-*`, 6 cases) are the broker's to check, not the log's: `rust/broker/tests/directory.rs` has them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, OpenMode, PartitionLog};
use fletchlog_records::{BatchIter, RecordBatch};
use serde_json::Value;

/// Damage, stop, and where the log is cut; `None`: it is refused.
const OUT_OF_ORDER: [(&str, &str, Option<i64>); 10] = [
    ("act-append-dup-last-batch", "clean", None),
    ("act-append-dup-last-batch", "unclean0", Some(67)),
    ("act-append-dup-last-batch", "unclean-leo", Some(67)),
    ("act-base-last-plus1000", "clean", None),
    ("act-base-last-plus1000", "unclean-leo", None),
    ("act-base-mid-minus1", "clean", None),
    ("act-base-mid-minus1", "unclean0", Some(64)),
    ("act-base-mid-minus1", "unclean-leo", None),
    ("act-base-mid-zero", "clean", None),
    ("act-flip-mid-lastOffsetDelta", "clean", None),
];

fn config() -> LogConfig {
    small_segments(1000)
}

fn mode(name: &str, step: &Value) -> OpenMode {
    let recovery_point = step["recoveryPointLine"].as_i64().unwrap_or(0);
    let log_start_offset = step["logStartLine"].as_i64().unwrap_or(0);
    OpenMode::Write {
        clean_shutdown: name == "clean",
        recovery_point,
        log_start_offset,
    }
}

/// Offsets that a consumer gets before an error, as recorded (control records left out).
fn consumed(log: &PartitionLog) -> Vec<i64> {
    let mut out = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let Ok(info) = log.read(offset, 1 << 20, true, FetchBound::HighWatermark) else {
            return out;
        };
        let before = offset;
        for batch in BatchIter::new(info.records) {
            let Some(batch) = batch.ok().filter(|batch| batch.ensure_valid().is_ok()) else {
                return out;
            };
            let header = *batch.header();
            if !header.is_control() {
                out.extend(record_offsets(&batch).into_iter().filter(|o| *o >= offset));
            }
            offset = offset.max(header.next_offset());
        }
        if offset == before {
            return out;
        }
    }
}

fn record_offsets(batch: &RecordBatch) -> Vec<i64> {
    let slice = batch.records(usize::MAX).unwrap();
    let mut cursor = fletchlog_records::RecordCursor::new();
    let mut offsets = Vec::new();
    while let Some(record) = cursor.next(&slice).unwrap() {
        offsets.push(record.offset);
    }
    offsets
}

/// (base, last, size) of the whole batches of a file.
fn batches(bytes: Vec<u8>) -> Vec<(i64, i64, usize)> {
    let mut out = Vec::new();
    let mut rest = &bytes[..];
    while rest.len() >= 61 {
        let length = i32::from_be_bytes(rest[8..12].try_into().unwrap());
        let Ok(size) = usize::try_from(length).map(|n| n + 12) else {
            break;
        };
        if size < 61 || size > rest.len() {
            break;
        }
        let base = i64::from_be_bytes(rest[..8].try_into().unwrap());
        out.push((
            base,
            base + i64::from(i32::from_be_bytes(rest[23..27].try_into().unwrap())),
            size,
        ));
        rest = &rest[size..];
    }
    out
}

fn state_at_end(dir: &Path) -> Option<(String, Vec<Vec<i64>>)> {
    let (name, bytes) = files(dir).into_iter().rfind(|(name, _)| name.ends_with(".snapshot"))?;
    let field = |e: &[u8], at: usize, n: usize| {
        e[at..at + n]
            .iter()
            .fold(if e[at] & 0x80 == 0 { 0 } else { -1i64 }, |v, b| v << 8 | i64::from(*b))
    };
    let widths = [8, 2, 4, 8, 4, 8, 4, 8];
    let mut entries: Vec<Vec<i64>> = bytes[10..]
        .chunks(46)
        .map(|e| {
            let mut at = 0;
            widths.iter().map(|n| (field(e, at, *n), at += n).0).collect()
        })
        .collect();
    entries.sort();
    Some((name, entries))
}

#[test]
fn damaged_directories_are_recovered_as_the_broker_recovers_them() {
    let inputs = tempfile::tempdir().unwrap();
    untar("recovery-inputs.tar.gz", inputs.path());
    let vectors = golden_json("recovery-vectors.json");
    let mut compared = 0;
    let mut failures = Vec::new();
    for (damage, modes) in vectors["damages"].as_object().unwrap() {
        if damage.starts_with("meta-")
            || damage == "dir-emptied" && !inputs.path().join("recovery_inputs").join(damage).exists()
        {
            continue;
        }
        for (name, step) in modes.as_object().unwrap() {
            let what = format!("{damage} {name}");
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("t-0");
            copy_dir(&inputs.path().join("recovery_inputs").join(damage), &path);
            let before = files(&path);
            let opened = PartitionLog::open(real(), &path, tp(), config(), mode(name, step), NOW);
            compared += 1;
            if damage == "epoch-wrong-count" && name != "clean" {
                assert_eq!(opened.unwrap().latest_epoch(), Some(0), "{what}");
                continue;
            }
            let ours = OUT_OF_ORDER.iter().find(|(d, n, _)| d == damage && n == name);
            if let Some((.., Some(end))) = ours {
                let log = opened.unwrap();
                assert_eq!(
                    (log.log_end_offset(), consumed(&log).last()),
                    (*end, Some(&(end - 1))),
                    "{what}"
                );
                continue;
            }
            if step["brokerStart"] != "ok" || ours.is_some() {
                match opened {
                    Ok(_) => failures.push(format!("{what}: opened, it must be refused")),
                    Err(e) if files(&path) != before => {
                        failures.push(format!("{what}: refused ({e}) but files changed"))
                    }
                    Err(_) => {}
                }
                continue;
            }
            let log = match opened {
                Ok(log) => log,
                Err(e) => {
                    failures.push(format!("{what}: {e}"));
                    continue;
                }
            };
            let log_start_moved = step["logStartLine"].is_i64();
            let cut_two = damage == "act-cut-two-batches" && name == "clean";
            let step = if cut_two { &modes["unclean0"] } else { step };
            let mut check = |part: &str, found: String, expected: String| {
                if found != expected {
                    failures.push(format!("{what}: {part}\n   found    {found}\n   expected {expected}"));
                }
            };
            check(
                "start",
                log.log_start_offset().to_string(),
                step["logStart"].to_string(),
            );
            check("end", log.log_end_offset().to_string(), step["end"].to_string());
            check(
                "consumed",
                format!("{:?}", consumed(&log)),
                format!(
                    "{:?}",
                    serde_json::from_value::<Vec<i64>>(step["consumerOffsets"].clone()).unwrap()
                ),
            );
            if step["logStartLine"].is_i64() {
                // The broker's retention deletes what lies below the log start.
                log.update_config(LogConfig {
                    retention_ms: -1,
                    file_delete_delay_ms: i64::MAX,
                    ..config()
                });
                log.delete_old_segments(NOW).unwrap();
            }
            let lookups = &step["leaderTimestampLookup"];
            let time_index = damage.starts_with("timeindex");
            for (target, key) in [(1_795_240_001_500, "T+1500"), (-3, "MAX")] {
                let found = log
                    .fetch_offset_by_timestamp(target, FetchBound::HighWatermark)
                    .map_or(-2, |found| found.offset);
                let expected = if time_index {
                    &modes["unclean0"]["leaderTimestampLookup"]
                } else {
                    lookups
                };
                check(key, found.to_string(), expected[key].to_string());
            }
            // The broker takes the lead with epoch 2 at the log end.
            log.assign_leader_epoch(2).unwrap();
            log.close().unwrap();
            let epochs = String::from_utf8(std::fs::read(path.join("leader-epoch-checkpoint")).unwrap()).unwrap();
            check("epochs", epochs, step["leaderEpochs"].as_str().unwrap().to_string());
            let after: BTreeMap<String, Vec<(i64, i64, usize)>> = files(&path)
                .into_iter()
                .filter(|(name, _)| name.ends_with(".log"))
                .map(|(name, bytes)| (name, batches(bytes)))
                .collect();
            check(
                "batches",
                format!("{after:?}"),
                format!(
                    "{:?}",
                    serde_json::from_value::<BTreeMap<String, Vec<(i64, i64, usize)>>>(step["batchesAfter"].clone())
                        .unwrap()
                ),
            );
            let state = step["producerStateAtEnd"].as_object().map(|state| {
                let mut entries: Vec<Vec<i64>> = serde_json::from_value(state["entries"].clone()).unwrap();
                entries.sort();
                (state["file"].as_str().unwrap().to_string(), entries)
            });
            check(
                "producer state",
                format!("{:?}", state_at_end(&path)),
                format!("{state:?}"),
            );
            // After a clean stop the broker keeps odd side files and torn tails.
            if name == "clean"
                || name == "unclean-leo" && (damage.contains("index") || damage == "old-cut-to-0")
                || log_start_moved
            {
                continue;
            }
            let sizes: BTreeMap<String, usize> = files(&path)
                .into_iter()
                .filter(|(name, _)| !name.contains(".torn") && name != "partition.metadata")
                .map(|(name, bytes)| (name, bytes.len()))
                .collect();
            let mut expected: BTreeMap<String, usize> =
                serde_json::from_value(step["filesAfterCleanStop"].clone()).unwrap();
            expected.remove("partition.metadata");
            let only = |a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>| {
                let mut a = a.clone();
                a.retain(|name, size| b.get(name) != Some(size));
                format!("{a:?}")
            };
            check("files", only(&sizes, &expected), only(&expected, &sizes));
        }
    }
    assert!(compared > 100, "{compared}");
    assert!(
        failures.is_empty(),
        "{} of {compared}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_recovered_directory_goes_on_and_opens_again() {
    let inputs = tempfile::tempdir().unwrap();
    untar("recovery-inputs.tar.gz", inputs.path());
    for entry in std::fs::read_dir(inputs.path().join("recovery_inputs")).unwrap() {
        let source = entry.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        copy_dir(&source, &path);
        // Some damages are refused: then the read-only view is, too, or it stays within what is whole.
        let Ok(log) = PartitionLog::open(real(), &path, tp(), config(), UNCLEAN, NOW) else {
            continue;
        };
        let end = log.log_end_offset();
        let before = consumed(&log);
        log.append_as_leader(batch(&[(NOW, b"on")]), 3, AppendOrigin::Client, NOW)
            .unwrap();
        drop(log);
        let log = PartitionLog::open(real(), &path, tp(), config(), UNCLEAN, NOW).unwrap();
        assert_eq!(log.log_end_offset(), end + 1, "{source:?}");
        let mut expected = before;
        // A batch that the broker keeps although no consumer can read it hides what follows.
        let last = consumed(&log);
        if last.last() == Some(&end) {
            expected.push(end);
        }
        assert_eq!(last, expected, "{source:?}");
    }
}
