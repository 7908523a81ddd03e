//! Which partitions are asked for, of which node, in which order (spec 7.3). Kafka: `AbstractFetch#prepareFetchRequests`,
//! `Fetcher#sendFetches`.

use std::collections::BTreeMap;

use fletchlog_api::{Completion, FetchPartition, FetchRequest, NodeId, Request, Response, java_hash};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::completed_fetch::CompletedFetch;
use super::decision_table::RequestOrder;
use super::fetch_buffer::FetchBuffer;
use super::fetch_session_handler::FetchSessionHandler;
use super::metadata::{Leader, Metadata};
use super::network_client::{ConsumerNetworkClient, RequestId};
use super::settings::{FetchOrder, Settings};
use super::subscription_state::SubscriptionState;
use super::timestamp_collector::is_at_end;
use super::trace::{Trace, TraceEvent, TraceKind};

/// State that decides whether there is anything to send; unchanged since a call that sent nothing = nothing to send now.
type Fingerprint = (u64, u64, u64, u64);

/// Sessions per node, and the one fetch per node that may be under way.
#[derive(Debug, Default)]
pub struct FetchRequests {
    sessions: BTreeMap<NodeId, FetchSessionHandler>,
    in_flight: BTreeMap<NodeId, RequestId>,
    version: u64,
    nothing_to_send: Option<Fingerprint>,
    /// Versions of subscription and metadata under which every assigned partition has a known leader.
    all_led: Option<(u64, u64)>,
}

impl FetchRequests {
    /// Builds and queues one request per node that has something to fetch and none under way. Answers how many.
    pub fn send(
        &mut self,
        subs: &SubscriptionState,
        buffer: &FetchBuffer,
        metadata: &mut Metadata,
        net: &mut ConsumerNetworkClient,
        settings: &Settings,
        trace: &mut Trace,
    ) -> usize {
        let fingerprint = (subs.version(), buffer.version(), metadata.version(), self.version);
        if self.nothing_to_send == Some(fingerprint) {
            return 0;
        }
        if !trace.is_on() && self.every_node_is_busy(subs, metadata) {
            return 0;
        }
        let buffered: FxHashSet<&TopicPartition> = buffer.buffered_partitions().collect();
        let blocked = blocked_nodes(&buffered, subs, metadata, settings);
        let mut settled = true;
        let mut wanted: Vec<(NodeId, Vec<FetchPartition>)> = Vec::new();
        for (tp, offset) in fetchable(subs, &buffered, settings, trace) {
            let exclude = |trace: &mut Trace, why: &'static str| {
                trace.push(|| TraceEvent::of(TraceKind::Excluded, tp).because(why))
            };
            let Some(Leader { node, epoch }) = metadata.leader(tp) else {
                exclude(trace, "its leader is not known");
                metadata.request_update();
                settled = false;
                continue;
            };
            if net.is_unavailable(node) {
                exclude(trace, "the connection to its leader was lost a moment ago");
                settled = false;
            } else if self.in_flight.contains_key(&node) {
                exclude(trace, "a fetch to its leader is under way");
            } else if blocked.contains(&node) {
                exclude(trace, "its leader also leads a buffered partition");
            } else {
                let partition = FetchPartition {
                    tp: tp.clone(),
                    fetch_offset: offset,
                    current_leader_epoch: epoch,
                    partition_max_bytes: settings.max_partition_fetch_bytes,
                };
                match wanted.iter_mut().find(|(n, _)| *n == node) {
                    Some((_, list)) => list.push(partition),
                    None => wanted.push((node, vec![partition])),
                }
            }
        }
        if settings.fetch_order == FetchOrder::Timestamp && buffer.by_time.held_until().is_none() {
            let busy = nodes_with_buffered(&buffered, subs, metadata);
            wanted.retain(|(node, list)| !busy.contains(node) || list.iter().any(|p| is_awaited(p, subs, settings)));
        }
        let requests = wanted.len();
        for (node, partitions) in wanted {
            let session = self.sessions.entry(node).or_default().build(partitions);
            let request = FetchRequest {
                max_wait_ms: settings.fetch_max_wait_ms,
                min_bytes: settings.fetch_min_bytes,
                max_bytes: settings.fetch_max_bytes,
                isolation_level: settings.isolation_level,
                session_id: session.session_id,
                session_epoch: session.session_epoch,
                partitions: session.partitions,
                forgotten: session.forgotten,
            };
            trace.request(node, &request);
            let id = net.send(node, Request::Fetch(request));
            self.in_flight.insert(node, id);
            self.version += 1;
        }
        self.nothing_to_send = (requests == 0 && settled).then_some(fingerprint);
        requests
    }

    /// A short cut for the usual case, a fetch under way to each node: with many partitions looking at each costs more than
    /// the poll. Partitions without a leader have to be looked at, they ask for metadata.
    fn every_node_is_busy(&mut self, subs: &SubscriptionState, metadata: &Metadata) -> bool {
        if metadata.nodes().iter().any(|node| !self.in_flight.contains_key(node)) {
            return false;
        }
        let versions = (subs.version(), metadata.version());
        if self.all_led != Some(versions) {
            self.all_led = subs
                .iter()
                .all(|(tp, _)| metadata.leader(tp).is_some())
                .then_some(versions);
        }
        self.all_led.is_some()
    }

    /// Whether a completion answers a fetch.
    pub fn is_mine(&self, completion: &Completion) -> bool {
        self.in_flight.get(&completion.node) == Some(&completion.correlation_id)
    }

    /// The callback of a fetch: the node is free again, and every partition of the answer goes to the end of the queue, in
    /// the answer's order.
    pub fn on_completion(&mut self, completion: Completion, buffer: &mut FetchBuffer, trace: &mut Trace) {
        let node = completion.node;
        self.in_flight.remove(&node);
        self.version += 1;
        let session = self.sessions.entry(node).or_default();
        let response = match completion.result {
            Ok(Response::Fetch(response)) => response,
            _ => {
                session.handle_error();
                trace.push(|| {
                    TraceEvent::new(TraceKind::Error)
                        .node(node)
                        .because("the connection was lost before the fetch was answered")
                });
                return;
            }
        };
        let full = session.is_full();
        if let Err(why) = session.handle_response(&response) {
            log::info!("fetch answer of node {node} thrown away: {why}; the next request is a full one");
            trace.push(|| TraceEvent::new(TraceKind::Error).node(node).because(why));
            return;
        }
        trace.response(node, full, &response, |tp| session.fetch_offset(tp).unwrap_or(-1));
        for partition in response.partitions {
            if let Some(offset) = session.fetch_offset(&partition.tp) {
                buffer.add(CompletedFetch::new(offset, partition));
            }
        }
    }
}

