//! The floors that speed is measured against: what a machine can do with these bytes at all.
//!
//! Both trust their input blindly (well-formed, uncompressed, null keys, no headers, lengths and deltas of at most two
//! bytes) and know no capacities, columns or errors; that is what makes them floors and useless for anything else.
//! - [`decode_floor`]: a naive decoder. One pass over segment bytes that checks each batch's CRC and fills flat vectors: offset,
//!   timestamp, end of value, value bytes.
//! - [`encode_floor`]: the way back: flat vectors of ten-byte values and timestamps encoded into full batches of 16 KiB
//!   with CRC.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap
)]

use bytes::Bytes;
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchBuilder, BatchParams};

/// Kafka's default `batch.size`.
pub const BATCH_SIZE: usize = 16_384;
/// Rows per Arrow batch, and rows after which the floor's vectors begin anew.
pub const BATCH_ROWS: usize = 131_072;
/// Every value has this many bytes.
pub const VALUE_SIZE: usize = 10;

/// Segment bytes with `records` ten-byte values in full batches, as a producer with default settings fills them.
pub fn segment(records: usize) -> Bytes {
    let mut out = Vec::with_capacity(records * 18 + records / 900 * 61 + BATCH_SIZE);
    let mut builder = BatchBuilder::with_capacity(BATCH_SIZE);
    let mut value = [b'0'; VALUE_SIZE];
    let mut base_offset = 0;
    for i in 0..records {
        value[..8].copy_from_slice(&(i as u64).to_be_bytes());
        let timestamp = 1_700_000_000_000 + (i / 1000) as i64;
        let room = BATCH_SIZE - 61 - builder.records_size();
        if builder
            .append_within(room, timestamp, None, Some(&value), &[])
            .is_none()
        {
            base_offset += close(&mut builder, base_offset, &mut out);
            builder.append(timestamp, None, Some(&value), &[]);
        }
    }
    close(&mut builder, base_offset, &mut out);
    Bytes::from(out)
}

fn close(builder: &mut BatchBuilder, base_offset: i64, out: &mut Vec<u8>) -> i64 {
    let count = i64::from(builder.count());
    out.extend_from_slice(&builder.build(&BatchParams {
        base_offset,
        ..BatchParams::default()
    }));
    count
}

/// The flat vectors, kept between calls.
#[derive(Default)]
pub struct Flat {
    pub offsets: Vec<i64>,
    pub timestamps: Vec<i64>,
    pub ends: Vec<i32>,
    pub values: Vec<u8>,
}

#[inline(always)]
unsafe fn varint(at: &mut *const u8) -> u32 {
    // SAFETY: the input is trusted, see above.
    unsafe {
        let first = u32::from(**at);
        *at = at.add(1);
        if first < 0x80 {
            return first;
        }
        let second = u32::from(**at);
        *at = at.add(1);
        (first & 0x7f) | second << 7
    }
}

