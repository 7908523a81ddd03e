//! What a producer promises under any seeded faults (spec 9.6), and that columns and single sends are the same thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::producer_harness::cluster::{broker, log_bytes};
use crate::producer_harness::faults::{Done, done, random, scripted};
use crate::producer_harness::{Bench, records_of, virtual_wait};
use fletchlog_api::{Config, Scope, Transport};
use fletchlog_broker::LocalTransport;
use fletchlog_client::producer::{Producer, ProducerRecord, RecordColumns, RecordFuture};
use fletchlog_faults::{ProducedBatch, RandomKind};
use fletchlog_records::ErrorCode;
use fletchlog_sim::stepped::never;
use fletchlog_testing::VirtualClock;
use proptest::prelude::*;

/// What a run under faults left behind.
struct Run {
    /// Record numbers in the log, per partition, in offset order.
    log: Vec<Vec<usize>>,
    futures: Vec<RecordFuture>,
    epoch: Option<i16>,
    /// The actions that were not "ok".
    faults: BTreeSet<String>,
    /// See [`resent_beyond_the_window`].
    forgotten: bool,
}

/// What happens to the requests.
#[derive(Debug, Clone)]
enum Chaos {
    Seeded(u64, f64, &'static [RandomKind]),
    /// In order, after one record of each partition was acknowledged: the broker knows the producer there. (Without that,
    /// Kafka lets an unknown producer start at any sequence: the hole of spec 9.6.)
    Script(Vec<&'static str>),
}

/// Everything that a client may try again.
const RETRIABLE: [&str; 9] = [
    "ok",
    "lost-ack",
    "disconnect",
    "refused:2",
    "refused:6",
    "refused:7",
    "refused:19",
    "appended-refused:7",
    "appended-refused:20",
];

/// Sends `records` records round the partitions in groups, with some turns of the sender after each group.
fn run(chaos: Chaos, partitions: i32, nodes: u32, records: usize, group: usize, config: &[(&str, &str)]) -> Run {
    let clock = VirtualClock::new();
    let broker = broker(&clock, nodes, partitions, &[]);
    let known = if matches!(chaos, Chaos::Script(_)) {
        usize::try_from(partitions).unwrap()
    } else {
        0
    };
    let faults = match &chaos {
        Chaos::Seeded(seed, rate, kinds) => random(*seed, *rate, kinds),
        Chaos::Script(actions) => scripted((known as u64 + 1..).zip(actions.iter().copied())),
    };
    let mut all = vec![
        ("batch.size", "1"),
        ("acks", "all"),
        ("retry.backoff.ms", "10"),
        ("linger.ms", "0"),
    ];
    all.extend_from_slice(config);
    let mut bench = Bench::new(LocalTransport::new(broker.clone()), &clock, faults, &all);
    let mut futures = Vec::new();
    while futures.len() < records {
        let group = if futures.len() < known {
            1
        } else {
            group.min(records - futures.len())
        };
        for _ in 0..group {
            let number = futures.len();
            let partition = i32::try_from(number).unwrap() % partitions;
            futures.push(bench.send(partition, number.to_string().as_bytes()));
        }
        if futures.len() <= known {
            bench.producer.flush(&mut never).unwrap();
        }
        for _ in 0..3 {
            bench.producer.run_once(20);
        }
    }
    bench.producer.flush(&mut never).unwrap();
    let log = (0..partitions)
        .map(|p| {
            let records = records_of(&log_bytes(&broker, p));
            records
                .iter()
                .map(|r| String::from_utf8_lossy(&r.value).parse().unwrap())
                .collect()
        })
        .collect();
    let done = done(&bench.faults);
    Run {
        log,
        futures,
        epoch: bench.producer.producer_id().map(|(_, epoch)| epoch),
        faults: done
            .iter()
            .map(|e| e.action.clone())
            .filter(|action| action != "ok")
            .collect(),
        forgotten: resent_beyond_the_window(&done),
    }
}

/// Whether a batch that had been appended was sent again when the broker no longer knew it. The broker remembers five
/// batches; the client holds back nothing while a batch is sent again, so several refusals of an appended batch in a row let
/// any number of later ones pass it, with two in flight already. Such a batch gets OUT_OF_ORDER_SEQUENCE_NUMBER until
/// delivery.timeout.ms: it is in the log, once, and its sends fail (spec 3.4, 9.6 "could be older than the window").
fn resent_beyond_the_window(log: &[Done]) -> bool {
    let mut appended: BTreeMap<i32, Vec<(i16, i32)>> = BTreeMap::new();
    let mut beyond = false;
    for entry in log {
        for sent in &entry.batches {
            let batch = (sent.producer_epoch, sent.base_sequence);
            let known = appended.entry(sent.partition).or_default();
            let out_of_order = sent
                .answer
                .is_some_and(|(error, _)| error == ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
            match known.iter().rposition(|b| *b == batch) {
                Some(at) => beyond |= out_of_order && known.len() - at > 5,
                None if was_appended(entry, sent) => known.push(batch),
                None => {}
            }
        }
    }
    beyond
}

fn was_appended(entry: &Done, sent: &ProducedBatch) -> bool {
    entry.action.starts_with("appended-refused") || sent.answer.is_some_and(|(error, _)| error == ErrorCode::NONE)
}

fn sent(partitions: i32, records: usize) -> Vec<Vec<usize>> {
    let count = usize::try_from(partitions).unwrap();
    (0..count)
        .map(|p| (0..records).filter(|n| n % count == p).collect())
        .collect()
}

/// The first copies only.
fn first_copies(log: &[usize]) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    log.iter().copied().filter(|n| seen.insert(*n)).collect()
}

const KINDS: [RandomKind; 3] = [RandomKind::LoseResponse, RandomKind::Error, RandomKind::Close];

const RELEASES: [&str; 5] = ["2.4", "2.6", "3.2", "3.9", "4.3"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_idempotent_producer_writes_each_record_once_and_in_order(
        script in prop::collection::vec(prop::sample::select(&RETRIABLE[..]), 0..40),
        release in prop::sample::select(&RELEASES[..]), in_flight in 1..=5usize, partitions in 1..5i32,
        nodes in 1..4u32, records in 1..60usize, group in 1..20usize,
    ) {
        let in_flight = in_flight.to_string();
        let run = run(Chaos::Script(script), partitions, nodes, records, group, &[
            ("enable.idempotence", "true"),
            ("max.in.flight.requests.per.connection", &in_flight),
            ("fletchlog.producer.version", release),
        ]);
        for log in &run.log {
            prop_assert!(log.is_sorted_by(|a, b| a < b), "each at most once, in order: {log:?}");
        }
        prop_assume!(!run.forgotten);
        prop_assert_eq!(run.epoch, Some(0), "retriable faults alone never bump the epoch");
        prop_assert_eq!(&run.log, &sent(partitions, records));
        for (number, future) in run.futures.iter().enumerate() {
            let metadata = future.try_result().unwrap().unwrap();
            let partition = usize::try_from(metadata.partition).unwrap();
            prop_assert_eq!(run.log[partition][usize::try_from(metadata.offset).unwrap()], number);
        }
    }

    #[test]
    fn one_request_in_flight_keeps_order_without_idempotence_and_loses_nothing(
        seed: u64, rate in 0.0..0.7f64, kinds in 1..=KINDS.len(), release in prop::sample::select(&RELEASES[..]),
        partitions in 1..5i32, nodes in 1..4u32, records in 1..60usize, group in 1..20usize,
    ) {
        let run = run(Chaos::Seeded(seed, rate, &KINDS[..kinds]), partitions, nodes, records, group, &[
            ("enable.idempotence", "false"),
            ("max.in.flight.requests.per.connection", "1"),
            ("fletchlog.producer.version", release),
        ]);
        let first: Vec<Vec<usize>> = run.log.iter().map(|log| first_copies(log)).collect();
        prop_assert_eq!(first, sent(partitions, records));
        prop_assert!(run.futures.iter().all(|f| f.try_result().unwrap().is_ok()));
    }

    #[test]
    fn several_requests_in_flight_lose_nothing_that_is_retriable(
        seed: u64, rate in 0.0..0.7f64, kinds in 1..=KINDS.len(), release in prop::sample::select(&RELEASES[..]), records in 1..60usize,
    ) {
        let run = run(Chaos::Seeded(seed, rate, &KINDS[..kinds]), 2, 1, records, 8, &[
            ("enable.idempotence", "false"),
            ("fletchlog.producer.version", release),
        ]);
        for (log, sent) in run.log.iter().zip(sent(2, records)) {
            let mut first = first_copies(log);
            first.sort_unstable();
            prop_assert_eq!(first, sent);
        }
    }
}

/// The limit of the broker's memory, found by the property above: the batch of sequences 1 to 3 was appended, but its
/// sends fail.
#[test]
fn an_appended_batch_refused_while_five_later_ones_pass_it_fails_with_a_timeout() {
    let script = vec!["appended-refused:7", "ok", "ok", "refused:2", "ok", "ok", "refused:2"];
    let config = [
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", "3"),
    ];
    let run = run(Chaos::Script(script), 1, 1, 19, 9, &config);
    assert!(run.forgotten, "{:?}", run.log);
    assert_eq!(run.log, sent(1, 19), "nothing is lost, repeated or moved");
    let failed: Vec<usize> = (0..19)
        .filter(|n| run.futures[*n].try_result().unwrap().is_err())
        .collect();
    assert_eq!(failed, [1, 2, 3]);
}

/// (runs with duplicates, runs with inversions) over many seeds: a lost acknowledgement or a refusal every tenth request or so.
/// Both faults are met.
fn defects(config: &[(&str, &str)]) -> (usize, usize) {
    let (mut duplicates, mut inversions, mut faults) = (0, 0, BTreeSet::new());
    for seed in 0..40u64 {
        let draw = |n: u64| ((seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 20;
        let script = (0..150u64).map(|n| match draw(n) {
            0 => "lost-ack",
            1 => "refused:19",
            _ => "ok",
        });
        let run = run(Chaos::Script(script.collect()), 1, 1, 100, 10, config);
        let first = first_copies(&run.log[0]);
        duplicates += usize::from(run.log[0].len() > first.len());
        inversions += usize::from(!first.is_sorted());
        faults.extend(run.faults);
    }
    for kind in ["lost-ack", "refused:19"] {
        assert!(faults.contains(kind), "{kind} was not met: {faults:?}");
    }
    (duplicates, inversions)
}

#[test]
fn a_regular_producer_with_five_in_flight_reorders_and_duplicates() {
    let (duplicates, inversions) = defects(&[("enable.idempotence", "false")]);
    assert!(
        duplicates > 0 && inversions > 0,
        "{duplicates} runs with duplicates, {inversions} with inversions"
    );
}

#[test]
fn in_flight_one_keeps_order_and_can_duplicate() {
    let (duplicates, inversions) = defects(&[
        ("enable.idempotence", "false"),
        ("max.in.flight.requests.per.connection", "1"),
    ]);
    assert!(duplicates > 0, "no run with a duplicate");
    assert_eq!(inversions, 0);
}

#[test]
fn an_idempotent_producer_does_neither_under_the_same_faults() {
    assert_eq!(defects(&[("enable.idempotence", "true")]), (0, 0));
}

#[test]
fn the_same_seed_replays_the_same_run() {
    let once = || {
        run(
            Chaos::Seeded(5, 0.3, &KINDS),
            3,
            2,
            80,
            7,
            &[("enable.idempotence", "false")],
        )
        .log
    };
    assert_eq!(once(), once());
}

// ---------------------------------------------------------------- columns

#[derive(Debug, Clone)]
struct Row {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    partition: Option<i32>,
    timestamp: Option<i64>,
    header: Option<Vec<u8>>,
}

struct Rows<'a>(&'a [Row]);

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
    fn partition(&self, row: usize) -> Option<i32> {
        self.0[row].partition
    }
    fn timestamp(&self, row: usize) -> Option<i64> {
        self.0[row].timestamp
    }
    fn headers<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {
        out.extend(self.0[row].header.iter().map(|h| ("h", Some(h.as_slice()))));
    }
    fn no_headers(&self) -> bool {
        self.0.iter().all(|r| r.header.is_none())
    }
}

fn row(with_headers: bool) -> impl Strategy<Value = Row> {
    let bytes = |most: usize| prop::option::weighted(0.9, prop::collection::vec(any::<u8>(), 0..most));
    (
        bytes(120),
        prop::option::weighted(0.3, prop::collection::vec(any::<u8>(), 0..6)),
        prop::option::weighted(0.3, 0..3i32),
        prop::option::weighted(0.5, 0..2_000_000_000_000i64),
        prop::option::weighted(
            if with_headers { 0.3 } else { 0.001 },
            prop::collection::vec(any::<u8>(), 0..9),
        ),
    )
        .prop_map(|(value, key, partition, timestamp, header)| Row {
            value,
            key,
            partition,
            timestamp,
            header,
        })
}

/// The batches of each partition after sending the rows, as bytes (record by record or as columns).
fn batches(rows: &[Row], columns: bool, config: &[(&str, &str)]) -> BTreeMap<i32, bytes::Bytes> {
    let clock = VirtualClock::new();
    // the rows have timestamps from anywhere
    let broker = broker(
        &clock,
        2,
        3,
        &[("message.timestamp.after.max.ms", "9223372036854775807")],
    );
    let transport: Box<dyn Transport> = Box::new(virtual_wait(LocalTransport::new(broker.clone()), &clock));
    let config = Config::parse(Scope::Producer, config.iter().copied()).unwrap();
    let producer = Producer::stepped(config, transport, clock.clone()).unwrap();
    if columns {
        assert_eq!(
            producer.send_columns("t", &Rows(rows), 0, &mut never).unwrap(),
            rows.len()
        );
    } else {
        for row in rows {
            let headers: Vec<(&str, Option<&[u8]>)> = row.header.iter().map(|h| ("h", Some(h.as_slice()))).collect();
            producer
                .send(
                    &ProducerRecord {
                        topic: "t",
                        partition: row.partition,
                        timestamp: row.timestamp,
                        key: row.key.as_deref(),
                        value: row.value.as_deref(),
                        headers: &headers,
                    },
                    &mut never,
                )
                .unwrap();
        }
    }
    producer.flush(&mut never).unwrap();
    (0..3).map(|p| (p, log_bytes(&broker, p))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // More rows than are appended under one hold of the lock.
    #[test]
    fn rows_of_alternating_partitions_form_the_batches_that_single_sends_form(
        rows in prop::collection::vec(row(false), 4_200..6_000),
        batch_size in prop::sample::select(vec!["300", "1000", "16384"]),
        codec in prop::sample::select(vec!["none", "snappy", "lz4", "zstd"]),
    ) {
        let place = |(at, mut row): (usize, Row)| {
            row.partition = i32::try_from(at % 3).ok();
            row.header = None;
            row
        };
        let rows: Vec<Row> = rows.into_iter().enumerate().map(place).collect();
        let config = [
            ("batch.size", batch_size),
            ("linger.ms", "600000"),
            ("delivery.timeout.ms", "2000000"),
            ("compression.type", codec),
        ];
        prop_assert_eq!(batches(&rows, true, &config), batches(&rows, false, &config));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn columns_form_the_batches_that_single_sends_form(
        with_headers in prop::bool::weighted(0.3),
        rows in any::<bool>().prop_flat_map(|h| prop::collection::vec(row(h), 1..300)),
        release in prop::sample::select(&RELEASES[..]),
        batch_size in prop::sample::select(vec!["0", "1", "100", "300", "1000"]),
        codec in prop::sample::select(vec!["none", "none", "lz4", "zstd"]),
        ignore_keys in any::<bool>(),
        round_robin in prop::bool::weighted(0.2),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|mut r| { if !with_headers { r.header = None; } r })
            .collect();
        let config = [
            ("batch.size", batch_size),
            ("linger.ms", "600000"),
            ("delivery.timeout.ms", "2000000"),
            ("compression.type", codec),
            ("fletchlog.producer.version", release),
            ("partitioner.ignore.keys", if ignore_keys { "true" } else { "false" }),
            ("partitioner.class", if round_robin { "RoundRobinPartitioner" } else { "" }),
        ];
        prop_assert_eq!(batches(&rows, true, &config), batches(&rows, false, &config));
    }
}
