//! A power loss may take the middle of a log that nobody has synced. Recovery cuts the log there and drops the segments behind it: a
//! second power loss must not bring them back beside the records that were appended since (reliability C2, C3).

use std::path::Path;

use crate::broker_disk::{ROOT, TOPIC, append, directories, new_disk, open};
use fletchlog_broker::Broker;
use fletchlog_log::fs::Fs;
use fletchlog_records::TopicPartition;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::disk_state::DiskState;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::SimDisk;

const PAGE_CACHE: &str = "page-cache";

fn partition() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

fn fill(broker: &Broker, size: usize) {
    for _ in 0..12 {
        append(broker, &partition(), &vec![b'v'; size]).unwrap();
    }
}

/// A disk with a log of several segments that nobody has synced, and the end of the log.
fn unsynced_segments() -> (SimDisk, i64) {
    let disk = new_disk();
    let broker = open(&disk, PAGE_CACHE).unwrap();
    let small = [("segment.bytes".to_owned(), "1000".to_owned())];
    broker.create_topic(TOPIC, 1, &small).unwrap();
    fill(&broker, 250);
    let end = broker.partition_log(&partition()).unwrap().log_end_offset();
    (disk, end)
}

/// Loses power on a disk, and opens what is left.
fn lose_power(disk: &SimDisk, rng: &mut Rng) {
    for second in images(&disk.state(), rng, 20) {
        match open(&SimDisk::from(second), PAGE_CACHE) {
            // The write of a batch was torn behind its base offset, which no checksum covers: at this level such a log is refused,
            // as by a Kafka broker (`recovery::SegmentCheck`).
            Err(refused) if refused.to_string().contains("does not belong into a segment") => {}
            opened => drop(opened.unwrap().partition_log(&partition()).unwrap()),
        }
    }
}

#[test]
fn segments_that_recovery_dropped_stay_away() {
    let mut rng = Rng::new(1);
    let (disk, end) = unsynced_segments();
    let mut cut = 0;
    for first in images(&disk.state(), &mut rng, 200) {
        let disk = SimDisk::from(first);
        let broker = open(&disk, PAGE_CACHE).unwrap();
        // The topic itself may be lost, too.
        let Ok(log) = broker.partition_log(&partition()) else {
            continue;
        };
        cut += usize::from((1..end).contains(&log.log_end_offset()));
        // Smaller ones: the cut segment takes offsets that the dropped one had.
        fill(&broker, 20);
        lose_power(&disk, &mut rng);
    }
    assert!(cut > 10, "{cut}");
}

/// Whether a recovery has dropped a segment.
fn has_dropped(state: &DiskState) -> bool {
    let disk = SimDisk::from(state.clone());
    let directories = directories(&disk, TOPIC);
    let entries = directories
        .first()
        .map(|dir| disk.read_dir(&Path::new(ROOT).join(dir)).unwrap());
    entries
        .into_iter()
        .flatten()
        .any(|entry| entry.name.ends_with(".log.torn"))
}

#[test]
fn segments_that_a_killed_recovery_dropped_stay_away() {
    let mut rng = Rng::new(1);
    let (disk, _) = unsynced_segments();
    let mut killed = 0;
    for first in images(&disk.state(), &mut rng, 100) {
        let disk = SimDisk::from(first);
        disk.record();
        drop(open(&disk, PAGE_CACHE).unwrap());
        // Killed right after it has dropped them.
        for state in disk.history().into_iter().filter(has_dropped).take(4) {
            killed += 1;
            let disk = SimDisk::from(state);
            fill(&open(&disk, PAGE_CACHE).unwrap(), 20);
            lose_power(&disk, &mut rng);
        }
    }
    assert!(killed > 20, "{killed}");
}
