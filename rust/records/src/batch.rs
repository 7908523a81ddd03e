//! One batch over shared bytes, and the walk over a slice of batches.

use bytes::Bytes;

use crate::batch_header::{
    ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE_UP_TO_MAGIC, LEADER_EPOCH_POSITION, LENGTH_POSITION, MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK, next_batch_size,
};
use crate::crc::crc32c;
use crate::field::field;
use crate::{BatchHeader, Compression, RecordCursor, RecordError, RecordsSlice, TimestampType, legacy};

/// A whole batch (v0, v1 or v2) in shared bytes. For v0/v1 one entry (or one compressed wrapper) is a batch, and `header()`
/// returns the equivalent v2 view (no producer id, offsets and timestamps of the entry).
#[derive(Debug, Clone)]
pub struct RecordBatch {
    bytes: Bytes,
    header: BatchHeader,
}

impl RecordBatch {
    /// Takes the batch at the start of `bytes` (which may be longer). `Ok(None)`: not a whole batch (partial tail).
    pub fn parse(bytes: &Bytes) -> Result<Option<Self>, RecordError> {
        let Some(size) = next_batch_size(bytes)? else {
            return Ok(None);
        };
        if size > bytes.len() {
            return Ok(None);
        }
        let bytes = bytes.slice(..size);
        let header = if bytes[MAGIC_POSITION] < 2 {
            legacy::parse_header(&bytes)?
        } else {
            BatchHeader::parse(&bytes)?
        };
        Ok(Some(Self { bytes, header }))
    }
    /// The parsed header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
    /// Exactly the bytes of this batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
    /// Checks size and CRC (CRC-32C for v2, IEEE per entry for v0/v1). Kafka: `ensureValid`.
    pub fn ensure_valid(&self) -> Result<(), RecordError> {
        if self.header.magic < 2 {
            return legacy::ensure_valid(&self.bytes, 0);
        }
        self.header.check_crc(&self.bytes)
    }
    /// The records, decompressed if need be (never above `limit` bytes; v0/v1 converted to the v2 record layout), with what
    /// is needed to compute their offsets and timestamps. Does not check the CRC and does not parse the records.
    ///
    /// Entries inside a compressed v0/v1 wrapper have their own checksums, which are checked here: the caller never sees
    /// those entries. A batch that declares no records is not decompressed.
    pub fn records(&self, limit: usize) -> Result<RecordsSlice, RecordError> {
        let header = &self.header;
        if header.magic < 2 {
            return legacy::records(&self.bytes, header, limit);
        }
        if header.records_count < 0 {
            return Err(RecordError::Invalid {
                base_offset: header.base_offset,
                reason: format!("the batch declares {} records", header.records_count),
            });
        }
        let body = self.bytes.slice(RECORD_BATCH_OVERHEAD..);
        let payload = match header.compression() {
            _ if header.records_count == 0 => Bytes::new(),
            Some(Compression::None) if body.len() > limit => {
                return Err(RecordError::DecompressionLimit {
                    base_offset: header.base_offset,
                    limit,
                });
            }
            Some(Compression::None) => body,
            Some(codec) => Bytes::from(codec.decompress(&body, header.magic, limit, header.base_offset)?),
            None => {
                return Err(RecordError::Decompression {
                    codec: (header.attributes & 7).to_string(),
                    base_offset: header.base_offset,
                    reason: "unknown codec id".to_owned(),
                });
            }
        };
        Ok(RecordsSlice::of(header, payload))
    }
}

/// Walks the whole batches of a buffer (a produce request or a fetch response); a partial last batch ends the walk silently.
/// An error is returned once, with the position in the whole buffer, and ends the walk: what follows it is unknown. Kafka:
/// `ByteBufferLogInputStream` (buffer rules of spec 1.1).
#[derive(Debug, Clone)]
pub struct BatchIter {
    rest: Bytes,
    position: usize,
    failed: bool,
}

