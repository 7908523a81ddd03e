//! The users' side: from a record to a batch of the accumulator. Kafka: `KafkaProducer#doSend`.

mod columns;
pub(crate) mod waiting;

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::Header;
use fletchlog_records::batch_builder::estimate_size_upper_bound;

use super::ProducerRecord;
use super::core::{Append, Core, Row};
use super::future::{OnDecided, RecordFuture, Signal};
use super::metadata::TopicId;
use super::producer_batch::ProducerBatch;
use super::shared::{Guarded, Pause, Shared};
use crate::ClientError;
pub(crate) use columns::send_columns;

/// Most bytes that the overhead of a record without headers can add to key and value: 61 + 21 and two lengths of 5 and a
/// header count of 1.
const MAX_OVERHEAD: usize = 61 + 21 + 5 + 5 + 1;

pub(crate) fn closed(core: &Core) -> Option<ClientError> {
    if let Some(dead) = &core.dead {
        return Some(dead.clone());
    }
    if core.closing || core.closed {
        return Some(ClientError::Closed(
            "the producer is closed; make a new one to send more".to_owned(),
        ));
    }
    None
}

/// Runs `attempt` under the lock until it yields a value, waiting for the sender in between, at most max.block.ms in all
/// (counted from `start`); `late` is the error after that.
pub(crate) fn until<T>(
    shared: &Shared,
    pause: &mut dyn Pause,
    start: i64,
    max_ms: i64,
    mut attempt: impl FnMut(&mut Guarded) -> Result<Option<T>, ClientError>,
    late: impl Fn(i64) -> ClientError,
) -> Result<T, ClientError> {
    loop {
        let (seen, now) = {
            let mut guard = shared.lock();
            if let Some(value) = attempt(&mut guard)? {
                return Ok(value);
            }
            shared.wake_sender();
            (guard.progress(), guard.core.now())
        };
        let waited = now.saturating_sub(start);
        if waited >= max_ms {
            return Err(late(waited));
        }
        pause.pause(shared, seen, max_ms.saturating_sub(waited))?;
    }
}

/// State of one wait for a topic's metadata.
pub(crate) struct Lookup {
    /// The metadata was requested.
    asked: bool,
    /// Number of failures that no retry fixes, when the wait began.
    failures: u64,
}

/// The topic's number if its metadata has arrived; requests it otherwise. Kafka: `waitOnMetadata`. Unlike in Kafka, a topic that a broker
/// in this process reports as unknown is an error at once, not after max.block.ms.
fn look_up(core: &mut Core, name: &str, lookup: &mut Lookup) -> Result<Option<TopicId>, ClientError> {
    if let (count, Some(error)) = &core.fatal_count_and_last
        && *count > lookup.failures
    {
        return Err(error.clone());
    }
    let asked = std::mem::replace(&mut lookup.asked, true);
    let Some(id) = core.metadata.topic_id(name) else {
        core.metadata.request_topic(name);
        return Ok(None);
    };
    let info = core.metadata.topic(id);
    if !info.partitions.is_empty() {
        return Ok(Some(id));
    }
    match info.answer {
        Some(ErrorCode::LEADER_NOT_AVAILABLE) => core.metadata.request_update(),
        // Another node may have created it a moment ago. Kafka: `KafkaProducer#waitOnMetadata`.
        Some(code) if asked && core.metadata.is_remote && code.is_retriable() => core.metadata.request_update(),
        Some(code) if asked && code != ErrorCode::NONE => return Err(no_such_topic(name, code)),
        Some(_) if !asked => drop(core.metadata.request_topic(name)),
        _ => {}
    }
    Ok(None)
}

fn no_metadata(core: &Core, name: &str, waited: i64) -> ClientError {
    let unreachable = core.unreachable.as_deref();
    let why = unreachable.unwrap_or("does the topic exist, and does the broker answer?");
    ClientError::Timeout(format!(
        "no metadata for topic {name} after {waited} ms (max.block.ms): {why}"
    ))
}

