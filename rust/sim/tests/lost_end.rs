//! A log may end below the offsets that checkpoints have of it: a power loss has taken the name of its only segment, or somebody its
//! files. What is appended from there on is neither on disk nor cleaned, so the checkpoints must not say so (reliability C2).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::broker_disk::{NOW_MS, ROOT, TOPIC, append, directories, new_disk, open, open_with};
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_log::checkpoint::write_offset_checkpoint;
use fletchlog_log::file_name::{LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT};
use fletchlog_log::fs::Fs;
use fletchlog_log::{AppendOrigin, LogConfig, OffsetCheckpoints, OpenMode, PartitionLog, verify_partition};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_sim::crash_points::images;
use fletchlog_sim::disk_state::Left;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

const PAGE_CACHE: &str = "page-cache";
/// Records before the end is lost.
const BEFORE: usize = 12;

fn partition() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

/// A broker with a topic of one partition.
fn new_broker(disk: &SimDisk, durability: &str, config: &[(&str, &str)]) -> Arc<Broker> {
    let broker = open(disk, durability).unwrap();
    let config: Vec<_> = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    broker.create_topic(TOPIC, 1, &config).unwrap();
    broker
}

fn fill(broker: &Broker, count: usize) {
    for _ in 0..count {
        append(broker, &partition(), &[b'v'; 250]).unwrap();
    }
}

/// Appends one batch of records with this key.
fn append_batch(broker: &Broker, key: &[u8], records: usize) {
    try_append_batch(broker, key, records).unwrap();
}

fn try_append_batch(broker: &Broker, key: &[u8], records: usize) -> Result<(), BrokerError> {
    let mut builder = BatchBuilder::with_capacity(1024);
    for _ in 0..records {
        builder.append(NOW_MS, Some(key), Some(b"v"), &[]);
    }
    let batch = builder.build(&BatchParams::default());
    broker.append_batches(&partition(), batch).map(drop)
}

fn log_end(broker: &Broker) -> i64 {
    broker.partition_log(&partition()).unwrap().log_end_offset()
}

/// Removes the records of the log, as a person does to start anew.
fn remove_segments(disk: &SimDisk) {
    let directory = Path::new(ROOT).join(&directories(disk, TOPIC)[0]);
    let names = disk.read_dir(&directory).unwrap().into_iter().map(|entry| entry.name);
    for name in names.filter(|name| name.ends_with(".log")) {
        disk.remove_file(&directory.join(name)).unwrap();
    }
}

#[test]
fn what_a_log_gets_after_its_end_was_lost_is_checked_by_the_next_recovery() {
    let mut rng = Rng::new(1);
    let disk = new_disk();
    let broker = new_broker(
        &disk,
        PAGE_CACHE,
        &[("segment.bytes", "1000"), ("retention.bytes", "0")],
    );
    fill(&broker, BEFORE);
    broker.close().unwrap();
    let broker = open(&disk, PAGE_CACHE).unwrap();
    // All segments go. The new, empty one has a name that is not synced.
    broker.run_retention().unwrap();
    let mut lost = 0;
    for first in images(&disk.state(), &mut rng, 200) {
        let disk = SimDisk::from(first);
        let broker = open(&disk, PAGE_CACHE).unwrap();
        if log_end(&broker) > 0 {
            continue;
        }
        lost += 1;
        // Three segments, all of them below the end that was lost.
        fill(&broker, BEFORE - 4);
        for second in images(&disk.state(), &mut rng, 5) {
            let disk = SimDisk::from(second);
            match open(&disk, PAGE_CACHE) {
                // At this level a torn write may be refused, see `recovery::SegmentCheck`.
                Err(refused) if refused.to_string().contains("does not belong into a segment") => continue,
                opened => drop(opened.unwrap()),
            }
            let directory = Path::new(ROOT).join(&directories(&disk, TOPIC)[0]);
            let report = verify_partition(&disk, &directory, NOW_MS, &mut OffsetCheckpoints::default()).unwrap();
            assert_eq!(report.damaged, []);
        }
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn a_log_that_was_emptied_is_recovered_by_what_it_has_since() {
    for durability in [PAGE_CACHE, "fsync"] {
        let disk = new_disk();
        let broker = new_broker(&disk, durability, &[]);
        fill(&broker, BEFORE);
        broker.close().unwrap();
        remove_segments(&disk);
        let broker = open(&disk, durability).unwrap();
        // No batch ends where the old log did.
        (0..3).for_each(|_| append_batch(&broker, b"k", 5));
        // As a kill leaves it.
        let broker = open(&SimDisk::from(disk.state()), durability).unwrap();
        assert_eq!(log_end(&broker), 15);
    }
}

#[test]
fn a_compacted_log_that_was_emptied_begins_dirty() {
    let disk = new_disk();
    let broker = new_broker(&disk, PAGE_CACHE, &[("cleanup.policy", "compact")]);
    let clean = |broker: &Broker| broker.clean_topic(TOPIC, true, &mut || false).unwrap();
    append_batch(&broker, b"old", BEFORE);
    clean(&broker);
    broker.close().unwrap();
    remove_segments(&disk);
    let broker = open(&disk, PAGE_CACHE).unwrap();
    append_batch(&broker, b"a", BEFORE);
    append_batch(&broker, b"b", 2);
    let cleaned = clean(&broker);
    let (read, written) = (cleaned[0].stats.messages_read, cleaned[0].stats.messages_written);
    assert_eq!((cleaned[0].stats.first_dirty_offset, read, written), (0, 14, 2));
}

#[test]
fn a_new_topic_takes_nothing_from_the_checkpoints_of_one_that_is_gone() {
    for durability in [PAGE_CACHE, "fsync"] {
        let disk = new_disk();
        open(&disk, durability).unwrap().close().unwrap();
        let gone = BTreeMap::from([(partition(), 100)]);
        for name in [LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT] {
            let path = Path::new(ROOT).join("node-1").join(name);
            write_offset_checkpoint(&disk, &path, &gone).unwrap();
        }
        let broker = new_broker(&disk, durability, &[]);
        fill(&broker, BEFORE);
        // As a kill leaves it.
        let broker = open(&SimDisk::from(disk.state()), durability).unwrap();
        let log = broker.partition_log(&partition()).unwrap();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 12));
    }
}

