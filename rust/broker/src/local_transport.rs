//! The in-process [`Transport`]: requests are handled inside `send`; responses wait in a queue per connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fletchlog_api::transport::{Waker, node_of_connection};
use fletchlog_api::{
    Completion, Failure, InProcess, LegacyGroupRequest, LegacyGroupResponse, NodeId, Request, Transport,
};
use fletchlog_records::planted;

use crate::Broker;
use crate::broker::LOOK_AGAIN_MS;
use crate::features::Feature;
use crate::group::ClientLiveness;
use crate::kafka_apis::Handled;
use crate::sync::Answer;

/// One client's connections to an embedded broker.
///
/// A request that waits (long poll, join, sync) blocks those behind it on the same connection, as a broker's socket does. Dropping
/// the transport counts as the client's death: members that did not leave expire after session.timeout.ms.
#[derive(Debug)]
pub struct LocalTransport {
    broker: Arc<Broker>,
    client: Arc<ClientLiveness>,
    connections: BTreeMap<NodeId, Connection>,
    /// Set by another thread to end the wait.
    woken: Arc<AtomicBool>,
    watcher: Watcher,
}

/// What is called when a response can be taken, if anything.
#[derive(Clone, Default)]
struct Watcher(Option<Waker>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug, Default)]
struct Connection {
    /// Responses that have arrived.
    arrived: VecDeque<Completion>,
    /// The request that waits for its response.
    waiting: Option<(i32, Arc<Answer>)>,
    /// Requests behind it, not handled yet.
    held: VecDeque<(i32, Request)>,
}

impl LocalTransport {
    /// Connects a client.
    pub fn new(broker: Arc<Broker>) -> Self {
        let client = Arc::new(ClientLiveness::new(broker.replicas().clock().monotonic_ms()));
        Self {
            broker,
            client,
            connections: BTreeMap::new(),
            woken: Arc::default(),
            watcher: Watcher::default(),
        }
    }

    /// Moves the completed response to `arrived`, and handles the requests that were blocked by it.
    fn deliver_ready(&mut self, id: NodeId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.waiting.is_none() && connection.held.is_empty() {
            return;
        }
        if self.broker.is_closed() || !self.broker.is_node_up(node_of_connection(id)) {
            connection.cancel_waiting(&self.broker);
            connection.close(id, None);
            return;
        }
        loop {
            if let Some((correlation_id, answer)) = &connection.waiting {
                let Some(response) = answer.take() else { return };
                let correlation_id = *correlation_id;
                connection.waiting = None;
                connection.arrived.push_back(Completion {
                    node: id,
                    correlation_id,
                    result: Ok(response),
                });
            }
            let Some((correlation_id, request)) = connection.held.pop_front() else {
                return;
            };
            let handled = self.broker.handle(node_of_connection(id), &self.client, request);
            match handled.or_later() {
                Handled::Now(response) => {
                    connection.arrived.push_back(Completion {
                        node: id,
                        correlation_id,
                        result: Ok(response),
                    });
                }
                Handled::Later(answer) => {
                    if let Some(notify) = &self.watcher.0 {
                        answer.watch(notify);
                    }
                    connection.waiting = Some((correlation_id, answer));
                }
                Handled::After(_) | Handled::CloseConnection => {
                    connection.close(id, Some(correlation_id));
                    return;
                }
            }
        }
    }

    fn is_waiting(&self, id: NodeId) -> bool {
        self.connections.get(&id).is_some_and(|c| c.waiting.is_some())
    }

    /// Does what is due and delivers the responses that are ready; true: a response has arrived.
    fn something_arrived(&mut self) -> bool {
        self.broker.run_due();
        let ids: Vec<NodeId> = self.connections.keys().copied().collect();
        for id in ids {
            self.deliver_ready(id);
        }
        self.connections.values().any(|c| !c.arrived.is_empty())
    }

    fn look(&mut self, id: NodeId) {
        if self.is_waiting(id) {
            self.broker.run_due();
            self.deliver_ready(id);
        }
    }
}

impl Connection {
    /// Cancels the waiting request: its response will not be read.
    fn cancel_waiting(&self, broker: &Broker) {
        if let Some((_, answer)) = &self.waiting {
            broker.cancel_fetch(answer);
        }
    }

    /// A lost connection completes every request outstanding on it, oldest first.
    fn close(&mut self, node: NodeId, current: Option<i32>) {
        let waiting = self.waiting.take().map(|(correlation_id, _)| correlation_id);
        let held = self.held.drain(..).map(|(correlation_id, _)| correlation_id);
        for correlation_id in waiting.into_iter().chain(current).chain(held) {
            self.arrived.push_back(Completion {
                node,
                correlation_id,
                result: Err(Failure::Disconnected),
            });
        }
    }
}

