//! What a partition remembers of each producer: sequences, epochs, open transactions (spec 3). Kafka:
//! `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use fletchlog_records::batch_header::decrement_sequence;
use fletchlog_records::control::{ControlType, EndTxnMarker};
use fletchlog_records::{BatchHeader, ErrorCode};
use rustc_hash::FxHashMap;

use crate::AppendOrigin;
use crate::producer_snapshot::SnapshotEntry;
use crate::txn_index::AbortedTxn;

/// Batches remembered per producer: at most 5 are in flight, so a resent one is always among them (spec 9.6).
const NUM_BATCHES_TO_RETAIN: usize = 5;

/// Why a batch is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

fn refuse(code: ErrorCode, message: String) -> Result<(), Refusal> {
    Err(Refusal { code, message })
}

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchMetadata {
    pub last_seq: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchMetadata {
    fn first_seq(&self) -> i32 {
        decrement_sequence(self.last_seq, self.offset_delta)
    }
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// The newest batches of a producer, oldest first.
#[derive(Debug, Clone, Copy)]
struct Window {
    batches: [BatchMetadata; NUM_BATCHES_TO_RETAIN],
    len: usize,
}

/// Ignores batches beyond `len`: they are left over from earlier.
impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Window {}

impl Window {
    const EMPTY: BatchMetadata = BatchMetadata {
        last_seq: -1,
        last_offset: -1,
        offset_delta: 0,
        timestamp: -1,
    };

    fn new() -> Self {
        Self {
            batches: [Self::EMPTY; NUM_BATCHES_TO_RETAIN],
            len: 0,
        }
    }
    fn as_slice(&self) -> &[BatchMetadata] {
        &self.batches[..self.len]
    }
    fn push(&mut self, batch: BatchMetadata) {
        if self.len == NUM_BATCHES_TO_RETAIN {
            self.batches.rotate_left(1);
            self.len -= 1;
        }
        self.batches[self.len] = batch;
        self.len += 1;
    }
    fn keep_newest(&mut self) {
        if self.len > 1 {
            self.batches[0] = self.batches[self.len - 1];
            self.len = 1;
        }
    }
}

/// State of one producer in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerStateEntry {
    pub producer_id: i64,
    /// -1: nothing is known yet.
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    pub current_txn_first_offset: Option<i64>,
    window: Window,
}

impl ProducerStateEntry {
    fn new(producer_id: i64) -> Self {
        Self {
            producer_id,
            producer_epoch: -1,
            coordinator_epoch: -1,
            last_timestamp: -1,
            current_txn_first_offset: None,
            window: Window::new(),
        }
    }

    fn from_snapshot(entry: &SnapshotEntry) -> Self {
        let mut window = Window::new();
        if entry.last_offset >= 0 {
            window.push(BatchMetadata {
                last_seq: entry.last_sequence,
                last_offset: entry.last_offset,
                offset_delta: entry.offset_delta,
                timestamp: entry.timestamp,
            });
        }
        Self {
            producer_id: entry.producer_id,
            producer_epoch: entry.epoch,
            coordinator_epoch: entry.coordinator_epoch,
            last_timestamp: entry.timestamp,
            current_txn_first_offset: (entry.current_txn_first_offset >= 0).then_some(entry.current_txn_first_offset),
            window,
        }
    }

    fn to_snapshot(self) -> SnapshotEntry {
        let last = self.last_batch().unwrap_or(Window::EMPTY);
        SnapshotEntry {
            producer_id: self.producer_id,
            epoch: self.producer_epoch,
            last_sequence: last.last_seq,
            last_offset: last.last_offset,
            offset_delta: last.offset_delta,
            timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.current_txn_first_offset.unwrap_or(-1),
        }
    }

    pub fn last_batch(&self) -> Option<BatchMetadata> {
        self.window.as_slice().last().copied()
    }

    pub fn last_seq(&self) -> i32 {
        self.last_batch().map_or(-1, |batch| batch.last_seq)
    }

    /// Whether a transaction of this epoch is open.
    pub fn is_in_transaction(&self, producer_epoch: i16) -> bool {
        self.current_txn_first_offset.is_some() && self.producer_epoch == producer_epoch
    }

    /// Whether this batch must be verified with the transaction coordinator first: no transaction of its producer and epoch
    /// is open here. Kafka: `UnifiedLog#hasOngoingTransaction`.
    pub fn must_be_verified(&self, header: &BatchHeader, origin: AppendOrigin) -> bool {
        let is_open = self.is_in_transaction(header.producer_epoch);
        origin == AppendOrigin::UnverifiedClient && header.is_transactional() && !is_open
    }

    /// The remembered batch with the same epoch and sequences, if any. Kafka: `ProducerStateEntry#findDuplicateBatch`.
    pub fn find_duplicate_batch(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if header.producer_epoch != self.producer_epoch {
            return None;
        }
        let last_sequence = header.last_sequence();
        self.window
            .as_slice()
            .iter()
            .copied()
            .find(|batch| batch.first_seq() == header.base_sequence && batch.last_seq == last_sequence)
    }

    fn update_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.window.len = 0;
            self.producer_epoch = epoch;
        }
    }

    fn check_epoch(&self, epoch: i16, origin: AppendOrigin) -> Result<(), Refusal> {
        if epoch < self.producer_epoch && origin != AppendOrigin::Replication {
            let message = format!(
                "producer {} wrote with epoch {epoch}, the partition knows epoch {}; a newer producer has taken its place",
                self.producer_id, self.producer_epoch
            );
            return refuse(ErrorCode::INVALID_PRODUCER_EPOCH, message);
        }
        Ok(())
    }

    /// A marker of transaction.version 2 has a higher epoch than the transaction that it ends; where nothing is open, it may be
    /// the same marker again. Kafka: `ProducerAppendInfo#checkProducerEpoch`.
    fn check_marker_epoch(&self, epoch: i16, origin: AppendOrigin) -> Result<(), Refusal> {
        self.check_epoch(epoch, origin)?;
        let is_open = self.current_txn_first_offset.is_some();
        if origin == AppendOrigin::BumpingCoordinator && is_open && epoch == self.producer_epoch {
            let message = format!(
                "the marker for producer {} has epoch {epoch}, which is that of its open transaction",
                self.producer_id
            );
            return refuse(ErrorCode::INVALID_PRODUCER_EPOCH, message);
        }
        Ok(())
    }

    /// Kafka: `ProducerAppendInfo#checkSequence`.
    fn check_sequence(&self, epoch: i16, base: i32, origin: AppendOrigin, strict: bool) -> Result<(), Refusal> {
        let known = self.producer_epoch != -1;
        if origin == AppendOrigin::AddedClient && base != 0 && self.window.len == 0 {
            let message = format!(
                "producer {} begins its transaction here with sequence {base}, expected 0",
                self.producer_id
            );
            return refuse(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, message);
        }
        if strict && base != 0 && (!known || (epoch == self.producer_epoch && self.window.len == 0)) {
            let message = format!(
                "producer {} is unknown here and starts with sequence {base}; a first batch must have sequence 0 (strict first sequence)",
                self.producer_id
            );
            return refuse(ErrorCode::UNKNOWN_PRODUCER_ID, message);
        }
        if !known {
            return Ok(());
        }
        if epoch != self.producer_epoch {
            if base != 0 {
                let message = format!(
                    "producer {} starts epoch {epoch} with sequence {base}, expected 0",
                    self.producer_id
                );
                return refuse(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, message);
            }
            return Ok(());
        }
        let last = self.last_seq();
        if base.checked_sub(1) == Some(last) || (last == i32::MAX && base == 0) {
            return Ok(());
        }
        let message = format!(
            "producer {} sent sequence {base} after {last}; a batch before it is missing, or it was appended too long ago to be recognised",
            self.producer_id
        );
        refuse(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, message)
    }
}

