//! What is derived from a recording.

use fletchlog_records::TopicPartition;

/// Records of a partition that a poll returned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DerivedRun {
    /// Partition.
    pub tp: TopicPartition,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Number of records.
    pub count: usize,
    /// Whether both offsets are known. They are not where a poll began or ended in a batch that compaction thinned out.
    pub exact: bool,
}

/// What a poll with records returned.
#[derive(Debug, Clone)]
pub struct DerivedPoll {
    /// In the order of a for-each over `ConsumerRecords`.
    pub runs: Vec<DerivedRun>,
    /// Number of the first fetch that was sent at its end or later; `None`: none was.
    pub fetch: Option<u64>,
    /// Partitions whose records had arrived and were left for later polls.
    pub buffered: Vec<TopicPartition>,
    /// Whether the recording leaves no other way. Behind an inferred call nothing is decided: another call can explain the
    /// same fetch.
    pub decided: bool,
}

/// A call of the program that explains a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedCall {
    /// Its name.
    pub method: &'static str,
    /// Partition.
    pub tp: TopicPartition,
    /// Of a seek; else -1.
    pub offset: i64,
    /// The fetch that shows it.
    pub fetch: u64,
}

impl DerivedCall {
    pub(super) fn new(method: &'static str, tp: &TopicPartition, offset: i64, fetch: u64) -> Self {
        Self {
            method,
            tp: tp.clone(),
            offset,
            fetch,
        }
    }
}

/// Where the replayed consumer does something else than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// Number of the recorded fetch.
    pub fetch: u64,
    /// What differs.
    pub why: String,
}

/// The polls of a recorded consumer.
#[derive(Debug, Clone, Default)]
pub struct DerivedPolls {
    /// Polls with records, up to the last fetch that agrees. Polls behind the last fetch show nothing.
    pub polls: Vec<DerivedPoll>,
    /// Calls without which no way agrees.
    pub calls: Vec<DerivedCall>,
    /// The first fetch that no way explains.
    pub parted: Option<Parting>,
    /// Number of fetches that agree.
    pub agreeing: usize,
    /// Partitions whose records had arrived and were not returned by the last of `polls`.
    pub buffered: Vec<TopicPartition>,
    /// max.poll.records.
    pub max_poll_records: usize,
    /// Lowest and highest of the tried values that agree with the fetches; `None`: it was given, or none agrees.
    pub max_poll_records_between: Option<(usize, usize)>,
}
