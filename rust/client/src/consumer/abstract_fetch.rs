//! Which partitions are fetched from which node, in which order (spec 7.3, 7.8), and what becomes of the responses.
//! Kafka: `AbstractFetch`, `Fetcher#sendFetches`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{
    Completion, ErrorCode, FetchRequest, FetchResponse, NO_TOPIC_ID, NodeId, Request, Response, java_hash,
};
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::completed_fetch::CompletedFetch;
use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::decision_table::RequestOrder;
use super::fetch_session_handler::{FetchSessionHandler, Wanted};
use super::settings::{FetchOrder, Settings};
use super::subscription_state::{Changed, PartitionState};
use super::timestamp_collector::is_at_end;
use super::trace::{TraceEvent, TraceKind};
use crate::metrics::ConsumerMetrics;
use crate::net::RequestId;
use left_out::LeftOut;

/// Fetches to one node.
#[derive(Debug, Clone, Default)]
struct NodeFetches {
    session: FetchSessionHandler,
    /// The fetch in flight: at most one.
    in_flight: Option<RequestId>,
    /// When it was sent.
    asked_ms: i64,
    /// Partitions whose wanted values may differ from the session's last request. Only these are checked, so a request
    /// costs nothing for unchanged partitions.
    changed: Changed,
    /// Number of consecutive responses that could not be used.
    thrown_away: u32,
}

impl NodeFetches {
    /// Whether the next request must wait. After the first unusable response a full request follows at once, after
    /// further ones only when retry.backoff.ms has passed. (Java never waits here.)
    fn backs_off(&self, now_ms: i64, retry_backoff_ms: i64) -> bool {
        self.thrown_away > 1 && now_ms < self.asked_ms.saturating_add(retry_backoff_ms)
    }

    /// What the next request of this node's session asks for; `None` if there is nothing to fetch.
    /// Kafka: `FetchSessionHandler.Builder`, as `AbstractFetch#prepareFetchRequests` fills it.
    fn build(&mut self, node: NodeId, state: &ConsumerState, topics: Topics) -> Option<FetchRequest> {
        let wanted = |tp: &TopicPartition| state.wanted(tp, node, topics);
        let request = if self.session.is_full() {
            let all = state.fetchable_partitions().into_iter();
            let wanted: Vec<_> = all.filter_map(|tp| Some((tp.clone(), wanted(tp)?))).collect();
            (!wanted.is_empty()).then(|| self.session.build_full(wanted))
        } else {
            let partitions: Vec<&TopicPartition> = match &self.changed {
                Changed::Nothing => Vec::new(),
                Changed::Partitions(partitions) => partitions.iter().collect(),
                Changed::Everything => {
                    let gone = self.session.partitions().filter(|tp| !state.subs.is_assigned(tp));
                    state.subs.iter().map(|(tp, _)| tp).chain(gone).collect()
                }
            };
            let partitions = state.sorted(partitions).into_iter();
            let now = partitions.map(|tp| (tp.clone(), wanted(tp))).collect();
            self.session.build_incremental(now)
        };
        if let Some(request) = &request {
            self.changed = Changed::default();
            if topics.in_process && state.settings.row.topic_ids {
                let without_id = match topics.all_led {
                    true => FxHashSet::default(),
                    false => state.without_topic_id(node),
                };
                self.session.note_topic_ids(request, without_id);
            }
        }
        request
    }
}

/// How requests name topics.
#[derive(Debug, Clone, Copy)]
struct Topics {
    /// The broker is in this process: requests to it have topic names.
    in_process: bool,
    /// The metadata has a leader of every assigned partition, and so every topic.
    all_led: bool,
}

/// The fetch session of each node, and its fetch in flight: at most one. Kafka: `AbstractFetch`.
#[derive(Debug, Clone, Default)]
pub struct AbstractFetch {
    /// Kafka: `sessionHandlers`, `nodesWithPendingFetchRequests`.
    nodes: BTreeMap<NodeId, NodeFetches>,
    /// The last call sent nothing, and nothing has changed since.
    nothing_to_send: bool,
    /// The metadata has a leader of every assigned partition.
    all_led: bool,
    left_out: LeftOut,
    pub(super) metrics: ConsumerMetrics,
    /// A response had names instead of topic ids: its records may be of a topic that was recreated.
    pub(super) was_answered_by_names: bool,
}

