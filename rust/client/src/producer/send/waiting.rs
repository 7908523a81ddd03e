//! Records whose callers do not wait for metadata and memory, such as coroutines: [`send_later`]. The records wait here, in memory of their
//! own, and the sender puts them into batches, each topic in send order. Later records of the topic are queued behind them, so the order
//! within a partition is kept; a topic without metadata blocks no other topic.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fletchlog_records::Header;

use super::{Lookup, Row, append, exhausted, is_on_the_future, look_up, no_metadata, row_of, send_failed};
use crate::ClientError;
use crate::producer::ProducerRecord;
use crate::producer::future::{BatchResult, OnDecided, Place, RecordFuture, lock};
use crate::producer::metadata::TopicId;
use crate::producer::shared::{Guarded, Shared};
use crate::producer::waiter::Waiter;

/// Most records that are put into batches under one lock: a thread that adds a record waits for no more than these.
const AT_ONCE: usize = 1024;

type Bytes = Option<Box<[u8]>>;

/// One record, and where its outcome goes.
struct WaitingRecord {
    /// Its number among all that waited.
    serial: u64,
    since_ms: i64,
    partition: Option<i32>,
    timestamp: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(Box<str>, Bytes)>,
    result: Arc<BatchResult>,
}

/// The waiting records of one topic; empty only while they are put into batches.
struct WaitingTopic {
    name: Box<str>,
    lookup: Option<Lookup>,
    /// Its metadata, once known.
    id: Option<TopicId>,
    records: VecDeque<WaitingRecord>,
}

#[derive(Default)]
struct Queues {
    topics: Vec<WaitingTopic>,
    next_serial: u64,
    /// Why no more records are accepted.
    closed: Option<ClientError>,
    /// A record waits for memory.
    wants_memory: bool,
}

impl Queues {
    fn count(&self) -> usize {
        self.topics.iter().map(|topic| topic.records.len()).sum()
    }
}

/// The records of a producer that wait for metadata or memory.
#[derive(Default)]
pub(crate) struct WaitingRecords {
    queues: Mutex<Queues>,
    /// Number of records, readable without the lock: most producers never have one.
    count: AtomicUsize,
}

impl WaitingRecords {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
    /// Whether a record of the topic waits, so that the next one must queue behind it.
    pub(crate) fn has(&self, topic: &str) -> bool {
        !self.is_empty() && lock(&self.queues).topics.iter().any(|waiting| *waiting.name == *topic)
    }
    /// Refuses further records with this error.
    pub(crate) fn close(&self, error: ClientError) {
        lock(&self.queues).closed.get_or_insert(error);
    }
    /// The number that the next record will get.
    fn mark(&self) -> u64 {
        lock(&self.queues).next_serial
    }
    /// Whether no record with a lower number waits, of this topic or, without one, of any.
    fn none_below(&self, mark: u64, topic: Option<&str>) -> bool {
        if self.is_empty() {
            return true;
        }
        let queues = lock(&self.queues);
        let mut asked = queues
            .topics
            .iter()
            .filter(|waiting| topic.is_none_or(|topic| *waiting.name == *topic));
        asked.all(|waiting| waiting.records.front().is_none_or(|first| first.serial >= mark))
    }
}

/// Queues one record without waiting for anything. If it cannot be sent, the future has the error that [`super::send`] would return; a
/// record that is not in a batch after max.block.ms fails.
pub(crate) fn send_later(
    shared: &Shared,
    record: &ProducerRecord<'_>,
    on_decided: Option<OnDecided>,
) -> Result<RecordFuture, ClientError> {
    let timestamp = row_of(shared, record, &[])?.timestamp;
    let result = BatchResult::new(&shared.signal);
    let owned = |bytes: Option<&[u8]>| bytes.map(Box::from);
    let headers = record.headers.iter().map(|&(name, value)| (name.into(), owned(value)));
    let mut waiting = WaitingRecord {
        serial: 0,
        since_ms: shared.now(),
        partition: record.partition,
        timestamp,
        key: owned(record.key),
        value: owned(record.value),
        headers: headers.collect(),
        result: Arc::clone(&result),
    };
    let mut queues = lock(&shared.waiting.queues);
    if let Some(error) = &queues.closed {
        return Err(error.clone());
    }
    let future = RecordFuture::new(result, Place { index: 0, timestamp }, on_decided);
    waiting.serial = queues.next_serial;
    queues.next_serial += 1;
    match queues.topics.iter_mut().find(|topic| *topic.name == *record.topic) {
        Some(topic) => topic.records.push_back(waiting),
        None => queues.topics.push(WaitingTopic {
            name: record.topic.into(),
            lookup: None,
            id: None,
            records: VecDeque::from([waiting]),
        }),
    }
    shared.waiting.count.fetch_add(1, Ordering::Release);
    drop(queues);
    shared.wake_sender();
    Ok(future)
}

/// Waits until every record that waits now is in a batch or has failed; with a topic, only its records. `Timeout` at the time `until`.
pub(crate) fn after_waiting(waiter: &mut Waiter<'_, '_>, topic: Option<&str>, until: i64) -> Result<(), ClientError> {
    let shared = waiter.shared;
    if shared.waiting.is_empty() {
        return Ok(());
    }
    let mark = shared.waiting.mark();
    // Each of them fails after max.block.ms, so this ends.
    waiter.until(
        until.saturating_sub(shared.now()),
        |guarded| {
            if guarded.is_closed() {
                guarded.check_open()?;
            }
            Ok(shared.waiting.none_below(mark, topic).then_some(()))
        },
        |_| ClientError::Timeout(String::new()),
    )
}

