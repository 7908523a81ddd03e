//! The consumer against a small broker of its own.

mod fake_broker;
mod fetching;
mod lifecycle;
mod network;
mod preferred_replica;
mod range_scan;
mod requests;
mod storage;
mod timestamps;
mod traces;
mod truncation;

use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_records::TopicPartition;

use super::*;
use fake_broker::FakeBroker;

fn tp(topic: &str) -> TopicPartition {
    TopicPartition::new(topic, 0)
}

fn abc() -> Vec<TopicPartition> {
    ["A", "B", "C"].map(tp).to_vec()
}

fn consumer(broker: &FakeBroker, properties: &[(&str, &str)]) -> Consumer {
    let given = [
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("fetch.max.wait.ms", "20"),
    ];
    let config = Config::parse(Scope::Consumer, given.into_iter().chain(properties.iter().copied())).unwrap();
    Consumer::new(config, broker.transport(), Arc::clone(&broker.clock) as _).unwrap()
}

fn poll(consumer: &mut Consumer) -> PolledRecords {
    consumer.poll(1000, &mut || false).unwrap()
}

/// `A3+B2`: topics and counts in drain order.
fn token(records: &PolledRecords) -> String {
    records
        .runs
        .iter()
        .map(|r| format!("{}{}", r.tp.topic, r.count))
        .collect::<Vec<_>>()
        .join("+")
}

/// Offsets returned, in drain order.
fn offsets(records: &PolledRecords) -> Vec<i64> {
    let mut all = Vec::new();
    for span in records.runs.iter().flat_map(|r| &r.spans) {
        let mut cursor = fletchlog_records::RecordCursor::new();
        while let Some(record) = cursor.next(&span.slice).unwrap() {
            if (span.first_offset..=span.last_offset).contains(&record.offset) {
                all.push(record.offset);
            }
        }
    }
    all
}
