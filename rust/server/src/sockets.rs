//! The sockets of a listener: a parameter of the [`crate::processor::Processor`], so that a simulation can inject failures.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};

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

    /// Refuses connections to a listener, and keeps its port.
    ///
    /// # Errors
    /// The system refuses.
    fn close_listener(&mut self, listener: usize) -> std::io::Result<()>;

    /// Accepts connections to a listener again, on its port.
    ///
    /// # Errors
    /// The system refuses.
    fn open_listener(&mut self, listener: usize) -> std::io::Result<()>;

    /// Waits for an event or for [`crate::Completions`], at most `timeout`. An event reports a change: it is not repeated for bytes that
    /// arrived before.
    ///
    /// # Errors
    /// The sockets can no longer be watched.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<SocketEvent>) -> std::io::Result<()>;
}

/// Most connections that the system queues until they are accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// The token of the waker. The listeners' tokens follow, then those of connections.
pub(crate) const WAKER: Token = Token(0);
const FIRST_LISTENER: usize = 1;

/// The port of a listener.
struct Place {
    address: SocketAddr,
    state: State,
}

enum State {
    Open(TcpListener),
    /// Bound, so that nobody else gets the port, and not listening: connections are refused.
    Reserved(Socket),
    Closed,
}

/// The sockets of the operating system.
pub(crate) struct SystemSockets {
    poll: Poll,
    events: Events,
    listeners: Vec<Place>,
    /// The descriptor of each, see [`crate::SocketServer::descriptors`]; -1: none.
    descriptors: Arc<[AtomicI32]>,
    /// The token of connection 0.
    first_connection: usize,
}

impl SystemSockets {
    /// Watches these listeners.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(poll: Poll, listeners: Vec<TcpListener>) -> std::io::Result<Self> {
        let mut sockets = Self {
            poll,
            events: Events::with_capacity(1024),
            first_connection: FIRST_LISTENER + listeners.len(),
            descriptors: listeners.iter().map(|_| AtomicI32::new(-1)).collect(),
            listeners: Vec::with_capacity(listeners.len()),
        };
        for (index, listener) in listeners.into_iter().enumerate() {
            let address = listener.local_addr()?;
            let state = State::Closed;
            sockets.listeners.push(Place { address, state });
            sockets.listen(index, listener)?;
        }
        Ok(sockets)
    }

    /// The descriptors of the listening sockets, now and later.
    pub(crate) fn descriptors(&self) -> Arc<[AtomicI32]> {
        Arc::clone(&self.descriptors)
    }

    fn listen(&mut self, index: usize, mut listener: TcpListener) -> std::io::Result<()> {
        let token = Token(FIRST_LISTENER + index);
        self.poll
            .registry()
            .register(&mut listener, token, Interest::READABLE)?;
        self.set(index, State::Open(listener));
        Ok(())
    }

    fn set(&mut self, index: usize, state: State) {
        let descriptor = match &state {
            State::Open(listener) => listener.as_raw_fd(),
            State::Reserved(socket) => socket.as_raw_fd(),
            State::Closed => -1,
        };
        self.descriptors[index].store(descriptor, Ordering::Release);
        self.listeners[index].state = state;
    }
}

impl Sockets for SystemSockets {
    type Socket = TcpStream;

    fn accept(&mut self, listener: usize) -> std::io::Result<(TcpStream, SocketAddr)> {
        match self.listeners.get(listener).map(|place| &place.state) {
            Some(State::Open(listener)) => listener.accept(),
            _ => Err(ErrorKind::WouldBlock.into()),
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
        (0..self.listeners.len()).for_each(|index| self.set(index, State::Closed));
        self.listeners.clear();
    }

    fn close_listener(&mut self, listener: usize) -> std::io::Result<()> {
        let Some(place) = self.listeners.get(listener) else {
            return Ok(());
        };
        let address = place.address;
        self.set(listener, State::Closed);
        self.set(listener, State::Reserved(bound(address)?));
        Ok(())
    }

    fn open_listener(&mut self, listener: usize) -> std::io::Result<()> {
        let Some(place) = self.listeners.get_mut(listener) else {
            return Ok(());
        };
        let socket = match std::mem::replace(&mut place.state, State::Closed) {
            State::Reserved(socket) => socket,
            _ => bound(place.address)?,
        };
        socket.listen(BACKLOG)?;
        self.listen(listener, TcpListener::from_std(socket.into()))
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

/// A socket that has this address and does not listen yet.
///
/// # Errors
/// The system refuses.
pub(crate) fn bound(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
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
