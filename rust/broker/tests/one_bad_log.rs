//! One bad log among ten: what is done with every log is done with the other nine, and the failure is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::held_disk::{HeldFs, Hold};
use crate::common::*;
use bytes::Bytes;
use fletchlog_api::ConfigResource;
use fletchlog_broker::{AlterConfig, AlterConfigOp, Broker, MorePartitions, NewTopic};
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
fn failing(pairs: &[(&str, &str)]) -> (Arc<Broker>, Arc<HeldFs>, Arc<Hold>, Arc<VirtualClock>) {
    let (fs, hold) = HeldFs::new();
    let clock = VirtualClock::new();
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

/// A broker on a disk, with a topic `t` of three partitions that have three records each.
fn of_three() -> (Arc<Broker>, Arc<HeldFs>, Arc<Hold>) {
    let (fs, hold) = HeldFs::new();
    let broker = open_in(&fs).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    for partition in 0..3 {
        for _ in 0..3 {
            broker.append_batches(&tp("t", partition), keyed()).unwrap();
        }
    }
    (broker, fs, hold)
}

fn open_in(fs: &Arc<HeldFs>) -> Result<Arc<Broker>, fletchlog_broker::BrokerError> {
    Broker::open_in(
        fs.clone(),
        Path::new("/data"),
        options(None, false, &[]),
        VirtualClock::new(),
    )
}

fn folders(fs: &HeldFs) -> Vec<String> {
    let entries = fs.read_dir(Path::new("/data")).unwrap();
    entries
        .into_iter()
        .filter_map(|entry| entry.is_dir.then_some(entry.name))
        .collect()
}

fn fsync() -> [AlterConfig; 1] {
    [AlterConfig {
        name: "fletchlog.durability".to_owned(),
        op: AlterConfigOp::Set,
        value: Some("fsync".to_owned()),
    }]
}

#[test]
fn durability_reaches_every_other_log() {
    let (broker, ..) = failing(&[]);
    let error = broker.alter_config(&ConfigResource::AllBrokers, &fsync(), false);
    let error = error.unwrap_err().to_string();
    assert!(error.contains(BAD), "{error}");
    for name in others() {
        let log = broker.partition_log(&tp(&name, 0)).unwrap();
        assert_eq!(log.recovery_point(), 3, "{name}");
    }
    let (broker, _, hold) = of_three();
    *hold.failing.lock().unwrap() = "t-1";
    let error = broker.alter_config(&ConfigResource::Topic("t".to_owned()), &fsync(), false);
    assert!(error.unwrap_err().to_string().contains("t-1"));
    let synced = [0, 1, 2].map(|p| broker.partition_log(&tp("t", p)).unwrap().recovery_point());
    assert_eq!(synced, [3, 0, 3]);
}

/// A property of a newer release, say.
#[test]
fn a_reader_takes_over_every_topic_but_the_one_with_a_bad_property() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    fill(&writer, &[]);
    let reader = open_read_only(dir.path()).unwrap();
    assert_eq!(reader.topics(false).unwrap().len(), LOGS);
    writer
        .create_topic("bad", 1, &config(&[("retention.ms", "12345")]))
        .unwrap();
    writer.create_topic("good", 1, &[]).unwrap();
    writer.close().unwrap();
    let path = dir.path().join("fletchlog.metadata");
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = dir.path().join("newer");
    std::fs::write(&newer, text.replace("retention.ms", "retention.years")).unwrap();
    std::fs::rename(&newer, &path).unwrap();
    let topics = reader.topics(false).unwrap();
    assert_eq!(topics.len(), LOGS + 1);
    assert_eq!(&*topics[0], "good");
    assert_eq!(reader.describe_topic("good").unwrap().partitions[0].high_watermark, 0);
    assert_eq!(reader.partition_log(&tp("t3", 0)).unwrap().log_end_offset(), 3);
    assert!(reader.describe_topic("bad").is_err());
}

