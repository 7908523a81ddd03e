//! Producer id, epoch and sequences of an idempotent producer (spec 9.4 to 9.6). Kafka: `TransactionManager` without
//! transactions, `TxnPartitionMap`.

use std::collections::BTreeMap;

use fletchlog_records::batch_header::increment_sequence;

use super::metadata::PartitionId;
use super::producer_batch::{BatchId, BatchTable, ProducerIdAndEpoch};
use super::release::Release;
use crate::ClientError;

const NO_LAST_ACKED_SEQUENCE: i32 = -1;

/// Sequences of one partition. Kafka: `TxnPartitionEntry`.
#[derive(Debug)]
struct Entry {
    /// The id and epoch its sequences belong to (2.7+).
    id: ProducerIdAndEpoch,
    next_sequence: i32,
    last_acked_sequence: i32,
    /// Batches that have a sequence and are not decided, on the wire or queued again, in sequence order.
    in_flight: Vec<BatchId>,
}

impl Entry {
    fn new(id: ProducerIdAndEpoch) -> Self {
        Self {
            id,
            next_sequence: 0,
            last_acked_sequence: NO_LAST_ACKED_SEQUENCE,
            in_flight: Vec::new(),
        }
    }
    fn restart(&mut self, id: ProducerIdAndEpoch) {
        self.id = id;
        self.next_sequence = 0;
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE;
    }
}

/// Why a failed batch failed, as far as the producer's state depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Code 45.
    OutOfOrder,
    /// Code 59.
    UnknownProducerId,
    /// Anything else.
    Other,
}

/// State of an idempotent producer.
#[derive(Debug)]
pub(crate) struct Idempotence {
    release: Release,
    id: Option<ProducerIdAndEpoch>,
    partitions: BTreeMap<PartitionId, Entry>,
    bump_required: bool,
    to_rewrite: Vec<PartitionId>,
    /// Partition -> sequence after the highest batch that expired after a retry.
    unresolved: BTreeMap<PartitionId, i32>,
    fatal: Option<ClientError>,
}

impl Idempotence {
    pub(crate) fn new(release: Release) -> Self {
        Self {
            release,
            id: None,
            partitions: BTreeMap::new(),
            bump_required: false,
            to_rewrite: Vec::new(),
            unresolved: BTreeMap::new(),
            fatal: None,
        }
    }

    pub(crate) fn id(&self) -> Option<ProducerIdAndEpoch> {
        self.id
    }
    /// A new id from the broker: partitions waiting for a rewrite (the epochs of the old id were used up) restart with it.
    pub(crate) fn set_id(&mut self, id: ProducerIdAndEpoch, batches: &mut BatchTable) {
        self.id = Some(id);
        self.rewrite(id, batches);
    }
    pub(crate) fn fatal(&self) -> Option<&ClientError> {
        self.fatal.as_ref()
    }
    pub(crate) fn set_fatal(&mut self, error: ClientError) {
        self.fatal.get_or_insert(error);
    }

    /// The top of a turn, first part. Kafka: `maybeResolveSequences`.
    pub(crate) fn maybe_resolve_sequences(&mut self) {
        let open: Vec<PartitionId> = self.unresolved.keys().copied().collect();
        for partition in open {
            let Some(entry) = self.partitions.get(&partition) else {
                continue;
            };
            if !entry.in_flight.is_empty() {
                continue;
            }
            if entry.next_sequence.wrapping_sub(entry.last_acked_sequence) != 1 {
                self.request_bump(partition);
            }
            self.unresolved.remove(&partition);
        }
    }

    /// The top of a turn, second part: a pending bump. Returns true if the epoch rose.
    /// Kafka: `bumpIdempotentEpochAndResetIdIfNeeded`.
    pub(crate) fn maybe_bump(&mut self, batches: &mut BatchTable) -> bool {
        let (true, Some((id, epoch))) = (self.bump_required, self.id) else {
            return false;
        };
        self.bump_required = false;
        let Some(epoch) = epoch.checked_add(1) else {
            // Epochs used up: a new id is asked for, and the rewrite waits for it.
            self.id = None;
            return false;
        };
        self.id = Some((id, epoch));
        self.rewrite((id, epoch), batches);
        true
    }

    /// In each partition that asked for the bump all in-flight batches are renumbered from 0.
    /// Kafka: `startSequencesAtBeginning`.
    fn rewrite(&mut self, id: ProducerIdAndEpoch, batches: &mut BatchTable) {
        for partition in std::mem::take(&mut self.to_rewrite) {
            let entry = self.partitions.entry(partition).or_insert_with(|| Entry::new(id));
            entry.restart(id);
            for &batch in &entry.in_flight {
                batches[batch].reset_producer_state(id, entry.next_sequence);
                entry.next_sequence = increment_sequence(entry.next_sequence, batches[batch].count());
            }
            self.unresolved.remove(&partition);
        }
    }

    fn request_bump(&mut self, partition: PartitionId) {
        self.bump_required = true;
        if !self.to_rewrite.contains(&partition) {
            self.to_rewrite.push(partition);
        }
    }

    /// Whether the head of a queue must stay (spec 9.4, stop rules). Kafka: `shouldStopDrainBatchesForPartition`.
    pub(crate) fn stops_drain(&self, head: BatchId, batches: &BatchTable) -> bool {
        let Some(current) = self.id else { return true };
        let batch = &batches[head];
        let entry = self.partitions.get(&batch.partition);
        let first_in_flight = entry.and_then(|e| e.in_flight.first().copied());
        if batch.has_sequence() {
            return first_in_flight.is_some_and(|first| first != head);
        }
        let stale = first_in_flight.is_some_and(|first| {
            let carried = if self.release.restarts_at_drain {
                entry.map_or(current, |e| e.id)
            } else {
                batches[first].id_and_epoch()
            };
            carried != current
        });
        stale || self.unresolved.contains_key(&batch.partition)
    }

