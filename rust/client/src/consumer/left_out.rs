//! Which partitions no request lists, and why, for the trace: told when it changes, so that a traced poll too costs nothing for
//! partitions about which there is no news.

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changed::Changed;
use super::fetchable::View;
use super::trace::{Trace, TraceEvent, TraceKind};

const UNDER_WAY: &str = "a fetch to the leader is under way";

/// How it stands about the requests to nodes.
pub trait Requests {
    /// Grows when a request is sent or answered.
    fn version(&self) -> u64;
    /// Why this node, to which none is under way, is not asked for anything.
    fn hindrance(&self, node: NodeId) -> Option<&'static str>;
    /// Whether a fetch to this node is under way.
    fn is_under_way(&self, node: NodeId) -> bool;
    /// Whether the last fetch to this node asked for the partition from this offset.
    fn asked(&self, node: NodeId, tp: &TopicPartition, offset: i64) -> bool;
}

/// What was told last.
#[derive(Debug, Default)]
pub struct LeftOut {
    told: FxHashMap<TopicPartition, &'static str>,
    /// Of them, those about which a request or an answer may be news.
    waiting: FxHashSet<TopicPartition>,
    /// Hindrances of the nodes, in the order of the metadata.
    hindrances: Vec<Option<&'static str>>,
    /// Of the requests.
    version: u64,
}

impl LeftOut {
    /// Events about partitions for which something else holds than was told last; `changed` are those that may be concerned
    /// by themselves.
    pub fn tell(&mut self, changed: &Changed, view: &View<'_>, requests: &impl Requests, trace: &mut Trace) {
        let nodes = view.metadata.nodes().iter();
        let hindrances: Vec<_> = nodes.map(|&node| requests.hindrance(node)).collect();
        let looked_at: Vec<TopicPartition> = match changed {
            Changed::Partitions(partitions) if hindrances == self.hindrances => {
                let news = requests.version() != self.version;
                let waiting = self.waiting.iter().filter(|tp| news && !partitions.contains(tp));
                let both = partitions.iter().chain(waiting).collect();
                view.sorted(both).into_iter().cloned().collect()
            }
            _ => {
                let gone = self.told.keys().filter(|tp| !view.subs.is_assigned(tp)).collect();
                let assigned = view.subs.iter().map(|(tp, _)| tp);
                view.sorted(gone).into_iter().chain(assigned).cloned().collect()
            }
        };
        self.hindrances = hindrances;
        self.version = requests.version();
        for tp in looked_at {
            let why = view.subs.state(&tp).and_then(|state| {
                let own = view.why_not(&tp, state);
                own.or_else(|| why_not_asked(view, requests, &tp, state.position()))
            });
            self.tell_one(&tp, why, trace);
        }
    }

    fn tell_one(&mut self, tp: &TopicPartition, why: Option<&'static str>, trace: &mut Trace) {
        if self.told.get(tp).copied() == why {
            return;
        }
        if why == Some(UNDER_WAY) {
            self.waiting.insert(tp.clone());
        } else {
            self.waiting.remove(tp);
        }
        match why {
            Some(why) => self.told.insert(tp.clone(), why),
            None => self.told.remove(tp),
        };
        trace.push(|| TraceEvent::of(TraceKind::Excluded, tp).because(why.unwrap_or_default()));
    }
}

/// Why a partition that may be fetched is in no request, the one under way included.
fn why_not_asked(
    view: &View<'_>,
    requests: &impl Requests,
    tp: &TopicPartition,
    position: Option<i64>,
) -> Option<&'static str> {
    let Some(leader) = view.metadata.leader(tp) else {
        return Some("the leader is not known");
    };
    if requests.is_under_way(leader.node) {
        let asked = position.is_some_and(|offset| requests.asked(leader.node, tp, offset));
        return (!asked).then_some(UNDER_WAY);
    }
    requests.hindrance(leader.node)
}