#[test]
fn a_bad_partition_is_described_beside_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    broker.append_batches(&tp("t", 0), keyed()).unwrap();
    broker.append_batches(&tp("t", 1), keyed()).unwrap();
    broker.close().unwrap();
    let file = dir.path().join("t-1/leader-epoch-checkpoint");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    for broker in [open(dir.path()).unwrap(), open_read_only(dir.path()).unwrap()] {
        let described = broker.describe_topic("t").unwrap().partitions;
        let of = |p: &fletchlog_broker::PartitionDescription| {
            let offsets = [p.log_start_offset, p.high_watermark, p.last_stable_offset];
            (p.partition, p.leader, offsets, p.segments, p.size_bytes > 0)
        };
        let described: Vec<_> = described.iter().map(of).collect();
        let known = [
            (0, 1, [0, 1, 1], 1, true),
            (1, 1, [-1; 3], -1, false),
            (2, 1, [0; 3], 0, false),
        ];
        assert_eq!(described, known);
    }
}

#[test]
fn directories_of_every_other_partition_are_removed() {
    let (broker, fs, hold) = of_three();
    *hold.unremovable.lock().unwrap() = "t-0";
    broker.delete_topic("t").unwrap_err();
    let left = folders(&fs);
    assert!(left.len() == 1 && left[0].starts_with("t-0"), "{left:?}");
    *hold.unremovable.lock().unwrap() = "";
    broker.create_topic("u", 1, &[]).unwrap();
    assert_eq!(folders(&fs), ["u-0"]);
}

#[test]
fn what_a_deletion_has_left_is_removed_beside_what_cannot_be() {
    let (broker, fs, hold) = of_three();
    *hold.unremovable.lock().unwrap() = "t-";
    broker.delete_topic("t").unwrap_err();
    assert_eq!(folders(&fs).len(), 3);
    drop(broker); // as if killed
    *hold.unremovable.lock().unwrap() = "t-0";
    let error = open_in(&fs).unwrap_err().to_string();
    assert!(error.contains("t-0"), "{error}");
    assert_eq!(folders(&fs).len(), 1);
}

#[test]
fn a_request_tries_once_to_finish_what_a_deletion_has_left() {
    let (broker, fs, hold) = failing_deletion();
    let tries = |work: &dyn Fn() -> usize| {
        let before = hold.removals.load(Ordering::SeqCst);
        let failed = work();
        (hold.removals.load(Ordering::SeqCst) - before, failed)
    };
    let new = NewTopic {
        partitions: 1,
        ..NewTopic::default()
    };
    let create = || {
        let created = broker.create_topics(&["a", "b", "c"].map(|name| (name, &new))).unwrap();
        created.iter().filter(|result| result.is_err()).count()
    };
    let more = ["t1", "t2", "t3"].map(|topic| MorePartitions {
        topic: topic.into(),
        count: 2,
        assignments: None,
    });
    let grow = || {
        let grown = broker.grow_topics(&more, false).unwrap();
        grown.iter().filter(|result| result.is_err()).count()
    };
    let delete = || {
        let deleted = broker.delete_topics(&["t1", "t2", "t3"]).unwrap();
        let kept = |error: &fletchlog_broker::BrokerError| error.to_string().contains("the disk keeps it");
        deleted.iter().filter(|result| result.as_ref().is_err_and(kept)).count()
    };
    assert_eq!([tries(&create), tries(&grow), tries(&delete)], [(1, 3); 3]);
    *hold.unremovable.lock().unwrap() = "";
    assert_eq!([create(), grow(), delete()], [0; 3]);
    assert!(
        !folders(&fs)
            .iter()
            .any(|name| name.starts_with("t0-") || name.ends_with("-delete"))
    );
}

/// Ten topics, of which the first is deleted, and its directory remains.
fn failing_deletion() -> (Arc<Broker>, Arc<HeldFs>, Arc<Hold>) {
    let (fs, hold) = HeldFs::new();
    let broker = open_in(&fs).unwrap();
    fill(&broker, &[]);
    *hold.unremovable.lock().unwrap() = "t0-";
    broker.delete_topic("t0").unwrap_err();
    (broker, fs, hold)
}
