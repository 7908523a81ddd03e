//! Durability fsync with several threads: which caller gets which answer, and when, and what is on disk then.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::faulty::*;
use crate::common::*;
use fletchlog_log::config::Durability;
use fletchlog_log::{AppendError, AppendOrigin, LogConfig, LogError, PartitionLog};

/// Appends from so many threads that all wait for the disk while it is held, then lets it go. Returns the result of each append.
fn append_together(log: &PartitionLog, faults: &Faults, threads: i64) -> Vec<Result<i64, AppendError>> {
    let disk = faults.disk.lock().unwrap();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..threads)
            .map(|producer| {
                scope.spawn(move || {
                    let appended = log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
                    appended.map(|info| info.first_offset)
                })
            })
            .collect();
        while log.log_end_offset() < threads {
            std::thread::yield_now();
        }
        // All are in the log, none is on disk, so nobody sees one.
        assert_eq!(log.high_watermark(), 0);
        assert_eq!(offsets(log), [0; 0]);
        drop(disk);
        producers.into_iter().map(|producer| producer.join().unwrap()).collect()
    })
}

#[test]
fn appends_that_wait_together_share_an_fsync() {
    let (log, faults) = synced_log();
    let before = faults.syncs.load(Ordering::Relaxed);
    let mut acknowledged: Vec<i64> = append_together(&log, &faults, 16)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, (0..16).collect::<Vec<_>>());
    assert_eq!((log.log_end_offset(), log.high_watermark()), (16, 16));
    // The one that was under way when the others came, and one for all of them.
    assert!(faults.syncs.load(Ordering::Relaxed) <= before + 2);
}

#[test]
fn a_failed_fsync_acknowledges_no_append_that_waited_for_it() {
    let (log, faults) = synced_log();
    *faults.sync_error.lock().unwrap() = Some(io::ErrorKind::Other);
    let syncs = faults.syncs.load(Ordering::Relaxed);
    let results = append_together(&log, &faults, 16);
    assert!(results.iter().all(Result::is_err), "{results:?}");
    let first = |e: &AppendError| matches!(e, AppendError::Log(LogError::Io { action: "sync", .. }));
    let others = |e: &AppendError| matches!(e, AppendError::Log(LogError::Fenced { .. }));
    let errors: Vec<_> = results.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors.iter().filter(|e| first(e)).count(), 1, "{errors:?}");
    assert_eq!(errors.iter().filter(|e| others(e)).count(), 15, "{errors:?}");
    // It is not asked again.
    assert_eq!(faults.syncs.load(Ordering::Relaxed), syncs + 1);
    assert_eq!(log.high_watermark(), 0);
}

/// Row C17 of docs/reliability.md: only the caller that asked for the fsync waits for it.
#[test]
fn a_slow_fsync_holds_up_neither_readers_nor_other_logs() {
    let (fs, _, log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..LogConfig::default()
    });
    try_append(&log, 0).unwrap();
    let other = open(&fs, Path::new("/data/u-0"), LogConfig::default(), CLEAN);
    let before = faults.syncs.load(Ordering::Relaxed);
    let held = faults.disk.lock().unwrap();
    std::thread::scope(|scope| {
        let append = scope.spawn(|| try_append(&log, 1));
        while faults.syncs.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        assert_eq!(
            offsets(&log),
            [0],
            "what is not on disk is not acknowledged, and not shown"
        );
        assert_eq!(try_append(&other, 0).unwrap(), 0);
        assert_eq!(offsets(&other), [0]);
        assert!(!append.is_finished());
        drop(held);
        assert_eq!(append.join().unwrap().unwrap(), 1);
    });
    assert_eq!(offsets(&log), [0, 1]);
}

