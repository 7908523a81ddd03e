//! The thread of a proxy: its ports, connections and events.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Clock;
use fletchlog_api::transport::Waker;
use fletchlog_faults::{Action, Faults, HANDSHAKE_FAILURE};
use fletchlog_session::Recorder;
use fletchlog_tls::{ClientTls, ServerTls};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use slab::Slab;

use crate::end::End;
use crate::link::{Context, Link, LinkId, Turn};
use crate::resolver::Resolver;
use crate::rewrite::Found;

/// The token of the waker; those of ports and connections follow.
pub(crate) const WAKER: Token = Token(0);

/// How long connections wait that could not be accepted, mostly for lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Whose socket a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Port(usize),
    Client(usize),
    Server(usize),
}

impl Owner {
    fn token(self) -> Token {
        Token(match self {
            Self::Port(index) => 1 + 3 * index,
            Self::Client(slot) => 2 + 3 * slot,
            Self::Server(slot) => 3 + 3 * slot,
        })
    }

    fn of(token: Token) -> Self {
        let (index, kind) = ((token.0 - 1) / 3, (token.0 - 1) % 3);
        match kind {
            0 => Self::Port(index),
            1 => Self::Client(index),
            _ => Self::Server(index),
        }
    }
}

/// A port of the proxy, and the node behind it.
struct Port {
    listener: TcpListener,
    /// Where connections go: one address, or the bootstrap servers in turn.
    targets: Vec<(String, u16)>,
    next: usize,
    /// The port's number.
    bound: u16,
    /// The node, as far as responses have named it; -1: unknown.
    node: i32,
}

/// The ports of the proxy: one for the bootstrap servers, and one for each address that responses have named.
pub(crate) struct Ports {
    ports: Vec<Port>,
    registry: Registry,
    /// The interface that is listened on.
    host: String,
    /// What clients are given as host.
    advertised: String,
    /// The port that is tried for the next node; 0: any free one.
    next_port: u16,
    /// The port of each address of a node, by its place in `ports`.
    by_target: HashMap<(String, u16), usize>,
    /// Names of topics that responses have named, by their ids.
    names: Names,
    descriptors: Descriptors,
}

/// The listening sockets.
pub(crate) type Descriptors = Arc<Mutex<Vec<RawFd>>>;

/// Names of topics by their ids.
pub(crate) type Names = Arc<Mutex<HashMap<[u8; 16], Arc<str>>>>;

impl Ports {
    /// Listens for the bootstrap servers; returns the port.
    pub(crate) fn open(
        registry: Registry,
        (host, port): (String, u16),
        advertised: String,
        servers: Vec<(String, u16)>,
        names: Names,
        descriptors: Descriptors,
    ) -> io::Result<(Self, u16)> {
        let mut ports = Self {
            ports: Vec::new(),
            registry,
            host,
            advertised,
            next_port: 0,
            by_target: HashMap::new(),
            names,
            descriptors,
        };
        let bound = ports.listen(port, servers)?;
        ports.next_port = if port == 0 { 0 } else { port.saturating_add(1) };
        Ok((ports, bound))
    }

    fn listen(&mut self, port: u16, targets: Vec<(String, u16)>) -> io::Result<u16> {
        let listener = std::net::TcpListener::bind((self.host.as_str(), port))?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?.port();
        let mut listener = TcpListener::from_std(listener);
        let token = Owner::Port(self.ports.len()).token();
        self.registry.register(&mut listener, token, Interest::READABLE)?;
        lock(&self.descriptors).push(listener.as_raw_fd());
        self.ports.push(Port {
            listener,
            targets,
            next: 0,
            bound,
            node: -1,
        });
        Ok(bound)
    }

