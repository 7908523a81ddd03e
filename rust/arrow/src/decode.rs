//! The loop that turns encoded records into columns: every row of every export passes here.
//!
//! Written with raw pointers, because a capacity check per column and row halves the speed. Two bounds make every store
//! sound, both established by [`Columns::reserve`] before the loop:
//! - at most `budget` rows are written, and each row column has room for them (plus one for the leading offset);
//! - keys and values are disjoint parts of `payload[position..end]`, so all values (all keys) together are no longer
//!   than that region, and each byte column has room for it plus [`SLACK`], which covers one over-store.
//!
//! Columns that are not asked for are neither reserved nor written; the loop is compiled for every choice of columns.
//! Records that have the layout of the one before them are not parsed one by one ([`Heads::write_alike`]): their ends are known, so
//! that a processor works on several at a time.
//!
//! A build with debug assertions checks both bounds at every row; the tests of [`crate::export`] run that way and
//! compare every column with a plain decoder.
#![allow(unsafe_code)]

use std::ops::Range;

use fletchlog_records::record::{BLOCK, Frame, MIN_RECORD_SIZE, RawRecord, parse_record, parse_small};
use fletchlog_records::{NO_TIMESTAMP, RecordCursor, RecordError, RecordsSlice, TimeRange};

use crate::bytes_column::{BytesColumn, Pools};
use crate::columns::Columns;
use crate::columns::asked::{KEY, OFFSET, TIMESTAMP, VALUE};

/// Short keys and values are copied in pieces of this size, even if they are shorter: the surplus is overwritten by the
/// next one.
const PIECE: usize = 16;
/// Bytes of the longest key or value that is copied in pieces: two of them.
const MAX_IN_PIECES: usize = 2 * PIECE;
/// Room after the last byte of a column for the surplus: less than a piece, or a whole one of an empty value.
const SLACK: usize = PIECE;

/// Shortest run of records of one layout that pays for finding the layout, and how many runs may be shorter before the rest
/// of a batch is parsed one by one.
const WORTHWHILE: usize = 24;
const MAX_SHORT_RUNS: usize = 4;

/// Decides when to look for records of one layout in a batch.
struct Runs {
    /// Bytes of the last record.
    size: usize,
    short: usize,
}

impl Runs {
    fn of(slice: &RecordsSlice) -> Self {
        let short = if slice.sums_fit() { 0 } else { MAX_SHORT_RUNS };
        Self { size: 0, short }
    }

    /// The layout of a record, if the record before it has the same size and looking was worthwhile so far.
    #[inline(always)]
    fn frame<const ASKED: u8>(&mut self, region: &[u8], record: Range<usize>) -> Option<Frame> {
        let is_alike = std::mem::replace(&mut self.size, record.len()) == record.len();
        // In this order: a branch on random sizes would be mispredicted at every record.
        if ASKED & TIMED != 0 || self.short >= MAX_SHORT_RUNS || !is_alike {
            return None;
        }
        region.get(record).and_then(Frame::of)
    }

    fn note(&mut self, records: usize) {
        self.short += usize::from(records < WORTHWHILE);
    }
}

/// Which records to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Records below are skipped.
    pub(crate) from_offset: i64,
    /// The first record at or above ends the decoding.
    pub(crate) to_offset: i64,
    /// At most this many records at or above `from_offset`.
    pub(crate) max_records: usize,
    /// Only those with timestamps in this range become rows.
    pub(crate) times: TimeRange,
    /// The records end before this position of the payload.
    pub(crate) end: usize,
}

