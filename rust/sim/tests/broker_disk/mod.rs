//! A broker on a simulated disk, which fails or loses power.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, BrokerError, OpenOptions};
use fletchlog_log::fs::Fs;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_sim::sim_disk::SimDisk;
use fletchlog_testing::VirtualClock;

pub const NOW_MS: i64 = 1_700_000_000_000;
/// The directory of the broker.
pub const ROOT: &str = "/data";
/// The topic in question.
pub const TOPIC: &str = "t";
/// One that stays as it is.
pub const OTHER: &str = "other";
/// The level at which what is acknowledged is on disk.
pub const FSYNC: &str = "fsync";

pub fn new_disk() -> SimDisk {
    SimDisk::with_dirs(&[Path::new(ROOT)])
}

/// Two nodes.
pub fn open(disk: &SimDisk, durability: &str) -> Result<Arc<Broker>, BrokerError> {
    open_with(disk, 2, &[("fletchlog.durability", durability)])
}

pub fn open_with(disk: &SimDisk, nodes: u32, properties: &[(&str, &str)]) -> Result<Arc<Broker>, BrokerError> {
    let options = OpenOptions {
        nodes: Some(nodes),
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, properties.iter().copied())?,
    };
    let clock = VirtualClock::at(NOW_MS);
    Broker::open_in(Arc::new(disk.clone()), Path::new(ROOT), options, clock)
}

pub fn partitions(topic: &str, count: i32) -> impl Iterator<Item = TopicPartition> {
    (0..count).map(move |partition| TopicPartition::new(topic, partition))
}

/// The directories of a topic's partitions, `node-1/t-0`, sorted.
pub fn directories(disk: &SimDisk, topic: &str) -> Vec<String> {
    let list = |dir: &Path| disk.read_dir(dir).unwrap().into_iter().filter(|entry| entry.is_dir);
    let mut found = Vec::new();
    for node in list(Path::new(ROOT)) {
        let partitions = list(&Path::new(ROOT).join(&node.name)).filter(|entry| entry.name.starts_with(topic));
        found.extend(partitions.map(|entry| format!("{}/{}", node.name, entry.name)));
    }
    found.sort();
    found
}

/// Appends a record; returns its offset.
pub fn append(broker: &Broker, tp: &TopicPartition, value: &[u8]) -> Result<i64, BrokerError> {
    let mut builder = BatchBuilder::with_capacity(128);
    builder.append(NOW_MS, None, Some(value), &[]);
    let (offset, ..) = broker.append_batches(tp, builder.build(&BatchParams::default()))?;
    Ok(offset)
}

/// Sends a record to each partition; returns the offset, which is the same in all of them.
pub fn send(broker: &Broker, topic: &str, count: i32, value: &str) -> i64 {
    let offsets: Vec<i64> = partitions(topic, count)
        .map(|tp| append(broker, &tp, value.as_bytes()).unwrap())
        .collect();
    assert!(offsets.iter().all(|offset| *offset == offsets[0]), "{offsets:?}");
    offsets[0]
}