    /// Opens the next port; one that another program has is left out.
    fn listen_for(&mut self, target: (String, u16)) -> io::Result<u16> {
        loop {
            match self.listen(self.next_port, vec![target.clone()]) {
                Ok(bound) => {
                    if self.next_port != 0 {
                        self.next_port = self.next_port.checked_add(1).unwrap_or(0);
                    }
                    return Ok(bound);
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse && self.next_port != 0 => {
                    self.next_port = self.next_port.checked_add(1).unwrap_or(0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Found for Ports {
    /// The address under which clients reach a node's address, on a port that is opened for it.
    fn address(&mut self, node: Option<i32>, host: &str, port: u16) -> Result<Option<(String, u16)>, String> {
        let target = (host.to_owned(), port);
        let index = match self.by_target.get(&target).copied() {
            Some(index) => index,
            None => {
                let bound = self.listen_for(target.clone()).map_err(|error| {
                    format!(
                        "no port can be opened on {} for the node at {host}:{port}: {error}",
                        self.host
                    )
                })?;
                log::info!("the node at {host}:{port} is reached at {}:{bound}", self.advertised);
                let index = self.ports.len() - 1;
                self.by_target.insert(target, index);
                index
            }
        };
        let found = &mut self.ports[index];
        found.node = node.unwrap_or(found.node);
        Ok(Some((self.advertised.clone(), found.bound)))
    }

    fn topic(&mut self, id: [u8; 16], name: &str) {
        let mut names = lock(&self.names);
        if names.get(&id).is_none_or(|known| &**known != name) {
            names.insert(id, name.into());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// TLS towards the clients and towards the nodes; `None`: plain.
pub(crate) struct Tls {
    pub(crate) listener: Option<ServerTls>,
    pub(crate) nodes: Option<ClientTls>,
}

/// The state of the thread.
pub(crate) struct Relay {
    pub(crate) poll: Poll,
    pub(crate) ports: Ports,
    pub(crate) tls: Tls,
    pub(crate) resolver: Resolver,
    pub(crate) shared: Arc<Shared>,
    links: Slab<Link>,
    serial: u64,
    /// Links that have more to do, without a further event.
    again: Vec<usize>,
    /// Ports whose connections could not be accepted.
    accept_again: Vec<usize>,
    /// When connections need a turn without an event (monotonic ms).
    times: BTreeSet<(i64, LinkId)>,
}

/// State shared by the thread and the handle of the proxy.
pub(crate) struct Shared {
    pub(crate) closing: AtomicBool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) waker: Waker,
    /// Connections whose request was released.
    pub(crate) released: Mutex<Vec<LinkId>>,
}

impl Relay {
    /// A thread without connections.
    pub(crate) fn new(poll: Poll, ports: Ports, tls: Tls, resolver: Resolver, shared: Arc<Shared>) -> Self {
        Self {
            poll,
            ports,
            tls,
            resolver,
            shared,
            times: BTreeSet::new(),
            links: Slab::new(),
            serial: 0,
            again: Vec::new(),
            accept_again: Vec::new(),
        }
    }

    /// Relays until the proxy is closed.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        while !self.shared.closing.load(Ordering::Acquire) {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    log::error!("the proxy ends: its sockets cannot be watched: {error}");
                    return;
                }
                _ => {}
            }
            for index in std::mem::take(&mut self.accept_again) {
                self.accept(index);
            }
            for slot in std::mem::take(&mut self.again) {
                self.pump(slot);
            }
            for event in &events {
                if event.token() != WAKER {
                    self.on_event(event);
                }
            }
            for (link, addresses) in self.resolver.take() {
                self.resolved(link, addresses);
            }
            self.resume();
        }
        for slot in self.links.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(slot, None, true);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = |(when_ms, _): &(i64, LinkId)| {
            let left_ms = when_ms.saturating_sub(self.shared.clock.monotonic_ms());
            Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
        };
        let accept = (!self.accept_again.is_empty()).then_some(ACCEPT_AGAIN);
        let again = (!self.again.is_empty()).then_some(Duration::ZERO);
        let timed = self.times.first().map(until);
        [accept, again, timed].into_iter().flatten().min()
    }

    /// Gives a turn to the connections whose time has come, and to those whose request was released.
    fn resume(&mut self) {
        let now_ms = self.shared.clock.monotonic_ms();
        let released = std::mem::take(&mut *lock(&self.shared.released));
        for (slot, serial) in released {
            if let Some(link) = self.links.get_mut(slot).filter(|link| link.serial == serial) {
                link.release(now_ms);
                self.pump(slot);
            }
        }
        while let Some((when_ms, (slot, _))) = self.times.first().copied()
            && when_ms <= now_ms
        {
            self.times.pop_first();
            self.pump(slot);
        }
    }

    fn on_event(&mut self, event: &Event) {
        let can_read = event.is_readable() || event.is_read_closed() || event.is_error();
        match Owner::of(event.token()) {
            Owner::Port(index) => self.accept(index),
            Owner::Client(slot) => {
                if let Some(link) = self.links.get_mut(slot) {
                    link.client.can_read |= can_read;
                    self.pump(slot);
                }
            }
            Owner::Server(slot) => {
                let Some(link) = self.links.get_mut(slot) else { return };
                if let Some(server) = &mut link.server {
                    server.can_read |= can_read;
                }
                match link.is_connected {
                    true => self.pump(slot),
                    false => self.finish_connecting(slot),
                }
            }
        }
    }

    fn accept(&mut self, index: usize) {
        while let Some(port) = self.ports.ports.get_mut(index) {
            match port.listener.accept() {
                Ok((socket, _)) => {
                    let target = port.targets[port.next % port.targets.len()].clone();
                    port.next = port.next.wrapping_add(1);
                    let node = port.node;
                    if let Err(error) = self.open(socket, target, node) {
                        log::warn!("a connection of a client could not be opened: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    log::warn!("a connection could not be accepted: {error}");
                    self.accept_again.push(index);
                    return;
                }
            }
        }
    }

    /// A client has connected; its node's name is looked up.
    fn open(&mut self, mut socket: TcpStream, (host, port): (String, u16), node: i32) -> io::Result<()> {
        let (number, action) = self.shared.faults.connected(node);
        if let Some(action) = action {
            if action == Action::TlsFailure {
                // It may fail: the connection is closed anyway.
                let _ = socket.write(&HANDSHAKE_FAILURE);
            }
            self.shared.faults.disconnected(number);
            return Ok(());
        }
        let tls = self.tls.listener.as_ref().map(ServerTls::session).transpose();
        let tls = tls.map_err(io::Error::other)?;
        socket.set_nodelay(true)?;
        let entry = self.links.vacant_entry();
        let token = Owner::Client(entry.key()).token();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, token, both)?;
        self.serial += 1;
        let id = (entry.key(), self.serial);
        self.resolver.resolve(id, &host, port);
        if let Some(recorder) = &self.shared.recorder {
            let listener: Arc<str> = socket.local_addr()?.to_string().into();
            recorder.opened(number, node, socket.peer_addr()?.to_string(), &listener);
        }
        entry.insert(Link::new((self.serial, number), node, End::new(socket, tls), host));
        Ok(())
    }

    fn resolved(&mut self, (slot, serial): (usize, u64), addresses: Result<Vec<SocketAddr>, String>) {
        let Some(link) = self.links.get_mut(slot).filter(|link| link.serial == serial) else {
            return;
        };
        match addresses {
            Ok(addresses) => link.addresses = addresses.into(),
            Err(error) => {
                let why = format!("the name {} cannot be resolved: {error}", link.host);
                return self.close(slot, Some(&why), true);
            }
        }
        self.connect(slot, "it has no address");
    }

    /// Connects to the next address of the node; without one the link is closed for this reason.
    fn connect(&mut self, slot: usize, why: &str) {
        let Some(link) = self.links.get_mut(slot) else { return };
        let Some(address) = link.addresses.pop_front() else {
            let why = format!("the node {} cannot be reached: {why}", link.host);
            return self.close(slot, Some(&why), true);
        };
        let opened = TcpStream::connect(address).and_then(|mut socket| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut socket, Owner::Server(slot).token(), both)?;
            let tls = self.tls.nodes.as_ref().map(|tls| tls.session(&link.host)).transpose();
            Ok(End::new(socket, tls.map_err(io::Error::other)?))
        });
        match opened {
            Ok(server) => link.server = Some(server),
            Err(error) => self.connect(slot, &error.to_string()),
        }
    }

    fn finish_connecting(&mut self, slot: usize) {
        let Some(link) = self.links.get_mut(slot) else { return };
        let Some(socket) = link.server_socket() else { return };
        let outcome = match socket.take_error() {
            Ok(None) => match socket.peer_addr() {
                Ok(_) => socket.set_nodelay(true).map(|()| true),
                Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
                Err(error) => Err(error),
            },
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match outcome {
            Ok(true) => {
                link.is_connected = true;
                self.pump(slot);
            }
            // The event was about something else.
            Ok(false) => {}
            Err(error) => {
                if let Some(mut server) = link.server.take() {
                    let _ = self.poll.registry().deregister(&mut server.socket);
                }
                self.connect(slot, &error.to_string());
            }
        }
    }

    fn pump(&mut self, slot: usize) {
        let Some(link) = self.links.get_mut(slot) else { return };
        let id = (slot, link.serial);
        let shared = &self.shared;
        let resume = || {
            let shared = Arc::clone(shared);
            let resume: Box<dyn FnOnce() + Send> = Box::new(move || {
                lock(&shared.released).push(id);
                (shared.waker)();
            });
            resume
        };
        let mut context = Context {
            found: &mut self.ports,
            faults: &shared.faults,
            recorder: shared.recorder.as_deref(),
            resume: &resume,
            now_ms: shared.clock.monotonic_ms(),
        };
        let turn = link.pump(&mut context);
        if let Some(next_ms) = link.next_ms() {
            self.times.insert((next_ms, id));
        }
        match turn {
            Ok(Turn::Wait) => {}
            Ok(Turn::Again) => self.again.push(slot),
            Ok(Turn::Close) => {
                let by_proxy = !link.client.has_ended;
                self.close(slot, None, by_proxy);
            }
            Err(why) => self.close(slot, Some(&why), true),
        }
    }

    /// Closes both connections; a reason is logged. `by_proxy`: the client has not closed its own.
    fn close(&mut self, slot: usize, why: Option<&str>, by_proxy: bool) {
        let Some(mut link) = self.links.try_remove(slot) else {
            return;
        };
        if let Some(why) = why {
            log::warn!("a connection through the proxy was closed: {why}");
        }
        let reason = match (why, by_proxy) {
            (Some(why), _) => why,
            (None, true) => "the node or a rule ended it",
            (None, false) => "",
        };
        link.end(&self.shared.faults, self.shared.recorder.as_deref(), (by_proxy, reason));
        let ends = [Some(&mut link.client), link.server.as_mut()];
        for end in ends.into_iter().flatten() {
            end.shut();
            // It fails for a socket that is already closed.
            let _ = self.poll.registry().deregister(&mut end.socket);
        }
    }
}
