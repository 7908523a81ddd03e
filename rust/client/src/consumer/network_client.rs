//! The consumer's connections as FIFOs (spec 7.4). Kafka: `ConsumerNetworkClient` over `NetworkClient`.
//!
//! ```text
//! per connection:  unsent (built) -> wire -> broker -> socket (answered, not read) -> done (read) -> callback
//! try_send :  if the wire is empty and no metadata request is due: first unsent -> wire
//! net_poll :  metadata -> wire if due; take the first answer of each socket; write the wires
//! ```
//! An answer takes longer than the rest of a poll that does not wait: a poll reads the answer to its own request only
//! after a wait. A callback is run by the owner of the request, who takes the completions out of `done` with
//! [`ConsumerNetworkClient::take_done`]. Which poll does that decides the order of records, so this client never reads
//! on its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fletchlog_api::transport::{Heartbeat, HeartbeatPlan, Waker};
use fletchlog_api::{Clock, Completion, Failure, NodeId, Request, Response, Transport};

use super::Interrupt;
use super::metadata::Metadata;
use crate::ClientError;

/// Number of a request, unique per consumer; its completion carries the same `correlation_id`.
pub type RequestId = i32;

/// How much longer than the rebalance itself a join may take. Kafka: `AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE`.
const JOIN_GROUP_TIMEOUT_LAPSE_MS: i64 = 5_000;

/// How long a wait may go on before the interrupt callback is asked again.
const INTERRUPT_CHECK_MS: i64 = 50;

#[derive(Debug)]
struct InFlight {
    id: RequestId,
    expires_ms: i64,
    /// Written by the current poll, which has not waited since: the answer cannot have arrived.
    just_written: bool,
}

#[derive(Debug, Default)]
struct Connection {
    unsent: VecDeque<(RequestId, Request)>,
    wire: Option<(RequestId, Request)>,
    in_flight: VecDeque<InFlight>,
    /// No new request before this time, after a disconnect.
    backoff_until_ms: i64,
}

impl Connection {
    fn load(&self) -> usize {
        self.unsent.len() + usize::from(self.wire.is_some()) + self.in_flight.len()
    }
}

/// How `net_poll` may wait for an answer.
pub struct Wait<'a> {
    /// At most this long.
    pub wait_ms: i64,
    /// Asked about every 50 ms.
    pub interrupt: Interrupt<'a>,
    /// Ends the wait with `Wakeup`.
    pub wakeup: &'a AtomicBool,
}

/// All connections of one consumer.
pub struct ConsumerNetworkClient {
    transport: Box<dyn Transport>,
    clock: Arc<dyn Clock>,
    connections: BTreeMap<NodeId, Connection>,
    /// Nodes that may be asked for anything: as the last Metadata answer named them; before it, those to begin with.
    nodes: Vec<NodeId>,
    done: VecDeque<Completion>,
    next_id: RequestId,
    in_poll: bool,
    request_timeout_ms: i64,
    reconnect_backoff_ms: i64,
}

impl ConsumerNetworkClient {
    /// See [`Transport::waker`].
    pub fn waker(&self) -> Option<Waker> {
        self.transport.waker()
    }

    /// No connection yet; they appear as they are used.
    pub fn new(
        transport: Box<dyn Transport>,
        clock: Arc<dyn Clock>,
        request_timeout_ms: i64,
        reconnect_backoff_ms: i64,
    ) -> Self {
        Self {
            nodes: transport.bootstrap(),
            transport,
            clock,
            connections: BTreeMap::new(),
            done: VecDeque::new(),
            next_id: 0,
            in_poll: false,
            request_timeout_ms,
            reconnect_backoff_ms,
        }
    }

    /// Queues a request as unsent; it is fixed now, and written by a later `try_send` + `net_poll`.
    pub fn send(&mut self, connection: NodeId, request: Request) -> RequestId {
        let id = self.new_id();
        self.connections
            .entry(connection)
            .or_default()
            .unsent
            .push_back((id, request));
        id
    }

