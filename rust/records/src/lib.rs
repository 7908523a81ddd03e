//! Kafka's record batches: bytes to batches and back; and Kafka's error table.
//!
//! No I/O, no clock, no dependency on another crate of fletchlog. Layouts are those of Kafka's `DefaultRecordBatch`,
//! `DefaultRecord`, `LegacyRecord` and `CompressionType`.

pub mod batch;
pub mod batch_builder;
pub mod batch_header;
pub mod committed;
pub mod compression;
pub mod control;
pub mod crc;
mod encode;
pub mod error;
pub mod error_code;
mod field;
pub mod ids;
pub mod legacy;
mod mix;
#[doc(hidden)]
pub mod planted;
mod rebuild;
pub mod record;
mod records_slice;
mod retained;
mod time_range;
pub mod timestamp_merge;
pub mod varint;

pub use batch::{BatchIter, RecordBatch, RecordSpan};
pub use batch_builder::{BatchBuilder, BatchParams, record_size};
pub use batch_header::{BatchHeader, next_batch_size};
pub use compression::{Compression, DECOMPRESSION_LIMIT};
pub use error::RecordError;
pub use error_code::ErrorCode;
pub use ids::{NO_TIMESTAMP, TimestampType, TopicPartition};
pub use mix::mix;
pub use rebuild::rebuild;
pub use record::{Header, Record, RecordCursor};
pub use records_slice::RecordsSlice;
pub use retained::{empty_batch, retained_batch};
pub use time_range::TimeRange;
