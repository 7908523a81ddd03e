//! Writes primitive types as bytes. Kafka: `ByteBufferAccessor`, `SendBuilder` (large records are not copied).

use bytes::Bytes;

use crate::error::Fault;

/// Records and bytes from this size on become a chunk of their own, bytes.
const SPLICED_FROM: usize = 1024;

/// Writes a frame as a list of chunks: small values go into one buffer, large records are passed on as they are.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    /// Large chunks, each with the place in the buffer that it comes before.
    spliced: Vec<(usize, Bytes)>,
    flexible: bool,
}

impl Writer {
    /// A writer without any bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buffer.len() + self.spliced.iter().map(|(_, chunk)| chunk.len()).sum::<usize>()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was written, in order. Records of 1 KiB and more are the `Bytes` of the message, not a copy.
    pub fn into_chunks(self) -> Vec<Bytes> {
        let buffer = Bytes::from(self.buffer);
        let mut chunks = Vec::with_capacity(2 * self.spliced.len() + 1);
        let mut from = 0;
        for (at, chunk) in self.spliced {
            if at > from {
                chunks.push(buffer.slice(from..at));
            }
            chunks.push(chunk);
            from = at;
        }
        if buffer.len() > from || chunks.is_empty() {
            chunks.push(buffer.slice(from..));
        }
        chunks
    }

    /// What was written, in one piece.
    pub(crate) fn into_bytes(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.into_chunks()) {
            Ok([whole]) => whole,
            Err(chunks) => chunks.concat().into(),
        }
    }

    pub(crate) fn flexible(&self) -> bool {
        self.flexible
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The bytes after their length, without a copy if there are many.
    pub(crate) fn splice(&mut self, bytes: &Bytes) {
        if bytes.len() >= SPLICED_FROM {
            self.spliced.push((self.buffer.len(), bytes.clone()));
        } else {
            self.put(bytes);
        }
    }

    pub(crate) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.buffer.push(value.to_le_bytes()[0]);
    }

    /// The length of an array, of bytes or of records.
    pub(crate) fn length(&mut self, len: usize) -> Result<(), Fault> {
        let length = i32::try_from(len).map_err(|_| Fault::Length(len))?;
        match self.flexible {
            true => self.unsigned_varint(length.unsigned_abs() + 1),
            false => self.put(&length.to_be_bytes()),
        }
        Ok(())
    }

    /// The length of null instead of an array, bytes or records.
    pub(crate) fn null(&mut self) {
        match self.flexible {
            true => self.unsigned_varint(0),
            false => self.put(&(-1i32).to_be_bytes()),
        }
    }

    pub(crate) fn string(&mut self, text: &str) -> Result<(), Fault> {
        let length = i16::try_from(text.len()).map_err(|_| Fault::Length(text.len()))?;
        match self.flexible {
            true => self.unsigned_varint(u32::from(length.unsigned_abs()) + 1),
            false => self.put(&length.to_be_bytes()),
        }
        self.put(text.as_bytes());
        Ok(())
    }

    pub(crate) fn null_string(&mut self) {
        match self.flexible {
            true => self.unsigned_varint(0),
            false => self.put(&(-1i16).to_be_bytes()),
        }
    }

    /// One tagged field: its tag and its size before what `write` writes.
    pub(crate) fn tag<E: From<Fault>>(
        &mut self,
        tag: u32,
        write: &mut dyn FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.unsigned_varint(tag);
        let (start, before, spliced) = (self.buffer.len(), self.len(), self.spliced.len());
        write(self)?;
        let (end, size) = (self.buffer.len(), self.len() - before);
        self.unsigned_varint(u32::try_from(size).map_err(|_| Fault::Length(size))?);
        let size_bytes = self.buffer.len() - end;
        if let Some(field) = self.buffer.get_mut(start..) {
            field.rotate_right(size_bytes);
        }
        // The field has moved behind its size, and its large chunks with it.
        for (at, _) in self.spliced.iter_mut().skip(spliced) {
            *at += size_bytes;
        }
        Ok(())
    }

    /// Overwrites bytes that were written at a place before any records.
    pub(crate) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_tagged_field_counts_large_bytes_too() {
        for large in [SPLICED_FROM - 1, SPLICED_FROM, 3 * SPLICED_FROM] {
            let mut writer = Writer::new();
            writer.set_flexible(true);
            let bytes = Bytes::from(vec![7; large]);
            writer.put(b"before");
            let mut field = |writer: &mut Writer| {
                writer.length(bytes.len())?;
                writer.splice(&bytes);
                writer.put(b"end");
                writer.splice(&bytes);
                Ok::<_, Fault>(())
            };
            writer.tag(5, &mut field).unwrap();
            writer.put(b"after");
            let mut expected = Writer::new();
            expected.set_flexible(true);
            field(&mut expected).unwrap();
            let content = expected.into_chunks().concat();
            let mut size = Writer::new();
            size.unsigned_varint(u32::try_from(content.len()).unwrap());
            let size = size.into_chunks().concat();
            let all = writer.into_chunks().concat();
            assert_eq!(
                all,
                [b"before", &[5][..], &size, &content, b"after"].concat(),
                "{large}"
            );
        }
    }
}
