//! Followers that are read in place of the leader (KIP-392): a leader that knows the client's rack names one near to it. Kafka:
//! `SubscriptionState#updatePreferredReadReplica`, `#preferredReadReplica`, `#clearPreferredReadReplica`.

use fletchlog_api::NodeId;
use fletchlog_records::TopicPartition;

use super::{PartitionState, SubscriptionState};
use crate::consumer::changed::Changed;
use crate::consumer::metadata::ConsumerMetadata;

/// A follower, and until when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreferredReplica {
    node: NodeId,
    /// `None` until the next requests are made: the time counts from there.
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
    /// The leader has named a replica to read from. The same one again does not lengthen its time.
    pub fn prefer_replica(&mut self, tp: &TopicPartition, node: NodeId) {
        if let Some(state) = self.assignment.get_mut(tp)
            && state.preferred.is_none_or(|replica| replica.node != node)
        {
            state.preferred = Some(PreferredReplica { node, until_ms: None });
            self.prefers = true;
            self.reads_elsewhere();
        }
    }

    /// Goes back to the leader; the replica that was preferred, if one was.
    pub fn clear_preferred_replica(&mut self, tp: &TopicPartition) -> Option<NodeId> {
        if !self.prefers {
            return None;
        }
        let replica = self.assignment.get_mut(tp)?.preferred.take()?;
        self.reads_elsewhere();
        Some(replica.node)
    }

    /// Goes back to the leaders of partitions whose time is over, or whose replica the metadata does not name any more. Returns
    /// whether there was one of these: the metadata is old.
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
            self.reads_elsewhere();
        }
        gone
    }

    /// The sessions of two nodes change: what is asked of each is made anew.
    fn reads_elsewhere(&mut self) {
        self.changed = Changed::Everything;
        self.version += 1;
    }
}
