//! Settings of one log. Kafka: `LogConfig`. Defaults: spec 1.14.

use fletchlog_records::{BatchHeader, Compression, RecordsSlice, TimestampType};

/// When an acknowledged append is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Kafka's promise: in the page cache; survives a killed process, not a power loss.
    PageCache,
    /// Acknowledged = on disk.
    Fsync,
}

/// Typed settings of a partition's log.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct LogConfig {
    pub segment_bytes: i32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: i32,
    pub index_interval_bytes: i32,
    pub retention_ms: i64,
    pub retention_bytes: i64,
    pub max_message_bytes: i32,
    /// Largest body of a record in a compressed batch.
    pub max_decompressed_message_bytes: i32,
    /// `None` = "producer".
    pub compression_type: Option<Compression>,
    pub compression_level: Option<i32>,
    pub cleanup_delete: bool,
    pub cleanup_compact: bool,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_after_max_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub producer_id_expiration_ms: i64,
    /// 1.0-2.4 rule: an unknown producer must start at sequence 0 (spec 9.6).
    pub strict_first_sequence: bool,
    pub durability: Durability,
    /// Preallocate indexes as Kafka does while a segment is active.
    pub preallocate_indexes: bool,
}

impl LogConfig {
    /// Bytes of a log between two entries of its indexes.
    pub(crate) fn index_interval(&self) -> u64 {
        u64::try_from(self.index_interval_bytes).unwrap_or(0)
    }

    /// The first record that is larger than its topic allows: its position, and the limit. Only what is stored or sent compressed is
    /// limited. Kafka: max.decompressed.message.bytes, `CompressedBatch`.
    pub(crate) fn first_too_large(&self, header: &BatchHeader, slice: &RecordsSlice) -> Option<(i32, usize)> {
        let limit = usize::try_from(self.max_decompressed_message_bytes).ok()?;
        let is_compressed = header.magic >= 2 && header.compression() != Some(Compression::None);
        is_compressed
            .then(|| slice.first_larger_than(limit))
            .flatten()
            .map(|index| (index, limit))
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1_073_741_824,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10_485_760,
            index_interval_bytes: 4096,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: 2_147_483_639,
            compression_type: None,
            compression_level: None,
            cleanup_delete: true,
            cleanup_compact: false,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            max_compaction_lag_ms: i64::MAX,
            min_compaction_lag_ms: 0,
            min_cleanable_dirty_ratio: 0.5,
            delete_retention_ms: 86_400_000,
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: 86_400_000,
            strict_first_sequence: false,
            durability: Durability::PageCache,
            preallocate_indexes: false,
        }
    }
}
