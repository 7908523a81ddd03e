//! Retention deletes segments from the start of a log. A power loss on the way must leave no hole: an end of an aborted transaction
//! that is gone, beside records of it that came back, would make them committed (reliability C2).

use std::collections::BTreeSet;
use std::path::Path;

use crate::broker_disk::{FSYNC, ROOT, TOPIC, append, directories, new_disk, open};
use fletchlog_log::fs::Fs;
use fletchlog_records::TopicPartition;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::SimDisk;

/// Names of the segments' files in the partition's directory.
fn files(disk: &SimDisk) -> BTreeSet<String> {
    let directory = Path::new(ROOT).join(&directories(disk, TOPIC)[0]);
    let entries = disk.read_dir(&directory).unwrap().into_iter();
    entries
        .map(|entry| entry.name)
        .filter(|name| name.starts_with('0'))
        .collect()
}

/// Base offset, as it is written, of the first segment.
fn first_of(files: &BTreeSet<String>) -> Option<&str> {
    files.iter().find_map(|name| name.strip_suffix(".log"))
}

#[test]
fn a_power_loss_while_segments_are_deleted_leaves_no_hole() {
    let mut rng = Rng::new(1);
    let disk = new_disk();
    let config = [("segment.bytes", "1000"), ("retention.bytes", "1000")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let broker = open(&disk, FSYNC).unwrap();
    broker.create_topic(TOPIC, 1, &config).unwrap();
    for _ in 0..16 {
        append(&broker, &TopicPartition::new(TOPIC, 0), &[b'v'; 250]).unwrap();
    }
    broker.close().unwrap();
    let broker = open(&disk, FSYNC).unwrap();
    let before = files(&disk);
    disk.record();
    broker.run_retention().unwrap();
    let after = files(&disk);
    let mut between = 0;
    for state in disk.history() {
        for image in images(&state, &mut rng, 50) {
            let left = files(&SimDisk::from(image));
            let base = first_of(&left).unwrap();
            let wanted = before.iter().filter(|name| name.as_str() >= base);
            let missing: Vec<&String> = wanted.filter(|name| !left.contains(*name)).collect();
            assert!(
                missing.is_empty(),
                "{missing:?} of {before:?} are missing; there is {left:?}"
            );
            between += usize::from(Some(base) != first_of(&before) && Some(base) != first_of(&after));
        }
    }
    assert!(between > 10, "{between}");
}
