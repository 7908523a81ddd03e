//! For the trace: which partitions no request lists, and why. Only changes are reported, so a traced poll costs nothing
//! for unchanged partitions.

use std::collections::BTreeMap;

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changed::Changed;
use super::consumer_network_client::ConsumerNetworkClient;
use super::fetchable::View;
use super::node_fetches::NodeFetches;
use super::trace::Trace;

const UNDER_WAY: &str = "a fetch to the leader is under way";

/// State of the requests to nodes.
pub struct Requests<'a> {
    /// Increases when a request is sent or answered.
    pub(super) version: u64,
    pub(super) nodes: &'a BTreeMap<NodeId, NodeFetches>,
    /// Nodes that are not asked because they lead a buffered partition.
    pub(super) blocked: &'a FxHashSet<NodeId>,
    pub(super) net: &'a ConsumerNetworkClient,
}

impl Requests<'_> {
    /// Why this node gets no request, other than because of a fetch in flight.
    fn blocked_reason(&self, node: NodeId) -> Option<&'static str> {
        if self.is_under_way(node) {
            return None;
        }
        if self.net.is_unavailable(node) {
            return Some("the connection to the leader was lost a moment ago");
        }
        let blocked = self.blocked.contains(&node);
        blocked.then_some("the leader also leads a buffered partition")
    }

    /// Whether a fetch to this node is in flight.
    fn is_under_way(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|n| n.in_flight.is_some())
    }

    /// Whether the last fetch to this node asked for the partition from this offset.
    fn asked(&self, node: NodeId, tp: &TopicPartition, offset: i64) -> bool {
        let session = self.nodes.get(&node).map(|n| &n.session);
        session.is_some_and(|session| session.fetch_offset(tp) == Some(offset))
    }
}

/// The reasons reported last.
#[derive(Debug, Default)]
pub struct LeftOut {
    reported: FxHashMap<TopicPartition, &'static str>,
    /// The reported partitions whose reason may change with a request or a response.
    waiting: FxHashSet<TopicPartition>,
    /// Reasons per node, nodes ascending.
    reasons: Vec<Option<&'static str>>,
    /// [`Requests::version`] at the last report.
    version: u64,
}

impl LeftOut {
    /// Reports the partitions whose reason differs from the one reported last. `changed`: partitions whose own state
    /// may have changed.
    pub fn report(&mut self, changed: &Changed, view: &View<'_>, requests: &Requests<'_>, trace: &mut Trace) {
        let reasons: Vec<_> = requests
            .nodes
            .keys()
            .map(|&node| requests.blocked_reason(node))
            .collect();
        let looked_at: Vec<TopicPartition> = match changed {
            Changed::Partitions(partitions) if reasons == self.reasons => {
                let has_changed = requests.version != self.version;
                let waiting = self.waiting.iter().filter(|tp| has_changed && !partitions.contains(tp));
                let both = partitions.iter().chain(waiting).collect();
                view.sorted(both).into_iter().cloned().collect()
            }
            _ => {
                let gone = self.reported.keys().filter(|tp| !view.subs.is_assigned(tp)).collect();
                let assigned = view.subs.iter().map(|(tp, _)| tp);
                view.sorted(gone).into_iter().chain(assigned).cloned().collect()
            }
        };
        self.reasons = reasons;
        self.version = requests.version;
        let mut changes = Vec::new();
        for tp in looked_at {
            let why = view.subs.state(&tp).and_then(|state| {
                let own = view.why_not(&tp, state);
                own.or_else(|| why_not_asked(view, requests, &tp, state.position()))
            });
            let before = self.note(&tp, why);
            if before != why {
                changes.push((tp, before, why));
            }
        }
        trace.left_out(&changes);
    }

    /// Stores the reason and returns the previous one.
    fn note(&mut self, tp: &TopicPartition, why: Option<&'static str>) -> Option<&'static str> {
        if self.reported.get(tp).copied() == why {
            return why;
        }
        if why == Some(UNDER_WAY) {
            self.waiting.insert(tp.clone());
        } else {
            self.waiting.remove(tp);
        }
        match why {
            Some(why) => self.reported.insert(tp.clone(), why),
            None => self.reported.remove(tp),
        }
    }
}

/// Why a partition that may be fetched is in no request, not even in the one in flight.
fn why_not_asked(
    view: &View<'_>,
    requests: &Requests<'_>,
    tp: &TopicPartition,
    position: Option<i64>,
) -> Option<&'static str> {
    let Some(node) = view.read_node(tp) else {
        return Some("the leader is not known");
    };
    if requests.is_under_way(node) {
        let asked = position.is_some_and(|offset| requests.asked(node, tp, offset));
        return (!asked).then_some(UNDER_WAY);
    }
    requests.blocked_reason(node)
}
