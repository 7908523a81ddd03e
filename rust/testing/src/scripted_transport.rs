//! Connections that open, answer and break when the test says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::{Clock, Completion, Failure, NodeId, Ready, Request, Response, Transport};

use crate::VirtualClock;

/// What comes back for a request.
pub type Answer = Result<Response, Failure>;

/// A request that was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The connection.
    pub node: NodeId,
    /// The number given to `send`.
    pub correlation_id: i32,
    /// What was asked.
    pub request: Request,
}

/// The other side of a [`ScriptedTransport`]. A closure is one that answers at once or leaves the answer to the test.
pub trait Peer: Send {
    /// A request arrives; `None`: there is no answer yet.
    fn handle(&mut self, now_ms: i64, sent: &Sent) -> Option<Answer>;
    /// The answers whose time has come.
    fn due(&mut self, now_ms: i64) -> Vec<Completion> {
        let _ = now_ms;
        Vec::new()
    }
    /// When the next answer is due, monotonic ms.
    fn next_due_ms(&self) -> Option<i64> {
        None
    }
}

impl<F: FnMut(&Sent) -> Option<Answer> + Send> Peer for F {
    fn handle(&mut self, _: i64, sent: &Sent) -> Option<Answer> {
        self(sent)
    }
}

/// What a test sees of the connections, and sets.
pub struct Wire {
    /// The nodes of bootstrap.servers.
    pub bootstrap: Vec<NodeId>,
    /// The requests, in the order of sending. What [`ScriptedTransport::answer_first`] answers is taken out.
    pub sent: Vec<Sent>,
    /// Connections that are not [`Ready::Yes`].
    pub ready: BTreeMap<NodeId, Ready>,
    /// Connections whose readiness was asked for, each time.
    pub asked: Vec<NodeId>,
    /// Connections that the client has closed.
    pub disconnected: Vec<NodeId>,
    connecting: Vec<NodeId>,
    arrived: VecDeque<Completion>,
    queued: VecDeque<Answer>,
    peer: Box<dyn Peer>,
}

impl Wire {
    fn answer(&mut self, node: NodeId, correlation_id: i32, result: Answer) {
        self.arrived.push_back(Completion {
            node,
            correlation_id,
            result,
        });
    }

    /// Something ends a wait.
    fn has_news(&mut self, now_ms: i64) -> bool {
        self.arrived.extend(self.peer.due(now_ms));
        let opening = self.connecting.len();
        let ready = &self.ready;
        self.connecting
            .retain(|node| matches!(ready.get(node), Some(Ready::Connecting)));
        !self.arrived.is_empty() || self.connecting.len() < opening
    }
}

/// A transport that notes what is sent. Answers come from its [`Peer`], from the queue of [`ScriptedTransport::answer_next`], or later from
/// the test. A wait that nothing ends moves the clock. Clones are handles of the same connections.
#[derive(Clone)]
pub struct ScriptedTransport {
    /// Moved by waiting.
    pub clock: Arc<VirtualClock>,
    wire: Arc<Mutex<Wire>>,
}

impl Default for ScriptedTransport {
    fn default() -> Self {
        Self::new(VirtualClock::new(), |_: &Sent| None)
    }
}

impl ScriptedTransport {
    /// Connections to this peer. The first node is 1.
    pub fn new(clock: Arc<VirtualClock>, peer: impl Peer + 'static) -> Self {
        let wire = Wire {
            bootstrap: vec![1],
            sent: Vec::new(),
            ready: BTreeMap::new(),
            asked: Vec::new(),
            disconnected: Vec::new(),
            connecting: Vec::new(),
            arrived: VecDeque::new(),
            queued: VecDeque::new(),
            peer: Box::new(peer),
        };
        Self {
            clock,
            wire: Arc::new(Mutex::new(wire)),
        }
    }

    /// What there is to see and to set.
    pub fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests since this was last called.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.wire().sent)
    }

    /// From now on a connection is like this.
    pub fn set_ready(&self, node: NodeId, ready: Ready) {
        self.wire().ready.insert(node, ready);
    }

    /// An answer arrives.
    pub fn answer(&self, node: NodeId, correlation_id: i32, result: Answer) {
        self.wire().answer(node, correlation_id, result);
    }

    /// Answers the oldest such request in [`Wire::sent`], and takes it out.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn answer_first(&self, wanted: impl Fn(&Request) -> bool, result: Answer) {
        let mut wire = self.wire();
        let at = wire.sent.iter().position(|sent| wanted(&sent.request));
        let at = at.unwrap_or_else(|| panic!("no such request: {:?}", wire.sent));
        let sent = wire.sent.remove(at);
        wire.answer(sent.node, sent.correlation_id, result);
    }

    /// The answer to the next request that the peer leaves without one, behind those that are queued already.
    pub fn answer_next(&self, result: Answer) {
        self.wire().queued.push_back(result);
    }
}

impl Transport for ScriptedTransport {
    fn bootstrap(&self) -> Vec<NodeId> {
        self.wire().bootstrap.clone()
    }
    fn ready(&mut self, node: NodeId) -> Ready {
        let mut wire = self.wire();
        wire.asked.push(node);
        let ready = wire.ready.get(&node).cloned().unwrap_or(Ready::Yes);
        if ready == Ready::Connecting {
            wire.connecting.push(node);
        }
        ready
    }
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        let sent = Sent {
            node,
            correlation_id,
            request,
        };
        let mut wire = self.wire();
        let answer = wire.peer.handle(self.clock.monotonic_ms(), &sent);
        if let Some(answer) = answer.or_else(|| wire.queued.pop_front()) {
            wire.answer(node, correlation_id, answer);
        }
        wire.sent.push(sent);
    }
    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        if !self.has_arrived(node) {
            return None;
        }
        let arrived = &mut self.wire().arrived;
        let at = arrived.iter().position(|completion| completion.node == node)?;
        arrived.remove(at)
    }
    fn has_arrived(&mut self, node: NodeId) -> bool {
        let mut wire = self.wire();
        let due = wire.peer.due(self.clock.monotonic_ms());
        wire.arrived.extend(due);
        wire.arrived.iter().any(|completion| completion.node == node)
    }
    fn wait(&mut self, timeout: Duration) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let mut wire = self.wire();
        if wire.has_news(now_ms) {
            return true;
        }
        let until_ms = now_ms.saturating_add(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
        let next_ms = wire.peer.next_due_ms().map_or(until_ms, |due_ms| due_ms.min(until_ms));
        self.clock.advance(next_ms - now_ms);
        wire.has_news(next_ms)
    }
    fn disconnect(&mut self, node: NodeId) {
        let mut wire = self.wire();
        wire.disconnected.push(node);
        wire.arrived.retain(|completion| completion.node != node);
    }
}
