//! The consumer: which records `poll` returns, in which order. Kafka: `KafkaConsumer` 2.4 .. 4.4 (classic).

mod abstract_fetch;
mod completed_fetch;
#[allow(clippy::module_inception)] // The facade's folder is named after it.
mod consumer;
pub mod consumer_network_client;
mod consumer_state;
mod decision_table;
mod derived_polls;
mod fair_collector;
mod fetch_buffer;
mod fetch_collector;
mod fetch_session_handler;
mod leader_questions;
pub mod metadata;
pub(crate) mod missing;
mod offset_lookup;
mod offset_reset;
mod offset_validation;
mod offsets_for_times;
mod poll;
mod positions;
mod range_scan;
mod settings;
pub mod subscription_state;
mod timestamp_collector;
mod topic_pattern;
mod trace;
mod until;
mod wakeup;

pub use consumer::Consumer;
pub use decision_table::{NetworkRead, ROWS, RequestOrder, Row, SubscribeOrder, row_of};
pub use derived_polls::{
    DerivedCall, DerivedPoll, DerivedPolls, DerivedRun, Parting, RecordedAssignment, RecordedBatch, RecordedCommit,
    RecordedFetch, RecordedPartition, RecordedReader, RecordedResponse, RecordedTopics, derive_polls,
};
pub use range_scan::{OffsetRange, RangeScan, ScannedSpan};
pub use topic_pattern::TopicPattern;
pub use trace::{TraceEvent, TraceKind, TracePartition};
pub use until::Until;
pub use wakeup::WakeupHandle;

use fletchlog_api::java_hash;
use fletchlog_records::{RecordSpan, TopicPartition};
use rustc_hash::FxHashMap;

/// Records of one partition, taken in one go from the queue.
#[derive(Debug, Clone)]
pub struct PartitionRun {
    /// Partition.
    pub tp: TopicPartition,
    /// The records, in offset order.
    pub spans: Vec<RecordSpan>,
    /// First offset returned.
    pub first_offset: i64,
    /// Last offset returned.
    pub last_offset: i64,
    /// Number of records.
    pub count: usize,
    /// How often they were delivered, this time included; `None`: they come from no share group.
    pub delivery_count: Option<i16>,
}

/// What one poll returned.
#[derive(Debug, Clone, Default)]
pub struct PolledRecords {
    /// In drain order: the order in which poll took them from the queue (spec 7.5).
    pub runs: Vec<PartitionRun>,
    /// Whether rows come in the order of `runs`: under `fletchlog.fetch.order=timestamp`, and from a share group.
    pub in_order: bool,
}

impl PolledRecords {
    /// Indices into `runs` in the order of rows: theirs, or [`Self::java_order`].
    pub fn row_order(&self) -> Vec<usize> {
        if self.in_order {
            (0..self.runs.len()).collect()
        } else {
            self.java_order()
        }
    }
    /// Total number of records.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|r| r.count).sum()
    }
    /// Bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        let spans = self.runs.iter().flat_map(|run| &run.spans);
        spans.map(|span| span.end.saturating_sub(span.start)).sum()
    }
    /// Indices into `runs` in the order a Java for-each over ConsumerRecords walks them (spec 7.6).
    pub fn java_order(&self) -> Vec<usize> {
        // `new HashMap()` filled in drain order; a partition that was taken twice keeps its first place.
        let mut partitions: Vec<TopicPartition> = Vec::with_capacity(self.runs.len());
        let mut runs_of: FxHashMap<&TopicPartition, Vec<usize>> = FxHashMap::default();
        for (i, run) in self.runs.iter().enumerate() {
            let runs = runs_of.entry(&run.tp).or_default();
            if runs.is_empty() {
                partitions.push(run.tp.clone());
            }
            runs.push(i);
        }
        let walk = java_hash::hash_map_order(&partitions, java_hash::DEFAULT_CAPACITY);
        walk.iter()
            .flat_map(|tp| runs_of.get(tp).into_iter().flatten().copied())
            .collect()
    }
}

/// A result of `offsets_for_times`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetAndTimestamp {
    /// Offset of the first record at or after the requested time.
    pub offset: i64,
    /// Its timestamp, ms.
    pub timestamp: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
}

/// Called about every 50 ms while a call waits. True stops the call: it returns `Interrupted`, and no position has
/// moved.
pub type Interrupt<'a> = &'a mut dyn FnMut() -> bool;

/// What a rebalance listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebalanceEvent {
    /// Partitions taken away (positions were committed if auto commit is on).
    Revoked(Vec<TopicPartition>),
    /// Partitions gained.
    Assigned(Vec<TopicPartition>),
    /// Partitions lost without a chance to commit.
    Lost(Vec<TopicPartition>),
}

#[cfg(test)]
mod tests;
