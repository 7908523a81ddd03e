//! A seeded workload on a broker's directory - topics, records, committed offsets, producer ids, clean and unclean stops - and the promises
//! at every moment of it.
//!
//! When a call of the disk fails, the workload repeats what failed, and reopens the broker if that fails again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{
    Clock, Completion, Config, ErrorCode, InitProducerIdRequest, NodeId, OffsetAndMetadata, OffsetCommitRequest,
    OffsetFetchRequest, Request, Response, Scope, Transport,
};
use fletchlog_broker::{Broker, BrokerError, LocalTransport, OpenOptions};
use fletchlog_protocol::messages::MetadataRequest;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use crate::course::{Course, Workload};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;
use fletchlog_testing::VirtualClock;

const ROOT: &str = "/data/broker";
const NOW_MS: i64 = 1_700_000_000_000;
/// Ids that the broker assigns stay far below.
const PRODUCER_ID: i64 = 1 << 40;
const NODES: u32 = 2;
const PARTITIONS: i32 = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];
const GROUP: &str = "g";
/// The failing call, one more on the same broker, and the steps of reopening it.
const ATTEMPTS: usize = 6;

/// The expected state of a partition. Each record is alone in its batch, and its offset is its number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub start: i64,
    pub end: i64,
}

/// The expected state of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// Incarnation by name.
    pub topics: BTreeMap<&'static str, usize>,
    pub records: BTreeMap<TopicPartition, Records>,
    pub committed: BTreeMap<TopicPartition, i64>,
    /// Leader and leader epoch, of partitions whose leader was moved.
    pub leaders: BTreeMap<TopicPartition, (NodeId, i32)>,
    /// Greatest producer id that was assigned.
    pub producer_id: i64,
}

impl Model {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self {
            topics: BTreeMap::new(),
            records: BTreeMap::new(),
            committed: BTreeMap::new(),
            leaders: BTreeMap::new(),
            producer_id: -1,
        }
    }
}

/// One run of the workload.
pub struct BrokerWorkload {
    /// The expected state from a number of operations on.
    pub(crate) moments: Vec<(u64, Model)>,
    pub(crate) course: Course,
    incarnations: usize,
    /// The names of its topics.
    names: &'static [&'static str],
    /// Whether it closes and reopens the broker.
    restarts: bool,
}

/// Opens the broker of a disk.
pub(crate) fn open(disk: &SimDisk) -> Result<Arc<Broker>, BrokerError> {
    let properties = [("fletchlog.durability", "fsync"), ("offsets.topic.num.partitions", "1")];
    let options = OpenOptions {
        nodes: Some(NODES),
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, properties)?,
    };
    let clock: Arc<dyn Clock> = VirtualClock::at(NOW_MS);
    Broker::open_in(Arc::new(disk.clone()), Path::new(ROOT), options, clock)
}

/// The text of a record, computed from its position.
pub(crate) fn value(tp: &TopicPartition, incarnation: usize, offset: i64) -> String {
    format!("{tp}/{incarnation}/{offset}")
}

/// Appends the record of an offset, idempotently.
pub(crate) fn produce(
    broker: &Broker,
    tp: &TopicPartition,
    incarnation: usize,
    offset: i64,
) -> Result<i64, BrokerError> {
    let mut builder = BatchBuilder::with_capacity(128);
    builder.append(NOW_MS, None, Some(value(tp, incarnation, offset).as_bytes()), &[]);
    let batch: Bytes = builder.build(&BatchParams {
        producer_id: PRODUCER_ID,
        producer_epoch: 0,
        base_sequence: i32::try_from(offset).unwrap_or(0),
        ..BatchParams::default()
    });
    broker.append_batches(tp, batch).map(|(base_offset, _, _)| base_offset)
}

fn ask(broker: &Arc<Broker>, request: Request) -> Result<Response, String> {
    let mut transport = LocalTransport::new(Arc::clone(broker));
    transport.send(1, 1, request);
    match transport.receive(1) {
        Some(Completion {
            result: Ok(response), ..
        }) => Ok(response),
        other => Err(format!("no answer: {other:?}")),
    }
}

fn commit(broker: &Arc<Broker>, tp: &TopicPartition, offset: i64) -> Result<(), String> {
    let value = OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    };
    let request = OffsetCommitRequest {
        group_id: GROUP.into(),
        topics: OffsetCommitRequest::topics_of([(tp.clone(), value)]),
        ..Default::default()
    };
    match ask(broker, Request::OffsetCommit(request))? {
        Response::OffsetCommit(response) if response.errors().all(|(_, code)| code == ErrorCode::NONE) => Ok(()),
        other => Err(format!("commit of {offset} for {tp}: {other:?}")),
    }
}