impl AbstractFetch {
    /// Builds and queues one request for each node with something to fetch and no fetch in flight. Returns their
    /// number. Kafka: `Fetcher#sendFetches`.
    pub fn send_fetches(&mut self, state: &mut ConsumerState, net: &mut ConsumerNetworkClient) -> usize {
        let max_age_ms = state.settings.metadata_max_age_ms;
        state.subs.end_back_offs(net.now_ms());
        if state
            .subs
            .expire_preferred_replicas(net.now_ms(), max_age_ms, &state.metadata)
        {
            state.metadata.request_update();
        }
        let changed = self.take_changes(state);
        self.nothing_to_send &= changed.is_nothing();
        if self.nothing_to_send {
            return 0;
        }
        let all_busy = self.all_led && self.is_every_node_busy(state);
        if all_busy && (!state.trace.is_on() || changed.is_nothing() && !self.left_out.answered) {
            return 0;
        }
        let blocked = match state.settings.row.buffered_node && state.settings.fetch_order != FetchOrder::Timestamp {
            true if !all_busy => state.buffered_nodes(),
            // No node can be sent a request, no node is blocked, or (by timestamp) buffered records may wait for others
            // that the same node has yet to send.
            _ => FxHashSet::default(),
        };
        if state.trace.is_on() {
            self.report_left_out(changed, state, &blocked, net);
        }
        if all_busy {
            return 0;
        }
        let topics = Topics {
            in_process: net.is_in_process(),
            all_led: self.all_led,
        };
        let (requests, backing_off) = self.prepare_fetch_requests(state, &blocked, topics, net);
        let sent = requests.len();
        for (node, request) in requests {
            let request = with_settings(request, &state.settings);
            state.trace.request(node, &request);
            let fetches = self.nodes.entry(node).or_default();
            fetches.in_flight = Some(net.send(node, Request::Fetch(request)));
            fetches.asked_ms = net.now_ms();
        }
        self.nothing_to_send = sent == 0 && !backing_off;
        sent
    }

    /// Returns the next request of every session with something to fetch, in request order, and whether a node is
    /// unavailable or backs off: when that ends, more may be sent. Kafka: `AbstractFetch#prepareFetchRequests`.
    fn prepare_fetch_requests(
        &mut self,
        state: &ConsumerState,
        blocked: &FxHashSet<NodeId>,
        topics: Topics,
        net: &ConsumerNetworkClient,
    ) -> (Vec<(NodeId, FetchRequest)>, bool) {
        let may_wait = state.nodes_that_may_wait();
        let mut requests = Vec::new();
        let mut backing_off = false;
        for (&node, fetches) in self.nodes.iter_mut().filter(|(_, f)| f.in_flight.is_none()) {
            let unavailable =
                net.is_unavailable(node) || fetches.backs_off(net.now_ms(), state.settings.retry_backoff_ms);
            backing_off |= unavailable;
            if unavailable || blocked.contains(&node) {
                continue;
            }
            if !may_wait.contains(&node) || state.awaits_records_of(node) {
                requests.extend(fetches.build(node, state, topics).map(|request| (node, request)));
            }
        }
        if requests.len() > 1 {
            let order = state.nodes_in_request_order(requests.iter().map(|&(node, _)| node).collect());
            requests.sort_by_key(|(node, _)| order.iter().position(|n| n == node));
        }
        (requests, backing_off)
    }

    /// Shortcut for the usual case: a fetch is in flight to every node.
    fn is_every_node_busy(&self, state: &ConsumerState) -> bool {
        let busy = |node| self.nodes.get(node).is_some_and(|n| n.in_flight.is_some());
        state.metadata.nodes().iter().all(busy)
    }

