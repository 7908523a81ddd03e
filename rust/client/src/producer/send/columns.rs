//! Many rows at once: partitions are found per run of rows, long runs are appended without the lock, and no row gets a future.

use fletchlog_records::{Compression, Header};

use super::waiting::after_waiting;
use super::{MAX_OVERHEAD, append, check_partition, check_size, closed, topic};
use crate::ClientError;
use crate::producer::RecordColumns;
use crate::producer::core::{Append, Core, Row};
use crate::producer::metadata::{PartitionId, TopicId};
use crate::producer::partitioner::partition_for_key;
use crate::producer::producer_batch::{BatchId, Fill, Lent};
use crate::producer::shared::{Pause, Shared};

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
    shared.lock().core.check_ready_for_send()?;
    after_waiting(shared, pause, Some(name))?;
    let topic = topic(shared, pause, name)?;
    let rows = columns.len();
    let (max_block_ms, chunk) = {
        let config = &shared.lock().core.config;
        let is_packed = config.compression != Compression::None;
        (
            config.max_block_ms,
            if is_packed { PACKED_ROWS_PER_LOCK } else { ROWS_PER_LOCK },
        )
    };
    let mut row = 0;
    let mut rested_at = None;
    while row < rows {
        let end = rows.min(row.saturating_add(chunk));
        let stopped = append_chunk(shared, topic, columns, &mut row, end);
        let start = {
            let mut guard = shared.lock();
            // Even without a new row: the sender skips a batch that is lent.
            shared.wake_sender();
            match stopped {
                Ok(()) => (row < end).then(|| guard.core.now()),
                Err(Stopped::Closed(error)) => return Err(error),
                Err(Stopped::NotReady(error)) => return Err(in_row(error, first + row)),
                Err(Stopped::At(error)) => {
                    guard.core.send_failed(&error);
                    return Err(in_row(error, first + row));
                }
            }
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
        shared.wake_sender();
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

/// Why no more rows can be appended.
enum Stopped {
    Closed(ClientError),
    /// There is no transaction, or it has failed.
    NotReady(ClientError),
    /// This row cannot be appended.
    At(ClientError),
}

/// Appends rows until `end` or until memory is short; `row` becomes the next one to append.
fn append_chunk<C: RecordColumns>(
    shared: &Shared,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
) -> Result<(), Stopped> {
    let mut back: Option<Loan<'_>> = None;
    loop {
        let mut guard = shared.lock();
        let core = &mut guard.core;
        let after_run = back.is_some();
        if let Some(loan) = back.take() {
            loan.give_back(core, row);
        }
        if let Some(error) = closed(core) {
            return Err(Stopped::Closed(error));
        }
        core.check_ready_for_send().map_err(Stopped::NotReady)?;
        let lent = append_rows(core, topic, columns, row, end, after_run).map_err(Stopped::At)?;
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
    fn give_back(mut self, core: &mut Core, row: &mut usize) {
        if let Some(added) = self.put(core) {
            *row += added;
        }
    }

    fn put(&mut self, core: &mut Core) -> Option<usize> {
        let lent = self.lent.take()?;
        let (added, grown) = (lent.added, lent.grown);
        let batch = core.accumulator.batches.get_mut(self.batch);
        let batch = batch.filter(|batch| batch.serial == self.serial)?;
        batch.take_back(lent).then(|| self.run.note(core, added, grown))
    }
}

impl Drop for Loan<'_> {
    /// A panic must not leave a batch that can never be sent. Its last rows are sent like the earlier ones, but not reported as queued.
    fn drop(&mut self) {
        if self.lent.is_some() {
            let shared = self.shared;
            let mut guard = shared.lock();
            self.put(&mut guard.core);
            shared.wake_sender();
        }
    }
}

/// Appends rows until `end`, until memory is short, or until a long run begins: the caller appends that to the batch that is lent for it.
/// `after_run`: a run has just ended at this row, so perhaps no open batch has room for it.
fn append_rows<C: RecordColumns>(
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    mut after_run: bool,
) -> Result<Option<(Run, BatchId, u64, Lent)>, ClientError> {
    let wall = core.clock.now_ms();
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
            if let Some(lent) = append_run(core, topic, columns, row, end, wall)? {
                return Ok(Some(lent));
            }
            if *row == end {
                break;
            }
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
        check_size(core, &one)?;
        match core.append(topic, &one) {
            Append::Done(id) => {
                core.accumulator.batches[id].add_run(1);
                *row += 1;
            }
            Append::NoMemory => return Ok(None),
        }
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
    fn note(&self, core: &mut Core, taken: i32, grown: usize) -> usize {
        if self.counted && taken > 0 && core.sticky_partition(self.topic) == self.partition {
            core.note_appended(self.topic, self.id, grown);
        }
        usize::try_from(taken).unwrap_or(0)
    }
}

/// The fast path: appends consecutive rows without headers to the last batch of their partition until one does not fit (or needs a check);
/// the caller handles that row. For a long run it lends the batch instead.
fn append_run<C: RecordColumns>(
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) -> Result<Option<(Run, BatchId, u64, Lent)>, ClientError> {
    let explicit = columns.partition(*row);
    let free = core.is_free(explicit, columns.key(*row));
    let by_key = !free && explicit.is_none();
    let scattered = explicit.is_some() && *row + 1 < end && columns.partition(*row + 1) != explicit;
    if by_key || scattered {
        append_placed(core, topic, columns, row, end, wall);
        return Ok(None);
    }
    check_partition(core, topic, explicit)?;
    let partition = match explicit {
        Some(partition) => partition,
        None => core.sticky_partition(topic),
    };
    let run = Run {
        topic,
        id: core.partition_id(topic, partition),
        partition,
        explicit,
        free,
        ignore_keys: core.config.ignore_keys,
        most: most(core),
        wall,
        counted: free && core.config.release.built_in_partitioner,
        batch_size: core.config.batch_size.max(1),
        produced: core.produced(topic),
    };
    let Some(id) = core.accumulator.last_batch_id(run.id) else {
        return Ok(None);
    };
    let batch = &mut core.accumulator.batches[id];
    if run.is_long(columns, *row, end) {
        let serial = batch.serial;
        return Ok(batch.lend().map(|lent| (run, id, serial, lent)));
    }
    let (taken, grown) = run.fill(batch, columns, *row, end);
    batch.add_run(taken);
    *row += run.note(core, taken, grown);
    Ok(None)
}

/// Most bytes of a key and a value together that need no check.
fn most(core: &Core) -> usize {
    let config = &core.config;
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
    core: &mut Core,
    topic: TopicId,
    columns: &C,
    row: &mut usize,
    end: usize,
    wall: i64,
) {
    let (count, most) = (core.metadata.topic(topic).count(), most(core));
    let by_key = !core.config.round_robin && !core.config.ignore_keys;
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
        let id = core.partition_id(topic, partition);
        let Some(batch) = core.accumulator.last_batch(id) else {
            return;
        };
        if batch.try_append(timestamp, key, value, &[]).is_none() {
            return;
        }
        batch.add_run(1);
        *row += 1;
    }
}
