//! `inspect_segment` and `verify_partition` find what is wrong, and nothing wrong with what a real broker wrote.

use std::path::Path;

use crate::common::*;
use fletchlog_log::{
    LogConfig, LogError, OffsetCheckpoints, PartitionLog, PartitionReport, inspect_segment, verify_partition,
};
use fletchlog_records::TopicPartition;

fn verify(dir: &Path) -> PartitionReport {
    verify_partition(&*real(), dir, NOW, &mut OffsetCheckpoints::default()).unwrap()
}

#[test]
fn every_golden_directory_after_a_clean_stop_is_in_order() {
    let dir = tempfile::tempdir().unwrap();
    untar("directories/kafka-4.3.1-clean.tar.gz", dir.path());
    let mut partitions = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let before = files(&path);
        let report = verify(&path);
        assert_eq!(report.damaged, [], "{path:?}");
        assert_eq!(report.would_cut, [], "{path:?}");
        // The cleaner keeps the time entry of a segment that it emptied (Kafka's tool complains, too).
        if !path.to_string_lossy().contains("compact") && !path.to_string_lossy().contains("__") {
            assert!(report.is_ok(), "{path:?}: {:?}", report.index_problems);
            assert_eq!(report.holes, [], "{path:?}");
        }
        assert_eq!(files(&path), before);
        partitions += 1;
        match path.file_name().unwrap().to_str().unwrap() {
            "g-txnopen-0" => assert_eq!(report.open_transactions.len(), 1),
            "g-idem-0" => assert!(report.producers.len() > 1),
            "g-compact-0" => assert!(!report.holes.is_empty()),
            _ => {}
        }
    }
    assert_eq!(partitions, 21);
}

#[test]
fn damage_is_named_with_file_and_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, small_segments(600), CLEAN);
    for i in 0..20 {
        append(&log, idempotent(7, 0, i, 1));
    }
    log.close().unwrap();
    let report = verify(&path);
    assert!(report.is_ok(), "{report:?}");
    assert!(report.segments.len() > 2);
    assert_eq!(
        (
            report.records,
            report.producers.len(),
            report.producers[0].last_sequence
        ),
        (20, 1, 19)
    );

    let first = path.join("00000000000000000000.log");
    let batches: Vec<_> = inspect_segment(&*real(), &first).unwrap().map(Result::unwrap).collect();
    let third = &batches[2];
    assert!(third.crc_valid && third.producer_id == 7 && third.base_sequence == 2);
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[usize::try_from(third.position).unwrap() + 65] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let index = path.join("00000000000000000000.index");
    let mut entries = std::fs::read(&index).unwrap();
    entries[7] ^= 1;
    std::fs::write(&index, entries).unwrap();

    let report = verify(&path);
    assert_eq!(report.damaged.len(), 1);
    assert_eq!(
        (&report.damaged[0].path, report.damaged[0].position),
        (&first, third.position)
    );
    assert_eq!(report.index_problems.len(), 1);
    assert_eq!(
        (&report.index_problems[0].path, report.index_problems[0].position),
        (&index, 0)
    );
    // Recovery cuts there, and what follows goes with it.
    assert_eq!(report.would_cut.len(), report.segments.len());
    assert_eq!(
        (report.would_cut[0].from, report.would_cut[1].from),
        (third.position, 0)
    );
    let batches: Vec<_> = inspect_segment(&*real(), &first).unwrap().map(Result::unwrap).collect();
    assert!(!batches[2].crc_valid && batches[3].crc_valid);
}

#[test]
fn a_torn_tail_and_a_missing_segment_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, small_segments(300), CLEAN);
    for _ in 0..12 {
        append(&log, batch(&[(NOW, b"0123456789")]));
    }
    let segments = log.segments();
    log.close().unwrap();
    std::fs::remove_file(path.join(format!("{:020}.log", segments[1].0))).unwrap();
    let last = path.join(format!("{:020}.log", segments.last().unwrap().0));
    let size = std::fs::metadata(&last).unwrap().len();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last)
        .unwrap()
        .set_len(size - 5)
        .unwrap();
    let report = verify(&path);
    assert_eq!(report.holes, [(segments[1].0, segments[2].0)]);
    assert_eq!(report.damaged.len(), 1);
    assert_eq!(report.damaged[0].path, last);
    let mut batches = inspect_segment(&*real(), &last).unwrap();
    for batch in batches.by_ref() {
        batch.unwrap();
    }
    assert!(batches.tail().unwrap().1.contains("incomplete"));
}

/// Everything of recovery-inputs: what `verify` announces is what opening after an unclean stop does, and a log that
/// cannot be opened is not called sound.
#[test]
fn what_recovery_would_cut_is_what_it_cuts() {
    let inputs = tempfile::tempdir().unwrap();
    untar("recovery-inputs.tar.gz", inputs.path());
    let (mut cut, mut refused) = (0, 0);
    for entry in std::fs::read_dir(inputs.path().join("recovery_inputs")).unwrap() {
        let source = entry.unwrap().path();
        let before = files(&source);
        let report = verify(&source);
        assert_eq!(files(&source), before, "{source:?}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ft-0");
        copy_dir(&source, &path);
        let config = fletchlog_log::LogConfig::default();
        let Ok(log) = fletchlog_log::PartitionLog::open(real(), &path, tp(), config, UNCLEAN, NOW) else {
            // The name of a topic's identity is the broker's business; a bad epoch file is a side file.
            assert!(!report.is_ok(), "{source:?}");
            refused += 1;
            continue;
        };
        let announced: Vec<(String, u64)> = report
            .would_cut
            .iter()
            .map(|cut| (cut.path.file_name().unwrap().to_str().unwrap().to_string(), cut.from))
            .collect();
        let sizes: std::collections::BTreeMap<i64, u64> = log.segments().into_iter().collect();
        let done: Vec<(String, u64)> = report
            .segments
            .iter()
            .filter_map(|segment| {
                let left = sizes.get(&segment.base_offset).copied().unwrap_or(0);
                let name = segment.path.file_name().unwrap().to_str().unwrap().to_string();
                (left < segment.size || announced.contains(&(name.clone(), 0)) && left == 0).then_some((name, left))
            })
            .collect();
        assert_eq!(announced, done, "{source:?}");
        assert!(report.would_cut.iter().all(|cut| !cut.reason.is_empty()));
        if report.would_cut.is_empty() {
            assert_eq!(report.log_end_offset, log.log_end_offset(), "{source:?}");
        } else {
            cut += 1;
        }
    }
    assert!(cut > 10 && refused > 1, "{cut} {refused}");
}