/// The committed offset of a partition.
pub(crate) fn committed(broker: &Arc<Broker>, tp: &TopicPartition) -> Result<Option<i64>, String> {
    let request = OffsetFetchRequest::of(GROUP.into(), Some(std::slice::from_ref(tp)), false);
    match ask(broker, Request::OffsetFetch(request))? {
        Response::OffsetFetch(response) => {
            let failed = |code: ErrorCode| format!("committed offset of {tp}: {code}");
            let mut offsets = response.offsets().map_err(failed)?;
            let (_, committed) = offsets.next().ok_or("no offset")?;
            Ok(committed.map_err(failed)?.map(|value| value.offset))
        }
        other => Err(format!("committed offset of {tp}: {other:?}")),
    }
}

/// The leader of a partition, and its epoch.
pub(crate) fn leader(broker: &Arc<Broker>, tp: &TopicPartition) -> Result<(NodeId, i32), String> {
    let request = MetadataRequest::for_topics(Some(vec![Arc::clone(&tp.topic)]), false);
    let Response::Metadata(response) = ask(broker, Request::Metadata(request))? else {
        return Err("no metadata".to_owned());
    };
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let found = partitions.find(|p| p.partition_index == tp.partition);
    // The epoch is in the log, which may not be readable now.
    found
        .filter(|p| p.leader_epoch >= 0)
        .map(|p| (p.leader_id, p.leader_epoch))
        .ok_or_else(|| format!("{tp} has no metadata"))
}

/// A new producer id.
pub(crate) fn new_producer_id(broker: &Arc<Broker>) -> Result<i64, String> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    match ask(broker, Request::InitProducerId(request))? {
        Response::InitProducerId(response) if response.error_code == ErrorCode::NONE => Ok(response.producer_id),
        other => Err(format!("no producer id: {other:?}")),
    }
}

fn partitions(name: &str) -> impl Iterator<Item = TopicPartition> {
    (0..PARTITIONS).map(move |partition| TopicPartition::new(name, partition))
}

fn text(error: BrokerError) -> String {
    error.to_string()
}

/// Ignores an error with this code: a repeated request may fail because the first one succeeded.
fn unless(code: ErrorCode, result: Result<(), BrokerError>) -> Result<(), String> {
    match result {
        Err(BrokerError::Kafka { code: found, .. }) if found == code => Ok(()),
        other => other.map_err(text),
    }
}

impl Workload for BrokerWorkload {
    const DIR: &str = "/data";

