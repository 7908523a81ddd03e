//! An embedded broker in memory behind the harness.

use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_log::FetchBound;
use fletchlog_records::TopicPartition;
use fletchlog_testing::VirtualClock;

use super::{Stored, records_of};

/// A broker on the given clock, with topic `t`.
pub fn broker(clock: &Arc<VirtualClock>, nodes: u32, partitions: i32, topic_config: &[(&str, &str)]) -> Arc<Broker> {
    broker_of(clock, nodes, "t", partitions, topic_config)
}

fn broker_of(
    clock: &Arc<VirtualClock>,
    nodes: u32,
    topic: &str,
    partitions: i32,
    topic_config: &[(&str, &str)],
) -> Arc<Broker> {
    let config = Config::parse(Scope::Broker, []).unwrap();
    let options = OpenOptions {
        nodes: Some(nodes),
        named_nodes: Vec::new(),
        read_only: false,
        config,
    };
    let broker = Broker::in_memory(options, clock.clone()).unwrap();
    let topic_config: Vec<(String, String)> = topic_config
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    broker.create_topic(topic, partitions, &topic_config).unwrap();
    broker
}

/// Every batch of a partition of `t`, as bytes.
pub fn log_bytes(broker: &Broker, partition: i32) -> bytes::Bytes {
    bytes_of(broker, &TopicPartition::new("t", partition))
}

fn bytes_of(broker: &Broker, tp: &TopicPartition) -> bytes::Bytes {
    let log = broker.partition_log(tp).unwrap();
    let mut all = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1 << 20, true, FetchBound::LogEnd).unwrap();
        let records = records_of(&read.records);
        offset = records.last().expect("a read below the end gives records").offset + 1;
        let whole = fletchlog_records::BatchIter::new(read.records.clone())
            .map(|b| b.unwrap().bytes().len())
            .sum();
        all.extend_from_slice(&read.records[..whole]);
    }
    bytes::Bytes::from(all)
}

/// Transport and log reader for [`super::scenario::run`]: one node.
pub fn cluster(
    clock: &Arc<VirtualClock>,
    topic: &str,
    partitions: i32,
) -> (LocalTransport, impl Fn(i32) -> Vec<Stored> + use<>) {
    let broker = broker_of(clock, 1, topic, partitions, &[]);
    let transport = LocalTransport::new(broker.clone());
    let topic = topic.to_owned();
    (transport, move |partition| {
        records_of(&bytes_of(&broker, &TopicPartition::new(topic.as_str(), partition)))
    })
}
