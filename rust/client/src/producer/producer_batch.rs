//! One batch of the producer, from its first record to its outcome. Kafka: `ProducerBatch`, `MemoryRecordsBuilder`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::batch_header::{RECORD_BATCH_OVERHEAD, increment_sequence};
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchBuilder, BatchParams, Compression, Header, RecordBatch, RecordCursor};

use super::future::{BatchResult, OnDecided, Place, RecordFuture, Signal};
use super::metadata::PartitionId;

/// Index of a batch in the [`BatchTable`].
pub(crate) type BatchId = usize;

/// Kafka: `COMPRESSION_RATE_ESTIMATION_FACTOR`.
const RATE_ESTIMATION_FACTOR: f32 = 1.05;

/// Consecutive records of `send_columns` in a batch: only the first failure is reported, by `flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    first: i32,
    count: i32,
}

/// (producer id, epoch).
pub(crate) type ProducerIdAndEpoch = (i64, i16);

/// One batch of a partition, from its first record to its outcome.
#[derive(Debug)]
pub(crate) struct ProducerBatch {
    pub partition: PartitionId,
    /// Number in the order of creation; products of a split keep their parent's.
    pub serial: u64,
    pub created_ms: i64,
    pub last_attempt_ms: i64,
    /// Failures so far that led to another attempt.
    pub attempts: i32,
    /// Why its last attempt failed.
    pub last_failure: Option<Arc<str>>,
    /// Kafka: `inRetry`.
    pub in_retry: bool,
    /// The outcome for the futures of its records, if any record has one.
    pub result: Option<Arc<BatchResult>>,
    /// The records without a future, ascending.
    pub runs: Vec<Run>,
    /// Set when it is first drained; changed by an epoch bump.
    pub producer: Option<(ProducerIdAndEpoch, i32)>,
    /// Belongs to a transaction.
    pub transactional: bool,
    /// The epoch bump renumbered it since it was last drained. Kafka: `sequenceHasBeenReset`.
    pub reset: bool,
    /// Its outcome is decided: completed, failed, expired or split.
    pub done: bool,
    /// In its partition's queue.
    pub queued: bool,
    /// A request that contains it awaits its response.
    pub on_wire: bool,
    pub from_split: bool,
    /// Bytes accounted for in buffer.memory.
    pub memory: usize,
    /// Largest encoded record.
    pub max_record_size: usize,
    /// Last known leader epoch, and `attempts` when it last rose (3.7+: a new leader ends the back-off).
    pub leader_epoch: i32,
    pub attempts_at_leader_change: i32,
    /// Back-off after the last failure, ms.
    pub backoff_ms: i64,
    /// Traced as ready since it was queued last.
    pub ready_traced: bool,
    /// Size of the buffer: the batch is full when the next record would exceed it.
    write_limit: usize,
    /// Estimated compressed/uncompressed; `None` without compression.
    ratio: Option<f32>,
    actual_ratio: f32,
    closed_for_appends: bool,
    count: i32,
    buffer: Buffer,
}

#[derive(Debug)]
enum Buffer {
    Open(BatchBuilder),
    /// Its records are being compressed without the lock; the estimated size.
    Packing(usize),
    /// A user appends to it without the lock; the estimated size before that.
    Lent(usize),
    Closed(Bytes),
}

/// The records of an open batch, lent to the thread that appends to them.
#[derive(Debug)]
pub(crate) struct Lent {
    builder: BatchBuilder,
    write_limit: usize,
    ratio: Option<f32>,
    max_record_size: usize,
    /// Records appended so far.
    pub added: i32,
    /// Bytes by which the estimated size grew.
    pub grown: usize,
}

/// A target for appended records: a batch, or the lent records of one.
pub(crate) trait Fill {
    /// Appends one record without headers if there is room for it; returns the bytes by which the estimated size grew.
    fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Option<usize>;
    /// Kafka: `MemoryRecordsBuilder#isFull`.
    fn is_full(&self) -> bool;
}

impl Fill for Lent {
    #[inline]
    fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Option<usize> {
        let (size, grown) = append(
            &mut self.builder,
            self.write_limit,
            self.ratio,
            timestamp,
            key,
            value,
            &[],
        )?;
        self.max_record_size = self.max_record_size.max(size);
        self.added += 1;
        self.grown += grown;
        Some(grown)
    }
    #[inline]
    fn is_full(&self) -> bool {
        is_full(&self.builder, self.write_limit, self.ratio)
    }
}

impl Fill for ProducerBatch {
    #[inline]
    fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Option<usize> {
        self.try_append(timestamp, key, value, &[])
    }
    #[inline]
    fn is_full(&self) -> bool {
        ProducerBatch::is_full(self)
    }
}