    fn begin(seed: u64, _: &mut Rng) -> Self {
        Self::of(seed, &NAMES, true)
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let mut broker = self.reopen(disk)?;
        self.use_broker(disk, rng, &mut broker, steps)
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

impl BrokerWorkload {
    pub(crate) fn of(seed: u64, names: &'static [&'static str], restarts: bool) -> Self {
        Self {
            moments: vec![(0, Model::new())],
            course: Course::new(seed),
            incarnations: 0,
            names,
            restarts,
        }
    }

    pub(crate) fn use_broker(
        &mut self,
        disk: &SimDisk,
        rng: &mut Rng,
        broker: &mut Arc<Broker>,
        steps: usize,
    ) -> Result<(), String> {
        for _ in 0..steps {
            let mut model = self.moments[self.moments.len() - 1].1.clone();
            self.step(disk, rng, broker, &mut model)?;
            self.moments.push((disk.operations(), model));
        }
        Ok(())
    }

    /// Whether a topic with records was deleted, and later created again under the same name.
    pub fn makes_a_topic_again(&self) -> bool {
        let models = || self.moments.iter().map(|(_, model)| model);
        models().enumerate().any(|(at, old)| {
            let has_records = |name| partitions(name).any(|tp| old.records.get(&tp).is_some_and(|r| r.end > r.start));
            old.topics.iter().any(|(&name, incarnation)| {
                let mut later = models().skip(at).filter_map(|model| model.topics.get(name));
                has_records(name) && later.any(|other| other != incarnation)
            })
        })
    }

    fn step(
        &mut self,
        disk: &SimDisk,
        rng: &mut Rng,
        broker: &mut Arc<Broker>,
        model: &mut Model,
    ) -> Result<(), String> {
        let name = self.names[rng.below(self.names.len())];
        let tp = TopicPartition::new(name, i32::from(rng.below(2) == 1));
        let Some(incarnation) = model.topics.get(name).copied() else {
            return self.create(disk, name, broker, model);
        };
        let records = model.records.entry(tp.clone()).or_default();
        match rng.below(20) {
            0 => {
                self.insist(disk, broker, |b| {
                    unless(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, b.delete_topic(name))
                })?;
                model.topics.remove(name);
                for tp in partitions(name) {
                    model.records.remove(&tp);
                    model.committed.remove(&tp);
                    model.leaders.remove(&tp);
                }
            }
            1 => {
                let before = i64::try_from(rng.below(usize::try_from(records.end + 1).unwrap_or(1))).unwrap_or(0);
                let start = self.insist(disk, broker, |b| b.delete_records(&tp, Some(before)).map_err(text))?;
                if start != records.start.max(before) {
                    return Err(format!("{tp} starts at {start} after deleting below {before}"));
                }
                records.start = start;
            }
            2 => self.insist(disk, broker, |b| b.flush().map_err(text))?,
            3 => self.insist(disk, broker, |b| b.run_retention().map(drop).map_err(text))?,
            4 if self.restarts => {
                if let Err(error) = broker.close() {
                    self.excuse(disk, &error)?;
                }
                *broker = self.reopen(disk)?;
            }
            5 if self.restarts => *broker = self.reopen(disk)?,
            6 => {
                let id = self.insist(disk, broker, new_producer_id)?;
                if id <= model.producer_id {
                    return Err(format!("producer id {id} after {}", model.producer_id));
                }
                model.producer_id = id;
            }
            7 => {
                let to = 1 + i32::from(rng.below(2) == 1);
                let (old, now) = self.insist(disk, broker, |b| {
                    let old = leader(b, &tp)?;
                    b.move_leader(&tp, to).map_err(text)?;
                    Ok((old, leader(b, &tp)?))
                })?;
                if now.0 != to || now.1 != old.1 + i32::from(now.0 != old.0) {
                    return Err(format!("{tp}: {old:?} became {now:?} when node {to} was to lead"));
                }
                model.leaders.insert(tp, now);
            }
            8..10 => {
                let offset = records.end;
                self.insist(disk, broker, |b| commit(b, &tp, offset))?;
                model.committed.insert(tp, offset);
            }
            _ => {
                let offset = self.insist(disk, broker, |b| {
                    produce(b, &tp, incarnation, records.end).map_err(text)
                })?;
                if offset != records.end {
                    return Err(format!("{tp}: record {} went to {offset}", records.end));
                }
                records.end += 1;
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        disk: &SimDisk,
        name: &'static str,
        broker: &mut Arc<Broker>,
        model: &mut Model,
    ) -> Result<(), String> {
        let config = [("internal.segment.bytes", "400"), ("retention.bytes", "900")];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned()));
        while let Err(error) = broker.create_topic(name, PARTITIONS, &config) {
            self.excuse(disk, &error)?;
            *broker = self.reopen(disk)?;
            if broker.describe_topic(name).is_ok() {
                return Err(format!("topic {name} is there, and its creation has failed: {error}"));
            }
        }
        self.incarnations += 1;
        model.topics.insert(name, self.incarnations);
        model
            .records
            .extend(partitions(name).map(|tp| (tp, Records::default())));
        Ok(())
    }

    fn excuse(&mut self, disk: &SimDisk, error: &dyn Display) -> Result<(), String> {
        self.course.excuse(disk, error, ATTEMPTS)
    }

    /// Repeats an action until it succeeds: once on the same broker, then on reopened ones.
    fn insist<T>(
        &mut self,
        disk: &SimDisk,
        broker: &mut Arc<Broker>,
        mut act: impl FnMut(&Arc<Broker>) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut again = false;
        loop {
            match act(broker) {
                Ok(done) => return Ok(done),
                Err(error) => self.excuse(disk, &error)?,
            }
            if again {
                *broker = self.reopen(disk)?;
            }
            again = true;
        }
    }

    /// Opens the broker, without a clean stop unless it was closed.
    fn reopen(&mut self, disk: &SimDisk) -> Result<Arc<Broker>, String> {
        loop {
            match open(disk) {
                Ok(broker) => return Ok(broker),
                Err(error) => self.excuse(disk, &format!("cannot be opened: {error}"))?,
            }
        }
    }
}
