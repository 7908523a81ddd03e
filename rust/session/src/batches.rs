//! What is kept of records: the headers of their batches.
//!
//! | format | header |
//! |---|---|
//! | v0 | offset i64, size i32, crc u32, magic i8, attributes i8: 18 bytes |
//! | v1 | the same and timestamp i64: 26 bytes |
//! | v2 | 61 bytes, see `fletchlog_records::batch_header` |

use bytes::{BufMut, Bytes, BytesMut};
use fletchlog_records::batch_header::{LOG_OVERHEAD, MAGIC_POSITION, RECORD_BATCH_OVERHEAD, next_batch_size};
use fletchlog_records::{BatchHeader, Compression};

/// Headers of the formats v0 and v1.
const LEGACY: [usize; 2] = [18, 26];
/// Position of the attributes in formats v0 and v1.
const LEGACY_ATTRIBUTES: usize = 17;

/// A batch of records, or a message of an old format. Offsets and times are those of its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Offset of the first record. In a request -1 or a number that the producer chose; of a compressed message of format v1 the last one.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Records; -1: of a compressed message of an old format, whose records are inside.
    pub records: i32,
    /// Bytes with the header.
    pub size: u64,
    /// Format version.
    pub magic: i8,
    /// Kafka's name of the codec; empty: Kafka has no such codec.
    pub codec: &'static str,
    /// Timestamp of the first record, ms; -1 none.
    pub first_timestamp: i64,
    /// Largest timestamp, ms; -1 none.
    pub max_timestamp: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
    /// Producer id, -1 none.
    pub producer_id: i64,
    /// Producer epoch, -1 none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 none.
    pub base_sequence: i32,
    /// Of a transaction.
    pub is_transactional: bool,
    /// The marker of a transaction, or another record of the broker's own.
    pub is_control: bool,
    /// Its bytes, if the session keeps records and they are whole.
    pub bytes: Option<Bytes>,
}

/// Bytes of the header of the batch or message that begins here; `None`: there is no whole one.
fn header_size(bytes: &[u8]) -> Option<usize> {
    let size = match bytes.get(MAGIC_POSITION)? {
        0 => LEGACY[0],
        1 => LEGACY[1],
        2 => RECORD_BATCH_OVERHEAD,
        _ => return None,
    };
    (bytes.len() >= size).then_some(size)
}

/// The headers alone, back to back. What follows the last whole header is left out, so a part of a batch that a Fetch response ends with has
/// a header if it is longer than that.
pub(crate) fn headers_of(mut records: &[u8]) -> Bytes {
    let mut headers = BytesMut::new();
    while let (Some(header), Ok(Some(size))) = (header_size(records), next_batch_size(records)) {
        headers.put_slice(&records[..header]);
        records = records.get(size..).unwrap_or_default();
    }
    headers.freeze()
}

/// The batches of records, or of their headers if `is_stripped`. What cannot be read ends them.
pub fn batches_of(mut records: Bytes, is_stripped: bool) -> Vec<Batch> {
    let mut found = Vec::new();
    while let (Some(header), Ok(Some(size))) = (header_size(&records), next_batch_size(&records)) {
        let (step, whole) = match is_stripped {
            true => (header, None),
            false => (size, (size <= records.len()).then(|| records.slice(..size))),
        };
        found.extend(batch(&records, size, whole));
        if step > records.len() {
            break;
        }
        let _ = records.split_to(step);
    }
    found
}

fn batch(bytes: &[u8], size: usize, whole: Option<Bytes>) -> Option<Batch> {
    let magic = i8::from_be_bytes([*bytes.get(MAGIC_POSITION)?]);
    let int64 = |at: usize| Some(i64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    if magic < 2 {
        let codec = Compression::from_id(*bytes.get(LEGACY_ATTRIBUTES)? & 7);
        let (offset, timestamp) = (int64(0)?, if magic == 1 { int64(LEGACY[0])? } else { -1 });
        return Some(Batch {
            base_offset: offset,
            last_offset: offset,
            records: if codec == Some(Compression::None) { 1 } else { -1 },
            size: size as u64,
            magic,
            codec: codec.map_or("", Compression::name),
            first_timestamp: timestamp,
            max_timestamp: timestamp,
            leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            is_transactional: false,
            is_control: false,
            bytes: whole,
        });
    }
    let header = BatchHeader::parse(bytes).ok()?;
    Some(Batch {
        base_offset: header.base_offset,
        last_offset: header.base_offset.wrapping_add(header.last_offset_delta.into()),
        records: header.records_count,
        size: LOG_OVERHEAD as u64 + u64::try_from(header.batch_length).unwrap_or(0),
        magic,
        codec: Compression::from_id((header.attributes & 7) as u8).map_or("", Compression::name),
        first_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        leader_epoch: header.partition_leader_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        bytes: whole,
    })
}
