//! Cutting the end of a log off (spec 6.10).

use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogError, OpenMode};

#[test]
fn what_is_beyond_the_offset_is_gone_and_the_rest_is_as_if_nothing_else_had_been_written() {
    let (fs, dir) = memory();
    let size = i32::try_from(idempotent(7, 0, 0, 2).len()).unwrap();
    let log = open(&fs, &dir, small_segments(size * 2), CLEAN);
    for i in 0..8 {
        let epoch = i / 3;
        log.append_as_leader(idempotent(7, 0, i * 2, 2), epoch, AppendOrigin::Client, NOW)
            .unwrap();
    }
    log.flush().unwrap();
    assert_eq!((log.log_end_offset(), log.segments().len()), (16, 4));
    for (cut, segments, latest) in [(10, 3, 1), (8, 3, 1), (2, 1, 0)] {
        log.truncate_to(cut, NOW).unwrap();
        assert_eq!((log.log_end_offset(), log.high_watermark()), (cut, cut));
        assert_eq!(
            (log.segments().len(), log.latest_epoch()),
            (segments, Some(latest)),
            "{cut}"
        );
        assert_eq!(offsets(&log), (0..cut).collect::<Vec<_>>());
        assert_eq!(log.end_offset_for_epoch(latest), (latest, cut));
        let producers = log.active_producers();
        assert_eq!(i64::from(producers[0].last_sequence), cut - 1);
        let beyond = log.read(cut + 1, 1, true, FetchBound::LogEnd);
        assert!(matches!(beyond, Err(LogError::OffsetOutOfRange { .. })));
    }
    log.truncate_to(2, NOW).unwrap();
    let next = log
        .append_as_leader(idempotent(7, 0, 2, 2), 5, AppendOrigin::Client, NOW)
        .unwrap();
    assert_eq!(
        (next.first_offset, log.end_offset_for_epoch(0), log.latest_epoch()),
        (2, (0, 2), Some(5))
    );
    log.close().unwrap();
    let again = open(&fs, &dir, small_segments(size * 2), CLEAN);
    assert_eq!((again.log_end_offset(), offsets(&again)), (4, vec![0, 1, 2, 3]));
}

#[test]
fn a_transaction_that_is_cut_has_never_begun_and_one_that_loses_its_marker_is_open() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(10_000), CLEAN);
    log.append_as_leader(transactional(7, 0, 2), 0, AppendOrigin::AddedClient, NOW)
        .unwrap();
    log.append_as_leader(marker(7, 0, false), 0, AppendOrigin::Coordinator, NOW)
        .unwrap();
    log.append_as_leader(transactional(7, 2, 1), 0, AppendOrigin::AddedClient, NOW)
        .unwrap();
    log.truncate_to(3, NOW).unwrap();
    assert_eq!((log.last_stable_offset(), log.high_watermark()), (3, 3));
    let read = log.read(0, 1 << 20, true, FetchBound::LastStableOffset).unwrap();
    assert_eq!(read.aborted_transactions, Some(vec![(7, 0)]));
    log.truncate_to(2, NOW).unwrap();
    assert_eq!((log.last_stable_offset(), log.high_watermark()), (0, 2));
    log.truncate_to(0, NOW).unwrap();
    assert_eq!(
        (log.last_stable_offset(), log.log_end_offset(), log.latest_epoch()),
        (0, 0, None)
    );
    assert!(log.active_producers().is_empty());
}

#[test]
fn a_held_high_watermark_stands_still_and_a_marker_counts_only_below_it() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(10_000), CLEAN);
    log.append_as_leader(transactional(7, 0, 2), 0, AppendOrigin::AddedClient, NOW)
        .unwrap();
    log.hold_high_watermark(true);
    log.append_as_leader(marker(7, 0, true), 0, AppendOrigin::Coordinator, NOW)
        .unwrap();
    append(&log, batch(&[(NOW, b"x")]));
    log.flush().unwrap();
    assert_eq!(
        (log.high_watermark(), log.last_stable_offset(), log.log_end_offset()),
        (2, 0, 4)
    );
    log.hold_high_watermark(false);
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (4, 4));
    assert!(matches!(CLEAN, OpenMode::Write { .. }));
}
