//! One record inside a v2 batch (spec 1.3).
//!
//! | field          | type    | rule                                             |
//! |----------------|---------|--------------------------------------------------|
//! | length         | varint  | bytes of everything after itself                 |
//! | attributes     | i8      | unused, 0                                        |
//! | timestampDelta | varlong | to the batch's baseTimestamp, may be negative    |
//! | offsetDelta    | varint  | to the batch's baseOffset                        |
//! | keyLen, key    | varint  | -1 = null                                        |
//! | valueLen, value| varint  | -1 = null                                        |
//! | headerCount    | varint  | >= 0                                             |
//! | headers        |         | keyLen varint >= 0, UTF-8 key, valueLen varint (-1 null), value |

use crate::varint::{read_varint, read_varlong};
use crate::{RecordError, RecordsSlice};
pub use frame::{BLOCK, Delta, Frame};

mod frame;

/// Smallest encoding of a record: length, attributes, two deltas, two null lengths, header count.
pub const MIN_RECORD_SIZE: usize = 7;

/// A record that borrows its bytes. Offsets and times are absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Absolute offset.
    pub offset: i64,
    /// Milliseconds since the epoch, -1 none.
    pub timestamp: i64,
    /// Key, `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` = null (tombstone).
    pub value: Option<&'a [u8]>,
    /// Number of headers.
    pub header_count: u32,
    /// The encoded headers (after the count).
    pub headers: &'a [u8],
}

/// One header; keys may repeat, order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// UTF-8 key.
    pub key: &'a str,
    /// Value, `None` = null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// The headers in order (already validated when the record was parsed).
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + 'a {
        decode_headers(self.headers, self.header_count)
    }
}

/// Decodes headers that a parse has checked.
fn decode_headers(headers: &[u8], count: u32) -> impl Iterator<Item = Header<'_>> {
    let mut pos = 0;
    (0..count).map_while(move |_| read_header(headers, &mut pos).ok())
}

/// A record before its deltas were added to a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// To be added to the base timestamp (ignored under LogAppendTime).
    pub timestamp_delta: i64,
    /// To be added to the base offset.
    pub offset_delta: i32,
    /// Key, `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` = null.
    pub value: Option<&'a [u8]>,
    /// Number of headers.
    pub header_count: u32,
    /// The encoded headers (after the count).
    pub headers: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The headers in order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + 'a {
        decode_headers(self.headers, self.header_count)
    }
}

/// Bytes of a nullable field after a varint length; `-1` is null, less is refused.
#[inline(always)]
fn read_nullable<'a>(body: &'a [u8], pos: &mut usize) -> Option<Option<&'a [u8]>> {
    let len = read_varint(body, pos)?;
    if len < 0 {
        return if len == -1 { Some(None) } else { None };
    }
    let len = usize::try_from(len).ok()?;
    let bytes = body.get(*pos..)?.get(..len)?;
    *pos += len;
    Some(Some(bytes))
}

/// Reads one header at `*pos`, advancing it.
fn read_header<'a>(body: &'a [u8], pos: &mut usize) -> Result<Header<'a>, &'static str> {
    let key = match read_nullable(body, pos) {
        Some(Some(key)) => key,
        Some(None) => return Err("a header key is null"),
        None => return Err("a header key is longer than the record"),
    };
    let key = std::str::from_utf8(key).map_err(|_| "a header key is not UTF-8")?;
    let value = read_nullable(body, pos).ok_or("a header value is longer than the record")?;
    Ok(Header { key, value })
}

/// Checks `count` headers from `pos` on and that they end with the record.
#[cold]
#[inline(never)]
fn check_headers(body: &[u8], mut pos: usize, count: i32) -> Result<u32, &'static str> {
    let count = u32::try_from(count).map_err(|_| "the number of headers is negative")?;
    if usize::try_from(count).is_ok_and(|n| n > body.len().saturating_sub(pos)) {
        return Err("more headers than bytes remain in the record");
    }
    for _ in 0..count {
        read_header(body, &mut pos)?;
    }
    if pos == body.len() {
        Ok(count)
    } else {
        Err("the record does not end at its declared length")
    }
}

