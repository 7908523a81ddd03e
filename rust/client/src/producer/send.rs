//! The users' side: from a record to a batch of the accumulator. Kafka: `KafkaProducer#doSend`.

mod columns;
pub(crate) mod waiting;

use fletchlog_api::ErrorCode;
use fletchlog_records::Header;
use fletchlog_records::batch_builder::estimate_size_upper_bound;

use super::ProducerRecord;
use super::config::ProducerConfig;
use super::future::{BatchResult, OnDecided, Place, RecordFuture};
use super::metadata::{ProducerMetadata, TopicId, TopicInfo};
use super::producer_batch::BatchId;
use super::record_accumulator::{RecordAccumulator, Row};
use super::shared::{Guarded, Shared};
use super::waiter::Waiter;
use crate::ClientError;
pub(crate) use columns::send_columns;

/// Most bytes that the overhead of a record without headers can add to key and value: 61 + 21 and two lengths of 5 and a
/// header count of 1.
const MAX_OVERHEAD: usize = 61 + 21 + 5 + 5 + 1;

/// State of one wait for a topic's metadata.
pub(crate) struct Lookup {
    /// The metadata was requested.
    asked: bool,
    /// Number of failures that no retry fixes, when the wait began.
    failures: u64,
}

impl Lookup {
    fn new(metadata: &ProducerMetadata) -> Self {
        Self {
            asked: false,
            failures: metadata.fatal_count(),
        }
    }
}

/// The topic's number if its metadata has arrived; requests it otherwise. Kafka: `waitOnMetadata`. Unlike in Kafka, a topic that a broker
/// in this process reports as unknown is an error at once, not after max.block.ms.
fn look_up(metadata: &mut ProducerMetadata, name: &str, lookup: &mut Lookup) -> Result<Option<TopicId>, ClientError> {
    metadata.check_fatal_since(lookup.failures)?;
    let asked = std::mem::replace(&mut lookup.asked, true);
    let Some(id) = metadata.topic_id(name) else {
        metadata.request_topic(name);
        return Ok(None);
    };
    let info = metadata.topic(id);
    if !info.partitions.is_empty() {
        return Ok(Some(id));
    }
    match info.answer {
        Some(ErrorCode::LEADER_NOT_AVAILABLE) => metadata.request_update(),
        // Another node may have created it a moment ago. Kafka: `KafkaProducer#waitOnMetadata`.
        Some(code) if asked && metadata.is_remote && code.is_retriable() => metadata.request_update(),
        Some(code) if asked && code != ErrorCode::NONE => return Err(no_such_topic(name, code)),
        Some(_) if !asked => drop(metadata.request_topic(name)),
        _ => {}
    }
    Ok(None)
}

fn no_metadata(metadata: &ProducerMetadata, name: &str, waited: i64) -> ClientError {
    let unreachable = metadata.unreachable.as_deref();
    let why = unreachable.unwrap_or("does the topic exist, and does the broker answer?");
    ClientError::Timeout(format!(
        "no metadata for topic {name} after {waited} ms (max.block.ms): {why}"
    ))
}

/// The topic's number, waiting for its metadata if need be.
pub(crate) fn topic(waiter: &mut Waiter<'_, '_>, name: &str) -> Result<TopicId, ClientError> {
    let shared = waiter.shared;
    let mut lookup = Lookup::new(&waiter.lock()?.metadata);
    waiter.until(
        shared.config.max_block_ms,
        |guarded| {
            guarded.check_open()?;
            look_up(&mut guarded.metadata, name, &mut lookup)
        },
        |waited| no_metadata(&shared.lock().metadata, name, waited),
    )
}

fn no_such_topic(name: &str, code: ErrorCode) -> ClientError {
    let hint = match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "; create it first with create_topic",
        ErrorCode::INVALID_TOPIC_EXCEPTION => "; use letters, digits, '.', '_' and '-', at most 249 of them",
        _ => "",
    };
    ClientError::Kafka {
        code,
        message: format!("cannot send to topic `{name}`: {}{hint}", code.message()),
    }
}

fn check_partition(info: &TopicInfo, partition: Option<i32>) -> Result<(), ClientError> {
    let Some(partition) = partition else { return Ok(()) };
    if partition < 0 {
        return Err(ClientError::IllegalArgument(format!(
            "partition {partition} is negative; leave it out to let the key decide"
        )));
    }
    if partition >= info.count() {
        return Err(ClientError::IllegalArgument(format!(
            "topic {} has no partition {partition}: it has {}, numbered from 0",
            info.name,
            info.count()
        )));
    }
    Ok(())
}

/// Most bytes of the key and the value of a record without headers that need no further check of its size.
fn unchecked_size(config: &ProducerConfig) -> usize {
    config
        .max_request_size
        .min(config.buffer_memory)
        .saturating_sub(MAX_OVERHEAD)
}

