//! The bytes of one direction of a connection, as frames.
//!
//! ```text
//! frame      size i32 (big-endian) | payload of `size` bytes
//! request    api key i16 | api version i16 | correlation id i32 | ..
//! response   correlation id i32 | ..
//! ```

use bytes::{Bytes, BytesMut};

/// Bytes of a frame's size.
pub(crate) const SIZE: usize = 4;

/// Least and most room for one read.
const CHUNK: usize = 16 * 1024;
const LARGEST_CHUNK: usize = 256 * 1024;

/// What comes next in a direction.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The size and the first bytes of a frame, as many as were asked for. [`Splitter::pass`] or [`Splitter::collect`] is to be called.
    Head(Bytes),
    /// The next bytes of a frame that passes, its size included.
    Bytes(Bytes),
    /// A frame that was collected, its size included.
    Frame(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// A head was returned.
    Asked,
    /// This many bytes pass.
    Pass(usize),
    /// This many bytes, of which some may have arrived, make a frame.
    Collect(usize),
}

/// Splits the bytes of one direction.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// Bytes of a head, the size included.
    head: usize,
    /// Bytes of the head that comes next.
    asked: usize,
    buffer: BytesMut,
    /// Bytes of `buffer` that were received.
    received: usize,
    state: State,
    /// Room for the next read: it grows while reads fill it.
    room: usize,
}

impl Splitter {
    /// Heads have this many bytes behind the size.
    pub(crate) fn new(head: usize) -> Self {
        Self {
            head: SIZE + head,
            asked: SIZE + head,
            buffer: BytesMut::new(),
            received: 0,
            state: State::Head,
            room: CHUNK,
        }
    }

    /// Room for bytes of the socket.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.buffer.resize(self.received + self.room, 0);
        &mut self.buffer[self.received..]
    }

    /// `count` bytes of the room were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.room = match count {
            _ if count == self.room => (2 * self.room).min(LARGEST_CHUNK),
            _ if count < self.room / 4 => (self.room / 2).max(CHUNK),
            _ => self.room,
        };
        self.received += count;
    }

    /// Frees what was not filled: an idle connection has no buffer.
    pub(crate) fn trim(&mut self) {
        self.buffer.truncate(self.received);
        if self.received == 0 {
            self.buffer = BytesMut::new();
        }
    }

    /// A frame is being collected: it must be read to its end, however much waits to be written.
    pub(crate) fn collects(&self) -> bool {
        matches!(self.state, State::Collect(_))
    }

    /// A part of a frame was returned, or its head.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.state != State::Head
    }

    /// The next piece, if it has arrived.
    ///
    /// # Errors
    /// The size of a frame is negative or less than its head.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, String> {
        match self.state {
            State::Head if self.received >= self.asked => {
                self.size()?;
                self.state = State::Asked;
                Ok(Some(Piece::Head(Bytes::copy_from_slice(&self.buffer[..self.asked]))))
            }
            State::Head if self.received >= SIZE => self.size().map(|_| None),
            State::Pass(left) if self.received > 0 => {
                let piece = self.split(left.min(self.received));
                self.state = match left - piece.len() {
                    0 => State::Head,
                    left => State::Pass(left),
                };
                Ok(Some(Piece::Bytes(piece)))
            }
            State::Collect(size) if self.received >= size => {
                self.state = State::Head;
                Ok(Some(Piece::Frame(self.split(size))))
            }
            _ => Ok(None),
        }
    }

    /// A longer head of the same frame is needed: twice as many bytes, at most all of the frame. False: the head was the whole frame.
    pub(crate) fn ask_for_more(&mut self) -> bool {
        let all = self.announced();
        let has_more = self.asked < all;
        self.asked = (2 * self.asked).min(all);
        self.state = State::Head;
        has_more
    }

    /// The bytes of the frame whose head was returned pass.
    pub(crate) fn pass(&mut self) {
        self.asked = self.head;
        self.state = State::Pass(self.announced());
    }

    /// The frame whose head was returned is to be returned as a whole.
    pub(crate) fn collect(&mut self) {
        self.asked = self.head;
        self.state = State::Collect(self.announced());
    }

    fn split(&mut self, count: usize) -> Bytes {
        self.buffer.truncate(self.received);
        self.received -= count;
        self.buffer.split_to(count).freeze()
    }

    /// Bytes of the next frame, its size included.
    pub(crate) fn announced(&self) -> usize {
        let size = self.buffer.first_chunk().map_or(0, |size| i32::from_be_bytes(*size));
        SIZE + usize::try_from(size).unwrap_or(0)
    }

    fn size(&self) -> Result<usize, String> {
        let size = self.announced();
        match size >= self.head {
            true => Ok(size),
            false => Err(format!("{:?} is no size of a Kafka frame", &self.buffer[..SIZE])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = i32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(payload);
        frame
    }

    /// Feeds bytes in steps; frames whose payload begins with `c` are collected.
    fn split(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<Bytes>) {
        let (mut splitter, mut passed, mut collected) = (Splitter::new(2), Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            splitter.room()[..part.len()].copy_from_slice(part);
            splitter.filled(part.len());
            while let Some(piece) = splitter.next().unwrap() {
                match piece {
                    Piece::Head(head) if head[SIZE] == b'm' && splitter.ask_for_more() => assert!(head.len() < 13),
                    Piece::Head(head) if head[SIZE] == b'c' => splitter.collect(),
                    Piece::Head(_) => splitter.pass(),
                    Piece::Bytes(bytes) => passed.extend(bytes),
                    Piece::Frame(frame) => collected.push(frame),
                }
            }
            splitter.trim();
        }
        assert_eq!(splitter.received, 0);
        (passed, collected)
    }

    #[test]
    fn frames_pass_or_are_collected_however_they_arrive() {
        let parts = [
            frame(b"p1"),
            frame(b"c-all-of-it"),
            frame(b"pass this"),
            frame(b"c2"),
            frame(b"m-as-well"),
        ];
        let bytes = parts.concat();
        for step in 1..bytes.len() + 1 {
            let (passed, collected) = split(&bytes, step);
            assert_eq!(passed, [&parts[0][..], &parts[2], &parts[4]].concat(), "step {step}");
            assert_eq!(collected, [&parts[1][..], &parts[3]], "step {step}");
        }
    }

    #[test]
    fn a_size_that_none_has_is_an_error() {
        for bytes in [&[0xff; 4][..], &[0, 0, 0, 1], b"\0\0\0\x01xx"] {
            let mut splitter = Splitter::new(2);
            splitter.room()[..bytes.len()].copy_from_slice(bytes);
            splitter.filled(bytes.len());
            assert!(splitter.next().unwrap_err().contains("no size"), "{bytes:?}");
        }
    }

    #[test]
    fn the_room_grows_with_what_arrives_and_an_idle_connection_has_none() {
        let mut splitter = Splitter::new(2);
        for expected in [CHUNK, 2 * CHUNK, 4 * CHUNK] {
            assert_eq!(splitter.room().len(), expected);
            splitter.filled(expected);
        }
        splitter.received = 0;
        splitter.trim();
        assert_eq!(splitter.buffer.capacity(), 0);
    }
}
