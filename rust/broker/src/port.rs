//! The broker's interface for connections from outside: request values in, answers out, without a thread that waits.

use std::sync::Arc;

use fletchlog_api::{NodeId, Request, Response};

use crate::Broker;
use crate::group::ClientLiveness;
use crate::kafka_apis::Handled;
use crate::sync::Answer;

/// One connection to one node of the broker. The requests of a connection are given one after the other: the next when the
/// one before is answered.
#[derive(Debug)]
pub struct Port {
    broker: Arc<Broker>,
    node: NodeId,
    client: Arc<ClientLiveness>,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Answered.
    Now(Response),
    /// The answer comes later.
    Later(Ticket),
    /// The connection is to be closed without an answer: Produce with acks=0 failed, or the broker is closed.
    Close,
}

/// A request that waits for its answer.
#[derive(Debug, Clone)]
pub struct Ticket {
    broker: Arc<Broker>,
    answer: Arc<Answer>,
}

impl Ticket {
    /// Calls `receive` with the answer: now if it is there, else from the thread that gives it. That thread holds locks of the
    /// broker: `receive` must not wait and must not call the broker. It is not called after [`Ticket::cancel`] or when the broker
    /// closes before the answer.
    pub fn on_ready(&self, receive: impl FnOnce(Response) + Send + 'static) {
        self.answer.on_ready(Box::new(receive));
    }

    /// Nobody reads the answer any more: the connection is lost. A fetch stops waiting; a member keeps its place in its group
    /// until its session times out.
    pub fn cancel(&self) {
        self.broker.replicas().purgatory().cancel(&self.answer);
    }
}

impl Port {
    /// The node that was connected to.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Handles one request. May read and write files and wait for the disk.
    pub fn handle(&self, request: Request) -> Outcome {
        match self.broker.handle(self.node, &self.client, request) {
            Handled::Now(response) => Outcome::Now(response),
            // Most fetches need not wait: then this thread encodes the answer, not the thread of the sockets.
            Handled::Later(answer) => match answer.take() {
                Some(response) => Outcome::Now(response),
                None => Outcome::Later(Ticket {
                    broker: Arc::clone(&self.broker),
                    answer,
                }),
            },
            Handled::CloseConnection => Outcome::Close,
        }
    }
}

impl Broker {
    /// Connects a client at `host` (as Kafka writes it: `/127.0.0.1`) to a node. Group members that join over the connection
    /// live by their own heartbeats.
    pub fn connect(self: &Arc<Self>, node: NodeId, host: &str) -> Port {
        let client = Arc::new(ClientLiveness::of_wire(host));
        Port {
            broker: Arc::clone(self),
            node,
            client,
        }
    }
}