/// Kafka: `ensureValidRecordSize`.
fn check_size(config: &ProducerConfig, row: &Row<'_>) -> Result<(), ClientError> {
    let (key, value) = (row.key.map(<[u8]>::len), row.value.map(<[u8]>::len));
    let lengths = key.unwrap_or(0).saturating_add(value.unwrap_or(0));
    let (max, memory) = (config.max_request_size, config.buffer_memory);
    if row.headers.is_empty() && lengths.saturating_add(MAX_OVERHEAD) <= max.min(memory) {
        return Ok(());
    }
    let headers = row.headers.iter().fold(0usize, |sum, h| {
        sum.saturating_add(h.key.len())
            .saturating_add(h.value.map_or(0, <[u8]>::len))
            .saturating_add(10)
    });
    // Lengths beyond 31 bits cannot be encoded at all; max.request.size is below that.
    let size = if lengths.saturating_add(headers) > max {
        lengths.saturating_add(headers)
    } else {
        estimate_size_upper_bound(key, value, row.headers)
    };
    if size > max {
        return Err(ClientError::RecordTooLarge(format!(
            "the record needs up to {size} bytes, more than max.request.size ({max}): split it or raise max.request.size"
        )));
    }
    if size > memory {
        return Err(ClientError::RecordTooLarge(format!(
            "the record needs up to {size} bytes, more than buffer.memory ({memory}): raise buffer.memory"
        )));
    }
    Ok(())
}

fn exhausted(config: &ProducerConfig, waited: i64) -> ClientError {
    let memory = config.buffer_memory;
    ClientError::BufferExhausted(format!(
        "no room for the record after {waited} ms (max.block.ms): buffer.memory ({memory} bytes) is full of batches that the broker has not acknowledged"
    ))
}

/// Puts one row into a batch; `None` if there is no memory for it now. This is the only way of a row: with and without a future, of a caller
/// that waits and of one that does not.
fn append(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    row: &Row<'_>,
) -> Result<Option<BatchId>, ClientError> {
    check_partition(guarded.metadata.topic(topic), row.partition)?;
    check_size(&shared.config, row)?;
    let Some(id) = guarded.accumulator.append(&guarded.metadata, topic, row) else {
        return Ok(None);
    };
    let batch = &guarded.accumulator.batches[id];
    let (partition, is_new) = (batch.partition, batch.count() == 1);
    // A partition's first record in a transaction always opens a batch.
    if is_new && let Some(transactions) = guarded.transactions() {
        transactions.maybe_add_partition(partition);
    }
    Ok(Some(id))
}

/// As [`append`], if the producer is open and in a transaction if it needs one; wakes the sender if necessary. Kafka:
/// `KafkaProducer#doSend`.
fn do_send(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    row: &Row<'_>,
) -> Result<Option<BatchId>, ClientError> {
    guarded.check_send()?;
    let appended = append(shared, guarded, topic, row)?;
    if appended.is_some_and(|id| guarded.accumulator.is_sendable_now(id)) {
        shared.wake_sender();
    }
    Ok(appended)
}

/// As [`do_send`], waiting for memory. `then` runs before the lock is released.
fn send_when_room<T>(
    waiter: &mut Waiter<'_, '_>,
    topic: TopicId,
    row: &Row<'_>,
    mut then: impl FnMut(&mut RecordAccumulator, BatchId) -> T,
) -> Result<T, ClientError> {
    let (shared, mut waiting) = (waiter.shared, false);
    let result = waiter.until(
        shared.config.max_block_ms,
        |guarded| {
            let appended = do_send(shared, guarded, topic, row)?;
            // A waiter makes everything sendable.
            if appended.is_none() && !waiting {
                waiting = true;
                guarded.accumulator.memory_waiters += 1;
            }
            Ok(appended.map(|id| then(&mut guarded.accumulator, id)))
        },
        |waited| exhausted(&shared.config, waited),
    );
    if waiting {
        let accumulator = &mut shared.lock().accumulator;
        accumulator.memory_waiters = accumulator.memory_waiters.saturating_sub(1);
    }
    result
}

/// The row of a record; an error if its timestamp is invalid.
fn row_of<'a>(shared: &Shared, record: &ProducerRecord<'a>, headers: &'a [Header<'a>]) -> Result<Row<'a>, ClientError> {
    if let Some(timestamp @ ..0) = record.timestamp {
        return Err(ClientError::IllegalArgument(format!(
            "timestamp {timestamp} is negative; give milliseconds since 1970, or none for now"
        )));
    }
    Ok(Row {
        partition: record.partition,
        timestamp: record.timestamp.unwrap_or_else(|| shared.clock.now_ms()),
        key: record.key,
        value: record.value,
        headers,
    })
}

fn headers_of<'a>(headers: &[(&'a str, Option<&'a [u8]>)]) -> Vec<Header<'a>> {
    headers.iter().map(|&(key, value)| Header { key, value }).collect()
}

