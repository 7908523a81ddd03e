//! The 61-byte header of a v2 batch (spec 1.1, 1.2).
//!
//! | off | size | field                | rule                                                        |
//! |-----|------|----------------------|-------------------------------------------------------------|
//! | 0   | i64  | baseOffset           | offset of the first record when written; not under the CRC  |
//! | 8   | i32  | batchLength          | bytes after this field; not under the CRC                   |
//! | 12  | i32  | partitionLeaderEpoch | stamped at append; not under the CRC                        |
//! | 16  | i8   | magic                | 2                                                           |
//! | 17  | u32  | crc                  | CRC-32C of bytes 21..end                                    |
//! | 21  | i16  | attributes           | bits: 0-2 codec, 3 time type, 4 transactional, 5 control, 6 delete horizon |
//! | 23  | i32  | lastOffsetDelta      | last offset - base offset                                   |
//! | 27  | i64  | baseTimestamp        | of the first record, or the delete horizon                  |
//! | 35  | i64  | maxTimestamp         | largest of the records, or the append time                  |
//! | 43  | i64  | producerId           | -1 none                                                     |
//! | 51  | i16  | producerEpoch        | -1 none                                                     |
//! | 53  | i32  | baseSequence         | -1 none                                                     |
//! | 57  | i32  | recordsCount         | records present now                                         |
//! | 61  | ..   | records              | back to back, compressed as one block if a codec is set     |

use crate::crc::crc32c;
use crate::field::field;
use crate::ids::NO_SEQUENCE;
use crate::{Compression, RecordError, TimestampType};

/// Bytes before `batchLength` ends: baseOffset i64 + batchLength i32.
pub const LOG_OVERHEAD: usize = 12;
/// Size of a v2 header: an empty batch.
pub const RECORD_BATCH_OVERHEAD: usize = 61;
/// Bytes needed to read offset, length, leader epoch (or crc) and magic.
pub const HEADER_SIZE_UP_TO_MAGIC: usize = 17;

/// Position of batchLength.
pub(crate) const LENGTH_POSITION: usize = 8;
/// Position of partitionLeaderEpoch.
pub(crate) const LEADER_EPOCH_POSITION: usize = 12;
/// Position of magic, in every format.
pub const MAGIC_POSITION: usize = 16;
/// Position of the CRC.
pub const CRC_POSITION: usize = 17;
/// Position of the attributes, the first byte under the CRC.
pub const ATTRIBUTES_POSITION: usize = 21;
/// Position of maxTimestamp.
pub(crate) const MAX_TIMESTAMP_POSITION: usize = 35;

/// Attribute bits 0-2: codec.
pub const COMPRESSION_MASK: i16 = 0x07;
/// Attribute bit 3: LogAppendTime.
pub(crate) const TIMESTAMP_TYPE_MASK: i16 = 0x08;
/// Attribute bit 4: transactional.
pub const TRANSACTIONAL_MASK: i16 = 0x10;
/// Attribute bit 5: control batch.
pub(crate) const CONTROL_MASK: i16 = 0x20;
/// Attribute bit 6: baseTimestamp is a delete horizon.
pub(crate) const DELETE_HORIZON_MASK: i16 = 0x40;

/// Smallest length field of any format: an empty v0 entry.
pub const MIN_LENGTH_FIELD: i32 = 14;