#[inline(always)]
fn unzigzag(raw: u32) -> i64 {
    i64::from((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Decodes a whole segment, beginning the vectors anew every [`BATCH_ROWS`] rows; returns the records decoded.
pub fn decode_floor(segment: &[u8], flat: &mut Flat) -> usize {
    let room = BATCH_ROWS + 8192;
    flat.offsets.reserve(room);
    flat.timestamps.reserve(room);
    flat.ends.reserve(room);
    flat.values.reserve(room * VALUE_SIZE + 16);
    let (mut position, mut records, mut rows, mut filled) = (0, 0, 0usize, 0usize);
    let int = |at: usize| i32::from_be_bytes(segment[at..at + 4].try_into().unwrap_or_default());
    let long = |at: usize| i64::from_be_bytes(segment[at..at + 8].try_into().unwrap_or_default());
    while position < segment.len() {
        let size = 12 + int(position + 8) as usize;
        let batch = &segment[position..position + size];
        assert_eq!(int(position + 17) as u32, crc32c(&batch[21..]), "CRC");
        let (base_offset, base_timestamp, count) = (long(position), long(position + 27), int(position + 57) as usize);
        if rows + count > BATCH_ROWS {
            (rows, filled) = (0, 0);
        }
        assert!(rows + count <= room && filled + size + 16 <= room * VALUE_SIZE + 16);
        // SAFETY: the input is trusted; the vectors have room for a batch more than `BATCH_ROWS` rows.
        unsafe {
            let mut at = batch.as_ptr().add(61);
            let offsets = flat.offsets.as_mut_ptr().add(rows);
            let timestamps = flat.timestamps.as_mut_ptr().add(rows);
            let ends = flat.ends.as_mut_ptr().add(rows);
            let values = flat.values.as_mut_ptr();
            for row in 0..count {
                varint(&mut at);
                at = at.add(1);
                let timestamp = base_timestamp + unzigzag(varint(&mut at));
                let offset = base_offset + unzigzag(varint(&mut at));
                varint(&mut at);
                let len = (varint(&mut at) >> 1) as usize;
                *offsets.add(row) = offset;
                *timestamps.add(row) = timestamp * 1000;
                values.add(filled).copy_from_nonoverlapping(at, VALUE_SIZE);
                filled += len;
                *ends.add(row) = filled as i32;
                at = at.add(len + 1);
            }
        }
        rows += count;
        records += count;
        position += size;
    }
    // SAFETY: as many rows were written since the vectors last began.
    unsafe {
        flat.offsets.set_len(rows);
        flat.timestamps.set_len(rows);
        flat.ends.set_len(rows);
        flat.values.set_len(filled);
    }
    records
}

/// Writes a varint at `*at`, moving it.
#[inline(always)]
unsafe fn write_varint(at: &mut *mut u8, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    // SAFETY: the caller has room.
    unsafe {
        while raw >= 0x80 {
            **at = (raw as u8) | 0x80;
            *at = at.add(1);
            raw >>= 7;
        }
        **at = raw as u8;
        *at = at.add(1);
    }
}

/// `records` rows to encode: ten-byte values, 1,000 per millisecond.
pub fn rows(records: usize) -> Flat {
    let mut flat = Flat::default();
    for i in 0..records {
        flat.timestamps.push(1_700_000_000_000 + (i / 1000) as i64);
        flat.values.extend_from_slice(&(i as u64).to_be_bytes());
        flat.values.extend_from_slice(b"00");
        flat.ends.push(flat.values.len() as i32);
    }
    flat
}

/// Encodes rows into full batches; returns the bytes encoded. With `warm`, the batches are written over each other in
/// one MiB that stays in the cache; else one after the other into fresh memory, as into the pages of a file.
pub fn encode_floor(rows: &Flat, warm: bool) -> usize {
    /// No record of ten bytes is longer.
    const RECORD: usize = 18;
    let room = if warm {
        1 << 20
    } else {
        rows.ends.len() * (RECORD + 1) + BATCH_SIZE
    };
    let mut out: Vec<u8> = vec![0; room + BATCH_SIZE + 64];
    let (mut row, mut begin, mut total, mut position) = (0, 0usize, 0, 0);
    while row < rows.ends.len() {
        if position > room - BATCH_SIZE {
            position = 0;
        }
        let base_timestamp = rows.timestamps[row];
        let mut count = 0u32;
        // SAFETY: a batch ends at most a record beyond BATCH_SIZE from `position`, and the buffer is longer; the rows
        // are trusted.
        let size = unsafe {
            let batch = out.as_mut_ptr().add(position);
            let mut at = batch.add(61);
            let limit = batch.add(BATCH_SIZE);
            while row < rows.ends.len() && limit as usize - at as usize >= RECORD {
                let end = *rows.ends.get_unchecked(row) as usize;
                let len = end - begin;
                let delta = *rows.timestamps.get_unchecked(row) - base_timestamp;
                let fixed = 6 + i64::from(count >= 64) + i64::from(!(-64..64).contains(&delta));
                write_varint(&mut at, fixed + len as i64);
                *at = 0;
                at = at.add(1);
                write_varint(&mut at, delta);
                write_varint(&mut at, i64::from(count));
                *at = 1;
                at = at.add(1);
                write_varint(&mut at, len as i64);
                at.copy_from_nonoverlapping(rows.values.as_ptr().add(begin), len);
                at = at.add(len);
                *at = 0;
                at = at.add(1);
                begin = end;
                count += 1;
                row += 1;
            }
            at as usize - batch as usize
        };
        let batch = &mut out[position..position + size];
        batch[8..12].copy_from_slice(&(size as u32 - 12).to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        batch[27..35].copy_from_slice(&base_timestamp.to_be_bytes());
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        position += size;
        total += size;
    }
    std::hint::black_box(out);
    total
}
