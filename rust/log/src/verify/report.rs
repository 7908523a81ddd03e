//! What a check of a partition directory found.

use std::path::PathBuf;

/// Something is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Byte position in it.
    pub position: u64,
    /// What is wrong.
    pub reason: String,
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SegmentReport {
    pub path: PathBuf,
    pub base_offset: i64,
    pub size: u64,
    pub batches: u64,
    pub records: u64,
    /// Last offset + 1 of the last batch; the base offset if there is none.
    pub next_offset: i64,
    /// -1 none.
    pub max_timestamp: i64,
}

/// One producer, as the batches of the log show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProducerReport {
    pub producer_id: i64,
    pub epoch: i16,
    pub last_sequence: i32,
    pub last_offset: i64,
    pub last_timestamp: i64,
    /// Expired by the default of producer.id.expiration.ms: a writer removes it when it opens the log, or at its next check.
    pub expired: bool,
}

/// What recovery after an unclean stop, from the start of the log, would remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The `.log` file.
    pub path: PathBuf,
    /// First byte that would be removed.
    pub from: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Why.
    pub reason: String,
}

/// The state of a partition directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionReport {
    /// First readable offset: of the first segment, or what `log-start-offset-checkpoint` beside the directory says.
    pub log_start_offset: i64,
    /// Last offset of the last batch + 1.
    pub log_end_offset: i64,
    /// Segments in order.
    pub segments: Vec<SegmentReport>,
    /// Batches of all segments.
    pub batches: u64,
    /// Records of all segments, control records included.
    pub records: u64,
    /// Damaged batches and tails.
    pub damaged: Vec<Problem>,
    /// Index, snapshot and checkpoint files that do not agree with the log. They can be rebuilt.
    pub index_problems: Vec<Problem>,
    /// Offsets [from, to) that no batch has: compaction, a lost segment, or a start offset that moved.
    pub holes: Vec<(i64, i64)>,
    /// Producers by id.
    pub producers: Vec<ProducerReport>,
    /// (producer id, first offset) of transactions without a marker.
    pub open_transactions: Vec<(i64, i64)>,
    /// What recovery would cut.
    pub would_cut: Vec<Cut>,
}

impl PartitionReport {
    /// Whether nothing is wrong. Holes and open transactions are not wrong.
    pub fn is_ok(&self) -> bool {
        self.damaged.is_empty() && self.index_problems.is_empty()
    }
}
