//! Bytes in one direction of a connection, as the two systems keep them: a buffer of some size, its bytes on their way or arrived.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};

/// How a stream ends for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The other side has closed it.
    Closed,
    /// It is broken.
    Reset,
}

#[derive(Debug)]
pub(super) struct Flow {
    capacity: usize,
    underway: usize,
    arrived: VecDeque<u8>,
    /// What is written later does not arrive before.
    pub last_ms: i64,
    /// Comes after what has arrived.
    pub end: Option<End>,
    /// Nobody reads any more.
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

    /// How many of so many bytes are taken.
    pub fn take(&mut self, offered: usize) -> Result<usize> {
        let count = offered.min(self.room());
        self.is_full = count < offered;
        self.underway += count;
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// So many bytes are lost on their way.
    pub fn lose(&mut self, count: usize) {
        self.underway -= count;
    }

    pub fn arrive(&mut self, bytes: &[u8]) {
        self.underway -= bytes.len();
        self.arrived.extend(bytes);
    }

    /// As many bytes as have arrived and fit: a caller that gets fewer than fit knows that there are no more.
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

    /// There is room again, for which the writer waits.
    pub fn is_free_again(&mut self) -> bool {
        self.is_full && self.room() > 0 && std::mem::take(&mut self.is_full)
    }

    /// The reader is gone. True if it left bytes unread.
    pub fn forsake(&mut self) -> bool {
        self.unread = true;
        let left = !self.arrived.is_empty();
        self.arrived.clear();
        left
    }
}
