//! Transactional producers against an embedded broker, on virtual time (spec 10).

mod errors;
mod model;
mod offsets;
mod order;
mod version_2;

use std::sync::Arc;

use crate::producer_harness::Bench;
use fletchlog_api::{Clock, Config, ErrorCode, Scope};
use fletchlog_broker::{Broker, LocalTransport};
use fletchlog_client::{ClientError, Consumer};
use fletchlog_records::{RecordCursor, TopicPartition};
use fletchlog_sim::stepped::never;
use fletchlog_testing::VirtualClock;

/// A broker with topic `t` of 3 partitions, and its clock.
struct Cluster {
    broker: Arc<Broker>,
    clock: Arc<VirtualClock>,
}

impl Cluster {
    fn new() -> Self {
        Self::with_topic(&[])
    }
    fn with_topic(topic_config: &[(&str, &str)]) -> Self {
        let clock = VirtualClock::new();
        let broker = crate::producer_harness::cluster::broker(&clock, 1, 3, topic_config);
        Self { broker, clock }
    }

    /// A producer with this transactional.id, not initialised.
    fn producer(&self, id: &str, script: &[(u64, &str)], config: &[(&str, &str)]) -> Bench {
        let mut all = vec![("transactional.id", id), ("fletchlog.producer.version", "3.9")];
        all.extend_from_slice(config);
        let faults = crate::producer_harness::faults::scripted(script.iter().copied());
        Bench::new(LocalTransport::new(self.broker.clone()), &self.clock, faults, &all)
    }

    /// A producer that may begin.
    fn ready(&self, id: &str, script: &[(u64, &str)], config: &[(&str, &str)]) -> Bench {
        let bench = self.producer(id, script, config);
        bench.producer.init_transactions(&mut never).unwrap();
        bench.names();
        bench
    }

    fn advance(&self, ms: i64) {
        self.clock.advance(ms);
    }

    fn consumer(&self, isolation: &str, config: &[(&str, &str)]) -> Consumer {
        let mut all = vec![
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("isolation.level", isolation),
            ("fetch.max.wait.ms", "0"),
        ];
        all.extend_from_slice(config);
        let config = Config::parse(Scope::Consumer, all).unwrap();
        let transport = Box::new(LocalTransport::new(Arc::clone(&self.broker)));
        Consumer::new(config, transport, Arc::clone(&self.clock) as Arc<dyn Clock>).unwrap()
    }

    /// (offset, value) of one partition from its beginning.
    fn read(&self, partition: i32, isolation: &str) -> Vec<(i64, String)> {
        let mut consumer = self.consumer(isolation, &[]);
        consumer.assign(&[tp(partition)]).unwrap();
        consumer.seek_to_beginning(&[]).unwrap();
        let mut found = Vec::new();
        let mut idle = 0;
        while idle < 20 {
            let polled = consumer.poll(0, &mut || false).unwrap();
            idle = if polled.count() == 0 { idle + 1 } else { 0 };
            found.extend(values(&polled));
        }
        found
    }

    fn committed_values(&self, partition: i32) -> Vec<String> {
        self.read(partition, "read_committed")
            .into_iter()
            .map(|(_, v)| v)
            .collect()
    }
}

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

/// (offset, value) of what a poll returned.
fn values(polled: &fletchlog_client::consumer::PolledRecords) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for span in polled.runs.iter().flat_map(|run| &run.spans) {
        let mut cursor = RecordCursor::resume_at(span.start, 0);
        for _ in 0..span.count {
            let record = cursor.next(&span.slice).unwrap().unwrap();
            let value = record.value.unwrap_or_default().to_vec();
            found.push((record.offset, String::from_utf8(value).unwrap()));
        }
    }
    found
}

fn code(error: &ClientError) -> Option<ErrorCode> {
    match error {
        ClientError::Kafka { code, .. } => Some(*code),
        _ => None,
    }
}

/// Describes a transactional id: state and epoch.
fn state(broker: &Broker, id: &str) -> (&'static str, i16) {
    let known = broker.transactions().unwrap();
    let found = known.iter().find(|t| &*t.transactional_id == id).unwrap();
    (found.state, found.producer_epoch)
}
