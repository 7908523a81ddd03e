//! One connection under TLS: encrypted bytes of the socket on one side, bytes of Kafka's protocol on the other. It never waits. Kafka:
//! `SslTransportLayer`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::Connection;

use crate::failure::{Side, TlsFailure};
use crate::principal;

/// Bytes that are read from the socket at once: several records of 16 KiB.
const CHUNK: usize = 64 * 1024;

/// The TLS state of one connection, of a client or a listener. The socket is an argument of each call.
#[derive(Debug)]
pub struct Session {
    tls: Connection,
    side: Side,
    /// Bytes of the socket; those from `taken` on have not been passed to `tls` yet. Uses no memory while it is empty.
    incoming: Vec<u8>,
    taken: usize,
    /// It has failed; every later call returns this failure.
    failure: Option<TlsFailure>,
    /// The other side has announced the end of its data, and may wait for the socket to be closed; or the socket has ended.
    ended: bool,
    /// The socket failed after bytes that were returned: the next read returns this error.
    socket_failure: Option<io::Error>,
}

impl Session {
    pub(crate) fn new(mut tls: Connection, side: Side) -> Self {
        tls.set_buffer_limit(Some(CHUNK));
        Self {
            tls,
            side,
            incoming: Vec::new(),
            taken: 0,
            failure: None,
            ended: false,
            socket_failure: None,
        }
    }

    /// Announces the end of this side's data.
    #[cfg(test)]
    pub(crate) fn end(&mut self) {
        self.tls.send_close_notify();
    }

    /// Whether certificates and keys are still being exchanged, so that nothing can be written.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether encrypted bytes wait to be written to the socket: [`Self::flush`].
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// The subject of the other side's certificate, as Kafka writes it. `None`: it has none. Kafka: `SslTransportLayer#peerPrincipal`.
    pub fn peer_name(&self) -> Option<String> {
        principal::subject(self.tls.peer_certificates()?.first()?)
    }

    /// Whether only decrypted bytes remain, then a failure or the end. [`Self::read`] returns these without further bytes from the socket,
    /// so the caller must not wait for the socket.
    pub fn is_over(&self) -> bool {
        self.ended || self.failure.is_some() || self.socket_failure.is_some()
    }

    /// Fills `room` with the decrypted bytes that have arrived, and returns their number; 0: the other side ended the connection. If `room`
    /// is not filled, the socket has no more bytes, or [`Self::is_over`].
    ///
    /// # Errors
    /// `WouldBlock`: the socket has no more. A [`TlsFailure`] inside of `InvalidData`: the connection is to be closed; the alert
    /// for the other side was sent if the socket took it. Every other error is the socket's.
    pub fn read(&mut self, socket: &mut (impl Read + Write), room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            filled += self.take_plaintext(&mut room[filled..]);
            if filled == room.len() {
                return Ok(filled);
            }
            if let Some(error) = self.socket_failure.take() {
                return Err(error);
            }
            match self.feed(socket) {
                Ok(true) => {}
                Ok(false) => return Ok(filled),
                Err(error) => {
                    // The bytes that arrived together with those that cannot be decrypted.
                    filled += self.take_plaintext(&mut room[filled..]);
                    if filled == 0 {
                        return Err(error);
                    }
                    // `feed` has stored a failure of TLS already.
                    if error.kind() != ErrorKind::WouldBlock && self.failure.is_none() {
                        self.socket_failure = Some(error);
                    }
                    return Ok(filled);
                }
            }
        }
    }

    /// Reads bytes that are already decrypted.
    fn take_plaintext(&mut self, room: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < room.len() {
            // 0 and an error both mean that there is nothing; reading the socket shows why.
            match self.tls.reader().read(&mut room[filled..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        filled
    }

    /// Decrypts more; false: the other side ended the connection.
    fn feed(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        if self.taken == self.incoming.len() && !self.ended {
            self.ended = !self.fill(socket)?;
        }
        if self.ended {
            return Ok(false);
        }
        let mut unread = &self.incoming[self.taken..];
        let before = unread.len();
        let count = self.tls.read_tls(&mut unread)?;
        self.taken += before - unread.len();
        let outcome = self.tls.process_new_packets();
        // Sends the response of the handshake, or the alert.
        let flushed = self.flush(socket);
        match outcome {
            Ok(state) => self.ended = state.peer_has_closed(),
            Err(error) => {
                let failure = TlsFailure::new(&self.side, &error);
                self.failure = Some(failure.clone());
                return Err(failure.into());
            }
        }
        match flushed {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        Ok(count > 0 || self.ended)
    }

    /// Reads from the socket; false: its end.
    fn fill(&mut self, socket: &mut impl Read) -> io::Result<bool> {
        self.taken = 0;
        self.incoming.resize(CHUNK, 0);
        let read = loop {
            match socket.read(&mut self.incoming) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.incoming.truncate(*read.as_ref().unwrap_or(&0));
        if self.incoming.is_empty() {
            // An idle connection has no buffer.
            self.incoming = Vec::new();
        }
        read.map(|count| count > 0)
    }

    /// Encrypts and writes; returns how many bytes were taken. Bytes taken before are written first.
    ///
    /// # Errors
    /// `WouldBlock`: the socket takes no more, or the handshake is not over. Everything else is the socket's.
    pub fn write(&mut self, socket: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        if self.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.tls.writer().write_vectored(slices)?;
        match self.flush(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Writes what is encrypted.
    ///
    /// # Errors
    /// `WouldBlock`: the socket takes no more. Everything else is the socket's.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Announces the end of this side's data, if the socket accepts it.
    pub fn close(&mut self, socket: &mut impl Write) {
        self.tls.send_close_notify();
        // The connection is closed in any case.
        let _ = self.flush(socket);
    }
}
