//! What was recorded of a consumer.

use fletchlog_api::{Config, ErrorCode, NodeId};
use fletchlog_records::TopicPartition;
use std::sync::Arc;

/// A batch of a response, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedBatch {
    /// First offset.
    pub base_offset: i64,
    /// Last offset.
    pub last_offset: i64,
    /// Number of records: lower than that of its offsets in a compacted batch.
    pub records: i32,
    /// -1 if none.
    pub producer_id: i64,
    /// Bytes of the whole batch, of which a response that is full has only a part.
    pub size: u64,
    /// It belongs to a transaction.
    pub transactional: bool,
    /// It is a marker.
    pub control: bool,
}

/// A partition of a response.
#[derive(Debug, Clone)]
pub struct RecordedPartition {
    /// Partition.
    pub tp: TopicPartition,
    /// Its error.
    pub error: ErrorCode,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset, -1 none.
    pub last_stable_offset: i64,
    /// The follower that the leader names instead of returning records, -1 none.
    pub preferred_read_replica: NodeId,
    /// (producer id, first offset) of aborted transactions.
    pub aborted: Vec<(i64, i64)>,
    /// In offset order.
    pub batches: Vec<RecordedBatch>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct RecordedResponse {
    /// When it was ready, us.
    pub at_us: i64,
    /// Error of the whole response.
    pub error: ErrorCode,
    /// Fetch session, 0 none.
    pub session_id: i32,
    /// In the order of the response.
    pub partitions: Vec<RecordedPartition>,
}

/// A fetch.
#[derive(Debug, Clone)]
pub struct RecordedFetch {
    /// Number of the request, for messages.
    pub number: u64,
    /// Where it was sent.
    pub node: NodeId,
    /// When it arrived, us.
    pub at_us: i64,
    /// It does not continue a fetch session.
    pub full: bool,
    /// Partition and offset, in the order of the request.
    pub wanted: Vec<(TopicPartition, i64)>,
    /// Partitions that it takes out of the session.
    pub forgotten: Vec<TopicPartition>,
    /// `None`: the connection was lost before.
    pub response: Option<RecordedResponse>,
}

/// An assignment.
#[derive(Debug, Clone)]
pub struct RecordedAssignment {
    /// When the group gave it, us.
    pub at_us: i64,
    /// Its partitions.
    pub partitions: Vec<TopicPartition>,
    /// Partitions assigned before keep their positions: the cooperative protocol (KIP-429).
    pub keeps_positions: bool,
}

/// An OffsetCommit.
#[derive(Debug, Clone)]
pub struct RecordedCommit {
    /// When it arrived, us.
    pub at_us: i64,
    /// Partitions and offsets.
    pub offsets: Vec<(TopicPartition, i64)>,
}

/// A Metadata request that names topics: an `assign()` left partitions of these alone.
#[derive(Debug, Clone)]
pub struct RecordedTopics {
    /// When it arrived, us.
    pub at_us: i64,
    /// The topics.
    pub topics: Vec<Arc<str>>,
}

/// Who fetched: one consumer.
#[derive(Debug, Clone)]
pub struct RecordedReader {
    /// Properties of the consumer: the release, the isolation level, whether it has a group.
    pub config: Config,
    /// Its assignments, the first one at its beginning; `assign()` has one. At least one.
    pub assignments: Vec<RecordedAssignment>,
    /// Topics that it subscribed to; `None`: `assign()`.
    pub subscribed: Option<Vec<Arc<str>>>,
    /// Its commits, in the order of their arrival.
    pub commits: Vec<RecordedCommit>,
    /// The topics that its Metadata requests name, if it uses `assign()`.
    pub topics: Vec<RecordedTopics>,
    /// Partitions whose offsets it looked up, and when, us: they were assigned, or it sought to an end.
    pub lookups: Vec<(i64, TopicPartition)>,
    /// Another thread than that of the polls sends the fetches: group.protocol=consumer (KIP-848).
    pub fetches_in_background: bool,
    /// Responses may have been read between two polls, whatever the rule of the release: the program makes other calls.
    pub reads_between_polls: bool,
}
