//! The consumer's connections as FIFOs (spec 7.4). Kafka: `ConsumerNetworkClient` over `NetworkClient`.
//!
//! ```text
//! per connection:  unsent (built) -> sent -> wire -> broker -> socket (answered, not read) -> done (read) -> callback
//! try_send :  first unsent -> sent, if no request waits to be written and no metadata request goes first
//! net_poll :  metadata -> sent if due; take the first answer of each socket; write what was sent
//! ```
//! A poll that does not wait cannot read the response to a request of its own: a response takes longer than the rest of
//! such a poll. The owner of a request runs its callback and takes the completions out of `done` with
//! [`ConsumerNetworkClient::take_done`]. Which poll does that decides the order of records, so this client never reads
//! on its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fletchlog_api::transport::{Heartbeat, HeartbeatPlan, Waker};
use fletchlog_api::{Clock, Completion, NodeId, Request, Response, Transport, waiting};

use super::Interrupt;
use super::metadata::ConsumerMetadata;
use crate::ClientError;
use crate::metrics::RequestMetrics;
use crate::net::{ClientResponse, NetworkClient, Reconnect, RequestId};
use crate::random::seed_of;

/// Kafka: `ConsumerUtils.CONSUMER_MAX_INFLIGHT_REQUESTS_PER_CONNECTION`.
const MAX_IN_FLIGHT: usize = 100;

/// A join may take this much longer than the rebalance itself. Kafka: `AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE`.
const JOIN_GROUP_TIMEOUT_LAPSE_MS: i64 = 5_000;

/// What is known of a request in flight.
struct Sent {
    is_metadata: bool,
    /// Written by the current poll, which has not waited since: the response cannot have arrived.
    just_written: bool,
}

impl Sent {
    fn new(is_metadata: bool) -> Self {
        Self {
            is_metadata,
            just_written: false,
        }
    }
}

/// How `net_poll` may wait for a response.
pub struct Wait<'a> {
    /// At most this long.
    pub wait_ms: i64,
    /// Called about every 50 ms.
    pub interrupt: Interrupt<'a>,
    /// Ends the wait with `Wakeup`.
    pub wakeup: &'a AtomicBool,
}

/// All connections of one consumer.
pub struct ConsumerNetworkClient {
    client: NetworkClient<Sent>,
    clock: Arc<dyn Clock>,
    unsent: BTreeMap<NodeId, VecDeque<(RequestId, Request)>>,
    done: VecDeque<Completion>,
    in_poll: bool,
    request_timeout_ms: i64,
}

impl ConsumerNetworkClient {
    /// See [`Transport::waker`].
    pub fn waker(&self) -> Option<Waker> {
        self.client.waker()
    }

    /// See [`Transport::watch`].
    pub fn watch(&mut self, notify: Waker) -> Option<i32> {
        self.client.transport().watch(notify)
    }

    /// Starts without connections; each is opened when it is first used.
    pub fn new(
        transport: Box<dyn Transport>,
        clock: Arc<dyn Clock>,
        request_timeout_ms: i64,
        reconnect: Reconnect,
    ) -> Self {
        Self {
            client: NetworkClient::new(transport, MAX_IN_FLIGHT, reconnect, seed_of(&*clock)),
            clock,
            unsent: BTreeMap::new(),
            done: VecDeque::new(),
            in_poll: false,
            request_timeout_ms,
        }
    }

    /// Queues a request as unsent. Its content is fixed now; a later `try_send` + `net_poll` writes it.
    pub fn send(&mut self, connection: NodeId, request: Request) -> RequestId {
        let id = self.client.next_correlation_id();
        self.unsent.entry(connection).or_default().push_back((id, request));
        id
    }

    /// Takes what was queued by [`Self::send`], in the order of nodes, and sends none of it.
    pub(super) fn take_unsent(&mut self) -> Vec<(NodeId, Request)> {
        let unsent = std::mem::take(&mut self.unsent).into_iter();
        unsent
            .flat_map(|(node, requests)| requests.into_iter().map(move |(_, request)| (node, request)))
            .collect()
    }

    /// Sends the first unsent request of each connection that is ready, unless a metadata request goes first.
    /// Kafka: `ConsumerNetworkClient#trySend`.
    pub fn try_send(&mut self, metadata: &ConsumerMetadata) {
        let now = self.now_ms();
        if !self.client.metadata_go_first(metadata.is_update_due(now), now) {
            for (&node, unsent) in &mut self.unsent {
                if !unsent.is_empty()
                    && self.client.ready(node, now)
                    && let Some((id, request)) = unsent.pop_front()
                {
                    let timeout_ms = timeout_of(&request, self.request_timeout_ms);
                    self.client.send(node, id, Sent::new(false), request, timeout_ms);
                }
            }
        }
        self.check_disconnects(now);
    }

