//! When a fetch is sent to a node, and the session state it carries (spec 7.3).
//! Kafka: `AbstractFetch#prepareFetchRequests`, `Fetcher#sendFetches`.

use std::collections::BTreeMap;

use fletchlog_api::{Completion, ErrorCode, FetchRequest, NodeId, Request, Response};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changed::Changed;
use super::completed_fetch::CompletedFetch;
use super::consumer_network_client::ConsumerNetworkClient;
use super::consumer_state::ConsumerState;
use super::fetch_buffer::FetchBuffer;
use super::fetchable::View;
use super::left_out::{LeftOut, Requests};
use super::metadata::ConsumerMetadata;
use super::node_fetches::NodeFetches;
use super::settings::Settings;
use super::subscription_state::{PartitionState, SubscriptionState};
use super::trace::{TraceEvent, TraceKind};
use crate::metrics::ConsumerMetrics;

/// Versions of the state that decides what is sent and which partitions are left out. If they are unchanged since a
/// call that sent nothing, there is nothing to send now.
type Fingerprint = (u64, u64, u64, u64);

/// The fetch session of each node, and its fetch in flight: at most one.
#[derive(Debug, Default)]
pub struct FetchRequests {
    nodes: BTreeMap<NodeId, NodeFetches>,
    version: u64,
    nothing_to_send: Option<Fingerprint>,
    /// Versions of assignment and metadata under which every assigned partition has a known leader.
    all_led: Option<(u64, u64)>,
    /// Version of the metadata when `changed` of the nodes was last updated.
    metadata_version: u64,
    /// For the trace: which partitions are left out, and the state as of the last report. Reading from a buffered
    /// partition does not change them.
    left_out: LeftOut,
    reported: Option<Fingerprint>,
    pub(super) metrics: ConsumerMetrics,
    /// A response had names instead of topic ids: its records may be of a topic that was recreated.
    pub(super) was_answered_by_names: bool,
}

impl FetchRequests {
    /// Builds and queues one request for each node with something to fetch and no fetch in flight. Returns their
    /// number.
    pub fn send(&mut self, state: &mut ConsumerState, net: &mut ConsumerNetworkClient) -> usize {
        let ConsumerState {
            subs,
            buffer,
            metadata,
            settings,
            trace,
        } = state;
        subs.end_back_offs(net.now_ms());
        if subs.expire_preferred_replicas(net.now_ms(), settings.metadata_max_age_ms, metadata) {
            metadata.request_update();
        }
        let fingerprint = (subs.version(), buffer.version(), metadata.version(), self.version);
        if self.nothing_to_send == Some(fingerprint) {
            return 0;
        }
        let all_led = self.is_every_partition_led(subs, metadata);
        let all_busy = all_led && self.is_every_node_busy(metadata);
        if all_busy && (!trace.is_on() || self.reported == Some(fingerprint)) {
            return 0;
        }
        let changed = self.note_changes(subs, buffer, metadata);
        let num_fetchable = subs.num_fetchable();
        let view = View {
            subs,
            buffer,
            num_fetchable,
            metadata,
            settings,
            all_led,
            in_process: net.is_in_process(),
        };
        let blocked = if all_busy {
            FxHashSet::default() // No node can be sent a request.
        } else {
            view.blocked_nodes()
        };
        if trace.is_on() {
            let requests = Requests {
                version: self.version,
                nodes: &self.nodes,
                blocked: &blocked,
                net,
            };
            self.left_out.report(&changed, &view, &requests, trace);
            self.reported = Some(fingerprint);
        }
        if all_busy {
            return 0;
        }
        let misses_leader = !all_led && view.in_request_order().iter().any(|tp| view.leader(tp).is_none());
        let (requests, backing_off) = self.prepare(&view, &blocked, net);
        if misses_leader {
            metadata.request_update();
        }
        let sent = requests.len();
        for (node, request) in requests {
            let request = with_settings(request, settings);
            trace.request(node, &request);
            let id = net.send(node, Request::Fetch(request));
            let fetches = self.nodes.entry(node).or_default();
            fetches.in_flight = Some(id);
            fetches.asked_ms = net.now_ms();
            self.version += 1;
        }
        self.nothing_to_send = (sent == 0 && all_led && !backing_off).then_some(fingerprint);
        sent
    }

    /// Returns the next request of every session with something to fetch, in request order, and whether a node is
    /// unavailable or backs off: when that ends, more may be sent. Kafka: `AbstractFetch#prepareFetchRequests`.
    fn prepare(
        &mut self,
        view: &View<'_>,
        blocked: &FxHashSet<NodeId>,
        net: &ConsumerNetworkClient,
    ) -> (Vec<(NodeId, FetchRequest)>, bool) {
        let may_wait = view.nodes_that_may_wait();
        let mut requests = Vec::new();
        let mut backing_off = false;
        for (&node, fetches) in self.nodes.iter_mut().filter(|(_, f)| f.in_flight.is_none()) {
            let unavailable =
                net.is_unavailable(node) || fetches.backs_off(net.now_ms(), view.settings.retry_backoff_ms);
            backing_off |= unavailable;
            if unavailable || blocked.contains(&node) {
                continue;
            }
            if !may_wait.contains(&node) || view.awaits_records_of(node) {
                requests.extend(fetches.build(node, view).map(|request| (node, request)));
            }
        }
        if requests.len() > 1 {
            let order = view.nodes_in_request_order(requests.iter().map(|&(node, _)| node).collect());
            requests.sort_by_key(|(node, _)| order.iter().position(|n| n == node));
        }
        (requests, backing_off)
    }

    /// Shortcut for the usual case: a fetch is in flight to every node.
    fn is_every_node_busy(&self, metadata: &ConsumerMetadata) -> bool {
        let busy = |node| self.nodes.get(node).is_some_and(|n| n.in_flight.is_some());
        metadata.nodes().iter().all(busy)
    }