/// A client that gave up the connection sends the batch again, while the first one still waits for the disk.
#[test]
fn a_repeat_is_not_acknowledged_before_the_batch_that_it_repeats_is_on_disk() {
    for failure in [None, Some(io::ErrorKind::Other)] {
        let (log, faults) = synced_log();
        let held = faults.disk.lock().unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| try_append(&log, 0));
            while log.log_end_offset() < 1 {
                std::thread::yield_now();
            }
            let repeat = scope.spawn(|| try_append(&log, 0));
            for _ in 0..1_000 {
                assert!(!repeat.is_finished(), "it is not on disk");
                std::thread::yield_now();
            }
            *faults.sync_error.lock().unwrap() = failure;
            drop(held);
            let acknowledged = [first, repeat].map(|append| append.join().unwrap().ok());
            assert_eq!(acknowledged, if failure.is_some() { [None; 2] } else { [Some(0); 2] });
        });
    }
}

/// The one comes to write when the other one's fsync is already under way.
#[test]
fn an_fsync_does_not_count_for_what_is_written_while_it_runs() {
    let (log, faults) = synced_log();
    let append = |producer| {
        let appended = log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
        appended.unwrap().first_offset
    };
    let until = |count: &AtomicU64, least| {
        while count.load(Ordering::Relaxed) < least {
            std::thread::yield_now();
        }
    };
    let (syncs, writes) = (&faults.syncs, &faults.writes);
    let before = syncs.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let disk = faults.disk.lock().unwrap();
        let first = scope.spawn(|| append(1));
        until(syncs, before + 1);
        // Waits for its turn to sync.
        let second = scope.spawn(|| append(2));
        while log.log_end_offset() < 2 {
            std::thread::yield_now();
        }
        let gate = faults.write_gate.lock().unwrap();
        let third = scope.spawn(|| append(3));
        until(writes, 3);
        drop(disk);
        assert_eq!([first.join().unwrap(), second.join().unwrap()], [0, 1]);
        let synced = syncs.load(Ordering::Relaxed);
        drop(gate);
        assert_eq!(third.join().unwrap(), 2);
        assert_eq!(
            syncs.load(Ordering::Relaxed),
            synced + 1,
            "the third batch is not on disk"
        );
    });
}

/// Recovery would keep the new segment, and go on behind the gap.
#[test]
fn a_segment_is_not_begun_before_the_one_before_it_is_on_disk() {
    let config = LogConfig {
        durability: Durability::Fsync,
        ..small_segments(100)
    };
    let (fs, dir, log, faults) = faulty(config);
    let new = dir.join("00000000000000000001.log");
    let append = |producer| log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
    std::thread::scope(|scope| {
        let disk = faults.disk.lock().unwrap();
        let first = scope.spawn(|| append(1).unwrap());
        while log.log_end_offset() < 1 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| append(2).unwrap());
        for _ in 0..1_000 {
            assert!(!fs.exists(&new));
            std::thread::yield_now();
        }
        drop(disk);
        assert_eq!([first, second].map(|a| a.join().unwrap().first_offset), [0, 1]);
    });
    assert!(fs.exists(&new));
}

/// A recovery point above records that a power loss could bring back unsynced would keep recovery from checking them.
#[test]
fn a_flush_beside_a_deletion_leaves_its_renames_to_the_next_flush() {
    let (_, dir, log, faults) = faulty(LogConfig {
        retention_bytes: 0,
        ..LogConfig::default()
    });
    // Without a leader epoch, whose file is replaced when the log start moves.
    let append = |sequence| {
        let batch = idempotent(7, 0, sequence, 1);
        log.append_as_leader(batch, -1, AppendOrigin::Client, NOW).unwrap();
    };
    append(0);
    std::thread::scope(|scope| {
        let disk = faults.disk.lock().unwrap();
        let flush = scope.spawn(|| log.flush().unwrap());
        while faults.syncs.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // Behind what this flush syncs.
        append(1);
        log.roll(NOW).unwrap();
        let before = faults.renames.load(Ordering::Relaxed);
        let names = faults.rename_gate.lock().unwrap();
        let deletion = scope.spawn(|| log.delete_old_segments(NOW).unwrap());
        while faults.renames.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        drop(disk);
        assert_eq!(flush.join().unwrap(), 1);
        drop(names);
        assert_eq!(deletion.join().unwrap(), 1);
    });
    faults.synced.lock().unwrap().clear();
    assert_eq!(log.flush().unwrap(), 2);
    assert!(faults.synced.lock().unwrap().contains(&dir));
}