/// Copies `bytes`, a part of `payload`, to `to`, storing up to `SLACK` bytes more.
///
/// # Safety
/// `to` is valid for writes of `bytes.len() + SLACK` bytes, outside the payload.
#[inline(always)]
unsafe fn copy_over(payload: &[u8], bytes: &[u8], to: *mut u8) {
    // An empty slice may point anywhere: then the pieces are any bytes of the payload, all of them surplus.
    let offset = (bytes.as_ptr() as usize).wrapping_sub(payload.as_ptr() as usize);
    let has = |len: usize| payload.len() >= len && offset <= payload.len() - len;
    // SAFETY: `has` keeps the reads inside the payload; the writes are within the caller's promise.
    unsafe {
        if bytes.len() <= PIECE && has(PIECE) {
            let piece = payload.as_ptr().add(offset).cast::<[u8; PIECE]>().read_unaligned();
            to.cast::<[u8; PIECE]>().write_unaligned(piece);
        } else if bytes.len() <= MAX_IN_PIECES && has(MAX_IN_PIECES) {
            let pieces = payload
                .as_ptr()
                .add(offset)
                .cast::<[u8; MAX_IN_PIECES]>()
                .read_unaligned();
            to.cast::<[u8; MAX_IN_PIECES]>().write_unaligned(pieces);
        } else {
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

/// Copies `rows` fields of `len` bytes, each `size` bytes after the one before it, storing `LEN` bytes for each.
///
/// # Safety
/// `from` is valid for these reads and `to` for these writes.
#[inline(always)]
unsafe fn copy_pieces<const LEN: usize>(from: *const u8, to: *mut u8, len: usize, size: usize, rows: usize) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let piece = from.add(row * size).cast::<[u8; LEN]>().read_unaligned();
            to.add(row * len).cast::<[u8; LEN]>().write_unaligned(piece);
        }
    }
}

/// Writes `column(first)` for each of `firsts` to `to`, and returns the position after them.
///
/// # Safety
/// `to` is valid for `firsts.len()` writes.
#[inline(always)]
unsafe fn write_each(to: *mut i64, firsts: &[u64], column: impl Fn(u64) -> i64) -> *mut i64 {
    // SAFETY: the caller's promise.
    unsafe {
        for (row, first) in firsts.iter().enumerate() {
            to.add(row).write(column(*first));
        }
        to.add(firsts.len())
    }
}

/// Bytes that [`copy_over`] may store.
fn stored(field: Option<&[u8]>) -> usize {
    match field.map_or(0, <[u8]>::len) {
        0..=PIECE => PIECE,
        len if len <= MAX_IN_PIECES => MAX_IN_PIECES,
        len => len,
    }
}

/// Position of the next element.
fn head<T>(vec: &mut Vec<T>) -> *mut T {
    vec.spare_capacity_mut().as_mut_ptr().cast()
}

/// Where the next key or value goes.
#[derive(Clone, Copy)]
struct BytesHead {
    end: *mut i32,
    data: *mut u8,
    len: usize,
}

impl BytesHead {
    fn new(column: &mut BytesColumn) -> Self {
        Self {
            end: head(&mut column.offsets),
            data: column.data.as_mut_ptr(),
            len: column.data.len(),
        }
    }

    /// # Safety
    /// `column` has room for the row and [`stored`] bytes, and was not reallocated since `new`.
    #[inline(always)]
    unsafe fn write(&mut self, column: &mut BytesColumn, payload: &[u8], row: usize, field: Option<&[u8]>) {
        debug_assert!(row + 1 < column.offsets.capacity());
        debug_assert!(self.len + stored(field) <= column.data.capacity());
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(bytes) = field {
                copy_over(payload, bytes, self.data.add(self.len));
                self.len += bytes.len();
            } else {
                column.nulls.push(row_number(row));
            }
            self.end.write(below_2_gib(self.len));
            self.end = self.end.add(1);
        }
    }

    /// Writes `rows` fields of `len` bytes, the first at `at` and each other `size` bytes after the one before it.
    ///
    /// # Safety
    /// As [`Self::write`]; the fields are inside the payload.
    #[inline(always)]
    unsafe fn write_alike(&mut self, payload: &[u8], at: usize, len: usize, size: usize, rows: usize) {
        // For this many of them whole pieces are inside the payload.
        let in_pieces = match len {
            0..=MAX_IN_PIECES => (payload.len().saturating_sub(at + MAX_IN_PIECES) / size).min(rows),
            _ => 0,
        };
        // SAFETY: the caller's promise.
        unsafe {
            for row in 0..rows {
                self.end.add(row).write(below_2_gib(self.len + (row + 1) * len));
            }
            let (from, to) = (payload.as_ptr().add(at), self.data.add(self.len));
            if len <= PIECE {
                copy_pieces::<PIECE>(from, to, len, size, in_pieces);
            } else {
                copy_pieces::<MAX_IN_PIECES>(from, to, len, size, in_pieces);
            }
            for row in in_pieces..rows {
                to.add(row * len).copy_from_nonoverlapping(from.add(row * size), len);
            }
            self.end = self.end.add(rows);
        }
        self.len += rows * len;
    }

    /// Makes `rows` rows part of the column.
    ///
    /// # Safety
    /// All of them are written.
    unsafe fn close(&self, column: &mut BytesColumn, rows: usize) {
        // SAFETY: the caller's promise; the length was counted while writing.
        unsafe {
            column.offsets.set_len(rows + 1);
            column.data.set_len(self.len);
        }
    }
}

