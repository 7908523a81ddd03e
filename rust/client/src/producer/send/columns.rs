//! Many rows at once: the lock is taken per chunk, partitions are found per run of rows, and no row gets a future.

use fletchlog_records::{Compression, Header};

use super::{MAX_OVERHEAD, append, check_partition, check_size, check_timestamp, closed, topic};
use crate::ClientError;
use crate::producer::RecordColumns;
use crate::producer::core::{Append, Core, Row};
use crate::producer::metadata::TopicId;
use crate::producer::partitioner::partition_for_key;
use crate::producer::shared::{Pause, Shared};

/// Rows appended under one hold of the lock: 18 batches of ten-byte records, 0.3 ms of work, so that neither the sender
/// nor other threads starve and the sender is woken once per chunk, not once per batch.
const ROWS_PER_LOCK: usize = 16_384;

/// Queues rows in order with the rules of `send` for each; rows before the one that fails stay queued. An error counts rows from
/// `first`.
pub(crate) fn send_columns<C: RecordColumns>(
    shared: &Shared,
    pause: &mut dyn Pause,
    name: &str,
    columns: &C,
    first: usize,
) -> Result<usize, ClientError> {
    if columns.is_empty() {
        return Ok(0);
    }
    shared.lock().core.check_ready_for_send()?;
    let topic = topic(shared, pause, name)?;
    let rows = columns.len();
    let max_block_ms = shared.lock().core.config.max_block_ms;
    let mut row = 0;
    let mut rested_at = None;
    while row < rows {
        let start = {
            let mut guard = shared.lock();
            let core = &mut guard.core;
            if let Some(error) = closed(core) {
                return Err(error);
            }
            core.check_ready_for_send()
                .map_err(|error| in_row(error, first + row))?;
            let end = rows.min(row.saturating_add(ROWS_PER_LOCK));
            let before = row;
            let stopped = append_rows(core, topic, columns, &mut row, end);
            let start = core.now();
            if row > before {
                shared.wake_sender_locked(&mut guard);
            }
            if let Err(error) = stopped {
                guard.core.send_failed(&error);
                return Err(in_row(error, first + row));
            }
            (row < end).then_some(start)
        };
        pack(shared);
        let Some(start) = start else {
            // The lock is not fair: without this the sender would wait until the memory is used up.
            std::thread::yield_now();
            continue;
        };
        // No memory: let the sender free some.
        if rested_at != Some(row) {
            rested_at = Some(row);
            pause.rest(shared, max_block_ms)?;
            continue;
        }
        // Still none: wait for it with this one row.
        let mut buffer = Vec::new();
        columns.headers(row, &mut buffer);
        let headers: Vec<Header<'_>> = buffer.iter().map(|&(key, value)| Header { key, value }).collect();
        let timestamp = columns
            .timestamp(row)
            .unwrap_or_else(|| shared.lock().core.clock.now_ms());
        let one = Row {
            partition: columns.partition(row),
            timestamp,
            key: columns.key(row),
            value: columns.value(row),
            headers: &headers,
        };
        append(shared, pause, topic, &one, start, |batch, _| batch.add_run(1)).map_err(|error| {
            shared.lock().core.send_failed(&error);
            in_row(error, first + row)
        })?;
        row += 1;
    }
    Ok(rows)
}

/// Compresses full batches while the sender compresses and sends those in front of them.
fn pack(shared: &Shared) {
    let (config, mut unpacked) = {
        let core = &mut shared.lock().core;
        if core.config.compression == Compression::None {
            return;
        }
        (core.config.clone(), core.accumulator.take_unpacked_behind())
    };
    while let Some(mut batch) = unpacked {
        batch.pack(&config);
        let mut guard = shared.lock();
        guard.core.accumulator.put_packed(batch);
        shared.wake_sender_locked(&mut guard);
        unpacked = guard.core.accumulator.take_unpacked_behind();
    }
}

fn in_row(error: ClientError, row: usize) -> ClientError {
    let at = |text: String| format!("row {row}: {text}; the {row} rows before it are queued");
    match error {
        ClientError::IllegalArgument(text) => ClientError::IllegalArgument(at(text)),
        ClientError::RecordTooLarge(text) => ClientError::RecordTooLarge(at(text)),
        ClientError::BufferExhausted(text) => ClientError::BufferExhausted(at(text)),
        ClientError::Timeout(text) => ClientError::Timeout(at(text)),
        other => other,
    }
}

