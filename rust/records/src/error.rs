//! What can be wrong with record bytes.

/// Why bytes were refused. `position` is a byte position in the buffer that was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Kafka: `CorruptRecordException` (wire code CORRUPT_MESSAGE = 2): header or CRC wrong.
    #[error("corrupt batch at position {position}: {reason}")]
    Corrupt {
        /// Byte position of the batch.
        position: usize,
        /// What is wrong.
        reason: String,
    },
    /// Kafka: `InvalidRecordException` (wire code INVALID_RECORD = 87): the records inside are malformed.
    #[error("invalid record in the batch at offset {base_offset}: {reason}")]
    Invalid {
        /// Base offset of the batch that holds the record.
        base_offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// A timestamp that the column asked for cannot hold. Spark: `KAFKA_MALFORMED_RECORD_TIMESTAMP`.
    #[error(
        "the timestamp {timestamp} (ms) at offset {offset} is beyond what microseconds in 64 bits can hold; read the column timestamp in milliseconds, or without it"
    )]
    Timestamp {
        /// Offset of the record.
        offset: i64,
        /// Its timestamp.
        timestamp: i64,
    },
    /// The compressed payload does not decompress, or its codec id is unknown.
    #[error("cannot decompress the {codec} payload of the batch at offset {base_offset}: {reason}")]
    Decompression {
        /// Name of the codec (or its number when unknown).
        codec: String,
        /// Base offset of the batch.
        base_offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// The payload would expand beyond the caller's limit.
    #[error(
        "the batch at offset {base_offset} expands beyond the limit of {limit} bytes (a consumer takes larger ones with fletchlog.decompression.limit.bytes)"
    )]
    DecompressionLimit {
        /// Base offset of the batch.
        base_offset: i64,
        /// The limit in bytes.
        limit: usize,
    },
    /// A record of a compressed batch is larger than its topic allows. Kafka: `InvalidRecordException` (87).
    #[error(
        "record {index} of the batch at offset {base_offset} takes more than max.decompressed.message.bytes = {limit}; raise it"
    )]
    RecordTooLarge {
        /// Base offset of the batch.
        base_offset: i64,
        /// Position of the record in the batch, from 0.
        index: i32,
        /// The limit in bytes.
        limit: usize,
    },
    /// Magic byte that this reader does not know.
    #[error("unsupported magic {magic} at position {position}")]
    UnsupportedMagic {
        /// The magic byte.
        magic: i8,
        /// Byte position of the batch.
        position: usize,
    },
}

impl RecordError {
    /// The same error with the batch's position in a larger buffer added.
    pub(crate) fn at(mut self, base: usize) -> Self {
        if let Self::Corrupt { position, .. } | Self::UnsupportedMagic { position, .. } = &mut self {
            *position += base;
        }
        self
    }
}
