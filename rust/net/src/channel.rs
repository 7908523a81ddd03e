//! One socket and its connection: all addresses of a name, time-outs of the set-up, bytes in both directions. Kafka:
//! `ClusterConnectionStates.NodeConnectionState`, `KafkaChannel`.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use fletchlog_api::Failure;

use crate::address_book::{Address, AddressBook};
use crate::connection::Connection;
use crate::sockets::Sockets;

/// How long parts of a set-up may take, ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    /// To connect to one address. Kafka: socket.connection.setup.timeout.ms.
    pub(crate) connect_ms: i64,
    /// From connected to ready.
    pub(crate) handshake_ms: i64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Channel<S: Sockets> {
    address: Address,
    socket: S::Socket,
    /// Addresses of the name that have not been tried.
    untried: VecDeque<SocketAddr>,
    token: usize,
    is_connected: bool,
    set_up: SetUp,
    /// When the set-up has to be past its present part; `None` when it is over.
    deadline_ms: Option<i64>,
    pub(crate) connection: Connection,
    /// The node asked for a pause until then.
    muted_until_ms: Option<i64>,
}

impl<S: Sockets> Channel<S> {
    /// Begins to connect to the first address of a name that takes the attempt. Asks the system's resolver, which may take its
    /// time for a name.
    ///
    /// # Errors
    /// `NotConnected`: the name is unknown, or no address can be tried.
    pub(crate) fn open(
        address: &Address,
        client_id: &Arc<str>,
        sockets: &mut S,
        token: usize,
        set_up: SetUp,
        now_ms: i64,
    ) -> Result<Self, Failure> {
        let not_connected = |why: &dyn std::fmt::Display| Failure::NotConnected(format!("{address}: {why}").into());
        let resolved = (&*address.host, address.port).to_socket_addrs();
        let mut untried: VecDeque<SocketAddr> = resolved.map_err(|error| not_connected(&error))?.collect();
        let connection = Connection::new(Arc::clone(client_id)).map_err(|error| not_connected(&error))?;
        let socket = connect(&mut untried, sockets, token).map_err(|error| not_connected(&error))?;
        Ok(Self {
            address: address.clone(),
            socket,
            untried,
            token,
            is_connected: false,
            set_up,
            deadline_ms: Some(now_ms.saturating_add(set_up.connect_ms)),
            connection,
            muted_until_ms: None,
        })
    }

    /// Where it leads.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Its events have this token.
    pub(crate) fn token(&self) -> usize {
        self.token
    }

    /// When [`Self::on_deadline`] has something to do: the set-up is too late, or a pause is over.
    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        self.deadline_ms.or(self.muted_until_ms)
    }

    /// Sends nothing for so long (KIP-219).
    pub(crate) fn pause(&mut self, throttle_ms: i32, now_ms: i64) {
        if throttle_ms > 0 {
            let until_ms = now_ms.saturating_add(i64::from(throttle_ms));
            self.muted_until_ms = self.muted_until_ms.max(Some(until_ms));
            self.connection.pause();
        }
    }

    /// ms until a pause is over; 0 without one.
    pub(crate) fn paused_ms(&self, now_ms: i64) -> i64 {
        self.muted_until_ms
            .map_or(0, |until_ms| until_ms.saturating_sub(now_ms).max(0))
    }

    /// The socket has something to say: goes on with the set-up, reads and writes what can be.
    ///
    /// # Errors
    /// The channel is to be closed.
    pub(crate) fn on_event(
        &mut self,
        may_have_ended: bool,
        sockets: &mut S,
        book: &mut AddressBook,
        now_ms: i64,
    ) -> Result<(), Failure> {
        if !self.is_connected && !self.finish_connecting(sockets, now_ms)? {
            return Ok(());
        }
        self.write()?;
        self.read(may_have_ended, book)?;
        if self.connection.is_ready() {
            self.deadline_ms = None;
        }
        // What waited for the connection to be ready.
        self.write()
    }

    /// True if the socket is connected now; another address is tried when this one refused.
    fn finish_connecting(&mut self, sockets: &mut S, now_ms: i64) -> Result<bool, Failure> {
        match S::connected(&self.socket) {
            Ok(()) => {
                self.is_connected = true;
                self.deadline_ms = Some(now_ms.saturating_add(self.set_up.handshake_ms));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => self.try_next_address(&error, sockets, now_ms).map(|()| false),
        }
    }

    /// The set-up took too long: another address is tried, if there is one. Or a pause is over.
    ///
    /// # Errors
    /// The channel is to be closed.
    pub(crate) fn on_deadline(&mut self, sockets: &mut S, now_ms: i64) -> Result<(), Failure> {
        if self.deadline_ms.is_none() {
            self.muted_until_ms = None;
            self.connection.resume();
            return self.write();
        }
        if self.is_connected {
            return Err(self.not_connected("it did not say within request.timeout.ms which versions it serves"));
        }
        let limit = self.set_up.connect_ms;
        self.try_next_address(&format_args!("no connection within {limit} ms"), sockets, now_ms)
    }

    fn try_next_address(&mut self, why: &dyn std::fmt::Display, sockets: &mut S, now_ms: i64) -> Result<(), Failure> {
        sockets.forget(&mut self.socket);
        if self.untried.is_empty() {
            return Err(self.not_connected(why));
        }
        log::debug!("{}: {why}; another address is tried", self.address);
        let connected = connect(&mut self.untried, sockets, self.token);
        self.socket = connected.map_err(|error| self.not_connected(error))?;
        self.deadline_ms = Some(now_ms.saturating_add(self.set_up.connect_ms));
        Ok(())
    }

    fn not_connected(&self, why: impl std::fmt::Display) -> Failure {
        Failure::NotConnected(format!("{}: {why}", self.address).into())
    }

    /// Writes until the socket takes no more.
    ///
    /// # Errors
    /// The channel is to be closed.
    pub(crate) fn write(&mut self) -> Result<(), Failure> {
        while self.is_connected && self.connection.has_output() {
            let mut slices = Vec::new();
            self.connection.output(&mut slices);
            match self.socket.write_vectored(&slices) {
                Ok(0) => return Err(Failure::Disconnected),
                Ok(count) => self.connection.written(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// Reads until the socket has no more. A short read says so too, unless the end of the stream may follow it.
    fn read(&mut self, may_have_ended: bool, book: &mut AddressBook) -> Result<(), Failure> {
        loop {
            let room = self.connection.room();
            let most = room.len();
            match self.socket.read(room) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    self.connection.received(count, book)?;
                    if count < most && !may_have_ended {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn ended(&self) -> Failure {
        if self.connection.is_ready() {
            return Failure::Disconnected;
        }
        self.not_connected(
            "it closed the connection before it said which versions it serves; it may expect TLS or SASL",
        )
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        if self.connection.is_ready() {
            log::debug!("the connection to {} was lost: {error}", self.address);
            return Failure::Disconnected;
        }
        self.not_connected(error)
    }

    /// Ends the socket; its requests are in the connection.
    pub(crate) fn shut(&mut self, sockets: &mut S) {
        sockets.forget(&mut self.socket);
    }
}

/// Connects to the first of the addresses that the system accepts; the attempt goes on in the background.
fn connect<S: Sockets>(
    untried: &mut VecDeque<SocketAddr>,
    sockets: &mut S,
    token: usize,
) -> std::io::Result<S::Socket> {
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    while let Some(address) = untried.pop_front() {
        match sockets.connect(address, token) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
