//! Interleaved transactions of several producers under faults: what read_committed shows is what the model says.

use std::collections::BTreeMap;

use fletchlog_client::ClientError;
use fletchlog_faults::RandomKind;
use proptest::prelude::*;

use super::{Cluster, code};
use crate::producer_harness::Bench;
use fletchlog_sim::stepped::{decide, never};

const PARTITIONS: i32 = 2;

#[derive(Debug, Clone)]
enum Step {
    Send(usize, i32),
    Turns(usize, u8),
    Commit(usize),
    Abort(usize),
    /// The application is killed and started again under the same name.
    Restart(usize),
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Committed,
    Aborted,
}

fn step() -> impl Strategy<Value = Step> {
    let producer = 0..3usize;
    prop_oneof![
        6 => (producer.clone(), 0..PARTITIONS).prop_map(|(p, t)| Step::Send(p, t)),
        3 => (producer.clone(), 1..4u8).prop_map(|(p, n)| Step::Turns(p, n)),
        2 => producer.clone().prop_map(Step::Commit),
        1 => producer.clone().prop_map(Step::Abort),
        1 => producer.prop_map(Step::Restart),
        1 => Just(Step::Read),
    ]
}

struct Producer {
    bench: Bench,
    /// The open transaction.
    open: Option<usize>,
}

struct World {
    cluster: Cluster,
    seed: u64,
    producers: Vec<Producer>,
    fates: Vec<Fate>,
    sent: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            // Without it a first batch that is refused behind one that is not is retried for delivery.timeout.ms (the
            // hole of spec 9.6), and the virtual time of that ends everybody's transactions.
            cluster: Cluster::with_topic(&[("fletchlog.strict.first.sequence", "true")]),
            seed,
            producers: Vec::new(),
            fates: Vec::new(),
            sent: 0,
        };
        for p in 0..3 {
            let bench = world.start(p);
            world.producers.push(Producer { bench, open: None });
        }
        world
    }

    fn start(&mut self, p: usize) -> Bench {
        let kinds = [RandomKind::LoseResponse, RandomKind::Error, RandomKind::Close];
        self.seed += 1;
        let id = format!("p{p}");
        let config = [
            ("transactional.id", id.as_str()),
            // Version 1 and version 2 of transactions, also one after the other under one name.
            (
                "fletchlog.producer.version",
                ["3.9", "4.4", "4.4"][usize::try_from(self.seed % 3).unwrap()],
            ),
            ("batch.size", "1"),
            ("transaction.timeout.ms", "900000"),
        ];
        let transport = fletchlog_broker::LocalTransport::new(self.cluster.broker.clone());
        let faults = crate::producer_harness::faults::random(self.seed, 0.3, &kinds);
        let bench = Bench::new(transport, &self.cluster.clock, faults, &config);
        bench.producer.init_transactions(&mut never).unwrap();
        bench
    }

    fn send(&mut self, p: usize, partition: i32) {
        let txn = match self.producers[p].open {
            Some(txn) => txn,
            None => {
                self.producers[p].bench.producer.begin_transaction().unwrap();
                self.fates.push(Fate::Open);
                self.producers[p].open = Some(self.fates.len() - 1);
                self.fates.len() - 1
            }
        };
        self.sent += 1;
        // Long enough to be a batch of its own.
        let value = format!("{txn}.{}.{:.<40}", self.sent, "");
        let record = fletchlog_client::producer::ProducerRecord {
            topic: "t",
            partition: Some(partition),
            timestamp: None,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        if let Err(error) = self.producers[p].bench.producer.send(&record, &mut never) {
            assert_abortable(&error);
        }
    }

    fn end(&mut self, p: usize, committed: bool) {
        let Some(txn) = self.producers[p].open.take() else {
            return;
        };
        let producer = &self.producers[p].bench.producer;
        self.fates[txn] = match end_transaction(producer, committed) {
            Ok(()) if committed => Fate::Committed,
            Ok(()) => Fate::Aborted,
            Err(error) => {
                assert_abortable(&error);
                end_transaction(producer, false).unwrap();
                Fate::Aborted
            }
        };
    }

    fn restart(&mut self, p: usize) {
        if let Some(txn) = self.producers[p].open.take() {
            self.fates[txn] = Fate::Aborted;
        }
        self.producers[p].bench = self.start(p);
    }

    fn fate(&self, value: &str) -> Fate {
        self.fates[value.split('.').next().unwrap().parse::<usize>().unwrap()]
    }

    /// read_committed = the records of committed transactions below the first one of an open transaction.
    fn check(&self) {
        for partition in 0..PARTITIONS {
            let all = self.cluster.read(partition, "read_uncommitted");
            let stable = all
                .iter()
                .find(|(_, value)| self.fate(value) == Fate::Open)
                .map_or(i64::MAX, |(offset, _)| *offset);
            let expected: Vec<_> = all
                .iter()
                .filter(|(offset, value)| *offset < stable && self.fate(value) == Fate::Committed)
                .cloned()
                .collect();
            assert_eq!(
                self.cluster.read(partition, "read_committed"),
                expected,
                "partition {partition}"
            );
            let mut seen = BTreeMap::new();
            for (offset, value) in &all {
                assert_eq!(seen.insert(value.clone(), *offset), None, "{value} twice");
            }
        }
    }
}

/// A batch behind one that has expired is refused until it expires as well, after delivery.timeout.ms; a call waits for
/// max.block.ms, half of that, and may be made again.
fn end_transaction(producer: &fletchlog_client::Producer, committed: bool) -> Result<(), ClientError> {
    for _ in 0..3 {
        match decide(producer, committed) {
            Err(ClientError::Timeout(_)) => {}
            outcome => return outcome,
        }
    }
    decide(producer, committed)
}

fn assert_abortable(error: &ClientError) {
    assert_eq!(code(error).map(|c| c.name()), Some("TRANSACTION_ABORTABLE"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn read_committed_is_what_the_model_says(seed in 0..1_000_000u64, steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        for step in steps {
            match step {
                Step::Send(p, partition) => world.send(p, partition),
                Step::Turns(p, n) => (0..n).for_each(|_| world.producers[p].bench.producer.run_once(5)),
                Step::Commit(p) => world.end(p, true),
                Step::Abort(p) => world.end(p, false),
                Step::Restart(p) => world.restart(p),
                Step::Read => world.check(),
            }
        }
        world.check();
        for p in 0..3 {
            world.end(p, true);
        }
        world.check();
        // Nothing is left open, so every record has come to its end.
        for partition in 0..PARTITIONS {
            let description = world.cluster.broker.describe_topic("t").unwrap();
            let at = &description.partitions[usize::try_from(partition).unwrap()];
            prop_assert_eq!(at.last_stable_offset, at.high_watermark);
        }
    }
}
