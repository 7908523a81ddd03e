//! What the listener needs of sockets: an argument of the [`crate::processor::Processor`], so that a simulation can break them.

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
    /// Connections wait at a listener, by its place.
    Accept(usize),
    /// A connection, by its number: bytes or its end can be read, or (`is_writable`) bytes can be written.
    Connection {
        /// The number given to [`Sockets::watch`].
        token: usize,
        /// Bytes can be written.
        is_writable: bool,
        /// What its client has ended.
        peer_end: PeerEnd,
    },
}

/// Listeners and connections that are watched together. Only [`Sockets::wait`] waits. Kafka: `java.nio.channels.Selector`.
pub trait Sockets: Send + 'static {
    /// A connection.
    type Socket: Read + Write + Send;

    /// The next connection that waits at a listener.
    ///
    /// # Errors
    /// `WouldBlock`: none waits.
    fn accept(&mut self, listener: usize) -> std::io::Result<(Self::Socket, SocketAddr)>;

    /// Watches a connection from now on. Bytes that came before also give an event.
    ///
    /// # Errors
    /// The system refuses.
    fn watch(&mut self, socket: &mut Self::Socket, token: usize) -> std::io::Result<()>;

    /// Ends the watching of a connection.
    fn forget(&mut self, socket: &mut Self::Socket);

    /// Accepts nothing more.
    fn close_listeners(&mut self);

    /// Waits for the first event, at most `timeout`, and until [`crate::Completions`] are reported. An event
    /// reports a change: it does not come again for bytes that were there before.
    ///
    /// # Errors
    /// The sockets cannot be watched any more.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<SocketEvent>) -> std::io::Result<()>;
}

/// The token of the waker; listeners follow, then connections.
pub(crate) const WAKER: Token = Token(0);
const FIRST_LISTENER: usize = 1;

/// The system's.
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
    /// The system refuses to.
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
        // It fails for a socket that is gone already.
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
