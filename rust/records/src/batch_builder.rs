//! Building v2 batches. Kafka: `MemoryRecordsBuilder`.

use bytes::Bytes;

use crate::batch_header::{
    ATTRIBUTES_POSITION, CONTROL_MASK, CRC_POSITION, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
};
use crate::crc::crc32c;
use crate::encode::{Small, push_small};
use crate::ids::NO_TIMESTAMP;
use crate::varint::{size_of_varint, size_of_varlong, write_varint, write_varlong};
use crate::{BatchHeader, Compression, Header, Record, TimestampType};

/// Header fields of a batch to build.
#[derive(Debug, Clone, Copy)]
pub struct BatchParams {
    /// 0 from a producer.
    pub base_offset: i64,
    /// Codec.
    pub compression: Compression,
    /// Codec level, `None` = Kafka's default.
    pub compression_level: Option<i32>,
    /// Timestamp type bit.
    pub timestamp_type: TimestampType,
    /// -1 if none.
    pub producer_id: i64,
    /// -1 if none.
    pub producer_epoch: i16,
    /// -1 if none.
    pub base_sequence: i32,
    /// Attribute bit 4.
    pub transactional: bool,
    /// Attribute bit 5.
    pub control: bool,
    /// -1 from a client.
    pub leader_epoch: i32,
}

impl Default for BatchParams {
    fn default() -> Self {
        Self {
            base_offset: 0,
            compression: Compression::None,
            compression_level: None,
            timestamp_type: TimestampType::CreateTime,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
            leader_epoch: -1,
        }
    }
}

/// Collects records (uncompressed) and closes them into one batch.
///
/// The first 61 bytes of the buffer are kept free for the header, so that an uncompressed batch is closed in place.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    buf: Vec<u8>,
    count: i32,
    next_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// `Some` after [`BatchBuilder::pack`]: the size of the records before it compressed them.
    packed: Option<usize>,
}