/// Total size of the batch that starts at `buf[0]`, from its first 17 bytes. Kafka: `ByteBufferLogInputStream#nextBatchSize`.
/// `Ok(None)`: fewer than 17 bytes left. `Err(Corrupt)`: length field < 14 or (buffer rule) magic outside 0..=2.
pub fn next_batch_size(buf: &[u8]) -> Result<Option<usize>, RecordError> {
    if buf.len() < HEADER_SIZE_UP_TO_MAGIC {
        return Ok(None);
    }
    let length = i32::from_be_bytes(field(buf, LENGTH_POSITION));
    if length < MIN_LENGTH_FIELD {
        return Err(RecordError::Corrupt {
            position: 0,
            reason: format!("Record size {length} is less than the minimum record overhead ({MIN_LENGTH_FIELD})"),
        });
    }
    let magic = i8::from_be_bytes(field(buf, MAGIC_POSITION));
    if !(0..=2).contains(&magic) {
        return Err(RecordError::Corrupt {
            position: 0,
            reason: format!("Invalid magic found in record: {magic}"),
        });
    }
    // The length is at least 14, so the conversion holds and the sum is far from overflow.
    Ok(Some(LOG_OVERHEAD + usize::try_from(length).unwrap_or(0)))
}

/// A parsed v2 header. The positions are in the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record when written.
    pub base_offset: i64,
    /// Bytes after the length field; total size is this + 12.
    pub batch_length: i32,
    /// Leader epoch stamped at append, -1 from a client.
    pub partition_leader_epoch: i32,
    /// Format version.
    pub magic: i8,
    /// Stored CRC-32C of bytes 21..end.
    pub crc: u32,
    /// Attribute bits, spec 1.2.
    pub attributes: i16,
    /// last offset - base offset.
    pub last_offset_delta: i32,
    /// First timestamp (or delete horizon, attribute bit 6).
    pub base_timestamp: i64,
    /// Largest timestamp, or the append time.
    pub max_timestamp: i64,
    /// Producer id or -1.
    pub producer_id: i64,
    /// Producer epoch or -1.
    pub producer_epoch: i16,
    /// First sequence or -1.
    pub base_sequence: i32,
    /// Records present now. -1 in the view of a compressed v0/v1 wrapper: not known without decompressing.
    pub records_count: i32,
}

impl BatchHeader {
    /// Parses the first 61 bytes. Errors: fewer than 61 bytes, `batch_length` < 49. Magic and CRC are not checked here.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let Some(bytes) = bytes.first_chunk::<RECORD_BATCH_OVERHEAD>() else {
            return Err(RecordError::Corrupt {
                position: 0,
                reason: format!(
                    "{} bytes cannot hold a batch header of {RECORD_BATCH_OVERHEAD}",
                    bytes.len()
                ),
            });
        };
        let header = Self {
            base_offset: i64::from_be_bytes(field(bytes, 0)),
            batch_length: i32::from_be_bytes(field(bytes, LENGTH_POSITION)),
            partition_leader_epoch: i32::from_be_bytes(field(bytes, LEADER_EPOCH_POSITION)),
            magic: i8::from_be_bytes(field(bytes, MAGIC_POSITION)),
            crc: u32::from_be_bytes(field(bytes, CRC_POSITION)),
            attributes: i16::from_be_bytes(field(bytes, ATTRIBUTES_POSITION)),
            last_offset_delta: i32::from_be_bytes(field(bytes, 23)),
            base_timestamp: i64::from_be_bytes(field(bytes, 27)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP_POSITION)),
            producer_id: i64::from_be_bytes(field(bytes, 43)),
            producer_epoch: i16::from_be_bytes(field(bytes, 51)),
            base_sequence: i32::from_be_bytes(field(bytes, 53)),
            records_count: i32::from_be_bytes(field(bytes, 57)),
        };
        if header.batch_length < 49 {
            return Err(RecordError::Corrupt {
                position: 0,
                reason: format!(
                    "batch length {} is below the 49 bytes of an empty v2 batch",
                    header.batch_length
                ),
            });
        }
        Ok(header)
    }
    /// Writes the 61 bytes, with the value of `crc` as it is.
    pub fn write(&self, out: &mut [u8; RECORD_BATCH_OVERHEAD]) {
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        out[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out[16..17].copy_from_slice(&self.magic.to_be_bytes());
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.records_count.to_be_bytes());
    }
    /// Compares the CRC with the bytes of the whole v2 batch.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), RecordError> {
        let computed = crc32c(batch.get(ATTRIBUTES_POSITION..).unwrap_or_default());
        if computed == self.crc {
            return Ok(());
        }
        Err(RecordError::Corrupt {
            position: 0,
            reason: format!(
                "the batch at offset {} stores CRC {:#010x}, its bytes give {computed:#010x}",
                self.base_offset, self.crc
            ),
        })
    }
    /// 12 + batch_length.
    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD + usize::try_from(self.batch_length).unwrap_or(0)
    }
    /// base_offset + last_offset_delta. Wraps beyond 2^63 as Java does; an append refuses such a batch.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }
    /// last_offset + 1.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }
    /// Codec, `None` when bits 0-2 are 5..7.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_id(u8::try_from(self.attributes & COMPRESSION_MASK).unwrap_or(u8::MAX))
    }
    /// Attribute bit 3; a v0 entry has no timestamps at all.
    pub fn timestamp_type(&self) -> TimestampType {
        match (self.magic, self.attributes & TIMESTAMP_TYPE_MASK) {
            (0, _) => TimestampType::NoTimestampType,
            (_, 0) => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        }
    }
    /// Attribute bit 4.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_MASK != 0
    }
    /// Attribute bit 5.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_MASK != 0
    }
    /// Attribute bit 6: base_timestamp is a delete horizon.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_MASK != 0
    }
    /// producer_id >= 0.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id >= 0
    }
    /// increment_sequence(base_sequence, last_offset_delta), or -1.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// s + d on Kafka's 31-bit ring (spec 3.3). Kafka: `DefaultRecordBatch#incrementSequence`.
