//! Small identifying types shared by every crate.

use std::fmt;
use std::sync::Arc;

/// "No producer id" (spec 1.1).
pub const NO_PRODUCER_ID: i64 = -1;
/// "No producer epoch" (spec 1.1).
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// "No sequence" (spec 1.1).
pub const NO_SEQUENCE: i32 = -1;
/// "No timestamp".
pub const NO_TIMESTAMP: i64 = -1;
/// "No leader epoch".
pub const NO_LEADER_EPOCH: i32 = -1;

/// A topic and a partition number; orders by (topic as string, partition).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// A topic-partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Kafka's `TimestampType`; the discriminant is the value of Spark's `timestampType` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum TimestampType {
    /// Message format v0: no timestamps.
    NoTimestampType = -1,
    /// The producer's time.
    CreateTime = 0,
    /// The broker's time at append.
    LogAppendTime = 1,
}