/// The timestamps of a batch's records in the column's unit: the base and a delta, which has 21 bits, times the factor.
struct Times {
    base: i64,
    factor: u32,
}

impl Times {
    /// `None` if one of them could overflow, or be no timestamp.
    fn of(slice: &RecordsSlice, per_millisecond: i64) -> Option<Self> {
        const DELTAS: i64 = 1 << 21;
        let base = slice.timestamp(0);
        let factor = if slice.timestamp(1) == base { 0 } else { per_millisecond };
        (DELTAS..=i64::MAX / 1000 - DELTAS).contains(&base).then(|| Self {
            base: base * per_millisecond,
            factor: u32::try_from(factor).unwrap_or(0),
        })
    }
}

/// Where the next row goes.
struct Heads {
    offset: *mut i64,
    timestamp: *mut i64,
    value: BytesHead,
    /// `None` before the first key.
    key: Option<BytesHead>,
    per_millisecond: i64,
}

impl Heads {
    fn new(columns: &mut Columns) -> Self {
        Self {
            offset: head(&mut columns.offsets),
            timestamp: head(&mut columns.timestamps),
            value: BytesHead::new(&mut columns.value),
            key: columns.has_keys().then(|| BytesHead::new(&mut columns.key)),
            per_millisecond: columns.per_millisecond,
        }
    }

