//! Producer state through the log: duplicates, epochs, restarts, markers (spec 3).

use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, PartitionLog};

fn send(log: &PartitionLog, sequence: i32) -> (i16, i64) {
    match log.append_as_leader(idempotent(7, 0, sequence, 1), 0, AppendOrigin::Client, NOW) {
        Ok(info) => (0, info.first_offset),
        Err(e) => (code(Err(e)), -1),
    }
}

#[test]
fn a_duplicate_batch_is_acknowledged_with_its_first_offset() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    // Ten messages, each acknowledged, each sent twice: each is in the log once.
    for sequence in 0..10 {
        assert_eq!(send(&log, sequence), (0, i64::from(sequence)));
        let again = append(&log, idempotent(7, 0, sequence, 1));
        assert!(again.duplicate);
        assert_eq!(
            (again.first_offset, again.log_append_time_ms),
            (i64::from(sequence), NOW)
        );
    }
    assert_eq!(offsets(&log), (0..10).collect::<Vec<_>>());
    assert_eq!(send(&log, 4).0, 45);
    assert_eq!(send(&log, 5), (0, 5));
    assert_eq!(send(&log, 11).0, 45);
    assert_eq!(log.log_end_offset(), 10);
}

#[test]
fn after_any_restart_the_newest_batch_alone_is_recognised() {
    for clean in [true, false] {
        let (fs, dir) = memory();
        let log = open(&fs, &dir, small_segments(300), CLEAN);
        for sequence in 0..10 {
            send(&log, sequence);
        }
        if clean {
            log.close().unwrap();
        }
        drop(log);
        let log = open(&fs, &dir, small_segments(300), if clean { CLEAN } else { UNCLEAN });
        assert_eq!(send(&log, 9), (0, 9), "clean: {clean}");
        assert_eq!(send(&log, 8).0, 45, "clean: {clean}");
        assert_eq!(send(&log, 10), (0, 10), "clean: {clean}");
        assert_eq!(log.log_end_offset(), 11);
    }
}

/// Measured on 3.9.1 and 4.3.1: recovery, too, ends with a reload from a snapshot, which passes over expired producers.
#[test]
fn any_restart_forgets_a_producer_whose_newest_batch_is_older_than_the_expiration() {
    for clean in [true, false] {
        for age in [0, 1] {
            let (fs, dir) = memory();
            let config = LogConfig::default();
            let now = NOW + config.producer_id_expiration_ms - 1 + age;
            let log = open(&fs, &dir, config.clone(), CLEAN);
            send(&log, 0);
            if clean {
                log.close().unwrap();
            }
            drop(log);
            let mode = if clean { CLEAN } else { UNCLEAN };
            let log = PartitionLog::open(fs, &dir, tp(), config, mode, now).unwrap();
            assert_eq!(send(&log, 0), (0, age), "clean: {clean}");
        }
    }
}

#[test]
fn producers_outlive_their_data_while_the_log_is_open() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    send(&log, 0);
    log.delete_records(None).unwrap();
    assert_eq!(send(&log, 0), (0, 0));
    log.close().unwrap();
    // Its snapshot is at the log start: after a restart it is gone.
    let mode = fletchlog_log::OpenMode::Write {
        clean_shutdown: true,
        recovery_point: 1,
        log_start_offset: 1,
    };
    let log = open(&fs, &dir, LogConfig::default(), mode);
    assert_eq!(send(&log, 0), (0, 1));
}

#[test]
fn a_refused_append_leaves_the_state_as_it_was() {
    let (fs, dir) = memory();
    let config = LogConfig {
        max_message_bytes: 200,
        ..LogConfig::default()
    };
    let log = open(&fs, &dir, config, CLEAN);
    send(&log, 0);
    assert_eq!(
        code(log.append_as_leader(idempotent(7, 0, 1, 50), 0, AppendOrigin::Client, NOW)),
        10
    );
    assert_eq!(send(&log, 1), (0, 1));
}

#[test]
fn readers_of_committed_data_stop_at_the_oldest_open_transaction() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(500), CLEAN);
    append(&log, batch(&[(NOW, b"plain")]));
    append(&log, transactional(1, 0, 2));
    append(&log, transactional(2, 0, 3));
    append(&log, batch(&[(NOW, b"plain")]));
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (7, 1));
    let committed = |log: &PartitionLog| read_all(log, FetchBound::LastStableOffset, 1 << 20).len();
    assert_eq!(committed(&log), 1);
    let coordinator = |records| {
        log.append_as_leader(records, 0, AppendOrigin::Coordinator, NOW)
            .unwrap()
    };
    coordinator(marker(1, 0, false));
    assert_eq!(log.last_stable_offset(), 3);
    coordinator(marker(2, 0, true));
    assert_eq!(log.last_stable_offset(), 9);
    let info = log.read(0, 1 << 20, true, FetchBound::LastStableOffset).unwrap();
    assert_eq!(info.aborted_transactions, Some(vec![(1, 1)]));
    assert_eq!(
        log.read(0, 1 << 20, true, FetchBound::HighWatermark)
            .unwrap()
            .aborted_transactions,
        None
    );
    // The same after a crash, and for a reader beside the writer.
    append(&log, transactional(1, 2, 1));
    for mode in [READ_ONLY, UNCLEAN, READ_ONLY] {
        let log = open(&fs, &dir, small_segments(500), mode);
        assert_eq!((log.last_stable_offset(), log.high_watermark()), (9, 10), "{mode:?}");
        let info = log.read(0, 1 << 20, true, FetchBound::LastStableOffset).unwrap();
        assert_eq!(info.aborted_transactions, Some(vec![(1, 1)]), "{mode:?}");
    }
}

#[test]
fn a_client_cannot_forge_a_marker() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    assert_eq!(
        code(log.append_as_leader(marker(1, 0, true), 0, AppendOrigin::Client, NOW)),
        87
    );
}
