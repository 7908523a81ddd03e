//! Producer id, epoch and sequences of an idempotent or transactional producer (spec 9.4 to 9.6). Kafka: `TransactionManager` without its
//! states, `TxnPartitionMap`.

use std::collections::BTreeMap;

use fletchlog_records::batch_header::{decrement_sequence, increment_sequence};
use fletchlog_records::planted;

use super::metadata::PartitionId;
use super::producer_batch::{BatchId, BatchTable, ProducerIdAndEpoch};
use super::release::Release;
use super::transaction::{NewId, TransactionManager};
use crate::ClientError;

const NO_LAST_ACKED_SEQUENCE: i32 = -1;

/// Sequences of one partition. Kafka: `TxnPartitionEntry`.
#[derive(Debug)]
struct Entry {
    /// The id and epoch its sequences belong to (2.7+).
    id: ProducerIdAndEpoch,
    next_sequence: i32,
    last_acked_sequence: i32,
    last_acked_offset: i64,
    /// Undecided batches that have a sequence, on the wire or queued again, in sequence order.
    in_flight: Vec<BatchId>,
}

impl Entry {
    fn new(id: ProducerIdAndEpoch) -> Self {
        Self {
            id,
            next_sequence: 0,
            last_acked_sequence: NO_LAST_ACKED_SEQUENCE,
            last_acked_offset: -1,
            in_flight: Vec::new(),
        }
    }
    fn restart(&mut self, id: ProducerIdAndEpoch) {
        self.id = id;
        self.next_sequence = 0;
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE;
    }
}

/// Why a batch failed, as far as the producer's state depends on it.
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
    /// The first batch of a partition travels alone: see [`Idempotence::stops_drain`].
    pub(crate) first_goes_alone: bool,
    /// Present if there is a transactional.id.
    pub(crate) transactions: Option<TransactionManager>,
}

impl Idempotence {
    pub(crate) fn new(release: Release, transactions: Option<TransactionManager>) -> Self {
        Self {
            release,
            id: None,
            partitions: BTreeMap::new(),
            bump_required: false,
            to_rewrite: Vec::new(),
            unresolved: BTreeMap::new(),
            fatal: None,
            first_goes_alone: false,
            transactions,
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
        if let Some(transactions) = &mut self.transactions {
            transactions.transition_to_fatal_error(error.clone());
        }
        self.fatal.get_or_insert(error);
    }
    /// The coordinator's response to InitProducerId of a transactional producer; after a bump every sequence restarts.
    /// Kafka: `setProducerIdAndEpoch`, `resetSequenceNumbers`.
    pub(crate) fn set_transactional_id(&mut self, new: &NewId) {
        self.id = Some(new.id);
        if new.bumped {
            self.partitions.clear();
            self.unresolved.clear();
        }
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
                match &mut self.transactions {
                    Some(transactions) => transactions.abortable_with_bump(unresolved()),
                    None => self.request_bump(partition),
                }
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
            // The epochs are used up: a new id is requested, and the rewrite waits for it.
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
            self.start_at_beginning(partition, id, batches);
            self.unresolved.remove(&partition);
        }
    }

    fn start_at_beginning(&mut self, partition: PartitionId, id: ProducerIdAndEpoch, batches: &mut BatchTable) {
        let entry = self.partitions.entry(partition).or_insert_with(|| Entry::new(id));
        entry.restart(id);
        for &batch in &entry.in_flight {
            batches[batch].reset_producer_state(id, entry.next_sequence);
            entry.next_sequence = increment_sequence(entry.next_sequence, batches[batch].count());
        }
    }

    fn request_bump(&mut self, partition: PartitionId) {
        self.bump_required = true;
        if !self.to_rewrite.contains(&partition) {
            self.to_rewrite.push(partition);
        }
    }

    /// Whether the head of a queue must stay (spec 9.4, stop rules). Kafka: `shouldStopDrainBatchesForPartition`.
    ///
    /// Not in Kafka, on a cluster: a new leader of a partition may refuse the first batch and accept the second, because it accepts any
    /// sequence of a producer that it does not know. The first batch is then out of order for ever (Java repeats it until
    /// delivery.timeout.ms, then fails it). So no batch follows the first one until it is acknowledged.
    pub(crate) fn stops_drain(&self, head: BatchId, batches: &BatchTable) -> bool {
        let Some(current) = self.id else { return true };
        let batch = &batches[head];
        if let Some(transactions) = &self.transactions
            && !transactions.is_send_allowed(batch.partition)
        {
            return true;
        }
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
        let first_is_open = entry.is_some_and(|e| e.last_acked_sequence == NO_LAST_ACKED_SEQUENCE);
        let follows_the_first = self.first_goes_alone && first_is_open && first_in_flight.is_some();
        stale || follows_the_first || self.unresolved.contains_key(&batch.partition)
    }

