//! Connections in memory. A write is cut into pieces that arrive one after the other with delays; a piece may be the last one of its
//! connection; a direction may stall for a while; buffers are limited.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Result};
use std::sync::{Arc, Mutex, Weak};

use fletchlog_api::NodeId;

use super::super::memory::Batch;
use super::super::network::{Faults, Net, lock};
use super::super::scheduler::{ActorId, Scheduler};
use super::super::share_tap::{SharedTap, tap};
use super::flow::{End, Flow};
use super::tap::{Answered, Tap};
use crate::rng::Rng;

/// The number of a connection.
pub(super) type PipeId = u64;
/// The number of a watcher of sockets.
pub(super) type WatcherId = usize;
/// The listener's watcher.
pub(super) const LISTENER: WatcherId = 0;

/// Sizes of the buffers: for bytes from clients, and for bytes from the listener.
const CAPACITIES: [[usize; 3]; 2] = [[500, 4_000, 65_536], [16_000, 65_536, 1_000_000]];
/// Longest stall of a direction, ms: longer than a client waits.
const LONGEST_STALL_MS: usize = 20_000;
/// A longer delay than this is a stall, ms.
const STALLED_MS: i64 = 2_500;
/// Most pieces that a write is cut into.
const PIECES: usize = 4;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Listener,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Listener,
            Self::Listener => Self::Client,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Refused,
    Open,
}

struct Pipe {
    node: NodeId,
    state: State,
    client: WatcherId,
    client_token: usize,
    /// Set once the listener watches it.
    listener_token: Option<usize>,
    /// The flows from the client and to it.
    up: Flow,
    down: Flow,
    is_broken: bool,
    tap: Tap,
}

impl Pipe {
    fn incoming(&mut self, side: Side) -> &mut Flow {
        match side {
            Side::Client => &mut self.down,
            Side::Listener => &mut self.up,
        }
    }

    fn outgoing(&mut self, side: Side) -> &mut Flow {
        self.incoming(side.other())
    }

    fn token(&self, side: Side) -> Option<usize> {
        match side {
            Side::Client => Some(self.client_token),
            Side::Listener => self.listener_token,
        }
    }

    fn watcher(&self, side: Side) -> WatcherId {
        match side {
            Side::Client => self.client,
            Side::Listener => LISTENER,
        }
    }
}

/// The state of one end of a connection after a change.
pub(super) struct Change {
    pub token: usize,
    pub has_room: bool,
    pub has_ended: bool,
    pub is_reset: bool,
}

#[derive(Default)]
struct Watcher {
    actor: ActorId,
    /// Connections with changes, oldest first.
    changed: Vec<PipeId>,
}

/// Every connection of a run.
pub(in super::super) struct Pipes {
    net: Weak<Mutex<Net>>,
    scheduler: Arc<Scheduler>,
    rng: Rng,
    faults: Faults,
    pipes: BTreeMap<PipeId, Pipe>,
    opened: PipeId,
    watchers: Vec<Watcher>,
    /// The number of the current listener; `None`: no listener is running.
    listening: Option<u64>,
    listened: u64,
    /// Connections that wait to be accepted, by node.
    waiting: BTreeMap<NodeId, VecDeque<PipeId>>,
    /// Nodes with new waiting connections.
    knocked: BTreeSet<NodeId>,
    /// Stopped nodes.
    refusing: BTreeSet<NodeId>,
    /// Paused nodes, and the time until which no bytes arrive there.
    paused: BTreeMap<NodeId, i64>,
    /// Requests that reached the listener.
    pub requests: u64,
    /// API keys of the requests that reached it after their client had closed the connection.
    pub late: BTreeSet<i16>,
    /// Requests that should have failed when their connection did.
    pub unanswered: Vec<String>,
    /// Batches whose connection was closed before their responses.
    lost: Vec<Batch>,
    shares: SharedTap,
}

impl Pipes {
    pub fn new(net: Weak<Mutex<Net>>, scheduler: Arc<Scheduler>, rng: Rng, faults: Faults, shares: SharedTap) -> Self {
        Self {
            net,
            scheduler,
            rng,
            faults,
            pipes: BTreeMap::new(),
            opened: 0,
            watchers: vec![Watcher::default()],
            listening: None,
            listened: 0,
            waiting: BTreeMap::new(),
            knocked: BTreeSet::new(),
            refusing: BTreeSet::new(),
            paused: BTreeMap::new(),
            requests: 0,
            late: BTreeSet::new(),
            unanswered: Vec::new(),
            lost: Vec::new(),
            shares,
        }
    }

