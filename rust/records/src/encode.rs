//! The quick way to append a small record: one capacity check, then plain stores.
//!
//! Every record that a producer sends is encoded here unless it is large or has headers. The bytes are those of the
//! general way in [`crate::batch_builder`], which the tests there compare with this one.
#![allow(unsafe_code)]

/// A varint of at most two bytes, still zig-zag, is below this.
const SHORT: u32 = 1 << 14;
/// Bytes of a small record beside its key and value: length 2, attributes 1, timestamp delta 2, offset delta 2, two
/// lengths of 2, header count 1.
const FIELDS: usize = 12;

/// Bytes of a short varint.
#[inline(always)]
fn size(raw: u32) -> usize {
    if raw < 0x80 { 1 } else { 2 }
}

/// A nullable length as a short varint, `None` if it is not one.
#[inline(always)]
fn short_len(field: Option<&[u8]>) -> Option<u32> {
    match field {
        None => Some(1),
        Some(bytes) if bytes.len() < (SHORT >> 1) as usize => u32::try_from(bytes.len() << 1).ok(),
        Some(_) => None,
    }
}

/// Zig-zag of a delta, `None` if it is not short.
#[inline(always)]
fn short_delta(delta: i64) -> Option<u32> {
    let raw = (delta << 1) ^ (delta >> 63);
    u32::try_from(raw).ok().filter(|&raw| raw < SHORT)
}

/// Stores a short varint; returns the position after it.
///
/// # Safety
/// `at` is valid for writes of two bytes; `raw` is below [`SHORT`].
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "below 2^14, spread over 15 bits")]
unsafe fn put(at: *mut u8, raw: u32) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if raw < 0x80 {
            at.write(raw as u8);
            at.add(1)
        } else {
            at.cast::<[u8; 2]>()
                .write((((raw & 0x7f) | 0x80 | (raw >> 7) << 8) as u16).to_le_bytes());
            at.add(2)
        }
    }
}

/// Copies `bytes`; returns the position after them. Lengths of 8 to 32 go as two overlapping pieces: a call of `memcpy`
/// costs more than the rest of a record.
///
/// # Safety
/// `at` is valid for writes of `bytes.len()` bytes, outside of them.
#[inline(always)]
unsafe fn copy(at: *mut u8, bytes: &[u8]) -> *mut u8 {
    let (from, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the caller's promise; both pieces are within the length.
    unsafe {
        if (8..=16).contains(&len) {
            at.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read());
            at.add(len - 8)
                .cast::<[u8; 8]>()
                .write(from.add(len - 8).cast::<[u8; 8]>().read());
        } else if (17..=32).contains(&len) {
            at.cast::<[u8; 16]>().write(from.cast::<[u8; 16]>().read());
            at.add(len - 16)
                .cast::<[u8; 16]>()
                .write(from.add(len - 16).cast::<[u8; 16]>().read());
        } else {
            at.copy_from_nonoverlapping(from, len);
        }
        at.add(len)
    }
}

/// The result of [`push_small`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Small {
    /// Appended this many bytes.
    Pushed(usize),
    /// Nothing appended: the record takes more than `room`.
    NoRoom,
    /// Nothing appended: it is another kind of record.
    Other,
}

/// Appends a record without headers if all its varints are short and it takes at most `room` bytes.
#[inline(always)]
pub(crate) fn push_small(
    out: &mut Vec<u8>,
    room: usize,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Small {
    let deltas = (short_delta(timestamp_delta), short_delta(i64::from(offset_delta)));
    let ((Some(timestamp_delta), Some(offset_delta)), (Some(key_len), Some(value_len))) =
        (deltas, (short_len(key), short_len(value)))
    else {
        return Small::Other;
    };
    let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
    let lengths = size(key_len) + size(value_len);
    let body = 2 + size(timestamp_delta) + size(offset_delta) + lengths + key.len() + value.len();
    let Some(raw_body) = u32::try_from(body << 1).ok().filter(|&raw| raw < SHORT) else {
        return Small::Other;
    };
    let whole = size(raw_body) + body;
    if whole > room {
        return Small::NoRoom;
    }
    out.reserve(FIELDS + key.len() + value.len());
    let len = out.len();
    // SAFETY: room for the fields, the key and the value was just reserved, and exactly those are written; the length
    // set is that of the bytes written.
    unsafe {
        let begin = out.as_mut_ptr().add(len);
        let mut at = put(begin, raw_body);
        at.write(0);
        at = put(at.add(1), timestamp_delta);
        at = put(at, offset_delta);
        at = copy(put(at, key_len), key);
        at = copy(put(at, value_len), value);
        at.write(0);
        debug_assert_eq!(at.add(1).offset_from_unsigned(begin), whole);
        out.set_len(len + whole);
    }
    Small::Pushed(whole)
}