    /// Passes the changes since the last call to the nodes concerned, and returns them. Requests metadata if a partition
    /// that may be fetched has no leader.
    fn take_changes(&mut self, state: &mut ConsumerState) -> Changed {
        let mut changed = state.subs.take_changed();
        changed.extend(state.buffer.take_changed());
        if state.metadata.take_changed() {
            changed = Changed::Everything;
        }
        debug_assert!(changed.is_nothing() || state.buffer.is_counted_right());
        let misses_leader = |tp: &TopicPartition| {
            let of = state.subs.state(tp).filter(|of| of.leader().is_none());
            of.is_some_and(|of| state.why_not_fetchable(tp, of).is_none())
        };
        let request_update = match &changed {
            Changed::Nothing => return changed,
            Changed::Partitions(partitions) => {
                for tp in partitions {
                    // A change of the node that is read from counts as a change of everything.
                    if let Some(node) = state.node_of(tp) {
                        self.nodes.entry(node).or_default().changed.insert(tp);
                    } else {
                        // Its position may have had a leader before a seek, and the session of that node may list it.
                        self.nodes.values_mut().for_each(|node| node.changed.insert(tp));
                    }
                }
                partitions.iter().any(misses_leader)
            }
            Changed::Everything => {
                let assigned = || state.subs.iter().map(|(tp, _)| tp);
                for node in assigned().filter_map(|tp| state.node_of(tp)) {
                    self.nodes.entry(node).or_default();
                }
                for node in self.nodes.values_mut() {
                    node.changed = Changed::Everything;
                }
                self.all_led = assigned().all(|tp| state.metadata.leader(tp).is_some());
                assigned().any(misses_leader)
            }
        };
        if request_update {
            state.metadata.request_update();
        }
        changed
    }

    /// Whether a completion is of a fetch in flight.
    pub fn owns(&self, completion: &Completion) -> bool {
        let in_flight = self.nodes.get(&completion.node).and_then(|node| node.in_flight);
        in_flight == Some(completion.correlation_id)
    }

    /// The callback of a fetch: frees the node. Returns whether it has a response without an error.
    pub fn on_completion(&mut self, completion: Completion, state: &mut ConsumerState, now_ms: i64) -> bool {
        let node = completion.node;
        self.nodes.entry(node).or_default().in_flight = None;
        self.nothing_to_send = false;
        self.left_out.answered = true;
        match completion.result {
            Ok(Response::Fetch(response)) => self.handle_fetch_success(node, response, state, now_ms),
            _ => {
                self.handle_fetch_failure(node, state);
                false
            }
        }
    }

    /// Appends every partition of the response to the queue, in the response's order. Returns whether the response has no
    /// error. Kafka: `AbstractFetch#handleFetchSuccess`.
    fn handle_fetch_success(
        &mut self,
        node: NodeId,
        mut response: FetchResponse,
        state: &mut ConsumerState,
        now_ms: i64,
    ) -> bool {
        let fetches = self.nodes.entry(node).or_default();
        let session = &mut fetches.session;
        self.was_answered_by_names |= session.name_topics(&mut response);
        self.metrics
            .fetch_latency
            .add(now_ms.saturating_sub(fetches.asked_ms).max(0));
        let size = response.partitions().map(|(_, p)| p.size()).sum::<usize>();
        self.metrics.fetch_size.add(i64::try_from(size).unwrap_or(i64::MAX));
        let full = session.is_full();
        let misses_ids = session.is_refused() || response.error_code == ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR;
        if let Err(why) = session.handle_response(&response) {
            if misses_ids {
                state.metadata.request_update_for_ids();
            }
            fetches.thrown_away = fetches.thrown_away.saturating_add(1);
            if fetches.thrown_away == 1 {
                log::info!("fetch answer of node {node} thrown away: {why}; the next request is a full one");
            }
            state
                .trace
                .push(|| TraceEvent::new(TraceKind::Error).node(node).because(why));
            return false;
        }
        fetches.thrown_away = 0;
        state
            .trace
            .response(node, full, &response, |tp| session.fetch_offset(tp).unwrap_or(-1));
        let failed = response.partitions().any(|(_, p)| p.error_code != ErrorCode::NONE);
        for (tp, partition) in response.into_partitions() {
            if let Some(offset) = session.fetch_offset(&tp) {
                state.buffer.add(CompletedFetch::new(tp, offset, partition));
            }
        }
        !failed
    }