    /// Moves the first unsent request of each connection to its wire, unless the wire is taken or a metadata request is due.
    /// Kafka: `NetworkClient#ready`.
    pub fn try_send(&mut self, metadata: &Metadata) {
        if metadata.is_update_due(self.clock.monotonic_ms()) {
            return;
        }
        for connection in self.connections.values_mut() {
            if connection.wire.is_none() {
                connection.wire = connection.unsent.pop_front();
            }
        }
    }

    /// One turn of the selector: at most one answer per connection is read, then the wires are written. An answer to a
    /// metadata request is applied at once, all others go to `done`. Kafka: `NetworkClient#poll`.
    ///
    /// # Errors
    /// `Interrupted` or `Wakeup` out of the wait; nothing was read or written in that turn.
    pub fn net_poll(&mut self, metadata: &mut Metadata, wait: Option<Wait<'_>>) -> Result<(), ClientError> {
        let now = self.clock.monotonic_ms();
        self.queue_metadata_request(metadata, now);
        if let Some(wait) = wait {
            self.wait(wait)?;
        }
        let now = self.clock.monotonic_ms();
        self.expire(metadata, now);
        for node in self.nodes_that_may_have_answered() {
            // A refresh by age is sent only when nothing else is, so its answer delays no other.
            while let Some(completion) = self.receive(node) {
                if completion.result.is_err() {
                    // The leaders may have moved. Kafka: `DefaultMetadataUpdater#handleServerDisconnect`.
                    metadata.request_update();
                }
                if !metadata.is_mine(completion.correlation_id) {
                    self.done.push_back(completion);
                    break;
                }
                let by_age = metadata.in_progress_by_age();
                self.apply_metadata(metadata, completion, now);
                if !by_age {
                    break;
                }
            }
        }
        for (&node, connection) in &mut self.connections {
            if let Some((id, request)) = connection.wire.take() {
                let expires_ms = now.saturating_add(timeout_of(&request, self.request_timeout_ms));
                connection.in_flight.push_back(InFlight {
                    id,
                    expires_ms,
                    just_written: self.in_poll,
                });
                self.transport.send(node, id, request);
            }
        }
        Ok(())
    }

    /// Answers that were read and whose callbacks have not run, oldest first.
    pub fn take_done(&mut self) -> VecDeque<Completion> {
        std::mem::take(&mut self.done)
    }

    /// Whether any request is unsent, in flight or answered but unread.
    pub fn has_pending(&self) -> bool {
        self.connections.values().any(|c| c.load() > 0)
    }

    /// Whether another `net_poll` without waiting would read or write something.
    pub fn can_progress(&mut self, metadata: &Metadata) -> bool {
        let is_update_due = metadata.is_update_due(self.clock.monotonic_ms());
        if !self.done.is_empty() || (is_update_due && self.least_loaded_node().is_some()) {
            return true;
        }
        if is_update_due {
            return self.has_arrived(); // Every node is left alone: nothing is sent meanwhile.
        }
        if self
            .connections
            .values()
            .any(|c| !c.unsent.is_empty() || c.wire.is_some())
        {
            return true;
        }
        self.has_arrived()
    }

    /// Whether the node was lost a moment ago. Kafka: `NetworkClient#connectionFailed` within the backoff.
    pub fn is_unavailable(&self, node: NodeId) -> bool {
        self.connections
            .get(&node)
            .is_some_and(|c| c.backoff_until_ms > self.clock.monotonic_ms())
    }

    /// Milliseconds until any node may be asked again, when all were lost a moment ago; 0 if one may be asked now.
    pub fn reconnect_delay_ms(&self) -> i64 {
        let now = self.clock.monotonic_ms();
        let delay = |node| {
            self.connections
                .get(node)
                .map_or(0, |c| c.backoff_until_ms.saturating_sub(now).max(0))
        };
        self.nodes.iter().map(delay).min().unwrap_or(0)
    }

