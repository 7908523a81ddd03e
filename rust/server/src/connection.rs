//! One connection, without I/O and without a clock: bytes in, frames out; responses in, bytes out. Kafka: `KafkaChannel`, `NetworkReceive`,
//! `NetworkSend`.
//!
//! ```text
//! frame    size i32 (big-endian) | payload of `size` bytes
//! ```
//!
//! One request is in progress at a time, until its response is written; later bytes stay unread meanwhile (Kafka: `Selector#mute`). So
//! responses leave in the order of the requests, and a client that sends without reading is blocked by its own socket and has only one
//! response waiting.

use fletchlog_records::planted;
use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

/// Least number of bytes to make room for in a read.
const CHUNK: usize = 16 * 1024;
/// A frame's buffer grows by its current length, but at most by this.
const LARGEST_STEP: usize = 1024 * 1024;
/// Most bytes that are written at once.
const LARGEST_WRITE: usize = 256 * 1024;
/// A frame counts as large once this many bytes of it were received.
const LARGE: usize = 64 * 1024;
/// Bytes of a frame's size.
const SIZE: usize = 4;

/// Why a connection is closed for what its client sent. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The size is not that of a request.
    #[error("it announced a request of {size} bytes, and the limit (socket.request.max.bytes) is {limit}{}", hint(*size))]
    Size {
        /// The announced size.
        size: i32,
        /// The largest allowed size.
        limit: i32,
    },
}

/// A hint if the four bytes of a size are the start of another protocol.
fn hint(size: i32) -> &'static str {
    match size.to_be_bytes() {
        [0x16, 3, _, _] => "; this looks like a TLS ClientHello on a plaintext listener",
        [b'G', b'E', b'T', b' '] | [b'P', b'O', b'S', b'T'] | [b'H', b'E', b'A', b'D'] | [b'P', b'U', b'T', b' '] => {
            "; this looks like an HTTP request"
        }
        _ => "",
    }
}

/// The directions of a connection that its client has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerEnd {
    /// Nothing.
    #[default]
    Open,
    /// It sends nothing more. It may still read, or have closed its socket: the two cannot be told apart.
    Half,
    /// Both directions: the connection is reset, and no response can be delivered.
    Both,
}

/// The state of one connection: the bytes received, and those to be written.
#[derive(Debug, Default)]
pub struct Connection {
    input: BytesMut,
    /// Bytes of `input` that were received; the rest is room for more.
    received: usize,
    output: VecDeque<Bytes>,
    /// Bytes of the first chunk of `output` that were written.
    written: usize,
    /// A request is in progress.
    busy: bool,
    /// The request in progress waits for data or for other members.
    waits: bool,
    peer_end: PeerEnd,
}

impl Connection {
    /// Room for bytes of the socket. Report the bytes put there with [`Connection::received`].
    pub fn room(&mut self) -> &mut [u8] {
        let wanted = self.announced().map_or(CHUNK, |size| {
            let missing = (SIZE + size).saturating_sub(self.received);
            missing.clamp(CHUNK, self.received.clamp(CHUNK, LARGEST_STEP))
        });
        self.input.resize(self.received + wanted, 0);
        &mut self.input[self.received..]
    }

    /// `count` bytes of the room were filled.
    pub fn received(&mut self, count: usize) {
        self.received += count;
    }