impl LocalTransport {
    /// A connection has ended. Share sessions are those of the connection to the node itself, never of that to the coordinator there.
    fn end_share_session(&self, connection: NodeId) {
        if node_of_connection(connection) == connection || planted!("share-session-ends-with-another-connection") {
            self.broker
                .share_disconnected((self.client.number(), node_of_connection(connection)));
        }
    }
}

impl Transport for LocalTransport {
    fn bootstrap(&self) -> Vec<NodeId> {
        let controller = self.broker.replicas().controller();
        let running = controller.nodes().into_iter().find(|node| controller.runs(*node));
        vec![running.unwrap_or(controller.node_ids().first())]
    }

    fn send(&mut self, node: NodeId, correlation_id: i32, request: Request) {
        self.keep_alive();
        let connection = self.connections.entry(node).or_default();
        if !self.broker.is_node_up(node_of_connection(node)) {
            connection.close(node, Some(correlation_id));
            return;
        }
        connection.held.push_back((correlation_id, request));
        self.deliver_ready(node);
    }

    fn transaction_version(&self) -> i16 {
        self.broker.finalized_level(Feature::TransactionVersion)
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        self.look(node);
        self.connections.get_mut(&node)?.arrived.pop_front()
    }

    fn has_arrived(&mut self, node: NodeId) -> bool {
        self.look(node);
        self.connections.get(&node).is_some_and(|c| !c.arrived.is_empty())
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.keep_alive();
        // The time-out is the client's: it ends on the machine's clock, also while the broker's is stopped.
        let start_ms = self.broker.replicas().clock().machine_ms();
        let mut remaining = timeout;
        loop {
            let seen = self.broker.replicas().changes().version();
            if self.something_arrived() {
                return true;
            }
            if self.woken.swap(false, Ordering::AcqRel) || remaining.is_zero() {
                return false;
            }
            let mut slice = remaining;
            let next_ms = self.broker.next_deadline();
            if let Some(left) = next_ms.and_then(|ms| self.broker.replicas().clock().until(ms)) {
                slice = slice.min(left.max(millis(1)));
            }
            if self.broker.is_read_only() && self.connections.values().any(|c| c.waiting.is_some()) {
                slice = slice.min(millis(LOOK_AGAIN_MS));
            }
            if !self.broker.replicas().changes().wait(seen, slice) {
                // The time slept is subtracted, so that this ends even if the clock (a simulation's) does not move.
                remaining = remaining.saturating_sub(slice);
            }
            let passed = millis(self.broker.replicas().clock().machine_ms().saturating_sub(start_ms));
            remaining = remaining.min(timeout.saturating_sub(passed));
        }
    }

    fn waker(&self) -> Option<Waker> {
        // A weak reference: a waker must not keep the broker open.
        let (woken, broker) = (Arc::clone(&self.woken), Arc::downgrade(&self.broker));
        Some(Arc::new(move || {
            woken.store(true, Ordering::Release);
            if let Some(broker) = broker.upgrade() {
                broker.replicas().changes().notify();
            }
        }))
    }

    fn watch(&mut self, notify: Waker) -> Option<i32> {
        for (_, answer) in self.connections.values().filter_map(|c| c.waiting.as_ref()) {
            answer.watch(&notify);
        }
        self.watcher = Watcher(Some(notify));
        None
    }

    fn disconnect(&mut self, node: NodeId) {
        if let Some(connection) = self.connections.remove(&node) {
            connection.cancel_waiting(&self.broker);
            self.end_share_session(node);
        }
    }

    fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        Some(self)
    }
}

impl InProcess for LocalTransport {
    fn keep_alive(&mut self) {
        self.client.seen(self.broker.replicas().clock().monotonic_ms());
    }

    fn begin_poll(&mut self) {
        for connection in self.connections.values() {
            if let Some((_, answer)) = &connection.waiting {
                self.broker.answer_if_without_data(answer);
            }
        }
    }

    fn is_closed(&mut self) -> bool {
        self.broker.is_closed()
    }

    fn legacy_group(&mut self, request: &LegacyGroupRequest) -> Option<LegacyGroupResponse> {
        self.keep_alive();
        self.broker.legacy_group(&self.client, request)
    }
}

impl Drop for LocalTransport {
    fn drop(&mut self) {
        for (id, connection) in &self.connections {
            connection.cancel_waiting(&self.broker);
            self.end_share_session(*id);
        }
        self.broker.client_gone(&self.client);
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
