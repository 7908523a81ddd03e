//! Writes events as blocks.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::body::{ApiVersion, Bodies};
use crate::capture::{Captured, without_size};
use crate::event::{Event, State, put};
use crate::file::Appended;
use crate::format::{Head, LARGEST_BLOCK, block};
use crate::recorder::Happened;

/// From so many raw bytes on a block is written.
const BLOCK: usize = 512 * 1024;
/// Level of zstd.
const LEVEL: i32 = 3;

pub(crate) struct Writer {
    file: Appended,
    bodies: Bodies,
    /// The block that is collected; empty: none is.
    raw: Vec<u8>,
    last_us: i64,
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
                of,
                size,
                frame,
                outcome,
                fault,
            } => {
                let (state, frame) = self.kept(of, frame);
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

    fn request(&mut self, at_us: i64, (connection, number, size): (u64, u64, u64), frame: Captured) -> io::Result<()> {
        let (state, frame) = self.kept(None, frame);
        let event = Event::Request {
            connection,
            number,
            size,
            state,
            frame: &frame,
        };
        self.put(at_us, &event)
    }

    /// What is written of a frame; one that does not fit into a block is not.
    fn kept(&self, of: Option<ApiVersion>, frame: Captured) -> (State, Bytes) {
        let (state, frame) = match (frame, of) {
            (Captured::Request(frame), _) => self.bodies.request(&frame),
            (Captured::Response(chunks, replaced), Some(of)) => {
                self.bodies.response(of, &without_size(&chunks), &replaced)
            }
            (Captured::Ready(state, frame), _) => (state, frame),
            (Captured::Nothing | Captured::Response(..), _) => (State::Nothing, Bytes::new()),
        };
        match frame.len() > LARGEST_BLOCK - BLOCK - 1024 {
            true => (State::Nothing, Bytes::new()),
            false => (state, frame),
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
