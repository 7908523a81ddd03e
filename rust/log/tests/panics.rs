//! A panic in the middle of a change, here in the file system below the log: nothing is added to what is half done, and
//! reopening recovers everything acknowledged.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::faulty::*;
use crate::common::*;
use fletchlog_log::config::Durability;
use fletchlog_log::{AppendError, CleanerOptions, LogConfig, LogError, PartitionLog};

const BEFORE: i32 = 4;

fn config(durability: Durability) -> LogConfig {
    LogConfig {
        durability,
        segment_bytes: 150,
        retention_bytes: 0,
        cleanup_compact: true,
        ..LogConfig::default()
    }
}

/// What is done to a log when the panic comes.
type Change = fn(&PartitionLog);

const CHANGES: [(&str, Change, &[Call]); 6] = [
    (
        "append",
        |log| drop(try_append(log, BEFORE)),
        &[Call::Write, Call::Sync],
    ),
    ("roll", |log| drop(log.roll(NOW)), &[Call::Create]),
    (
        "retention",
        |log| drop(log.delete_old_segments(NOW)),
        &[Call::Rename, Call::SyncDir],
    ),
    (
        "cleaning",
        |log| {
            let cleanable = log.cleanable(None, NOW).unwrap();
            let options = CleanerOptions {
                dedupe_buffer_bytes: 1 << 20,
            };
            drop(log.clean(&cleanable, &options, NOW, &mut || false));
        },
        &[Call::Rename],
    ),
    ("flush", |log| drop(log.flush()), &[Call::Sync]),
    (
        "delete_records",
        |log| drop(log.delete_records(Some(3))),
        &[Call::Replace],
    ),
];

/// Panics in `call`. Whether it was made.
fn panics(log: &PartitionLog, faults: &Faults, change: Change, call: Call) -> bool {
    *faults.panics.lock().unwrap() = Some(call);
    let unwound = catch_unwind(AssertUnwindSafe(|| change(log))).is_err();
    *faults.panics.lock().unwrap() = None;
    unwound
}

#[test]
fn after_a_panic_in_a_change_nothing_is_appended_until_the_log_is_reopened() {
    for durability in [Durability::PageCache, Durability::Fsync] {
        for (name, change, calls) in CHANGES {
            for &call in calls {
                let what = format!("{durability:?}: {call:?} panics in {name}");
                let (fs, dir, log, faults) = faulty(config(durability));
                for sequence in 0..BEFORE {
                    // An epoch each, so that the epochs change with the start.
                    log.append_as_leader(
                        idempotent(7, 0, sequence, 1),
                        sequence,
                        fletchlog_log::AppendOrigin::Client,
                        NOW,
                    )
                    .unwrap();
                }
                if !panics(&log, &faults, change, call) {
                    assert_eq!(durability, Durability::PageCache, "{name} calls no {call:?}");
                    continue;
                }
                // Another handle of the same log.
                let refused = try_append(&log, BEFORE).unwrap_err();
                assert!(
                    matches!(&refused, AppendError::Log(LogError::Fenced { cause, .. }) if cause.contains("panicked")),
                    "{what}: {refused}"
                );
                assert!(matches!(log.flush(), Err(LogError::Fenced { .. })), "{what}");
                assert!(matches!(log.close(), Err(LogError::Fenced { .. })), "{what}");
                drop(log);
                let log = open(&fs, &dir, config(durability), UNCLEAN);
                assert!(
                    log.log_end_offset() >= i64::from(BEFORE),
                    "{what}: {}",
                    log.log_end_offset()
                );
                let kept: Vec<i64> = (log.log_start_offset()..log.log_end_offset()).collect();
                assert_eq!(offsets(&log), kept, "{what}");
                // A repeat of what is not known to be acknowledged, or the next one.
                try_append(&log, log.log_end_offset() as i32).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}
