//! One client's connections: which of them can be used, which requests are in flight on them, and which were lost with
//! them. It never waits by itself. Kafka: `NetworkClient`.

use std::collections::BTreeSet;
use std::time::Duration;

use fletchlog_api::transport::{Waker, node_of_connection};
use fletchlog_api::{ErrorCode, Failure, InProcess, MetadataResponse, NodeId, Ready, Request, Response, Transport};
use fletchlog_records::planted;

use super::RequestId;
use super::cluster_connection_states::{ClusterConnectionStates, ConnectionState};
use super::in_flight_requests::{InFlightRequest, InFlightRequests};
use super::reconnect::Reconnect;
use crate::ClientError;
use crate::metrics::RequestMetrics;
use crate::random::Random;

/// Start of a wait for metadata that is longer than any metadata.recovery.rebootstrap.trigger.ms.
const SINCE_EVER: i64 = i64::MIN;

/// Result of a request. Kafka: `ClientResponse`.
#[derive(Debug)]
pub(crate) struct ClientResponse<K> {
    pub node: NodeId,
    pub correlation_id: RequestId,
    pub kind: K,
    pub result: Result<Response, Failure>,
}

/// The connections of one client and the requests on them. `K` says what a request is for.
pub(crate) struct NetworkClient<K> {
    transport: Box<dyn Transport>,
    states: ClusterConnectionStates,
    in_flight: InFlightRequests<K>,
    /// The nodes of the last Metadata response; before the first, and after all of them were lost, the bootstrap nodes.
    /// Of several equally good nodes the first is used, so many clients start at different ones.
    nodes: Vec<NodeId>,
    /// Connections must be opened. In-process they need not, and the bootstrap nodes are all there are.
    is_remote: bool,
    random: Random,
    /// See [`Reconnect`].
    rebootstrap_after_ms: Option<i64>,
    /// Since when metadata has been wanted. Kafka: `DefaultMetadataUpdater#metadataAttemptStartMs`.
    metadata_wanted_since_ms: Option<i64>,
    next_correlation_id: RequestId,
    /// Nodes whose connections are being opened; cleared when a wait ends with an event.
    connecting: BTreeSet<NodeId>,
    /// A connection was lost since [`NetworkClient::take_disconnects`].
    disconnects: bool,
    /// The error that the next call must return. Kafka: `Metadata#fatalException`.
    fatal: Option<ClientError>,
    metrics: RequestMetrics,
}

impl<K> NetworkClient<K> {
    /// `max_in_flight`: max.in.flight.requests.per.connection. `seed`: for the jitter of the back-off.
    pub(crate) fn new(transport: Box<dyn Transport>, max_in_flight: usize, reconnect: Reconnect, seed: u64) -> Self {
        let nodes = transport.bootstrap();
        let is_remote = nodes.iter().all(|&node| node < 0);
        let mut client = Self {
            nodes: Vec::new(),
            is_remote,
            random: Random::new(seed),
            rebootstrap_after_ms: reconnect.rebootstrap_after_ms.filter(|_| is_remote),
            metadata_wanted_since_ms: None,
            transport,
            states: ClusterConnectionStates::new(reconnect.backoff, seed),
            in_flight: InFlightRequests::new(max_in_flight),
            next_correlation_id: 0,
            connecting: BTreeSet::new(),
            disconnects: false,
            fatal: None,
            metrics: RequestMetrics::default(),
        };
        client.begin_with(nodes);
        client
    }

    /// Sets the nodes; those of remote brokers start at a random one. Kafka: `NetworkClient#randOffset`.
    fn begin_with(&mut self, mut nodes: Vec<NodeId>) {
        if self.is_remote {
            let first = self.random.below(nodes.len());
            nodes.rotate_left(first);
        }
        self.nodes = nodes;
    }

    /// Counts of requests.
    pub(crate) fn metrics(&self) -> RequestMetrics {
        self.metrics
    }

    /// The broker, if it is in-process.
    pub(crate) fn in_process(&mut self) -> Option<&mut dyn InProcess> {
        self.transport.in_process()
    }

