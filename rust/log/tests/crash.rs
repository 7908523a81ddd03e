//! Torn tails and killed writers: whole batches survive, nothing else does.

use crate::common::*;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, LogError, OpenMode, PartitionLog};

#[test]
fn a_log_torn_at_any_byte_keeps_exactly_its_whole_batches() {
    let (fs, dir) = memory();
    let log = open(
        &fs,
        &dir,
        LogConfig {
            index_interval_bytes: 100,
            ..LogConfig::default()
        },
        CLEAN,
    );
    let mut ends = vec![0];
    for i in 0..6 {
        append(&log, idempotent(7, 0, i * 2, 2));
        ends.push(log.size());
    }
    log.close().unwrap();
    let path = dir.join("00000000000000000000.log");
    let whole = fs.read(&path).unwrap();
    let side_files: Vec<_> = fs
        .read_dir(&dir)
        .unwrap()
        .into_iter()
        .map(|entry| (dir.join(&entry.name), fs.read(&dir.join(&entry.name)).unwrap()))
        .collect();
    let restore = |bytes: &[u8]| {
        fs.remove_dir_all(&dir).unwrap();
        fs.create_dir_all(&dir).unwrap();
        for (path, bytes) in &side_files {
            fs.replace(path, bytes).unwrap();
        }
        fs.replace(&path, bytes).unwrap();
    };
    for cut in 0..=whole.len() {
        for mode in [UNCLEAN, CLEAN, READ_ONLY] {
            for garbage in [&[][..], &[0; 40], &[0xff; 30]] {
                if mode == CLEAN && !garbage.is_empty() {
                    // After a clean stop checksums are not looked at (Kafka's rule; readers check them).
                    continue;
                }
                let torn = [&whole[..cut], garbage].concat();
                restore(&torn);
                // Garbage may happen to be the bytes that were cut.
                let is_whole = |end: &&u64| torn.get(..**end as usize) == Some(&whole[..**end as usize]);
                let batches = ends.iter().filter(is_whole).count() - 1;
                let expected: Vec<i64> = (0..batches as i64 * 2).collect();
                let log = open(&fs, &dir, LogConfig::default(), mode);
                assert_eq!(
                    offsets(&log),
                    expected,
                    "cut at {cut}, {mode:?}, {} bytes of garbage",
                    garbage.len()
                );
                if mode != READ_ONLY {
                    let next = i32::try_from(batches * 2).unwrap();
                    assert_eq!(
                        append(&log, idempotent(7, 0, next, 1)).first_offset,
                        i64::from(next),
                        "{cut} {mode:?}"
                    );
                } else {
                    assert_eq!(fs.read(&path).unwrap(), torn);
                }
            }
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_it_acknowledged() {
    let (fs, dir) = memory();
    let mut expected = Vec::new();
    for round in 0..5 {
        let log = open(&fs, &dir, small_segments(400), UNCLEAN);
        for i in 0..7u8 {
            let info = append(&log, batch(&[(NOW, &[round, i])]));
            expected.push((info.first_offset, NOW, vec![round, i]));
        }
        // Dropped without close: as a killed process leaves it.
        drop(log);
    }
    let log = open(&fs, &dir, small_segments(400), UNCLEAN);
    assert_eq!(read_all(&log, FetchBound::HighWatermark, 1 << 20), expected);
}

#[test]
fn what_is_cut_off_is_kept_aside() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(150), CLEAN);
    for i in 0..6u8 {
        append(&log, batch(&[(NOW, &[i; 20])]));
    }
    let segments = log.segments();
    drop(log);
    let first = dir.join("00000000000000000000.log");
    let mut bytes = fs.read(&first).unwrap();
    bytes[70] ^= 1;
    fs.replace(&first, &bytes).unwrap();
    let log = open(&fs, &dir, small_segments(150), UNCLEAN);
    assert_eq!((log.log_end_offset(), log.segments().len()), (0, 1));
    assert_eq!(fs.read(&dir.join("00000000000000000000.log.torn-0")).unwrap(), bytes);
    for (base, size) in &segments[1..] {
        let torn = fs.read(&dir.join(format!("{base:020}.log.torn"))).unwrap();
        assert_eq!(torn.len() as u64, *size);
    }
    append(&log, batch(&[(NOW, b"on")]));
    log.close().unwrap();
    assert_eq!(offsets(&open(&fs, &dir, small_segments(150), CLEAN)), [0]);
}

/// Below the recovery point, too: there no batch is looked at otherwise.
#[test]
fn leader_epochs_that_a_power_loss_has_left_without_their_bytes_are_read_from_the_batches() {
    let (fs, dir) = memory();
    let config = small_segments(300);
    let log = open(&fs, &dir, config.clone(), CLEAN);
    for epoch in [0, 0, 0, 2, 2, 5, 5, 5] {
        log.append_as_leader(batch(&[(NOW, b"0123456789")]), epoch, AppendOrigin::Client, NOW)
            .unwrap();
    }
    assert!(log.segments().len() > 2);
    let epochs = |log: &PartitionLog| {
        let ends: Vec<_> = (-1..7).map(|epoch| log.end_offset_for_epoch(epoch)).collect();
        (log.latest_epoch(), ends)
    };
    let (expected, end) = (epochs(&log), log.flush().unwrap());
    drop(log);
    let path = dir.join("leader-epoch-checkpoint");
    let written = fs.read(&path).unwrap();
    assert_eq!(written, b"0\n3\n0 0\n2 3\n5 5\n");
    let unclean = OpenMode::Write {
        clean_shutdown: false,
        recovery_point: end,
        log_start_offset: 0,
    };
    let mut torn = written.clone();
    torn[6..].fill(0);
    for left in [vec![0; written.len()], torn, written[..6].to_vec()] {
        fs.replace(&path, &left).unwrap();
        let refused = PartitionLog::open(fs.clone(), &dir, tp(), config.clone(), CLEAN, NOW);
        assert!(
            matches!(refused, Err(LogError::Damaged { .. })),
            "{left:?} after a clean stop"
        );
        assert_eq!(
            epochs(&open(&fs, &dir, config.clone(), READ_ONLY)),
            expected,
            "{left:?}"
        );
        assert_eq!(fs.read(&path).unwrap(), left);
        assert_eq!(epochs(&open(&fs, &dir, config.clone(), unclean)), expected, "{left:?}");
        assert_eq!(fs.read(&path).unwrap(), written);
    }
}

#[test]
fn a_closed_log_is_trimmed_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let config = LogConfig {
        preallocate_indexes: true,
        segment_index_bytes: 1000,
        ..small_segments(1000)
    };
    let log = open(&real(), &path, config.clone(), CLEAN);
    for _ in 0..30 {
        log.append_as_leader(batch(&[(NOW, b"0123456789")]), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    let active = log.segments().last().unwrap().0;
    let len = |kind: &str| {
        std::fs::metadata(path.join(format!("{active:020}.{kind}")))
            .unwrap()
            .len()
    };
    assert_eq!((len("index"), len("timeindex")), (1000, 996));
    log.close().unwrap();
    assert!(len("index") < 200 && len("index") % 8 == 0);
    assert!(path.join(format!("{:020}.snapshot", 30)).exists());
    let log = open(&real(), &path, config, CLEAN);
    assert_eq!(len("index"), 1000);
    assert_eq!(append(&log, batch(&[(NOW, b"x")])).first_offset, 30);
    assert_eq!(offsets(&log).len(), 31);
}