/// The sender's part: puts records into batches as far as metadata and memory allow, and fails those that can never be sent or have waited
/// too long. Returns whether any record was placed or failed, and the ms until the next call is needed.
pub(crate) fn place(shared: &Shared, guarded: &mut Guarded) -> (bool, i64) {
    if shared.waiting.is_empty() {
        return (false, i64::MAX);
    }
    let mut queues = lock(&shared.waiting.queues);
    let before = queues.count();
    let now = shared.now();
    for topic in &mut queues.topics {
        find_topic(shared, guarded, topic);
    }
    let (wants_memory, more) = append_some(shared, guarded, &mut queues.topics);
    let max_ms = shared.config.max_block_ms;
    let mut next_ms = if more { 0 } else { i64::MAX };
    for topic in &mut queues.topics {
        // Records of a known topic that were not reached are tried again at once, so they do not fail here.
        if more && topic.id.is_some() {
            continue;
        }
        while let Some(first) = topic.records.front() {
            let waited = now.saturating_sub(first.since_ms);
            if waited < max_ms {
                next_ms = next_ms.min(max_ms.saturating_sub(waited));
                break;
            }
            let error = match topic.id {
                Some(_) => exhausted(&shared.config, waited),
                None => no_metadata(&guarded.metadata, &topic.name, waited),
            };
            fail_first(shared, guarded, topic, &error);
        }
    }
    queues.topics.retain(|topic| !topic.records.is_empty());
    note_memory_waiter(guarded, &mut queues, wants_memory);
    let left = queues.count();
    shared.waiting.count.store(left, Ordering::Release);
    if left < before {
        shared.signal.notify();
    }
    (left < before, next_ms)
}

/// Fails every record that waits.
pub(crate) fn fail_waiting(shared: &Shared, guarded: &mut Guarded, error: &ClientError) {
    if shared.waiting.is_empty() {
        return;
    }
    let mut queues = lock(&shared.waiting.queues);
    for mut topic in std::mem::take(&mut queues.topics) {
        fail_topic(shared, guarded, &mut topic, error);
    }
    note_memory_waiter(guarded, &mut queues, false);
    shared.waiting.count.store(0, Ordering::Release);
    shared.signal.notify();
}

/// A waiter makes everything sendable.
fn note_memory_waiter(guarded: &mut Guarded, queues: &mut Queues, wants_memory: bool) {
    let waiters = &mut guarded.accumulator.memory_waiters;
    match (queues.wants_memory, wants_memory) {
        (false, true) => *waiters += 1,
        (true, false) => *waiters = waiters.saturating_sub(1),
        _ => {}
    }
    queues.wants_memory = wants_memory;
}

/// Requests the topic's metadata if necessary. Its records fail if the topic is refused or if no transaction is open for them.
fn find_topic(shared: &Shared, guarded: &mut Guarded, topic: &mut WaitingTopic) {
    let metadata = &guarded.metadata;
    let lookup = topic.lookup.get_or_insert_with(|| Lookup::new(metadata));
    let found = guarded
        .check_transaction()
        .and_then(|()| look_up(&mut guarded.metadata, &topic.name, lookup));
    match found {
        Ok(id) => topic.id = id,
        Err(error) => fail_topic(shared, guarded, topic, &error),
    }
}

/// Appends what can be appended, in the order of the sends. Returns whether memory is short, and whether there may be more to append.
fn append_some(shared: &Shared, guarded: &mut Guarded, topics: &mut [WaitingTopic]) -> (bool, bool) {
    for _ in 0..AT_ONCE {
        let known = topics.iter_mut().filter_map(|topic| {
            let (first, id) = (topic.records.front()?, topic.id?);
            Some((first.serial, id, topic))
        });
        let Some((_, id, topic)) = known.min_by_key(|(serial, ..)| *serial) else {
            return (false, false);
        };
        let first = topic.records.front();
        match first.map_or(Ok(false), |first| append_waiting(shared, guarded, id, first)) {
            Ok(true) => drop(topic.records.pop_front()),
            Ok(false) => return (true, false),
            Err(error) => fail_first(shared, guarded, topic, &error),
        }
    }
    (false, true)
}

/// Returns false if there is no memory for it now.
fn append_waiting(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    record: &WaitingRecord,
) -> Result<bool, ClientError> {
    let headers = record.headers.iter().map(|(key, value)| Header {
        key,
        value: value.as_deref(),
    });
    let headers: Vec<Header<'_>> = headers.collect();
    let row = Row {
        partition: record.partition,
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    };
    let appended = append(shared, guarded, topic, &row)?;
    if let Some(id) = appended {
        let placed = guarded.accumulator.future_of_last(id, record.timestamp, None);
        record.result.continue_as(&placed);
    }
    Ok(appended.is_some())
}

fn fail_topic(shared: &Shared, guarded: &mut Guarded, topic: &mut WaitingTopic, error: &ClientError) {
    while !topic.records.is_empty() {
        fail_first(shared, guarded, topic, error);
    }
}

/// Only its future has the error: its transaction must not be committed without it, whatever the failure.
fn fail_first(shared: &Shared, guarded: &mut Guarded, topic: &mut WaitingTopic, error: &ClientError) {
    if let Some(record) = topic.records.pop_front() {
        send_failed(shared, guarded, error);
        if !is_on_the_future(error)
            && let Some(transactions) = guarded.transactions()
        {
            transactions.batch_failed(error.clone());
        }
        record.result.failed(error);
    }
}
