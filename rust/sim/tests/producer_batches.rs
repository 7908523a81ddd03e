//! Batches close exactly where the Java producer's do: the recorded sends and the batches that they made.

use crate::producer_harness::cluster::{broker, log_bytes};
use crate::producer_harness::{scenario, virtual_wait};
use fletchlog_api::{Config, Scope, Transport};
use fletchlog_broker::LocalTransport;
use fletchlog_client::producer::{Producer, ProducerRecord, RecordColumns};
use fletchlog_records::BatchIter;
use fletchlog_sim::stepped::never;
use fletchlog_testing::VirtualClock;
use serde_json::Value;

const EPOCH: i64 = 1_700_000_000_000;

/// A record of a recorded step.
#[derive(Debug, Clone)]
struct Record {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
    timestamp: i64,
}

impl Record {
    fn read(step: &Value) -> Self {
        let bytes = |v: &Value| usize::try_from(v.as_i64().unwrap()).ok().map(|len| vec![0; len]);
        Self {
            value: bytes(&step[0]),
            key: bytes(&step[1]),
            headers: (0..step[2].as_u64().unwrap())
                .map(|j| (format!("h{j}"), vec![0; usize::try_from(3 * j).unwrap()]))
                .collect(),
            timestamp: EPOCH + step[3].as_i64().unwrap(),
        }
    }
}

struct Rows<'a>(&'a [Record]);

impl RecordColumns for Rows<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn value(&self, row: usize) -> Option<&[u8]> {
        self.0[row].value.as_deref()
    }
    fn key(&self, row: usize) -> Option<&[u8]> {
        self.0[row].key.as_deref()
    }
    fn partition(&self, _row: usize) -> Option<i32> {
        None
    }
    fn timestamp(&self, row: usize) -> Option<i64> {
        Some(self.0[row].timestamp)
    }
    fn headers<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {
        out.extend(
            self.0[row]
                .headers
                .iter()
                .map(|(k, v)| (k.as_str(), Some(v.as_slice()))),
        );
    }
    fn no_headers(&self) -> bool {
        self.0.iter().all(|r| r.headers.is_empty())
    }
}

fn send(producer: &Producer, record: &Record) {
    let headers: Vec<(&str, Option<&[u8]>)> = record
        .headers
        .iter()
        .map(|(k, v)| (k.as_str(), Some(v.as_slice())))
        .collect();
    producer
        .send(
            &ProducerRecord {
                topic: "t",
                partition: None,
                timestamp: Some(record.timestamp),
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &headers,
            },
            &mut never,
        )
        .unwrap();
}

/// (records, bytes) of every batch that a case makes with one release, record by record or in columns.
fn batches(case: &Value, release: &str, columns: bool) -> Vec<(i64, i64)> {
    let clock = VirtualClock::new();
    let broker = broker(&clock, 1, 1, &[]);
    let transport: Box<dyn Transport> = Box::new(virtual_wait(LocalTransport::new(broker.clone()), &clock));
    let batch_size = case["batch.size"].to_string();
    let config = Config::parse(
        Scope::Producer,
        [
            ("batch.size", batch_size.as_str()),
            (
                "enable.idempotence",
                if case["idempotent"].as_bool().unwrap() {
                    "true"
                } else {
                    "false"
                },
            ),
            ("linger.ms", "600000"),
            ("delivery.timeout.ms", "2000000"),
            ("fletchlog.producer.version", release),
        ],
    )
    .unwrap();
    let mut producer = Producer::stepped(config, transport, clock.clone()).unwrap();
    let mut waiting: Vec<Record> = Vec::new();
    let hand_over = |producer: &Producer, records: &mut Vec<Record>| {
        if columns {
            assert_eq!(
                producer.send_columns("t", &Rows(records), 0, &mut never).unwrap(),
                records.len()
            );
        } else {
            records.iter().for_each(|record| send(producer, record));
        }
        records.clear();
    };
    for step in case["steps"].as_array().unwrap() {
        if step == "flush" {
            hand_over(&mut producer, &mut waiting);
            producer.flush(&mut never).unwrap();
        } else {
            waiting.push(Record::read(step));
        }
    }
    hand_over(&mut producer, &mut waiting);
    producer.flush(&mut never).unwrap();
    BatchIter::new(log_bytes(&broker, 0))
        .map(|batch| {
            let batch = batch.unwrap();
            (
                i64::from(batch.header().records_count),
                i64::try_from(batch.bytes().len()).unwrap(),
            )
        })
        .collect()
}

fn check(columns: bool) {
    let cases = scenario::read("producer-batches.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 10, "recordings are missing");
    for case in cases {
        let recorded: Vec<(i64, i64)> = case["batches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| (b[0].as_i64().unwrap(), b[1].as_i64().unwrap()))
            .collect();
        for release in ["2.6", "4.3"] {
            assert_eq!(
                batches(case, release, columns),
                recorded,
                "{} with {release}",
                case["topic"]
            );
        }
    }
}

#[test]
fn batches_close_where_the_java_producers_do() {
    check(false);
}

#[test]
fn rows_of_columns_form_the_same_batches_as_single_sends() {
    check(true);
}