    /// One turn of the selector: reads at most one response per connection, then writes what was sent. A metadata
    /// response is applied at once, all others go to `done`. Kafka: `NetworkClient#poll`.
    ///
    /// # Errors
    /// `Interrupted` or `Wakeup` from the wait; nothing was read or written in that turn. A fatal error
    /// (authentication, versions), once.
    pub fn net_poll(&mut self, metadata: &mut ConsumerMetadata, wait: Option<Wait<'_>>) -> Result<(), ClientError> {
        let now = self.now_ms();
        self.note_disconnects(metadata);
        self.send_metadata_request(metadata, now);
        if let Some(wait) = wait {
            self.wait(wait)?;
        }
        let now = self.now_ms();
        for response in self.client.handle_timed_out_requests(now) {
            self.take(metadata, response, now);
        }
        for node in self.nodes_that_may_have_answered() {
            loop {
                // A refresh by age is sent only when nothing else is, so its response delays no other.
                let by_age = metadata.in_progress_by_age();
                let responses = self.client.receive(node, now);
                let again = by_age && matches!(&responses[..], [one] if one.kind.is_metadata);
                for response in responses {
                    self.take(metadata, response, now);
                }
                if !again {
                    break;
                }
            }
        }
        self.note_disconnects(metadata);
        self.check_disconnects(now);
        for request in self.client.requests_mut().filter(|r| !r.is_written()) {
            request.kind.just_written = self.in_poll;
        }
        self.client.write(now);
        self.client.take_fatal().map_or(Ok(()), Err)
    }

    /// Takes the responses that were read and whose callbacks have not run, oldest first.
    pub fn take_done(&mut self) -> VecDeque<Completion> {
        std::mem::take(&mut self.done)
    }

    /// Whether any request is unsent, in flight or has an unread response.
    pub fn has_pending(&self) -> bool {
        !self.client.is_idle() || self.has_unsent()
    }

    fn has_unsent(&self) -> bool {
        self.unsent.values().any(|unsent| !unsent.is_empty())
    }

    /// Whether another `net_poll` without waiting would read or write something.
    pub fn can_progress(&mut self, metadata: &ConsumerMetadata) -> bool {
        let now = self.now_ms();
        if !self.done.is_empty() || self.client.has_unwritten() || self.has_arrived() {
            return true;
        }
        if metadata.is_update_due(now) && self.client.node_for_metadata(now).is_some() {
            return true;
        }
        if self.client.metadata_go_first(metadata.is_update_due(now), now) {
            return false;
        }
        let waiting = self.unsent.iter().filter(|(_, unsent)| !unsent.is_empty());
        waiting.into_iter().any(|(&node, _)| self.client.ready(node, now))
    }

    /// Whether the node was lost recently. Kafka: `ConsumerNetworkClient#isUnavailable`.
    pub fn is_unavailable(&self, node: NodeId) -> bool {
        self.client.connection_failure(node, self.now_ms()).is_some()
    }

    /// See [`NetworkClient::last_failure`].
    pub fn last_failure(&self) -> Option<String> {
        self.client.last_failure()
    }

    /// The reason for a time-out: which node does not respond and why, else `otherwise`.
    pub fn explain_silence(&self, otherwise: &str) -> String {
        self.last_failure().unwrap_or_else(|| otherwise.to_owned())
    }

    /// The node for a request that any node can serve; `None` while all are unavailable.
    /// Kafka: `ConsumerNetworkClient#leastLoadedNode`.
    pub fn least_loaded_node(&self) -> Option<NodeId> {
        self.client.least_loaded_node(self.now_ms())
    }

    /// ms until time alone changes what can be sent or answered. Kafka: `NetworkClient#pollDelayMs`.
    pub fn poll_delay_ms(&self) -> i64 {
        self.client.poll_delay_ms(self.now_ms())
    }

    /// A poll begins: see [`fletchlog_api::InProcess::begin_poll`]. Responses to what it writes from now on arrive
    /// while it waits, or after it.
    pub fn begin_poll(&mut self) {
        if let Some(peer) = self.client.in_process() {
            peer.begin_poll();
        }
        self.in_poll = true;
    }

    /// The poll returns: the responses to everything written arrive before the next call.
    pub fn end_poll(&mut self) {
        self.in_poll = false;
        self.let_answers_arrive();
    }

    /// Lets the responses to written requests arrive, because time passes: in a wait, or between two polls.
    pub fn let_answers_arrive(&mut self) {
        for request in self.client.requests_mut() {
            request.kind.just_written = false;
        }
    }

    /// Reports to the cluster that this client is alive, in place of a heartbeat thread.
    pub fn keep_alive(&mut self) {
        if let Some(peer) = self.client.in_process() {
            peer.keep_alive();
        }
    }

