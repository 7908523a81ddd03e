//! A client's end of the network: its connections, and its requests without a response.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fletchlog_api::{Completion, Failure, NodeId, Request, Response, Transport};
use fletchlog_broker::{Broker, LocalTransport};

use super::memory::Batch;
use super::scheduler::ActorId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    CloseBefore,
    CloseAfter,
}

/// A request in transit.
pub(super) struct Underway {
    pub epoch: u64,
    pub id: i32,
    pub fate: Fate,
    pub request: Request,
}

#[derive(Default)]
pub(super) struct Connection {
    /// How often it was opened: messages of an earlier opening are dropped.
    pub epoch: u64,
    /// Requests sent and not arrived, oldest first: a paused node does not change their order.
    pub underway: VecDeque<Underway>,
    /// Requests without a response, oldest first.
    pub outstanding: Vec<i32>,
    /// Completions for the client to read.
    pub arrived: VecDeque<Completion>,
    pub silent: bool,
    pub last_request_ms: i64,
    pub last_answer_ms: i64,
}

impl Connection {
    /// Takes the oldest request sent since this opening.
    pub fn take_oldest(&mut self, epoch: u64) -> Option<Underway> {
        let oldest = self.underway.iter().position(|u| u.epoch == epoch)?;
        self.underway.remove(oldest)
    }

    /// Delivers a result to the client.
    pub fn arrive(&mut self, node: NodeId, correlation_id: i32, result: Result<Response, Failure>) {
        self.arrived.push_back(Completion {
            node,
            correlation_id,
            result,
        });
    }
}

/// A request at the broker.
pub(super) struct Asked {
    pub node: NodeId,
    pub epoch: u64,
    pub fate: Fate,
    pub batches: Vec<Batch>,
    /// The moment of its arrival.
    pub moment: u64,
}

pub(super) struct Port {
    pub actor: ActorId,
    pub process: u32,
    /// The broker's end; `None` while it is down.
    pub server: Option<LocalTransport>,
    pub connections: BTreeMap<NodeId, Connection>,
    /// Requests at the broker, by correlation id.
    pub asked: BTreeMap<i32, Asked>,
    pub closed: bool,
}

impl Port {
    pub fn new(actor: ActorId, process: u32) -> Self {
        Self {
            actor,
            process,
            server: None,
            connections: BTreeMap::new(),
            asked: BTreeMap::new(),
            closed: false,
        }
    }

    pub fn connection(&mut self, node: NodeId) -> &mut Connection {
        self.connections.entry(node).or_default()
    }

    pub fn server(&mut self, broker: Arc<Broker>) -> &mut LocalTransport {
        self.server.get_or_insert_with(|| LocalTransport::new(broker))
    }

    /// Drops everything in transit on a connection. Returns the requests without a response.
    pub fn reopen(&mut self, node: NodeId) -> Vec<i32> {
        self.asked.retain(|_, asked| asked.node != node);
        if let Some(server) = &mut self.server {
            server.disconnect(node);
        }
        let connection = self.connection(node);
        connection.epoch += 1;
        connection.silent = false;
        std::mem::take(&mut connection.outstanding)
    }

    pub fn has_arrived(&self) -> bool {
        self.connections.values().any(|c| !c.arrived.is_empty())
    }

    /// Closes the client's end.
    pub fn close(&mut self) {
        self.closed = true;
        self.server = None;
        self.asked.clear();
    }
}