/// How an entry is stored. A partition may remember millions of producers, most with a single batch of epoch 0 (each loaded
/// from a snapshot, each that has sent once): those take 40 bytes of the table, key included.
#[derive(Debug, Clone)]
enum Stored {
    /// Epoch 0, no transaction or marker ever, nothing but this batch.
    OneBatch(BatchMetadata),
    Full(Box<ProducerStateEntry>),
}

impl Stored {
    fn new(entry: &ProducerStateEntry) -> Self {
        match *entry.window.as_slice() {
            [batch] if Self::one_batch(entry.producer_id, batch) == *entry => Self::OneBatch(batch),
            _ => Self::Full(Box::new(*entry)),
        }
    }

    fn one_batch(producer_id: i64, batch: BatchMetadata) -> ProducerStateEntry {
        let mut entry = ProducerStateEntry::new(producer_id);
        entry.producer_epoch = 0;
        entry.last_timestamp = batch.timestamp;
        entry.window.push(batch);
        entry
    }

    fn entry(&self, producer_id: i64) -> ProducerStateEntry {
        match self {
            Self::OneBatch(batch) => Self::one_batch(producer_id, *batch),
            Self::Full(entry) => **entry,
        }
    }

    fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        let (in_transaction, last_timestamp) = match self {
            Self::OneBatch(batch) => (false, batch.timestamp),
            Self::Full(entry) => (entry.current_txn_first_offset.is_some(), entry.last_timestamp),
        };
        !in_transaction && now_ms.saturating_sub(last_timestamp) >= expiration_ms
    }
}

