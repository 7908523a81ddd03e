//! Reading beside a live writer: only whole batches become visible, nothing is ever written.

use std::os::unix::fs::FileExt;

use crate::common::compacted::{self, clean, keys, put};
use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, LogError, OpenMode, PartitionLog};
use fletchlog_records::BatchIter;

#[test]
fn a_reader_follows_appends_rolls_and_deletions_of_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let config = LogConfig {
        retention_ms: -1,
        retention_bytes: 500,
        file_delete_delay_ms: 0,
        ..small_segments(400)
    };
    let writer = open(&real(), &path, config.clone(), CLEAN);
    let reader = open(&real(), &path, config, READ_ONLY);
    assert_eq!(offsets(&reader), Vec::<i64>::new());
    for i in 0..60 {
        append(&writer, batch(&[(NOW + i, b"0123456789"), (NOW + i, b"abcdef")]));
        if i % 3 == 0 {
            reader.refresh(0).unwrap();
            assert_eq!(reader.high_watermark(), writer.high_watermark(), "{i}");
            assert_eq!(
                read_all(&reader, FetchBound::HighWatermark, 500),
                read_all(&writer, FetchBound::HighWatermark, 500),
                "{i}"
            );
            let lookup = |log: &fletchlog_log::PartitionLog| {
                log.fetch_offset_by_timestamp(NOW + i, FetchBound::HighWatermark)
                    .unwrap()
            };
            assert_eq!(lookup(&reader), lookup(&writer));
        }
        if i % 10 == 9 {
            assert!(writer.delete_old_segments(NOW).unwrap() > 0);
            reader.refresh(0).unwrap();
            assert_eq!(
                (reader.log_start_offset(), reader.segments()),
                (writer.log_start_offset(), writer.segments())
            );
        }
    }
    writer.close().unwrap();
    reader.refresh(0).unwrap();
    assert_eq!(
        offsets(&reader),
        offsets(&open(&real(), &path, LogConfig::default(), READ_ONLY))
    );
}

#[test]
fn a_reader_of_a_partition_that_has_no_file_yet_finds_no_time() {
    const MAX_TIMESTAMP: i64 = -3;
    let dir = tempfile::tempdir().unwrap();
    let reader = open(&real(), dir.path(), LogConfig::default(), READ_ONLY);
    for timestamp in [0, NOW, MAX_TIMESTAMP] {
        for bound in [FetchBound::HighWatermark, FetchBound::LastStableOffset] {
            let found = reader.fetch_offset_by_timestamp(timestamp, bound).unwrap();
            assert_eq!((found.offset, found.timestamp), (-1, -1));
        }
    }
}

#[test]
fn a_reader_that_was_behind_many_rolls_catches_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, small_segments(300), CLEAN);
    let reader = open(&real(), &path, small_segments(300), READ_ONLY);
    for _ in 0..50 {
        append(&writer, batch(&[(NOW, b"0123456789")]));
    }
    reader.refresh(0).unwrap();
    assert_eq!(offsets(&reader), (0..50).collect::<Vec<_>>());
    // Everything it knew is gone.
    writer.update_config(LogConfig {
        retention_ms: 0,
        file_delete_delay_ms: 0,
        ..small_segments(300)
    });
    writer.delete_old_segments(NOW + 10).unwrap();
    append(&writer, batch(&[(NOW, b"new")]));
    reader.refresh(0).unwrap();
    assert_eq!((reader.log_start_offset(), offsets(&reader)), (50, vec![50]));
    // A writer that recovered a torn tail has cut the file.
    let log = path.join("00000000000000000050.log");
    drop(writer);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(10)
        .unwrap();
    reader.refresh(0).unwrap();
    assert_eq!((reader.log_end_offset(), offsets(&reader)), (50, vec![]));
}

