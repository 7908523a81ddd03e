//! Readers beside a writer in one process: what they see is whole, in order, and below the published end.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;
use fletchlog_log::{FetchBound, LogConfig, LogError};
use fletchlog_records::BatchIter;

#[test]
fn reads_beside_appends_rolls_and_deletions_see_whole_batches_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let config = LogConfig {
        retention_ms: -1,
        retention_bytes: 20_000,
        file_delete_delay_ms: 0,
        ..small_segments(3000)
    };
    let log = open(&real(), &path, config.clone(), CLEAN);
    let beside = open(&real(), &path, config, READ_ONLY);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (reader, follows) in [(&log, false), (&log, false), (&beside, true)] {
            let done = &done;
            scope.spawn(move || {
                let mut offset = 0;
                loop {
                    let last_round = done.load(Ordering::Acquire);
                    if follows {
                        reader.refresh(0).unwrap();
                    }
                    let end = reader.high_watermark();
                    match reader.read(offset, 2000, true, FetchBound::HighWatermark) {
                        Ok(info) => {
                            for batch in BatchIter::new(info.records) {
                                let batch = batch.unwrap();
                                batch.ensure_valid().unwrap();
                                assert!(batch.header().base_offset <= offset, "a gap before {offset}");
                                offset = batch.header().next_offset();
                            }
                        }
                        Err(LogError::OffsetOutOfRange { start, .. }) => {
                            assert!(start > offset);
                            offset = start;
                        }
                        Err(e) => panic!("{e}"),
                    }
                    if last_round && offset >= end {
                        break;
                    }
                }
                assert_eq!(offset, 3000);
            });
        }
        for i in 0..1500i64 {
            append(&log, batch(&[(NOW + i, b"0123456789"), (NOW + i, b"abc")]));
            if i % 100 == 0 {
                log.delete_old_segments(NOW).unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert!(log.log_start_offset() > 0);
}

/// Row C10 of docs/reliability.md: files are read, never mapped, so a cut is an error of the read that meets it.
#[test]
fn a_segment_that_somebody_cuts_under_a_reader_gives_whole_batches_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, LogConfig::default(), CLEAN);
    for i in 0..200i64 {
        append(&log, batch(&[(NOW + i, b"0123456789"), (NOW + i, b"abc")]));
    }
    log.close().unwrap();
    let reader = open(&real(), &path, LogConfig::default(), READ_ONLY);
    let segment = path.join("00000000000000000000.log");
    let size = std::fs::metadata(&segment).unwrap().len();
    let read_from = |start: i64| {
        let info = reader.read(start, 10_000_000, true, FetchBound::HighWatermark)?;
        let mut next = start;
        for batch in BatchIter::new(info.records) {
            let Ok(batch) = batch else { break };
            let Ok(()) = batch.ensure_valid() else { break };
            assert_eq!(batch.header().base_offset, next);
            next = batch.header().next_offset();
        }
        Ok::<_, LogError>(next)
    };
    assert_eq!(read_from(0).unwrap(), 400);
    let cut = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let is_cut = cut.load(Ordering::Acquire);
                    for start in [0, 100, 398] {
                        if let Ok(next) = read_from(start) {
                            assert!(next <= 400);
                        }
                    }
                    if is_cut {
                        break;
                    }
                }
            });
        }
        let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
        for left in (0..size).rev().step_by(97) {
            file.set_len(left).unwrap();
        }
        cut.store(true, Ordering::Release);
    });
    reader.refresh(0).unwrap();
    assert_eq!(reader.log_end_offset(), 0);
    assert!(matches!(read_from(398), Err(LogError::OffsetOutOfRange { .. })));
}
