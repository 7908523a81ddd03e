//! Bytes in one direction of a connection, as the two operating systems buffer them: a buffer of limited size, with bytes in transit and
//! bytes arrived.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};

/// How a stream ends for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The other side has closed the connection.
    Closed,
    /// The connection is broken.
    Reset,
}

#[derive(Debug)]
pub(super) struct Flow {
    capacity: usize,
    underway: usize,
    arrived: VecDeque<u8>,
    /// Bytes that are written later do not arrive before this time.
    pub last_ms: i64,
    /// The end of the stream, after the bytes that have arrived.
    pub end: Option<End>,
    /// The reader has closed its end.
    pub unread: bool,
    /// The writer waits for room.
    is_full: bool,
}

impl Flow {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            underway: 0,
            arrived: VecDeque::new(),
            last_ms: 0,
            end: None,
            unread: false,
            is_full: false,
        }
    }

    pub fn room(&self) -> usize {
        self.capacity - self.underway - self.arrived.len()
    }

    /// Takes as many of the `offered` bytes as fit. Returns their number.
    pub fn take(&mut self, offered: usize) -> Result<usize> {
        let count = offered.min(self.room());
        self.is_full = count < offered;
        self.underway += count;
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// `count` bytes are lost in transit.
    pub fn lose(&mut self, count: usize) {
        self.underway -= count;
    }

    pub fn arrive(&mut self, bytes: &[u8]) {
        self.underway -= bytes.len();
        self.arrived.extend(bytes);
    }

    /// Reads as many bytes as have arrived and fit. If fewer than fit are returned, no more have arrived.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        if self.arrived.is_empty() {
            return match self.end {
                None => Err(ErrorKind::WouldBlock.into()),
                Some(End::Closed) => Ok(0),
                Some(End::Reset) => Err(Error::from(ErrorKind::ConnectionReset)),
            };
        }
        let count = into.len().min(self.arrived.len());
        for (to, from) in into.iter_mut().zip(self.arrived.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    /// Whether the buffer has room again for a waiting writer. True only once.
    pub fn is_free_again(&mut self) -> bool {
        self.is_full && self.room() > 0 && std::mem::take(&mut self.is_full)
    }

    /// Closes the reader's end. Returns true if bytes were unread.
    pub fn forsake(&mut self) -> bool {
        self.unread = true;
        let left = !self.arrived.is_empty();
        self.arrived.clear();
        left
    }
}