    /// Adds an actor that watches sockets.
    pub(super) fn watcher(&mut self, actor: ActorId) -> WatcherId {
        self.watchers.push(Watcher {
            actor,
            ..Watcher::default()
        });
        self.watchers.len() - 1
    }

    /// Starts the listener, whose thread is this actor. Returns its number.
    pub(super) fn listen(&mut self, actor: ActorId) -> u64 {
        self.watchers[LISTENER].actor = actor;
        self.listened += 1;
        self.listening = Some(self.listened);
        self.listened
    }

    /// Whether this listener is still running.
    pub(super) fn is_listening(&self, which: u64) -> bool {
        self.listening == Some(which)
    }

    /// Lets the listener look at what has changed in the broker.
    pub fn wake_listener(&self) {
        self.scheduler.notify(self.watchers[LISTENER].actor);
    }

    /// Kills the listener's process: the operating system closes its sockets.
    pub fn kill_listener(&mut self) {
        self.listening = None;
        self.waiting.clear();
        self.knocked.clear();
        self.refusing.clear();
        let open = |(&id, pipe): (&PipeId, &Pipe)| (pipe.state == State::Open).then_some(id);
        let open: Vec<PipeId> = self.pipes.iter().filter_map(open).collect();
        open.into_iter().for_each(|id| self.close(id, Side::Listener));
        self.watchers[LISTENER].changed.clear();
        self.wake_listener();
    }

    /// A node is stopped: connections that wait there are closed, and new ones are refused. `which` listener noticed it.
    pub(super) fn refuse(&mut self, which: u64, node: NodeId) {
        if !self.is_listening(which) {
            return;
        }
        self.refusing.insert(node);
        let waiting = self.waiting.remove(&node).unwrap_or_default();
        waiting.into_iter().for_each(|id| self.close(id, Side::Listener));
    }

    /// A stopped node has started.
    pub(super) fn accept_again(&mut self, node: NodeId) {
        self.refusing.remove(&node);
    }

    /// Delays bytes to a node until a time.
    pub fn pause(&mut self, node: NodeId, until_ms: i64) {
        self.paused.insert(node, until_ms);
    }

    /// Ends the faults, and breaks stalled connections.
    pub fn heal(&mut self) {
        self.faults = Faults {
            latency_ms: self.faults.latency_ms,
            ..Faults::default()
        };
        self.paused.clear();
        let late_ms = self.scheduler.now() + STALLED_MS;
        let stalled = |(&id, pipe): (&PipeId, &Pipe)| (pipe.up.last_ms.max(pipe.down.last_ms) > late_ms).then_some(id);
        let stalled: Vec<PipeId> = self.pipes.iter().filter_map(stalled).collect();
        stalled.into_iter().for_each(|id| self.break_off(id));
    }

    fn later(&self, at_ms: i64, event: impl FnOnce(&mut Self) + Send + 'static) {
        let net = self.net.clone();
        let event = move || {
            if let Some(net) = net.upgrade() {
                event(&mut lock(&net).pipes);
            }
        };
        self.scheduler.plan(at_ms, Box::new(event));
    }

    fn latency(&mut self) -> i64 {
        let most = if self.rng.chance(self.faults.slow) {
            2_000
        } else {
            self.faults.latency_ms
        };
        1 + i64::try_from(self.rng.below(most + 1)).unwrap_or(0)
    }

    /// Begins to connect to a node.
    pub(super) fn connect(&mut self, client: WatcherId, client_token: usize, node: NodeId) -> PipeId {
        self.opened += 1;
        let id = self.opened;
        let [up, down] = CAPACITIES.map(|sizes| Flow::new(sizes[self.rng.below(sizes.len())]));
        let pipe = Pipe {
            node,
            state: State::Connecting,
            client,
            client_token,
            listener_token: None,
            up,
            down,
            is_broken: false,
            tap: Tap::default(),
        };
        self.pipes.insert(id, pipe);
        // Some attempts never get a response.
        if !self.rng.chance(self.faults.silence) {
            let at_ms = self.scheduler.now() + self.latency();
            self.later(at_ms, move |pipes| pipes.knock(id));
        }
        id
    }

