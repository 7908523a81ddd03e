//! A broker's directory in which the records of `__consumer_offsets` and `__transaction_state` are damaged, missing, repeated and in
//! another order: the coordinators take over what can be read, serve it, and after a stop they find what they had.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use fletchlog_api::{Config, OffsetAndMetadata, Scope};
use fletchlog_broker::{Broker, BrokerError, OpenOptions, TransactionDescription};
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_protocol::messages::consumer_group_describe_response::DescribedGroup;
use fletchlog_records::{
    BatchBuilder, BatchIter, BatchParams, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, TopicPartition,
};
use fletchlog_testing::VirtualClock;

use super::coordinator_clients::{exercise, fill};
use super::{Files, Input, NOW_MS, files};

const ROOT: &str = "/data";
/// The logs that the input changes.
const LOGS: [&str; 2] = ["__consumer_offsets-0", "__transaction_state-0"];
const SEGMENT: &str = "00000000000000000000.log";
/// More records than an input can add.
const MOST_RECORDS: usize = 400;

/// A record of a coordinator, alone in its batch.
#[derive(Clone)]
struct Entry {
    /// Index in [`LOGS`].
    log: usize,
    params: BatchParams,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// The other files of a directory, and its records.
static SOUND: LazyLock<(Files, Vec<Entry>)> = LazyLock::new(|| {
    let fs = memory();
    let clock = VirtualClock::at(NOW_MS);
    let broker = open(&fs, &clock, false).unwrap();
    fill(&broker);
    drop(broker);
    let (mut others, mut entries) = (Files::new(), Vec::new());
    for (path, bytes) in files(&*fs, Path::new(ROOT)) {
        let of_log = |name: &str| path.parent().is_some_and(|dir| dir.ends_with(name));
        match LOGS.iter().position(|name| of_log(name)) {
            Some(log) if path.ends_with(SEGMENT) => entries.extend(entries_of(log, bytes.into())),
            Some(_) if !path.ends_with("partition.metadata") => {}
            _ if path.ends_with("recovery-point-offset-checkpoint") => {}
            _ => others.push((path, bytes)),
        }
    }
    assert!(entries.len() > 60, "{}", entries.len());
    (others, entries)
});

fn memory() -> Arc<dyn Fs> {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    fs.create_dir_all(Path::new(ROOT)).unwrap();
    fs
}

fn open(fs: &Arc<dyn Fs>, clock: &Arc<VirtualClock>, read_only: bool) -> Result<Arc<Broker>, BrokerError> {
    let config = [
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.consumer.assignment.interval.ms", "0"),
    ];
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only,
        config: Config::parse(Scope::Broker, config).unwrap(),
    };
    Broker::open_in(Arc::clone(fs), Path::new(ROOT), options, Arc::clone(clock) as _)
}

fn entries_of(log: usize, bytes: Bytes) -> Vec<Entry> {
    let of_batch = |batch: RecordBatch| {
        let header = batch.header();
        let params = BatchParams {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            transactional: header.is_transactional(),
            control: header.is_control(),
            ..BatchParams::default()
        };
        let slice = batch.records(DECOMPRESSION_LIMIT).unwrap();
        let mut cursor = RecordCursor::new();
        let mut entries = Vec::new();
        while let Some(record) = cursor.next(&slice).unwrap() {
            entries.push(Entry {
                log,
                params,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
            });
        }
        entries
    };
    BatchIter::new(bytes)
        .flat_map(|batch| of_batch(batch.unwrap()))
        .collect()
}

/// The bytes of a log's only segment.
fn segment(entries: &[Entry], log: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (offset, entry) in (0..).zip(entries.iter().filter(|entry| entry.log == log)) {
        let mut builder = BatchBuilder::with_capacity(256);
        builder.append(NOW_MS, entry.key.as_deref(), entry.value.as_deref(), &[]);
        let params = BatchParams {
            base_offset: offset,
            ..entry.params
        };
        bytes.extend_from_slice(&builder.build(&params));
    }
    bytes
}