    /// Whether every assigned partition has a leader. If not, `send` must find those without one and request metadata.
    fn is_every_partition_led(&mut self, subs: &SubscriptionState, metadata: &ConsumerMetadata) -> bool {
        let versions = (subs.assignments(), metadata.version());
        if self.all_led != Some(versions) {
            self.all_led = subs
                .iter()
                .all(|(tp, _)| metadata.leader(tp).is_some())
                .then_some(versions);
        }
        self.all_led.is_some()
    }

    /// Passes the changes since the last call to the nodes concerned, and returns them.
    fn note_changes(
        &mut self,
        subs: &mut SubscriptionState,
        buffer: &mut FetchBuffer,
        metadata: &ConsumerMetadata,
    ) -> Changed {
        debug_assert!(buffer.is_counted_right());
        let mut changed = subs.take_changed();
        changed.extend(buffer.take_changed());
        if self.metadata_version != metadata.version() {
            self.metadata_version = metadata.version();
            changed = Changed::Everything;
        }
        match &changed {
            Changed::Partitions(partitions) => {
                for tp in partitions {
                    // A change of the node that is read from counts as a change of everything.
                    if let Some(node) = node_of(subs, metadata, tp) {
                        self.nodes.entry(node).or_default().changed.insert(tp);
                    } else {
                        // Its position may have had a leader before a seek, and the session of that node may list it.
                        self.nodes.values_mut().for_each(|node| node.changed.insert(tp));
                    }
                }
            }
            Changed::Everything => {
                for node in subs.iter().filter_map(|(tp, _)| node_of(subs, metadata, tp)) {
                    self.nodes.entry(node).or_default();
                }
                for node in self.nodes.values_mut() {
                    node.changed = Changed::Everything;
                }
            }
        }
        changed
    }

    /// Whether a completion is of a fetch in flight.
    pub fn owns(&self, completion: &Completion) -> bool {
        let in_flight = self.nodes.get(&completion.node).and_then(|node| node.in_flight);
        in_flight == Some(completion.correlation_id)
    }

    /// The callback of a fetch: frees the node and appends every partition of the response to the queue, in the
    /// response's order. Returns whether the response has no error.
    pub fn on_completion(&mut self, completion: Completion, state: &mut ConsumerState, now_ms: i64) -> bool {
        let ConsumerState {
            subs,
            buffer,
            metadata,
            trace,
            ..
        } = state;
        let node = completion.node;
        let NodeFetches {
            session,
            in_flight,
            asked_ms,
            thrown_away,
            ..
        } = self.nodes.entry(node).or_default();
        *in_flight = None;
        self.version += 1;
        let response = match completion.result {
            Ok(Response::Fetch(mut response)) => {
                self.was_answered_by_names |= session.name_topics(&mut response);
                response
            }
            _ => {
                session.handle_error();
                // Kafka: `AbstractFetch#handleFetchFailure`.
                for tp in session.partitions() {
                    subs.clear_preferred_replica(tp);
                }
                trace.push(|| {
                    TraceEvent::new(TraceKind::Error)
                        .node(node)
                        .because("the connection was lost before the fetch was answered")
                });
                return false;
            }
        };
        self.metrics.fetch_latency.add(now_ms.saturating_sub(*asked_ms).max(0));
        let size = response.partitions().map(|(_, p)| p.size()).sum::<usize>();
        self.metrics.fetch_size.add(i64::try_from(size).unwrap_or(i64::MAX));
        let full = session.is_full();
        let misses_ids = session.is_refused() || response.error_code == ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR;
        if let Err(why) = session.handle_response(&response) {
            if misses_ids {
                metadata.request_update_for_ids();
            }
            *thrown_away = thrown_away.saturating_add(1);
            if *thrown_away == 1 {
                log::info!("fetch answer of node {node} thrown away: {why}; the next request is a full one");
            }
            trace.push(|| TraceEvent::new(TraceKind::Error).node(node).because(why));
            return false;
        }
        *thrown_away = 0;
        trace.response(node, full, &response, |tp| session.fetch_offset(tp).unwrap_or(-1));
        let failed = response.partitions().any(|(_, p)| p.error_code != ErrorCode::NONE);
        for (tp, partition) in response.into_partitions() {
            if let Some(offset) = session.fetch_offset(&tp) {
                buffer.add(CompletedFetch::new(tp, offset, partition));
            }
        }
        !failed
    }
}

fn with_settings(request: FetchRequest, settings: &Settings) -> FetchRequest {
    FetchRequest {
        max_wait_ms: settings.fetch_max_wait_ms,
        min_bytes: settings.fetch_min_bytes,
        max_bytes: settings.fetch_max_bytes,
        isolation_level: settings.isolation_level,
        ..request
    }
}

/// The node that a partition is fetched from, or will be.
fn node_of(subs: &SubscriptionState, metadata: &ConsumerMetadata, tp: &TopicPartition) -> Option<NodeId> {
    let of_position = subs.state(tp).and_then(PartitionState::read_node);
    of_position.or_else(|| metadata.leader(tp).map(|leader| leader.node))
}

/// How far the position of each partition is behind the end of the log, as of the last fetch.
pub(super) fn lags(subs: &SubscriptionState, settings: &Settings) -> FxHashMap<TopicPartition, i64> {
    let committed = settings.isolation_level == fletchlog_api::IsolationLevel::ReadCommitted;
    subs.iter()
        .filter_map(|(tp, state)| {
            let end = if committed {
                state.last_stable_offset()
            } else {
                state.high_watermark()
            };
            Some((tp.clone(), end?.saturating_sub(state.position()?).max(0)))
        })
        .collect()
}
