//! The sockets of a listener: a parameter of the [`crate::processor::Processor`], so that a simulation can inject failures.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::connection::PeerEnd;

/// An event of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEvent {
    /// Connections wait at the listener with this index.
    Accept(usize),
    /// On a connection, bytes or the end can be read, or (`is_writable`) bytes can be written.
    Connection {
        /// The number given to [`Sockets::watch`].
        token: usize,
        /// Bytes can be written.
        is_writable: bool,
        /// The directions that its client has ended.
        peer_end: PeerEnd,
    },
}

/// Listeners and connections that are watched together. Only [`Sockets::wait`] blocks. Kafka: `java.nio.channels.Selector`.
pub trait Sockets: Send + 'static {
    /// A connection.
    type Socket: Read + Write + Send;

    /// Accepts the next waiting connection of a listener.
    ///
    /// # Errors
    /// `WouldBlock`: no connection waits.
    fn accept(&mut self, listener: usize) -> std::io::Result<(Self::Socket, SocketAddr)>;

    /// Starts watching a connection. Bytes that arrived before also cause an event.
    ///
    /// # Errors
    /// The system refuses.
    fn watch(&mut self, socket: &mut Self::Socket, token: usize) -> std::io::Result<()>;

    /// Stops watching a connection.
    fn forget(&mut self, socket: &mut Self::Socket);

    /// Stops accepting connections.
    fn close_listeners(&mut self);

    /// Waits for an event or for [`crate::Completions`], at most `timeout`. An event reports a change: it is not repeated for bytes that
    /// arrived before.
    ///
    /// # Errors
    /// The sockets can no longer be watched.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<SocketEvent>) -> std::io::Result<()>;
}

/// The token of the waker. The listeners' tokens follow, then those of connections.
pub(crate) const WAKER: Token = Token(0);
const FIRST_LISTENER: usize = 1;

/// The sockets of the operating system.
pub(crate) struct SystemSockets {
    poll: Poll,
    events: Events,
    listeners: Vec<TcpListener>,
    /// The token of connection 0.
    first_connection: usize,
}

impl SystemSockets {
    /// Watches these listeners.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(poll: Poll, mut listeners: Vec<TcpListener>) -> std::io::Result<Self> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            poll.registry()
                .register(listener, Token(FIRST_LISTENER + index), Interest::READABLE)?;
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            first_connection: FIRST_LISTENER + listeners.len(),
            listeners,
        })
    }
}

impl Sockets for SystemSockets {
    type Socket = TcpStream;

    fn accept(&mut self, listener: usize) -> std::io::Result<(TcpStream, SocketAddr)> {
        match self.listeners.get(listener) {
            Some(listener) => listener.accept(),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn watch(&mut self, stream: &mut TcpStream, token: usize) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(self.first_connection + token);
        self.poll.registry().register(stream, token, interest)
    }

    fn forget(&mut self, stream: &mut TcpStream) {
        // It fails for a socket that is already closed.
        let _ = self.poll.registry().deregister(stream);
    }

    fn close_listeners(&mut self) {
        self.listeners.clear();
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<SocketEvent>) -> std::io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        let of_sockets = self.events.iter().filter(|event| event.token() != WAKER);
        events.extend(
            of_sockets.map(|event| match event.token().0.checked_sub(self.first_connection) {
                Some(token) => SocketEvent::Connection {
                    token,
                    is_writable: event.is_writable(),
                    peer_end: peer_end(event),
                },
                None => SocketEvent::Accept(event.token().0 - FIRST_LISTENER),
            }),
        );
        Ok(())
    }
}

fn peer_end(event: &Event) -> PeerEnd {
    if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
        PeerEnd::Both
    } else if event.is_read_closed() {
        PeerEnd::Half
    } else {
        PeerEnd::Open
    }
}