#[test]
fn half_a_batch_is_not_visible_and_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&writer, batch(&[(NOW, b"one")]));
    let log = path.join("00000000000000000000.log");
    let one = std::fs::read(&log).unwrap();
    append(&writer, batch(&[(NOW, b"two")]));
    let both = std::fs::read(&log).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(one.len() as u64).unwrap();
    let reader = open(&real(), &path, LogConfig::default(), READ_ONLY);
    for n in one.len()..both.len() {
        file.write_all_at(&both[one.len()..n], one.len() as u64).unwrap();
        reader.refresh(0).unwrap();
        assert_eq!(offsets(&reader), [0], "{n} bytes");
        assert_eq!(
            offsets(&open(&real(), &path, LogConfig::default(), READ_ONLY)),
            [0],
            "{n} bytes"
        );
    }
    // Its length is there, but not its bytes.
    file.set_len(both.len() as u64).unwrap();
    file.write_all_at(&[0; 5], both.len() as u64 - 5).unwrap();
    reader.refresh(0).unwrap();
    assert_eq!(offsets(&reader), [0]);
    file.write_all_at(&both[one.len()..], one.len() as u64).unwrap();
    reader.refresh(0).unwrap();
    assert_eq!(offsets(&reader), [0, 1]);
}

#[test]
fn a_reader_refuses_to_change_anything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&writer, batch(&[(NOW, b"one")]));
    drop(writer);
    std::fs::remove_file(path.join("00000000000000000000.index")).unwrap();
    std::fs::write(path.join("00000000000000000000.timeindex"), [0; 13]).unwrap();
    std::fs::write(path.join("00000000000000000007.log.deleted"), b"x").unwrap();
    std::fs::write(path.join("00000000000000000009.log.cleaned"), b"x").unwrap();
    let before = files(&path);
    let log = open(&real(), &path, LogConfig::default(), READ_ONLY);
    assert_eq!(offsets(&log), [0]);
    assert_eq!(
        log.fetch_offset_by_timestamp(NOW, FetchBound::HighWatermark)
            .unwrap()
            .offset,
        0
    );
    let refused = |result: Result<i64, LogError>| assert!(matches!(result, Err(LogError::ReadOnly { .. })));
    refused(log.roll(NOW));
    refused(log.flush());
    refused(log.delete_records(None));
    refused(log.delete_old_segments(NOW).map(|_| 0));
    let append = log.append_as_leader(batch(&[(NOW, b"x")]), 0, AppendOrigin::Client, NOW);
    assert!(append.unwrap_err().to_string().contains("reading only"));
    log.close().unwrap();
    assert!(matches!(log.refresh(0), Err(LogError::Closed)));
    assert_eq!(files(&path), before);
    // A partition whose directory nobody has made yet is empty, and stays without one.
    let none = open(&real(), &dir.path().join("none-0"), LogConfig::default(), READ_ONLY);
    assert_eq!(none.bounds().unwrap().log_end_offset, 0);
    assert!(!dir.path().join("none-0").exists());
}

#[test]
fn a_reader_sees_an_unfinished_replacement_as_complete() {
    let dir = tempfile::tempdir().unwrap();
    untar("recovery-inputs.tar.gz", dir.path());
    for damage in ["stray-swap", "stray-swap-first", "none"] {
        let path = dir.path().join("recovery_inputs").join(damage);
        let before = files(&path);
        let log = open(&real(), &path, LogConfig::default(), READ_ONLY);
        assert_eq!((log.log_end_offset(), offsets(&log).len()), (67, 64), "{damage}");
        assert_eq!(files(&path), before);
    }
}

#[test]
fn a_reader_whose_segments_were_merged_meanwhile_looks_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, compacted::config(), CLEAN);
    let names: Vec<String> = (0..7).map(|i| format!("k{i}")).collect();
    for i in 0..60 {
        put(&writer, &[(&names[i % 7], Some("value"))]);
    }
    writer.roll(NOW).unwrap();
    // Segments are merged if they are small before a cleaning.
    clean(&writer);
    let reader = open(&real(), &path, compacted::config(), READ_ONLY);
    assert!(reader.segments().len() > 3);
    // The file of the first segment now has what was in several, and the reader has opened none of them.
    clean(&writer);
    assert!(writer.segments().len() < reader.segments().len());
    assert_eq!(keys(&reader), keys(&writer));
    assert_eq!(keys(&reader).len(), 7);
}

