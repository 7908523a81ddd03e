//! The thread of the sockets: accepts, reads, writes, and runs timers. Kafka: `Acceptor`, `Processor`, `Selector`.

mod faults;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::{Clock, Config, NodeId};
use fletchlog_broker::Ticket;
use fletchlog_broker::panics::{contained, place};
use fletchlog_faults::{Exchange, Faults};
use fletchlog_records::planted;
use fletchlog_tls::{ServerTls, Session, TlsFailure};
use slab::Slab;

use crate::apis::{Apis, Peer, Respond};
use crate::completions::{Completion, Completions, ConnectionId, Reply};
use crate::connection::{Connection, PeerEnd};
use crate::endpoint::listener_config;
use crate::limits::{Limits, TimeOut, Times};
use crate::memory_pool::{Memory, MemoryPool};
use crate::recording::{RecordedChannel, Recording};
use crate::request_handler_pool::{Job, RequestHandlerPool, run};
use crate::sockets::{SocketEvent, Sockets};
use crate::stats::Stats;

/// Interval of the check for time-outs of connections.
const SWEEP_MS: i64 = 1000;

/// Interval over which connections are counted for max.connection.creation.rate.
const RATE_MS: i64 = 1000;

/// While a fetch waits, a read-only broker checks for appends at this interval: the writer does not report them.
const LOOK_AGAIN_MS: i64 = 10;

/// How often [`Shared::settle`] checks whether the listener closes.
const SETTLE_LOOK: Duration = Duration::from_millis(50);

/// Most bytes that are read from one connection, or written to it, before the others have their turn.
const BYTES_A_TURN: usize = 1024 * 1024;

/// A request of at most this size is handled in the thread of the sockets if the broker is in memory: waking a handler takes longer.
const SMALL_REQUEST: usize = 16 * 1024;

/// What became of a request, as `fletchlog_faults::RequestRow::outcome` has it.
const ANSWERED: &str = "answered";
const WITHOUT_RESPONSE: &str = "without response";
const CLOSED: &str = "closed";
const CLIENT_GONE: &str = "client gone";

/// The reason for closing a connection whose request or time-out panicked.
const DEFECT: &str = "its work failed, which is a defect of the broker";

/// State shared by the thread of the sockets and the handle of the listener.
pub(crate) struct Shared {
    pub(crate) apis: Apis,
    /// The rules for faults, and the record of requests.
    pub(crate) faults: Arc<Faults>,
    /// The session that is recorded.
    pub(crate) recording: Option<Recording>,
    /// The limits at the start of the listener.
    pub(crate) limits: Limits,
    /// The listener's own properties, which override the broker's.
    config: Vec<(String, String)>,
    pub(crate) stats: Stats,
    pub(crate) completions: Arc<Completions>,
    pub(crate) closing: AtomicBool,
    /// A thread is running the broker's due work.
    due_runs: AtomicBool,
    /// Due work does not run before this time (monotonic ms), because it panicked.
    due_not_before_ms: AtomicI64,
    /// Rounds of the thread of the sockets that threads wait for, and those it has done: see [`Shared::settle`].
    settle_wanted: AtomicU64,
    settle_done: Mutex<u64>,
    settled: Condvar,
    /// Why the port of a node that has started cannot be used.
    pub(crate) node_failure: Mutex<Option<std::io::Error>>,
}

impl Shared {
    pub(crate) fn new(
        apis: Apis,
        faults: Arc<Faults>,
        recording: Option<Recording>,
        limits: Limits,
        config: Vec<(String, String)>,
        completions: Arc<Completions>,
    ) -> Self {
        Self {
            apis,
            faults,
            recording,
            limits,
            config,
            stats: Stats::default(),
            completions,
            closing: AtomicBool::new(false),
            due_runs: AtomicBool::new(false),
            due_not_before_ms: AtomicI64::new(i64::MIN),
            settle_wanted: AtomicU64::new(0),
            settle_done: Mutex::default(),
            settled: Condvar::new(),
            node_failure: Mutex::default(),
        }
    }

