//! The records of one batch, uncompressed.

use bytes::Bytes;

use crate::varint::read_varint;
use crate::{BatchHeader, RecordError, TimestampType};

/// The uncompressed record region of one batch: the unit that the consumer cuts and that Arrow export decodes.
#[derive(Debug, Clone)]
pub struct RecordsSlice {
    /// Records in the v2 layout (spec 1.3), back to back, nothing else.
    pub payload: Bytes,
    /// Records that must be in `payload`.
    pub count: i32,
    /// Base offset of the batch: offset = base_offset + offsetDelta.
    pub base_offset: i64,
    /// Base timestamp: timestamp = base_timestamp + timestampDelta, unless LogAppendTime.
    pub base_timestamp: i64,
    /// Every record's timestamp under LogAppendTime.
    pub max_timestamp: i64,
    /// Timestamp type of the batch.
    pub timestamp_type: TimestampType,
    /// partitionLeaderEpoch of the batch (-1 none).
    pub leader_epoch: i32,
    /// Magic of the batch it came from.
    pub magic: i8,
    /// Producer id, epoch and base sequence of the batch (-1 if none).
    pub producer: (i64, i16, i32),
}

impl RecordsSlice {
    /// The uncompressed `payload` with the fields of its header.
    pub(crate) fn of(header: &BatchHeader, payload: Bytes) -> Self {
        Self {
            payload,
            count: header.records_count,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            timestamp_type: header.timestamp_type(),
            leader_epoch: header.partition_leader_epoch,
            magic: header.magic,
            producer: (header.producer_id, header.producer_epoch, header.base_sequence),
        }
    }
    /// The error for a malformed record of this batch.
    #[cold]
    pub fn invalid(&self, reason: &str) -> RecordError {
        RecordError::Invalid {
            base_offset: self.base_offset,
            reason: reason.to_owned(),
        }
    }
    /// The first record whose body takes more bytes than this, by its position in the batch. A malformed record ends the search.
    /// Kafka: `DefaultRecord#readFrom`.
    pub fn first_larger_than(&self, limit: usize) -> Option<i32> {
        if self.payload.len() <= limit {
            return None;
        }
        let mut position = 0;
        (0..self.count).find(|_| {
            let size = read_varint(&self.payload, &mut position).and_then(|size| usize::try_from(size).ok());
            // Malformed: the reader of the records reports it.
            let end = size.and_then(|size| position.checked_add(size));
            position = end.unwrap_or(self.payload.len());
            size.is_some_and(|size| size > limit)
        })
    }
    /// The error for a record that [`Self::first_larger_than`] found.
    #[cold]
    pub fn too_large(&self, index: i32, limit: usize) -> RecordError {
        RecordError::RecordTooLarge {
            base_offset: self.base_offset,
            index,
            limit,
        }
    }
    /// Whether the base offset plus any delta is a valid offset. Only a parse checks each sum: if this is false, records must
    /// not be taken by their layout ([`crate::record::Frame`]).
    pub fn sums_fit(&self) -> bool {
        (0..=i64::MAX - i64::from(i32::MAX)).contains(&self.base_offset)
    }
    /// Timestamp of a record with this delta; sums beyond 64 bits wrap as Java's do.
    #[inline(always)]
    pub fn timestamp(&self, delta: i64) -> i64 {
        match self.timestamp_type {
            TimestampType::LogAppendTime => self.max_timestamp,
            _ => self.base_timestamp.wrapping_add(delta),
        }
    }
}
