//! For the trace: which partitions no request lists, and why. Only changes are reported, so a traced poll costs nothing
//! for unchanged partitions.

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::AbstractFetch;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::consumer_state::ConsumerState;
use crate::consumer::subscription_state::{Changed, PartitionState};

const UNDER_WAY: &str = "a fetch to the leader is under way";

/// The reasons reported last.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    reported: FxHashMap<TopicPartition, &'static str>,
    /// The reported partitions whose reason may change with a response.
    waiting: FxHashSet<TopicPartition>,
    /// Why a node gets no request, other than because of a fetch in flight; nodes ascending.
    reasons: Vec<(NodeId, Option<&'static str>)>,
    /// A fetch was answered since the last report.
    pub(super) answered: bool,
}

impl LeftOut {
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

impl AbstractFetch {
    /// Reports the partitions whose reason differs from the one reported last. `changed`: partitions whose own state
    /// may have changed. `blocked`: nodes that are not asked because they lead a buffered partition.
    pub(super) fn report_left_out(
        &mut self,
        mut changed: Changed,
        state: &mut ConsumerState,
        blocked: &FxHashSet<NodeId>,
        net: &ConsumerNetworkClient,
    ) {
        let nodes = self.nodes.iter();
        let reasons = nodes.map(|(&node, fetches)| match fetches.in_flight {
            Some(_) => (node, None),
            None if net.is_unavailable(node) => (node, Some("the connection to the leader was lost a moment ago")),
            None => {
                let blocked = blocked.contains(&node);
                (node, blocked.then_some("the leader also leads a buffered partition"))
            }
        });
        let reasons: Vec<_> = reasons.collect();
        if reasons != self.left_out.reasons {
            self.left_out.reasons = reasons;
            changed = Changed::Everything;
        }
        if std::mem::take(&mut self.left_out.answered) {
            self.left_out.waiting.iter().for_each(|tp| changed.insert(tp));
        }
        let looked_at: Vec<TopicPartition> = match &changed {
            Changed::Nothing => return,
            Changed::Partitions(partitions) => state.sorted(partitions.iter().collect()).into_iter().cloned().collect(),
            Changed::Everything => {
                let reported = self.left_out.reported.keys();
                let gone = reported.filter(|tp| !state.subs.is_assigned(tp)).collect();
                let assigned = state.subs.iter().map(|(tp, _)| tp);
                state.sorted(gone).into_iter().chain(assigned).cloned().collect()
            }
        };
        let mut changes = Vec::new();
        for tp in looked_at {
            let why = state.subs.state(&tp).and_then(|of| self.why_left_out(&tp, of, state));
            let before = self.left_out.note(&tp, why);
            if before != why {
                changes.push((tp, before, why));
            }
        }
        state.trace.left_out(&changes);
    }

    /// Why an assigned partition is in no request, not even in the one in flight.
    fn why_left_out(&self, tp: &TopicPartition, of: &PartitionState, state: &ConsumerState) -> Option<&'static str> {
        if let Some(why) = state.why_not_fetchable(tp, of) {
            return Some(why);
        }
        let Some(node) = of.read_node() else {
            return Some("the leader is not known");
        };
        let fetches = self.nodes.get(&node)?;
        if fetches.in_flight.is_some() {
            let is_asked = fetches.session.fetch_offset(tp) == of.position();
            return (!is_asked).then_some(UNDER_WAY);
        }
        let place = self.left_out.reasons.binary_search_by_key(&node, |&(node, _)| node);
        self.left_out.reasons[place.ok()?].1
    }
}
