//! Many rows at once: partitions are found per run of rows, long runs are appended without the lock, and no row gets a future.

use fletchlog_records::{Compression, Header};

use super::waiting::after_waiting;
use super::{append, headers_of, send_failed, send_when_room, topic, unchecked_size};
use crate::ClientError;
use crate::producer::RecordColumns;
use crate::producer::record_accumulator::{LentRun, Rows};
use crate::producer::shared::{Guarded, Shared};
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
    shared.lock().check_transaction()?;
    after_waiting(waiter, Some(name))?;
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

/// Appends rows until they end or memory is short; `row` becomes the next one to append.
fn append_chunk<C: RecordColumns>(shared: &Shared, rows: &Rows<'_, C>, row: &mut usize) -> Result<(), ClientError> {
    let mut back: Option<Lent<'_>> = None;
    loop {
        let mut guard = shared.lock();
        let after_run = back.is_some();
        if let Some(mut lent) = back.take() {
            *row += lent.give_back(&mut guard);
        }
        guard.check_open()?;
        guard.check_transaction()?;
        let Some(run) = append_rows(shared, &mut guard, rows, row, after_run)? else {
            return Ok(());
        };
        drop(guard);
        let mut lent = Lent { shared, run: Some(run) };
        if let Some(run) = &mut lent.run {
            run.fill(rows, *row);
        }
        back = Some(lent);
    }
}

/// A run that this thread appends to a lent batch, without the lock.
struct Lent<'a> {
    shared: &'a Shared,
    /// `Some` until it is given back.
    run: Option<LentRun>,
}

impl Lent<'_> {
    /// Returns how many rows were appended.
    fn give_back(&mut self, guarded: &mut Guarded) -> usize {
        let run = self.run.take();
        run.map_or(0, |run| guarded.accumulator.end_run(&guarded.metadata, run))
    }
}

impl Drop for Lent<'_> {
    /// A panic must not leave a batch that can never be sent. Its last rows are sent like the earlier ones, but not reported as queued.
    fn drop(&mut self) {
        if self.run.is_some() {
            let shared = self.shared;
            self.give_back(&mut shared.lock());
            shared.wake_sender();
        }
    }
}

/// Appends rows until they end, memory is short, or a long run begins: the caller appends that to the batch that is lent for it.
/// `after_run`: a run has just ended at this row, so perhaps no open batch has room for it.
fn append_rows<C: RecordColumns>(
    shared: &Shared,
    guarded: &mut Guarded,
    rows: &Rows<'_, C>,
    row: &mut usize,
    mut after_run: bool,
) -> Result<Option<LentRun>, ClientError> {
    let plain = rows.columns.no_headers();
    let (mut buffer, mut headers) = (Vec::new(), Vec::new());
    while *row < rows.end {
        if plain && !std::mem::take(&mut after_run) {
            let lent = guarded.accumulator.append_run(&guarded.metadata, rows, row);
            if lent.is_some() || *row == rows.end {
                return Ok(lent);
            }
        }
        headers.clear();
        if !plain {
            rows.columns.headers(*row, &mut buffer);
            headers.extend(buffer.drain(..).map(|(key, value)| Header { key, value }));
        }
        let Some(id) = append(shared, guarded, rows.topic, &rows.row(*row, &headers))? else {
            return Ok(None);
        };
        guarded.accumulator.batches[id].add_run(1);
        *row += 1;
    }
    Ok(None)
}
