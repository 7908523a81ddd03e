//! Protobuf's wire format: tags, varints, numbers of a fixed size, lengths, and fields that are skipped.
//!
//! ```text
//! field   tag, then what its low three bits say
//! tag     varint of at most 5 bytes: number << 3 | type. The number is 1 to 2^29 - 1
//!         0 varint of at most 10 bytes     1 eight bytes     2 length (varint below 2^31), that many bytes
//!         3 begin of a group: fields       4 end of the group with that number     5 four bytes
//! ```
//!
//! Limits are those of Google's parser in Python (upb): bits of a varint beyond the 64th are lost, messages and groups are nested in at most 100 levels.

use std::ops::Range;

use crate::reason::Reason;
use crate::varint::of_eight;

pub(crate) const VARINT: u32 = 0;
pub(crate) const FIXED64: u32 = 1;
pub(crate) const LENGTH: u32 = 2;
pub(crate) const GROUP: u32 = 3;
pub(crate) const END_GROUP: u32 = 4;
pub(crate) const FIXED32: u32 = 5;

/// How many messages and groups may be inside each other, below the outermost one.
pub(crate) const MOST_LEVELS: u32 = 100;

const VARINT_BYTES: usize = 10;
const TAG_BYTES: usize = 5;
/// Why bytes are no message. It is as small as can be, for it is in the result of every read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    EndsEarly,
    EndsInGroup,
    LongVarint,
    BadTag,
    BadLength,
    BadType,
    BadEnd,
    TooDeep,
    TooLong,
    NotUtf8,
    /// A `Timestamp` beyond timestamp[us].
    Beyond,
    Full,
    /// A column that does not have the structure of its message, which no caller makes.
    OtherColumn,
}

impl Fault {
    const fn text(self) -> &'static str {
        match self {
            Self::EndsEarly => "the bytes end within a field",
            Self::EndsInGroup => "the bytes end within a group",
            Self::LongVarint => "a varint has more than 10 bytes",
            Self::BadTag => "a tag is not one of Protobuf: its number is 1 to 536870911 in at most 5 bytes",
            Self::BadLength => "a length is more than 2 GiB",
            Self::BadType => "a tag has a wire type that does not exist",
            Self::BadEnd => "the end of a group that has not begun",
            Self::TooDeep => "messages are nested in more than 100 levels",
            Self::TooLong => "it has more than 2 GiB, the most that Protobuf has",
            Self::NotUtf8 => "a string is not UTF-8",
            Self::Beyond => "a Timestamp is beyond timestamp[us]",
            Self::Full => "the column has no room for it: 2 GiB of values are the most of one batch",
            Self::OtherColumn => "the column is of another type than the message",
        }
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        Self::plain(fault.text())
    }
}

/// Bytes that are read from front to end.
#[derive(Debug)]
pub(crate) struct Wire<'a> {
    data: &'a [u8],
    /// What is not read of the present message.
    rest: &'a [u8],
    /// Where the present message ends.
    end: usize,
}

/// What follows a message that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outer<'a> {
    rest: &'a [u8],
    end: usize,
}

