//! A transport whose requests and answers a test sees, changes the time of, and holds back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::transport::Waker;
use fletchlog_api::{
    Completion, InProcess, LegacyGroupRequest, LegacyGroupResponse, NodeId, Ready, Request, Transport,
};

use crate::VirtualClock;

/// What is done with requests and answers that pass.
pub trait Watch: Send {
    /// Answers are seen when they arrive, and not only when the client looks for them.
    const AT_ONCE: bool = false;
    /// The client takes the other side for one in another process.
    const REMOTE: bool = false;
    /// A request is about to be sent.
    fn sending(&mut self, node: NodeId, correlation_id: i32, request: &Request) {
        let _ = (node, correlation_id, request);
    }
    /// An answer has come.
    fn arrived(&mut self, completion: &Completion) {
        let _ = completion;
    }
    /// The client gets this answer now; false: not yet, and later ones overtake it.
    fn passes(&self, completion: &Completion) -> bool {
        let _ = completion;
        true
    }
}

/// What is behind a [`WatchedTransport`].
pub struct Watched<T, W> {
    inner: T,
    /// Who watches.
    pub watch: W,
    /// The clock that waiting moves, and by how much at a time, ms.
    clock: Option<(Arc<VirtualClock>, i64)>,
    nodes: BTreeSet<NodeId>,
    held: VecDeque<Completion>,
}

impl<T: Transport, W: Watch> Watched<T, W> {
    /// Takes over what has arrived, if it is to be seen at once.
    pub fn pull(&mut self) {
        if W::AT_ONCE {
            for &node in &self.nodes {
                while let Some(completion) = self.inner.receive(node) {
                    self.watch.arrived(&completion);
                    self.held.push_back(completion);
                }
            }
        }
    }

    fn has_held(&self, from: impl Fn(NodeId) -> bool) -> bool {
        self.held.iter().any(|c| from(c.node) && self.watch.passes(c))
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.pull();
        self.has_held(|from| from == node) || self.inner.has_arrived(node)
    }

    /// Lets the other side do what is due, without time passing.
    pub fn look(&mut self) -> bool {
        self.inner.wait(Duration::ZERO);
        let nodes = self.nodes.clone();
        nodes.into_iter().any(|node| self.has_arrived(node))
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        let Some((clock, step_ms)) = self.clock.clone() else {
            return self.has_held(|_| true) || self.inner.wait(timeout);
        };
        let mut left_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        loop {
            if self.look() {
                return true;
            }
            assert!(left_ms < 1 << 40, "waits for ever: nothing will happen any more");
            if left_ms <= 0 {
                return false;
            }
            let passed_ms = step_ms.min(left_ms);
            clock.advance(passed_ms);
            left_ms -= passed_ms;
        }
    }
}

/// A real transport that is watched. Clones are handles of the same one.
pub struct WatchedTransport<T, W>(Arc<Mutex<Watched<T, W>>>);

impl<T, W> Clone for WatchedTransport<T, W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Transport, W: Watch> WatchedTransport<T, W> {
    /// Waits as the transport waits.
    pub fn new(inner: T, watch: W) -> Self {
        Self::with_clock(inner, watch, None)
    }

    /// Waiting moves this clock, so many ms at a time, and takes no real time.
    pub fn on_clock(inner: T, watch: W, clock: &Arc<VirtualClock>, step_ms: i64) -> Self {
        Self::with_clock(inner, watch, Some((Arc::clone(clock), step_ms)))
    }

    fn with_clock(inner: T, watch: W, clock: Option<(Arc<VirtualClock>, i64)>) -> Self {
        Self(Arc::new(Mutex::new(Watched {
            inner,
            watch,
            clock,
            nodes: BTreeSet::new(),
            held: VecDeque::new(),
        })))
    }

    /// The transport and who watches it.
    pub fn lock(&self) -> MutexGuard<'_, Watched<T, W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the other side, if it is in this process.
    fn ask<R>(&self, otherwise: R, call: impl FnOnce(&mut dyn InProcess) -> R) -> R {
        self.lock().inner.in_process().map_or(otherwise, call)
    }
}

impl<T: Transport, W: Watch> Transport for WatchedTransport<T, W> {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.lock().inner.bootstrap()
    }
    fn ready(&mut self, node: NodeId) -> Ready {
        self.lock().inner.ready(node)
    }
    fn transaction_version(&self) -> i16 {
        self.lock().inner.transaction_version()
    }
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        let mut watched = self.lock();
        watched.watch.sending(node, correlation_id, &request);
        watched.nodes.insert(node);
        watched.inner.send(node, correlation_id, request);
        watched.pull();
    }
    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        let mut watched = self.lock();
        watched.pull();
        let Watched { inner, watch, held, .. } = &mut *watched;
        if let Some(at) = held.iter().position(|c| c.node == node && watch.passes(c)) {
            return held.remove(at);
        }
        while let Some(completion) = inner.receive(node) {
            watch.arrived(&completion);
            if watch.passes(&completion) {
                return Some(completion);
            }
            held.push_back(completion);
        }
        None
    }
    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.lock().has_arrived(node)
    }
    fn wait(&mut self, timeout: Duration) -> bool {
        self.lock().wait(timeout)
    }
    fn waker(&self) -> Option<Waker> {
        let watched = self.lock();
        if watched.clock.is_some() {
            None
        } else {
            watched.inner.waker()
        }
    }
    fn disconnect(&mut self, node: NodeId) {
        let mut watched = self.lock();
        watched.held.retain(|completion| completion.node != node);
        watched.inner.disconnect(node);
    }
    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        let is_there = !W::REMOTE && self.lock().inner.in_process().is_some();
        is_there.then_some(self as &mut dyn InProcess)
    }
}

/// All but the beginning of a poll: a fetch that waits for data waits until its time is over, as over a socket.
impl<T: Transport, W: Watch> InProcess for WatchedTransport<T, W> {
    fn keep_alive(&mut self) {
        self.ask((), |peer| peer.keep_alive());
    }
    fn begin_drain(&mut self) -> bool {
        self.ask(true, |peer| peer.begin_drain())
    }
    fn end_drain(&mut self) {
        self.ask((), |peer| peer.end_drain());
    }
    fn quiescent(&mut self) {
        self.ask((), |peer| peer.quiescent());
    }
    fn is_closed(&mut self) -> bool {
        self.ask(false, |peer| peer.is_closed())
    }
    fn legacy_group(&mut self, request: &LegacyGroupRequest) -> Option<LegacyGroupResponse> {
        self.ask(None, |peer| peer.legacy_group(request))
    }
}
