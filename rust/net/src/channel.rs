//! One socket and its connection: all addresses of a name, time-outs of the set-up, bytes in both directions. Kafka:
//! `ClusterConnectionStates.NodeConnectionState`, `KafkaChannel`.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use fletchlog_api::Failure;
use fletchlog_tls::{Session, TlsFailure};

use crate::address_book::{Address, AddressBook, Destination};
use crate::connection::Connection;
use crate::sasl::Token;
use crate::security::Security;
use crate::sockets::Sockets;
use crate::tcp_transport::ConnectionSettings;

/// How long parts of a set-up may take, ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    /// To connect to one address. Kafka: socket.connection.setup.timeout.ms.
    pub(crate) connect_ms: i64,
    /// From connected to ready.
    pub(crate) handshake_ms: i64,
}

/// A socket to a node, its TLS session and its connection.
#[derive(Debug)]
pub(crate) struct Channel<S: Sockets> {
    address: Address,
    socket: S::Socket,
    security: Arc<Security>,
    /// `None`: not connected, or without TLS.
    tls: Option<Box<Session>>,
    /// Addresses of the name that have not been tried.
    untried: VecDeque<SocketAddr>,
    token: usize,
    is_connected: bool,
    set_up: SetUp,
    /// Deadline of the current part of the set-up; `None` when the set-up is complete.
    deadline_ms: Option<i64>,
    pub(crate) connection: Connection,
    /// When the client has to authenticate again (KIP-368).
    authenticate_at_ms: Option<i64>,
    /// The node asked for a pause until then.
    muted_until_ms: Option<i64>,
}

impl<S: Sockets> Channel<S> {
    /// Begins to connect to the first address of a name for which the system accepts the attempt; `destination` is what has to be there.
    ///
    /// # Errors
    /// `NotConnected`: the name is unknown, or no address can be tried.
    pub(crate) fn open(
        (address, destination): (&Address, Option<Destination>),
        resolved: std::io::Result<Vec<SocketAddr>>,
        settings: &ConnectionSettings,
        sockets: &mut S,
        token: usize,
        set_up: SetUp,
        now_ms: i64,
    ) -> Result<Self, Failure> {
        let not_connected = |why: &dyn std::fmt::Display| Failure::NotConnected(format!("{address}: {why}").into());
        let mut untried = VecDeque::from(resolved.map_err(|error| not_connected(&error))?);
        let connection = Connection::new(
            Arc::clone(&settings.client_id),
            settings.security.sasl.clone(),
            destination,
        )
        .map_err(|error| not_connected(&error))?;
        let socket = connect(&mut untried, sockets, token).map_err(|error| not_connected(&error))?;
        Ok(Self {
            address: address.clone(),
            socket,
            security: Arc::clone(&settings.security),
            tls: None,
            untried,
            token,
            is_connected: false,
            set_up,
            deadline_ms: Some(now_ms.saturating_add(set_up.connect_ms)),
            connection,
            authenticate_at_ms: None,
            muted_until_ms: None,
        })
    }

    /// The node's address.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Its events have this token.
    pub(crate) fn token(&self) -> usize {
        self.token
    }