impl ProducerBatch {
    pub(crate) fn new(
        partition: PartitionId,
        serial: u64,
        now: i64,
        write_limit: usize,
        ratio: Option<f32>,
        builder: BatchBuilder,
    ) -> Self {
        Self {
            partition,
            serial,
            created_ms: now,
            last_attempt_ms: now,
            attempts: 0,
            last_failure: None,
            in_retry: false,
            result: None,
            runs: Vec::new(),
            producer: None,
            transactional: false,
            reset: false,
            done: false,
            queued: false,
            on_wire: false,
            from_split: false,
            memory: 0,
            max_record_size: 0,
            leader_epoch: -1,
            attempts_at_leader_change: 0,
            backoff_ms: 0,
            ready_traced: false,
            write_limit,
            ratio,
            actual_ratio: 1.0,
            closed_for_appends: false,
            count: 0,
            buffer: Buffer::Open(builder),
        }
    }

    pub(crate) fn count(&self) -> i32 {
        self.count
    }
    pub(crate) fn close_for_appends(&mut self) {
        self.closed_for_appends = true;
    }

    /// Size as far as it is known: exact without compression or once closed. Kafka: `estimatedSizeInBytes`.
    #[inline]
    pub(crate) fn estimated_size(&self) -> usize {
        match &self.buffer {
            Buffer::Open(builder) => estimated(builder, self.ratio),
            Buffer::Packing(size) | Buffer::Lent(size) => *size,
            Buffer::Closed(bytes) => bytes.len(),
        }
    }

