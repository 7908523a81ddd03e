//! One bad log among ten: what is done with every log is done with the other nine, and the failure is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::held_disk::{HeldFs, Hold};
use crate::common::*;
use bytes::Bytes;
use fletchlog_broker::Broker;
use fletchlog_log::checkpoint::read_offset_checkpoint;
use fletchlog_log::fs::Fs;
use fletchlog_records::batch_builder::{BatchBuilder, BatchParams};

const LOGS: usize = 10;
/// Not the first: those behind it in the order of names must get their turn. Not the last either.
const BAD: &str = "t3-0";

fn names() -> Vec<String> {
    (0..LOGS).map(|i| format!("t{i}")).collect()
}

fn others() -> impl Iterator<Item = String> {
    names().into_iter().filter(|name| format!("{name}-0") != BAD)
}

fn config(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// One record with a key, as compacted topics want it.
fn keyed() -> Bytes {
    let mut builder = BatchBuilder::with_capacity(100);
    builder.append(START, Some(b"k"), Some(&[b'v'; 20]), &[]);
    builder.build(&BatchParams::default())
}

/// Ten topics with three records each.
fn fill(broker: &Broker, pairs: &[(&str, &str)]) {
    for name in names() {
        broker.create_topic(&name, 1, &config(pairs)).unwrap();
        for _ in 0..3 {
            broker.append_batches(&tp(&name, 0), keyed()).unwrap();
        }
    }
}

/// A broker on a disk that fails the fsyncs of one log from now on.
fn failing(pairs: &[(&str, &str)]) -> (Arc<Broker>, Arc<HeldFs>, Arc<Hold>, Arc<ManualClock>) {
    let (fs, hold) = HeldFs::new();
    let clock = ManualClock::new();
    let path = Path::new("/data");
    let broker = Broker::open_in(fs.clone(), path, options(None, false, &[]), clock.clone()).unwrap();
    fill(&broker, pairs);
    *hold.failing.lock().unwrap() = BAD;
    (broker, fs, hold, clock)
}

/// A directory of a broker that was closed, in which one log cannot be opened.
fn damaged(pairs: &[(&str, &str)], clean: bool) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    fill(&broker, pairs);
    broker.close().unwrap();
    let file = dir.path().join(BAD).join("leader-epoch-checkpoint");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    if !clean {
        std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    }
    (dir, file)
}

#[test]
fn flush_reaches_every_other_log_and_the_checkpoints() {
    let (broker, fs, ..) = failing(&[]);
    let error = broker.flush().unwrap_err().to_string();
    assert!(error.contains(BAD), "{error}");
    let points = read_offset_checkpoint(&*fs, Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    for name in others() {
        assert_eq!(
            broker.partition_log(&tp(&name, 0)).unwrap().recovery_point(),
            3,
            "{name}"
        );
        assert_eq!(points.get(&tp(&name, 0)), Some(&3), "{name}");
    }
    assert_eq!(points.get(&tp("t3", 0)), Some(&0));
}

#[test]
fn retention_goes_on_behind_a_fenced_log() {
    let (broker, _, _, clock) = failing(&[("segment.bytes", "100"), ("retention.ms", "1000")]);
    broker.flush().unwrap_err();
    clock.advance(2000);
    let error = broker.run_retention().unwrap_err().to_string();
    assert!(error.contains("fenced") && error.contains(BAD), "{error}");
    for name in others() {
        assert_eq!(
            broker.partition_log(&tp(&name, 0)).unwrap().log_start_offset(),
            3,
            "{name}"
        );
    }
    assert_eq!(broker.partition_log(&tp("t3", 0)).unwrap().log_start_offset(), 0);
}

#[test]
fn closing_closes_every_other_log_and_does_not_say_that_the_directory_is_clean() {
    let (broker, fs, ..) = failing(&[]);
    let logs: Vec<_> = others()
        .map(|name| broker.partition_log(&tp(&name, 0)).unwrap())
        .collect();
    let error = broker.close().unwrap_err().to_string();
    assert!(error.contains(BAD), "{error}");
    assert!(logs.iter().all(|log| log.flush().is_err()), "closed");
    assert!(!fs.exists(Path::new("/data/.kafka_cleanshutdown")));
    let points = read_offset_checkpoint(&*fs, Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    assert!(others().all(|name| points.get(&tp(&name, 0)) == Some(&3)), "{points:?}");
}

#[test]
fn the_cleaner_goes_on_behind_a_log_that_cannot_be_opened() {
    let (dir, file) = damaged(
        &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")],
        true,
    );
    let broker = open(dir.path()).unwrap();
    let error = broker.clean_topic("t3", true, &mut || false).unwrap_err().to_string();
    assert!(error.contains("leader-epoch-checkpoint"), "{error}");
    for name in others() {
        let cleaned = broker.clean_topic(&name, true, &mut || false).unwrap();
        assert_eq!(cleaned[0].rounds, 1, "{name}");
    }
    std::fs::remove_dir(file).unwrap();
    assert_eq!(broker.clean_topic("t3", true, &mut || false).unwrap()[0].rounds, 1);
}

#[test]
fn a_bad_partition_does_not_keep_the_others_of_its_topic_from_being_cleaned() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker
        .create_topic("t", 3, &config(&[("cleanup.policy", "compact")]))
        .unwrap();
    for partition in 0..3 {
        for _ in 0..3 {
            broker.append_batches(&tp("t", partition), keyed()).unwrap();
        }
    }
    broker.close().unwrap();
    let file = dir.path().join("t-0/leader-epoch-checkpoint");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let broker = open(dir.path()).unwrap();
    broker.clean_topic("t", true, &mut || false).unwrap_err();
    for partition in [1, 2] {
        assert_eq!(broker.partition_log(&tp("t", partition)).unwrap().segments().len(), 2);
    }
}

#[test]
fn recovery_reads_every_other_log_before_it_is_refused() {
    let (dir, file) = damaged(&[], false);
    let last = dir.path().join("t9-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&last).unwrap();
    let size = bytes.len();
    bytes.extend_from_slice(&[7; 30]);
    std::fs::write(&last, &bytes).unwrap();
    let error = open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(BAD), "{error}");
    assert_eq!(std::fs::metadata(&last).unwrap().len(), size as u64, "recovered");
    std::fs::remove_dir(file).unwrap();
    let broker = open(dir.path()).unwrap();
    assert!(
        names()
            .iter()
            .all(|name| broker.partition_log(&tp(name, 0)).unwrap().log_end_offset() == 3)
    );
}

#[test]
fn log_dirs_are_described_without_the_one_that_cannot_be_listed() {
    let (dir, _) = damaged(&[], true);
    let broker = open(dir.path()).unwrap();
    let bad = dir.path().join(BAD);
    std::fs::rename(&bad, dir.path().join("elsewhere")).unwrap();
    std::fs::write(&bad, b"not a directory").unwrap();
    let described = broker.describe_log_dirs().unwrap();
    let listed: Vec<_> = described[0]
        .partitions
        .iter()
        .map(|(tp, _)| tp.topic.to_string())
        .collect();
    assert_eq!(listed, others().collect::<Vec<_>>());
}

#[test]
fn topics_are_deleted_beside_one_that_fails() {
    let (broker, fs, ..) = failing(&[]);
    broker.flush().unwrap_err();
    for name in names() {
        let _ = broker.delete_topic(&name);
    }
    for name in others() {
        assert!(!fs.exists(&Path::new("/data").join(format!("{name}-0"))), "{name}");
    }
}
