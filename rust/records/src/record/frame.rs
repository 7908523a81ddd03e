//! The layout of a record. Records of one producer often have the same layout: their keys and values have the same lengths, and
//! their deltas take the same number of bytes. Three comparisons show whether the next record has it as well; then its end is known
//! without parsing it, and a loop need not wait for one length to find the next.

use std::ops::Range;

use crate::varint::read_varint;

/// The layout of a record without headers whose fields up to the key length fit into eight bytes, its deltas into three each.
#[derive(Debug)]
pub struct Frame {
    /// Bytes of the whole record.
    size: usize,
    /// The bits of the first eight bytes that fix the layout: lengths, and of deltas which bytes they take.
    fixed: u64,
    first: u64,
    timestamp_delta: Delta,
    offset_delta: Delta,
    /// Where the length of the value is, and which of its bits are fixed: none if it is among the first eight bytes.
    value_length_at: usize,
    value_length_fixed: u16,
    value_length: u16,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

/// A varint of one to three bytes among the first eight.
#[derive(Debug)]
struct Delta {
    shift: usize,
    /// Its bits, seven a byte.
    mask: u64,
}

const WIDE_MASK: u64 = 0x7f_7f7f;

impl Delta {
    /// Not `WIDE`: it has two bytes at most.
    #[inline(always)]
    #[allow(clippy::cast_possible_wrap, reason = "21 bits")]
    fn of<const WIDE: bool>(&self, first: u64) -> i64 {
        let bits = first >> self.shift & self.mask;
        let third = if WIDE { (bits & 0x7f_0000) >> 2 } else { 0 };
        let raw = bits & 0x7f | (bits & 0x7f00) >> 1 | third;
        (raw >> 1) as i64 ^ -((raw & 1) as i64)
    }
}

impl Frame {
    /// The layout of `record`, which was parsed and found good; `None` if it is another kind.
    pub fn of(record: &[u8]) -> Option<Self> {
        let bytes = record.first_chunk::<8>()?;
        let mut fixed = [0u8; 8];
        let mut at = 0;
        mark(bytes, &mut fixed, &mut at, 0xff)?; // length
        at += 1; // attributes
        let timestamp_delta = delta(bytes, &mut fixed, &mut at)?;
        let offset_delta = delta(bytes, &mut fixed, &mut at)?;
        let mut value_length_at = at;
        mark(bytes, &mut fixed, &mut at, 0xff)?; // key length
        let key_length = read_varint(record, &mut value_length_at)?;
        let key = field(value_length_at, key_length)?;
        value_length_at = key.as_ref().map_or(value_length_at, |key| key.end);
        let mut value_at = value_length_at;
        let value_length = read_varint(record, &mut value_at)?;
        let value = field(value_at, value_length)?;
        let value_end = value.as_ref().map_or(value_at, |value| value.end);
        let value_length_fixed = match value_at - value_length_at {
            _ if value_at <= fixed.len() => {
                fixed[value_length_at..value_at].fill(0xff);
                0
            }
            1 => 0x00ff,
            2 => 0xffff,
            _ => return None,
        };
        // Behind the value there is the number of headers, one zero byte.
        if value_end + 1 != record.len() || record.last() != Some(&0) {
            return None;
        }
        let fixed = u64::from_le_bytes(fixed);
        Some(Self {
            size: record.len(),
            fixed,
            first: u64::from_le_bytes(*bytes) & fixed,
            timestamp_delta,
            offset_delta,
            value_length_at,
            value_length_fixed,
            value_length: two_bytes(record, value_length_at)? & value_length_fixed,
            key,
            value,
        })
    }

    /// Bytes of each record.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the key is in each record, `None` if it is null.
    pub fn key(&self) -> Option<Range<usize>> {
        self.key.clone()
    }

    /// Where the value is in each record, `None` if it is null.
    pub fn value(&self) -> Option<Range<usize>> {
        self.value.clone()
    }

    /// A delta has three bytes.
    pub fn is_wide(&self) -> bool {
        self.timestamp_delta.mask == WIDE_MASK || self.offset_delta.mask == WIDE_MASK
    }

    /// Timestamp and offset delta of the record at `position` if it has this layout: then it is well formed. Without `WIDE`, a little
    /// quicker, the layout must not be [`Self::is_wide`].
    #[inline(always)]
    pub fn deltas<const WIDE: bool>(&self, payload: &[u8], position: usize) -> Option<(i64, i64)> {
        debug_assert!(WIDE || !self.is_wide());
        let record = payload.get(position..)?.get(..self.size)?;
        let first = self.first_of(record)?;
        Some((
            self.timestamp_delta.of::<WIDE>(first),
            self.offset_delta.of::<WIDE>(first),
        ))
    }

    /// How many records from `position` on have this layout, one behind the other, but at most `most`. Each of them is well formed.
    pub fn alike(&self, payload: &[u8], position: usize, most: usize) -> usize {
        let records = payload.get(position..).unwrap_or_default().chunks_exact(self.size);
        records
            .take(most)
            .take_while(|record| self.first_of(record).is_some())
            .count()
    }

    /// The first eight bytes of `record`, which has the size of the layout, if it has the layout.
    #[inline(always)]
    fn first_of(&self, record: &[u8]) -> Option<u64> {
        let first = u64::from_le_bytes(*record.first_chunk::<8>()?);
        let has_value_length =
            || Some(two_bytes(record, self.value_length_at)? & self.value_length_fixed == self.value_length);
        let fits = first & self.fixed == self.first
            && (self.value_length_fixed == 0 || has_value_length()?)
            && record.last() == Some(&0);
        if fits { Some(first) } else { None }
    }
}

/// The bytes of a field at `at`; `Some(None)` if it is null.
fn field(at: usize, length: i32) -> Option<Option<Range<usize>>> {
    match usize::try_from(length) {
        Ok(length) => Some(Some(at..at.checked_add(length)?)),
        Err(_) => Some(None),
    }
}

/// Fixes the varint at `*at` by `bits` and its "more" bits, and moves `*at` behind it; `None` if it does not end within the eight bytes.
fn mark(bytes: &[u8; 8], fixed: &mut [u8; 8], at: &mut usize, bits: u8) -> Option<()> {
    loop {
        *fixed.get_mut(*at)? = bits;
        *at += 1;
        if bytes[*at - 1] < 0x80 {
            return Some(());
        }
    }
}

/// Fixes which bytes the delta at `*at` takes, and moves `*at` behind it; `None` if they are more than three.
fn delta(bytes: &[u8; 8], fixed: &mut [u8; 8], at: &mut usize) -> Option<Delta> {
    let begin = *at;
    mark(bytes, fixed, at, 0x80)?;
    let mask = match *at - begin {
        1 => 0x7f,
        2 => 0x7f7f,
        3 => WIDE_MASK,
        _ => return None,
    };
    Some(Delta { shift: 8 * begin, mask })
}

#[inline(always)]
fn two_bytes(record: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*record.get(at..)?.first_chunk::<2>()?))
}