/// The topic's number, waiting for its metadata if need be.
pub(crate) fn topic(shared: &Shared, pause: &mut dyn Pause, name: &str) -> Result<TopicId, ClientError> {
    let (start, max_ms, failures) = {
        let guard = shared.lock();
        let core = &guard.core;
        (core.now(), core.config.max_block_ms, core.fatal_count_and_last.0)
    };
    let mut lookup = Lookup { asked: false, failures };
    until(
        shared,
        pause,
        start,
        max_ms,
        |guard| match closed(&guard.core) {
            Some(error) => Err(error),
            None => look_up(&mut guard.core, name, &mut lookup),
        },
        |waited| no_metadata(&shared.lock().core, name, waited),
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

fn check_partition(core: &Core, topic: TopicId, partition: Option<i32>) -> Result<(), ClientError> {
    let Some(partition) = partition else { return Ok(()) };
    let info = core.metadata.topic(topic);
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

fn check_timestamp(timestamp: i64) -> Result<(), ClientError> {
    if timestamp < 0 {
        return Err(ClientError::IllegalArgument(format!(
            "timestamp {timestamp} is negative; give milliseconds since 1970, or none for now"
        )));
    }
    Ok(())
}

/// Kafka: `ensureValidRecordSize`.
fn check_size(core: &Core, row: &Row<'_>) -> Result<(), ClientError> {
    let (key, value) = (row.key.map(<[u8]>::len), row.value.map(<[u8]>::len));
    let lengths = key.unwrap_or(0).saturating_add(value.unwrap_or(0));
    let (max, memory) = (core.config.max_request_size, core.config.buffer_memory);
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

fn exhausted(core_memory: usize, waited: i64) -> ClientError {
    ClientError::BufferExhausted(format!(
        "no room for the record after {waited} ms (max.block.ms): buffer.memory ({core_memory} bytes) is full of batches that the broker has not acknowledged"
    ))
}

/// Appends one row and wakes the sender if necessary; `None` if there is no memory for it now. Kafka: `KafkaProducer#doSend`.
fn append_now<T>(
    shared: &Shared,
    guard: &mut Guarded,
    topic: TopicId,
    row: &Row<'_>,
    then: impl FnOnce(&mut ProducerBatch, &Arc<Signal>) -> T,
) -> Option<T> {
    let core = &mut guard.core;
    let Append::Done(id) = core.append(topic, row) else {
        return None;
    };
    let batch = &mut core.accumulator.batches[id];
    let (partition, is_first) = (batch.partition, batch.count() == 1);
    let value = then(batch, &core.signal);
    if is_first || core.accumulator.is_sendable_now(partition) {
        shared.wake_sender();
    }
    Some(value)
}

/// Appends one row, waiting for memory. `then` runs before the lock is released.
fn append<T>(
    shared: &Shared,
    pause: &mut dyn Pause,
    topic: TopicId,
    row: &Row<'_>,
    start: i64,
    mut then: impl FnMut(&mut ProducerBatch, &Arc<Signal>) -> T,
) -> Result<T, ClientError> {
    let (max_ms, memory) = {
        let guard = shared.lock();
        (guard.core.config.max_block_ms, guard.core.config.buffer_memory)
    };
    let mut waiting = false;
    let result = until(
        shared,
        pause,
        start,
        max_ms,
        |guard| {
            if let Some(error) = closed(&guard.core) {
                return Err(error);
            }
            guard.core.check_ready_for_send()?;
            let appended = append_now(shared, guard, topic, row, &mut then);
            // A waiter makes everything sendable.
            if appended.is_none() && !waiting {
                waiting = true;
                guard.core.accumulator.memory_waiters += 1;
            }
            Ok(appended)
        },
        |waited| exhausted(memory, waited),
    );
    if waiting {
        let accumulator = &mut shared.lock().core.accumulator;
        accumulator.memory_waiters = accumulator.memory_waiters.saturating_sub(1);
    }
    result
}

/// The row of a record; an error if its partition or timestamp is invalid.
fn row_of<'a>(
    core: &Core,
    topic: TopicId,
    record: &ProducerRecord<'a>,
    headers: &'a [Header<'a>],
) -> Result<Row<'a>, ClientError> {
    check_partition(core, topic, record.partition)?;
    if let Some(timestamp) = record.timestamp {
        check_timestamp(timestamp)?;
    }
    Ok(Row {
        partition: record.partition,
        timestamp: record.timestamp.unwrap_or_else(|| core.clock.now_ms()),
        key: record.key,
        value: record.value,
        headers,
    })
}

fn headers_of<'a>(record: &ProducerRecord<'a>) -> Vec<Header<'a>> {
    let headers = record.headers.iter().map(|&(key, value)| Header { key, value });
    headers.collect()
}

