//! The way of a row into a batch (spec 9.2, 9.7). Kafka: `RecordAccumulator#append`.

use std::sync::Arc;

use fletchlog_records::batch_builder::estimate_size_upper_bound;
use fletchlog_records::{BatchBuilder, Compression, Header};

use super::RecordAccumulator;
use crate::producer::future::{BatchResult, OnDecided, Place, RecordFuture};
use crate::producer::memory_records_builder::MemoryRecordsBuilder;
use crate::producer::metadata::{PartitionId, ProducerMetadata, TopicId, TopicInfo};
use crate::producer::partitioner::{Placement, Target};
use crate::producer::producer_batch::{BatchId, ProducerBatch};

/// A record on its way into a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub partition: Option<i32>,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

impl RecordAccumulator {
    /// Appends one row whose partition, if it names one, exists. Returns its batch, or `None` if buffer.memory is used up.
    ///
    /// Up to 3.2 any record that needs a new batch on the sticky partition, even one with a key, moves the sticky partition (KIP-480). Later
    /// the partition is left after batch.size bytes, when its batches are complete (KIP-794).
    pub(crate) fn append(&mut self, metadata: &ProducerMetadata, topic: TopicId, row: &Row<'_>) -> Option<BatchId> {
        let info = metadata.topic(topic);
        let fixed = match self.placement(info).target(row.partition, row.key) {
            Target::Partition(partition) => Some(partition),
            Target::RoundRobin => {
                let (partitioner, _) = self.partitioners.of(topic);
                Some(partitioner.round_robin(info.count(), &info.available))
            }
            Target::Sticky => None,
        };
        let built_in = self.config.release.built_in_partitioner;
        let counted = fixed.is_none() && built_in;
        let mut may_move = !built_in;
        loop {
            let partition = fixed.unwrap_or_else(|| self.partitioners.sticky(topic, info));
            let id = info.id(partition);
            if counted && self.note_appended(topic, id, 0) {
                continue;
            }
            let (batch, grown) = match self.try_append(id, row) {
                Some(appended) => appended,
                // The batch is complete now, so the partitioner may leave the partition before a new batch is created.
                None if counted && self.note_appended(topic, id, 0) => continue,
                None if std::mem::take(&mut may_move) => {
                    let (partitioner, random) = self.partitioners.of(topic);
                    partitioner.on_new_batch(partition, info.count(), &info.available, random);
                    continue;
                }
                None => self.append_to_new_batch(id, &info.name, row)?,
            };
            if counted {
                self.note_appended(topic, id, grown);
            }
            return Some(batch);
        }
    }

    pub(super) fn placement(&self, info: &TopicInfo) -> Placement {
        Placement {
            partitions: info.count(),
            round_robin: self.config.round_robin,
            ignore_keys: self.config.ignore_keys,
        }
    }

    pub(super) fn try_append(&mut self, partition: PartitionId, row: &Row<'_>) -> Option<(BatchId, usize)> {
        let id = self.last_batch_id(partition)?;
        let batch = &mut self.batches[id];
        let grown = batch.try_append(row.timestamp, row.key, row.value, row.headers);
        if grown.is_none() {
            batch.close_for_appends();
        }
        Some((id, grown?))
    }

    fn append_to_new_batch(
        &mut self,
        partition: PartitionId,
        topic: &Arc<str>,
        row: &Row<'_>,
    ) -> Option<(BatchId, usize)> {
        let size = self.buffer_size(row);
        if !self.has_memory(size) {
            return None;
        }
        let now = self.clock.monotonic_ms();
        let id = self.add_batch(partition, topic, size, now);
        let batch = &mut self.batches[id];
        batch.try_append(row.timestamp, row.key, row.value, row.headers)?;
        Some((id, batch.records.estimated_size()))
    }

    /// Buffer size of a new batch for this row.
    pub(super) fn buffer_size(&self, row: &Row<'_>) -> usize {
        let (key, value) = (row.key.map(<[u8]>::len), row.value.map(<[u8]>::len));
        estimate_size_upper_bound(key, value, row.headers).max(self.config.batch_size)
    }

    /// A new open batch at the end of a queue.
    pub(super) fn add_batch(&mut self, partition: PartitionId, topic: &Arc<str>, size: usize, now: i64) -> BatchId {
        let ratio =
            (self.config.compression != Compression::None).then(|| self.ratios.get(topic).copied().unwrap_or(1.0));
        let builder = self.spare.pop().unwrap_or_else(|| BatchBuilder::with_capacity(0));
        let serial = self.next_serial;
        self.next_serial += 1;
        let mut batch = ProducerBatch::new(partition, serial, now, MemoryRecordsBuilder::new(size, ratio, builder));
        batch.memory = size;
        batch.queued = true;
        self.memory_used = self.memory_used.saturating_add(size);
        *self.incomplete.entry(serial).or_default() += 1;
        let id = self.batches.insert(batch);
        self.queue(partition).batches.push_back(id);
        id
    }

    /// The batch that records of this partition would be appended to.
    #[inline]
    pub(crate) fn last_batch_id(&self, partition: PartitionId) -> Option<BatchId> {
        self.queues.get(partition)?.batches.back().copied()
    }

    /// The future of the last record of a batch; `on_decided` is called with its outcome.
    #[inline]
    pub(crate) fn future_of_last(
        &mut self,
        id: BatchId,
        timestamp: i64,
        on_decided: Option<OnDecided>,
    ) -> RecordFuture {
        let batch = &mut self.batches[id];
        let index = batch.count() - 1;
        let result = batch.result.get_or_insert_with(|| BatchResult::new(&self.signal));
        RecordFuture::new(result.clone(), Place { index, timestamp }, on_decided)
    }

    /// Whether the sender should be woken for the record that was appended last. Kafka: `RecordAppendResult#batchIsFull`,
    /// `#newBatchCreated`.
    pub(crate) fn is_sendable_now(&self, id: BatchId) -> bool {
        let batch = &self.batches[id];
        batch.count() == 1 || self.queues[batch.partition].batches.len() > 1 || batch.is_full()
    }

    /// KIP-794: counts bytes that were appended to the sticky partition; true if the partitioner leaves it.
    #[inline]
    pub(crate) fn note_appended(&mut self, topic: TopicId, partition: PartitionId, bytes: usize) -> bool {
        let last = self.last_batch_id(partition);
        let all_full = last.is_none_or(|id| self.batches[id].is_full());
        let (partitioner, _) = self.partitioners.of(topic);
        partitioner.appended(bytes, self.config.batch_size.max(1), all_full)
    }
}
