//! What a client needs of sockets: a parameter of [`crate::TcpTransport`], so that a simulation can make them fail.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use fletchlog_api::transport::Waker;
use fletchlog_api::waiting;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// An event of a socket: it is connected or refused, has bytes or room for some, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketEvent {
    /// The number given to [`Sockets::connect`].
    pub token: usize,
    /// The end of the stream, or an error, may follow the bytes that have arrived.
    pub may_have_ended: bool,
}

/// Sockets of one thread that are watched together. Only [`Sockets::wait`] waits for events. Kafka: `java.nio.channels.Selector`.
pub trait Sockets: Send + Sized + 'static {
    /// A stream of bytes. A read that returns fewer bytes than asked for has read all that have arrived.
    type Socket: Read + Write + Send + Debug;

    /// The addresses of a name, in the order in which they are tried. May block.
    ///
    /// # Errors
    /// The system knows no such name.
    fn resolve(&mut self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// As [`Sockets::resolve`]; in a call that must not sleep `None` until a thread has the answer, which then ends the wait.
    fn try_resolve(&mut self, host: &str, port: u16) -> Option<std::io::Result<Vec<SocketAddr>>> {
        Some(self.resolve(host, port))
    }

    /// Begins to connect; the outcome is reported as an event with this number.
    ///
    /// # Errors
    /// The attempt cannot begin.
    fn connect(&mut self, address: SocketAddr, token: usize) -> std::io::Result<Self::Socket>;

    /// Whether the socket is connected.
    ///
    /// # Errors
    /// `NotConnected`: it is not decided yet. Any other: it was refused.
    fn connected(socket: &Self::Socket) -> std::io::Result<()>;

    /// Stops watching a socket.
    fn forget(&mut self, socket: &mut Self::Socket);

    /// Waits for the first event or the waker, at most `timeout`. An event reports a change: it is not repeated for bytes that had arrived
    /// before.
    ///
    /// # Errors
    /// The sockets cannot be watched.
    fn wait(&mut self, timeout: Duration, events: &mut Vec<SocketEvent>) -> std::io::Result<()>;

    /// Ends the wait of another thread.
    fn waker(&self) -> Waker;

    /// A file descriptor that is readable when [`Sockets::wait`] would end early, if there is one.
    fn descriptor(&self) -> Option<i32> {
        None
    }

    /// Sockets for the thread that keeps a member in its group; `None`: there is no such thread.
    ///
    /// # Errors
    /// The system cannot provide a selector.
    fn for_heartbeats(&self) -> std::io::Result<Option<Self>>;
}

const WAKER: Token = Token(usize::MAX);

/// The system's sockets.
pub struct SystemSockets {
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
    /// Names that threads look up.
    lookups: HashMap<(String, u16), Receiver<Addresses>>,
}

type Addresses = std::io::Result<Vec<SocketAddr>>;

impl SystemSockets {
    /// An empty set of sockets.
    ///
    /// # Errors
    /// The system cannot provide a selector (too few descriptors).
    pub(crate) fn new() -> std::io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
        Ok(Self {
            poll,
            events: Events::with_capacity(64),
            waker,
            lookups: HashMap::new(),
        })
    }

    /// Asks the system's resolver in a thread.
    fn look_up(&self, host: &str, port: u16) -> std::io::Result<Receiver<Addresses>> {
        let (sender, answer) = channel();
        let (host, waker) = (host.to_owned(), self.waker());
        let thread = std::thread::Builder::new().name("fletchlog-resolver".to_owned());
        thread.spawn(move || {
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            // Fails if the client is gone.
            if sender.send(addresses).is_ok() {
                waker();
            }
        })?;
        Ok(answer)
    }
}

impl Sockets for SystemSockets {
    type Socket = TcpStream;

    fn try_resolve(&mut self, host: &str, port: u16) -> Option<Addresses> {
        if !waiting::suspends() || host.parse::<IpAddr>().is_ok() {
            return Some(self.resolve(host, port));
        }
        let name = (host.to_owned(), port);
        let answer = match self.lookups.remove(&name).map_or_else(|| self.look_up(host, port), Ok) {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        match answer.try_recv() {
            Ok(addresses) => Some(addresses),
            Err(TryRecvError::Disconnected) => Some(Err(std::io::Error::other("the look-up of the name failed"))),
            Err(TryRecvError::Empty) => {
                self.lookups.insert(name, answer);
                None
            }
        }
    }

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
        // It fails for a socket that is no longer registered.
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

    fn descriptor(&self) -> Option<i32> {
        Some(self.poll.as_raw_fd())
    }

    fn for_heartbeats(&self) -> std::io::Result<Option<Self>> {
        Self::new().map(Some)
    }
}