/// The body of the record at `payload[pos..]` and the position after it.
#[inline(always)]
fn record_body(payload: &[u8], pos: usize) -> Result<(&[u8], usize), &'static str> {
    let mut at = pos;
    let Some(len) = read_varint(payload, &mut at) else {
        return Err(if pos >= payload.len() {
            "fewer records than the batch declares"
        } else {
            "the length of a record is cut off or too long"
        });
    };
    let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len));
    match end.and_then(|end| payload.get(at..end)) {
        Some(body) => Ok((body, at + body.len())),
        None => Err("the length of a record is negative or beyond the end of the batch"),
    }
}

/// Parses and checks one record completely; returns it and the position after it. Kafka: `DefaultRecord#readFrom`.
#[inline(never)]
pub fn parse_record(payload: &[u8], pos: usize) -> Result<(RawRecord<'_>, usize), &'static str> {
    let (body, end) = record_body(payload, pos)?;
    // The attributes byte is skipped: no bit of it has a meaning.
    let mut at = 1;
    let Some(timestamp_delta) = read_varlong(body, &mut at) else {
        return Err("the timestamp delta is cut off or too long");
    };
    let Some(offset_delta) = read_varint(body, &mut at) else {
        return Err("the offset delta is cut off or too long");
    };
    let Some(key) = read_nullable(body, &mut at) else {
        return Err("the key is longer than the record");
    };
    let Some(value) = read_nullable(body, &mut at) else {
        return Err("the value is longer than the record");
    };
    let Some(count) = read_varint(body, &mut at) else {
        return Err("the number of headers is cut off or too long");
    };
    if count == 0 {
        if at != body.len() {
            return Err("the record does not end at its declared length");
        }
        return Ok((
            RawRecord {
                timestamp_delta,
                offset_delta,
                key,
                value,
                header_count: 0,
                headers: &[],
            },
            end,
        ));
    }
    let header_count = check_headers(body, at, count)?;
    let headers = body.get(at..).unwrap_or_default();
    Ok((
        RawRecord {
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count,
            headers,
        },
        end,
    ))
}

/// Bytes that [`parse_small`] examines before the value: attributes 1, at most 3 each of length, timestamp delta, offset
/// delta, key length and value length. A machine loads them at once.
const WINDOW: usize = 16;

/// The varint of one to three bytes at `win[*at]`, still zig-zag; `None` if it is longer. Indexes are masked, which never
/// changes them, so that no bound is checked.
#[inline(always)]
fn read_short(win: &[u8; WINDOW], at: &mut usize) -> Option<u32> {
    let first = win[*at & (WINDOW - 1)];
    if first < 0x80 {
        *at += 1;
        return Some(u32::from(first));
    }
    let second = win[(*at + 1) & (WINDOW - 1)];
    let low = u32::from(first & 0x7f) | u32::from(second & 0x7f) << 7;
    if second < 0x80 {
        *at += 2;
        return Some(low);
    }
    let third = win[(*at + 2) & (WINDOW - 1)];
    if third >= 0x80 {
        return None;
    }
    *at += 3;
    Some(low | u32::from(third) << 14)
}

#[inline(always)]
#[allow(clippy::cast_possible_wrap)]
fn unzigzag_short(raw: u32) -> i32 {
    ((raw >> 1) as i32) ^ -((raw & 1) as i32)
}

/// [`parse_record`] for the common record: without headers, every field's varint at most three bytes, well formed, and not
/// at the very end of the payload. `None` means only that it is not such a record: use [`parse_record`].
#[inline(always)]
pub fn parse_small(payload: &[u8], pos: usize) -> Option<(RawRecord<'_>, usize)> {
    let win = payload.get(pos..)?.first_chunk::<WINDOW>()?;
    let mut at = 0;
    let len = read_short(win, &mut at)?;
    let end = pos + at + (len >> 1) as usize;
    // An odd length is a negative one.
    if len & 1 != 0 || end > payload.len() {
        return None;
    }
    at += 1;
    let timestamp_delta = i64::from(unzigzag_short(read_short(win, &mut at)?));
    let offset_delta = unzigzag_short(read_short(win, &mut at)?);
    let key_len = read_short(win, &mut at)?;
    let (key, value_len, mut at) = if key_len == 1 {
        let value_len = read_short(win, &mut at)?;
        (None, value_len, pos + at)
    } else if key_len & 1 == 0 {
        let key_at = pos + at;
        let key_end = key_at + (key_len >> 1) as usize;
        let key = payload.get(key_at..key_end)?;
        let win = payload.get(key_end..)?.first_chunk::<WINDOW>()?;
        let mut at = 0;
        let value_len = read_short(win, &mut at)?;
        (Some(key), value_len, key_end + at)
    } else {
        return None;
    };
    let value = if value_len & 1 == 0 {
        let value_at = at;
        at += (value_len >> 1) as usize;
        Some(payload.get(value_at..at)?)
    } else if value_len == 1 {
        None
    } else {
        return None;
    };
    // The count of headers is the last byte of the record, and 0.
    if at + 1 != end || *payload.get(at)? != 0 {
        return None;
    }
    Some((
        RawRecord {
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count: 0,
            headers: &[],
        },
        end,
    ))
}

/// Walks the records of a [`RecordsSlice`] in order, checking each completely: body length, lengths within bounds,
/// header count, UTF-8 header keys. After `count` records there must be no byte left.
///
/// Kafka: `DefaultRecordBatch.RecordIterator`: bytes left after the last record are found when the last record is read, so
/// that record is not returned; the records of a batch that declares none are not read.
#[derive(Debug, Clone)]
pub struct RecordCursor {
    position: usize,
    returned: i32,
}

impl RecordCursor {
    /// A cursor at the first record.
    pub fn new() -> Self {
        Self {
            position: 0,
            returned: 0,
        }
    }
    /// Byte position of the next record in the payload.
    pub fn position(&self) -> usize {
        self.position
    }
    /// Records walked so far.
    pub fn returned(&self) -> i32 {
        self.returned
    }
    /// Continues at `position`, after `returned` records: for a decoder that itself walked records and checked them as
    /// [`RecordCursor::next`] does.
    pub fn resume_at(position: usize, returned: i32) -> Self {
        Self { position, returned }
    }

    /// Parses at the cursor without moving it.
    #[inline(always)]
    fn peek<'a>(&self, slice: &'a RecordsSlice) -> Result<(RawRecord<'a>, usize, i64), &'static str> {
        Self::parse(slice, self.position, self.returned == slice.count - 1)
    }

    /// The record at `position`, the position after it, its offset.
    #[inline(always)]
    fn parse(
        slice: &RecordsSlice,
        position: usize,
        is_last: bool,
    ) -> Result<(RawRecord<'_>, usize, i64), &'static str> {
        let (raw, end) = match parse_small(&slice.payload, position) {
            Some(small) => small,
            None => parse_record(&slice.payload, position)?,
        };
        if is_last && end != slice.payload.len() {
            return Err("bytes are left after the declared number of records");
        }
        let offset = slice
            .base_offset
            .checked_add(i64::from(raw.offset_delta))
            .ok_or("the offset is beyond 2^63")?;
        Ok((raw, end, offset))
    }

    /// The next record, `None` after the last. An error does not advance the cursor, so it repeats.
    #[inline]
    pub fn next<'a>(&mut self, slice: &'a RecordsSlice) -> Result<Option<Record<'a>>, RecordError> {
        if self.returned >= slice.count {
            return Ok(None);
        }
        let (raw, end, offset) = self.peek(slice).map_err(|reason| slice.invalid(reason))?;
        self.position = end;
        self.returned += 1;
        Ok(Some(Record {
            offset,
            timestamp: slice.timestamp(raw.timestamp_delta),
            key: raw.key,
            value: raw.value,
            header_count: raw.header_count,
            headers: raw.headers,
        }))
    }

    /// Walks at most `max` records, for cutting a span that is decoded later. Returns (records walked, first offset, last offset),
    /// `None` if nothing was left. Ends before a malformed record as [`Self::visit`] does.
    pub fn walk(&mut self, slice: &RecordsSlice, max: usize) -> Result<Option<(usize, i64, i64)>, RecordError> {
        let (mut first, mut last) = (None, 0);
        let walked = self.pass::<false>(slice, max, |offset, _, _| {
            first.get_or_insert(offset);
            last = offset;
            true
        })?;
        Ok(first.map(|first| (walked, first, last)))
    }

    /// As [`Self::walk`], up to the first record whose timestamp (ms) `wanted` refuses. `wanted` is called once for each
    /// record, in order, and every record that it accepts is walked.
    #[inline(always)]
    pub fn walk_while(
        &mut self,
        slice: &RecordsSlice,
        max: usize,
        mut wanted: impl FnMut(i64) -> bool,
    ) -> Result<Option<(usize, i64, i64)>, RecordError> {
        let (mut first, mut last) = (None, 0);
        let walked = self.visit(slice, max, |offset, timestamp, _| {
            if !wanted(timestamp) {
                return false;
            }
            first.get_or_insert(offset);
            last = offset;
            true
        })?;
        Ok(first.map(|first| (walked, first, last)))
    }

    /// Shows at most `max` records to `visit`: offset, timestamp (ms), whether there is a key. Each was checked as
    /// [`Self::next`] checks it. A record that `visit` refuses ends the call, and the cursor stays before it. Returns how
    /// many records were passed; ends early, without error, before a malformed record if at least one was passed or refused;
    /// then the next call returns the error.
    ///
    /// This is the fast way: records with the same layout as the one before them are not parsed.
    #[inline(always)]
    pub fn visit(
        &mut self,
        slice: &RecordsSlice,
        max: usize,
        visit: impl FnMut(i64, i64, bool) -> bool,
    ) -> Result<usize, RecordError> {
        self.pass::<true>(slice, max, visit)
    }

    /// As [`Self::visit`]. Without `EACH`, only the last record of each run that is not parsed is shown.
    #[inline(always)]
    fn pass<const EACH: bool>(
        &mut self,
        slice: &RecordsSlice,
        max: usize,
        mut visit: impl FnMut(i64, i64, bool) -> bool,
    ) -> Result<usize, RecordError> {
        let left = usize::try_from(slice.count.saturating_sub(self.returned)).unwrap_or(0);
        let most = max.min(left);
        let payload: &[u8] = &slice.payload;
        let sums_fit = slice.sums_fit();
        let mut at = self.position; // local copies, which the loop keeps in registers
        let mut passed = 0;
        let mut size = 0;
        let mut failure = None;
        'records: while passed < most {
            let (raw, end, offset) = match Self::parse(slice, at, passed + 1 == left) {
                Ok(record) => record,
                Err(reason) => {
                    failure = Some(reason).filter(|_| passed == 0);
                    break;
                }
            };
            if !visit(offset, slice.timestamp(raw.timestamp_delta), raw.key.is_some()) {
                break;
            }
            let before = std::mem::replace(&mut size, end - at);
            let frame = if size == before && sums_fit {
                payload.get(at..end).and_then(Frame::of)
            } else {
                None
            };
            at = end;
            passed += 1;
            let Some(frame) = frame else { continue };
            if !EACH {
                // The loop below shows the last one, and checks the end of the batch.
                let before_last = most.min(left - 1).saturating_sub(passed);
                let skipped = frame.alike(payload, at, before_last).saturating_sub(1);
                at += skipped * frame.size();
                passed += skipped;
            }
            while passed < most
                && let Some((timestamp_delta, offset_delta)) = frame.deltas(payload, at)
            {
                if passed + 1 == left && at + frame.size() != payload.len() {
                    break; // The parse will say what is wrong.
                }
                let (offset, timestamp) = (slice.base_offset + offset_delta, slice.timestamp(timestamp_delta));
                if !visit(offset, timestamp, raw.key.is_some()) {
                    break 'records;
                }
                at += frame.size();
                passed += 1;
            }
        }
        self.position = at;
        self.returned += i32::try_from(passed).unwrap_or(i32::MAX);
        match failure {
            Some(reason) => Err(slice.invalid(reason)),
            None => Ok(passed),
        }
    }

    /// Timestamp (ms) of the next record, `None` after the last. Does not move the cursor.
    ///
    /// # Errors
    /// The next record is malformed.
    pub fn peek_timestamp(&self, slice: &RecordsSlice) -> Result<Option<i64>, RecordError> {
        if self.returned >= slice.count {
            return Ok(None);
        }
        let (raw, _, _) = self.peek(slice).map_err(|reason| slice.invalid(reason))?;
        Ok(Some(slice.timestamp(raw.timestamp_delta)))
    }
}

impl Default for RecordCursor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
