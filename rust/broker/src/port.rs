//! The broker's interface for connections from outside: request values in, responses out, without a thread that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::{NodeId, Request, Response};

use crate::Broker;
use crate::group::ClientLiveness;
use crate::kafka_apis::Handled;
use crate::sync::Answer;

/// One connection to one node of the broker. The requests of a connection are passed in one at a time: the next after the response to
/// the previous one.
#[derive(Debug)]
pub struct Port {
    broker: Arc<Broker>,
    node: NodeId,
    client: Arc<ClientLiveness>,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The response.
    Now(Response),
    /// The response comes later.
    Later(Ticket),
    /// One of two responses comes later.
    After(Deferred),
    /// The connection is to be closed without a response: Produce with acks=0 failed, or the broker is closed.
    Close,
}

/// A request that waits for its response.
#[derive(Debug, Clone)]
pub struct Ticket {
    broker: Arc<Broker>,
    answer: Arc<Answer>,
}

impl Ticket {
    /// Calls `receive` with the response: at once if it has arrived, else from the thread that completes it. That thread holds locks
    /// of the broker: `receive` must not wait and must not call the broker. It is not called after [`Ticket::cancel`], or if the
    /// broker closes before the response.
    pub fn on_ready(&self, receive: impl FnOnce(Response) + Send + 'static) {
        self.answer.on_ready(Box::new(receive));
    }

    /// Called when the connection is lost, so that the response cannot be read. A fetch stops waiting; a member keeps its place in
    /// its group until its session times out.
    pub fn cancel(&self) {
        self.broker.cancel_fetch(&self.answer);
    }
}

/// A response that waits for the records of a coordinator: one if they are on all replicas in sync in time, otherwise another.
#[derive(Debug)]
pub struct Deferred {
    /// In time.
    pub response: Response,
    /// After the time-out.
    pub refused: Response,
    /// Its response is one of these two.
    pub ticket: Ticket,
    is_refused: Arc<AtomicBool>,
}

impl Deferred {
    /// A function that says, when the response has arrived, whether it is that after the time-out.
    pub fn is_refused(&self) -> impl Fn() -> bool + Send + 'static {
        let is_refused = Arc::clone(&self.is_refused);
        move || is_refused.load(Ordering::SeqCst)
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
            // Most fetches need not wait: then this thread encodes the response, not the thread of the sockets.
            Handled::Later(answer) => match answer.take() {
                Some(response) => Outcome::Now(response),
                None => Outcome::Later(Ticket {
                    broker: Arc::clone(&self.broker),
                    answer,
                }),
            },
            Handled::After(deferred) => Outcome::After(Deferred {
                response: deferred.response,
                refused: deferred.refused,
                ticket: Ticket {
                    broker: Arc::clone(&self.broker),
                    answer: deferred.answer,
                },
                is_refused: deferred.is_refused,
            }),
            Handled::CloseConnection => Outcome::Close,
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.broker.share_disconnects((self.client.number(), self.node));
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
