//! What a client needs of sockets: an argument of [`crate::TcpTransport`], so that a simulation can break them.

use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::transport::Waker;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// An event of a socket: it is connected or refused, has bytes or room for some, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketEvent {
    /// The number given to [`Sockets::connect`].
    pub token: usize,
    /// The end of the stream, or an error, may follow the bytes that are there.
    pub may_have_ended: bool,
}

/// Sockets of one thread that are watched together. Only [`Sockets::wait`] waits. Kafka: `java.nio.channels.Selector`.
pub trait Sockets: Send + Sized + 'static {
    /// A stream of bytes. A read that returns less than asked for has read all there is.
    type Socket: Read + Write + Send + Debug;

    /// The addresses of a name, in the order in which they are tried. May take its time.
    ///
    /// # Errors
    /// The system knows no such name.
    fn resolve(&mut self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// Begins to connect; how that ends comes as an event with this number.
    ///
    /// # Errors
    /// The attempt cannot begin.
    fn connect(&mut self, address: SocketAddr, token: usize) -> std::io::Result<Self::Socket>;

    /// Whether the socket is connected.
    ///
    /// # Errors
    /// `NotConnected`: it is not decided yet. Any other: it was refused.
    fn connected(socket: &Self::Socket) -> std::io::Result<()>;

    /// Ends the watching of a socket.
    fn forget(&mut self, socket: &mut Self::Socket);

    /// Waits for the first event, at most `timeout`, and until the waker is called. An event reports a change: it does
    /// not come again for bytes that were there before.
    ///
    /// # Errors
    /// The sockets cannot be watched.
    fn wait(&mut self, timeout: Duration, events: &mut Vec<SocketEvent>) -> std::io::Result<()>;

    /// Ends the wait of another thread.
    fn waker(&self) -> Waker;

    /// Sockets for the thread that keeps a member in its group; `None`: there is no such thread.
    ///
    /// # Errors
    /// The system gives no selector.
    fn for_heartbeats(&self) -> std::io::Result<Option<Self>>;
}

const WAKER: Token = Token(usize::MAX);

/// The system's.
pub struct SystemSockets {
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
}

impl SystemSockets {
    /// None yet.
    ///
    /// # Errors
    /// The system gives no selector (too few descriptors).
    pub(crate) fn new() -> std::io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
        Ok(Self {
            poll,
            events: Events::with_capacity(64),
            waker,
        })
    }
}

impl Sockets for SystemSockets {
    type Socket = TcpStream;

    fn connect(&mut self, address: SocketAddr, token: usize) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        // As Kafka does (`Selector#configureSocketChannel`).
        stream.set_nodelay(true)?;
        socket2::SockRef::from(&stream).set_keepalive(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(token), interest)?;
        Ok(stream)
    }

    fn connected(stream: &TcpStream) -> std::io::Result<()> {
        match stream.take_error() {
            Ok(None) => stream.peer_addr().map(|_| ()),
            Ok(Some(error)) | Err(error) => Err(error),
        }
    }

    fn forget(&mut self, stream: &mut TcpStream) {
        // It fails for a socket that is gone already.
        let _ = self.poll.registry().deregister(stream);
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<SocketEvent>) -> std::io::Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        let of_sockets = self.events.iter().filter(|event| event.token() != WAKER);
        events.extend(of_sockets.map(|event| SocketEvent {
            token: event.token().0,
            may_have_ended: event.is_read_closed() || event.is_error(),
        }));
        Ok(())
    }

    fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        Arc::new(move || {
            if let Err(error) = waker.wake() {
                log::debug!("a client could not be woken: {error}");
            }
        })
    }

    fn for_heartbeats(&self) -> std::io::Result<Option<Self>> {
        Self::new().map(Some)
    }
}