/// `[mode u8] [changes]`: the directory after the changes is opened for reading (bit 0) or writing, as after a kill.
pub(super) fn coordinators(data: &[u8]) {
    let mut input = Input(data);
    let read_only = input.byte() & 1 == 1;
    let (others, mut entries) = SOUND.clone();
    while !input.is_empty() && entries.len() < MOST_RECORDS {
        change(&mut entries, &mut input);
    }
    let fs = memory();
    let logs = LOGS.iter().enumerate();
    let logs = logs.map(|(log, name)| (Path::new(ROOT).join(name).join(SEGMENT), segment(&entries, log)));
    for (path, bytes) in others.into_iter().chain(logs) {
        fs.create_dir_all(path.parent().unwrap()).unwrap();
        fs.replace(&path, &bytes).unwrap();
    }
    let clock = VirtualClock::at(NOW_MS);
    // Records with correct checksums never keep a broker from opening, whatever is in them.
    let broker = open(&fs, &clock, read_only).unwrap();
    let loaded = state(&broker);
    if read_only {
        return exercise(&broker);
    }
    broker.close().unwrap();
    drop(broker);
    let broker = open(&fs, &clock, false).unwrap();
    same(&state(&broker), &loaded);
    exercise(&broker);
    let left = state(&broker);
    drop(broker);
    let broker = open(&fs, &clock, false).unwrap();
    same(&state(&broker), &left);
    // Sessions, rebalances and transactions time out.
    for _ in 0..3 {
        clock.advance(61_000);
        broker.run_due();
    }
    let left = state(&broker);
    drop(broker);
    same(&state(&open(&fs, &clock, false).unwrap()), &left);
}

/// One change: `[kind u8] [record u8] ..`.
fn change(entries: &mut Vec<Entry>, input: &mut Input<'_>) {
    let (kind, at) = (input.byte(), usize::from(input.byte()));
    let other = usize::from(input.byte()) % entries.len().max(1);
    let at = at % entries.len().max(1);
    let others_value = entries.get(other).and_then(|entry| entry.value.clone());
    let Some(entry) = entries.get_mut(at) else { return };
    match kind % 10 {
        0 => drop(entries.remove(at)),
        1 => entry.value = None,
        2 => patch(entry.key.as_mut(), other, input),
        3 | 4 => patch(entry.value.as_mut(), other, input),
        5 => entry.value = others_value,
        6 => entry.value = Some(input.take(other).to_vec()),
        7 => {
            let again = entry.clone();
            entries.push(again);
        }
        8 => entries.swap(at, other),
        _ => {
            entry.params.transactional = other & 1 == 1;
            entry.params.control = other & 2 == 2;
            entry.params.producer_id = i64::from(input.byte());
            entry.params.producer_epoch = i16::from(input.byte());
        }
    }
}

/// Overwrites bytes from one position on.
fn patch(bytes: Option<&mut Vec<u8>>, from: usize, input: &mut Input<'_>) {
    let Some(bytes) = bytes else { return };
    let (from, len) = (from % (bytes.len() + 1), usize::from(input.byte()) % 16 + 1);
    for (byte, patch) in bytes[from..].iter_mut().zip(input.take(len)) {
        *byte = *patch;
    }
}

/// What the coordinators have in their logs: consumer groups, offsets, transactions.
#[derive(Debug, Default, PartialEq)]
struct State {
    groups: BTreeMap<Arc<str>, DescribedGroup>,
    offsets: BTreeMap<Arc<str>, BTreeMap<TopicPartition, OffsetAndMetadata>>,
    transactions: Vec<TransactionDescription>,
}

fn state(broker: &Broker) -> State {
    let mut state = State {
        transactions: broker.transactions().unwrap(),
        ..State::default()
    };
    for listing in broker.groups().unwrap() {
        let id = listing.group_id;
        if let Ok(offsets) = broker.group_offsets(&id)
            && !offsets.is_empty()
        {
            state.offsets.insert(Arc::clone(&id), offsets);
        }
        if let Ok(group) = broker.describe_consumer_group(&id) {
            state.groups.insert(id, group);
        }
    }
    state
}

/// Panics where they differ.
fn same(found: &State, left: &State) {
    assert_eq!(found.groups, left.groups);
    assert_eq!(found.offsets, left.offsets);
    assert_eq!(found.transactions, left.transactions);
}
