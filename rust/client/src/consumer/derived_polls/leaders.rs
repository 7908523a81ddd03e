//! Partitions that are fetched from another node than before: their leader has moved, or the leader is asked again after a follower.
//! The recorded fetches show when: metadata is not followed.

use std::rc::Rc;

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;

use super::recording::Recording;
use super::replayed::Replayed;

impl Replayed {
    /// Takes over the nodes that the next fetches ask for partitions.
    pub(super) fn follow_leaders(&mut self, of: &Recording<'_>) {
        let mut has_moved = false;
        for tp in &of.moving {
            let Some(node) = self.moves_to(of, tp) else { continue };
            self.state.subs.clear_preferred_replica(tp);
            if self.leaders.get(tp) != Some(&node) {
                Rc::make_mut(&mut self.leaders).insert(tp.clone(), node);
                has_moved = true;
            }
        }
        if !has_moved {
            return;
        }
        self.state.metadata.on_response(of.metadata(&self.leaders), 0);
        for tp in &of.moving {
            let leads = self.state.metadata.leader(tp);
            let changed = self.state.subs.state(tp).filter(|state| state.leader() != leads);
            if let Some(position) = changed.and_then(|state| state.position()) {
                self.seek(tp, position);
            }
        }
    }

    /// The node from which a partition is fetched next, if that is another one, and if one of the fetches that are due says so.
    fn moves_to(&self, of: &Recording<'_>, tp: &TopicPartition) -> Option<NodeId> {
        let from = self
            .state
            .subs
            .state(tp)
            .filter(|state| state.position().is_some())?
            .read_node()?;
        let is_due = |node: NodeId, at: usize| !self.unread.contains_key(&node) && self.next_of(of, node) == Some(at);
        let mut listings = of.next_listings(tp, &self.sent);
        let next = listings.next()?;
        if next.wanted {
            let is_before = |at: usize| !self.unread.contains_key(&from) && at < next.at;
            let stays = self.next_of(of, from).is_some_and(is_before);
            return (next.node != from && is_due(next.node, next.at) && !stays).then_some(next.node);
        }
        let is_left = next.node == from && is_due(from, next.at) && !self.state.buffer.is_buffered(tp);
        let to = listings.find(|listing| listing.wanted)?.node;
        (is_left && to != from).then_some(to)
    }
}