impl BatchBuilder {
    /// An empty builder with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Vec::with_capacity(capacity.saturating_add(RECORD_BATCH_OVERHEAD));
        buf.resize(RECORD_BATCH_OVERHEAD, 0);
        Self {
            buf,
            count: 0,
            next_delta: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            packed: None,
        }
    }
    /// Appends a record at the next offset delta. The first timestamp is the base timestamp.
    #[inline]
    pub fn append(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[Header<'_>]) {
        self.append_at(self.next_delta, timestamp, key, value, headers);
    }
    /// Appends a record at an explicit offset delta (>= the last one), with gaps as compaction leaves them.
    ///
    /// # Panics
    /// If a record, or the batch, would not fit Kafka's 31-bit sizes: the caller limits both far below.
    #[inline]
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        self.append_in(usize::MAX, offset_delta, timestamp, key, value, headers);
    }
    /// Appends a record at the next offset delta if it takes at most `room` bytes, or is the first. Returns the bytes that it took.
    ///
    /// # Panics
    /// As [`Self::append_at`].
    #[inline]
    pub fn append_within(
        &mut self,
        room: usize,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        let room = if self.count == 0 { usize::MAX } else { room };
        self.append_in(room, self.next_delta, timestamp, key, value, headers)
    }
    #[inline(always)]
    fn append_in(
        &mut self,
        room: usize,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        let timestamp_delta = self.timestamp_delta(timestamp);
        let small = if headers.is_empty() {
            push_small(&mut self.buf, room, timestamp_delta, offset_delta, key, value)
        } else {
            Small::Other
        };
        let size = match small {
            Small::Pushed(size) => size,
            Small::NoRoom => return None,
            Small::Other => self.push(room, timestamp_delta, offset_delta, key, value, headers)?,
        };
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
        self.next_delta = offset_delta.saturating_add(1);
        Some(size)
    }
    /// Encodes any record of at most `room` bytes; returns its bytes.
    #[inline(never)]
    fn push(
        &mut self,
        room: usize,
        timestamp_delta: i64,
        offset_delta: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Option<usize> {
        let (key_len, value_len) = (key.map(<[u8]>::len), value.map(<[u8]>::len));
        let body = body_size(offset_delta, timestamp_delta, key_len, value_len, headers);
        let size = size_of_varint(wire_len(Some(body))) + body;
        if size > room {
            return None;
        }
        let out = &mut self.buf;
        out.reserve(size);
        write_varint(out, wire_len(Some(body)));
        out.push(0);
        write_varlong(out, timestamp_delta);
        write_varint(out, offset_delta);
        write_varint(out, wire_len(key_len));
        out.extend_from_slice(key.unwrap_or_default());
        write_varint(out, wire_len(value_len));
        out.extend_from_slice(value.unwrap_or_default());
        write_varint(out, wire_len(Some(headers.len())));
        for header in headers {
            write_varint(out, wire_len(Some(header.key.len())));
            out.extend_from_slice(header.key.as_bytes());
            write_varint(out, wire_len(header.value.map(<[u8]>::len)));
            out.extend_from_slice(header.value.unwrap_or_default());
        }
        Some(size)
    }
    /// Records so far.
    #[inline]
    pub fn count(&self) -> i32 {
        self.count
    }
    /// Uncompressed bytes of records so far (without the 61-byte header).
    #[inline]
    pub fn records_size(&self) -> usize {
        self.packed.unwrap_or(self.buf.len() - RECORD_BATCH_OVERHEAD)
    }
    /// Difference to the first record's timestamp; differences beyond 64 bits wrap as Java's do, and wrap back when read.
    #[inline(always)]
    fn timestamp_delta(&self, timestamp: i64) -> i64 {
        if self.count == 0 {
            0
        } else {
            timestamp.wrapping_sub(self.base_timestamp)
        }
    }
    /// Closes the records into one batch with its CRC. The builder is empty afterwards and keeps its capacity. An empty
    /// builder returns no bytes (Kafka: `MemoryRecords.EMPTY`).
    ///
    /// # Panics
    /// If the batch is larger than Kafka's 31-bit length can say: the caller limits it far below.
    pub fn build(&mut self, params: &BatchParams) -> Bytes {
        if self.count == 0 {
            return Bytes::new();
        }
        let mut attributes = i16::from(params.compression as u8);
        if params.timestamp_type == TimestampType::LogAppendTime {
            attributes |= TIMESTAMP_TYPE_MASK;
        }
        if params.transactional {
            attributes |= TRANSACTIONAL_MASK;
        }
        if params.control {
            attributes |= CONTROL_MASK;
        }
        let header = BatchHeader {
            base_offset: params.base_offset,
            batch_length: 0,
            partition_leader_epoch: params.leader_epoch,
            magic: 2,
            crc: 0,
            attributes,
            last_offset_delta: self.next_delta - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: params.producer_id,
            producer_epoch: params.producer_epoch,
            base_sequence: params.base_sequence,
            records_count: self.count,
        };
        self.finish(header, params.compression, params.compression_level)
    }
    /// Compresses the records ahead of [`BatchBuilder::build`], which must then be called with the same codec and level. No
    /// record may be appended in between. Returns an empty builder with the memory that the records were in.
    pub fn pack(&mut self, compression: Compression, level: Option<i32>) -> Self {
        let packed = self.compressed(compression, level);
        self.packed = Some(self.records_size());
        let mut spare = Self::with_capacity(0);
        spare.buf = std::mem::replace(&mut self.buf, packed);
        spare.clear();
        spare
    }
    /// Whether [`BatchBuilder::pack`] was called.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }
    /// The compressed records, after 61 free bytes.
    fn compressed(&self, compression: Compression, level: Option<i32>) -> Vec<u8> {
        let mut out = vec![0; RECORD_BATCH_OVERHEAD];
        compression.compress(&self.buf[RECORD_BATCH_OVERHEAD..], level, &mut out);
        out
    }
    /// Appends a record whose deltas are relative to the bases of the header passed to [`BatchBuilder::finish`].
    pub(crate) fn append_deltas(&mut self, timestamp_delta: i64, offset_delta: i32, record: &Record<'_>) {
        let headers: Vec<Header<'_>> = record.headers().collect();
        self.count += 1;
        self.push(
            usize::MAX,
            timestamp_delta,
            offset_delta,
            record.key,
            record.value,
            &headers,
        );
    }
    /// Compresses the records and writes the header before them. All its fields are kept except length and CRC.
    pub(crate) fn finish(&mut self, header: BatchHeader, compression: Compression, level: Option<i32>) -> Bytes {
        let bytes = if compression == Compression::None {
            close(&mut self.buf, header);
            Bytes::copy_from_slice(&self.buf)
        } else {
            let mut out = match self.packed {
                Some(_) => std::mem::take(&mut self.buf),
                None => self.compressed(compression, level),
            };
            close(&mut out, header);
            Bytes::from(out)
        };
        self.clear();
        bytes
    }
    /// Removes the records, keeping the capacity.
    pub fn clear(&mut self) {
        self.buf.resize(RECORD_BATCH_OVERHEAD, 0);
        self.count = 0;
        self.next_delta = 0;
        self.base_timestamp = NO_TIMESTAMP;
        self.max_timestamp = NO_TIMESTAMP;
        self.packed = None;
    }
}