    /// A poll begins: see [`fletchlog_api::InProcess::begin_poll`]. What it writes from now on is answered while it waits, or after it.
    pub fn begin_poll(&mut self) {
        if let Some(peer) = self.transport.in_process() {
            peer.begin_poll();
        }
        self.in_poll = true;
    }

    /// The poll returns; before the next call, everything that was written is answered.
    pub fn end_poll(&mut self) {
        self.in_poll = false;
        self.let_answers_arrive();
    }

    /// Time passes: a wait, or the time between two polls.
    pub fn let_answers_arrive(&mut self) {
        let in_flight = self.connections.values_mut().flat_map(|c| &mut c.in_flight);
        in_flight.for_each(|f| f.just_written = false);
    }

    /// Reports to the cluster that this client is alive, in place of a heartbeat thread.
    pub fn keep_alive(&mut self) {
        if let Some(peer) = self.transport.in_process() {
            peer.keep_alive();
        }
    }

    /// See [`Transport::begin_heartbeats`].
    pub fn begin_heartbeats(&mut self, plan: HeartbeatPlan) {
        self.transport.begin_heartbeats(plan);
    }

    /// See [`Transport::end_heartbeats`].
    pub fn end_heartbeats(&mut self) -> Option<Heartbeat> {
        self.transport.end_heartbeats()
    }

    /// The broker is gone for good.
    pub fn is_closed(&mut self) -> bool {
        self.transport.in_process().is_some_and(|peer| peer.is_closed())
    }