    /// Kafka: `MemoryRecordsBuilder#isFull`.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match &self.buffer {
            _ if self.closed_for_appends => true,
            Buffer::Open(builder) => is_full(builder, self.write_limit, self.ratio),
            Buffer::Lent(_) => false,
            Buffer::Packing(_) | Buffer::Closed(_) => true,
        }
    }

    /// Whether it is full and its records are still to be compressed.
    pub(crate) fn is_unpacked(&self) -> bool {
        let open = matches!(&self.buffer, Buffer::Open(builder) if !builder.is_packed());
        open && self.ratio.is_some() && self.is_full()
    }

    /// Whether a thread compresses its records or appends to them now, so that it cannot be drained.
    pub(crate) fn is_on_loan(&self) -> bool {
        matches!(self.buffer, Buffer::Packing(_) | Buffer::Lent(_))
    }

    /// Lends the records of an open batch that has room, for appending without the lock; [`Self::take_back`] ends the loan.
    pub(crate) fn lend(&mut self) -> Option<Lent> {
        if !matches!(self.buffer, Buffer::Open(_)) || self.is_full() {
            return None;
        }
        let lent = Buffer::Lent(self.estimated_size());
        match std::mem::replace(&mut self.buffer, lent) {
            Buffer::Open(builder) => Some(Lent {
                builder,
                write_limit: self.write_limit,
                ratio: self.ratio,
                max_record_size: self.max_record_size,
                added: 0,
                grown: 0,
            }),
            _ => None,
        }
    }

    /// Ends the loan of [`Self::lend`] and notes the appended records as a run. Returns false if the batch was decided meanwhile: then they
    /// are dropped.
    pub(crate) fn take_back(&mut self, lent: Lent) -> bool {
        if !matches!(self.buffer, Buffer::Lent(_)) {
            return false;
        }
        self.buffer = Buffer::Open(lent.builder);
        self.count += lent.added;
        self.max_record_size = lent.max_record_size;
        self.add_run(lent.added);
        true
    }

    /// The builder of a full batch whose records are to be compressed; [`Self::put_packed`] returns it.
    pub(crate) fn take_unpacked(&mut self) -> Option<BatchBuilder> {
        if !self.is_unpacked() {
            return None;
        }
        let packing = Buffer::Packing(self.estimated_size());
        match std::mem::replace(&mut self.buffer, packing) {
            Buffer::Open(builder) => Some(builder),
            _ => None,
        }
    }

    /// Ends [`Self::take_unpacked`], unless the batch was decided meanwhile.
    pub(crate) fn put_packed(&mut self, builder: BatchBuilder) {
        if matches!(self.buffer, Buffer::Packing(_)) {
            self.buffer = Buffer::Open(builder);
        }
    }

    /// Appends one record if there is room (spec 9.2: the first record always fits). Returns the bytes by which the estimated size grew.
    /// The caller gives it a future or adds it to a run.
    #[inline]
    pub(crate) fn try_append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        let Buffer::Open(builder) = &mut self.buffer else {
            return None;
        };
        if self.closed_for_appends {
            return None;
        }
        let (size, grown) = append(builder, self.write_limit, self.ratio, timestamp, key, value, headers)?;
        self.count += 1;
        self.max_record_size = self.max_record_size.max(size);
        Some(grown)
    }

    /// The future of the record that was appended last; `on_decided` is called with its outcome.
    #[inline]
    pub(crate) fn future_of_last(
        &mut self,
        signal: &Arc<Signal>,
        timestamp: i64,
        on_decided: Option<OnDecided>,
    ) -> RecordFuture {
        let at = Place {
            index: self.count - 1,
            timestamp,
        };
        let result = self.result.get_or_insert_with(|| BatchResult::new(signal));
        if let Some(call) = on_decided {
            result.call_when_decided(at, call);
        }
        RecordFuture::new(result.clone(), at)
    }

    /// Notes that the last `count` records belong to a run of `send_columns`.
    #[inline]
    pub(crate) fn add_run(&mut self, count: i32) {
        if count == 0 {
            return;
        }
        let first = self.count - count;
        match self.runs.last_mut() {
            Some(last) if last.first + last.count == first => last.count += count,
            _ => self.runs.push(Run { first, count }),
        }
    }

    /// Kafka: `ProducerBatch#close`: builds the bytes if they are not built yet; clears the reset mark. Returns the builder for reuse and
    /// the compression ratio for the estimator.
    pub(crate) fn close(
        &mut self,
        compression: Compression,
        level: Option<i32>,
    ) -> (Option<BatchBuilder>, Option<f32>) {
        self.reset = false;
        self.closed_for_appends = true;
        let mut spare = None;
        if let Buffer::Open(builder) = &mut self.buffer {
            let ((producer_id, producer_epoch), base_sequence) = self.producer.unwrap_or(((-1, -1), -1));
            let (uncompressed, packed) = (builder.records_size(), builder.is_packed());
            let bytes = builder.build(&BatchParams {
                compression,
                compression_level: level,
                producer_id,
                producer_epoch,
                base_sequence,
                transactional: self.transactional,
                ..BatchParams::default()
            });
            #[allow(clippy::cast_precision_loss, reason = "Java divides floats here too")]
            if uncompressed > 0 {
                self.actual_ratio = bytes.len().saturating_sub(RECORD_BATCH_OVERHEAD) as f32 / uncompressed as f32;
            }
            if let Buffer::Open(builder) = std::mem::replace(&mut self.buffer, Buffer::Closed(bytes)) {
                // A packed builder has no memory to reuse: the batch has it.
                spare = (!packed).then_some(builder);
            }
        }
        (spare, self.ratio.is_some().then_some(self.actual_ratio))
    }

    pub(crate) fn actual_ratio(&self) -> f32 {
        self.actual_ratio
    }
    /// The bytes; empty until the batch is closed.
    pub(crate) fn bytes(&self) -> Bytes {
        match &self.buffer {
            Buffer::Closed(bytes) => bytes.clone(),
            Buffer::Open(_) | Buffer::Packing(_) | Buffer::Lent(_) => Bytes::new(),
        }
    }
    /// Drops the bytes of a decided batch.
    pub(crate) fn release(&mut self) {
        self.buffer = Buffer::Closed(Bytes::new());
    }
    pub(crate) fn write_limit(&self) -> usize {
        self.write_limit
    }

    pub(crate) fn has_sequence(&self) -> bool {
        self.producer.is_some()
    }
    pub(crate) fn base_sequence(&self) -> i32 {
        self.producer.map_or(-1, |(_, sequence)| sequence)
    }
    pub(crate) fn last_sequence(&self) -> i32 {
        increment_sequence(self.base_sequence(), (self.count - 1).max(0))
    }
    pub(crate) fn id_and_epoch(&self) -> ProducerIdAndEpoch {
        self.producer.map_or((-1, -1), |(id, _)| id)
    }

    /// Renumbers the batch after an epoch bump; a copy on the wire keeps its old numbers.
    /// Kafka: `ProducerBatch#resetProducerState`.
    pub(crate) fn reset_producer_state(&mut self, id: ProducerIdAndEpoch, sequence: i32) {
        self.producer = Some((id, sequence));
        self.reset = true;
        if let Buffer::Closed(bytes) = &self.buffer
            && bytes.len() >= RECORD_BATCH_OVERHEAD
        {
            self.buffer = Buffer::Closed(with_producer(bytes, id, sequence));
        }
    }

    /// Decodes the records of a closed batch for a split: (timestamp, key, value, headers) in order.
    pub(crate) fn for_each_record(&self, mut visit: impl FnMut(i64, Option<&[u8]>, Option<&[u8]>, &[Header<'_>])) {
        let Ok(Some(batch)) = RecordBatch::parse(&self.bytes()) else {
            return;
        };
        let Ok(records) = batch.records(usize::MAX) else { return };
        let mut cursor = RecordCursor::new();
        while let Ok(Some(record)) = cursor.next(&records) {
            let headers: Vec<Header<'_>> = record.headers().collect();
            visit(record.timestamp, record.key, record.value, &headers);
        }
    }
}

/// Appends one record if its bytes and the estimated size so far are within the limit (spec 9.2: the first record always fits). Returns its
/// bytes, and the bytes by which the estimated size grew.
#[inline]
fn append(
    builder: &mut BatchBuilder,
    limit: usize,
    ratio: Option<f32>,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
) -> Option<(usize, usize)> {
    let before = estimated(builder, ratio);
    let size = builder.append_within(limit.saturating_sub(before), timestamp, key, value, headers)?;
    let grown = if ratio.is_none() {
        size
    } else {
        estimated(builder, ratio) - before
    };
    Some((size, grown))
}

/// Kafka: `MemoryRecordsBuilder#isFull`.
#[inline]
fn is_full(builder: &BatchBuilder, limit: usize, ratio: Option<f32>) -> bool {
    builder.count() > 0 && limit <= estimated(builder, ratio)
}

/// Kafka: `MemoryRecordsBuilder#estimatedBytesWritten`.
#[inline]
fn estimated(builder: &BatchBuilder, ratio: Option<f32>) -> usize {
    let used = builder.records_size();
    match ratio {
        None => RECORD_BATCH_OVERHEAD + used,
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "Java's (int) (used * ratio * 1.05f)"
        )]
        Some(ratio) => RECORD_BATCH_OVERHEAD + (used as f32 * ratio * RATE_ESTIMATION_FACTOR) as usize,
    }
}

