//! Deleting from the start: by time, by size, by start offset (spec 4.1, 4.2).

use crate::common::*;
use fletchlog_log::{AppendOrigin, LogConfig, LogError, OpenMode, PartitionLog};

fn five_per_segment(
    config: LogConfig,
) -> (
    std::sync::Arc<dyn fletchlog_log::fs::Fs>,
    std::path::PathBuf,
    PartitionLog,
    u64,
) {
    let (fs, dir) = memory();
    let size = batch(&[(NOW, b"0123456789")]).len();
    let config = LogConfig {
        segment_bytes: i32::try_from(size * 5).unwrap(),
        ..config
    };
    let log = open(&fs, &dir, config, CLEAN);
    for i in 0..15 {
        append(&log, batch(&[(NOW + i, b"0123456789")]));
    }
    (fs, dir, log, size as u64)
}

#[test]
fn size_retention_never_goes_below_its_limit() {
    let (.., log, size) = five_per_segment(LogConfig {
        retention_ms: -1,
        ..LogConfig::default()
    });
    let with = |bytes: u64| LogConfig {
        retention_ms: -1,
        retention_bytes: i64::try_from(bytes).unwrap(),
        ..LogConfig::default()
    };
    log.update_config(with(10 * size + 1));
    assert_eq!(log.delete_old_segments(NOW).unwrap(), 0);
    log.update_config(with(10 * size));
    assert_eq!(log.delete_old_segments(NOW).unwrap(), 1);
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset(), log.segments().len()),
        (5, 15, 2)
    );
    assert!(matches!(
        log.read(4, 1, true, fletchlog_log::FetchBound::LogEnd),
        Err(LogError::OffsetOutOfRange { start: 5, .. })
    ));
    assert_eq!(offsets(&log), (5..15).collect::<Vec<_>>());
}

#[test]
fn time_retention_can_empty_the_log_and_the_files_go_after_their_delay() {
    let (fs, dir, log, _) = five_per_segment(LogConfig {
        retention_ms: 1000,
        file_delete_delay_ms: 60_000,
        ..LogConfig::default()
    });
    assert_eq!(log.delete_old_segments(NOW + 4 + 1000).unwrap(), 0);
    assert_eq!(log.delete_old_segments(NOW + 4 + 1001).unwrap(), 1);
    assert_eq!(log.delete_old_segments(NOW + 2000).unwrap(), 2);
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset(), log.segments()),
        (15, 15, vec![(15, 0)])
    );
    let deleted = || {
        fs.read_dir(&dir)
            .unwrap()
            .iter()
            .filter(|entry| entry.name.ends_with(".deleted"))
            .count()
    };
    assert!(deleted() >= 9);
    log.delete_old_segments(NOW + 2000 + 60_000).unwrap();
    assert_eq!(deleted(), 0);
    assert_eq!(append(&log, batch(&[(NOW, b"x")])).first_offset, 15);
}

#[test]
fn one_young_segment_protects_those_behind_it() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            retention_ms: 1000,
            ..small_segments(100)
        },
        CLEAN,
    );
    for time in [NOW, NOW + 5000, NOW, NOW] {
        append(&log, batch(&[(time, b"0123456789")]));
    }
    assert_eq!(log.delete_old_segments(NOW + 2000).unwrap(), 1);
    assert_eq!(log.log_start_offset(), 1);
}

#[test]
fn delete_records_moves_the_start_into_the_middle_of_a_batch() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            cleanup_delete: false,
            ..small_segments(200)
        },
        CLEAN,
    );
    for _ in 0..6 {
        append(&log, batch(&[(NOW, b"01234"), (NOW, b"56789")]));
    }
    assert_eq!(log.delete_records(Some(5)).unwrap(), 5);
    assert_eq!(log.delete_records(Some(2)).unwrap(), 5);
    assert_eq!(offsets(&log), (5..12).collect::<Vec<_>>());
    for offset in [-1, 13] {
        assert!(matches!(
            log.delete_records(Some(offset)),
            Err(LogError::OffsetOutOfRange { .. })
        ));
    }
    // Segments wholly below go, whatever the policy.
    let before = log.segments().len();
    let gone = log.delete_old_segments(NOW).unwrap();
    assert!(gone > 0 && log.segments().len() == before - gone);
    assert_eq!(log.log_start_offset(), 5);
    log.close().unwrap();
    let mode = OpenMode::Write {
        clean_shutdown: true,
        recovery_point: 12,
        log_start_offset: 5,
    };
    let log = open(&fs, &dir, small_segments(200), mode);
    assert_eq!(offsets(&log), (5..12).collect::<Vec<_>>());
    assert_eq!(log.delete_records(None).unwrap(), 12);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (12, 12));
}

#[test]
fn a_log_that_ends_before_its_start_begins_there_empty() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    append(&log, batch(&[(NOW, b"x")]));
    log.close().unwrap();
    let mode = OpenMode::Write {
        clean_shutdown: true,
        recovery_point: 1,
        log_start_offset: 40,
    };
    let log = open(&fs, &dir, LogConfig::default(), mode);
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset(), log.segments()),
        (40, 40, vec![(40, 0)])
    );
    let info = log
        .append_as_leader(batch(&[(NOW, b"y")]), 0, AppendOrigin::Client, NOW)
        .unwrap();
    assert_eq!(info.first_offset, 40);
}
