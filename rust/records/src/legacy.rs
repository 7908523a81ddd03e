//! Reading message formats v0 and v1 (spec 1.6). Nothing here writes them.
//!
//! | off     | size | field      | rule                                                   |
//! |---------|------|------------|--------------------------------------------------------|
//! | 0       | i64  | offset     | of a compressed v1 wrapper: of its LAST inner record   |
//! | 8       | i32  | size       | bytes after this field                                 |
//! | 12      | u32  | crc        | IEEE CRC-32 of magic .. end                            |
//! | 16      | i8   | magic      | 0 or 1                                                 |
//! | 17      | i8   | attributes | bits 0-2 codec, bit 3 time type (v1)                   |
//! | 18      | i64  | timestamp  | v1 only                                                |
//! | 18 / 26 | i32  | keyLen     | -1 null; then the key                                  |
//! | ..      | i32  | valueLen   | -1 null; then the value, or the compressed inner set   |

use bytes::Bytes;

use crate::batch_builder::body_size;
use crate::batch_header::{
    COMPRESSION_MASK, LENGTH_POSITION, LOG_OVERHEAD, MAGIC_POSITION, TIMESTAMP_TYPE_MASK, next_batch_size,
};
use crate::crc::crc32;
use crate::field::field;
use crate::ids::{NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP};
use crate::varint::{write_varint, write_varlong};
use crate::{BatchHeader, Compression, RecordError, RecordsSlice, TimestampType};

const CRC_POSITION: usize = 12;
const ATTRIBUTES_POSITION: usize = 17;
const TIMESTAMP_POSITION: usize = 18;

/// One entry, split into its fields.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    offset: i64,
    magic: i8,
    attributes: i8,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl Entry<'_> {
    fn codec_id(&self) -> u8 {
        u8::try_from(i16::from(self.attributes) & COMPRESSION_MASK).unwrap_or(u8::MAX)
    }
}

fn corrupt(reason: impl Into<String>) -> RecordError {
    RecordError::Corrupt {
        position: 0,
        reason: reason.into(),
    }
}

/// Bytes of an entry whose key and value are null.
fn overhead(magic: i8) -> usize {
    LOG_OVERHEAD + if magic == 0 { 14 } else { 22 }
}

/// Bytes that [`header`] reads of an entry; `None`: not a magic of these formats.
pub fn header_size(magic: i8) -> Option<usize> {
    match magic {
        0 => Some(TIMESTAMP_POSITION),
        1 => Some(TIMESTAMP_POSITION + 8),
        _ => None,
    }
}

/// The v2 view of the entry that begins with `bytes`: offsets and times of the entry, no producer, and -1 records where a
/// wrapper would have to be decompressed to count them. The caller has checked the magic, and that [`header_size`] bytes are
/// there.
pub fn header(bytes: &[u8]) -> BatchHeader {
    let magic = i8::from_be_bytes(field(bytes, MAGIC_POSITION));
    let [attributes] = field(bytes, ATTRIBUTES_POSITION);
    let attributes = i16::from(attributes);
    let (timestamp, known) = if magic == 0 {
        (NO_TIMESTAMP, COMPRESSION_MASK)
    } else {
        let timestamp = i64::from_be_bytes(field(bytes, TIMESTAMP_POSITION));
        (timestamp, COMPRESSION_MASK | TIMESTAMP_TYPE_MASK)
    };
    BatchHeader {
        base_offset: i64::from_be_bytes(field(bytes, 0)),
        batch_length: i32::from_be_bytes(field(bytes, LENGTH_POSITION)),
        partition_leader_epoch: NO_LEADER_EPOCH,
        magic,
        crc: u32::from_be_bytes(field(bytes, CRC_POSITION)),
        attributes: attributes & known,
        last_offset_delta: 0,
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        base_sequence: NO_SEQUENCE,
        records_count: if attributes & COMPRESSION_MASK == 0 { 1 } else { -1 },
    }
}

/// The v2 view of the entry that fills `bytes`.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<BatchHeader, RecordError> {
    let magic = i8::from_be_bytes(field(bytes, MAGIC_POSITION));
    if bytes.len() < overhead(magic) {
        return Err(corrupt(format!(
            "{} bytes are less than the smallest v{magic} entry",
            bytes.len()
        )));
    }
    Ok(header(bytes))
}