/// Whether Java reports this failure of a send on the future. Kafka: `KafkaProducer#doSend`, `ApiException`.
fn is_on_the_future(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::RecordTooLarge(_) | ClientError::BufferExhausted(_) | ClientError::Timeout(_)
    )
}

/// A record could not be queued: its transaction must not be committed without it.
fn send_failed(shared: &Shared, guarded: &mut Guarded, error: &ClientError) {
    if is_on_the_future(error)
        && shared.config.release.failed_send_aborts
        && let Some(transactions) = guarded.transactions()
    {
        transactions.batch_failed(error.clone());
    }
}

/// The future of a record that never reached a batch.
fn failed_future(shared: &Shared, timestamp: i64, on_decided: Option<OnDecided>, error: &ClientError) -> RecordFuture {
    send_failed(shared, &mut shared.lock(), error);
    let result = BatchResult::new(&shared.signal);
    let future = RecordFuture::new(result.clone(), Place { index: 0, timestamp }, on_decided);
    result.failed(error);
    future
}

/// Kafka: `KafkaProducer#send`. Failures that Java puts on the future are on the future; wrong arguments, unknown topics
/// and interruption are errors of the call.
pub(crate) fn send(
    waiter: &mut Waiter<'_, '_>,
    record: &ProducerRecord<'_>,
    mut on_decided: Option<OnDecided>,
) -> Result<RecordFuture, ClientError> {
    let shared = waiter.shared;
    waiter.lock()?.check_transaction()?;
    waiting::after_waiting(waiter, Some(record.topic), i64::MAX)?;
    let topic = topic(waiter, record.topic)?;
    let headers = headers_of(record.headers);
    let row = row_of(shared, record, &headers)?;
    let timestamp = row.timestamp;
    let sent = send_when_room(waiter, topic, &row, |accumulator, id| {
        accumulator.future_of_last(id, timestamp, on_decided.take())
    });
    sent.or_else(|error| match is_on_the_future(&error) {
        true => Ok(failed_future(shared, timestamp, on_decided, &error)),
        false => Err(error),
    })
}

/// Queues one record without waiting. Returns `None`, and queues nothing, if the lock is busy, if the record would wait for metadata,
/// memory or an earlier record, or if it cannot be queued. Then [`send`] or [`send_columns`] waits or returns the error.
pub(crate) fn try_queue<T>(
    shared: &Shared,
    record: &ProducerRecord<'_>,
    then: impl FnOnce(&mut RecordAccumulator, BatchId, i64) -> T,
) -> Option<T> {
    let mut guard = shared.lock_soon()?;
    if shared.waiting.has(record.topic) {
        return None;
    }
    let topic = guard.metadata.topic_id(record.topic)?;
    if guard.metadata.topic(topic).partitions.is_empty() {
        return None;
    }
    let headers = headers_of(record.headers);
    let row = row_of(shared, record, &headers).ok()?;
    let id = do_send(shared, &mut guard, topic, &row).ok()??;
    Some(then(&mut guard.accumulator, id, row.timestamp))
}

/// Makes everything queued sendable and waits until it is decided, at most `timeout_ms`. The first failure of a `send_columns` row since the
/// last flush is the error.
pub(crate) fn flush(waiter: &mut Waiter<'_, '_>, timeout_ms: Option<i64>) -> Result<(), ClientError> {
    let shared = waiter.shared;
    let until = timeout_ms.map_or(i64::MAX, |ms| shared.now().saturating_add(ms));
    waiter.lock()?.accumulator.flushes += 1;
    shared.wake_sender();
    let waited = waiting::after_waiting(waiter, None, until).and_then(|()| settle(waiter, until));
    let accumulator = &mut shared.lock().accumulator;
    accumulator.flushes = accumulator.flushes.saturating_sub(1);
    accumulator.unseen.report();
    match (waited, timeout_ms) {
        (Err(ClientError::Timeout(_)), Some(ms)) => Err(ClientError::Timeout(format!(
            "not everything is decided after {ms} ms: the records stay queued, and the producer goes on sending them"
        ))),
        (waited, _) => waited.and_then(|()| accumulator.run_failure.take().map_or(Ok(()), Err)),
    }
}

/// Waits until every batch that exists now is decided; `Timeout` at the time `until`.
fn settle(waiter: &mut Waiter<'_, '_>, until: i64) -> Result<(), ClientError> {
    let shared = waiter.shared;
    let mark = waiter.lock()?.accumulator.serial_mark();
    loop {
        let seen = {
            let guard = waiter.lock()?;
            if guard.accumulator.all_decided_below(mark) {
                return Ok(());
            }
            guard.progress()
        };
        let left = until.saturating_sub(shared.now());
        if left <= 0 {
            return Err(ClientError::Timeout(String::new()));
        }
        waiter.settle(mark, seen, left)?;
    }
}
