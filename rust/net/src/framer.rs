//! Cuts the bytes of a socket into responses.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | size of what follows, big endian |
//! | 4 | size | header and body |

use bytes::{Bytes, BytesMut};

/// Bytes that are read at once while the size of the response is not known.
const CHUNK: usize = 16 * 1024;
/// Most room that is reserved for an announced size; beyond it a response's buffer only doubles as bytes arrive.
const TRUSTED: usize = 1024 * 1024;
const SIZE: usize = 4;

/// The size of a response is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadSize(pub(crate) i32);

/// The bytes of one connection that are not a complete response yet.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    buffer: BytesMut,
    /// Number of received bytes at the start of the buffer; the rest is room.
    received: usize,
}

impl Framer {
    /// Room for bytes from the socket; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let wanted = self.announced().map_or(CHUNK, |size| {
            let missing = size.saturating_add(SIZE).saturating_sub(self.received);
            missing.clamp(1, self.received.max(TRUSTED))
        });
        if self.buffer.len() < self.received + wanted {
            self.buffer.resize(self.received + wanted, 0);
        }
        &mut self.buffer[self.received..]
    }

    /// `count` bytes of the room were filled.
    pub(crate) fn received(&mut self, count: usize) {
        self.received += count;
    }

    fn announced(&self) -> Option<usize> {
        let size = self.buffer.get(..self.received)?.first_chunk()?;
        usize::try_from(i32::from_be_bytes(*size)).ok()
    }

    /// The next response, if it is complete.
    ///
    /// # Errors
    /// Its size is beyond `limit`, or too small for any response.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Bytes>, BadSize> {
        let Some(size) = self.buffer.get(..self.received).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let size = i32::from_be_bytes(*size);
        let length = match usize::try_from(size) {
            Ok(length) if length >= SIZE && length <= limit => length,
            _ => return Err(BadSize(size)),
        };
        if self.received < SIZE + length {
            return Ok(None);
        }
        let frame = self.buffer.split_to(SIZE + length).freeze().slice(SIZE..);
        self.received -= SIZE + length;
        if self.received == 0 {
            // The rest of the room shares its memory with the response that was taken out.
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(framer: &mut Framer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = framer.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            framer.received(count);
            bytes = &bytes[count..];
        }
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(payload);
        frame
    }

    #[test]
    fn answers_split_at_any_byte_come_out_whole() {
        let large: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let bytes = [frame(b"first"), frame(&large), frame(b"last")].concat();
        for split in (0..40).chain([16_384, 1_048_576, 2_999_999, bytes.len() - 1, bytes.len()]) {
            let mut framer = Framer::default();
            let mut frames = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                feed(&mut framer, part);
                while let Some(frame) = framer.next(4_000_000).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [&b"first"[..], &large, b"last"]);
        }
    }

    #[test]
    fn an_announced_size_alone_reserves_little() {
        let mut framer = Framer::default();
        feed(&mut framer, &i32::MAX.to_be_bytes());
        assert!(framer.next(usize::MAX).unwrap().is_none());
        assert!(framer.room().len() <= TRUSTED);
    }

    #[test]
    fn a_size_outside_the_limit_is_refused() {
        for size in [0, 3, -1, i32::MIN, 101] {
            let mut framer = Framer::default();
            feed(&mut framer, &size.to_be_bytes());
            assert_eq!(framer.next(100), Err(BadSize(size)));
            assert!(!framer.room().is_empty());
        }
    }
}