/// Checks the CRC of the entry that fills `bytes`. Kafka: `LegacyRecord#ensureValid`.
pub(crate) fn ensure_valid(bytes: &[u8], position: usize) -> Result<(), RecordError> {
    let stored = u32::from_be_bytes(field(bytes, CRC_POSITION));
    let computed = crc32(bytes.get(MAGIC_POSITION..).unwrap_or_default());
    if stored == computed {
        return Ok(());
    }
    let offset = i64::from_be_bytes(field(bytes, 0));
    Err(RecordError::Corrupt {
        position,
        reason: format!("the entry at offset {offset} stores CRC {stored:#010x}, its bytes give {computed:#010x}"),
    })
}

/// A nullable field after an i32 length at `*at`, advancing it.
fn nullable<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, &'static str> {
    let Some(length) = bytes.get(*at..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Err("the length of a key or value is cut off");
    };
    let length = i32::from_be_bytes(*length);
    *at += 4;
    if length == -1 {
        return Ok(None);
    }
    let content = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.get(*at..)?.get(..length));
    let content = content.ok_or("a key or value is longer than its entry")?;
    *at += content.len();
    Ok(Some(content))
}

/// Splits the entry that fills `bytes`, whose header was parsed.
fn split(bytes: &[u8]) -> Result<Entry<'_>, &'static str> {
    let magic = i8::from_be_bytes(field(bytes, MAGIC_POSITION));
    let mut at = if magic == 0 {
        TIMESTAMP_POSITION
    } else {
        TIMESTAMP_POSITION + 8
    };
    let key = nullable(bytes, &mut at)?;
    let value = nullable(bytes, &mut at)?;
    if at != bytes.len() {
        return Err("an entry does not end at its declared size");
    }
    Ok(Entry {
        offset: i64::from_be_bytes(field(bytes, 0)),
        magic,
        attributes: i8::from_be_bytes(field(bytes, ATTRIBUTES_POSITION)),
        timestamp: if magic == 0 {
            NO_TIMESTAMP
        } else {
            i64::from_be_bytes(field(bytes, TIMESTAMP_POSITION))
        },
        key,
        value,
    })
}

/// The records of one entry or wrapper in the v2 layout. A v0/v1 entry is larger than its v2 record, so `limit`
/// bounds the conversion too.
pub(crate) fn records(bytes: &Bytes, header: &BatchHeader, limit: usize) -> Result<RecordsSlice, RecordError> {
    let invalid = |reason: &str| RecordError::Invalid {
        base_offset: header.base_offset,
        reason: reason.to_owned(),
    };
    let outer = split(bytes).map_err(invalid)?;
    match Compression::from_id(outer.codec_id()) {
        Some(Compression::None) if bytes.len() > limit => Err(RecordError::DecompressionLimit {
            base_offset: header.base_offset,
            limit,
        }),
        Some(Compression::None) => convert(header, &[outer], 0),
        Some(codec) if codec != Compression::Zstd => {
            let compressed = outer.value.ok_or_else(|| invalid("a compressed entry has no value"))?;
            let inner = codec.decompress(compressed, outer.magic, limit, header.base_offset)?;
            let entries = split_inner(&inner, &outer).map_err(|error| match error {
                RecordError::Corrupt { reason, .. } => invalid(&reason),
                other => other,
            })?;
            let base = absolute_base(&outer, &entries).map_err(invalid)?;
            convert(header, &entries, base)
        }
        _ => Err(RecordError::Decompression {
            codec: outer.codec_id().to_string(),
            base_offset: header.base_offset,
            reason: format!("message format v{} does not know this codec", outer.magic),
        }),
    }
}

