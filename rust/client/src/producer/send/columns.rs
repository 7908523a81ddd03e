//! Many rows at once: partitions are found per run of rows, long runs are appended without the lock, and no row gets a future.

use fletchlog_records::{Compression, Header};

use super::waiting::after_waiting;
use super::{MAX_OVERHEAD, append, check_partition, headers_of, send_failed, send_when_room, topic};
use crate::ClientError;
use crate::producer::RecordColumns;
use crate::producer::config::ProducerConfig;
use crate::producer::metadata::{PartitionId, TopicId};
use crate::producer::partitioner::partition_for_key;
use crate::producer::producer_batch::{BatchId, Fill, Lent};
use crate::producer::record_accumulator::{Row, Target};
use crate::producer::shared::{Guarded, Pause, Shared};

/// Rows between two wake-ups of the sender, and the most rows appended before the lock is released: 18 batches of ten-byte records, 0.3 ms
/// of work, so that neither the sender nor other threads starve and the sender is woken once per chunk, not once per batch.
const ROWS_PER_LOCK: usize = 16_384;
/// The same if batches are compressed: a few batches, which this thread compresses while their records are still in its cache.
const PACKED_ROWS_PER_LOCK: usize = 4_096;
/// A shorter run is appended under the lock: taking the lock twice would cost as much.
const LONG_RUN: usize = 64;

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
    shared.lock().check_transaction()?;
    after_waiting(shared, pause, Some(name))?;
    let topic = topic(shared, pause, name)?;
    let rows = columns.len();
    let chunk = match shared.config.compression {
        Compression::None => ROWS_PER_LOCK,
        _ => PACKED_ROWS_PER_LOCK,
    };
    let mut row = 0;
    let mut rested_at = None;
    while row < rows {
        let end = rows.min(row.saturating_add(chunk));
        let appended = append_chunk(shared, topic, columns, &mut row, end);
        // Even without a new row: the sender skips a batch that is lent.
        shared.wake_sender();
        appended.map_err(|error| failed(shared, &error, first + row))?;
        pack(shared);
        if row == end {
            // The lock is not fair: without this the sender would wait until the memory is used up.
            std::thread::yield_now();
            continue;
        }
        // No memory: let the sender free some.
        if rested_at != Some(row) {
            rested_at = Some(row);
            pause.rest(shared, shared.config.max_block_ms)?;
            continue;
        }
        // Still none: wait for it with this one row.
        let mut buffer = Vec::new();
        columns.headers(row, &mut buffer);
        let headers = headers_of(&buffer);
        let one = Row {
            headers: &headers,
            ..row_of(columns, row, shared.clock.now_ms())
        };
        let sent = send_when_room(shared, pause, topic, &one, shared.now(), |accumulator, id| {
            accumulator.batches[id].add_run(1);
        });
        sent.map_err(|error| failed(shared, &error, first + row))?;
        row += 1;
    }
    Ok(rows)
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
        accumulator.put_packed(batch);
        shared.wake_sender();
        unpacked = accumulator.take_unpacked_behind();
    }
}

/// A row without headers.
#[inline]
fn row_of<C: RecordColumns>(columns: &C, row: usize, wall: i64) -> Row<'_> {
    Row {
        partition: columns.partition(row),
        timestamp: columns.timestamp(row).unwrap_or(wall),
        key: columns.key(row),
        value: columns.value(row),
        headers: &[],
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

/// Appends rows until `end` or until memory is short; `row` becomes the next one to append.
fn append_chunk<C: RecordColumns>(
    shared: &Shared,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
) -> Result<(), ClientError> {
    let mut back: Option<Loan<'_>> = None;
    loop {
        let mut guard = shared.lock();
        let after_run = back.is_some();
        if let Some(loan) = back.take() {
            loan.give_back(&mut guard, row);
        }
        guard.check_open()?;
        guard.check_transaction()?;
        let lent = append_rows(shared, &mut guard, topic, columns, row, end, after_run)?;
        drop(guard);
        let Some((run, batch, serial, lent)) = lent else {
            return Ok(());
        };
        let mut loan = Loan {
            shared,
            run,
            batch,
            serial,
            lent: Some(lent),
        };
        loan.fill(columns, *row, end);
        back = Some(loan);
    }
}

/// A batch that this thread appends to without the lock.
struct Loan<'a> {
    shared: &'a Shared,
    run: Run,
    batch: BatchId,
    serial: u64,
    /// `Some` until it is given back.
    lent: Option<Lent>,
}

