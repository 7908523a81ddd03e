//! A flipped bit in a checkpoint of a whole log directory, which has no checksum: `verify` reports it, or a broker that opens the
//! directory for writing has the same logs (reliability C5).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::broker_disk::{NOW_MS, ROOT, TOPIC, append, new_disk, open_with};
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_log::FetchBound;
use fletchlog_log::fs::Fs;
use fletchlog_log::{OffsetCheckpoints, verify_partition};
use fletchlog_records::TopicPartition;
use fletchlog_sim::disk_state::DiskState;
use fletchlog_sim::sim_disk::SimDisk;

fn partitions() -> impl Iterator<Item = TopicPartition> {
    crate::broker_disk::partitions(TOPIC, 4)
}

fn open(disk: &SimDisk) -> Result<Arc<Broker>, BrokerError> {
    open_with(disk, 1, &[])
}

/// Four logs of several segments; three start behind their first record, one of them at its end.
fn disk(stopped: bool) -> DiskState {
    let disk = new_disk();
    let broker = open(&disk).unwrap();
    let small = [("segment.bytes".to_owned(), "1024".to_owned())];
    broker.create_topic(TOPIC, 4, &small).unwrap();
    for (number, tp) in partitions().enumerate() {
        for _ in 0..40 + number {
            append(&broker, &tp, b"value").unwrap();
        }
    }
    for (partition, before) in [(0, Some(17)), (2, None), (3, Some(1))] {
        broker
            .delete_records(&TopicPartition::new(TOPIC, partition), before)
            .unwrap();
    }
    broker.flush().unwrap();
    if stopped {
        broker.close().unwrap();
    }
    // The process ends, and what it has written stays.
    disk.state()
}

fn checkpoints(disk: &SimDisk) -> Vec<PathBuf> {
    let entries = disk.read_dir(Path::new(ROOT)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    names
        .filter(|name| name.ends_with("-checkpoint"))
        .map(|name| Path::new(ROOT).join(name))
        .collect()
}

fn is_reported(disk: &SimDisk) -> bool {
    partitions().any(|tp| {
        let dir = Path::new(ROOT).join(format!("{}-{}", tp.topic, tp.partition));
        verify_partition(disk, &dir, NOW_MS, &mut OffsetCheckpoints::default()).map_or(true, |report| !report.is_ok())
    })
}

/// Start, end and all batches of every log. Opened for writing: here a recovery point has its effect.
fn logs(disk: &SimDisk) -> Result<Vec<(i64, i64, Vec<u8>)>, BrokerError> {
    let broker = open(disk)?;
    let read = |tp| {
        let log = broker.partition_log(&tp)?;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let mut bytes = Vec::new();
        for offset in start..end {
            bytes.extend_from_slice(&log.read(offset, 1, true, FetchBound::LogEnd)?.records);
        }
        Ok((start, end, bytes))
    };
    partitions().map(read).collect()
}

/// Every bit of every checkpoint. Some flips are reported.
fn flip_all(state: &DiskState) {
    let whole = SimDisk::from(state.clone());
    let files = checkpoints(&whole);
    assert!(files.len() >= 3, "{files:?}");
    assert!(!is_reported(&whole));
    let expected = logs(&whole).unwrap();
    let mut reported = 0;
    for path in &files {
        let bytes = SimDisk::from(state.clone()).read(path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let disk = SimDisk::from(state.clone());
            let file = disk.open(path, true, false).unwrap();
            let flipped = bytes[bit / 8] ^ 1 << (bit % 8);
            file.write_at((bit / 8) as u64, &[flipped]).unwrap();
            // An error names the file, as a report does.
            let found = if is_reported(&disk) { None } else { logs(&disk).ok() };
            let Some(found) = found else {
                reported += 1;
                continue;
            };
            let text = disk
                .read(path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(found == expected, "{}: bit {bit}: {text:?}", path.display());
        }
    }
    assert!(reported > 0, "no flip is reported");
}

#[test]
fn each_is_reported_or_makes_no_difference_after_a_clean_stop_and_after_a_kill() {
    for stopped in [true, false] {
        flip_all(&disk(stopped));
    }
}