    /// Writes the columns asked for.
    ///
    /// # Safety
    /// The columns were reserved for the row before `new`, and not reallocated since; if the row has a key that is asked for,
    /// `key` is `Some`.
    #[inline(always)]
    unsafe fn write<const ASKED: u8>(
        &mut self,
        columns: &mut Columns,
        payload: &[u8],
        offset: i64,
        time: Option<i64>,
        row: usize,
        raw: &RawRecord<'_>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if ASKED & OFFSET != 0 {
                debug_assert!(row < columns.offsets.capacity());
                self.offset.write(offset);
                self.offset = self.offset.add(1);
            }
            if ASKED & TIMESTAMP != 0 {
                debug_assert!(row < columns.timestamps.capacity());
                if time.is_none() {
                    columns.timestamp_nulls.push(row_number(row));
                }
                self.timestamp.write(time.unwrap_or(0));
                self.timestamp = self.timestamp.add(1);
            }
            if ASKED & VALUE != 0 {
                self.value.write(&mut columns.value, payload, row, raw.value);
            }
            if ASKED & KEY != 0
                && let Some(key) = &mut self.key
            {
                key.write(&mut columns.key, payload, row, raw.key);
            }
        }
    }

    /// Writes the columns `asked` for of at most `most` records from `position` on, and returns how many records that were.
    /// Stops before a record of another layout than `frame` or with an offset outside of the window. Writes none if values
    /// are asked for and these are null, if the key column has begun and these keys are null or the reverse, or if it is not
    /// sure that all `times` fit the column.
    ///
    /// # Safety
    /// As [`Self::write`], for `most` rows. A base offset and a delta do not overflow.
    #[inline(never)]
    unsafe fn write_alike(
        &mut self,
        asked: u8,
        slice: &RecordsSlice,
        window: &Window,
        frame: &Frame,
        position: usize,
        most: usize,
    ) -> usize {
        // SAFETY: the caller's promise; the processor has these instructions.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                return self.write_alike_avx2(asked, slice, window, frame, position, most);
            }
            self.write_alike_portable(asked, slice, window, frame, position, most)
        }
    }

    /// [`Self::write_alike_portable`], compiled to instructions that work on four rows at a time.
    ///
    /// # Safety
    /// As [`Self::write_alike`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn write_alike_avx2(
        &mut self,
        asked: u8,
        slice: &RecordsSlice,
        window: &Window,
        frame: &Frame,
        position: usize,
        most: usize,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.write_alike_portable(asked, slice, window, frame, position, most) }
    }

    /// Column by column for a block of records: loops without branches.
    ///
    /// # Safety
    /// As [`Self::write_alike`].
    #[inline(always)]
    unsafe fn write_alike_portable(
        &mut self,
        asked: u8,
        slice: &RecordsSlice,
        window: &Window,
        frame: &Frame,
        position: usize,
        most: usize,
    ) -> usize {
        let region = region(slice, window);
        let (size, payload) = (frame.size(), &slice.payload[..]);
        let value = frame.value().filter(|_| asked & VALUE != 0);
        let key = frame.key().filter(|_| asked & KEY != 0);
        if value.is_some() != (asked & VALUE != 0) || key.is_some() != self.key.is_some() {
            return 0;
        }
        let times = match Times::of(slice, self.per_millisecond) {
            Some(times) => times,
            None if asked & TIMESTAMP == 0 => Times { base: 0, factor: 0 },
            None => return 0,
        };
        let (timestamp_delta, offset_delta) = (frame.timestamp_delta(), frame.offset_delta());
        let offset_of = |first| slice.base_offset + offset_delta.of(first);
        let is_wanted = |offset| (window.from_offset..window.to_offset).contains(&offset);
        let all_wanted =
            is_wanted(slice.base_offset - offset_delta.limit()) && is_wanted(slice.base_offset + offset_delta.limit());
        let mut firsts = [0; BLOCK];
        let mut written = 0;
        while written < most {
            // Starts with a small block: a short run is not worth reading many records.
            let block = (most - written).min(if written == 0 { WORTHWHILE } else { BLOCK });
            let at = position + written * size;
            let mut rows = frame.firsts(region, at, &mut firsts[..block]);
            if !all_wanted {
                let wanted = firsts[..rows].iter().take_while(|first| is_wanted(offset_of(**first)));
                rows = wanted.count();
            }
            if rows == 0 {
                break;
            }
            let firsts = &firsts[..rows];
            // SAFETY: the caller's promise; records of this layout are in the payload with their keys and values.
            unsafe {
                if asked & OFFSET != 0 {
                    self.offset = write_each(self.offset, firsts, offset_of);
                }
                if asked & TIMESTAMP != 0 {
                    let time = |first| times.base + timestamp_delta.times(first, times.factor);
                    self.timestamp = write_each(self.timestamp, firsts, time);
                }
                if let Some(value) = &value {
                    self.value
                        .write_alike(payload, at + value.start, value.len(), size, rows);
                }
                if let (Some(keys), Some(key)) = (&mut self.key, &key) {
                    keys.write_alike(payload, at + key.start, key.len(), size, rows);
                }
            }
            written += rows;
            if rows < block {
                break;
            }
        }
        written
    }

    /// Makes `rows` rows part of the columns.
    ///
    /// # Safety
    /// All of them are written.
    unsafe fn close(&self, columns: &mut Columns, rows: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if columns.asks(OFFSET) {
                columns.offsets.set_len(rows);
            }
            if columns.asks(TIMESTAMP) {
                columns.timestamps.set_len(rows);
            }
            if columns.asks(VALUE) {
                self.value.close(&mut columns.value, rows);
            }
            if let Some(key) = &self.key {
                key.close(&mut columns.key, rows);
            }
        }
        columns.rows = rows;
    }
}