    /// Monotonic milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    fn new_id(&mut self) -> RequestId {
        self.next_id = if self.next_id == i32::MAX { 1 } else { self.next_id + 1 };
        self.next_id
    }

    /// Answers come in the order of the requests, so the oldest request decides.
    fn nodes_that_may_have_answered(&self) -> Vec<NodeId> {
        let answered = |c: &Connection| c.in_flight.front().is_some_and(|oldest| !oldest.just_written);
        let nodes = self.connections.iter().filter(|(_, c)| answered(c));
        nodes.map(|(&node, _)| node).collect()
    }

    fn has_arrived(&mut self) -> bool {
        let nodes = self.nodes_that_may_have_answered();
        nodes.into_iter().any(|node| self.transport.has_arrived(node))
    }

    fn queue_metadata_request(&mut self, metadata: &mut Metadata, now: i64) {
        let age_only = metadata.is_due_by_age(now)
            && !self
                .connections
                .values()
                .any(|c| !c.unsent.is_empty() || c.wire.is_some());
        if !metadata.is_update_due(now) && !age_only {
            return;
        }
        let Some(node) = self.least_loaded_node() else {
            return;
        };
        if self.connections.get(&node).is_some_and(|c| c.wire.is_some()) {
            return;
        }
        let id = self.new_id();
        let request = metadata.start_request(id, now);
        self.connections.entry(node).or_default().wire = Some((id, Request::Metadata(request)));
    }

    /// The node with the fewest requests, of those that were not lost a moment ago. Kafka: `NetworkClient#leastLoadedNode`.
    pub fn least_loaded_node(&self) -> Option<NodeId> {
        let load = |node: NodeId| {
            self.connections
                .get(&node)
                .map_or(0, |c| c.in_flight.len() + usize::from(c.wire.is_some()))
        };
        let available = self.nodes.iter().copied().filter(|&node| !self.is_unavailable(node));
        available.min_by_key(|&node| load(node))
    }

    fn wait(&mut self, wait: Wait<'_>) -> Result<(), ClientError> {
        let Wait {
            wait_ms,
            interrupt,
            wakeup,
        } = wait;
        let deadline = self.clock.monotonic_ms().saturating_add(wait_ms);
        loop {
            if wakeup.swap(false, Ordering::AcqRel) {
                return Err(ClientError::Wakeup);
            }
            if self.connections.values().any(|c| c.wire.is_some()) {
                return Ok(());
            }
            if wait_ms > 0 && !self.has_arrived() {
                self.let_answers_arrive();
            }
            if self.has_arrived() {
                return Ok(());
            }
            let left = deadline - self.clock.monotonic_ms();
            if left <= 0 {
                return Ok(());
            }
            let slice = left.min(INTERRUPT_CHECK_MS);
            if let Some(peer) = self.transport.in_process() {
                peer.quiescent();
            }
            let arrived = self.transport.wait(Duration::from_millis(slice.unsigned_abs()));
            self.keep_alive();
            if arrived {
                return Ok(());
            }
            if interrupt() {
                return Err(ClientError::Interrupted);
            }
        }
    }

    fn receive(&mut self, node: NodeId) -> Option<Completion> {
        loop {
            let completion = self.transport.receive(node)?;
            let connection = self.connections.get_mut(&node)?;
            let Some(index) = connection
                .in_flight
                .iter()
                .position(|f| f.id == completion.correlation_id)
            else {
                continue; // It had been given up: the answer to an expired request.
            };
            connection.in_flight.remove(index);
            if completion.result.is_err() {
                self.disconnected(node);
            }
            return Some(completion);
        }
    }

    /// Kafka: `ConsumerNetworkClient#checkDisconnects`: what was not sent fails with the connection.
    fn disconnected(&mut self, node: NodeId) {
        let until = self.clock.monotonic_ms().saturating_add(self.reconnect_backoff_ms);
        let Some(connection) = self.connections.get_mut(&node) else {
            return;
        };
        connection.backoff_until_ms = until;
        let unsent = std::mem::take(&mut connection.unsent);
        for (correlation_id, _) in unsent {
            self.done.push_back(Completion {
                node,
                correlation_id,
                result: Err(Failure::Disconnected),
            });
        }
    }

    /// A request without an answer in its time ends its connection.
    /// Kafka: `InFlightRequests#nodesWithTimedOutRequests`.
    fn expire(&mut self, metadata: &mut Metadata, now: i64) {
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            let Some(connection) = self.connections.get_mut(&node) else {
                continue;
            };
            let late = connection.in_flight.iter().any(|f| f.expires_ms <= now);
            if !late || self.transport.has_arrived(node) {
                continue;
            }
            let lost = std::mem::take(&mut connection.in_flight);
            // A late answer must not end a later wait, nor hold back the next request.
            self.transport.disconnect(node);
            for lost in lost {
                let completion = Completion {
                    node,
                    correlation_id: lost.id,
                    result: Err(Failure::TimedOut),
                };
                if metadata.is_mine(lost.id) {
                    metadata.on_failure(now);
                } else {
                    self.done.push_back(completion);
                }
            }
            metadata.request_update();
            self.disconnected(node);
        }
    }

    fn apply_metadata(&mut self, metadata: &mut Metadata, completion: Completion, now: i64) {
        match completion.result {
            // A node that has just started names none. Kafka: `DefaultMetadataUpdater#handleSuccessfulResponse`.
            Ok(Response::Metadata(response)) if !response.nodes.is_empty() => {
                self.nodes.clone_from(&response.nodes);
                metadata.on_response(response, now);
            }
            _ => metadata.on_failure(now),
        }
    }
}

/// request.timeout.ms; a join is answered when the rebalance ends, which takes max.poll.interval.ms at most.
/// Kafka: `AbstractCoordinator#sendJoinGroupRequest`.
fn timeout_of(request: &Request, request_timeout_ms: i64) -> i64 {
    match request {
        Request::JoinGroup(join) => {
            let rebalance = i64::from(join.rebalance_timeout_ms).saturating_add(JOIN_GROUP_TIMEOUT_LAPSE_MS);
            rebalance.max(request_timeout_ms)
        }
        _ => request_timeout_ms,
    }
}