    /// Waits until the thread of the sockets has written, as far as the sockets accept it, what was queued before, and has checked for
    /// idle connections; or until the listener closes.
    pub(crate) fn settle(&self) {
        let wanted = self.settle_wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.completions.wake();
        let mut done = self.settle_done.lock().unwrap_or_else(PoisonError::into_inner);
        while *done < wanted && !self.closing.load(Ordering::Acquire) {
            let waited = self.settled.wait_timeout(done, SETTLE_LOOK);
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A round ends that began when this number was wanted.
    fn has_settled(&self, wanted: u64) {
        let mut done = self.settle_done.lock().unwrap_or_else(PoisonError::into_inner);
        *done = wanted;
        self.settled.notify_all();
    }

    /// When the broker's next work is due; `None`: never, or a thread is running it.
    fn due_ms(&self) -> Option<i64> {
        if self.due_runs.load(Ordering::Acquire) {
            return None;
        }
        let next_ms = self.apis.broker().next_deadline()?;
        Some(next_ms.max(self.due_not_before_ms.load(Ordering::Relaxed)))
    }
}

/// Marks the due work as running until it is dropped.
struct DueRun(Arc<Shared>);

impl Drop for DueRun {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let now_ms = self.0.apis.broker().clock().monotonic_ms();
            self.0.due_not_before_ms.store(now_ms + SWEEP_MS, Ordering::Relaxed);
        }
        self.0.due_runs.store(
            planted!("time-outs-of-a-listener-end-with-a-panic") && std::thread::panicking(),
            Ordering::Release,
        );
        self.0.completions.wake();
    }
}

/// A connection and its socket.
struct Channel<S: Sockets> {
    socket: S::Socket,
    /// `None`: the listener speaks without TLS.
    tls: Option<Box<Session>>,
    /// The name in the client's certificate was noted.
    is_identified: bool,
    address: SocketAddr,
    connection: Connection,
    peer: Arc<Peer>,
    serial: u64,
    /// Its number for rules: connections are counted from 1.
    number: u64,
    /// The request in progress, if rules or the record of requests are to see its response.
    exchange: Option<Exchange>,
    /// What of it is in the recorded session.
    recorded: RecordedChannel,
    /// What its request waits for, and how to encode the response.
    waiting: Option<(Ticket, Respond)>,
    /// When bytes moved last.
    last_active_ms: i64,
    /// When its client was first seen to have closed its side.
    half_closed_ms: Option<i64>,
    /// When the first byte of an incomplete request arrived, by the machine's clock.
    frame_begun_ms: Option<i64>,
    /// Since when its socket accepts no bytes, by the machine's clock.
    blocked_since_ms: Option<i64>,
    /// Memory for its large request; it moves to the handler with the request.
    memory: Option<Memory>,
    /// It waits for memory, or until fewer requests wait for a thread; nothing is read.
    is_muted: bool,
    /// Once its response is written, it is closed for this reason.
    closing: Option<String>,
}

impl<S: Sockets> Channel<S> {
    fn times(&self) -> Times {
        Times {
            last_active_ms: self.last_active_ms,
            frame_begun_ms: self.frame_begun_ms,
            blocked_since_ms: self.blocked_since_ms,
            is_busy: self.connection.is_busy(),
            half_closed_since_ms: self
                .half_closed_ms
                .filter(|_| self.connection.is_half_closed())
                .map(|since_ms| since_ms.max(self.last_active_ms)),
        }
    }

    /// Reads from the socket into the room of the connection.
    fn read(&mut self) -> std::io::Result<usize> {
        let room = self.connection.room();
        match &mut self.tls {
            Some(tls) => tls.read(&mut self.socket, room),
            None => self.socket.read(room),
        }
    }

    /// Notes the subject of the client's certificate as its name. Kafka: `SslTransportLayer#peerPrincipal`.
    fn identify(&mut self) {
        if !std::mem::replace(&mut self.is_identified, true)
            && let Some(name) = self.tls.as_ref().and_then(|tls| tls.peer_name())
        {
            self.peer.identify(name);
        }
    }

