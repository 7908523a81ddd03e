//! A connection of the listener. Whatever bytes arrive in whatever pieces, and whenever responses are made and written: requests come out
//! whole and one at a time, responses leave in their order, and no memory is reserved for bytes that have not arrived.

use std::io::IoSlice;

use bytes::Bytes;
use fletchlog_server::connection::Connection;

use super::Input;

/// Largest request.
const LIMIT: i32 = 200_000;
/// Most room for bytes that have not arrived, in addition to the number that has.
const ROOM: usize = 16 * 1024;

/// A connection and its expected state.
#[derive(Default)]
struct Model {
    connection: Connection,
    /// All bytes received, and how many of them were taken as requests.
    sent: Vec<u8>,
    taken: usize,
    busy: bool,
    /// The bytes to be written.
    output: Vec<u8>,
    answers: u8,
}

/// `[steps u8] [step u8; steps] [bytes of the client]`: a step receives (0), takes a request (1), answers (2) or writes (3).
pub(super) fn connection(data: &[u8]) {
    let mut input = Input(data);
    let steps: Vec<u8> = (0..input.byte()).map(|_| input.byte()).collect();
    let mut stream = input.0;
    let mut model = Model::default();
    for step in steps {
        let size = usize::from(step >> 2);
        match step % 4 {
            // The largest step receives more than a buffer: the client's bytes repeated.
            0 if size == 63 => model.receive(&stream.repeat(20_000 / stream.len().max(1))),
            0 => {
                let (now, later) = stream.split_at(size.min(stream.len()));
                stream = later;
                model.receive(now);
            }
            1 => {
                if !model.take() {
                    return;
                }
            }
            2 => model.answer(size),
            _ => model.write(size * size),
        }
        model.check();
    }
}

impl Model {
    fn is_muted(&self) -> bool {
        self.busy || !self.output.is_empty()
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_muted() {
            let room = self.connection.room();
            assert!(
                room.len() <= ROOM + self.sent.len() - self.taken,
                "room for {} bytes",
                room.len()
            );
            let count = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            room[..count].copy_from_slice(now);
            self.connection.received(count);
            self.sent.extend(now);
            bytes = later;
        }
        self.connection.trim();
    }

    /// Returns false if the connection is closed.
    fn take(&mut self) -> bool {
        let waiting = &self.sent[self.taken..];
        let size = waiting.first_chunk().map(|size| i32::from_be_bytes(*size));
        let frame = size.and_then(|size| waiting.get(4..4 + usize::try_from(size).ok()?));
        match self.connection.next_frame(LIMIT) {
            Err(_) => {
                assert!(
                    !self.is_muted() && size.is_some_and(|size| size <= 0 || size > LIMIT),
                    "{size:?}"
                );
                return false;
            }
            Ok(None) => assert!(self.is_muted() || frame.is_none(), "a request of {size:?} bytes stays"),
            Ok(Some(taken)) => {
                assert!(
                    !self.is_muted(),
                    "a request before the answer to the last one is written"
                );
                assert_eq!(frame, Some(&taken[..]));
                self.taken += 4 + taken.len();
                self.busy = true;
            }
        }
        true
    }

    fn answer(&mut self, size: usize) {
        if !self.busy {
            return;
        }
        self.answers = self.answers.wrapping_add(1);
        let answer = Bytes::from(vec![self.answers; size]);
        self.output.extend(&answer);
        let at = size / 2;
        self.connection.answer([answer.slice(..at), answer.slice(at..)]);
        self.busy = false;
    }

    fn write(&mut self, most: usize) {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        self.connection.output(&mut slices);
        let bytes: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .take(most)
            .collect();
        assert!(self.output.starts_with(&bytes), "answers leave in their order");
        self.output.drain(..bytes.len());
        self.connection.written(bytes.len());
    }

    fn check(&self) {
        assert_eq!(self.connection.is_busy(), self.busy);
        assert_eq!(self.connection.has_output(), !self.output.is_empty());
        let within = !self.is_muted() && self.sent.len() > self.taken;
        assert_eq!(self.connection.is_within_frame(), within);
        assert!(self.connection.large_frame().is_none() || within);
    }
}