    /// Gives a drained batch its sequence if it has none.
    pub(crate) fn assign(&mut self, id: BatchId, batches: &mut BatchTable) {
        let (Some(current), false) = (
            self.id,
            batches[id].has_sequence() && !planted!("batch-sent-again-under-a-new-sequence"),
        ) else {
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
        if planted!("batch-sent-again-under-a-new-sequence") && batch.has_sequence() {
            let next = entry.next_sequence;
            batch.reset_producer_state(current, next);
            entry.next_sequence = increment_sequence(next, batch.count());
            return;
        }
        batch.producer = Some((current, entry.next_sequence));
        batch.transactional = self.transactions.is_some();
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
            batches[product].transactional = batches[parent].transactional;
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

    /// `base_offset`: -1 unknown. Kafka: `handleCompletedBatch`.
    pub(crate) fn completed(&mut self, id: BatchId, base_offset: i64, batches: &BatchTable) {
        let batch = &batches[id];
        self.remove_in_flight(batch.partition, id);
        let Some(entry) = self.partitions.get_mut(&batch.partition) else {
            return;
        };
        entry.last_acked_sequence = entry.last_acked_sequence.max(batch.last_sequence());
        if base_offset >= 0 {
            let last_offset = base_offset.saturating_add(i64::from(batch.count()) - 1);
            entry.last_acked_offset = entry.last_acked_offset.max(last_offset);
        }
        if let (false, Some(current), true) = (self.release.restarts_at_drain, self.id, entry.in_flight.is_empty())
            && batch.id_and_epoch() != current
        {
            entry.restart(current);
        }
    }

    /// Kafka: `handleFailedBatch`. `adjust`: the failure itself asks for a bump (attempts were left).
    pub(crate) fn failed(
        &mut self,
        id: BatchId,
        failure: Failure,
        adjust: bool,
        error: &ClientError,
        batches: &mut BatchTable,
    ) {
        if let (None, Some(transactions)) = (&self.fatal, &mut self.transactions) {
            transactions.batch_failed(error.clone());
        }
        let batch = &batches[id];
        let partition = batch.partition;
        self.remove_in_flight(partition, id);
        if self.fatal.is_some() || !batch.has_sequence() {
            return;
        }
        let transactional = self.transactions.is_some();
        if !transactional && !self.release.stale_failure_bumps && Some(batch.id_and_epoch()) != self.id {
            return;
        }
        match failure {
            // In Java an unknown producer is a special case of an out-of-order sequence, even if attempts are left.
            Failure::OutOfOrder | Failure::UnknownProducerId if !transactional => self.request_bump(partition),
            Failure::UnknownProducerId => {
                if let (Some(entry), Some(current)) = (self.partitions.get_mut(&partition), self.id) {
                    entry.restart(current);
                }
            }
            _ if !adjust => {}
            _ if transactional => self.adjust_sequences(id, batches),
            _ => self.request_bump(partition),
        }
    }

    /// The broker has refused a batch for good: later ones move down to its sequences, in this transaction and, if the
    /// epoch stays, in the next. Kafka: `adjustSequencesDueToFailedBatch`.
    fn adjust_sequences(&mut self, failed: BatchId, batches: &mut BatchTable) {
        let (partition, count, base) = {
            let batch = &batches[failed];
            (batch.partition, batch.count(), batch.base_sequence())
        };
        let Some(entry) = self.partitions.get_mut(&partition) else {
            return;
        };
        entry.next_sequence = decrement_sequence(entry.next_sequence, count);
        for &later in &entry.in_flight {
            let batch = &mut batches[later];
            if batch.base_sequence() >= base {
                let (id, sequence) = (batch.id_and_epoch(), batch.base_sequence());
                batch.reset_producer_state(id, decrement_sequence(sequence, count));
            }
        }
    }

    /// A batch that had been retried has expired: it may or may not be in the log. Kafka: `markSequenceUnresolved`.
    pub(crate) fn mark_unresolved(&mut self, id: BatchId, batches: &BatchTable) {
        let batch = &batches[id];
        let next = increment_sequence(batch.last_sequence(), 1);
        self.unresolved
            .entry(batch.partition)
            .and_modify(|s| *s = (*s).max(next))
            .or_insert(next);
    }

    /// Code 45: whether to try again. An idempotent producer always does, after a bump if there really is a gap; a transactional one only
    /// while an earlier batch is pending (spec 9.5, canRetry).
    pub(crate) fn on_out_of_order(&mut self, id: BatchId, batches: &BatchTable) -> bool {
        let batch = &batches[id];
        let unresolved = self.unresolved.get(&batch.partition).copied();
        let last_acked = self
            .partitions
            .get(&batch.partition)
            .map_or(NO_LAST_ACKED_SEQUENCE, |e| e.last_acked_sequence);
        let is_next = batch.base_sequence().wrapping_sub(last_acked) == 1;
        if unresolved.is_none() && (batch.reset || !is_next) {
            return true;
        }
        if self.transactions.is_some() {
            return false;
        }
        if unresolved.is_none_or(|sequence| sequence == batch.base_sequence()) {
            self.request_bump(batch.partition);
        }
        true
    }

    /// Code 59: whether to try again. Always if the response has no log start offset or the batch has already been renumbered. Otherwise an
    /// idempotent producer bumps its epoch and tries again; a transactional one restarts the partition and tries again if the data was
    /// deleted, else the batch fails.
    pub(crate) fn on_unknown_producer(&mut self, id: BatchId, log_start_offset: i64, batches: &mut BatchTable) -> bool {
        let batch = &batches[id];
        let partition = batch.partition;
        if log_start_offset == -1 || batch.reset {
            return true;
        }
        if self.transactions.is_none() {
            self.request_bump(partition);
            return true;
        }
        let last_acked = self.partitions.get(&partition).map_or(-1, |e| e.last_acked_offset);
        if last_acked >= log_start_offset {
            return false;
        }
        if let Some(current) = self.id {
            self.start_at_beginning(partition, current, batches);
        }
        true
    }
}

/// The error when it is unknown whether an expired batch is in the log.
fn unresolved() -> ClientError {
    ClientError::Timeout(
        "some records were not acknowledged in time and cannot be sent again; they may be in the log, as part of the transaction"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests;
