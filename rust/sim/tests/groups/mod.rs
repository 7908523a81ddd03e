//! Consumer groups by the classic protocol against an in-memory broker, several consumers polled in turn by one thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Clock, Config, OffsetAndMetadata, Scope, Transport};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::consumer::{PolledRecords, RebalanceEvent};
use fletchlog_client::{ClientError, Consumer};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use fletchlog_testing::VirtualClock;

mod commits;
mod cooperative;
mod membership;

struct Cluster {
    broker: Arc<Broker>,
    clock: Arc<VirtualClock>,
}

fn cluster(topics: &[(&str, i32)]) -> Cluster {
    let clock = VirtualClock::new();
    let config = Config::parse(Scope::Broker, []).unwrap();
    let options = OpenOptions {
        nodes: Some(2),
        named_nodes: Vec::new(),
        read_only: false,
        config,
    };
    let broker = Broker::in_memory(options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    for (topic, partitions) in topics {
        broker.create_topic(topic, *partitions, &[]).unwrap();
    }
    Cluster { broker, clock }
}

impl Cluster {
    fn consumer(&self, config: &[(&str, &str)]) -> Consumer {
        self.consumer_over(Box::new(LocalTransport::new(Arc::clone(&self.broker))), config)
    }

    fn consumer_over(&self, transport: Box<dyn Transport>, config: &[(&str, &str)]) -> Consumer {
        let given = [
            ("group.id", "g"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ];
        let config = Config::parse(Scope::Consumer, given.into_iter().chain(config.iter().copied())).unwrap();
        Consumer::new(config, transport, Arc::clone(&self.clock) as Arc<dyn Clock>).unwrap()
    }

    fn member(&self, topics: &[&str], config: &[(&str, &str)]) -> Consumer {
        let mut consumer = self.consumer(config);
        let topics: Vec<Arc<str>> = topics.iter().map(|&t| t.into()).collect();
        consumer.subscribe(&topics).unwrap();
        consumer
    }

    fn produce(&self, topic: &str, partition: i32, records: usize) {
        let mut builder = BatchBuilder::with_capacity(1024);
        for _ in 0..records {
            builder.append(1_700_000_000_000, None, Some(b"v"), &[]);
        }
        self.broker
            .append_batches(
                &TopicPartition::new(topic, partition),
                builder.build(&BatchParams::default()),
            )
            .unwrap();
    }

    /// Polls all in turn, and lets heartbeats become due, until the group has rebalanced.
    fn settle(&self, members: &mut [&mut Consumer]) {
        for _ in 0..6 {
            for _ in 0..6 {
                for member in &mut *members {
                    poll(member).unwrap();
                }
            }
            self.clock.advance(3000);
        }
    }
}

fn poll(consumer: &mut Consumer) -> Result<PolledRecords, ClientError> {
    consumer.poll(0, &mut || false)
}

/// Polls until something comes, at most so often.
fn poll_some(consumer: &mut Consumer) -> Vec<(TopicPartition, i64, i64)> {
    for _ in 0..20 {
        let records = poll(consumer).unwrap();
        if records.count() > 0 {
            return records
                .runs
                .into_iter()
                .map(|run| (run.tp, run.first_offset, run.last_offset))
                .collect();
        }
    }
    Vec::new()
}

fn commit(consumer: &mut Consumer) -> Result<(), ClientError> {
    consumer.commit(None, 1000, &mut || false)
}

fn committed(consumer: &mut Consumer, tp: &TopicPartition) -> Option<i64> {
    let answer = consumer
        .committed(std::slice::from_ref(tp), 1000, &mut || false)
        .unwrap();
    answer[0]
        .1
        .as_ref()
        .map(|committed: &OffsetAndMetadata| committed.offset)
}

fn assigned(consumer: &Consumer) -> Vec<String> {
    let mut assigned = consumer.assignment();
    assigned.sort();
    assigned.iter().map(ToString::to_string).collect()
}

fn tps(names: &[(&str, i32)]) -> Vec<TopicPartition> {
    names
        .iter()
        .map(|&(topic, partition)| TopicPartition::new(topic, partition))
        .collect()
}

fn generation(consumer: &Consumer) -> i32 {
    consumer.group_metadata().unwrap().generation_id
}

/// Events with sorted partitions.
fn events(consumer: &mut Consumer) -> Vec<RebalanceEvent> {
    let sorted = |mut tps: Vec<TopicPartition>| {
        tps.sort();
        tps
    };
    let sort = |event| match event {
        RebalanceEvent::Assigned(tps) => RebalanceEvent::Assigned(sorted(tps)),
        RebalanceEvent::Revoked(tps) => RebalanceEvent::Revoked(sorted(tps)),
        RebalanceEvent::Lost(tps) => RebalanceEvent::Lost(sorted(tps)),
    };
    consumer.take_rebalance_events().into_iter().map(sort).collect()
}

/// Every partition of `all` belongs to exactly one.
fn assert_shared(members: &[&Consumer], all: usize) {
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for member in members {
        for tp in assigned(member) {
            *owners.entry(tp).or_default() += 1;
        }
    }
    assert!(owners.values().all(|&n| n == 1), "two owners: {owners:?}");
    assert_eq!(owners.len(), all);
}
