//! Many rows at once: partitions are found per run of rows, long runs are appended without the lock, and no row gets a future.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fletchlog_records::{Compression, Header};

use super::waiting::after_waiting;
use super::{append, headers_of, send_failed, send_when_room, topic, unchecked_size};
use crate::ClientError;
use crate::producer::RecordColumns;
use crate::producer::record_accumulator::Rows;
use crate::producer::shared::Shared;
use crate::producer::waiter::Waiter;

/// Rows between two wake-ups of the sender, and the most rows appended before the lock is released: 18 batches of ten-byte records, 0.3 ms
/// of work, so that neither the sender nor other threads starve and the sender is woken once per chunk, not once per batch.
const ROWS_PER_LOCK: usize = 16_384;
/// The same if batches are compressed: a few batches, which this thread compresses while their records are still in its cache.
const PACKED_ROWS_PER_LOCK: usize = 4_096;

/// Queues rows in order with the rules of `send` for each; rows before the one that fails stay queued. An error counts rows from
/// `first`.
pub(crate) fn send_columns<C: RecordColumns>(
    waiter: &mut Waiter<'_, '_>,
    name: &str,
    columns: &C,
    first: usize,
) -> Result<usize, ClientError> {
    if columns.is_empty() {
        return Ok(0);
    }
    let shared = waiter.shared;
    waiter.lock()?.check_transaction()?;
    after_waiting(waiter, Some(name), i64::MAX)?;
    let topic = topic(waiter, name)?;
    let most = unchecked_size(&shared.config);
    let chunk = match shared.config.compression {
        Compression::None => ROWS_PER_LOCK,
        _ => PACKED_ROWS_PER_LOCK,
    };
    let mut row = 0;
    let mut rested_at = None;
    while row < columns.len() {
        let rows = Rows {
            columns,
            topic,
            end: columns.len().min(row.saturating_add(chunk)),
            wall: shared.clock.now_ms(),
            most,
        };
        let appended = append_chunk(shared, &rows, &mut row);
        // Even without a new row: the sender skips a batch that is lent.
        shared.wake_sender();
        appended.map_err(|error| failed(shared, &error, first + row))?;
        pack(shared);
        if row == rows.end {
            // The lock is not fair: without this the sender would wait until the memory is used up.
            std::thread::yield_now();
            continue;
        }
        // No memory: let the sender free some.
        if rested_at != Some(row) {
            rested_at = Some(row);
            waiter.rest()?;
            continue;
        }
        // Still none: wait for it with this one row.
        let mut buffer = Vec::new();
        columns.headers(row, &mut buffer);
        let headers = headers_of(&buffer);
        let one = rows.row(row, &headers);
        let sent = send_when_room(waiter, topic, &one, |accumulator, id| {
            accumulator.batches[id].add_run(1);
        });
        sent.map_err(|error| failed(shared, &error, first + row))?;
        row += 1;
    }
    Ok(row)
}

/// Compresses full batches while the sender compresses and sends those in front of them.
fn pack(shared: &Shared) {
    if shared.config.compression == Compression::None {
        return;
    }
    let mut unpacked = shared.lock().accumulator.take_unpacked_behind();
    while let Some(mut batch) = unpacked {
        batch.pack(&shared.config);
        let accumulator = &mut shared.lock().accumulator;
        accumulator.give_back(batch);
        shared.wake_sender();
        unpacked = accumulator.take_unpacked_behind();
    }
}

/// The error of the call if this row cannot be queued.
fn failed(shared: &Shared, error: &ClientError, row: usize) -> ClientError {
    send_failed(shared, &mut shared.lock(), error);
    let at = |text: String| format!("row {row}: {text}; the {row} rows before it are queued");
    match error.clone() {
        ClientError::IllegalArgument(text) => ClientError::IllegalArgument(at(text)),
        ClientError::RecordTooLarge(text) => ClientError::RecordTooLarge(at(text)),
        ClientError::BufferExhausted(text) => ClientError::BufferExhausted(at(text)),
        ClientError::Timeout(text) => ClientError::Timeout(at(text)),
        other => other,
    }
}

/// Appends rows until they end or memory is short; `row` becomes the next one to append. A long run is appended to a lent batch, without the
/// lock.
fn append_chunk<C: RecordColumns>(shared: &Shared, rows: &Rows<'_, C>, row: &mut usize) -> Result<(), ClientError> {
    let plain = rows.columns.no_headers();
    let (mut buffer, mut headers) = (Vec::new(), Vec::new());
    // A run has just ended at this row, so perhaps no open batch has room for it.
    let mut after_run = false;
    let mut guard = shared.lock();
    guard.check_send()?;
    while *row < rows.end {
        let guarded = &mut *guard;
        if plain && !std::mem::take(&mut after_run) {
            if let Some(mut run) = guarded.accumulator.append_run(&guarded.metadata, rows, row) {
                drop(guard);
                let filled = catch_unwind(AssertUnwindSafe(|| run.fill(rows, *row)));
                guard = shared.lock();
                let guarded = &mut *guard;
                *row += guarded.accumulator.end_run(&guarded.metadata, run);
                if let Err(panic) = filled {
                    // The batch is not lost: the rows before the panic are sent, but not reported as queued.
                    drop(guard);
                    shared.wake_sender();
                    resume_unwind(panic);
                }
                guard.check_send()?;
                after_run = true;
                continue;
            }
            if *row == rows.end {
                break;
            }
        }
        headers.clear();
        if !plain {
            rows.columns.headers(*row, &mut buffer);
            headers.extend(buffer.drain(..).map(|(key, value)| Header { key, value }));
        }
        let Some(id) = append(shared, guarded, rows.topic, &rows.row(*row, &headers))? else {
            break;
        };
        guarded.accumulator.batches[id].add_run(1);
        *row += 1;
    }
    Ok(())
}
