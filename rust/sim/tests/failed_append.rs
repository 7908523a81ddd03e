//! An append that the disk fails, and the ones after it: what is acknowledged stays, whatever part of the unsynced a power loss takes
//! (reliability C12, C15).

use crate::broker_disk::{FSYNC, TOPIC, append, new_disk, open};
use fletchlog_log::FetchBound;
use fletchlog_records::TopicPartition;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

#[test]
fn what_is_acknowledged_after_a_failed_append_stays() {
    let mut rng = Rng::new(1);
    let tp = TopicPartition::new(TOPIC, 0);
    for fault in Fault::ALL {
        for call in 0.. {
            let disk = new_disk();
            let broker = open(&disk, FSYNC).unwrap();
            let small = [("segment.bytes".to_owned(), "1000".to_owned())];
            broker.create_topic(TOPIC, 1, &small).unwrap();
            let mut acknowledged: Vec<i64> = (0..4).map(|_| append(&broker, &tp, &[b'v'; 100]).unwrap()).collect();
            disk.fail(disk.calls() + call, fault);
            // The second one does not fit the segment any more.
            for size in [50, 500, 50] {
                acknowledged.extend(append(&broker, &tp, &vec![b'v'; size]));
            }
            for image in images(&disk.state(), &mut rng, 300) {
                let disk = SimDisk::from(image);
                let broker = open(&disk, FSYNC).unwrap();
                let log = broker.partition_log(&tp).unwrap();
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
