//! The loop that turns encoded records into columns: every row of every export passes here.
//!
//! Written with raw pointers, because a capacity check per column and row halves the speed. Two bounds make every store
//! sound, both established by [`Columns::reserve`] before the loop:
//! - at most `budget` rows are written, and each row column has room for them (plus one for the leading offset);
//! - keys and values are disjoint parts of `payload[position..end]`, so all values (all keys) together are no longer
//!   than that region, and each byte column has room for it plus [`SLACK`], which covers one over-store.
//!
//! A build with debug assertions checks both bounds at every row; the tests of [`crate::export`] run that way and
//! compare every column with a decoder of the plain kind.
#![allow(unsafe_code)]

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use fletchlog_records::record::{RawRecord, parse_record, parse_small};
use fletchlog_records::{RecordCursor, RecordError, RecordsSlice};

use crate::columns::{Columns, Pools};

/// Short keys and values are copied in pieces of this size, whatever their length: the surplus is overwritten by the
/// next one.
const PIECE: usize = 16;
/// Room behind the last byte of a column for the surplus: less than a piece, or a whole one of an empty value.
const SLACK: usize = PIECE;

/// Which records to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Records below are passed over.
    pub(crate) from_offset: i64,
    /// The first record at or above ends the decoding.
    pub(crate) to_offset: i64,
    /// Rows at most.
    pub(crate) max_rows: usize,
    /// Records lie before this position of the payload.
    pub(crate) end: usize,
}

/// Copies `bytes` to `to`, storing up to `SLACK` bytes more.
///
/// # Safety
/// `to` is valid for writes of `bytes.len() + SLACK` bytes, outside the source; `source_end` is the end of the
/// allocation that `bytes` lies in.
#[inline(always)]
unsafe fn copy_over(bytes: &[u8], to: *mut u8, source_end: *const u8) {
    let from = bytes.as_ptr();
    let readable = source_end as usize - from as usize;
    // SAFETY: reads stay below `source_end`, as `readable` says; writes within the caller's promise.
    unsafe {
        if bytes.len() <= PIECE && readable >= PIECE {
            to.cast::<[u8; PIECE]>()
                .write_unaligned(from.cast::<[u8; PIECE]>().read_unaligned());
        } else if bytes.len() <= 2 * PIECE && readable >= 2 * PIECE {
            to.cast::<[u8; 2 * PIECE]>()
                .write_unaligned(from.cast::<[u8; 2 * PIECE]>().read_unaligned());
        } else {
            to.copy_from_nonoverlapping(from, bytes.len());
        }
    }
}

/// Bytes that [`copy_over`] may store.
fn stored(field: Option<&[u8]>) -> usize {
    match field.map_or(0, <[u8]>::len) {
        0..=PIECE => PIECE,
        len if len <= 2 * PIECE => 2 * PIECE,
        len => len,
    }
}

/// Where the next row goes.
struct Heads {
    offset: *mut i64,
    timestamp: *mut i64,
    value_end: *mut i32,
    value: *mut u8,
    value_len: usize,
    key_end: *mut i32,
    key: *mut u8,
    key_len: usize,
}

impl Heads {
    /// # Safety
    /// `columns` was reserved for the rows to come and is not reallocated while the heads are used.
    unsafe fn new(columns: &mut Columns) -> Self {
        let rows = columns.rows();
        let (value_len, key_len) = (columns.value.data.len(), columns.key.data.len());
        // SAFETY: all positions are lengths of their vectors, hence within their allocations.
        unsafe {
            Self {
                offset: columns.offsets.as_mut_ptr().add(rows),
                timestamp: columns.timestamps.as_mut_ptr().add(rows),
                value_end: columns.value.offsets.as_mut_ptr().add(columns.value.offsets.len()),
                value: columns.value.data.as_mut_ptr(),
                value_len,
                key_end: columns.key.offsets.as_mut_ptr().add(columns.key.offsets.len()),
                key: columns.key.data.as_mut_ptr(),
                key_len,
            }
        }
    }

    /// Makes `rows` rows part of the columns.
    ///
    /// # Safety
    /// All columns hold `rows` initialised rows.
    unsafe fn close(&self, columns: &mut Columns, rows: usize) {
        // SAFETY: the caller's promise; the lengths were counted while writing.
        unsafe {
            columns.offsets.set_len(rows);
            columns.timestamps.set_len(rows);
            columns.value.offsets.set_len(rows + 1);
            columns.value.data.set_len(self.value_len);
            if columns.has_keys() {
                columns.key.offsets.set_len(rows + 1);
                columns.key.data.set_len(self.key_len);
            }
        }
    }
}

