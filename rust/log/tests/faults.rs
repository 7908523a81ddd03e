//! A disk that fills up or fails, and one that must be asked to keep what it was given.

use std::io;
use std::sync::atomic::Ordering;

use crate::common::faulty::*;
use crate::common::*;
use fletchlog_log::config::Durability;
use fletchlog_log::{AppendError, AppendOrigin, LogConfig, LogError};

#[test]
fn a_full_disk_takes_no_offset_and_the_log_goes_on_when_there_is_room() {
    let (fs, dir, log, faults) = faulty(LogConfig::default());
    try_append(&log, 0).unwrap();
    let size = log.size();
    for room in [0, 1, 61, 69] {
        faults.room.store(room, Ordering::Relaxed);
        let error = try_append(&log, 1).unwrap_err();
        assert!(
            matches!(&error, AppendError::Log(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        assert_eq!((log.log_end_offset(), log.size()), (1, size));
        assert_eq!(
            fs.read(&dir.join("00000000000000000000.log")).unwrap().len() as u64,
            size
        );
        assert_eq!(offsets(&log), [0]);
    }
    faults.room.store(-1, Ordering::Relaxed);
    assert_eq!(try_append(&log, 1).unwrap(), 1);
    assert_eq!(offsets(&log), [0, 1]);
    log.close().unwrap();
}

#[test]
fn after_a_failed_write_nothing_is_written_until_the_log_is_reopened() {
    let (fs, dir, log, faults) = faulty(LogConfig::default());
    try_append(&log, 0).unwrap();
    *faults.write_error.lock().unwrap() = Some(io::ErrorKind::Other);
    assert!(matches!(
        try_append(&log, 1).unwrap_err(),
        AppendError::Log(LogError::Io { .. })
    ));
    *faults.write_error.lock().unwrap() = None;
    assert!(matches!(
        try_append(&log, 1).unwrap_err(),
        AppendError::Log(LogError::Fenced { .. })
    ));
    assert!(matches!(log.flush(), Err(LogError::Fenced { .. })));
    // What was there can be read.
    assert_eq!(offsets(&log), [0]);
    assert!(matches!(log.close(), Err(LogError::Fenced { .. })));
    let log = open(&fs, &dir, LogConfig::default(), UNCLEAN);
    assert_eq!(try_append(&log, 1).unwrap(), 1);
}

#[test]
fn under_fsync_an_append_answers_after_the_disk_and_is_not_visible_before() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..small_segments(200)
    });
    let before = faults.syncs.load(Ordering::Relaxed);
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    assert!(log.segments().len() > 2);
    assert!(faults.syncs.load(Ordering::Relaxed) >= before + 6);
    assert_eq!(log.high_watermark(), 6);
    // A repeat of what is on disk needs none.
    let syncs = faults.syncs.load(Ordering::Relaxed);
    try_append(&log, 5).unwrap();
    assert_eq!(faults.syncs.load(Ordering::Relaxed), syncs);

    *faults.sync_error.lock().unwrap() = Some(io::ErrorKind::Other);
    assert!(matches!(
        try_append(&log, 6).unwrap_err(),
        AppendError::Log(LogError::Io { action: "sync", .. })
    ));
    // A second fsync may succeed without the data: it is never asked.
    *faults.sync_error.lock().unwrap() = None;
    assert!(matches!(
        try_append(&log, 7).unwrap_err(),
        AppendError::Log(LogError::Fenced { .. })
    ));
    assert_eq!(log.high_watermark(), 6);
    assert_eq!(offsets(&log), (0..6).collect::<Vec<_>>());
    drop(log);
    let log = open(
        &fs,
        &dir,
        LogConfig {
            durability: Durability::Fsync,
            ..small_segments(200)
        },
        UNCLEAN,
    );
    assert!(log.log_end_offset() >= 6);
}

/// A start that readers have seen must not go back with a crash, nor the end of a log that loses every segment.
#[test]
fn under_fsync_retention_is_seen_after_the_disk_and_not_before() {
    // Nothing is kept, or one batch of 70 bytes.
    for (retention_bytes, first_stays) in [(0, true), (70, false)] {
        let (fs, dir, log, faults) = faulty(LogConfig {
            durability: Durability::Fsync,
            segment_bytes: 100,
            retention_bytes,
            ..LogConfig::default()
        });
        for sequence in 0..3 {
            try_append(&log, sequence).unwrap();
        }
        *faults.dir_sync_fails.lock().unwrap() = true;
        assert!(matches!(log.delete_old_segments(NOW), Err(LogError::Io { .. })));
        assert_eq!((log.log_start_offset(), offsets(&log)), (0, vec![0, 1, 2]));
        // Without a segment the log would begin at 0 again: first the new one is on disk.
        assert_eq!(fs.exists(&dir.join("00000000000000000000.log")), first_stays);
        assert!(matches!(
            try_append(&log, 3).unwrap_err(),
            AppendError::Log(LogError::Fenced { .. })
        ));
    }
}