/// The entries of a decompressed inner set, each with its CRC checked.
fn split_inner<'a>(inner: &'a [u8], outer: &Entry<'_>) -> Result<Vec<Entry<'a>>, RecordError> {
    let mut entries = Vec::new();
    let mut rest = inner;
    while !rest.is_empty() {
        let size = next_batch_size(rest)?;
        let Some((entry, tail)) = size.and_then(|size| rest.split_at_checked(size)) else {
            return Err(corrupt("an inner entry is cut off"));
        };
        if i8::from_be_bytes(field(entry, MAGIC_POSITION)) != outer.magic {
            return Err(corrupt("an inner entry has another magic than its wrapper"));
        }
        if entry.len() < overhead(outer.magic) {
            return Err(corrupt("an inner entry is smaller than any can be"));
        }
        ensure_valid(entry, inner.len() - rest.len())?;
        let entry = split(entry).map_err(corrupt)?;
        if entry.codec_id() != 0 {
            return Err(corrupt("a compressed entry is within a compressed entry"));
        }
        entries.push(entry);
        rest = tail;
    }
    Ok(entries)
}

/// What must be added to inner offsets. v0: they are absolute. v1: they count from 0 and the wrapper carries the last one's;
/// some clients left 0 there when producing. Kafka: `AbstractLegacyRecordBatch.DeepRecordsIterator`.
fn absolute_base(outer: &Entry<'_>, entries: &[Entry<'_>]) -> Result<i64, &'static str> {
    let Some(last) = entries.last() else {
        return Err("a compressed entry holds no records");
    };
    if outer.magic == 0 || outer.offset == 0 {
        return Ok(0);
    }
    if outer.offset < last.offset {
        return Err("the offset of a compressed entry is below that of its last record");
    }
    outer
        .offset
        .checked_sub(last.offset)
        .ok_or("the offsets of a compressed entry are out of range")
}

/// Encodes entries in the v2 record layout, their first offset and timestamp as the base.
fn convert(header: &BatchHeader, entries: &[Entry<'_>], base: i64) -> Result<RecordsSlice, RecordError> {
    let invalid = |reason: &str| RecordError::Invalid {
        base_offset: header.base_offset,
        reason: reason.to_owned(),
    };
    let out_of_range = || invalid("the offsets of a compressed entry are out of range");
    let absolute = |entry: &Entry<'_>| base.checked_add(entry.offset).ok_or_else(out_of_range);
    let first = entries
        .first()
        .ok_or_else(|| invalid("a compressed entry holds no records"))?;
    let (base_offset, base_timestamp) = (absolute(first)?, first.timestamp);
    let bytes: usize = entries
        .iter()
        .map(|e| 16 + e.key.map_or(0, <[u8]>::len) + e.value.map_or(0, <[u8]>::len))
        .sum();
    let mut payload = Vec::with_capacity(bytes);
    for entry in entries {
        let delta = absolute(entry)?
            .checked_sub(base_offset)
            .and_then(|delta| i32::try_from(delta).ok());
        let delta = delta.ok_or_else(out_of_range)?;
        let timestamp_delta = entry.timestamp.wrapping_sub(base_timestamp);
        let body = body_size(
            delta,
            timestamp_delta,
            entry.key.map(<[u8]>::len),
            entry.value.map(<[u8]>::len),
            &[],
        );
        // The lengths of an entry are i32, and its fields are in one buffer below 2 GiB.
        let int = |n: usize| i32::try_from(n).map_err(|_| invalid("an entry is larger than 2 GiB"));
        write_varint(&mut payload, int(body)?);
        payload.push(0);
        write_varlong(&mut payload, timestamp_delta);
        write_varint(&mut payload, delta);
        for part in [entry.key, entry.value] {
            write_varint(&mut payload, part.map_or(Ok(-1), |part| int(part.len()))?);
            payload.extend_from_slice(part.unwrap_or_default());
        }
        payload.push(0);
    }
    Ok(RecordsSlice {
        payload: Bytes::from(payload),
        count: i32::try_from(entries.len()).map_err(|_| out_of_range())?,
        base_offset,
        base_timestamp,
        max_timestamp: header.max_timestamp,
        timestamp_type: if header.magic == 0 {
            TimestampType::NoTimestampType
        } else {
            header.timestamp_type()
        },
        leader_epoch: NO_LEADER_EPOCH,
        magic: header.magic,
        producer: (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
    })
}

#[cfg(test)]
mod tests;