impl Loan<'_> {
    fn fill<C: RecordColumns>(&mut self, columns: &C, row: usize, end: usize) {
        if let Some(lent) = &mut self.lent {
            self.run.fill(lent, columns, row, end);
        }
    }

    /// Moves `row` behind the appended rows. If the batch was decided meanwhile, `row` stays, so they are appended again.
    fn give_back(mut self, guarded: &mut Guarded, row: &mut usize) {
        if let Some(added) = self.put(guarded) {
            *row += added;
        }
    }

    fn put(&mut self, guarded: &mut Guarded) -> Option<usize> {
        let lent = self.lent.take()?;
        let (added, grown) = (lent.added, lent.grown);
        let batch = guarded.accumulator.batches.get_mut(self.batch);
        let batch = batch.filter(|batch| batch.serial == self.serial)?;
        batch.take_back(lent).then(|| self.run.note(guarded, added, grown))
    }
}

impl Drop for Loan<'_> {
    /// A panic must not leave a batch that can never be sent. Its last rows are sent like the earlier ones, but not reported as queued.
    fn drop(&mut self) {
        if self.lent.is_some() {
            let shared = self.shared;
            let mut guard = shared.lock();
            self.put(&mut guard);
            shared.wake_sender();
        }
    }
}

/// Appends rows until `end`, until memory is short, or until a long run begins: the caller appends that to the batch that is lent for it.
/// `after_run`: a run has just ended at this row, so perhaps no open batch has room for it.
fn append_rows<C: RecordColumns>(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    mut after_run: bool,
) -> Result<Option<(Run, BatchId, u64, Lent)>, ClientError> {
    let wall = shared.clock.now_ms();
    let plain = columns.no_headers();
    let mut names: Vec<(&str, Option<&[u8]>)> = Vec::new();
    let mut headers: Vec<Header<'_>> = Vec::new();
    while *row < end {
        if !plain {
            names.clear();
            headers.clear();
            columns.headers(*row, &mut names);
            headers.extend(names.iter().map(|&(key, value)| Header { key, value }));
        } else if !std::mem::take(&mut after_run) {
            if let Some(lent) = append_run(shared, guarded, topic, columns, row, end, wall)? {
                return Ok(Some(lent));
            }
            if *row == end {
                break;
            }
        }
        let one = Row {
            headers: &headers,
            ..row_of(columns, *row, wall)
        };
        let Some(id) = append(shared, guarded, topic, &one)? else {
            return Ok(None);
        };
        guarded.accumulator.batches[id].add_run(1);
        *row += 1;
    }
    Ok(None)
}

/// Consecutive rows without headers that go to the same partition, and what ends them.
struct Run {
    topic: TopicId,
    id: PartitionId,
    partition: i32,
    explicit: Option<i32>,
    /// The partitioner chooses the partition; rows have no key, or keys are ignored.
    free: bool,
    ignore_keys: bool,
    /// Most bytes of key and value that need no check.
    most: usize,
    wall: i64,
    /// KIP-794 counts bytes and may leave the partition after any row: the run ends at that row.
    counted: bool,
    batch_size: usize,
    produced: usize,
}

impl Run {
    #[inline]
    fn takes<C: RecordColumns>(&self, columns: &C, row: usize, key: Option<&[u8]>) -> bool {
        columns.partition(row) == self.explicit && (!self.free || key.is_none() || self.ignore_keys)
    }

    /// Guesses from two rows whether the run is long.
    fn is_long<C: RecordColumns>(&self, columns: &C, row: usize, end: usize) -> bool {
        end - row >= LONG_RUN
            && [row + 1, row + LONG_RUN - 1]
                .iter()
                .all(|&at| self.takes(columns, at, columns.key(at)))
    }