/// A transaction that a marker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub is_aborted: bool,
}

/// Effects of one append, collected batch by batch and committed once the bytes are written.
#[derive(Debug, Default)]
pub(crate) struct PendingAppend {
    entries: Vec<ProducerStateEntry>,
    started: Vec<(i64, i64)>,
    completed: Vec<CompletedTxn>,
    /// Producers with a transactional batch or a marker: none of their batches waits for verification any more.
    verified: Vec<i64>,
}

/// A producer whose batch waited for transaction verification (KIP-890). Until one of its transactional batches is appended,
/// batches with a higher sequence are refused: the waiting one would be lost. Kafka: `VerificationStateEntry`.
#[derive(Debug, Clone, Copy)]
struct VerificationStateEntry {
    producer_epoch: i16,
    lowest_sequence: i32,
    timestamp: i64,
}

/// All producers of a partition.
#[derive(Debug, Default, Clone)]
pub(crate) struct ProducerStateManager {
    producers: FxHashMap<i64, Stored>,
    /// Only for this run: snapshots do not contain them.
    verification_states: FxHashMap<i64, VerificationStateEntry>,
    /// First offset of each open transaction and its producer.
    ongoing: BTreeMap<i64, i64>,
}

impl ProducerStateManager {
    pub fn get(&self, producer_id: i64) -> Option<ProducerStateEntry> {
        self.producers.get(&producer_id).map(|stored| stored.entry(producer_id))
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = ProducerStateEntry> {
        self.producers
            .iter()
            .map(|(producer_id, stored)| stored.entry(*producer_id))
    }

    fn insert(&mut self, entry: &ProducerStateEntry) {
        match self.producers.entry(entry.producer_id) {
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Stored::Full(stored) => **stored = *entry,
                stored @ Stored::OneBatch(_) => *stored = Stored::new(entry),
            },
            Entry::Vacant(vacant) => {
                vacant.insert(Stored::new(entry));
            }
        }
        debug_assert_eq!(self.get(entry.producer_id), Some(*entry));
    }

    /// First offset and producer of every open transaction, ascending.
    pub fn ongoing(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.ongoing.iter().map(|(first, producer)| (*first, *producer))
    }