    /// An attempt to connect arrives.
    fn knock(&mut self, id: PipeId) {
        let breaks = self.rng.chance(self.faults.close_before);
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let listens = self.listening.is_some() && !breaks && !self.refusing.contains(&pipe.node);
        pipe.state = if listens { State::Open } else { State::Refused };
        if listens {
            self.waiting.entry(pipe.node).or_default().push_back(id);
            self.knocked.insert(pipe.node);
            self.scheduler.notify(self.watchers[LISTENER].actor);
        }
        self.change(id, Side::Client);
    }

    /// The outcome of an attempt to connect.
    pub(super) fn connected(&self, id: PipeId) -> Result<()> {
        match self.pipes.get(&id).map(|pipe| pipe.state) {
            Some(State::Open) => Ok(()),
            Some(State::Connecting) => Err(ErrorKind::NotConnected.into()),
            Some(State::Refused) | None => Err(ErrorKind::ConnectionRefused.into()),
        }
    }

    /// Takes the next connection that waits to be accepted at a node.
    pub(super) fn accept(&mut self, node: NodeId) -> Option<PipeId> {
        self.waiting.get_mut(&node)?.pop_front()
    }

    /// Makes the listener watch a connection.
    pub(super) fn watch(&mut self, id: PipeId, token: usize) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.listener_token = Some(token);
            self.change(id, Side::Listener);
        }
    }

    /// A client gives up requests to a node that had no response in time. If its connection was already lost, they should have failed
    /// before.
    pub(super) fn give_up(&mut self, client: WatcherId, node: NodeId, requests: usize) {
        let mut of_client = self
            .pipes
            .values()
            .filter(|pipe| pipe.client == client && pipe.node == node);
        if of_client.all(|pipe| pipe.down.unread) {
            let text = format!("{requests} requests to node {node} did not fail when their connection did");
            self.unanswered.push(text);
        }
    }

    /// Notifies the watcher of this end.
    fn change(&mut self, id: PipeId, side: Side) {
        let Some(pipe) = self.pipes.get(&id) else { return };
        let watcher = &mut self.watchers[pipe.watcher(side)];
        if pipe.token(side).is_some() {
            if !watcher.changed.contains(&id) {
                watcher.changed.push(id);
            }
            self.scheduler.notify(watcher.actor);
        }
    }

    pub(super) fn has_changes(&self, watcher: WatcherId) -> bool {
        !self.watchers[watcher].changed.is_empty() || (watcher == LISTENER && !self.knocked.is_empty())
    }

    /// Nodes with new waiting connections since the last call.
    pub(super) fn take_knocked(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.knocked)
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self, watcher: WatcherId) -> Vec<Change> {
        let side = if watcher == LISTENER {
            Side::Listener
        } else {
            Side::Client
        };
        let mut changes = Vec::new();
        for id in std::mem::take(&mut self.watchers[watcher].changed) {
            let Some(pipe) = self.pipes.get_mut(&id) else { continue };
            let Some(token) = pipe.token(side) else { continue };
            changes.push(Change {
                token,
                has_room: pipe.outgoing(side).room() > 0,
                has_ended: pipe.incoming(side).end.is_some() || pipe.state == State::Refused,
                is_reset: pipe.incoming(side).end == Some(End::Reset),
            });
        }
        changes
    }

    /// Writes as many bytes as fit. Also returns the responses to Produce requests among them.
    pub(super) fn write(&mut self, id: PipeId, side: Side, bytes: &[u8]) -> (Result<usize>, Vec<Answered>) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return (Err(ErrorKind::BrokenPipe.into()), Vec::new());
        };
        let answered = match side {
            Side::Listener => {
                let shares = &mut tap(&self.shares);
                pipe.tap
                    .offered(bytes, |asked, response| shares.answered((id, 0), asked, response))
            }
            Side::Client => Vec::new(),
        };
        if pipe.is_broken {
            return (Err(ErrorKind::BrokenPipe.into()), answered);
        }
        let taken = pipe.outgoing(side).take(bytes.len());
        if let Ok(count) = taken {
            if side == Side::Listener {
                pipe.tap.taken(count);
            }
            self.send(id, side, &bytes[..count]);
        }
        (taken, answered)
    }

    /// Sends bytes in pieces. If the connection breaks, only some of them are sent.
    fn send(&mut self, id: PipeId, side: Side, mut bytes: &[u8]) {
        let (latency, now_ms) = (self.latency(), self.scheduler.now());
        let stalls = self.rng.chance(self.faults.silence);
        let stall_ms = self.rng.below(LONGEST_STALL_MS);
        let breaks = match side {
            Side::Client => self.faults.close_before,
            Side::Listener => self.faults.close_after,
        };
        let breaks = self.rng.chance(breaks);
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let until_ms = if side == Side::Client {
            self.paused.get(&pipe.node)
        } else {
            None
        };
        let flow = pipe.outgoing(side);
        let mut at_ms = flow.last_ms.max(now_ms + latency).max(until_ms.copied().unwrap_or(0));
        if stalls {
            at_ms += i64::try_from(stall_ms).unwrap_or(0);
        }
        if breaks {
            let kept = self.rng.below(bytes.len() + 1);
            flow.lose(bytes.len() - kept);
            bytes = &bytes[..kept];
        }
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let size = match pieces.len() + 1 {
                PIECES => bytes.len(),
                _ => 1 + self.rng.below(bytes.len()),
            };
            let (piece, rest) = bytes.split_at(size);
            at_ms += i64::try_from(self.rng.below(3)).unwrap_or(0);
            pieces.push((at_ms, piece.to_vec()));
            bytes = rest;
        }
        flow.last_ms = at_ms;
        for (at_ms, piece) in pieces {
            self.later(at_ms, move |pipes| pipes.arrive(id, side.other(), &piece));
        }
        if breaks {
            self.later(at_ms, move |pipes| pipes.break_off(id));
        }
    }

    fn arrive(&mut self, id: PipeId, side: Side, bytes: &[u8]) {
        let Some(pipe) = self.pipes.get_mut(&id).filter(|pipe| !pipe.is_broken) else {
            return;
        };
        let flow = pipe.incoming(side);
        if flow.unread {
            return self.break_off(id);
        }
        flow.arrive(bytes);
        self.change(id, side);
    }

    /// Reads the bytes that have arrived.
    pub(super) fn read(&mut self, id: PipeId, side: Side, into: &mut [u8]) -> Result<usize> {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return Err(ErrorKind::ConnectionReset.into());
        };
        let flow = pipe.incoming(side);
        let count = flow.read(into)?;
        let is_free_again = flow.is_free_again();
        if side == Side::Listener {
            let is_late = pipe.is_broken || pipe.down.unread;
            let shares = &mut tap(&self.shares);
            let keys = pipe
                .tap
                .read(&into[..count], |asked, request| shares.asked((id, 0), asked, request));
            for key in keys {
                self.requests += 1;
                self.late.extend(is_late.then_some(key));
            }
        }
        if is_free_again {
            let now_ms = self.scheduler.now();
            self.later(now_ms, move |pipes| pipes.change(id, side.other()));
        }
        Ok(count)
    }

    /// The batches that the broker has received and not answered so far.
    pub fn pending(&self) -> Vec<&Batch> {
        self.pipes.values().flat_map(|pipe| pipe.tap.pending()).collect()
    }

    /// The batches that the broker has received and will not answer, since the last call.
    pub fn take_lost(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.lost)
    }

    /// Breaks the connection for both ends, after the bytes that have arrived.
    fn break_off(&mut self, id: PipeId) {
        let end = if self.rng.chance(500) { End::Reset } else { End::Closed };
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        pipe.is_broken = true;
        tap(&self.shares).ended((id, 0));
        for side in [Side::Client, Side::Listener] {
            if let Some(pipe) = self.pipes.get_mut(&id) {
                pipe.incoming(side).end.get_or_insert(end);
                self.change(id, side);
            }
        }
    }

    /// Closes one end: the bytes that it has written still arrive, then the other end sees the end of the stream.
    pub(super) fn close(&mut self, id: PipeId, side: Side) {
        let latency = self.latency();
        tap(&self.shares).ended((id, 0));
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        if pipe.incoming(side).unread {
            return;
        }
        let end = match pipe.incoming(side).forsake() {
            true => End::Reset,
            false => End::Closed,
        };
        if side == Side::Listener {
            pipe.listener_token = None;
            self.lost.extend(pipe.tap.unanswered());
        }
        if pipe.state != State::Open || pipe.outgoing(side).unread {
            self.pipes.remove(&id);
            return;
        }
        let at_ms = pipe.outgoing(side).last_ms.max(self.scheduler.now() + latency);
        self.later(at_ms, move |pipes| {
            if let Some(pipe) = pipes.pipes.get_mut(&id) {
                pipe.incoming(side.other()).end.get_or_insert(end);
                pipes.change(id, side.other());
            }
        });
    }
}