    /// Writes the next bytes, as many as the socket accepts.
    fn write(&mut self) -> std::io::Result<usize> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(8);
        self.connection.output(&mut slices);
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.socket, &slices),
            None => self.socket.write_vectored(&slices),
        }
    }

    /// Writes what is already encrypted.
    fn flush(&mut self) -> std::io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.socket))
    }

    /// Whether bytes wait to be written.
    fn wants_write(&self) -> bool {
        self.connection.has_output() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

/// The state of the thread of the sockets.
pub(crate) struct Processor<S: Sockets> {
    sockets: S,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    /// The node of each listening socket.
    nodes: Vec<NodeId>,
    /// The listening sockets whose nodes are stopped, as of this number of changes.
    stopped: BTreeSet<usize>,
    node_changes: u64,
    channels: Slab<Channel<S>>,
    per_ip: HashMap<IpAddr, usize>,
    memory: Arc<MemoryPool>,
    /// Connections that are muted for lack of room, in the order in which they were muted. Kafka: `Selector#explicitlyMutedChannels`.
    muted: Vec<ConnectionId>,
    /// Responses to failed authentications, and when to send them (by the machine's clock). Kafka: `Selector#delayedClosingChannels`.
    refused: VecDeque<(i64, ConnectionId, Vec<Bytes>, String)>,
    /// What rules for faults hold back.
    held: faults::HeldBack,
    /// Connections accepted since `rate_begun_ms`.
    accepted: usize,
    /// By the machine's clock, as [`Processor::next_sweep_ms`] and [`Processor::close_by_ms`].
    rate_begun_ms: i64,
    pool: RequestHandlerPool,
    /// The broker is in memory: see [`SMALL_REQUEST`].
    in_memory: bool,
    /// The limits of each node, and the configuration they were last read from.
    limits: Vec<(Option<Arc<Config>>, Limits)>,
    serial: u64,
    next_sweep_ms: i64,
    /// Responses may have used memory that a sweep frees.
    holds_memory: bool,
    close_by_ms: Option<i64>,
    /// The last [`Shared::settle`] that was served.
    settled: u64,
}

impl<S: Sockets> Processor<S> {
    /// Watches these sockets. They have one listener for each node.
    pub(crate) fn new(sockets: S, shared: Arc<Shared>, nodes: Vec<NodeId>, pool: RequestHandlerPool) -> Self {
        Self {
            limits: nodes.iter().map(|_| (None, shared.limits.clone())).collect(),
            sockets,
            clock: shared.apis.broker().clock(),
            pool,
            in_memory: shared.apis.broker().is_in_memory(),
            memory: MemoryPool::new(shared.limits.queued_max_request_bytes, {
                let completions = Arc::clone(&shared.completions);
                move || completions.wake()
            }),
            shared,
            nodes,
            stopped: BTreeSet::new(),
            node_changes: 0,
            channels: Slab::new(),
            per_ip: HashMap::new(),
            muted: Vec::new(),
            refused: VecDeque::new(),
            held: faults::HeldBack::default(),
            accepted: 0,
            rate_begun_ms: 0,
            serial: 0,
            next_sweep_ms: 0,
            holds_memory: false,
            close_by_ms: None,
            settled: 0,
        }
    }

    /// Serves until the listener is closed.
    pub(crate) fn run(mut self) {
        let mut events = Vec::new();
        loop {
            let timeout = self.timeout();
            if let Err(error) = self.sockets.wait(timeout, &mut events) {
                log::error!("the listener ends: its sockets cannot be watched: {error}");
                break;
            }
            for event in events.drain(..) {
                let slot = match event {
                    SocketEvent::Accept(_) => None,
                    SocketEvent::Connection { token, .. } => Some(token),
                };
                self.contained(slot, |processor| processor.on_event(event));
            }
            let wanted = self.shared.settle_wanted.load(Ordering::SeqCst);
            let settles = wanted > self.settled;
            for (id, completion) in self.shared.completions.take() {
                self.contained(Some(id.slot), |processor| processor.on_completion(id, completion));
            }
            self.follow_nodes();
            self.read_muted();
            self.run_timers(settles);
            if settles {
                self.settled = wanted;
                self.shared.has_settled(wanted);
            }
            if self.is_finished() {
                break;
            }
        }
        self.shared.has_settled(u64::MAX);
        self.pool.close();
        for slot in self.channels.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(slot, None);
        }
    }

    /// Runs the work of one connection. A panic closes only that connection.
    fn contained(&mut self, slot: Option<usize>, work: impl FnOnce(&mut Self)) {
        let done = contained("the work for a connection", || work(self));
        if let (None, Some(slot)) = (done, slot) {
            contained("closing a connection", || self.close(slot, Some(DEFECT)));
        }
    }

    /// Closes the connections of nodes that have stopped and refuses new ones; accepts those of nodes that have started.
    fn follow_nodes(&mut self) {
        let broker = Arc::clone(self.shared.apis.broker());
        let changes = broker.node_changes();
        if changes == self.node_changes || self.close_by_ms.is_some() {
            return;
        }
        for (index, node) in self.nodes.clone().into_iter().enumerate() {
            let done = match (broker.is_node_up(node), self.stopped.contains(&index)) {
                (true, true) => {
                    let opened = self.sockets.open_listener(index);
                    if opened.is_ok() {
                        self.stopped.remove(&index);
                    }
                    opened
                }
                (false, false) => {
                    self.stopped.insert(index);
                    let of_node = self.channels.iter().filter(|(_, c)| c.peer.node() == node);
                    for slot in of_node.map(|(slot, _)| slot).collect::<Vec<_>>() {
                        self.contained(Some(slot), |processor| processor.close(slot, None));
                    }
                    self.sockets.close_listener(index)
                }
                _ => Ok(()),
            };
            if let Err(error) = done {
                log::error!("the port of node {node} cannot be used: {error}");
                *self.shared.node_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
        self.node_changes = changes;
    }

    /// How long to wait for events.
    fn timeout(&self) -> Option<Duration> {
        let machine_ms = self.clock.machine_ms();
        let mut until_ms = (!self.channels.is_empty() || self.holds_memory).then_some(self.next_sweep_ms);
        let mut at_most = |ms: Option<i64>| until_ms = [until_ms, ms].into_iter().flatten().min();
        at_most(self.close_by_ms);
        at_most(self.refused.front().map(|(when_ms, ..)| *when_ms));
        if self.is_rate_reached() {
            at_most(Some(self.rate_begun_ms + RATE_MS));
        }
        if self.shared.apis.broker().is_read_only() && self.channels.iter().any(|(_, c)| c.waiting.is_some()) {
            at_most(Some(machine_ms + LOOK_AGAIN_MS));
        }
        let until = until_ms.map(|ms| Duration::from_millis(u64::try_from(ms.saturating_sub(machine_ms)).unwrap_or(0)));
        let by_clock = [self.shared.due_ms(), self.held.next_ms()].into_iter().flatten().min();
        let due = by_clock.and_then(|ms| self.clock.until(ms));
        until.into_iter().chain(due).min()
    }

    fn on_event(&mut self, event: SocketEvent) {
        let (slot, is_writable, peer_end) = match event {
            SocketEvent::Accept(listener) => return self.accept(listener),
            SocketEvent::Connection {
                token,
                is_writable,
                peer_end,
            } => (token, is_writable, peer_end),
        };
        if peer_end > PeerEnd::Open && self.on_end(slot, peer_end) {
            return;
        }
        if is_writable && self.channels.get(slot).is_some_and(Channel::wants_write) {
            self.write(slot);
            self.next_request(slot);
        }
        // Bytes may have arrived while the response was being written; no other event reports them.
        self.read(slot);
    }

    /// Notes what the client has ended, which a muted connection would not read. Returns true if the connection was closed.
    fn on_end(&mut self, slot: usize, peer_end: PeerEnd) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let Some(channel) = self.channels.get_mut(slot) else {
            return false;
        };
        channel.half_closed_ms.get_or_insert(now_ms);
        channel.connection.end(peer_end);
        let is_abandoned = channel.connection.is_abandoned();
        if is_abandoned {
            self.close(slot, None);
        }
        is_abandoned
    }

    /// Applies the limits of a node that were altered at run time. Kafka: `ConnectionQuotas#updateMaxConnections`,
    /// `#updateMaxConnectionsPerIp`, `SocketServer#reconfigure`.
    fn reconfigure(&mut self, index: usize, node: NodeId) {
        let config = self.shared.apis.broker().config_of(node);
        let (seen, limits) = &mut self.limits[index];
        if seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &config)) {
            return;
        }
        match listener_config(&config, &self.shared.config).and_then(|config| Limits::new(&config)) {
            Ok(altered) => {
                let connections_of_process = limits.connections_of_process;
                *limits = Limits {
                    connections_of_process,
                    ..altered
                };
                self.pool.resize(limits.num_io_threads);
            }
            Err(error) => log::error!("the listener of node {node} keeps its limits: {error}"),
        }
        *seen = Some(config);
    }

    /// True if max.connection.creation.rate is reached in this second.
    fn is_rate_reached(&self) -> bool {
        let rates = self
            .limits
            .iter()
            .map(|(_, limits)| limits.max_connection_creation_rate);
        rates.min().is_some_and(|rate| self.accepted >= rate)
    }

    /// Accepts the waiting connections. Kafka: `ConnectionQuotas#recordConnectionAndGetThrottleTimeMs`.
    fn accept(&mut self, index: usize) {
        let now_ms = self.clock.machine_ms();
        if now_ms >= self.rate_begun_ms + RATE_MS {
            (self.accepted, self.rate_begun_ms) = (0, now_ms);
        }
        let Some(&node) = self.nodes.get(index) else {
            return;
        };
        self.reconfigure(index, node);
        while !self.is_rate_reached() {
            match self.sockets.accept(index) {
                Ok((socket, address)) => {
                    self.accepted += 1;
                    // The limits may have been altered since the last check, before the connection arrived.
                    self.reconfigure(index, node);
                    self.open(socket, address, index, node);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // Too few descriptors: the next sweep accepts the waiting connections.
                    log::warn!("a connection could not be accepted: {error}");
                    return;
                }
            }
        }
    }

    fn open(&mut self, mut socket: S::Socket, address: SocketAddr, index: usize, node: NodeId) {
        let of_ip = self.per_ip.get(&address.ip()).copied().unwrap_or(0);
        if let Some(reason) = self.limits[index].1.refuse(self.channels.len(), address.ip(), of_ip) {
            self.shared.stats.refused();
            log::warn!("a connection of {address} was refused: {reason}");
            return;
        }
        let (number, may_stay) = self.may_stay(&mut socket, node);
        if !may_stay {
            return self.shared.stats.refused();
        }
        let tls = match self.shared.apis.security.tls().map(ServerTls::session).transpose() {
            Ok(session) => session.map(Box::new),
            Err(error) => return log::warn!("a connection of {address} could not be opened: {error}"),
        };
        let now_ms = self.clock.monotonic_ms();
        let entry = self.channels.vacant_entry();
        let slot = entry.key();
        if let Err(error) = self.sockets.watch(&mut socket, slot) {
            log::warn!("a connection of {address} could not be opened: {error}");
            return;
        }
        self.serial += 1;
        let host = format!("/{}", address.ip());
        let port = self.shared.apis.broker().connect(node, &host);
        entry.insert(Channel {
            socket,
            // The handshake has the time limit of a request.
            frame_begun_ms: tls.is_some().then(|| self.clock.machine_ms()),
            tls,
            is_identified: false,
            address,
            connection: Connection::default(),
            peer: Arc::new(Peer::new(port, address, self.shared.apis.security.sasl().is_some())),
            serial: self.serial,
            number,
            exchange: None,
            recorded: RecordedChannel::default(),
            waiting: None,
            last_active_ms: now_ms,
            half_closed_ms: None,
            blocked_since_ms: None,
            memory: None,
            is_muted: false,
            closing: None,
        });
        *self.per_ip.entry(address.ip()).or_default() += 1;
        self.shared.stats.opened();
        if let Some(recording) = &self.shared.recording {
            recording.opened(number, node, address);
        }
        self.read(slot);
    }

    /// Closes a connection; a reason is logged.
    fn close(&mut self, slot: usize, reason: Option<&str>) {
        let Some(mut channel) = self.channels.try_remove(slot) else {
            return;
        };
        if let Some(reason) = reason {
            // What a test asks for is no warning.
            let level = match reason == faults::FAULT {
                true => log::Level::Debug,
                false => log::Level::Warn,
            };
            log::log!(level, "the connection of {} was closed: {reason}", channel.peer.name());
        }
        if let Some((ticket, _)) = &channel.waiting {
            ticket.cancel();
        }
        let id = ConnectionId {
            slot,
            serial: channel.serial,
        };
        self.record_end(&mut channel, reason);
        self.forget_held(id, channel.number, channel.exchange.take(), reason.is_some());
        self.shared.apis.unsent().remove(channel.connection.unsent());
        if let Some(tls) = &mut channel.tls {
            tls.close(&mut channel.socket);
        }
        self.sockets.forget(&mut channel.socket);
        if let Some(count) = self.per_ip.get_mut(&channel.address.ip()) {
            *count -= 1;
            if *count == 0 {
                self.per_ip.remove(&channel.address.ip());
            }
        }
        self.shared.stats.closed();
    }

    /// Reads until a request is complete, the socket is empty, or other connections are due.
    fn read(&mut self, slot: usize) {
        let mut left = BYTES_A_TURN;
        while left > 0 {
            let Some(channel) = self.channels.get_mut(slot) else {
                return;
            };
            if channel.connection.is_muted() || channel.is_muted || self.close_by_ms.is_some() {
                return;
            }
            if self.pool.is_full() {
                return self.mute(slot);
            }
            if !self.take_memory(slot) {
                return;
            }
            let Some(channel) = self.channels.get_mut(slot) else {
                return;
            };
            match channel.read() {
                Ok(0) => return self.close(slot, None),
                Ok(count) => {
                    left = left.saturating_sub(count);
                    channel.identify();
                    channel.connection.received(count);
                    self.shared.stats.received(count);
                    self.next_request(slot);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    channel.connection.trim();
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let why = TlsFailure::of(&error).map(ToString::to_string);
                    return self.close(slot, why.as_deref());
                }
            }
        }
        // No further event reports bytes that arrived before: reading continues with the next round of completions.
        self.go_on(slot);
    }

    /// Takes memory for a large request before more of it is read. Without memory, the connection is muted until some is free.
    fn take_memory(&mut self, slot: usize) -> bool {
        let Some(channel) = self.channels.get_mut(slot) else {
            return false;
        };
        let Some(size) = channel.connection.large_frame().filter(|_| channel.memory.is_none()) else {
            return true;
        };
        channel.memory = self.memory.take(size);
        let is_granted = channel.memory.is_some();
        channel.frame_begun_ms = Some(self.clock.machine_ms());
        if !is_granted {
            self.mute(slot);
        }
        is_granted
    }

    /// Stops reading from a connection until there may be room for its request. Kafka: `KafkaChannel#mute`.
    fn mute(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        channel.is_muted = true;
        // The client is not timed out for waiting.
        channel.frame_begun_ms = None;
        self.muted.push(ConnectionId {
            slot,
            serial: channel.serial,
        });
    }

    /// Lets connections that wait for room try again.
    fn read_muted(&mut self) {
        if self.pool.is_full() {
            return;
        }
        for id in std::mem::take(&mut self.muted) {
            let current = self.channels.get_mut(id.slot).filter(|c| c.serial == id.serial);
            if let Some(channel) = current {
                channel.is_muted = false;
                self.contained(Some(id.slot), |processor| processor.read(id.slot));
            }
        }
    }

    fn go_on(&mut self, slot: usize) {
        if let Some(channel) = self.channels.get(slot) {
            let id = ConnectionId {
                slot,
                serial: channel.serial,
            };
            self.shared.completions.push(id, Completion::Resume);
        }
    }

    /// Submits the next complete request to a handler.
    fn next_request(&mut self, slot: usize) {
        let now_ms = self.clock.monotonic_ms();
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        if channel.connection.is_muted() || self.close_by_ms.is_some() {
            return;
        }
        channel.last_active_ms = now_ms;
        let frame = match channel
            .connection
            .next_frame(channel.peer.largest_request(&self.shared.limits))
        {
            Ok(frame) => frame,
            Err(bad) => return self.close(slot, Some(&bad.to_string())),
        };
        let Some(frame) = frame else {
            let within = channel.connection.is_within_frame();
            let begun_ms = || channel.frame_begun_ms.unwrap_or_else(|| self.clock.machine_ms());
            channel.frame_begun_ms = within.then(begun_ms);
            return;
        };
        channel.frame_begun_ms = None;
        let id = ConnectionId {
            slot,
            serial: channel.serial,
        };
        if let Some(recording) = &self.shared.recording {
            recording.request(channel.number, &mut channel.recorded, &channel.peer, &frame);
        }
        if !self.decided(id, &frame) {
            let peer = Arc::clone(&self.channels[slot].peer);
            self.handle(id, peer, frame);
        }
    }

    /// Handles a request, or submits it to a handler.
    fn handle(&mut self, id: ConnectionId, peer: Arc<Peer>, frame: Bytes) {
        let current = self.channels.get_mut(id.slot).filter(|c| c.serial == id.serial);
        let memory = current.and_then(|channel| channel.memory.take());
        let reply = Reply::new(Arc::clone(&self.shared.completions), id);
        let shared = Arc::clone(&self.shared);
        let is_short = self.in_memory && frame.len() <= SMALL_REQUEST;
        let job: Job = Box::new(move || {
            let handled = shared.apis.handle(&peer, frame, &shared.stats);
            drop(memory);
            reply.report(handled);
        });
        if is_short {
            run(job);
        } else {
            self.pool.submit(job);
        }
    }

    fn on_completion(&mut self, id: ConnectionId, completion: Completion) {
        let current = self.channels.get_mut(id.slot).filter(|c| c.serial == id.serial);
        let Some(channel) = current else {
            return match completion {
                Completion::Waiting(ticket, _) => ticket.cancel(),
                Completion::Released => self.resume(id),
                _ => {}
            };
        };
        match completion {
            Completion::Answer(chunks, reserved) => {
                self.answer(id.slot, chunks);
                drop(reserved);
            }
            Completion::NoAnswer => self.answer(id.slot, Vec::new()),
            Completion::Close(reason) => self.close(id.slot, Some(&reason)),
            Completion::Refuse(chunks, reason) => {
                let when_ms = self.clock.machine_ms() + self.shared.limits.failed_authentication_delay_ms;
                self.refused.push_back((when_ms, id, chunks, reason));
            }
            Completion::Waiting(ticket, respond) => {
                channel.waiting = Some((ticket, respond));
                channel.connection.wait();
                if channel.connection.is_abandoned() {
                    self.close(id.slot, None);
                }
            }
            Completion::Response(response) => {
                let Some((_, respond)) = channel.waiting.take() else {
                    return;
                };
                match respond(response) {
                    Ok(chunks) => self.answer(
                        id.slot,
                        if planted!("listener-forgets-the-answer-to-a-request-that-waited") {
                            Vec::new()
                        } else {
                            chunks
                        },
                    ),
                    Err(error) => self.close(id.slot, Some(&format!("its answer cannot be encoded: {error}"))),
                }
            }
            Completion::Released => self.resume(id),
            Completion::Resume => {
                self.write(id.slot);
                self.next_request(id.slot);
                self.read(id.slot);
            }
        }
    }

    /// The response of a request is ready.
    fn answer(&mut self, slot: usize, chunks: Vec<Bytes>) {
        match self.channels.get_mut(slot).and_then(|channel| channel.exchange.take()) {
            Some(exchange) => self.answered(slot, exchange, chunks),
            None => {
                let outcome = if chunks.is_empty() { WITHOUT_RESPONSE } else { ANSWERED };
                self.record_response(slot, &chunks, outcome, None);
                self.send(slot, chunks);
            }
        }
    }

    /// Records what is sent in response to the request in progress.
    fn record_response(&mut self, slot: usize, chunks: &[Bytes], outcome: &'static str, fault: Option<Arc<str>>) {
        if let (Some(recording), Some(channel)) = (&self.shared.recording, self.channels.get_mut(slot)) {
            recording.response(&mut channel.recorded, chunks, outcome, fault);
        }
    }

    /// Records that a connection was closed, and its request with it.
    fn record_end(&self, channel: &mut Channel<S>, reason: Option<&str>) {
        if let Some(recording) = &self.shared.recording {
            let outcome = if reason.is_some() { CLOSED } else { CLIENT_GONE };
            let fault = channel.exchange.as_ref().and_then(Exchange::fault);
            recording.response(&mut channel.recorded, &[], outcome, fault);
            recording.closed(channel.number, reason);
        }
    }

    /// Writes a response, then continues with the next request.
    fn send(&mut self, slot: usize, chunks: Vec<Bytes>) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        channel.connection.answer(chunks);
        self.holds_memory = true;
        self.shared.apis.unsent().add(channel.connection.unsent());
        self.write(slot);
        self.next_request(slot);
        self.read(slot);
    }

    fn write(&mut self, slot: usize) {
        let now_ms = self.clock.monotonic_ms();
        let mut left = BYTES_A_TURN;
        while left > 0 {
            let Some(channel) = self.channels.get_mut(slot) else {
                return;
            };
            if !channel.wants_write() {
                channel.blocked_since_ms = None;
                if let Some(reason) = channel.closing.take() {
                    self.close(slot, Some(&reason));
                }
                return;
            }
            let written = match channel.connection.has_output() {
                true => channel.write(),
                false => channel.flush().map(|()| 0),
            };
            match written {
                Ok(0) if !channel.connection.has_output() => {}
                Ok(0) => return self.close(slot, None),
                Ok(count) => {
                    left = left.saturating_sub(count);
                    let gone = channel.connection.written(count);
                    self.shared.apis.unsent().remove(gone);
                    channel.last_active_ms = now_ms;
                    channel.blocked_since_ms = None;
                    self.shared.stats.sent(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    channel.blocked_since_ms.get_or_insert_with(|| self.clock.machine_ms());
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(slot, None),
            }
        }
        self.go_on(slot);
    }

    /// Sends the delayed responses to failed authentications, and closes the connections.
    fn refuse(&mut self, machine_ms: i64) {
        while self.refused.front().is_some_and(|(when_ms, ..)| *when_ms <= machine_ms) {
            let Some((_, id, chunks, reason)) = self.refused.pop_front() else {
                return;
            };
            let current = self.channels.get_mut(id.slot).filter(|c| c.serial == id.serial);
            if let Some(channel) = current {
                channel.closing = Some(reason);
                self.contained(Some(id.slot), |processor| processor.answer(id.slot, chunks));
            }
        }
    }

    /// Runs the timed work: waiting requests of the broker, idle connections (at once if `settles`), closing.
    fn run_timers(&mut self, settles: bool) {
        let (now_ms, machine_ms) = (self.clock.monotonic_ms(), self.clock.machine_ms());
        let broker = self.shared.apis.broker();
        let look = broker.is_read_only() && self.channels.iter().any(|(_, c)| c.waiting.is_some());
        let due = look || self.shared.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        if due && !self.shared.due_runs.swap(true, Ordering::AcqRel) {
            let run = DueRun(Arc::clone(&self.shared));
            self.pool.submit(Box::new(move || run.0.apis.broker().run_due()));
        }
        if self.is_rate_reached() && machine_ms >= self.rate_begun_ms + RATE_MS {
            (0..self.nodes.len()).for_each(|index| self.contained(None, |processor| processor.accept(index)));
        }
        self.refuse(machine_ms);
        self.resume_due(now_ms);
        if machine_ms >= self.next_sweep_ms || settles {
            self.next_sweep_ms = machine_ms + SWEEP_MS;
            self.sweep(now_ms, machine_ms);
        }
        if self.close_by_ms.is_none() && self.shared.closing.load(Ordering::Acquire) {
            self.close_by_ms = Some(machine_ms + self.shared.limits.close_grace_ms);
            self.sockets.close_listeners();
            self.nodes.clear();
        }
    }

    /// Closes connections that have timed out, and accepts those that could not be accepted before.
    fn sweep(&mut self, now_ms: i64, machine_ms: i64) {
        self.holds_memory = self.shared.apis.broker().free_unused_memory();
        for index in 0..self.nodes.len() {
            self.contained(None, |processor| processor.accept(index));
        }
        let over: Vec<(usize, TimeOut)> = self
            .channels
            .iter()
            .filter_map(|(slot, channel)| {
                let time_out = self.shared.limits.time_out(&channel.times(), now_ms, machine_ms)?;
                Some((slot, time_out))
            })
            .collect();
        for (slot, time_out) in over {
            let reason = time_out.is_reported().then(|| time_out.to_string());
            self.contained(Some(slot), |processor| {
                place(|| format!("time-out of {:?}", processor.channels.get(slot).map(|c| c.address)));
                processor.close(slot, reason.as_deref());
            });
        }
        if self.shared.apis.unsent().is_over() {
            self.close_slow_readers(machine_ms);
        }
    }

    /// Closes the connections that have accepted no bytes for longest, until the unsent responses fit the budget.
    fn close_slow_readers(&mut self, machine_ms: i64) {
        let since = |(slot, channel): (usize, &Channel<S>)| Some((channel.blocked_since_ms?, slot));
        let mut deaf: Vec<(i64, usize)> = self.channels.iter().filter_map(since).collect();
        deaf.sort_unstable();
        for (since_ms, slot) in deaf {
            if machine_ms - since_ms < SWEEP_MS || !self.shared.apis.unsent().is_over() {
                return;
            }
            let reason = "it takes nothing of its answer, and answers wait that are more than queued.max.request.bytes";
            self.close(slot, Some(reason));
        }
    }

    /// The listener is closing, and all responses were sent or the grace period is over.
    fn is_finished(&self) -> bool {
        self.close_by_ms.is_some_and(|close_by_ms| {
            let is_quiet = |(slot, c): (usize, &Channel<S>)| {
                c.connection.is_waiting()
                    || !(c.connection.is_busy() || c.wants_write())
                    || self.is_held(slot, c.serial)
            };
            self.channels.iter().all(is_quiet) || self.clock.machine_ms() >= close_by_ms
        })
    }
}