    /// Whether the broker is closed for good.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.in_process().is_some_and(|peer| peer.is_closed())
    }

    /// The transport, which sends a member's heartbeats between two polls.
    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// See [`Transport::transaction_version`].
    pub(crate) fn transaction_version(&self) -> i16 {
        self.transport.transaction_version()
    }

    /// See [`Transport::waker`].
    pub(crate) fn waker(&self) -> Option<Waker> {
        self.transport.waker()
    }

    /// Sets the nodes from a Metadata response. Returns false if it says nothing about the cluster: it then counts as a
    /// failed request. Kafka: `NetworkClient.DefaultMetadataUpdater#handleSuccessfulResponse`, `#initiateRebootstrap`
    /// (KIP-1102).
    pub(crate) fn handle_metadata(&mut self, response: &MetadataResponse) -> bool {
        if response.error_code == ErrorCode::REBOOTSTRAP_REQUIRED {
            self.metadata_wanted_since_ms = Some(SINCE_EVER);
            return false;
        }
        // The response of a node that has just started has no nodes.
        if response.brokers.is_empty() {
            return false;
        }
        self.set_nodes(&response.nodes().collect::<Vec<_>>());
        true
    }

    /// Sets the nodes of the cluster.
    pub(super) fn set_nodes(&mut self, nodes: &[NodeId]) {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        self.begin_with(nodes);
        self.metadata_wanted_since_ms = None;
    }

    /// The node for a metadata request that is due: the least loaded one. While no known node can be reached, it is one
    /// of bootstrap.servers. Kafka: `NetworkClient.DefaultMetadataUpdater#maybeUpdate`.
    pub(crate) fn node_for_metadata(&mut self, now: i64) -> Option<NodeId> {
        self.metadata_wanted_since_ms.get_or_insert(now);
        let node = self.least_loaded_ready_node(now);
        let all_lost = node.is_none() && self.nodes.iter().all(|&node| self.states.failure(node, now).is_some());
        let are_first = self.nodes.iter().all(|&node| node < 0);
        if !all_lost || self.rebootstrap_after_ms.is_none() || are_first {
            return node;
        }
        self.rebootstrap(now, "no known node can be reached");
        self.least_loaded_ready_node(now)
    }

    /// Whether a metadata request that is due must precede everything else. Not while it waits for a connection that is
    /// being opened: other requests do not wait with it. Kafka: `NetworkClient#isReady`, where other requests wait,
    /// too.
    pub(crate) fn metadata_go_first(&mut self, are_due: bool, now: i64) -> bool {
        let is_opening = |node: &NodeId| self.states.state(*node) == ConnectionState::Connecting;
        are_due && !(self.nodes.iter().any(is_opening) && self.node_for_metadata(now).is_none())
    }

    /// Kafka: `NetworkClient.DefaultMetadataUpdater#rebootstrap`.
    fn rebootstrap(&mut self, now: i64, why: &str) {
        log::info!("{why}: asking bootstrap.servers for the nodes of the cluster");
        let nodes = self.transport.bootstrap();
        self.begin_with(nodes);
        self.metadata_wanted_since_ms = Some(now);
    }

    /// Restarts from bootstrap.servers if metadata has been wanted for too long. Returns the requests that are
    /// cancelled with their connections. Kafka: `NetworkClient#handleRebootstrap` (KIP-1102).
    fn handle_rebootstrap(&mut self, now: i64) -> Vec<ClientResponse<K>> {
        let too_long = |since: i64| Some(now.saturating_sub(since)) > self.rebootstrap_after_ms;
        if self.rebootstrap_after_ms.is_none() || !self.metadata_wanted_since_ms.is_some_and(too_long) {
            return Vec::new();
        }
        let mut given_up = Vec::new();
        for node in self.nodes.clone() {
            if !self.is_left_alone(node, now) {
                given_up.extend(self.give_up(node, &Failure::Disconnected, now));
            }
        }
        let why = match self.metadata_wanted_since_ms {
            Some(SINCE_EVER) => "a node asks for it",
            _ => "no metadata for metadata.recovery.rebootstrap.trigger.ms",
        };
        self.rebootstrap(now, why);
        given_up
    }

    /// The number of the next request.
    pub(crate) fn next_correlation_id(&mut self) -> RequestId {
        let id = self.next_correlation_id;
        self.next_correlation_id = id.wrapping_add(1).max(0);
        id
    }

    /// Whether a request can be sent to a node now; opens its connection if that is allowed.
    /// Kafka: `NetworkClient#ready`.
    pub(crate) fn ready(&mut self, node: NodeId, now: i64) -> bool {
        if self.is_left_alone(node, now) || !self.in_flight.can_send_more(node) {
            return false;
        }
        match self.transport.ready(node) {
            Ready::Yes => {
                self.states.connected(node);
                return true;
            }
            Ready::Connecting => {
                self.connecting.insert(node);
                self.states.connecting(node, now);
            }
            Ready::Throttled(ms) => self.states.throttle(node, now.saturating_add(ms)),
            Ready::Failed(why) => self.disconnected(node, why, now),
        }
        false
    }

    fn disconnected(&mut self, node: NodeId, why: Failure, now: i64) {
        self.note_fatal(&why);
        if why == Failure::RebootstrapRequired {
            self.metadata_wanted_since_ms = Some(SINCE_EVER);
        }
        self.states.disconnected(node, why, now);
        self.disconnects = true;
    }

    fn note_fatal(&mut self, why: &Failure) {
        if self.fatal.is_none() {
            self.fatal = ClientError::of_fatal(why);
        }
    }

    /// A fatal failure, returned once: the call ends with it, and the next one tries again.
    /// Kafka: `Metadata#maybeThrowAnyException`.
    pub(crate) fn take_fatal(&mut self) -> Option<ClientError> {
        self.fatal.take()
    }

    /// Which node was lost last and why, with its address, if it has sent no response since: the text of a time-out.
    pub(crate) fn last_failure(&self) -> Option<String> {
        let (node, failure) = self.states.last_failure()?;
        let failure = failure.to_string();
        let address = self
            .transport
            .address(node)
            .filter(|address| !failure.contains(address));
        let id = node_of_connection(node);
        Some(match address {
            None if node < 0 => failure, // One of bootstrap.servers.
            None => format!("node {id}: {failure}"),
            Some(address) if node < 0 => format!("{address}: {failure}"),
            Some(address) => format!("node {id} ({address}): {failure}"),
        })
    }

    /// Whether a connection was lost since the last call: the leaders may have moved.
    /// Kafka: `DefaultMetadataUpdater#handleServerDisconnect`.
    pub(crate) fn take_disconnects(&mut self) -> bool {
        std::mem::take(&mut self.disconnects)
    }

    /// Why a node whose connection was lost recently may not be used yet. Kafka: `NetworkClient#connectionFailed`.
    pub(crate) fn connection_failure(&self, node: NodeId, now: i64) -> Option<&Failure> {
        self.states.failure(node, now)
    }

    /// Whether nothing may be sent yet: the connection was lost recently, or the node asked for a pause.
    fn is_left_alone(&self, node: NodeId, now: i64) -> bool {
        self.states.delay(node, now).is_some()
    }

    /// ms until a node that may not be used now may be used again; `i64::MAX` for any other, which only a response
    /// makes ready. Kafka: `NetworkClient#connectionDelay`.
    pub(crate) fn connection_delay(&self, node: NodeId, now: i64) -> i64 {
        self.states.delay(node, now).unwrap_or(i64::MAX)
    }

    /// As [`NetworkClient::connection_delay`], for the first of all nodes.
    pub(crate) fn nodes_delay(&self, now: i64) -> i64 {
        let delays = self.nodes.iter().map(|&node| self.connection_delay(node, now));
        delays.min().unwrap_or(i64::MAX)
    }

    /// The best of the nodes that may be used: of those that can be sent to, the one with the fewest unanswered
    /// requests; else one whose connection is being opened; else the one to which a connection was not attempted for
    /// longest. So a node that does not respond to attempts to connect is not chosen while another one responds.
    /// Kafka: `NetworkClient#leastLoadedNode`.
    pub(crate) fn least_loaded_node(&self, now: i64) -> Option<NodeId> {
        let usable = self.nodes.iter().filter(|&&node| !self.is_left_alone(node, now));
        usable.copied().min_by_key(|&node| self.rank(node))
    }

    /// Rank of a node for [`Self::least_loaded_node`]: lower is better.
    fn rank(&self, node: NodeId) -> (u8, Option<i64>) {
        let load = i64::try_from(self.in_flight.count(node)).ok();
        if !self.is_remote {
            return (0, load);
        }
        match self.states.state(node) {
            ConnectionState::Ready if self.in_flight.can_send_more(node) => (0, load),
            ConnectionState::Connecting => (
                if planted!("node-that-is-being-opened-is-asked-first") {
                    0
                } else {
                    1
                },
                None,
            ),
            ConnectionState::Disconnected => (2, self.states.last_attempt_ms(node)),
            ConnectionState::Ready => (3, load),
        }
    }

    /// The least loaded node, if a request can be sent to it now.
    pub(crate) fn least_loaded_ready_node(&mut self, now: i64) -> Option<NodeId> {
        // Connections that were being opened may be open by now.
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            if self.states.state(node) == ConnectionState::Connecting {
                self.ready(node, now);
            }
        }
        for _ in 0..self.nodes.len() {
            let node = self.least_loaded_node(now)?;
            if self.ready(node, now) {
                return Some(node);
            }
            if !self.is_left_alone(node, now) {
                return None; // Its connection is being opened, or is busy.
            }
        }
        None
    }

    /// Queues a request for a connection that is [`NetworkClient::ready`]. Kafka: `NetworkClient#send`.
    pub(crate) fn send(&mut self, node: NodeId, id: RequestId, kind: K, request: Request, timeout_ms: i64) {
        let request = InFlightRequest::new(id, kind, request, timeout_ms);
        self.in_flight.add(node, request);
    }

    /// Writes what was sent. Kafka: the writing part of `Selector#poll`.
    pub(crate) fn write(&mut self, now: i64) {
        let transport = &mut self.transport;
        let written = &mut self.metrics.requests;
        self.in_flight.write(now, |node, id, request| {
            *written += 1;
            transport.send(node, id, request);
        });
    }

    /// Whether a queued request is not written yet.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.in_flight.has_unwritten()
    }

    /// Whether a response has arrived on this connection.
    pub(crate) fn has_arrived(&mut self, node: NodeId) -> bool {
        self.transport.has_arrived(node)
    }

    /// Waits for a response or a connection, at most `ms`; declares that nothing more will be sent before. May return
    /// early. Returns whether one arrived.
    pub(crate) fn wait(&mut self, ms: i64) -> bool {
        if let Some(peer) = self.in_process() {
            peer.quiescent();
        }
        let came = self
            .transport
            .wait(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        if came {
            self.connecting.clear();
        }
        came
    }

    /// Takes the oldest response that has arrived from a node, if any. If the connection is lost, all its requests are
    /// cancelled at once, oldest first. Kafka: `NetworkClient#handleCompletedReceives`, `#processDisconnection`.
    pub(crate) fn receive(&mut self, node: NodeId, now: i64) -> Vec<ClientResponse<K>> {
        while let Some(completion) = self.transport.receive(node) {
            let Some(request) = self.in_flight.complete(node, completion.correlation_id) else {
                continue; // It was cancelled: the response to an expired request.
            };
            let lost = match &completion.result {
                Ok(_) => {
                    self.states.answered(node);
                    self.metrics.latency.add(now.saturating_sub(request.sent_ms).max(0));
                    None
                }
                Err(why @ Failure::UnsupportedVersion(_)) => {
                    self.note_fatal(why);
                    None
                }
                Err(why) => Some(why.clone()),
            };
            let mut responses = vec![ClientResponse {
                node,
                correlation_id: request.correlation_id,
                kind: request.kind,
                result: completion.result,
            }];
            if let Some(why) = lost {
                responses.extend(self.give_up(node, &why, now));
            }
            return responses;
        }
        Vec::new()
    }

    /// Closes the connections with a request that has timed out, and all of them if metadata has been wanted for too
    /// long. Kafka: `NetworkClient#handleTimedOutRequests`, `#handleRebootstrap`.
    pub(crate) fn handle_timed_out_requests(&mut self, now: i64) -> Vec<ClientResponse<K>> {
        let mut responses = self.handle_rebootstrap(now);
        for node in self.in_flight.nodes_with_timed_out_requests(now) {
            if self.transport.has_arrived(node) {
                continue;
            }
            responses.extend(self.give_up(node, &Failure::TimedOut, now));
        }
        responses
    }

    /// Closes a connection and cancels its requests. Kafka: `NetworkClient#cancelInFlightRequests`.
    fn give_up(&mut self, node: NodeId, why: &Failure, now: i64) -> impl Iterator<Item = ClientResponse<K>> {
        let level = if *why == Failure::TimedOut {
            log::Level::Info
        } else {
            log::Level::Debug
        };
        log::log!(level, "node {}: {why}", node_of_connection(node));
        self.disconnected(node, why.clone(), now);
        // Data left in its socket must not end a later wait, nor delay the next request.
        self.transport.disconnect(node);
        let requests = self.in_flight.clear_all(node);
        let why = why.clone();
        requests.into_iter().map(move |request| ClientResponse {
            node,
            correlation_id: request.correlation_id,
            kind: request.kind,
            result: Err(why.clone()),
        })
    }

    /// ms until time alone changes what can be done: a request times out, or a node may be used again. Never 0: the
    /// calling turn does what is due now.
    pub(crate) fn poll_delay_ms(&self, now: i64) -> i64 {
        let time_out = self.in_flight.first_time_out(now);
        let usable = self.states.first_delay(now);
        time_out.into_iter().chain(usable).min().unwrap_or(i64::MAX).max(1)
    }

    /// Whether there is nothing to wait for: no request is in flight, and no connection is being opened.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.connecting.is_empty()
    }

    /// Connections whose oldest request fulfils a condition; only the oldest can be answered next.
    pub(crate) fn nodes_by_oldest(&self, condition: impl FnMut(&InFlightRequest<K>) -> bool) -> Vec<NodeId> {
        self.in_flight.nodes_by_oldest(condition)
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &InFlightRequest<K>> {
        self.in_flight.iter()
    }

    pub(crate) fn requests_mut(&mut self) -> impl Iterator<Item = &mut InFlightRequest<K>> {
        self.in_flight.iter_mut()
    }
}