/// The record at `position`, the position after it and its offset, or what is wrong with it. `batch_end`: where the last
/// record of its batch must end.
#[inline(always)]
fn parse<'a>(
    slice: &RecordsSlice,
    region: &'a [u8],
    position: usize,
    batch_end: Option<usize>,
) -> Result<(RawRecord<'a>, usize, i64), &'static str> {
    let (raw, end) = match parse_small(region, position) {
        Some(small) => small,
        None => parse_record(region, position)?,
    };
    if batch_end.is_some_and(|batch_end| end != batch_end) {
        return Err("bytes are left after the declared number of records");
    }
    match slice.base_offset.checked_add(i64::from(raw.offset_delta)) {
        Some(offset) => Ok((raw, end, offset)),
        None => Err("the offset is beyond 2^63"),
    }
}

/// A time in the unit of the column, if it is asked for; `None`: no timestamp. Kafka: `RecordBatch#NO_TIMESTAMP`.
///
/// # Errors
/// The column cannot hold it.
#[inline(always)]
fn time_of<const ASKED: u8>(offset: i64, milliseconds: i64, per_millisecond: i64) -> Result<Option<i64>, Unfit> {
    match milliseconds.checked_mul(per_millisecond) {
        _ if ASKED & TIMESTAMP == 0 || milliseconds == NO_TIMESTAMP => Ok(None),
        None => Err(Unfit::Time(offset, milliseconds)),
        time => Ok(time),
    }
}

/// Why a record does not become a row.
enum Unfit {
    Malformed(&'static str),
    /// The column cannot hold its timestamp: offset, milliseconds.
    Time(i64, i64),
}

impl Unfit {
    fn error(self, slice: &RecordsSlice) -> RecordError {
        match self {
            Self::Malformed(reason) => slice.invalid(reason),
            Self::Time(offset, timestamp) => RecordError::Timestamp { offset, timestamp },
        }
    }
}

/// Decodes from the cursor on, moving it; returns the rows appended. A malformed record, or one whose timestamp the column
/// cannot hold, stops the decoding before it. That is an error only if no row was appended; else the next call returns it.
pub(crate) fn decode(
    columns: &mut Columns,
    pools: &Pools,
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    window: Window,
) -> Result<usize, RecordError> {
    let timed = if window.times == TimeRange::ALL { 0 } else { TIMED };
    LOOPS[usize::from(columns.asked | timed)](columns, pools, slice, cursor, window)
}

/// A bit beside those of the columns: only some timestamps are asked for.
const TIMED: u8 = 16;

type Loop = fn(&mut Columns, &Pools, &RecordsSlice, &mut RecordCursor, Window) -> Result<usize, RecordError>;

/// A loop for every choice of columns, with and without [`TIMED`], so that none checks in every row what is asked for.
#[rustfmt::skip]
static LOOPS: [Loop; 32] = [
    decode_as::<0>, decode_as::<1>, decode_as::<2>, decode_as::<3>, decode_as::<4>, decode_as::<5>, decode_as::<6>, decode_as::<7>,
    decode_as::<8>, decode_as::<9>, decode_as::<10>, decode_as::<11>, decode_as::<12>, decode_as::<13>, decode_as::<14>, decode_as::<15>,
    decode_as::<16>, decode_as::<17>, decode_as::<18>, decode_as::<19>, decode_as::<20>, decode_as::<21>, decode_as::<22>, decode_as::<23>,
    decode_as::<24>, decode_as::<25>, decode_as::<26>, decode_as::<27>, decode_as::<28>, decode_as::<29>, decode_as::<30>, decode_as::<31>,
];

/// The part of the payload with the records that may become rows.
fn region<'a>(slice: &'a RecordsSlice, window: &Window) -> &'a [u8] {
    slice.payload.get(..window.end).unwrap_or(&slice.payload)
}

