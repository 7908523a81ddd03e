//! One socket of a connection, with or without TLS.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

use bytes::Bytes;
use fletchlog_tls::Session;
use mio::net::TcpStream;

/// Most pieces for one write.
const SLICES: usize = 64;

/// A socket, and the bytes that wait to be written to it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) socket: TcpStream,
    tls: Option<Box<Session>>,
    out: VecDeque<Bytes>,
    /// Bytes of the first piece of `out` that were written.
    written: usize,
    queued: usize,
    /// Bytes may have arrived.
    pub(crate) can_read: bool,
    /// The other side sends nothing more.
    pub(crate) has_ended: bool,
    /// Nothing more is written.
    is_shut: bool,
}

impl End {
    /// A connected socket, or one that is being connected.
    pub(crate) fn new(socket: TcpStream, tls: Option<Session>) -> Self {
        Self {
            socket,
            tls: tls.map(Box::new),
            out: VecDeque::new(),
            written: 0,
            queued: 0,
            can_read: true,
            has_ended: false,
            is_shut: false,
        }
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Adds bytes to be written.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.out.push_back(bytes);
        }
    }

    /// Reads what has arrived; `None`: nothing more now. 0: the end.
    ///
    /// # Errors
    /// The socket's, or a failure of TLS.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match &mut self.tls {
                Some(tls) => tls.read(&mut self.socket, room),
                None => self.socket.read(room),
            };
            match read {
                Ok(0) => {
                    (self.has_ended, self.can_read) = (true, false);
                    return Ok(Some(0));
                }
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.can_read = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes as much as the socket accepts.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut slices = Vec::with_capacity(SLICES.min(self.out.len()));
            for (index, piece) in self.out.iter().take(SLICES).enumerate() {
                let from = if index == 0 { self.written } else { 0 };
                slices.push(IoSlice::new(&piece[from..]));
            }
            let written = match &mut self.tls {
                Some(tls) => tls.write(&mut self.socket, &slices),
                None => self.socket.write_vectored(&slices),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.wrote(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match &mut self.tls {
            Some(tls) => match tls.flush(&mut self.socket) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn wrote(&mut self, mut count: usize) {
        self.queued -= count;
        while let Some(first) = self.out.front() {
            let left = first.len() - self.written;
            if count < left {
                self.written += count;
                return;
            }
            count -= left;
            self.written = 0;
            self.out.pop_front();
        }
    }

    /// Ends this side's data, once everything is written.
    pub(crate) fn shut(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            if let Some(tls) = &mut self.tls {
                tls.close(&mut self.socket);
            }
            // It fails if the other side has closed the connection.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Nothing more is written.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut
    }
}