/// Decodes from the cursor on, moving it; returns the rows appended. A malformed record ends it before that record; it
/// is an error only when no row was appended, so that the next call repeats it.
#[inline(never)]
pub(crate) fn decode(
    columns: &mut Columns,
    pools: &Pools,
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    window: Window,
) -> Result<usize, RecordError> {
    let payload: &[u8] = &slice.payload;
    let region = payload.get(..window.end).unwrap_or(payload);
    let mut position = cursor.position();
    let mut returned = cursor.returned();
    let left = usize::try_from(slice.count.saturating_sub(returned)).unwrap_or(0);
    let bytes = region.len().saturating_sub(position);
    // A record is at least 7 bytes: a count that lies reserves nothing beyond its bytes.
    let budget = left
        .min(window.max_rows)
        .min(bytes / fletchlog_records::record::MIN_RECORD_SIZE + 1);
    if left == 0 || window.max_rows == 0 {
        return Ok(0);
    }
    // No column outgrows 31 bits: row numbers, ends of keys and values, and those of headers (at least 2 bytes each).
    if columns.largest().saturating_add(bytes) > i32::MAX as usize {
        return Err(slice.invalid("the rows of one Arrow batch would exceed 2 GiB; finish it first"));
    }
    columns.reserve(pools, budget, bytes, SLACK);

    let before = columns.rows();
    let mut rows = before;
    let last = slice.count - 1;
    let source_end = payload.as_ptr_range().end;
    let mut failure = None;
    // SAFETY: just reserved.
    let mut heads = unsafe { Heads::new(columns) };
    let mut has_keys = columns.has_keys();
    while rows - before < budget && returned <= last {
        let (raw, end) = match parse_small(region, position) {
            Some(small) => small,
            None => match parse_record(region, position) {
                Ok(parsed) => parsed,
                Err(reason) => {
                    failure = Some(reason);
                    break;
                }
            },
        };
        if returned == last && end != payload.len() {
            failure = Some("bytes are left after the declared number of records");
            break;
        }
        let Some(offset) = slice.base_offset.checked_add(i64::from(raw.offset_delta)) else {
            failure = Some("the offset is beyond 2^63");
            break;
        };
        if offset < window.from_offset {
            position = end;
            returned += 1;
            continue;
        }
        if offset >= window.to_offset {
            break;
        }
        let milliseconds = slice.timestamp(raw.timestamp_delta);
        let timestamp = match milliseconds.checked_mul(1000) {
            Some(microseconds) => microseconds,
            None => {
                columns.timestamp_nulls.push(row_number(rows));
                0
            }
        };
        if raw.key.is_some() && !has_keys {
            columns.begin_keys(rows);
            columns.reserve_keys(pools, budget - (rows - before), bytes, SLACK);
            has_keys = true;
            // SAFETY: the key column has room for what is left of the region; the others were not touched.
            unsafe {
                heads.key_end = columns.key.offsets.as_mut_ptr().add(columns.key.offsets.len());
                heads.key = columns.key.data.as_mut_ptr();
            }
        }
        debug_assert!(rows < columns.offsets.capacity() && rows < columns.timestamps.capacity());
        debug_assert!(rows + 1 < columns.value.offsets.capacity());
        debug_assert!(heads.value_len + stored(raw.value) <= columns.value.data.capacity());
        debug_assert!(!has_keys || rows + 1 < columns.key.offsets.capacity());
        debug_assert!(!has_keys || heads.key_len + stored(raw.key) <= columns.key.data.capacity());
        // SAFETY: fewer than `budget` rows were written, and the values and keys so far are parts of the region; see
        // the module's text. Rows past their lengths become part of the vectors in `close`.
        unsafe {
            heads.offset.write(offset);
            heads.timestamp.write(timestamp);
            heads.offset = heads.offset.add(1);
            heads.timestamp = heads.timestamp.add(1);
            if let Some(value) = raw.value {
                copy_over(value, heads.value.add(heads.value_len), source_end);
                heads.value_len += value.len();
            } else {
                columns.value.nulls.push(row_number(rows));
            }
            heads.value_end.write(below_2_gib(heads.value_len));
            heads.value_end = heads.value_end.add(1);
            if has_keys {
                if let Some(key) = raw.key {
                    copy_over(key, heads.key.add(heads.key_len), source_end);
                    heads.key_len += key.len();
                } else {
                    columns.key.nulls.push(row_number(rows));
                }
                heads.key_end.write(below_2_gib(heads.key_len));
                heads.key_end = heads.key_end.add(1);
            }
        }
        if raw.header_count > 0 {
            push_headers(columns, rows, &raw);
        }
        rows += 1;
        position = end;
        returned += 1;
    }
    // SAFETY: every column was written up to `rows`.
    unsafe { heads.close(columns, rows) };
    *cursor = RecordCursor::resume_at(position, returned);
    match failure {
        Some(reason) if rows == before => Err(slice.invalid(reason)),
        _ => Ok(rows - before),
    }
}

/// A row number; no column outgrows 31 bits, as was checked before the loop.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "below 2^31")]
fn row_number(row: usize) -> u32 {
    debug_assert!(row <= i32::MAX as usize);
    row as u32
}

/// The end of a key or value; the same bound.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "below 2^31")]
fn below_2_gib(len: usize) -> i32 {
    debug_assert!(len <= i32::MAX as usize);
    len as i32
}

#[cold]
#[inline(never)]
fn push_headers(columns: &mut Columns, row: usize, raw: &RawRecord<'_>) {
    if let Some(headers) = &mut columns.headers {
        headers.push(row, raw.headers());
    }
}

/// An array from the parts of a [`crate::columns::BytesColumn`].
pub(crate) fn binary_array(parts: (ScalarBuffer<i32>, Buffer, Option<NullBuffer>)) -> BinaryArray {
    let (offsets, data, nulls) = parts;
    debug_assert!(offsets.is_sorted());
    // SAFETY: a column's offsets begin with 0, never descend and end with the length of its data: both ways to append
    // write the running length.
    unsafe { BinaryArray::new_unchecked(OffsetBuffer::new_unchecked(offsets), data, nulls) }
}