    /// Appends rows until one does not fit (or needs a check); returns their number, and the bytes by which the batch grew.
    fn fill<C: RecordColumns>(&self, batch: &mut impl Fill, columns: &C, row: usize, end: usize) -> (i32, usize) {
        let (mut taken, mut grown) = (0i32, 0);
        for at in row..end {
            let (key, value) = (columns.key(at), columns.value(at));
            let timestamp = columns.timestamp(at).unwrap_or(self.wall);
            let same = self.takes(columns, at, key);
            if !same || needs_check(key, value, self.most) || taken == i32::MAX {
                break;
            }
            let Some(size) = batch.push(timestamp, key, value) else {
                break;
            };
            taken += 1;
            grown += size;
            let bytes = self.produced.saturating_add(grown);
            let whole = self.batch_size;
            if self.counted && bytes >= whole && (bytes >= whole.saturating_mul(2) || batch.is_full()) {
                break;
            }
        }
        (taken, grown)
    }

    /// Reports the appended bytes to the partitioner, unless it has left the partition since. Returns the number of rows.
    fn note(&self, guarded: &mut Guarded, taken: i32, grown: usize) -> usize {
        if self.counted && taken > 0 && guarded.sticky_partition(self.topic) == self.partition {
            guarded.accumulator.note_appended(self.topic, self.id, grown);
        }
        usize::try_from(taken).unwrap_or(0)
    }
}

/// The fast path: appends consecutive rows without headers to the last batch of their partition until one does not fit (or needs a check);
/// the caller handles that row. For a long run it lends the batch instead.
fn append_run<C: RecordColumns>(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) -> Result<Option<(Run, BatchId, u64, Lent)>, ClientError> {
    let explicit = columns.partition(*row);
    let free = guarded.accumulator.target(1, explicit, columns.key(*row)) == Target::Sticky;
    let by_key = !free && explicit.is_none();
    let scattered = explicit.is_some() && *row + 1 < end && columns.partition(*row + 1) != explicit;
    if by_key || scattered {
        append_placed(shared, guarded, topic, columns, row, end, wall);
        return Ok(None);
    }
    check_partition(guarded.metadata.topic(topic), explicit)?;
    let partition = match explicit {
        Some(partition) => partition,
        None => guarded.sticky_partition(topic),
    };
    let run = Run {
        topic,
        id: guarded.metadata.topic(topic).id(partition),
        partition,
        explicit,
        free,
        ignore_keys: shared.config.ignore_keys,
        most: most(&shared.config),
        wall,
        counted: free && shared.config.release.built_in_partitioner,
        batch_size: shared.config.batch_size.max(1),
        produced: guarded.accumulator.produced(topic),
    };
    let Some(id) = guarded.accumulator.last_batch_id(run.id) else {
        return Ok(None);
    };
    let batch = &mut guarded.accumulator.batches[id];
    if run.is_long(columns, *row, end) {
        let serial = batch.serial;
        return Ok(batch.lend().map(|lent| (run, id, serial, lent)));
    }
    let (taken, grown) = run.fill(batch, columns, *row, end);
    batch.add_run(taken);
    *row += run.note(guarded, taken, grown);
    Ok(None)
}

/// Most bytes of a key and a value together that need no check.
fn most(config: &ProducerConfig) -> usize {
    config
        .max_request_size
        .min(config.buffer_memory)
        .saturating_sub(MAX_OVERHEAD)
}

/// Whether the record may be too large: the single-record path checks that.
#[inline]
fn needs_check(key: Option<&[u8]>, value: Option<&[u8]>, most: usize) -> bool {
    let lengths = key.map_or(0, <[u8]>::len).saturating_add(value.map_or(0, <[u8]>::len));
    lengths > most
}

/// The same for rows that name a partition or are placed by their key: each goes to the last batch of its partition.
fn append_placed<C: RecordColumns>(
    shared: &Shared,
    guarded: &mut Guarded,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) {
    let (count, most) = (guarded.metadata.topic(topic).count(), most(&shared.config));
    let by_key = !shared.config.round_robin && !shared.config.ignore_keys;
    while *row < end {
        let key = columns.key(*row);
        let partition = match (columns.partition(*row), key) {
            (Some(partition), _) if (0..count).contains(&partition) => partition,
            (None, Some(key)) if by_key => partition_for_key(key, count),
            _ => return,
        };
        let value = columns.value(*row);
        let timestamp = columns.timestamp(*row).unwrap_or(wall);
        if needs_check(key, value, most) {
            return;
        }
        let id = guarded.metadata.topic(topic).id(partition);
        let Some(batch) = guarded.accumulator.last_batch(id) else {
            return;
        };
        if batch.try_append(timestamp, key, value, &[]).is_none() {
            return;
        }
        batch.add_run(1);
        *row += 1;
    }
}