/// Negative arguments, which only hostile bytes hold, wrap as Java's arithmetic does.
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(increment) {
        return increment.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1);
    }
    sequence.wrapping_add(increment)
}

/// s - d on Kafka's 31-bit ring (spec 3.3). Kafka: `DefaultRecordBatch#decrementSequence`.
pub fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    if sequence < decrement {
        return i32::MAX.wrapping_sub(decrement.wrapping_sub(sequence)).wrapping_add(1);
    }
    sequence.wrapping_sub(decrement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_wrap_on_the_ring_of_2_pow_31() {
        assert_eq!(increment_sequence(5, 5), 10);
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 5, 10), 4);
        assert_eq!(decrement_sequence(5, 5), 0);
        assert_eq!(decrement_sequence(0, 1), i32::MAX);
        assert_eq!(increment_sequence(i32::MAX - 10, 20), 9);
    }

    #[test]
    fn fewer_than_61_bytes_and_lengths_below_49_are_corrupt() {
        assert!(matches!(BatchHeader::parse(&[0; 60]), Err(RecordError::Corrupt { .. })));
        let mut bytes = [0u8; 61];
        for length in [48, 0, -1, i32::MIN] {
            bytes[8..12].copy_from_slice(&i32::to_be_bytes(length));
            assert!(
                matches!(BatchHeader::parse(&bytes), Err(RecordError::Corrupt { .. })),
                "{length}"
            );
        }
        bytes[8..12].copy_from_slice(&i32::to_be_bytes(49));
        assert_eq!(BatchHeader::parse(&bytes).unwrap().size_in_bytes(), 61);
    }

    proptest! {
        #[test]
        fn any_61_bytes_come_back_from_write(mut bytes in proptest::collection::vec(any::<u8>(), 61)) {
            bytes[8] &= 0x7f;
            bytes[8] |= 1;
            let header = BatchHeader::parse(&bytes).unwrap();
            let mut out = [0; 61];
            header.write(&mut out);
            prop_assert_eq!(&out[..], &bytes[..]);
        }

        #[test]
        fn decrement_undoes_increment(s in 0..=i32::MAX, d in 0..=i32::MAX) {
            prop_assert_eq!(decrement_sequence(increment_sequence(s, d), d), s);
            prop_assert!(increment_sequence(s, d) >= 0);
        }
    }
}