impl<'a> Wire<'a> {
    pub(crate) const fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            rest: data,
            end: data.len(),
        }
    }

    /// Whether the message has been read.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) const fn at(&self) -> usize {
        self.end - self.rest.len()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        match self.rest {
            [first @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*first))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, Fault> {
        if let Some((number, bytes)) = of_eight(self.rest) {
            self.rest = self.rest.get(bytes..).unwrap_or_default();
            return Ok(number);
        }
        self.any_varint()
    }

    fn any_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(VARINT_BYTES).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.rest.len() < VARINT_BYTES {
            Fault::EndsEarly
        } else {
            Fault::LongVarint
        })
    }

    /// The varint that comes next, which is left.
    pub(crate) fn peek_varint(&self) -> Result<u64, Fault> {
        Wire::new(self.rest).varint()
    }

    /// A tag, whose number is not 0.
    #[inline]
    pub(crate) fn tag(&mut self) -> Result<u32, Fault> {
        match self.rest {
            [first @ 8..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u32::from(*first))
            }
            _ => self.long_tag(),
        }
    }

    #[inline(never)]
    fn long_tag(&mut self) -> Result<u32, Fault> {
        let before = self.rest.len();
        let tag = u32::try_from(self.varint()?).map_err(|_| Fault::BadTag)?;
        if tag < 8 || before - self.rest.len() > TAG_BYTES {
            return Err(Fault::BadTag);
        }
        Ok(tag)
    }

    #[inline]
    fn length(&mut self) -> Result<usize, Fault> {
        match self.rest {
            [first @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(usize::from(*first))
            }
            _ => self.long_length(),
        }
    }

    #[inline(never)]
    fn long_length(&mut self) -> Result<usize, Fault> {
        let before = self.rest.len();
        let length = i32::try_from(self.varint()?).map_err(|_| Fault::BadLength)?;
        if before - self.rest.len() > TAG_BYTES {
            return Err(Fault::BadLength);
        }
        usize::try_from(length).map_err(|_| Fault::BadLength)
    }

    /// Bytes behind their length.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Fault::EndsEarly)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Begins a message behind its length: from here on it is what is read, until [`Wire::leave`].
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<Outer<'a>, Fault> {
        let inner = self.bytes()?;
        let outer = self.outer();
        self.end = self.at();
        self.rest = inner;
        Ok(outer)
    }

    /// What follows if the message ends only where the one around it does: a group.
    pub(crate) const fn outer(&self) -> Outer<'a> {
        Outer {
            rest: self.rest,
            end: self.end,
        }
    }

    /// Continues behind a message that has been read.
    #[inline]
    pub(crate) const fn leave(&mut self, outer: Outer<'a>) {
        self.rest = outer.rest;
        self.end = outer.end;
    }

    /// Begins to read a part of the bytes again.
    pub(crate) fn again(&mut self, part: Range<usize>) {
        self.end = part.end;
        self.rest = self.data.get(part).unwrap_or_default();
    }

    /// The bytes from here to the end of the message.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Fault::EndsEarly)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Skips what follows a tag. `levels` are how many may still begin.
    pub(crate) fn skip(&mut self, tag: u32, levels: u32) -> Result<(), Fault> {
        match tag & 7 {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed::<8>().map(drop),
            LENGTH => self.bytes().map(drop),
            GROUP => {
                let levels = deeper(levels)?;
                loop {
                    let inner = self.tag()?;
                    if inner & 7 == END_GROUP {
                        return check_end(inner, tag);
                    }
                    self.skip(inner, levels)?;
                }
            }
            END_GROUP => Err(Fault::BadEnd),
            FIXED32 => self.fixed::<4>().map(drop),
            _ => Err(Fault::BadType),
        }
    }
}

/// How many levels may still begin after one more.
pub(crate) fn deeper(levels: u32) -> Result<u32, Fault> {
    levels.checked_sub(1).ok_or(Fault::TooDeep)
}

/// Checks that a tag ends the group that another began.
pub(crate) fn check_end(end: u32, begin: u32) -> Result<(), Fault> {
    if end >> 3 == begin >> 3 {
        Ok(())
    } else {
        Err(Fault::BadEnd)
    }
}

/// The number of a zigzag varint.
pub(crate) const fn unzigzag(bits: u64) -> i64 {
    (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed()
}

/// The bits that a number has as a zigzag varint.
pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(mut bits: u64, out: &mut Vec<u8>) {
    while bits >= 0x80 {
        out.push(low(bits) | 0x80);
        bits >>= 7;
    }
    out.push(low(bits));
}

const fn low(bits: u64) -> u8 {
    bits.to_le_bytes()[0] & 0x7f
}

/// Appends what `write` appends, behind its length.
pub(crate) fn put_with_length(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let begin = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - begin - 1;
    if let (Ok(short @ ..0x80), Some(place)) = (u8::try_from(length), out.get_mut(begin)) {
        *place = short;
        return Ok(());
    }
    let mut prefix = Vec::with_capacity(TAG_BYTES);
    put_varint(u64::try_from(length).map_err(|_| Fault::BadLength)?, &mut prefix);
    out.splice(begin..=begin, prefix);
    Ok(())
}
