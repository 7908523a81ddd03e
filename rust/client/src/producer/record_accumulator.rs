//! Queues of batches per partition (spec 9.2 to 9.4). Kafka: `RecordAccumulator`.

mod after;
mod append;
mod drain;
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fletchlog_api::{Clock, NodeId};
use fletchlog_records::BatchBuilder;
use rustc_hash::FxHashMap;

use super::config::ProducerConfig;
use super::future::Signal;
use super::metadata::PartitionId;
use super::partitioner::Partitioners;
use super::producer_batch::{BatchId, BatchTable, ProducerBatch};
use crate::ClientError;
use crate::random::Random;
pub(crate) use append::Row;
pub(crate) use run::{Loan, Rows};

/// Builders kept for reuse: enough for the batches between two turns of the sender at full speed (64 x 16 KiB = 1 MiB).
const SPARE_BUILDERS: usize = 64;
/// 1/16 of buffer.memory is room for many batches: 2 MiB of the default 32 MiB, which is 128 batches.
const ROOM: usize = 16;
/// When a batch compresses worse than estimated, the estimate rises by at least this; otherwise it falls by at most the other.
/// Kafka: `CompressionRatioEstimator`.
const RATIO_DETERIORATION: f32 = 0.05;
const RATIO_IMPROVEMENT: f32 = 0.005;

#[derive(Debug, Default)]
struct PartitionQueue {
    batches: VecDeque<BatchId>,
    muted: bool,
}

/// What [`RecordAccumulator::ready`] found. Kafka: `ReadyCheckResult`.
#[derive(Debug)]
pub(crate) struct ReadyCheck {
    pub nodes: Vec<NodeId>,
    /// For each of them, the first batch that was found to be sendable.
    pub heads: Vec<BatchId>,
    /// ms until the next partition may become ready.
    pub next_check_ms: i64,
    pub unknown_leaders: bool,
}

/// Failures of records that have no callback and whose futures nobody kept: warnings are the only trace of them.
#[derive(Debug, Default)]
pub(crate) struct UnseenFailures {
    /// Records that no warning has counted yet, and why the last of them failed.
    records: i64,
    why: String,
    not_before_ms: i64,
}

impl UnseenFailures {
    /// How long further failures are only counted after a warning.
    const PAUSE_MS: i64 = 1000;

    fn add(&mut self, records: i64, error: &ClientError, now_ms: i64) {
        self.records += records;
        self.why = error.to_string();
        if now_ms >= self.not_before_ms {
            self.not_before_ms = now_ms.saturating_add(Self::PAUSE_MS);
            self.report();
        }
    }

    /// Warns of those that no warning has counted.
    pub(crate) fn report(&mut self) {
        match std::mem::take(&mut self.records) {
            0 => {}
            records => log::warn!(
                "{records} records were not written, which only this warning reports, as their futures were dropped and they have no callback: {}",
                self.why
            ),
        }
    }
}

/// The queues of batches, one per partition, and what decides when they are sent. Every time is monotonic ms.
pub(crate) struct RecordAccumulator {
    config: Arc<ProducerConfig>,
    clock: Arc<dyn Clock>,
    signal: Arc<Signal>,
    partitioners: Partitioners,
    queues: Vec<PartitionQueue>,
    pub(crate) batches: BatchTable,
    ratios: FxHashMap<Arc<str>, f32>,
    spare: Vec<BatchBuilder>,
    memory_used: usize,
    /// Number of threads that wait for memory: while it is not 0, everything is sendable.
    pub(crate) memory_waiters: usize,
    pub(crate) flushes: usize,
    /// A transaction is being ended: everything is sendable.
    pub(crate) completing: bool,
    pub(crate) closed: bool,
    /// Undecided batches by serial (the products of a split count for their parent).
    incomplete: BTreeMap<u64, u32>,
    next_serial: u64,
    /// First failure of a `send_columns` row since the last flush.
    pub(crate) run_failure: Option<ClientError>,
    /// Records of failed batches.
    pub(crate) failed_records: i64,
    pub(crate) unseen: UnseenFailures,
    drain_index: usize,
    node_drain_index: FxHashMap<NodeId, usize>,
    /// The queue of the batch that a user's thread compressed last.
    pack_index: usize,
    /// (ready, drained) times per node. Kafka: `NodeLatencyStats`.
    latency: FxHashMap<NodeId, (i64, i64)>,
    random: Random,
}

impl RecordAccumulator {
    pub(crate) fn new(config: Arc<ProducerConfig>, clock: Arc<dyn Clock>, signal: Arc<Signal>, seed: u64) -> Self {
        Self {
            config,
            clock,
            signal,
            partitioners: Partitioners::new(seed),
            queues: Vec::new(),
            batches: BatchTable::default(),
            ratios: FxHashMap::default(),
            spare: Vec::new(),
            memory_used: 0,
            memory_waiters: 0,
            flushes: 0,
            completing: false,
            closed: false,
            incomplete: BTreeMap::new(),
            next_serial: 0,
            run_failure: None,
            failed_records: 0,
            unseen: UnseenFailures::default(),
            drain_index: 0,
            node_drain_index: FxHashMap::default(),
            pack_index: 0,
            latency: FxHashMap::default(),
            random: Random::new(seed ^ 0xacc),
        }
    }

    fn queue(&mut self, partition: PartitionId) -> &mut PartitionQueue {
        if partition >= self.queues.len() {
            self.queues.resize_with(partition + 1, PartitionQueue::default);
        }
        &mut self.queues[partition]
    }

    /// Whether buffer.memory has room for a batch of this size. Kafka: `BufferPool#allocate`.
    pub(crate) fn has_memory(&self, size: usize) -> bool {
        self.memory_used.saturating_add(size) <= self.config.buffer_memory
    }

    /// Whether buffer.memory has room for many batches ([`ROOM`]).
    pub(crate) fn has_room(&self) -> bool {
        self.has_memory(self.config.buffer_memory / ROOM)
    }

    /// Drains nothing more of a partition. Kafka: `RecordAccumulator#mutePartition`.
    pub(crate) fn mute(&mut self, partition: PartitionId) {
        self.queue(partition).muted = true;
    }
    /// Ends [`Self::mute`]; true if the partition was muted. Kafka: `RecordAccumulator#unmutePartition`.
    pub(crate) fn unmute(&mut self, partition: PartitionId) -> bool {
        std::mem::take(&mut self.queue(partition).muted)
    }

    pub(crate) fn has_incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }
    pub(crate) fn has_undrained(&self) -> bool {
        self.queues.iter().any(|q| !q.batches.is_empty())
    }
    /// Serial that the next batch will get: a flush waits for all below.
    pub(crate) fn serial_mark(&self) -> u64 {
        self.next_serial
    }
    pub(crate) fn all_decided_below(&self, mark: u64) -> bool {
        self.incomplete
            .first_key_value()
            .is_none_or(|(&serial, _)| serial >= mark)
    }
}

/// Kafka: `ProducerBatch#hasReachedDeliveryTimeout`.
pub(crate) fn past_delivery(batch: &ProducerBatch, delivery_timeout_ms: i64, now: i64) -> bool {
    now.saturating_sub(batch.created_ms) >= delivery_timeout_ms
}

#[cfg(test)]
mod tests;