    /// Frees the room that was not filled: an idle connection has no buffer, and one that receives a byte at a time has little more than
    /// its bytes.
    pub fn trim(&mut self) {
        self.input.truncate(self.received);
        if self.received < CHUNK / 8 && self.input.capacity() > 2 * self.received {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// The size of the current frame.
    fn announced(&self) -> Option<usize> {
        let size = self.input[..self.received].first_chunk()?;
        usize::try_from(i32::from_be_bytes(*size)).ok()
    }

    /// The size of the current frame if it counts as large and is not complete.
    pub fn large_frame(&self) -> Option<usize> {
        let size = self
            .announced()
            .filter(|_| !self.is_muted() && self.received >= LARGE)?;
        (SIZE + size > self.received).then_some(size)
    }

    /// Part of a request has arrived.
    pub fn is_within_frame(&self) -> bool {
        !self.is_muted() && self.received > 0
    }

    /// A request is in progress.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Marks the request in progress as waiting, and frees the buffer that it arrived in.
    pub fn wait(&mut self) {
        self.waits = self.busy;
        self.trim();
    }

    /// The request in progress waits, see [`Connection::wait`].
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Notes what the client has ended. An end is never undone.
    pub fn end(&mut self, end: PeerEnd) {
        self.peer_end = self.peer_end.max(end);
    }

    /// A request is in progress, and its client sends nothing more. It may be gone: a read would show that, but the connection is muted.
    pub fn is_half_closed(&self) -> bool {
        self.busy && self.peer_end > PeerEnd::Open
    }

    /// The connection is to be closed: its request waits, and the client cannot receive the response. A request that does not wait is
    /// carried out, and so are those behind it: they may need no response.
    pub fn is_abandoned(&self) -> bool {
        self.waits && self.peer_end == PeerEnd::Both
    }

    /// Nothing is to be read: a request is in progress, or its response is not written yet. Kafka: `KafkaChannel#isMuted`.
    pub fn is_muted(&self) -> bool {
        (self.busy && !planted!("listener-takes-a-request-before-the-answer-to-the-last")) || self.has_output()
    }

    /// The next request, if it is complete and the response to the one before is written. It is then in progress.
    ///
    /// # Errors
    /// Its size is over `limit`, zero or negative: the connection is to be closed.
    pub fn next_frame(&mut self, limit: i32) -> Result<Option<Bytes>, BadFrame> {
        if self.is_muted() {
            return Ok(None);
        }
        self.input.truncate(self.received);
        let Some(size) = self.input.first_chunk().map(|size| i32::from_be_bytes(*size)) else {
            return Ok(None);
        };
        let length = match usize::try_from(size) {
            Ok(length) if length > 0 && size <= limit => length,
            _ => return Err(BadFrame::Size { size, limit }),
        };
        if self.received < SIZE + length {
            return Ok(None);
        }
        let frame = self.input.split_to(SIZE + length).freeze().slice(SIZE..);
        self.received = if planted!("listener-drops-what-came-behind-a-request") {
            0
        } else {
            self.input.len()
        };
        self.busy = true;
        Ok(Some(frame))
    }

    /// Ends the request in progress with these bytes, with the size in front; without bytes it has no response.
    pub fn answer(&mut self, chunks: impl IntoIterator<Item = Bytes>) {
        self.output.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
        (self.busy, self.waits) = (false, false);
    }

    /// Adds a part of the response; [`Connection::answer`] follows with the last one.
    pub fn part(&mut self, chunk: Bytes) {
        self.output.push_back(chunk);
    }

    /// Output is still to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Bytes in memory for the output: a chunk is freed when all of it was written.
    pub fn unsent(&self) -> usize {
        self.output.iter().map(Bytes::len).sum()
    }

    /// The next bytes to write.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let (mut left, mut from) = (LARGEST_WRITE, self.written);
        for chunk in self.output.iter().take(64) {
            let rest = &chunk[std::mem::take(&mut from)..];
            let part = &rest[..rest.len().min(left)];
            slices.push(IoSlice::new(part));
            left -= part.len();
            if left == 0 {
                return;
            }
        }
    }

    /// `count` bytes of the output were written. Returns the number of bytes freed.
    pub fn written(&mut self, count: usize) -> usize {
        let mut gone = 0;
        self.written += if planted!("listener-writes-a-part-of-an-answer-twice") && count < 40 {
            0
        } else {
            count
        };
        while let Some(first) = self.output.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            gone += first.len();
            self.output.pop_front();
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(connection: &mut Connection, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK) {
            let room = connection.room();
            room[..chunk.len()].copy_from_slice(chunk);
            connection.received(chunk.len());
        }
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_request_that_waits_holds_no_buffer_and_loses_nothing_behind_it() {
        let mut connection = Connection::default();
        feed(&mut connection, &[frame(b"waits"), frame(b"next")].concat());
        connection.next_frame(100).unwrap().unwrap();
        assert!(connection.input.capacity() >= CHUNK / 2);
        connection.wait();
        assert!(connection.input.capacity() < 100, "{}", connection.input.capacity());
        connection.answer([]);
        assert_eq!(connection.next_frame(100).unwrap().as_deref(), Some(&b"next"[..]));
    }

    #[test]
    fn requests_split_at_any_byte_come_out_whole_and_one_at_a_time() {
        let bytes: Vec<u8> = [frame(b"first"), frame(&[7; 70_000]), frame(b"x")].concat();
        for split in 0..200 {
            let mut connection = Connection::default();
            feed(&mut connection, &bytes[..split]);
            let mut frames = Vec::new();
            let mut take = |connection: &mut Connection| {
                while let Some(frame) = connection.next_frame(100_000).unwrap() {
                    assert!(connection.next_frame(100_000).unwrap().is_none(), "one is in work");
                    connection.answer([Bytes::from_static(b"a")]);
                    assert!(
                        connection.next_frame(100_000).unwrap().is_none(),
                        "its answer is not written"
                    );
                    connection.written(1);
                    frames.push(frame);
                }
            };
            take(&mut connection);
            feed(&mut connection, &bytes[split..]);
            take(&mut connection);
            assert_eq!(frames, [&b"first"[..], &[7; 70_000], b"x"]);
            assert!(!connection.is_within_frame());
        }
    }

    #[test]
    fn an_announced_size_reserves_nothing_by_itself() {
        let mut connection = Connection::default();
        feed(&mut connection, &100_000_000_i32.to_be_bytes());
        assert!(connection.next_frame(i32::MAX).unwrap().is_none());
        assert!(connection.room().len() <= CHUNK);
    }

    #[test]
    fn a_size_outside_the_limit_is_refused() {
        for size in [0, -1, i32::MIN, 101] {
            let mut connection = Connection::default();
            feed(&mut connection, &size.to_be_bytes());
            assert_eq!(connection.next_frame(100), Err(BadFrame::Size { size, limit: 100 }));
        }
        let tls = BadFrame::Size {
            size: i32::from_be_bytes([0x16, 3, 1, 2]),
            limit: 100,
        };
        assert!(tls.to_string().contains("TLS ClientHello"), "{tls}");
    }

    #[test]
    fn a_wait_for_an_answer_that_nobody_reads_is_forsaken() {
        use PeerEnd::{Both, Half};
        for (ends, half_closed, forsaken) in [
            (&[][..], false, false),
            (&[Half], true, false),
            (&[Half, Both], true, true),
            (&[Both, Half], true, true),
        ] {
            let mut connection = Connection::default();
            feed(&mut connection, &[frame(b"first"), frame(b"second")].concat());
            ends.iter().for_each(|end| connection.end(*end));
            let state = |c: &Connection| (c.is_half_closed(), c.is_abandoned());
            assert_eq!(state(&connection), (false, false), "it is read");
            for _ in 0..2 {
                assert!(connection.next_frame(100).unwrap().is_some());
                assert_eq!(state(&connection), (half_closed, false), "it is carried out");
                connection.wait();
                assert_eq!(state(&connection), (half_closed, forsaken));
                connection.answer([]);
            }
            assert!(connection.next_frame(100).unwrap().is_none());
        }
    }

    #[test]
    fn output_is_written_in_parts_of_any_size() {
        for step in 1..7 {
            let mut connection = Connection::default();
            connection.answer([Bytes::from_static(b"abc"), Bytes::new(), Bytes::from_static(b"defg")]);
            let mut written: Vec<u8> = Vec::new();
            while connection.has_output() {
                let mut slices = Vec::new();
                connection.output(&mut slices);
                let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                let count = step.min(all.len());
                written.extend(&all[..count]);
                let before = connection.unsent();
                assert_eq!(connection.written(count), before - connection.unsent());
            }
            assert_eq!((written.as_slice(), connection.unsent()), (&b"abcdefg"[..], 0));
        }
    }
}