    /// Checks a batch with assigned offsets against the state after the batches before it in the same append, and notes its
    /// effects (spec 3.2 steps 2-5, 3.8). `marker`: for control batches.
    pub fn check(
        &self,
        pending: &mut PendingAppend,
        header: &BatchHeader,
        marker: Option<EndTxnMarker>,
        origin: AppendOrigin,
        strict: bool,
    ) -> Result<(), Refusal> {
        if !header.has_producer_id() || (header.is_control() && marker.is_none()) {
            return Ok(());
        }
        let mut before = pending.entries.iter();
        let mut entry = before
            .find(|entry| entry.producer_id == header.producer_id)
            .copied()
            .or_else(|| self.get(header.producer_id))
            .unwrap_or_else(|| ProducerStateEntry::new(header.producer_id));
        match marker {
            Some(marker) => Self::end_txn(&mut entry, pending, header, marker, origin)?,
            None => self.data(&mut entry, pending, header, origin, strict)?,
        }
        if header.is_transactional() {
            pending.verified.push(header.producer_id);
        }
        match pending.entries.iter_mut().find(|e| e.producer_id == entry.producer_id) {
            Some(slot) => *slot = entry,
            None => pending.entries.push(entry),
        }
        Ok(())
    }

    /// Kafka: `ProducerAppendInfo#appendDataBatch`.
    fn data(
        &self,
        entry: &mut ProducerStateEntry,
        pending: &mut PendingAppend,
        header: &BatchHeader,
        origin: AppendOrigin,
        strict: bool,
    ) -> Result<(), Refusal> {
        entry.check_epoch(header.producer_epoch, origin)?;
        // Kafka: UnifiedLog#analyzeAndValidateProducerState, batchMissingRequiredVerification: before the sequence.
        if entry.must_be_verified(header, origin) {
            let message = format!(
                "producer {} has not added this partition to its transaction",
                entry.producer_id
            );
            return refuse(ErrorCode::INVALID_TXN_STATE, message);
        }
        if origin.is_client() {
            self.check_verified_sequence(header)?;
            entry.check_sequence(header.producer_epoch, header.base_sequence, origin, strict)?;
        }
        match (entry.current_txn_first_offset, header.is_transactional()) {
            (Some(first), false) if origin != AppendOrigin::Replication => {
                let message = format!(
                    "producer {} has a transaction open since offset {first} and sent a batch outside of it",
                    entry.producer_id
                );
                return refuse(ErrorCode::INVALID_TXN_STATE, message);
            }
            (None, true) => {
                entry.current_txn_first_offset = Some(header.base_offset);
                pending.started.push((header.base_offset, entry.producer_id));
            }
            _ => {}
        }
        entry.update_epoch(header.producer_epoch);
        entry.window.push(BatchMetadata {
            last_seq: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
        entry.last_timestamp = header.max_timestamp;
        Ok(())
    }

    /// Kafka: `ProducerAppendInfo#checkSequence`.
    fn check_verified_sequence(&self, header: &BatchHeader) -> Result<(), Refusal> {
        match self.verification_states.get(&header.producer_id) {
            Some(entry) if header.base_sequence > entry.lowest_sequence => refuse(
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
                format!(
                    "producer {} sent sequence {} while the one of sequence {} waits for verification",
                    header.producer_id, header.base_sequence, entry.lowest_sequence
                ),
            ),
            _ => Ok(()),
        }
    }

    /// Notes a batch that was refused because it must be verified first. Kafka:
    /// `ProducerStateManager#maybeCreateVerificationStateEntry`.
    pub fn note_unverified(&mut self, header: &BatchHeader, origin: AppendOrigin, now_ms: i64) {
        let unknown = ProducerStateEntry::new(header.producer_id);
        if !self
            .get(header.producer_id)
            .unwrap_or(unknown)
            .must_be_verified(header, origin)
        {
            return;
        }
        let new = VerificationStateEntry {
            producer_epoch: header.producer_epoch,
            lowest_sequence: header.base_sequence,
            timestamp: now_ms,
        };
        let entry = self.verification_states.entry(header.producer_id).or_insert(new);
        let is_lower = header.base_sequence < entry.lowest_sequence;
        if header.producer_epoch > entry.producer_epoch || (header.producer_epoch == entry.producer_epoch && is_lower) {
            *entry = new;
        }
    }

    /// Kafka: `ProducerAppendInfo#appendEndTxnMarker`.
    fn end_txn(
        entry: &mut ProducerStateEntry,
        pending: &mut PendingAppend,
        header: &BatchHeader,
        marker: EndTxnMarker,
        origin: AppendOrigin,
    ) -> Result<(), Refusal> {
        let is_aborted = match marker.control_type {
            ControlType::Abort => true,
            ControlType::Commit => false,
            ControlType::Other(_) => return Ok(()),
        };
        entry.check_marker_epoch(header.producer_epoch, origin)?;
        if marker.coordinator_epoch < entry.coordinator_epoch && origin != AppendOrigin::Replication {
            let message = format!(
                "marker for producer {} has coordinator epoch {}, the partition knows {}",
                entry.producer_id, marker.coordinator_epoch, entry.coordinator_epoch
            );
            return refuse(ErrorCode::TRANSACTION_COORDINATOR_FENCED, message);
        }
        if let Some(first_offset) = entry.current_txn_first_offset.take() {
            pending.completed.push(CompletedTxn {
                producer_id: entry.producer_id,
                first_offset,
                last_offset: header.base_offset,
                is_aborted,
            });
        }
        entry.update_epoch(header.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = header.max_timestamp;
        Ok(())
    }

    /// Applies the effects. Returns the aborted transactions, for the transaction index.
    pub fn commit(&mut self, pending: PendingAppend) -> Vec<AbortedTxn> {
        for producer_id in &pending.verified {
            self.verification_states.remove(producer_id);
        }
        for entry in &pending.entries {
            self.insert(entry);
        }
        self.ongoing.extend(pending.started);
        let mut aborted = Vec::new();
        for txn in pending.completed {
            self.ongoing.remove(&txn.first_offset);
            if txn.is_aborted {
                // The last stable offset from now on: the start of the oldest transaction that is still open.
                let last_stable_offset = self.ongoing.keys().next().copied().unwrap_or(txn.last_offset + 1);
                aborted.push(AbortedTxn {
                    producer_id: txn.producer_id,
                    first_offset: txn.first_offset,
                    last_offset: txn.last_offset,
                    last_stable_offset,
                });
            }
        }
        aborted
    }

    /// First offset of the oldest open transaction. Kafka: `ProducerStateManager#firstUnstableOffset`; with one replica every
    /// marker is below the high watermark, so nothing else limits the last stable offset.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        self.ongoing.keys().next().copied()
    }

    /// Removes producers that were idle for too long, by event time, unless they have an open transaction (spec 3.7).
    pub fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers
            .retain(|_, stored| !stored.is_expired(now_ms, expiration_ms));
        self.verification_states
            .retain(|_, entry| now_ms.saturating_sub(entry.timestamp) < expiration_ms);
    }

    /// What a reload from a snapshot keeps: the newest batch of each producer.
    pub fn keep_newest_batches(&mut self) {
        for (producer_id, stored) in &mut self.producers {
            let mut entry = stored.entry(*producer_id);
            entry.window.keep_newest();
            *stored = Stored::new(&entry);
        }
    }

    pub fn from_snapshot(entries: &[SnapshotEntry], now_ms: i64, expiration_ms: i64) -> Self {
        let mut manager = Self::default();
        for entry in entries.iter().map(ProducerStateEntry::from_snapshot) {
            if let Some(first) = entry.current_txn_first_offset {
                manager.ongoing.insert(first, entry.producer_id);
            }
            manager.insert(&entry);
        }
        manager.remove_expired(now_ms, expiration_ms);
        manager
    }

    /// Entries in order of producer id.
    pub fn to_snapshot(&self) -> Vec<SnapshotEntry> {
        let mut entries: Vec<_> = self.entries().map(ProducerStateEntry::to_snapshot).collect();
        entries.sort_by_key(|entry| entry.producer_id);
        entries
    }
}

#[cfg(test)]
mod tests;
