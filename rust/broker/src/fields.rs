//! Fields of the records that coordinators keep: STRING = i16 length + UTF-8 (-1 null), BYTES = i32 length + bytes; in the
//! flexible versions an unsigned varint of length + 1 (0 null).

use std::sync::Arc;

use bytes::Bytes;

/// Reads fields from the front; `None` if bytes are missing or not valid.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
    pub(crate) fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    pub(crate) fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
    pub(crate) fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
    pub(crate) fn text(&mut self, len: usize) -> Option<Arc<str>> {
        Some(Arc::from(std::str::from_utf8(self.take(len)?).ok()?))
    }
    pub(crate) fn string(&mut self) -> Option<Arc<str>> {
        let len = usize::try_from(self.i16()?).ok()?;
        self.text(len)
    }
    /// Unsigned varint of the flexible versions.
    pub(crate) fn unsigned_varint(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.take(1)?.first()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    /// Length of a field, in 2 or 4 bytes unless the version is a flexible one; `Some(None)`: the field is null.
    pub(crate) fn length(&mut self, flexible: bool, bytes: usize) -> Option<Option<usize>> {
        Some(match (flexible, bytes) {
            (true, _) => self.unsigned_varint()?.checked_sub(1),
            (false, 2) => usize::try_from(self.i16()?).ok(),
            (false, _) => usize::try_from(self.i32()?).ok(),
        })
    }
    /// A string; `Some(None)`: null.
    pub(crate) fn nullable(&mut self, flexible: bool) -> Option<Option<Arc<str>>> {
        match self.length(flexible, 2)? {
            Some(len) => self.text(len).map(Some),
            None => Some(None),
        }
    }
    /// Bytes; null reads as empty.
    pub(crate) fn bytes(&mut self, flexible: bool) -> Option<Bytes> {
        let len = self.length(flexible, 4)?.unwrap_or(0);
        self.take(len).map(Bytes::copy_from_slice)
    }
    /// Skips the tagged fields of a flexible version; none is known here.
    pub(crate) fn skip_tags(&mut self) -> Option<()> {
        for _ in 0..self.unsigned_varint()? {
            let _tag = self.unsigned_varint()?;
            let len = self.unsigned_varint()?;
            self.take(len)?;
        }
        Some(())
    }
    pub(crate) fn compact_string(&mut self) -> Option<Arc<str>> {
        let len = self.unsigned_varint()?.checked_sub(1)?;
        self.text(len)
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    // Lengths were checked against i16::MAX when the text was received.
    let len = i16::try_from(text.len()).unwrap_or(i16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::try_from(len).unwrap_or(0)]);
}

pub(crate) fn put_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.extend_from_slice(&(-1i16).to_be_bytes()),
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &Bytes) {
    let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}
