//! The legacy high-level consumer against an in-memory broker: who owns what, and that nothing is lost, doubled or read by two.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Clock, Config, Scope, Transport};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::ClientError;
use fletchlog_client::consumer::PolledRecords;
use fletchlog_client::group::legacy::{LegacyConsumer, LegacyStream, Owners};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_testing::VirtualClock;

mod consuming;
mod rebalancing;
mod recorded;

fn broker(clock: Arc<dyn Clock>, topics: &[(&str, i32)]) -> Arc<Broker> {
    let config = Config::parse(Scope::Broker, []).unwrap();
    let broker = Broker::in_memory(
        OpenOptions {
            nodes: Some(3),
            named_nodes: Vec::new(),
            read_only: false,
            config,
        },
        clock,
    )
    .unwrap();
    for (topic, partitions) in topics {
        broker.create_topic(topic, *partitions, &[]).unwrap();
    }
    broker
}

fn virtual_broker(topics: &[(&str, i32)]) -> (Arc<Broker>, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    (broker(Arc::clone(&clock) as Arc<dyn Clock>, topics), clock)
}

/// A consumer named `<group>_<id>`.
fn consumer(broker: &Arc<Broker>, group: &str, id: &str, more: &[(&str, &str)]) -> LegacyConsumer {
    let given = [
        ("group.id", group),
        ("consumer.id", id),
        ("auto.offset.reset", "smallest"),
    ];
    let config = Config::parse(Scope::LegacyConsumer, given.into_iter().chain(more.iter().copied())).unwrap();
    let connected = Arc::clone(broker);
    let transports = Box::new(move || Box::new(LocalTransport::new(Arc::clone(&connected))) as Box<dyn Transport>);
    LegacyConsumer::new(config, transports, broker.clock()).unwrap()
}

/// Appends values 0.. to a partition, in batches of ten.
fn produce(broker: &Broker, topic: &str, partition: i32, records: usize) {
    for first in (0..records).step_by(10) {
        let mut builder = BatchBuilder::with_capacity(1024);
        for i in first..records.min(first + 10) {
            builder.append(1_700_000_000_000, None, Some(i.to_string().as_bytes()), &[]);
        }
        broker
            .append_batches(
                &TopicPartition::new(topic, partition),
                builder.build(&BatchParams::default()),
            )
            .unwrap();
    }
}

fn poll(stream: &mut LegacyStream) -> Result<PolledRecords, ClientError> {
    stream.poll(0, &mut || false)
}

/// Polls every stream until none returns anything for 15 rounds: a new assignment takes some requests before its first record; offsets by (thread, partition).
fn drain(streams: &mut [LegacyStream]) -> BTreeMap<(String, TopicPartition), Vec<i64>> {
    let mut got: BTreeMap<(String, TopicPartition), Vec<i64>> = BTreeMap::new();
    let mut quiet = 0;
    while quiet < 15 {
        quiet += 1;
        for stream in &mut *streams {
            for run in poll(stream).unwrap().runs {
                quiet = 0;
                got.entry((stream.thread_id().to_owned(), run.tp))
                    .or_default()
                    .extend(run.first_offset..=run.last_offset);
            }
        }
    }
    got
}

fn partitions_of(streams: &[LegacyStream]) -> BTreeMap<String, Vec<i32>> {
    streams
        .iter()
        .map(|s| {
            (
                s.thread_id().to_owned(),
                s.assignment().iter().map(|tp| tp.partition).collect(),
            )
        })
        .collect()
}

fn thread_of(owners: &Owners, topic: &str, partition: i32) -> String {
    owners[topic][&partition].to_string()
}