/// Appends rows until `end` or until memory is short; `row` moves on.
fn append_rows<C: RecordColumns>(
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
) -> Result<(), ClientError> {
    let wall = core.clock.now_ms();
    let plain = columns.no_headers();
    let mut names: Vec<(&str, Option<&[u8]>)> = Vec::new();
    let mut headers: Vec<Header<'_>> = Vec::new();
    while *row < end {
        if plain {
            append_run(core, topic, columns, row, end, wall)?;
            if *row == end {
                break;
            }
        } else {
            names.clear();
            headers.clear();
            columns.headers(*row, &mut names);
            headers.extend(names.iter().map(|&(key, value)| Header { key, value }));
        }
        let given = columns.timestamp(*row);
        let one = Row {
            partition: columns.partition(*row),
            timestamp: given.unwrap_or(wall),
            key: columns.key(*row),
            value: columns.value(*row),
            headers: &headers,
        };
        check_partition(core, topic, one.partition)?;
        check_timestamp(one.timestamp)?;
        check_size(core, &one)?;
        match core.append(topic, &one) {
            Append::Done(id) => {
                core.accumulator.batches[id].add_run(1);
                *row += 1;
            }
            Append::NoMemory => return Ok(()),
        }
    }
    Ok(())
}

/// The fast path: consecutive rows without headers that the same partition takes go into its last batch until one does
/// not fit (or needs a check); that row is left to the caller.
fn append_run<C: RecordColumns>(
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) -> Result<(), ClientError> {
    let explicit = columns.partition(*row);
    let free = core.is_free(explicit, columns.key(*row));
    if !free && explicit.is_none() {
        append_keyed(core, topic, columns, row, end, wall);
        return Ok(());
    }
    check_partition(core, topic, explicit)?;
    let partition = match explicit {
        Some(partition) => partition,
        None => core.sticky_partition(topic),
    };
    let id = core.partition_id(topic, partition);
    let ignore_keys = core.config.ignore_keys;
    let most = core
        .config
        .max_request_size
        .min(core.config.buffer_memory)
        .saturating_sub(MAX_OVERHEAD);
    // KIP-794 counts bytes and may leave the partition after any row: the loop ends where it would.
    let counted = free && core.config.release.built_in_partitioner;
    let (batch_size, produced) = (core.config.batch_size.max(1), core.produced(topic));
    let Some(batch) = core.accumulator.last_batch(id) else {
        return Ok(());
    };
    let mut taken = 0i32;
    let mut at = *row;
    let mut grown = 0;
    while at < end && taken < i32::MAX {
        let key = columns.key(at);
        let same = columns.partition(at) == explicit && (!free || key.is_none() || ignore_keys);
        let value = columns.value(at);
        let timestamp = columns.timestamp(at).unwrap_or(wall);
        let lengths = key.map_or(0, <[u8]>::len).saturating_add(value.map_or(0, <[u8]>::len));
        if !same || timestamp < 0 || lengths > most {
            break;
        }
        let Some(size) = batch.try_append(timestamp, key, value, &[]) else {
            break;
        };
        at += 1;
        taken += 1;
        grown += size;
        let bytes = produced.saturating_add(grown);
        if counted && bytes >= batch_size && (bytes >= batch_size.saturating_mul(2) || batch.is_full()) {
            break;
        }
    }
    batch.add_run(taken);
    *row = at;
    if counted && taken > 0 {
        core.note_appended(topic, id, grown);
    }
    Ok(())
}

/// The same for rows that their keys place: each goes to its own partition's last batch.
fn append_keyed<C: RecordColumns>(
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) {
    if core.config.round_robin {
        return;
    }
    let count = core.metadata.topic(topic).count();
    let most = core
        .config
        .max_request_size
        .min(core.config.buffer_memory)
        .saturating_sub(MAX_OVERHEAD);
    while *row < end {
        let (None, Some(key)) = (columns.partition(*row), columns.key(*row)) else {
            return;
        };
        let value = columns.value(*row);
        let timestamp = columns.timestamp(*row).unwrap_or(wall);
        if timestamp < 0 || key.len().saturating_add(value.map_or(0, <[u8]>::len)) > most {
            return;
        }
        let id = core.partition_id(topic, partition_for_key(key, count));
        let Some(batch) = core.accumulator.last_batch(id) else {
            return;
        };
        if batch.try_append(timestamp, Some(key), value, &[]).is_none() {
            return;
        }
        batch.add_run(1);
        *row += 1;
    }
}
