//! The bytes of one value, read from the front.

use super::bad::{Bad, cut_off};
use crate::varint::of_eight;

/// The most items of arrays that take no bytes, in one value: they cost a sender nothing.
const MAX_EMPTY_ITEMS: u64 = 1000;

/// Bytes, and how far they are read.
pub struct Cursor<'a> {
    data: &'a [u8],
    /// What is not read.
    rest: &'a [u8],
    empty_items: u64,
}

impl<'a> Cursor<'a> {
    pub const fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            rest: data,
            empty_items: 0,
        }
    }

    /// Bytes that are not read.
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// How many bytes are read.
    pub const fn at(&self) -> usize {
        self.data.len() - self.rest.len()
    }

    /// The same bytes from another place.
    pub fn from(&self, at: usize) -> Self {
        Self {
            data: self.data,
            rest: self.data.get(at..).unwrap_or_default(),
            empty_items: self.empty_items,
        }
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A number of variable length, zigzag: int and long.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Bad> {
        let bits = match self.rest {
            [first @ ..0x80, rest @ ..] => {
                self.rest = rest;
                u64::from(*first)
            }
            _ => self.more_bits()?,
        };
        Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }

    #[inline(never)]
    fn more_bits(&mut self) -> Result<u64, Bad> {
        if let Some((bits, bytes)) = of_eight(self.rest) {
            self.rest = self.rest.get(bytes..).unwrap_or_default();
            return Ok(bits);
        }
        self.any_bits()
    }

    fn any_bits(&mut self) -> Result<u64, Bad> {
        let (mut bits, mut shift) = (0_u64, 0);
        loop {
            let [byte] = self.array()?;
            if shift == 63 && byte > 1 {
                return Err(Bad::value("a number has more than 64 bits"));
            }
            bits |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(bits);
            }
            shift += 7;
        }
    }

    /// Bytes with their length before them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Bad> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| Bad::value("a length is negative"))?;
        self.take(length)
    }

    /// The number of a union's branch or an enum's symbol.
    #[inline]
    pub fn number(&mut self) -> Result<usize, Bad> {
        usize::try_from(self.long()?).map_err(|_| Bad::value("the number of a branch or a symbol is negative"))
    }

    /// How many items the next block of an array or map has; 0 at its end.
    #[inline]
    pub fn block(&mut self) -> Result<u64, Bad> {
        let count = self.long()?;
        if count < 0 {
            // its size in bytes, by which it could be left out
            self.long()?;
        }
        Ok(count.unsigned_abs())
    }

    /// Counts items of no bytes.
    pub fn empty_items(&mut self, count: u64) -> Result<(), Bad> {
        self.empty_items = self.empty_items.saturating_add(count);
        if self.empty_items > MAX_EMPTY_ITEMS {
            return Err(Bad::limit("its arrays have more than 1,000 items that take no bytes"));
        }
        Ok(())
    }
}