    /// The connection was lost. Kafka: `AbstractFetch#handleFetchFailure`.
    fn handle_fetch_failure(&mut self, node: NodeId, state: &mut ConsumerState) {
        let session = &mut self.nodes.entry(node).or_default().session;
        session.handle_error();
        for tp in session.partitions() {
            state.subs.clear_preferred_replica(tp);
        }
        state.trace.push(|| {
            TraceEvent::new(TraceKind::Error)
                .node(node)
                .because("the connection was lost before the fetch was answered")
        });
    }
}

fn with_settings(request: FetchRequest, settings: &Settings) -> FetchRequest {
    FetchRequest {
        max_wait_ms: settings.fetch_max_wait_ms,
        min_bytes: settings.fetch_min_bytes,
        max_bytes: settings.fetch_max_bytes,
        isolation_level: settings.isolation_level,
        rack_id: Arc::clone(&settings.rack),
        ..request
    }
}

/// What decides which partitions may be fetched from which node, and their order in a request (spec 7.3, 7.8).
impl ConsumerState {
    /// Why an assigned partition is in no request; `None` if it may be in one.
    fn why_not_fetchable(&self, tp: &TopicPartition, of: &PartitionState) -> Option<&'static str> {
        match of.position() {
            None => Some("no position yet"),
            Some(_) if of.is_paused() => Some("paused"),
            Some(_) if of.backs_off() => Some("its fetches are refused: again after retry.backoff.ms"),
            Some(_) if self.buffer.is_buffered(tp) => Some("the last fetch is still buffered"),
            Some(_) => None,
        }
    }

    /// Whether a fetch from `node` requests this partition.
    fn is_fetched_from(&self, node: NodeId, tp: &TopicPartition, of: &PartitionState) -> bool {
        of.read_node() == Some(node) && self.why_not_fetchable(tp, of).is_none()
    }

    /// What a fetch from `node` requests of this partition; `None` if nothing.
    fn wanted(&self, tp: &TopicPartition, node: NodeId, topics: Topics) -> Option<Wanted> {
        let of = self.subs.state(tp).filter(|of| self.is_fetched_from(node, tp, of))?;
        let topic_id = match self.settings.row.topic_ids && !topics.in_process {
            true => self.metadata.topic_id(&tp.topic),
            false => NO_TOPIC_ID,
        };
        let partition = FetchPartition {
            partition: tp.partition,
            fetch_offset: of.position()?,
            current_leader_epoch: of.leader()?.epoch,
            partition_max_bytes: self.settings.max_partition_fetch_bytes,
            ..Default::default()
        };
        Some(Wanted { topic_id, partition })
    }

    /// Partitions that a fetch from `node` requests although the metadata does not have their topic.
    fn without_topic_id(&self, node: NodeId) -> FxHashSet<TopicPartition> {
        let requested = self.subs.iter().filter(|(tp, of)| self.is_fetched_from(node, tp, of));
        let unknown = requested.filter(|(tp, _)| !self.metadata.knows(&tp.topic));
        unknown.map(|(tp, _)| tp.clone()).collect()
    }

    /// The node that a partition is read from: its leader, or a follower that the leader has named.
    fn read_node(&self, tp: &TopicPartition) -> Option<NodeId> {
        self.subs.state(tp).and_then(PartitionState::read_node)
    }

    /// The node that a partition is read from, or will be.
    fn node_of(&self, tp: &TopicPartition) -> Option<NodeId> {
        let leader = || self.metadata.leader(tp).map(|leader| leader.node);
        self.read_node(tp).or_else(leader)
    }

    /// Partitions that may be in a request, in assignment order, with the node that each is read from.
    fn fetchable_in_assignment_order(&self) -> impl Iterator<Item = (&TopicPartition, Option<NodeId>)> {
        let all = self.subs.iter();
        let fetchable = all.filter(|(tp, of)| self.why_not_fetchable(tp, of).is_none());
        fetchable.map(|(tp, of)| (tp, of.read_node()))
    }

    /// Every partition that may be in a request, in request order. Kafka: `AbstractFetch#fetchablePartitions`.
    fn fetchable_partitions(&self) -> Vec<&TopicPartition> {
        let list: Vec<&TopicPartition> = self.fetchable_in_assignment_order().map(|(tp, _)| tp).collect();
        if self.settings.row.request_order == RequestOrder::List {
            return list;
        }
        let hashes: Vec<i32> = list.iter().map(|tp| java_hash::topic_partition_hash(tp)).collect();
        let walk = java_hash::walk_order(&hashes, java_hash::hash_set_capacity(list.len()));
        walk.into_iter().map(|i| list[i]).collect()
    }

    /// Sorts the partitions that may be in a request into request order, if possible without a pass over all others.
    fn sorted<'a>(&self, mut partitions: Vec<&'a TopicPartition>) -> Vec<&'a TopicPartition> {
        if partitions.len() < 2 {
            return partitions;
        }
        match self.settings.row.request_order {
            RequestOrder::List => partitions.sort_by_cached_key(|tp| self.subs.place(tp)),
            RequestOrder::HashSet => {
                let buffered = self.buffer.buffered_partitions();
                let buffered = buffered.filter(|tp| self.subs.is_fetchable(tp)).count();
                let capacity = java_hash::hash_set_capacity(self.subs.num_fetchable().saturating_sub(buffered));
                if capacity < java_hash::MIN_TREEIFY_CAPACITY {
                    // The other partitions matter too: a full bin makes the table grow.
                    let all = self.fetchable_partitions();
                    partitions.sort_by_cached_key(|tp| all.iter().position(|other| other == tp));
                } else {
                    let bucket = |tp| java_hash::bucket(java_hash::topic_partition_hash(tp), capacity);
                    partitions.sort_by_cached_key(|tp| (bucket(tp), self.subs.place(tp)));
                }
            }
        }
        partitions
    }

    /// These nodes, ordered by the first partition wanted from each. In list order the search ends at the last of these
    /// nodes; with a hash set it visits every partition.
    fn nodes_in_request_order(&self, mut nodes: FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut order = Vec::with_capacity(nodes.len());
        let mut look = |node: Option<NodeId>| {
            order.extend(node.filter(|node| nodes.remove(node)));
            nodes.is_empty()
        };
        let _ = match self.settings.row.request_order {
            RequestOrder::List => self.fetchable_in_assignment_order().any(|(_, node)| look(node)),
            RequestOrder::HashSet => self
                .fetchable_partitions()
                .into_iter()
                .any(|tp| look(self.read_node(tp))),
        };
        order
    }

    /// In timestamp order, nodes whose records are not urgent: they lead buffered partitions, and no buffered record is
    /// held back. Such a node gets no request if all partitions in it would be at their end: the broker would delay the
    /// response for fetch.max.wait.ms, and with it the next fetch of the buffered partitions.
    fn nodes_that_may_wait(&self) -> FxHashSet<NodeId> {
        if self.settings.fetch_order != FetchOrder::Timestamp || self.buffer.by_time.held_until().is_some() {
            return FxHashSet::default();
        }
        self.buffered_nodes()
    }

    /// Whether the node may have records that a merge by timestamp waits for.
    fn awaits_records_of(&self, node: NodeId) -> bool {
        let mut all = self.subs.iter();
        all.any(|(tp, of)| !is_at_end(of, &self.settings) && self.is_fetched_from(node, tp, of))
    }

    /// Nodes from which buffered, still fetchable partitions are read. Under the buffered-node rule of spec 7.8 they get no
    /// request. Kafka: `AbstractFetch#bufferedNodes`.
    fn buffered_nodes(&self) -> FxHashSet<NodeId> {
        let buffered = self.buffer.buffered_partitions();
        let fetchable = buffered.filter(|tp| self.subs.is_fetchable(tp));
        fetchable.filter_map(|tp| self.read_node(tp)).collect()
    }
}

mod left_out;
