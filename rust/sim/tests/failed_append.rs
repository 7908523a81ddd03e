//! An append that the disk fails, and the ones after it: what is acknowledged stays, whatever part of the unsynced a power loss takes
//! (reliability C12, C15).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod topic_disk;

use fletchlog_broker::Broker;
use fletchlog_log::partition_log::FetchBound;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_sim::crash_points::images;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};
use topic_disk::{FSYNC, TOPIC, new_disk, open};

/// Sends a record of this size; where it stands, if it is acknowledged.
fn append(broker: &Broker, size: usize) -> Option<i64> {
    let mut builder = BatchBuilder::with_capacity(size);
    builder.append(1_700_000_000_000, None, Some(&vec![b'v'; size]), &[]);
    let batch = builder.build(&BatchParams::default());
    broker
        .append_batches(&TopicPartition::new(TOPIC, 0), batch)
        .ok()
        .map(|(offset, ..)| offset)
}

#[test]
fn what_is_acknowledged_after_a_failed_append_stays() {
    let mut rng = Rng::new(1);
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = open(&disk, FSYNC).unwrap();
            let small = [("segment.bytes".to_owned(), "1000".to_owned())];
            broker.create_topic(TOPIC, 1, &small).unwrap();
            let mut acknowledged: Vec<i64> = (0..4).filter_map(|_| append(&broker, 100)).collect();
            assert_eq!(acknowledged.len(), 4);
            disk.fail(disk.calls() + call, fault);
            // The second one does not fit the segment any more.
            for size in [50, 500, 50] {
                acknowledged.extend(append(&broker, size));
            }
            for image in images(&disk.state(), &mut rng, 300) {
                let disk = SimDisk::from(image);
                let broker = open(&disk, FSYNC).unwrap();
                let log = broker.partition_log(&TopicPartition::new(TOPIC, 0)).unwrap();
                for &offset in &acknowledged {
                    let read = log.read(offset, 1, true, FetchBound::LogEnd);
                    let there = read.is_ok_and(|read| !read.records.is_empty());
                    assert!(there, "call {call}, {fault:?}: {offset} of {acknowledged:?} is lost");
                }
            }
            if disk.failed().is_none() {
                break;
            }
        }
    }
}