/// Most records that `bytes` bytes can hold. A record has at least 7 bytes, so a wrong count cannot reserve more.
fn budget(slice: &RecordsSlice, returned: i32, window: &Window, bytes: usize) -> usize {
    let left = usize::try_from(slice.count.saturating_sub(returned)).unwrap_or(0);
    left.min(window.max_records).min(bytes / MIN_RECORD_SIZE + 1)
}

#[inline(never)]
fn decode_as<const ASKED: u8>(
    columns: &mut Columns,
    pools: &Pools,
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    window: Window,
) -> Result<usize, RecordError> {
    let payload: &[u8] = &slice.payload;
    let region = region(slice, &window);
    let (mut position, mut returned) = (cursor.position(), cursor.returned());
    let bytes = region.len().saturating_sub(position);
    let budget = budget(slice, returned, &window, bytes);
    if budget == 0 {
        return Ok(0);
    }
    // No column outgrows 31 bits: row numbers, ends of keys and values, and those of headers (at least 2 bytes each).
    if columns.largest().saturating_add(bytes) > i32::MAX as usize {
        return Err(slice.invalid("the rows of one Arrow batch would exceed 2 GiB; finish it first"));
    }
    columns.reserve(pools, budget, bytes, SLACK);

    let (before, mut rows) = (columns.rows, columns.rows);
    // Records of the window whose timestamps are outside of the range.
    let mut left_out = 0;
    let mut failure = None;
    let last = slice.count - 1;
    let mut heads = Heads::new(columns);
    let mut runs = Runs::of(slice);
    while rows - before + left_out < budget && returned <= last {
        let parsed = parse(slice, region, position, (returned == last).then_some(payload.len()));
        let Ok((raw, end, offset)) = parsed.map_err(|reason| failure = Some(Unfit::Malformed(reason))) else {
            break;
        };
        if offset >= window.from_offset {
            if offset >= window.to_offset {
                break;
            }
            let milliseconds = slice.timestamp(raw.timestamp_delta);
            if ASKED & TIMED != 0 && !window.times.contains(milliseconds) {
                left_out += 1;
                position = end;
                returned += 1;
                continue;
            }
            let time = time_of::<ASKED>(offset, milliseconds, columns.per_millisecond);
            let Ok(time) = time.map_err(|unfit| failure = Some(unfit)) else {
                break;
            };
            if ASKED & KEY != 0 && raw.key.is_some() && heads.key.is_none() {
                columns.begin_keys(rows);
                columns.reserve_keys(pools, budget - (rows - before), bytes, SLACK);
                heads.key = Some(BytesHead::new(&mut columns.key));
            }
            // SAFETY: fewer than `budget` rows were written, and the values and keys so far are parts of the region; see
            // the module's text. Rows past their lengths become part of the vectors in `close`.
            unsafe { heads.write::<ASKED>(columns, payload, offset, time, rows, &raw) };
            if raw.header_count > 0 {
                push_headers(columns, rows, &raw);
            }
            rows += 1;
        }
        let frame = runs.frame::<ASKED>(region, position..end);
        position = end;
        returned += 1;
        if let Some(frame) = frame {
            let most = (budget - (rows - before)).min(usize::try_from(last - returned).unwrap_or(0));
            // SAFETY: as above, for `most` rows.
            let alike = unsafe { heads.write_alike(ASKED, slice, &window, &frame, position, most) };
            runs.note(alike);
            rows += alike;
            position += alike * frame.size();
            returned += i32::try_from(alike).unwrap_or(0);
        }
    }
    // SAFETY: every column was written up to `rows`.
    unsafe { heads.close(columns, rows) };
    *cursor = RecordCursor::resume_at(position, returned);
    let failure = failure.filter(|_| rows == before);
    failure.map_or(Ok(rows - before), |unfit| Err(unfit.error(slice)))
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

#[cfg(test)]
mod tests;