/// Partitions that may be fetched, with their positions, in request order (column "order of fetchable partitions" of spec 7.8).
fn fetchable<'a>(
    subs: &'a SubscriptionState,
    buffered: &FxHashSet<&TopicPartition>,
    settings: &Settings,
    trace: &mut Trace,
) -> Vec<(&'a TopicPartition, i64)> {
    let mut list: Vec<(&TopicPartition, i64)> = Vec::new();
    for (tp, state) in subs.iter() {
        let why = match state.position() {
            None => "it has no position yet",
            Some(_) if state.is_paused() => "it is paused",
            Some(_) if buffered.contains(tp) => "its last fetch is still buffered",
            Some(offset) => {
                list.push((tp, offset));
                continue;
            }
        };
        trace.push(|| TraceEvent::of(TraceKind::Excluded, tp).because(why));
    }
    if settings.row.request_order == RequestOrder::HashSet && list.len() > 1 {
        let hashes: Vec<i32> = list.iter().map(|(tp, _)| java_hash::topic_partition_hash(tp)).collect();
        let walk = java_hash::walk_order(&hashes, java_hash::hash_set_capacity(list.len()));
        return walk.into_iter().map(|i| list[i]).collect();
    }
    list
}

/// Nodes that lead a buffered partition which is still fetchable (column "buffered-node rule" of spec 7.8).
fn blocked_nodes(
    buffered: &FxHashSet<&TopicPartition>,
    subs: &SubscriptionState,
    metadata: &Metadata,
    settings: &Settings,
) -> FxHashSet<NodeId> {
    if !settings.row.buffered_node || settings.fetch_order == FetchOrder::Timestamp {
        return FxHashSet::default(); // By timestamp, what is buffered may wait for what the same node has yet to send.
    }
    nodes_with_buffered(buffered, subs, metadata)
}

/// Leaders of buffered partitions that are still fetchable.
fn nodes_with_buffered(
    buffered: &FxHashSet<&TopicPartition>,
    subs: &SubscriptionState,
    metadata: &Metadata,
) -> FxHashSet<NodeId> {
    buffered
        .iter()
        .filter(|tp| subs.is_fetchable(tp))
        .filter_map(|tp| metadata.leader(tp))
        .map(|l| l.node)
        .collect()
}

/// Whether records may be there that a merge by timestamp waits for. A node is not asked for the others alone: its answer would be held
/// back for fetch.max.wait.ms, and with it the next fetch of what is buffered.
fn is_awaited(partition: &FetchPartition, subs: &SubscriptionState, settings: &Settings) -> bool {
    subs.state(&partition.tp)
        .is_some_and(|state| !is_at_end(state, settings))
}

/// Per-partition ends a user may ask for: how far the position is behind the end of the log, as last heard.
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
