//! Followers that are read in place of the leader (KIP-392): a leader that knows the client's rack names one near the
//! client. Kafka: `SubscriptionState#updatePreferredReadReplica`, `#preferredReadReplica`,
//! `#clearPreferredReadReplica`.

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;

use super::{PartitionState, SubscriptionState};
use crate::consumer::metadata::ConsumerMetadata;

/// A follower, and until when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreferredReplica {
    node: NodeId,
    /// `None` until the next requests are built; its time starts then.
    until_ms: Option<i64>,
}

impl PartitionState {
    /// The node that is asked for records: the preferred replica, or the leader. `None` without a leader.
    pub fn read_node(&self) -> Option<NodeId> {
        let leader = self.leader()?;
        Some(self.preferred.map_or(leader.node, |replica| replica.node))
    }
}

impl SubscriptionState {
    /// Records the replica that the leader named. Naming the same one again does not extend its time.
    pub fn prefer_replica(&mut self, tp: &TopicPartition, node: NodeId) {
        if let Some(state) = self.assignment.get_mut(tp)
            && state.preferred.is_none_or(|replica| replica.node != node)
        {
            state.preferred = Some(PreferredReplica { node, until_ms: None });
            self.prefers = true;
            self.everything_changed(); // The sessions of two nodes change.
        }
    }

    /// Reads from the leader again. Returns the replica that was preferred, if any.
    pub fn clear_preferred_replica(&mut self, tp: &TopicPartition) -> Option<NodeId> {
        if !self.prefers {
            return None;
        }
        let replica = self.assignment.get_mut(tp)?.preferred.take()?;
        self.everything_changed();
        Some(replica.node)
    }

    /// Reads from the leaders again where a replica's time has passed or the metadata no longer has the replica.
    /// Returns whether the second case occurred: then the metadata is out of date.
    pub fn expire_preferred_replicas(&mut self, now_ms: i64, max_age_ms: i64, metadata: &ConsumerMetadata) -> bool {
        if !self.prefers {
            return false;
        }
        let (mut changed, mut gone) = (false, false);
        self.prefers = false;
        self.assignment.for_each_mut(|_, state| {
            let Some(replica) = &mut state.preferred else { return };
            let until_ms = *replica.until_ms.get_or_insert(now_ms.saturating_add(max_age_ms));
            let is_known = metadata.nodes().contains(&replica.node);
            if now_ms > until_ms || !is_known {
                state.preferred = None;
                (changed, gone) = (true, gone || !is_known);
            } else {
                self.prefers = true;
            }
        });
        if changed {
            self.everything_changed();
        }
        gone
    }
}