#[test]
fn a_reader_whose_segment_begins_with_a_larger_batch_meanwhile_looks_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, compacted::config(), CLEAN);
    put(&writer, &[("small", Some("value"))]);
    writer.roll(NOW).unwrap();
    put(&writer, &[("large", Some(&"a larger value ".repeat(3)))]);
    writer.roll(NOW).unwrap();
    put(&writer, &[("last", Some("value"))]);
    // This reader has opened no file when the first segment becomes what is left of all three.
    let reader = open(&real(), &path, compacted::config(), READ_ONLY);
    put(&writer, &[("small", Some("value"))]);
    writer.roll(NOW).unwrap();
    clean(&writer);
    assert!(writer.segments().len() < 4);
    assert_eq!(keys(&reader), keys(&writer));
    assert_eq!(keys(&reader).len(), 3);
}

#[test]
fn readers_beside_a_cleaner_see_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, compacted::config(), CLEAN);
    let names: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
    let put_some = |range: std::ops::Range<usize>| {
        for i in range {
            put(&writer, &[(&names[i % 10], Some("value"))]);
        }
    };
    put_some(0..10);
    let is_over = || writer.log_end_offset() >= 3_000;
    std::thread::scope(|scope| {
        scope.spawn(|| put_some(10..3_000));
        scope.spawn(|| {
            while !is_over() {
                clean(&writer);
                writer.delete_old_segments(NOW).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over() {
                    let reader = open(&real(), &path, compacted::config(), READ_ONLY);
                    for _ in 0..3 {
                        reader.refresh(0).unwrap();
                        assert_eq!(reader.log_start_offset(), 0);
                        let seen = keys(&reader);
                        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seen:?}");
                        let distinct: std::collections::BTreeSet<_> = seen.iter().map(|(_, key)| key).collect();
                        assert_eq!(distinct.len(), 10, "{seen:?}");
                    }
                }
            });
        }
    });
}

/// A flipped byte in each of three batches, the first two below the recovery point.
#[test]
fn a_bad_batch_below_the_recovery_point_is_an_error_where_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let writer = open(&real(), &path, LogConfig::default(), CLEAN);
    for value in [b"one", b"two", b"six"] {
        append(&writer, batch(&[(NOW, value)]));
    }
    writer.close().unwrap();
    let log = path.join("00000000000000000000.log");
    let sound = std::fs::read(&log).unwrap();
    let size = sound.len() / 3;
    let read_only = OpenMode::ReadOnly {
        recovery_point: 2,
        log_start_offset: 0,
    };
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x80;
        std::fs::write(&log, bytes).unwrap();
        PartitionLog::open(real(), &path, tp(), LogConfig::default(), read_only, NOW)
    };
    for bad in [0, 1] {
        let reader = flipped(bad * size + 60).unwrap();
        assert_eq!(reader.log_end_offset(), 3);
        for offset in 0..3 {
            let read = reader.read(offset, 1, true, FetchBound::LogEnd).unwrap();
            let checked = BatchIter::new(read.records).next().unwrap().unwrap().ensure_valid();
            assert_eq!(checked.is_err(), offset == bad as i64, "{checked:?}");
        }
        reader.refresh(0).unwrap();
        assert_eq!(reader.log_end_offset(), 3);
    }
    let bad_magic = flipped(size + 16).unwrap_err().to_string();
    assert!(
        bad_magic.contains("below offset 2, up to which everything was on disk"),
        "{bad_magic}"
    );
    let negative_length = flipped(size + 8).unwrap_err().to_string();
    assert!(negative_length.contains("below offset 2"), "{negative_length}");
    // A batch that is longer than the file may be that of a torn copy.
    assert_eq!(flipped(size + 9).unwrap().log_end_offset(), 1);
    // An append may be in progress there.
    for at in [2 * size + 60, 2 * size + 9] {
        assert_eq!(flipped(at).unwrap().log_end_offset(), 2);
    }
}