#[test]
fn a_name_that_no_segment_can_have_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, small_segments(600), CLEAN);
    append(&log, batch(&[(NOW, b"x")]));
    log.close().unwrap();
    std::fs::write(path.join("abc.log"), "").unwrap();
    let report = verify(&path);
    assert_eq!(report.damaged.len(), 1);
    assert!(report.damaged[0].reason.contains("20 digits"));
}

#[test]
fn the_start_of_the_log_is_the_checkpointed_one() {
    let dir = tempfile::tempdir().unwrap();
    untar("directories/kafka-4.3.1-clean.tar.gz", dir.path());
    let text = std::fs::read_to_string(dir.path().join("log-start-offset-checkpoint")).unwrap();
    let start: i64 = text
        .lines()
        .find_map(|line| line.strip_prefix("g-delrec 0 "))
        .unwrap()
        .parse()
        .unwrap();
    let report = verify(&dir.path().join("g-delrec-0"));
    assert!(start > 0);
    assert_eq!(report.log_start_offset, start);
    assert!(report.log_end_offset > start);
}

/// Each lists all partitions: reading it for each partition made the whole quadratic.
#[test]
fn a_checkpoint_is_read_once_for_all_partitions_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    untar("directories/kafka-4.3.1-clean.tar.gz", dir.path());
    let path = dir.path().join("log-start-offset-checkpoint");
    std::fs::write(&path, "0\n1\nno line of a checkpoint\n").unwrap();
    let mut checkpoints = OffsetCheckpoints::default();
    let problems = |partition: &str, checkpoints: &mut OffsetCheckpoints| {
        let report = verify_partition(&*real(), &dir.path().join(partition), NOW, checkpoints).unwrap();
        report
            .index_problems
            .iter()
            .filter(|problem| problem.path == path)
            .count()
    };
    assert_eq!(problems("g-delrec-0", &mut checkpoints), 1);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(problems("g-none-0", &mut checkpoints), 1);
    assert_eq!(problems("g-none-0", &mut OffsetCheckpoints::default()), 0);
}

#[test]
fn checkpoints_that_do_not_fit_the_log_are_reported() {
    let problems = |checkpoint: &str, right: &str, wrong: &str, stopped: bool| {
        let dir = tempfile::tempdir().unwrap();
        untar("directories/kafka-4.3.1-clean.tar.gz", dir.path());
        let path = dir.path().join(checkpoint);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(right), "{text}");
        std::fs::write(&path, text.replace(right, wrong)).unwrap();
        if !stopped {
            std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
        }
        let report = verify(&dir.path().join("g-delrec-0"));
        assert!(report.damaged.is_empty());
        assert!(report.index_problems.iter().all(|problem| problem.path == path));
        report.index_problems.len()
    };
    for (checkpoint, right, wrong, after_a_stop, after_a_kill) in [
        (
            "recovery-point-offset-checkpoint",
            "g-delrec 0 400",
            "g-delrec 0 401",
            1,
            1,
        ),
        (
            "recovery-point-offset-checkpoint",
            "g-delrec 0 400",
            "g-delrec 0 300",
            1,
            0,
        ),
        ("log-start-offset-checkpoint", "g-delrec 0 234", "g-delrec 0 334", 1, 0),
        ("log-start-offset-checkpoint", "g-delrec 0 234", "g-delrec 0 134", 1, 0),
        ("log-start-offset-checkpoint", "g-delrec 0 234", "g-delrec 0 634", 1, 1),
    ] {
        assert_eq!(problems(checkpoint, right, wrong, true), after_a_stop, "{wrong}");
        assert_eq!(problems(checkpoint, right, wrong, false), after_a_kill, "{wrong}");
    }
}

/// Row C8 of docs/reliability.md: the name of a segment says where it begins.
#[test]
fn a_segment_under_a_later_name_is_reported_and_not_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&log, idempotent(7, 0, 0, 1));
    log.close().unwrap();
    let (segment, later) = (
        path.join("00000000000000000000.log"),
        path.join("00000000000000000099.log"),
    );
    std::fs::copy(segment, &later).unwrap();
    let before = files(&path);
    let report = verify(&path);
    assert!(report.damaged.iter().any(|problem| problem.path == later), "{report:?}");
    for mode in [CLEAN, UNCLEAN] {
        let refused = PartitionLog::open(
            real(),
            &path,
            TopicPartition::new("t", 0),
            LogConfig::default(),
            mode,
            NOW,
        );
        let Err(LogError::Damaged {
            path: named, reason, ..
        }) = refused
        else {
            panic!("opened");
        };
        assert_eq!(named, later);
        assert!(reason.contains("99"), "{reason}");
        assert_eq!(files(&path), before, "nothing is changed");
    }
}
