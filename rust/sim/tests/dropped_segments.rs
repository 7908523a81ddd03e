//! A power loss may take the middle of a log that nobody has synced. Recovery cuts the log there and drops the segments behind it: a
//! second power loss must not bring them back beside the records that were appended since (reliability C2, C3).

use crate::broker_disk::{TOPIC, append, new_disk, open};
use fletchlog_records::TopicPartition;
use fletchlog_sim::crash_points::images;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::SimDisk;

const PAGE_CACHE: &str = "page-cache";

#[test]
fn segments_that_recovery_dropped_stay_away() {
    let mut rng = Rng::new(1);
    let tp = TopicPartition::new(TOPIC, 0);
    let disk = new_disk();
    let broker = open(&disk, PAGE_CACHE).unwrap();
    let small = [("segment.bytes".to_owned(), "1000".to_owned())];
    broker.create_topic(TOPIC, 1, &small).unwrap();
    let fill = |broker: &_, size| {
        for _ in 0..12 {
            append(broker, &tp, &vec![b'v'; size]).unwrap();
        }
    };
    fill(&broker, 250);
    let end = broker.partition_log(&tp).unwrap().log_end_offset();
    let mut cut = 0;
    for first in images(&disk.state(), &mut rng, 200) {
        let disk = SimDisk::from(first);
        let broker = open(&disk, PAGE_CACHE).unwrap();
        // The topic itself may be lost, too.
        let Ok(log) = broker.partition_log(&tp) else { continue };
        cut += usize::from((1..end).contains(&log.log_end_offset()));
        // Smaller ones: the cut segment takes offsets that the dropped one had.
        fill(&broker, 20);
        for second in images(&disk.state(), &mut rng, 20) {
            match open(&SimDisk::from(second), PAGE_CACHE) {
                // The write of a batch was torn behind its base offset, which no checksum covers: at this level such a log is refused,
                // as by a Kafka broker (`recovery::SegmentCheck`).
                Err(refused) if refused.to_string().contains("does not belong into a segment") => {}
                opened => drop(opened.unwrap().partition_log(&tp).unwrap()),
            }
        }
    }
    assert!(cut > 10, "{cut}");
}