    /// When [`Self::on_deadline`] has something to do: the set-up is late, a pause ends, or the session is about to end.
    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        let due = self.authenticate_at_ms.into_iter().chain(self.muted_until_ms);
        self.deadline_ms.or(due.min())
    }

    /// Sends nothing for `throttle_ms` (KIP-219).
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

    /// Handles an event of the socket: continues the set-up, reads and writes as much as possible.
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
        if let Some(lifetime_ms) = self.connection.take_session_lifetime() {
            self.authenticate_at_ms = Some(now_ms.saturating_add(self.share_of(lifetime_ms)));
        }
        // Sends what waited for the connection to be ready.
        self.write()
    }

    /// 85 to 95 hundredths of a session, so that not all connections re-authenticate at once. Kafka:
    /// `SaslClientAuthenticator.ReauthInfo#setAuthenticationEndAndSessionReauthenticationTimes`.
    fn share_of(&self, lifetime_ms: i64) -> i64 {
        let percent = 85 + i64::try_from(self.token % 11).unwrap_or(0);
        lifetime_ms / 100 * percent
    }

    /// Delivers the token that an authentication waits for.
    ///
    /// # Errors
    /// There is no token: the channel is to be closed.
    pub(crate) fn give_token(&mut self, token: Result<Token, String>) -> Result<(), Failure> {
        let given = self.connection.give_token(token);
        given.map_err(|failure| self.with_address(failure))?;
        self.write()
    }

    /// True if the socket is connected now. Tries another address if this one refused.
    fn finish_connecting(&mut self, sockets: &mut S, now_ms: i64) -> Result<bool, Failure> {
        match S::connected(&self.socket) {
            Ok(()) => {
                self.begin_tls()?;
                self.is_connected = true;
                self.deadline_ms = Some(now_ms.saturating_add(self.set_up.handshake_ms));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => self.try_next_address(&error, sockets, now_ms).map(|()| false),
        }
    }

    fn begin_tls(&mut self) -> Result<(), Failure> {
        if let Some(tls) = &self.security.tls {
            let session = tls.session(&self.address.host);
            self.tls = Some(Box::new(session.map_err(|why| self.not_connected(why))?));
        }
        Ok(())
    }

    /// Tries another address, if there is one, when the set-up took too long. Otherwise see [`Self::go_on`].
    ///
    /// # Errors
    /// The channel is to be closed.
    pub(crate) fn on_deadline(&mut self, sockets: &mut S, now_ms: i64) -> Result<(), Failure> {
        if self.deadline_ms.is_none() {
            return self.go_on(now_ms);
        }
        if self.is_connected {
            return Err(self.not_connected(match &self.tls {
                Some(tls) if tls.is_handshaking() => "no TLS within request.timeout.ms",
                _ if self.connection.knows_versions() => {
                    "it did not finish the authentication within request.timeout.ms"
                }
                _ => "it did not say within request.timeout.ms which versions it serves",
            }));
        }
        let limit = self.set_up.connect_ms;
        self.try_next_address(&format_args!("no connection within {limit} ms"), sockets, now_ms)
    }

    /// Ends a pause that is over, and authenticates again if the session is about to end. Called before a request is sent, so that the node
    /// does not close the connection of a client that was idle for long. Kafka: `KafkaChannel#maybeBeginClientReauthentication`, before a
    /// write.
    ///
    /// # Errors
    /// The channel is to be closed.
    pub(crate) fn go_on(&mut self, now_ms: i64) -> Result<(), Failure> {
        if self.muted_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            self.muted_until_ms = None;
            self.connection.resume();
        }
        if self.authenticate_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.authenticate_at_ms = None;
            self.deadline_ms = Some(now_ms.saturating_add(self.set_up.handshake_ms));
            let begun = self.connection.authenticate();
            begun.map_err(|failure| self.with_address(failure))?;
        }
        self.write()
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
        if !self.is_connected {
            return Ok(());
        }
        while self.connection.has_output() {
            let mut slices = Vec::new();
            self.connection.output(&mut slices);
            match write_to(&mut self.socket, self.tls.as_deref_mut(), &slices) {
                Ok(0) => return Err(Failure::Disconnected),
                Ok(count) => self.connection.written(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        let flushed = self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.socket));
        match flushed {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(self.lost(&error)),
            _ => Ok(()),
        }
    }

    /// Reads until the socket has no more bytes. A short read means that, too, unless the end of the stream or a failure of TLS may follow
    /// it.
    fn read(&mut self, may_have_ended: bool, book: &mut AddressBook) -> Result<(), Failure> {
        loop {
            let room = self.connection.room();
            let most = room.len();
            let read = match &mut self.tls {
                Some(tls) => tls.read(&mut self.socket, room),
                None => self.socket.read(room),
            };
            match read {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    let received = self.connection.received(count, book);
                    received.map_err(|failure| self.with_address(failure))?;
                    let is_over = self.tls.as_ref().is_some_and(|tls| tls.is_over());
                    if count < most && !may_have_ended && !is_over {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    /// True while TLS is being set up. A node that does not speak TLS closes the connection then.
    pub(crate) fn is_in_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Adds the address to a failure that the user has to fix.
    fn with_address(&self, failure: Failure) -> Failure {
        match failure {
            Failure::SslAuthentication(why) => Failure::SslAuthentication(format!("{}: {why}", self.address).into()),
            Failure::SaslAuthentication(why) => Failure::SaslAuthentication(format!("{}: {why}", self.address).into()),
            other => other,
        }
    }

    fn ended(&self) -> Failure {
        if self.connection.was_ready() {
            return Failure::Disconnected;
        }
        self.not_connected(match self.is_in_tls() {
            true => "it closed the connection when TLS was begun; it may not speak TLS on this port (security.protocol)",
            false if self.connection.knows_versions() => "it closed the connection during the authentication",
            false => {
                "it closed the connection before it said which versions it serves; it may expect TLS or SASL (security.protocol)"
            }
        })
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        if self.connection.was_ready() {
            log::debug!("the connection to {} was lost: {error}", self.address);
            return Failure::Disconnected;
        }
        match TlsFailure::of(error) {
            Some(failure) => self.with_address(Failure::SslAuthentication(failure.to_string().into())),
            None if self.is_in_tls() => self.ended(),
            None => self.not_connected(error),
        }
    }

    /// Closes the socket; its requests stay in the connection.
    pub(crate) fn shut(&mut self, sockets: &mut S) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.socket);
        }
        sockets.forget(&mut self.socket);
    }
}

/// Writes bytes, encrypted under TLS.
fn write_to(socket: &mut impl Write, tls: Option<&mut Session>, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
    match tls {
        Some(tls) => tls.write(socket, slices),
        None => socket.write_vectored(slices),
    }
}

/// Connects to the first of the addresses that the system accepts; the attempt continues in the background.
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