/// A copy with other producer fields. Positions in the header (spec 1.1):
///
/// | at | size | field |
/// |---|---|---|
/// | 17 | 4 | crc (CRC-32C of 21..end) |
/// | 43 | 8 | producerId |
/// | 51 | 2 | producerEpoch |
/// | 53 | 4 | baseSequence |
fn with_producer(bytes: &Bytes, (id, epoch): ProducerIdAndEpoch, sequence: i32) -> Bytes {
    let mut copy = bytes.to_vec();
    copy[43..51].copy_from_slice(&id.to_be_bytes());
    copy[51..53].copy_from_slice(&epoch.to_be_bytes());
    copy[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c(&copy[21..]);
    copy[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(copy)
}

/// The part of a parent's runs that lies in the records `first .. first + count`, which are renumbered from 0.
pub(crate) fn runs_of(parent: &[Run], first: i32, count: i32) -> Vec<Run> {
    let end = first + count;
    let cut = parent
        .iter()
        .map(|run| (run.first.max(first), (run.first + run.count).min(end)));
    let inside = cut.filter(|(from, to)| from < to);
    let renumbered = inside.map(|(from, to)| Run {
        first: from - first,
        count: to - from,
    });
    renumbered.collect()
}

/// All batches of a producer that are queued, on the wire or undecided.
#[derive(Debug, Default)]
pub(crate) struct BatchTable {
    slots: Vec<Option<ProducerBatch>>,
    free: Vec<BatchId>,
}

impl BatchTable {
    pub(crate) fn insert(&mut self, batch: ProducerBatch) -> BatchId {
        match self.free.pop() {
            Some(id) => {
                self.slots[id] = Some(batch);
                id
            }
            None => {
                self.slots.push(Some(batch));
                self.slots.len() - 1
            }
        }
    }
    /// The batch of an id that may be out of date.
    pub(crate) fn get_mut(&mut self, id: BatchId) -> Option<&mut ProducerBatch> {
        self.slots.get_mut(id)?.as_mut()
    }
    /// Frees the slot of a batch that is decided, not queued and not on the wire.
    pub(crate) fn remove_if_unused(&mut self, id: BatchId) {
        if self.slots[id]
            .as_ref()
            .is_some_and(|b| b.done && !b.queued && !b.on_wire)
        {
            self.slots[id] = None;
            self.free.push(id);
        }
    }
    /// Undecided batches in the order of creation.
    pub(crate) fn undecided(&self) -> Vec<BatchId> {
        let mut ids: Vec<BatchId> = (0..self.slots.len())
            .filter(|&id| self.slots[id].as_ref().is_some_and(|b| !b.done))
            .collect();
        ids.sort_by_key(|&id| self[id].serial);
        ids
    }
    /// Number of batches in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<BatchId> for BatchTable {
    type Output = ProducerBatch;
    #[allow(clippy::expect_used, reason = "an id is dropped before its slot is freed")]
    #[inline]
    fn index(&self, id: BatchId) -> &ProducerBatch {
        self.slots[id]
            .as_ref()
            .expect("the batch is in the table while its id is held")
    }
}

impl std::ops::IndexMut<BatchId> for BatchTable {
    #[allow(clippy::expect_used, reason = "an id is dropped before its slot is freed")]
    #[inline]
    fn index_mut(&mut self, id: BatchId) -> &mut ProducerBatch {
        self.slots[id]
            .as_mut()
            .expect("the batch is in the table while its id is held")
    }
}
