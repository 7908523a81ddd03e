//! The seam between clients and broker: a request value goes in, a completion comes out.

use std::sync::Arc;
use std::time::Duration;

use crate::messages::{LegacyGroupRequest, LegacyGroupResponse, Request, Response};

/// A broker node's id. A client's connection to its group coordinator is a connection of its own, numbered
/// [`coordinator_connection`] as Kafka's Java client does.
pub type NodeId = i32;

/// Connection id of the coordinator that lives on `node` (Kafka: `Integer.MAX_VALUE - node.id`).
pub fn coordinator_connection(node: NodeId) -> NodeId {
    i32::MAX - node
}

/// The node behind a connection id.
pub fn node_of_connection(connection: NodeId) -> NodeId {
    if connection > i32::MAX / 2 {
        i32::MAX - connection
    } else {
        connection
    }
}

/// The connection was closed before the answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection was closed before the answer came")]
pub struct Disconnected;

/// The answer to one request. A lost connection completes every request outstanding on it, oldest first.
#[derive(Debug)]
pub struct Completion {
    /// Connection (node) it belongs to.
    pub node: NodeId,
    /// The number given to `send`.
    pub correlation_id: i32,
    /// The answer.
    pub result: Result<Response, Disconnected>,
}

/// Ends the wait of another thread: see [`Transport::waker`].
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// One client's connections, as sockets are. Requests of one connection are handled and answered in order.
pub trait Transport: Send {
    /// The nodes to ask before the first Metadata answer, in the order in which they were given. Never empty. Kafka:
    /// `Metadata#bootstrap`.
    fn bootstrap(&self) -> Vec<NodeId>;
    /// Puts one request on the wire of a connection.
    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request);
    /// Takes the oldest completion of that connection which has arrived; never waits.
    fn receive(&mut self, node: NodeId) -> Option<Completion>;
    /// True if `receive(node)` would return something now; never waits.
    fn has_arrived(&mut self, node: NodeId) -> bool;
    /// Waits until an answer has arrived on any connection, at most `timeout`. Returns true if something arrived.
    fn wait(&mut self, timeout: Duration) -> bool;
    /// What another thread calls to end the current or next [`Transport::wait`] early. Without one, clients check every
    /// 50 ms.
    fn waker(&self) -> Option<Waker> {
        None
    }
    /// The client gives up every request outstanding on a connection (a request time-out) and will open it anew. Answers
    /// that still come for them are ignored by correlation id.
    fn disconnect(&mut self, node: NodeId) {
        let _ = node;
    }
    /// The other side, if it is in this process.
    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        None
    }
}

/// What only a peer in the same process can do for its client; a transport over sockets does without. An answer that such
/// a peer can give at once is there when `send` returns.
pub trait InProcess {
    /// Reports to the cluster that this client is alive, in place of a heartbeat thread; cheap.
    fn keep_alive(&mut self) {}
    /// A poll begins. A fetch that is held only because there is nothing to read is answered now, so that the order of
    /// polls does not depend on the time between two of them.
    fn begin_poll(&mut self) {}
    /// A producer is about to look for records to send. False: it must not send yet (a test collects records). When
    /// true, the producer calls [`InProcess::end_drain`] after it has sent what it found.
    fn begin_drain(&mut self) -> bool {
        true
    }
    /// The records found since [`InProcess::begin_drain`] are sent.
    fn end_drain(&mut self) {}
    /// The client has nothing more to send before its next [`Transport::wait`] ends. Scripted faults act only then
    /// (spec 9.5.1).
    fn quiescent(&mut self) {}
    /// True once the broker was closed: nothing will be answered any more.
    fn is_closed(&mut self) -> bool {
        false
    }
    /// One step against the registry of a legacy group, for which Kafka has no request; `None` if there is no registry.
    fn legacy_group(&mut self, request: &LegacyGroupRequest) -> Option<LegacyGroupResponse> {
        let _ = request;
        None
    }
}

/// Time. Wall clock in ms since the epoch and a monotonic ms clock; virtual in simulations.
pub trait Clock: Send + Sync {
    /// Wall clock, ms since the epoch.
    fn now_ms(&self) -> i64;
    /// Monotonic ms since some start.
    fn monotonic_ms(&self) -> i64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