    /// Whether the broker is in this process.
    pub fn is_in_process(&mut self) -> bool {
        self.client.in_process().is_some()
    }

    /// See [`Transport::begin_heartbeats`].
    pub fn begin_heartbeats(&mut self, plan: HeartbeatPlan) {
        self.client.transport().begin_heartbeats(plan);
    }

    /// See [`Transport::end_heartbeats`].
    pub fn end_heartbeats(&mut self) -> Option<Heartbeat> {
        self.client.transport().end_heartbeats()
    }

    /// Whether the broker is closed for good.
    pub fn is_closed(&mut self) -> bool {
        self.client.is_closed()
    }

    /// Counts of requests.
    pub(crate) fn metrics(&self) -> RequestMetrics {
        self.client.metrics()
    }

    /// Wall clock, ms since the epoch.
    pub fn wall_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Monotonic milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    fn nodes_that_may_have_answered(&self) -> Vec<NodeId> {
        self.client.nodes_by_oldest(|r| r.is_written() && !r.kind.just_written)
    }

    fn has_arrived(&mut self) -> bool {
        let nodes = self.nodes_that_may_have_answered();
        nodes.into_iter().any(|node| self.client.has_arrived(node))
    }

    /// Kafka: `NetworkClient.DefaultMetadataUpdater#maybeUpdate`.
    fn send_metadata_request(&mut self, metadata: &mut ConsumerMetadata, now: i64) {
        let age_only = metadata.is_due_by_age(now) && !self.has_unsent() && !self.client.has_unwritten();
        if !metadata.is_update_due(now) && !age_only {
            return;
        }
        let Some(node) = self.client.node_for_metadata(now) else {
            return;
        };
        let id = self.client.next_correlation_id();
        let request = Request::Metadata(metadata.start_request());
        self.client
            .send(node, id, Sent::new(true), request, self.request_timeout_ms);
    }

    fn wait(&mut self, wait: Wait<'_>) -> Result<(), ClientError> {
        let Wait {
            wait_ms,
            interrupt,
            wakeup,
        } = wait;
        let deadline = self.now_ms().saturating_add(wait_ms);
        loop {
            if wakeup.swap(false, Ordering::AcqRel) {
                return Err(ClientError::Wakeup);
            }
            if self.client.has_unwritten() || !self.done.is_empty() {
                return Ok(());
            }
            if wait_ms > 0 && !self.has_arrived() {
                self.let_answers_arrive();
            }
            let left = deadline - self.now_ms();
            if left <= 0 || self.has_arrived() {
                return Ok(());
            }
            let limit = Duration::from_millis(left.unsigned_abs());
            let arrived = waiting::wait(limit, |time| {
                self.client.wait(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
            });
            self.keep_alive();
            if arrived {
                return Ok(());
            }
            if interrupt() {
                return Err(ClientError::Interrupted);
            }
        }
    }

    /// Fails the unsent requests of a lost connection. Kafka: `ConsumerNetworkClient#checkDisconnects`.
    fn check_disconnects(&mut self, now: i64) {
        for (&node, unsent) in &mut self.unsent {
            if !unsent.is_empty()
                && let Some(why) = self.client.connection_failure(node, now)
            {
                self.done.extend(unsent.drain(..).map(|(correlation_id, _)| Completion {
                    node,
                    correlation_id,
                    result: Err(why.clone()),
                }));
            }
        }
    }

    fn note_disconnects(&mut self, metadata: &mut ConsumerMetadata) {
        if self.client.take_disconnects() {
            metadata.request_update();
        }
    }

    fn take(&mut self, metadata: &mut ConsumerMetadata, response: ClientResponse<Sent>, now: i64) {
        let ClientResponse {
            node,
            correlation_id,
            kind,
            result,
        } = response;
        if kind.is_metadata {
            match result {
                Ok(Response::Metadata(response)) if self.client.handle_metadata(&response) => {
                    metadata.on_response(response, now);
                }
                _ => metadata.failed_update(now),
            }
        } else {
            self.done.push_back(Completion {
                node,
                correlation_id,
                result,
            });
        }
    }
}

/// The time-out of a request: request.timeout.ms, or longer for a join, which is answered when the rebalance ends,
/// after max.poll.interval.ms at most. Kafka: `AbstractCoordinator#sendJoinGroupRequest`.
fn timeout_of(request: &Request, request_timeout_ms: i64) -> i64 {
    match request {
        Request::JoinGroup(join) => {
            let rebalance = i64::from(join.rebalance_timeout_ms).saturating_add(JOIN_GROUP_TIMEOUT_LAPSE_MS);
            rebalance.max(request_timeout_ms)
        }
        _ => request_timeout_ms,
    }
}