    /// Gives a drained batch its sequence if it has none.
    pub(crate) fn assign(&mut self, id: BatchId, batches: &mut BatchTable) {
        let (Some(current), false) = (self.id, batches[id].has_sequence()) else {
            return;
        };
        let entry = self
            .partitions
            .entry(batches[id].partition)
            .or_insert_with(|| Entry::new(current));
        if self.release.restarts_at_drain && entry.id != current && entry.in_flight.is_empty() {
            entry.restart(current);
        }
        let batch = &mut batches[id];
        batch.producer = Some((current, entry.next_sequence));
        entry.next_sequence = increment_sequence(entry.next_sequence, batch.count());
        entry.in_flight.push(id);
    }

    /// Position of a batch among the in-flight ones of its partition: the order in which retries are queued.
    pub(crate) fn position(&self, partition: PartitionId, id: BatchId) -> Option<usize> {
        self.partitions.get(&partition)?.in_flight.iter().position(|&b| b == id)
    }

    fn remove_in_flight(&mut self, partition: PartitionId, id: BatchId) {
        if let Some(entry) = self.partitions.get_mut(&partition) {
            entry.in_flight.retain(|&b| b != id);
        }
    }

    /// The products of a split take their parent's place and share out its sequences.
    pub(crate) fn replace_by_split(&mut self, parent: BatchId, products: &[BatchId], batches: &mut BatchTable) {
        let Some((id, mut sequence)) = batches[parent].producer else {
            return;
        };
        for &product in products {
            batches[product].producer = Some((id, sequence));
            sequence = increment_sequence(sequence, batches[product].count());
        }
        let Some(entry) = self.partitions.get_mut(&batches[parent].partition) else {
            return;
        };
        let at = entry.in_flight.iter().position(|&b| b == parent);
        match at {
            Some(at) => drop(entry.in_flight.splice(at..=at, products.iter().copied())),
            None => drop(entry.in_flight.splice(0..0, products.iter().copied())),
        }
    }

    /// Kafka: `handleCompletedBatch`.
    pub(crate) fn completed(&mut self, id: BatchId, batches: &BatchTable) {
        let batch = &batches[id];
        self.remove_in_flight(batch.partition, id);
        let Some(entry) = self.partitions.get_mut(&batch.partition) else {
            return;
        };
        entry.last_acked_sequence = entry.last_acked_sequence.max(batch.last_sequence());
        if let (false, Some(current), true) = (self.release.restarts_at_drain, self.id, entry.in_flight.is_empty())
            && batch.id_and_epoch() != current
        {
            entry.restart(current);
        }
    }

    /// Kafka: `handleFailedBatch`. `adjust`: the failure itself asks for a bump (attempts were left).
    pub(crate) fn failed(&mut self, id: BatchId, failure: Failure, adjust: bool, batches: &BatchTable) {
        let batch = &batches[id];
        self.remove_in_flight(batch.partition, id);
        if self.fatal.is_some() || !batch.has_sequence() {
            return;
        }
        if !self.release.stale_failure_bumps && Some(batch.id_and_epoch()) != self.id {
            return;
        }
        match failure {
            Failure::OutOfOrder => self.request_bump(batch.partition),
            Failure::UnknownProducerId => {
                if let (Some(entry), Some(current)) = (self.partitions.get_mut(&batch.partition), self.id) {
                    entry.restart(current);
                }
            }
            Failure::Other if adjust => self.request_bump(batch.partition),
            Failure::Other => {}
        }
    }

    /// A batch that had been retried has expired: nobody knows whether it is in the log.
    /// Kafka: `markSequenceUnresolved`.
    pub(crate) fn mark_unresolved(&mut self, id: BatchId, batches: &BatchTable) {
        let batch = &batches[id];
        let next = increment_sequence(batch.last_sequence(), 1);
        self.unresolved
            .entry(batch.partition)
            .and_modify(|s| *s = (*s).max(next))
            .or_insert(next);
    }

    /// Code 45: always another attempt; a bump first when there really is a gap (spec 9.5, canRetry).
    pub(crate) fn on_out_of_order(&mut self, id: BatchId, batches: &BatchTable) {
        let batch = &batches[id];
        match self.unresolved.get(&batch.partition) {
            None => {
                let last_acked = self
                    .partitions
                    .get(&batch.partition)
                    .map_or(NO_LAST_ACKED_SEQUENCE, |e| e.last_acked_sequence);
                let is_next = batch.base_sequence().wrapping_sub(last_acked) == 1;
                if !batch.reset && is_next {
                    self.request_bump(batch.partition);
                }
            }
            Some(&unresolved) => {
                if batch.base_sequence() == unresolved {
                    self.request_bump(batch.partition);
                }
            }
        }
    }

    /// Code 59: always another attempt; a bump first unless the answer carries no log start offset or the batch has been
    /// renumbered already.
    pub(crate) fn on_unknown_producer(&mut self, id: BatchId, log_start_offset: i64, batches: &BatchTable) {
        let batch = &batches[id];
        if log_start_offset != -1 && !batch.reset {
            self.request_bump(batch.partition);
        }
    }
}

#[cfg(test)]
mod tests;