#[test]
fn side_files_that_cannot_be_written_fail_no_append() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        index_interval_bytes: 0,
        ..LogConfig::default()
    });
    try_append(&log, 0).unwrap();
    *faults.side_files_fail.lock().unwrap() = true;
    // More than the entries that are kept back anyway.
    for i in 1..300 {
        try_append(&log, i).unwrap();
    }
    assert!(log.close().is_err());
    *faults.side_files_fail.lock().unwrap() = false;
    log.close().unwrap();
    assert_eq!(fs.read(&dir.join("00000000000000000000.index")).unwrap().len(), 299 * 8);
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    assert_eq!(offsets(&log).len(), 300);
}

/// A roll that fails leaves no segment behind: it would be in front of what the old segment takes afterwards.
#[test]
fn what_follows_a_roll_that_failed_is_found() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        segment_bytes: 250,
        ..LogConfig::default()
    });
    try_append(&log, 0).unwrap();
    try_append(&log, 1).unwrap();
    *faults.side_files_fail.lock().unwrap() = true;
    let large = || log.append_as_leader(idempotent(7, 0, 2, 20), 0, AppendOrigin::Client, NOW);
    assert!(matches!(large(), Err(AppendError::Log(LogError::Io { .. }))));
    *faults.side_files_fail.lock().unwrap() = false;
    assert!(!fs.exists(&dir.join("00000000000000000002.log")));
    // A smaller batch needs no new segment, the next one does.
    for sequence in 2..5 {
        try_append(&log, sequence).unwrap();
    }
    assert_eq!(log.segments().len(), 2);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4]);
    drop(log);
    let log = open(&fs, &dir, LogConfig::default(), UNCLEAN);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4]);
}

/// Files and directories that were synced since the last call, sorted.
fn synced(faults: &Faults) -> Vec<String> {
    let mut names: Vec<String> = std::mem::take(&mut *faults.synced.lock().unwrap())
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn under_page_cache_appends_wait_for_no_disk_and_closing_syncs_each_changed_file_once() {
    let (fs, dir, log, faults) = faulty(small_segments(200));
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    let bases: Vec<i64> = log.segments().iter().map(|(base, _)| *base).collect();
    assert_eq!(bases, [0, 2, 4]);
    assert_eq!(synced(&faults), [""; 0]);
    log.close().unwrap();
    let mut expected: Vec<String> = bases
        .iter()
        .flat_map(|base| ["index", "log", "timeindex"].map(|kind| format!("{base:020}.{kind}")))
        .collect();
    expected.push(format!("{:020}.snapshot", 6));
    expected.extend(["leader-epoch-checkpoint", "t-0"].map(str::to_string));
    assert_eq!(synced(&faults), expected);

    // Opened and read, but not written: nothing to sync.
    let log = open(&fs, &dir, small_segments(200), CLEAN);
    assert_eq!(offsets(&log).len(), 6);
    assert_eq!(log.unsynced_files(), 0);
    log.flush().unwrap();
    log.close().unwrap();
    assert_eq!(synced(&faults), [""; 0]);

    // One append: what it touched, nothing of the old segments.
    let log = open(&fs, &dir, small_segments(400), CLEAN);
    try_append(&log, 6).unwrap();
    log.flush().unwrap();
    assert_eq!(synced(&faults), ["00000000000000000004.log"]);
    log.close().unwrap();
    let after = synced(&faults);
    assert!(after.contains(&format!("{:020}.snapshot", 7)), "{after:?}");
    assert!(
        !after.iter().any(|name| name.starts_with("00000000000000000002")),
        "{after:?}"
    );
}

#[test]
fn a_killed_writers_log_is_synced_before_its_recovery_point_moves() {
    let (fs, dir, log, faults) = faulty(small_segments(200));
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    drop(log);
    assert_eq!(synced(&faults), [""; 0]);
    let log = open(&fs, &dir, small_segments(200), UNCLEAN);
    assert_eq!(log.recovery_point(), 0);
    assert_eq!(log.flush().unwrap(), 6);
    let after = synced(&faults);
    for base in [0, 2, 4] {
        assert!(after.contains(&format!("{base:020}.log")), "{after:?}");
    }
    // The one before may have written it without an fsync.
    assert!(after.iter().any(|name| name == "leader-epoch-checkpoint"), "{after:?}");
    assert_eq!(log.recovery_point(), 6);
}
