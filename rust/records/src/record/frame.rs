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
    /// The bits of the first eight bytes that define the layout: the lengths, and how many bytes each delta takes.
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

/// Records that are checked together: without a branch for each of them, a processor works on several at a time.
pub const BLOCK: usize = 64;

/// A varint of one to three bytes among the first eight.
#[derive(Debug, Clone, Copy)]
pub struct Delta {
    shift: usize,
    /// Its bits, seven a byte.
    mask: u64,
}

impl Delta {
    /// All deltas of the layout are closer to 0 than this.
    #[allow(clippy::cast_possible_wrap, reason = "24 bits")]
    pub fn limit(self) -> i64 {
        (self.mask + 1) as i64
    }

    /// The delta of a record with these first eight bytes.
    #[inline(always)]
    pub fn of(self, first: u64) -> i64 {
        self.times(first, 1)
    }

    /// The delta times `factor`. It multiplies numbers of 32 bits, for which processors have wide instructions.
    #[inline(always)]
    #[allow(clippy::cast_possible_wrap, reason = "a delta has 21 bits, the factor 32")]
    pub fn times(self, first: u64, factor: u32) -> i64 {
        let bits = first >> self.shift & self.mask;
        let raw = bits & 0x7f | (bits & 0x7f00) >> 1 | (bits & 0x7f_0000) >> 2;
        let sign = -((raw & 1) as i64);
        let factor = u64::from(factor);
        let size = ((raw >> 1) & 0xffff_ffff) * factor;
        ((size as i64 + (factor as i64 & sign)) ^ sign) - sign
    }
}

impl Frame {
    /// The layout of `record`, which was parsed and is valid; `None` if it is another kind.
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
        // After the value comes the number of headers, one zero byte.
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

    /// The timestamp delta of each record.
    pub fn timestamp_delta(&self) -> Delta {
        self.timestamp_delta
    }

    /// The offset delta of each record.
    pub fn offset_delta(&self) -> Delta {
        self.offset_delta
    }

    /// Timestamp and offset delta of the record at `position` if it has this layout: then it is well formed.
    #[inline(always)]
    pub fn deltas(&self, payload: &[u8], position: usize) -> Option<(i64, i64)> {
        let record = payload.get(position..)?.get(..self.size)?;
        let first = self.first_of(record)?;
        Some((self.timestamp_delta.of(first), self.offset_delta.of(first)))
    }

    /// How many consecutive records from `position` on have this layout, at most `most`. Each of them is well formed.
    pub fn alike(&self, payload: &[u8], position: usize, most: usize) -> usize {
        let mut firsts = [0; BLOCK];
        let mut alike = 0;
        while alike < most {
            let block = (most - alike).min(BLOCK);
            let more = self.firsts(payload, position + alike * self.size, &mut firsts[..block]);
            alike += more;
            if more < block {
                break;
            }
        }
        alike
    }

    /// As [`Self::alike`], for at most `firsts.len()` records, storing the first eight bytes of each.
    #[inline(always)]
    pub fn firsts(&self, payload: &[u8], position: usize, firsts: &mut [u64]) -> usize {
        let records = payload.get(position..).unwrap_or_default();
        let rows = firsts.len().min(records.len() / self.size);
        let (records, firsts) = (&records[..rows * self.size], &mut firsts[..rows]);
        let differ = if self.value_length_fixed == 0 {
            self.gather::<false>(records, firsts)
        } else {
            self.gather::<true>(records, firsts)
        };
        if differ == 0 {
            return rows;
        }
        let records = records.chunks_exact(self.size);
        records.take_while(|record| self.first_of(record).is_some()).count()
    }

    /// Collects the first eight bytes of each of `records`. Not 0 if one of them does not have the layout.
    #[inline(always)]
    fn gather<const FAR: bool>(&self, records: &[u8], firsts: &mut [u64]) -> u64 {
        // No layout is shorter than this. With this check, the loop needs none.
        if self.size < 8 {
            return 1;
        }
        let mut differ = 0;
        for (first, record) in firsts.iter_mut().zip(records.chunks_exact(self.size)) {
            *first = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            differ |= *first & self.fixed ^ self.first;
            differ |= u64::from(record[record.len() - 1]);
            if FAR {
                differ |= u64::from(self.value_length_differs(record));
            }
        }
        differ
    }

    /// The first eight bytes of `record`, which has the size of the layout, if it has the layout.
    #[inline(always)]
    fn first_of(&self, record: &[u8]) -> Option<u64> {
        let first = u64::from_le_bytes(*record.first_chunk()?);
        let fits = first & self.fixed == self.first
            && (self.value_length_fixed == 0 || self.value_length_differs(record) == 0)
            && record.last() == Some(&0);
        if fits { Some(first) } else { None }
    }

    /// Not 0 if the length of the value is not that of the layout.
    #[inline(always)]
    fn value_length_differs(&self, record: &[u8]) -> u16 {
        let value_length = two_bytes(record, self.value_length_at).unwrap_or(!self.value_length);
        value_length & self.value_length_fixed ^ self.value_length
    }
}

/// The bytes of a field at `at`; `Some(None)` if it is null.
fn field(at: usize, length: i32) -> Option<Option<Range<usize>>> {
    match usize::try_from(length) {
        Ok(length) => Some(Some(at..at.checked_add(length)?)),
        Err(_) => Some(None),
    }
}

/// Marks `bits` and the "more" bits of the varint at `*at` as fixed, and moves `*at` after it; `None` if it does not end
/// within the eight bytes.
fn mark(bytes: &[u8; 8], fixed: &mut [u8; 8], at: &mut usize, bits: u8) -> Option<()> {
    loop {
        *fixed.get_mut(*at)? = bits;
        *at += 1;
        if bytes[*at - 1] < 0x80 {
            return Some(());
        }
    }
}

/// Marks as fixed which bytes the delta at `*at` takes, and moves `*at` after it; `None` if it takes more than three.
fn delta(bytes: &[u8; 8], fixed: &mut [u8; 8], at: &mut usize) -> Option<Delta> {
    let begin = *at;
    mark(bytes, fixed, at, 0x80)?;
    let mask = match *at - begin {
        1 => 0x7f,
        2 => 0x7f7f,
        3 => 0x7f_7f7f,
        _ => return None,
    };
    Some(Delta { shift: 8 * begin, mask })
}

#[inline(always)]
fn two_bytes(record: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*record.get(at..)?.first_chunk::<2>()?))
}