/// Kafka: `KafkaProducer#send`. Failures that Java puts on the future are on the future; wrong arguments, unknown topics
/// and interruption are errors of the call.
pub(crate) fn send(
    shared: &Shared,
    pause: &mut dyn Pause,
    record: &ProducerRecord<'_>,
    mut on_decided: Option<OnDecided>,
) -> Result<RecordFuture, ClientError> {
    shared.lock().core.check_ready_for_send()?;
    waiting::after_waiting(shared, pause, Some(record.topic))?;
    let topic = topic(shared, pause, record.topic)?;
    let headers = headers_of(record);
    let (row, start, sized) = {
        let guard = shared.lock();
        let row = row_of(&guard.core, topic, record, &headers)?;
        (row, guard.core.now(), check_size(&guard.core, &row))
    };
    let result = sized.and_then(|()| {
        append(shared, pause, topic, &row, start, |batch, signal| {
            batch.future_of_last(signal, row.timestamp, on_decided.take())
        })
    });
    match result {
        Err(error @ (ClientError::RecordTooLarge(_) | ClientError::BufferExhausted(_) | ClientError::Timeout(_))) => {
            let core = &mut shared.lock().core;
            Ok(core.failed_record(row.timestamp, on_decided, &error))
        }
        other => other,
    }
}

/// Queues one record without waiting. Returns `None`, and queues nothing, if the lock is busy, if the record would wait for metadata,
/// memory or an earlier record, or if it cannot be queued. Then [`send`] or [`send_columns`] waits or returns the error.
pub(crate) fn try_queue<T>(
    shared: &Shared,
    record: &ProducerRecord<'_>,
    then: impl FnOnce(&mut ProducerBatch, &Arc<Signal>, i64) -> T,
) -> Option<T> {
    let mut guard = shared.lock_soon()?;
    let core = &guard.core;
    if closed(core).is_some() || core.check_ready_for_send().is_err() || shared.waiting.has(record.topic) {
        return None;
    }
    let topic = core.metadata.topic_id(record.topic)?;
    if core.metadata.topic(topic).partitions.is_empty() {
        return None;
    }
    let headers = headers_of(record);
    let row = row_of(core, topic, record, &headers).ok()?;
    check_size(core, &row).ok()?;
    append_now(shared, &mut guard, topic, &row, |batch, signal| {
        then(batch, signal, row.timestamp)
    })
}

/// Makes everything queued sendable and waits until it is decided. The first failure of a `send_columns` row since the last
/// flush is the error.
pub(crate) fn flush(shared: &Shared, pause: &mut dyn Pause) -> Result<(), ClientError> {
    shared.lock().core.accumulator.flushes += 1;
    shared.wake_sender();
    let waited = waiting::after_waiting(shared, pause, None).and_then(|()| settle(shared, pause));
    let core = &mut shared.lock().core;
    core.accumulator.flushes = core.accumulator.flushes.saturating_sub(1);
    waited?;
    core.run_failure.take().map_or(Ok(()), Err)
}

/// Waits until every batch that exists now is decided.
fn settle(shared: &Shared, pause: &mut dyn Pause) -> Result<(), ClientError> {
    let mark = shared.lock().core.accumulator.serial_mark();
    loop {
        let seen = {
            let guard = shared.lock();
            if guard.core.accumulator.all_decided_below(mark) {
                return Ok(());
            }
            guard.progress()
        };
        pause.settle(shared, mark, seen, i64::MAX)?;
    }
}