/// Writes length, header and CRC into the free first 61 bytes of a batch.
#[allow(clippy::expect_used, reason = "a batch beyond 2 GiB would corrupt a log")]
fn close(batch: &mut [u8], mut header: BatchHeader) {
    header.batch_length = i32::try_from(batch.len() - LOG_OVERHEAD).expect("a batch is below 2 GiB");
    let mut bytes = [0; RECORD_BATCH_OVERHEAD];
    header.write(&mut bytes);
    batch[..RECORD_BATCH_OVERHEAD].copy_from_slice(&bytes);
    let crc = crc32c(&batch[ATTRIBUTES_POSITION..]);
    batch[CRC_POSITION..ATTRIBUTES_POSITION].copy_from_slice(&crc.to_be_bytes());
}

/// A length as it is written: -1 for null.
#[inline(always)]
#[allow(clippy::expect_used, reason = "a field beyond 2 GiB would corrupt a log")]
fn wire_len(len: Option<usize>) -> i32 {
    len.map_or(-1, |len| {
        i32::try_from(len).expect("a field of a record is below 2 GiB")
    })
}

/// Encoded size of a nullable field, length included.
#[inline(always)]
fn nullable_size(len: Option<usize>) -> usize {
    size_of_varint(wire_len(len)) + len.unwrap_or(0)
}

/// Encoded size of the headers without their count.
#[inline(always)]
fn headers_size(headers: &[Header<'_>]) -> usize {
    headers
        .iter()
        .map(|h| nullable_size(Some(h.key.len())) + nullable_size(h.value.map(<[u8]>::len)))
        .sum()
}

/// The value of a record's length varint. Kafka: `DefaultRecord#sizeOfBodyInBytes`.
#[inline(always)]
pub(crate) fn body_size(
    offset_delta: i32,
    timestamp_delta: i64,
    key_len: Option<usize>,
    value_len: Option<usize>,
    headers: &[Header<'_>],
) -> usize {
    1 + size_of_varlong(timestamp_delta)
        + size_of_varint(offset_delta)
        + nullable_size(key_len)
        + nullable_size(value_len)
        + size_of_varint(wire_len(Some(headers.len())))
        + headers_size(headers)
}

/// Exact encoded size of one record at an offset delta and timestamp delta, length varint included.
/// Kafka: `DefaultRecord#sizeInBytes`.
#[inline]
pub fn record_size(
    offset_delta: i32,
    timestamp_delta: i64,
    key_len: Option<usize>,
    value_len: Option<usize>,
    headers: &[Header<'_>],
) -> usize {
    let body = body_size(offset_delta, timestamp_delta, key_len, value_len, headers);
    size_of_varint(wire_len(Some(body))) + body
}

/// Overhead of a record in [`estimate_size_upper_bound`]: length 5, timestamp delta 10, offset delta 5, attributes 1.
const MAX_RECORD_OVERHEAD: usize = 21;

/// Upper bound of a record's size in a fresh batch. Kafka: `AbstractRecords#estimateSizeInBytesUpperBound` for magic 2:
/// 61 (batch header) + 21 + key + value + headers.
pub fn estimate_size_upper_bound(key_len: Option<usize>, value_len: Option<usize>, headers: &[Header<'_>]) -> usize {
    RECORD_BATCH_OVERHEAD
        + MAX_RECORD_OVERHEAD
        + nullable_size(key_len)
        + nullable_size(value_len)
        + size_of_varint(wire_len(Some(headers.len())))
        + headers_size(headers)
}

#[cfg(test)]
mod tests;