impl BatchIter {
    /// Starts at the first byte.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            position: 0,
            failed: false,
        }
    }
    /// Byte position of the next batch.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl Iterator for BatchIter {
    type Item = Result<RecordBatch, RecordError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match RecordBatch::parse(&self.rest) {
            Ok(Some(batch)) => {
                let size = batch.bytes.len();
                self.rest = self.rest.slice(size..);
                self.position += size;
                Some(Ok(batch))
            }
            Ok(None) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error.at(self.position)))
            }
        }
    }
}

/// Assigns offsets in place: baseOffset and partitionLeaderEpoch, outside the CRC (spec 1.1). A v0/v1 entry has no
/// leader epoch and gets its offset only.
///
/// # Panics
/// If `batch` is not a whole batch header: patching anything else would corrupt a log.
pub fn set_offset_and_epoch(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    assert!(
        batch.len() >= HEADER_SIZE_UP_TO_MAGIC,
        "offsets are assigned to a batch, not to {} bytes",
        batch.len()
    );
    batch[..LENGTH_POSITION].copy_from_slice(&base_offset.to_be_bytes());
    if batch[MAGIC_POSITION] >= 2 {
        batch[LEADER_EPOCH_POSITION..MAGIC_POSITION].copy_from_slice(&leader_epoch.to_be_bytes());
    }
}

/// Kafka: `setMaxTimestamp`: rewrites the type bit and maxTimestamp and the CRC; nothing when both are already equal.
///
/// # Panics
/// If `batch` is shorter than a v2 header, or not v2.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    assert!(
        batch.len() >= RECORD_BATCH_OVERHEAD && batch[MAGIC_POSITION] == 2,
        "a max timestamp is set on a whole v2 batch"
    );
    let attributes = i16::from_be_bytes(field(batch, ATTRIBUTES_POSITION));
    let wanted = match timestamp_type {
        TimestampType::LogAppendTime => attributes | TIMESTAMP_TYPE_MASK,
        TimestampType::CreateTime | TimestampType::NoTimestampType => attributes & !TIMESTAMP_TYPE_MASK,
    };
    if wanted == attributes && i64::from_be_bytes(field(batch, MAX_TIMESTAMP_POSITION)) == max_timestamp {
        return;
    }
    batch[ATTRIBUTES_POSITION..ATTRIBUTES_POSITION + 2].copy_from_slice(&wanted.to_be_bytes());
    batch[MAX_TIMESTAMP_POSITION..MAX_TIMESTAMP_POSITION + 8].copy_from_slice(&max_timestamp.to_be_bytes());
    let crc = crc32c(&batch[ATTRIBUTES_POSITION..]);
    batch[CRC_POSITION..ATTRIBUTES_POSITION].copy_from_slice(&crc.to_be_bytes());
}

/// A run of consecutive records inside one [`RecordsSlice`], cut by the consumer and decoded by Arrow export.
/// Everything in `slice.payload[start..end]` has been walked (framing checked) by [`crate::RecordCursor::walk`].
#[derive(Debug, Clone)]
pub struct RecordSpan {
    /// The batch's records (cheap to clone: shared bytes).
    pub slice: RecordsSlice,
    /// Byte position of the first record.
    pub start: usize,
    /// Byte position after the last record.
    pub end: usize,
    /// Records in the span.
    pub count: usize,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
}

impl RecordSpan {
    /// A cursor at its first record. The cursor that cut the span has counted the records and checked for bytes after the
    /// last one of the batch.
    pub fn cursor(&self) -> RecordCursor {
        let returned = self
            .slice
            .count
            .saturating_sub(i32::try_from(self.count).unwrap_or(i32::MAX));
        let is_last = self.end == self.slice.payload.len();
        RecordCursor::resume_at(self.start, if is_last { returned } else { returned - 1 })
    }
}

#[cfg(test)]
mod tests;