/// A broker of two nodes, after node 2, behind by `BEFORE` records, has become the leader by an unclean election. The first fault of the
/// disk, if any, comes during the election.
fn elect_unclean(disk: &SimDisk, fault: Option<(u64, Fault)>) -> Arc<Broker> {
    let config = [("unclean.leader.election.enable", "true"), ("segment.bytes", "2000")];
    let properties = [("fletchlog.durability", "fsync"), ("default.replication.factor", "2")];
    let broker = open_with(disk, 2, &properties).unwrap();
    let config: Vec<_> = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    broker.create_topic(TOPIC, 1, &config).unwrap();
    broker.move_leader(&partition(), 1).unwrap();
    fill(&broker, BEFORE);
    broker.kill_node(2).unwrap();
    fill(&broker, BEFORE);
    broker.kill_node(1).unwrap();
    // What is in the checkpoint is beyond the end that is to come.
    broker.flush().unwrap();
    if let Some((call, fault)) = fault {
        disk.fail(disk.calls() + call, fault);
    }
    let _not_written_if_the_disk_fails = broker.start_node(2);
    broker
}

#[test]
fn a_log_that_an_unclean_election_cuts_opens_after_every_failed_call_and_power_loss() {
    let mut rng = Rng::new(1);
    let disk = new_disk();
    assert_eq!(log_end(&elect_unclean(&disk, None)), BEFORE as i64);
    let mut met = 0;
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = elect_unclean(&disk, Some((call, fault)));
            if disk.failed().is_none() {
                break;
            }
            met += 1;
            let before = disk.state();
            // No batch ends where one of the log did that was cut.
            (0..3).for_each(|_| drop(try_append_batch(&broker, b"k", 5)));
            for image in [&before, &disk.state()]
                .into_iter()
                .flat_map(|state| images(state, &mut rng, 10))
            {
                let broker = open(&SimDisk::from(image), "fsync");
                let broker = broker.unwrap_or_else(|e| panic!("call {call}, {fault:?}: {e}"));
                let end = log_end(&broker);
                assert!(end >= BEFORE as i64, "call {call}, {fault:?}: the log ends at {end}");
            }
        }
    }
    assert!(met > 20, "{met} faults were met");
}

#[test]
fn a_cut_that_is_made_again_after_its_fsync_has_failed_is_on_disk() {
    let config = || LogConfig {
        segment_bytes: 600,
        ..LogConfig::default()
    };
    let open = |disk: &SimDisk| {
        let mode = OpenMode::Write {
            clean_shutdown: false,
            recovery_point: 0,
            log_start_offset: 0,
        };
        let dir = Path::new(ROOT).join("t-0");
        PartitionLog::open(Arc::new(disk.clone()), &dir, partition(), config(), mode, NOW_MS).unwrap()
    };
    let mut met = 0;
    for call in 0.. {
        let disk = new_disk();
        let log = open(&disk);
        for _ in 0..8 {
            let mut builder = BatchBuilder::with_capacity(256);
            builder.append(NOW_MS, None, Some(&[b'v'; 100]), &[]);
            let batch = builder.build(&BatchParams::default());
            log.append_as_leader(batch, 0, AppendOrigin::Client, NOW_MS).unwrap();
        }
        log.flush().unwrap();
        disk.sync_dir(Path::new(ROOT)).unwrap();
        disk.fail(disk.calls() + call, Fault::Io);
        if log.truncate_to(2, NOW_MS).is_err() {
            met += 1;
            open(&disk).truncate_to(2, NOW_MS).unwrap();
        }
        assert_eq!(
            open(&SimDisk::from(disk.state().left(Left::Nothing))).log_end_offset(),
            2,
            "call {call}"
        );
        if disk.failed().is_none() {
            break;
        }
    }
    assert!(met > 10, "{met} faults were met");
}
