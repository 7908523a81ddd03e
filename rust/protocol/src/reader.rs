//! Reads primitive types from unchecked bytes. Kafka: `ByteBufferAccessor`.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::Fault;

/// Most memory that a decoded message may take, as a multiple of the frame's size.
const MEMORY_FACTOR: usize = 8;
/// The same for what is in a record or in bytes of a message. No text is too short for it: a topic of one character takes 14 times its
/// size in a flexible version.
const MEMORY_FACTOR_OF_VALUE: usize = 16;
/// The same for a message that is read as a tree, whose smallest field takes as much memory as its largest.
const MEMORY_FACTOR_OF_TREE: usize = 128;
/// Memory that small frames may always take, bytes.
const MEMORY_FLOOR: usize = 64 * 1024;
/// Memory of an `Arc<str>` in addition to its characters, bytes.
const ARC_OVERHEAD: usize = 2 * size_of::<usize>();

/// Reads a frame from its start to its end.
///
/// A length is checked against the remaining bytes before memory is reserved, and all memory reserved for one frame stays below eight times
/// its size (64 KiB for small ones; sixteen times for a value). Bytes and records are slices of the frame. Never panics.
#[derive(Debug)]
pub struct Reader {
    frame: Bytes,
    at: usize,
    /// Compact lengths and tagged fields, as the flexible versions have.
    flexible: bool,
    /// Most bytes that may be reserved, and what is left of them.
    most_memory: usize,
    memory: usize,
    /// Text that is not UTF-8 is an error.
    strict: bool,
}

macro_rules! integers {
    ($($name:ident $type:ty;)*) => {
        $(
            #[doc = concat!("Reads a big-endian `", stringify!($type), "`.")]
            pub(crate) fn $name(&mut self) -> Result<$type, Fault> {
                Ok(<$type>::from_be_bytes(self.array()?))
            }
        )*
    };
}

impl Reader {
    /// A reader at the first byte of a frame (after its size).
    pub fn new(frame: Bytes) -> Self {
        Self::within(frame, MEMORY_FACTOR, false)
    }

    /// A reader for [`crate::tree::Tree`], which takes up to 128 times the size of the frame.
    pub fn of_trees(frame: Bytes) -> Self {
        Self::within(frame, MEMORY_FACTOR_OF_TREE, false)
    }

    /// A reader of a value in a record or in bytes of a message. It refuses text that is not UTF-8, so what was read can be written again.
    pub(crate) fn of_value(bytes: Bytes) -> Self {
        Self::within(bytes, MEMORY_FACTOR_OF_VALUE, true)
    }

    fn within(frame: Bytes, memory_factor: usize, strict: bool) -> Self {
        let most_memory = frame.len().saturating_mul(memory_factor).max(MEMORY_FLOOR);
        Self {
            frame,
            at: 0,
            flexible: false,
            most_memory,
            memory: most_memory,
            strict,
        }
    }

    /// Bytes that have not been read. After a request Kafka ignores them.
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.at
    }

    pub(crate) fn flexible(&self) -> bool {
        self.flexible
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    integers! { i8 i8; i16 i16; u16 u16; i32 i32; i64 i64; f64 f64; }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let rest = self.frame.get(self.at..).unwrap_or_default();
        let found = rest.first_chunk().copied().ok_or(Fault::Cut {
            wanted: N,
            remaining: rest.len(),
        })?;
        self.at += N;
        Ok(found)
    }

    pub(crate) fn uuid(&mut self) -> Result<[u8; 16], Fault> {
        self.array()
    }

    /// Kafka: `ByteUtils#readUnsignedVarint`, which drops the bits beyond the 32nd.
    pub(crate) fn unsigned_varint(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Varint)
    }

    /// The length of an array, of bytes or of records; null if it is negative.
    pub(crate) fn length(&mut self) -> Result<Option<usize>, Fault> {
        let length = match self.flexible {
            true => self.compact_length()?,
            false => self.i32()?,
        };
        Ok(usize::try_from(length).ok())
    }

    /// One less than the number, as Java's `int` computes it.
    fn compact_length(&mut self) -> Result<i32, Fault> {
        Ok(self.unsigned_varint()?.cast_signed().wrapping_sub(1))
    }

    /// The next `len` bytes, not copied.
    pub(crate) fn slice(&mut self, len: usize) -> Result<Bytes, Fault> {
        self.check(len)?;
        let slice = self.frame.slice(self.at..self.at + len);
        self.at += len;
        Ok(slice)
    }

    /// Checks that a length does not exceed the remaining bytes.
    fn check(&self, len: usize) -> Result<(), Fault> {
        match len <= self.remaining() {
            true => Ok(()),
            false => Err(Fault::Cut {
                wanted: len,
                remaining: self.remaining(),
            }),
        }
    }

    /// A string; null if its length is negative. In a message, bytes that are not UTF-8 become U+FFFD, as in Kafka.
    pub(crate) fn string(&mut self) -> Result<Option<Arc<str>>, Fault> {
        let length = match self.flexible {
            true => self.compact_length()?,
            false => i32::from(self.i16()?),
        };
        let Ok(len) = usize::try_from(length) else {
            return Ok(None);
        };
        if i16::try_from(length).is_err() {
            return Err(Fault::Length(len));
        }
        let bytes = self.slice(len)?;
        let text = match str::from_utf8(&bytes) {
            Ok("") => Arc::default(), // shared, not allocated
            Ok(text) => {
                // allocated in steps of eight bytes
                self.charge((ARC_OVERHEAD + len).next_multiple_of(8))?;
                Arc::from(text)
            }
            Err(_) if self.strict => return Err(Fault::Text),
            Err(_) => {
                // each byte may become three, in a string that grows by doubling
                self.charge(ARC_OVERHEAD + 8 * len)?;
                Arc::from(String::from_utf8_lossy(&bytes))
            }
        };
        Ok(Some(text))
    }

    /// An empty vector with room for `count` elements that take at least `min_size` bytes each in the frame.
    pub(crate) fn reserve<T>(&mut self, count: usize, min_size: usize) -> Result<Vec<T>, Fault> {
        if count > self.remaining() / min_size.max(1) {
            return Err(Fault::Cut {
                wanted: count,
                remaining: self.remaining(),
            });
        }
        self.charge(count.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(count))
    }

    /// Counts memory that is about to be reserved.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        self.memory = self.memory.checked_sub(bytes).ok_or(Fault::Memory(self.most_memory))?;
        Ok(())
    }

    /// Tagged fields: `known` reads the field if it knows the tag; others are skipped, in any order, also twice.
    pub(crate) fn tags<E: From<Fault>>(
        &mut self,
        known: &mut dyn FnMut(&mut Self, u32) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.fields(&mut |r, tag, size| {
            if !known(r, tag)? {
                r.check(size)?;
                r.at += size;
            }
            Ok(())
        })
    }

    /// Tagged fields: `read` reads each, given its tag and its size in bytes.
    pub(crate) fn fields<E: From<Fault>>(
        &mut self,
        read: &mut dyn FnMut(&mut Self, u32, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let count = self.unsigned_varint()?.cast_signed();
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()?;
            read(self, tag, usize::try_from(size).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }
}
