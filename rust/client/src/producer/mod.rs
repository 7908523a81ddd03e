//! The producer: record accumulator, partitioner, sender, idempotence. Kafka: `KafkaProducer` 2.4 .. 4.4.

use std::sync::Arc;

mod config;
mod errors;
mod future;
mod idempotence;
mod memory_records_builder;
mod metadata;
mod partitioner;
#[allow(clippy::module_inception, reason = "one role per file: this one is the facade")]
mod producer;
mod producer_batch;
mod record_accumulator;
mod release;
mod send;
mod sender;
mod shared;
mod stepped;
mod trace;
mod transaction;
mod waiter;

pub use crate::group::ConsumerGroupMetadata;

pub use future::{OnDecided, RecordFuture};
pub use partitioner::{murmur2, partition_for_key};
pub use producer::Producer;
pub use trace::{TraceEvent, TraceKind};

/// One record to send.
#[derive(Debug, Clone)]
pub struct ProducerRecord<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Explicit partition, else by key (murmur2) or sticky.
    pub partition: Option<i32>,
    /// CreateTime in ms, else now.
    pub timestamp: Option<i64>,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Where a record went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset, -1 if unknown (acks=0, duplicate 46).
    pub offset: i64,
    /// Timestamp of the record in the log, ms.
    pub timestamp: i64,
}

/// Columns of records for one topic: the input of `send_arrow`. Row access must be cheap.
pub trait RecordColumns {
    /// Rows.
    fn len(&self) -> usize;
    /// Value of a row.
    fn value(&self, row: usize) -> Option<&[u8]>;
    /// Key of a row.
    fn key(&self, row: usize) -> Option<&[u8]>;
    /// Explicit partition of a row.
    fn partition(&self, row: usize) -> Option<i32>;
    /// Timestamp of a row in ms.
    fn timestamp(&self, row: usize) -> Option<i64>;
    /// Appends the headers of a row to `out` (cleared by the caller).
    fn headers<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>);
    /// True if no row has a header.
    fn no_headers(&self) -> bool;
    /// No rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
