//! Writes events as blocks.

use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;

use crate::body::{ApiVersion, Bodies};
use crate::event::{Event, State, put};
use crate::file::Appended;
use crate::format::{Head, LARGEST_BLOCK, block};
use crate::recorder::Happened;

/// From so many raw bytes on a block is written.
const BLOCK: usize = 512 * 1024;
/// Level of zstd.
const LEVEL: i32 = 3;
/// Bytes of the size in front of a response.
const SIZE: usize = 4;
/// Most requests without a response whose API is remembered.
const MOST_PENDING: usize = 1_000_000;

pub(crate) struct Writer {
    file: Appended,
    bodies: Bodies,
    /// The block that is collected; empty: none is.
    raw: Vec<u8>,
    last_us: i64,
    /// Requests without a response yet.
    pending: FxHashMap<u64, ApiVersion>,
}

impl Writer {
    pub(crate) fn create(path: &Path, head: &Head, bodies: Bodies) -> io::Result<Self> {
        let mut file = Appended::create(path)?;
        file.append(&head.encode())?;
        Ok(Self {
            file,
            bodies,
            raw: Vec::new(),
            last_us: 0,
            pending: FxHashMap::default(),
        })
    }

    /// Whether something has to be written without a further event.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.raw.is_empty()
    }

    pub(crate) fn add(&mut self, at_us: i64, happened: Happened) -> io::Result<()> {
        match happened {
            Happened::Opened {
                connection,
                node,
                peer,
                listener,
            } => self.put(
                at_us,
                &Event::Opened {
                    connection,
                    node,
                    peer: &peer,
                    listener: &listener,
                },
            ),
            Happened::Principal { connection, principal } => self.put(
                at_us,
                &Event::Principal {
                    connection,
                    principal: &principal,
                },
            ),
            Happened::Closed { connection, reason } => self.put(
                at_us,
                &Event::Closed {
                    connection,
                    reason: &reason,
                },
            ),
            Happened::Request {
                connection,
                number,
                frame,
                size,
            } => self.request(at_us, (connection, number, size as u64), frame),
            Happened::Response {
                number,
                size,
                chunks,
                outcome,
                fault,
            } => {
                let (state, frame) = self.response(number, &chunks);
                let event = Event::Response {
                    number,
                    size: size.map(|size| size as u64),
                    state,
                    outcome,
                    fault: fault.as_deref().unwrap_or(""),
                    frame: &frame,
                };
                self.put(at_us, &event)
            }
        }
    }

    fn request(
        &mut self,
        at_us: i64,
        (connection, number, size): (u64, u64, u64),
        frame: Option<Bytes>,
    ) -> io::Result<()> {
        let (state, frame, of) = match frame {
            Some(frame) => self.bodies.request(&frame),
            None => (State::Nothing, Bytes::new(), None),
        };
        let (state, frame) = fitting(state, frame);
        if let Some(of) = of.filter(|_| self.pending.len() < MOST_PENDING) {
            self.pending.insert(number, of);
        }
        let event = Event::Request {
            connection,
            number,
            size,
            state,
            frame: &frame,
        };
        self.put(at_us, &event)
    }

    /// What is kept of the response to a request.
    fn response(&mut self, number: u64, chunks: &[Bytes]) -> (State, Bytes) {
        match self.pending.remove(&number) {
            Some(of) if !chunks.is_empty() => {
                let (state, frame) = self.bodies.response(of, &without_size(chunks));
                fitting(state, frame)
            }
            _ => (State::Nothing, Bytes::new()),
        }
    }

    pub(crate) fn dropped(&mut self, at_us: i64, (requests, bodies): (u64, u64)) -> io::Result<()> {
        match requests + bodies {
            0 => Ok(()),
            _ => self.put(at_us, &Event::Dropped { requests, bodies }),
        }
    }

    fn put(&mut self, at_us: i64, event: &Event<'_>) -> io::Result<()> {
        if self.raw.is_empty() {
            self.raw.extend(at_us.to_be_bytes());
            self.last_us = at_us;
        }
        put(&mut self.raw, at_us - self.last_us, event);
        self.last_us = at_us;
        match self.raw.len() >= BLOCK {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the block that is collected.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let bytes = block(&self.raw, LEVEL)?;
        self.raw.clear();
        self.file.append(&bytes)
    }

    /// Ends the session.
    pub(crate) fn end(&mut self, at_us: i64) -> io::Result<()> {
        self.put(at_us, &Event::End)?;
        self.flush()
    }
}

/// A frame that has room in a block.
fn fitting(state: State, frame: Bytes) -> (State, Bytes) {
    match frame.len() > LARGEST_BLOCK - BLOCK - 1024 {
        true => (State::Nothing, Bytes::new()),
        false => (state, frame),
    }
}

/// The bytes of a response in one piece, without the size.
fn without_size(chunks: &[Bytes]) -> Bytes {
    match chunks {
        [whole] => whole.slice(SIZE.min(whole.len())..),
        _ => {
            let mut all = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
            chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
            let all = all.freeze();
            all.slice(SIZE.min(all.len())..)
        }
    }
}
