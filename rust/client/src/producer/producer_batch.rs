//! One batch of the producer, from its first record to its outcome. Kafka: `ProducerBatch`.

use std::sync::Arc;

use fletchlog_records::batch_header::increment_sequence;
use fletchlog_records::{BatchBuilder, BatchParams, Header, RecordBatch, RecordCursor};

use super::config::ProducerConfig;
use super::future::BatchResult;
use super::memory_records_builder::MemoryRecordsBuilder;
use super::metadata::PartitionId;

/// Index of a batch in the [`BatchTable`].
pub(crate) type BatchId = usize;

/// Consecutive records of `send_columns` in a batch: only the first failure is reported, by `flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    first: i32,
    count: i32,
}

impl Run {
    /// Number of its records.
    pub(crate) fn count(&self) -> i32 {
        self.count
    }
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
    /// Last known leader epoch, and `attempts` when it last rose (3.7+: a new leader ends the back-off).
    pub leader_epoch: i32,
    pub attempts_at_leader_change: i32,
    /// Back-off after the last failure, ms.
    pub backoff_ms: i64,
    /// Traced as ready since it was queued last.
    pub ready_traced: bool,
    closed_for_appends: bool,
    pub records: MemoryRecordsBuilder,
}

impl ProducerBatch {
    pub(crate) fn new(partition: PartitionId, serial: u64, now: i64, records: MemoryRecordsBuilder) -> Self {
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
            leader_epoch: -1,
            attempts_at_leader_change: 0,
            backoff_ms: 0,
            ready_traced: false,
            closed_for_appends: false,
            records,
        }
    }

    pub(crate) fn count(&self) -> i32 {
        self.records.count
    }
    pub(crate) fn close_for_appends(&mut self) {
        self.closed_for_appends = true;
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.closed_for_appends || self.records.is_full()
    }
    /// Whether it is full and its records are still to be compressed.
    pub(crate) fn is_unpacked(&self) -> bool {
        self.records.is_unpacked() && self.is_full()
    }

    /// Its records, if more can be appended.
    #[inline]
    pub(crate) fn open_records(&mut self) -> Option<&mut MemoryRecordsBuilder> {
        (!self.closed_for_appends && self.records.is_open()).then_some(&mut self.records)
    }

    /// Appends one record if there is room; the caller gives it a future or adds it to a run.
    #[inline]
    pub(crate) fn try_append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        self.open_records()?.append(timestamp, key, value, headers)
    }

    /// Notes that the last `count` records belong to a run of `send_columns`.
    #[inline]
    pub(crate) fn add_run(&mut self, count: i32) {
        if count == 0 {
            return;
        }
        let first = self.count() - count;
        match self.runs.last_mut() {
            Some(last) if last.first + last.count == first => last.count += count,
            _ => self.runs.push(Run { first, count }),
        }
    }

    /// Builds the bytes if they are not built yet; clears the reset mark. Returns the builder for reuse. Kafka: `ProducerBatch#close`.
    pub(crate) fn close(&mut self, config: &ProducerConfig) -> Option<BatchBuilder> {
        self.reset = false;
        self.closed_for_appends = true;
        let (producer_id, producer_epoch) = self.id_and_epoch();
        self.records.close(&BatchParams {
            compression: config.compression,
            compression_level: config.compression_level,
            producer_id,
            producer_epoch,
            base_sequence: self.base_sequence(),
            transactional: self.transactional,
            ..BatchParams::default()
        })
    }

    pub(crate) fn has_sequence(&self) -> bool {
        self.producer.is_some()
    }
    pub(crate) fn base_sequence(&self) -> i32 {
        self.producer.map_or(-1, |(_, sequence)| sequence)
    }
    pub(crate) fn last_sequence(&self) -> i32 {
        increment_sequence(self.base_sequence(), (self.count() - 1).max(0))
    }
    pub(crate) fn id_and_epoch(&self) -> ProducerIdAndEpoch {
        self.producer.map_or((-1, -1), |(id, _)| id)
    }

    /// Renumbers the batch after an epoch bump; a copy on the wire keeps its old numbers.
    /// Kafka: `ProducerBatch#resetProducerState`.
    pub(crate) fn reset_producer_state(&mut self, id: ProducerIdAndEpoch, sequence: i32) {
        self.producer = Some((id, sequence));
        self.reset = true;
        self.records.rewrite_producer(id, sequence);
    }

    /// Decodes the records of a closed batch for a split: (timestamp, key, value, headers) in order.
    pub(crate) fn for_each_record(&self, mut visit: impl FnMut(i64, Option<&[u8]>, Option<&[u8]>, &[Header<'_>])) {
        let Ok(Some(batch)) = RecordBatch::parse(&self.records.bytes()) else {
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
