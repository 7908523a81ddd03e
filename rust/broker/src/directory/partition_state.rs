//! Who leads a partition, which replicas it has, and which of them are in sync (spec 6.8). Kafka: `PartitionRegistration`,
//! `PartitionChangeBuilder`.
//!
//! The leader epoch rises by 1 with every change of the leader, also to "no leader" and from it, and with nothing else.

use fletchlog_api::NodeId;
use fletchlog_records::ErrorCode;
use fletchlog_records::planted;
use serde_json::{Map, Value, json};

use crate::node_ids::NodeIds;

/// No node leads the partition. Kafka: `LeaderConstants#NO_LEADER`.
pub(crate) const NO_LEADER: NodeId = -1;

/// The leader, the replicas and their states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionState {
    /// The preferred leader first.
    pub(crate) replicas: Vec<NodeId>,
    /// [`NO_LEADER`]: none.
    pub(crate) leader: NodeId,
    pub(crate) leader_epoch: i32,
    /// The replicas in sync: as assigned; after a replica has returned, ascending.
    pub(crate) isr: Vec<NodeId>,
    /// Replicas that left the ISR while it was too small, and may lead without loss, ascending (KIP-966).
    pub(crate) elr: Vec<NodeId>,
    /// The last leader of a partition without one.
    pub(crate) last_known_elr: Vec<NodeId>,
}

/// Why nothing changes: Kafka's code and text.
pub(crate) type NoElection = (ErrorCode, &'static str);

/// Kafka: `Errors#ELECTION_NOT_NEEDED`.
const NOT_NEEDED: NoElection = (
    ErrorCode::ELECTION_NOT_NEEDED,
    "Leader election not needed for topic partition.",
);
/// Kafka: `Errors#PREFERRED_LEADER_NOT_AVAILABLE`.
const PREFERRED_NOT_AVAILABLE: NoElection = (
    ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
    "The preferred leader was not available.",
);
/// Kafka: `Errors#ELIGIBLE_LEADERS_NOT_AVAILABLE`.
const ELIGIBLE_NOT_AVAILABLE: NoElection = (
    ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE,
    "Eligible topic partition leaders are not available.",
);

impl PartitionState {
    /// A new partition: its first replica leads, all are in sync.
    pub(crate) fn new(replicas: Vec<NodeId>) -> Self {
        Self {
            leader: replicas.first().copied().unwrap_or(NO_LEADER),
            leader_epoch: 0,
            isr: replicas.clone(),
            replicas,
            elr: Vec::new(),
            last_known_elr: Vec::new(),
        }
    }

    /// A new partition while some nodes do not run: the first replica on a running node leads, those are in sync. Kafka:
    /// `ReplicationControlManager#buildPartitionRegistration`.
    pub(crate) fn created(replicas: Vec<NodeId>, is_up: impl Fn(NodeId) -> bool) -> Self {
        let isr: Vec<NodeId> = replicas.iter().copied().filter(|node| is_up(*node)).collect();
        Self {
            leader: isr.first().copied().unwrap_or(NO_LEADER),
            isr,
            ..Self::new(replicas)
        }
    }

    /// Whether some replicas are not in sync.
    pub(crate) fn is_under_replicated(&self) -> bool {
        self.isr.len() < self.replicas.len()
    }

    /// Whether too few replicas are in sync for acks=all. Kafka: `Partition#checkEnoughReplicasReachOffset`.
    pub(crate) fn is_under_min_isr(&self, min_insync_replicas: usize) -> bool {
        self.isr.len() < self.min_isr(min_insync_replicas)
    }

    /// The number of replicas in sync that acks=all needs. Kafka: `Partition#effectiveMinIsr`.
    fn min_isr(&self, min_insync_replicas: usize) -> usize {
        min_insync_replicas.min(self.replicas.len())
    }

    fn led_by(&self, leader: NodeId) -> Self {
        Self {
            leader,
            leader_epoch: self
                .leader_epoch
                .saturating_add(i32::from(!planted!("leader-moves-within-an-epoch"))),
            ..self.clone()
        }
    }

    /// The first replica leads again. Kafka: `ElectionType#PREFERRED`.
    pub(crate) fn elect_preferred(&self, is_up: impl Fn(NodeId) -> bool) -> Result<Self, NoElection> {
        match self.replicas.first() {
            Some(preferred) if *preferred == self.leader => Err(NOT_NEEDED),
            Some(preferred) if self.isr.contains(preferred) && is_up(*preferred) => Ok(self.led_by(*preferred)),
            _ => Err(PREFERRED_NOT_AVAILABLE),
        }
    }

    /// The first replica on a running node leads a partition without leader, in sync or not. Kafka: `ElectionType#UNCLEAN`.
    pub(crate) fn elect_unclean(&self, is_up: impl Fn(NodeId) -> bool) -> Result<Self, NoElection> {
        if self.leader != NO_LEADER {
            return Err(NOT_NEEDED);
        }
        let elected = self.replicas.iter().copied().find(|node| is_up(*node));
        let elected = elected.ok_or(ELIGIBLE_NOT_AVAILABLE)?;
        Ok(Self {
            isr: vec![elected],
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            ..self.led_by(elected)
        })
    }

    /// A replica in sync leads and becomes the preferred one.
    pub(crate) fn moved_to(&self, leader: NodeId) -> Self {
        let others = self.replicas.iter().copied().filter(|node| *node != leader);
        Self {
            replicas: std::iter::once(leader).chain(others).collect(),
            ..self.led_by(leader)
        }
    }

    /// These replicas instead of the current ones, in one step: those on running nodes are in sync, as all share one copy of the bytes. In
    /// another order only the preferred leader changes. `None`: none of the nodes runs. Kafka counts the replicas from before its last step,
    /// so a partition with fewer replicas than `min_insync_replicas` remembers removed ones as eligible.
    pub(crate) fn reassigned(
        &self,
        target: &[NodeId],
        min_insync_replicas: usize,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Option<Self> {
        let mut next = Self {
            replicas: target.to_vec(),
            ..self.clone()
        };
        let is_same = target.len() == self.replicas.len() && target.iter().all(|node| self.replicas.contains(node));
        if is_same {
            return Some(next);
        }
        next.isr = target.iter().copied().filter(|node| is_up(*node)).collect();
        (next.elr, next.last_known_elr) = (Vec::new(), Vec::new());
        let first = *next.isr.first()?;
        let added = target.iter().filter(|node| !self.replicas.contains(node)).count();
        if next.isr.len() < min_insync_replicas.min(self.replicas.len() + added) {
            let left = self.isr.iter().chain(&self.elr).filter(|node| !next.isr.contains(node));
            next.elr = left.copied().collect();
            next.elr.sort_unstable();
            next.elr.dedup();
        }
        Some(match next.isr.contains(&next.leader) {
            true => next,
            false => next.led_by(first),
        })
    }

    /// After a node has ended: it leaves the ISR, and the first replica in sync leads in its place. `None`: nothing changes. Kafka:
    /// `ReplicationControlManager#handleBrokerFenced`.
    pub(crate) fn without(&self, node: NodeId, min_insync_replicas: usize) -> Option<Self> {
        if !self.isr.contains(&node) && self.leader != node {
            return None;
        }
        let mut next = self.clone();
        next.isr.retain(|in_sync| *in_sync != node);
        if next.is_under_min_isr(min_insync_replicas) {
            let left = self.isr.iter().chain(&self.elr).filter(|node| !next.isr.contains(node));
            next.elr = left.copied().collect();
            next.elr.sort_unstable();
            next.elr.dedup();
        } else {
            (next.elr, next.last_known_elr) = (Vec::new(), Vec::new());
        }
        if next.leader != node {
            return Some(next);
        }
        let in_order = self.replicas.iter().copied();
        let elected = in_order.clone().find(|replica| next.isr.contains(replica));
        if elected.is_none() {
            next.last_known_elr = vec![node];
        }
        Some(next.led_by(elected.unwrap_or(NO_LEADER)))
    }

    /// After a node has started: its replica is in sync again. A partition without leader is led by it if it was eligible, or by the last
    /// leader if nobody is. A node that was killed may have lost records, so it is not eligible. `None`: nothing changes. Kafka:
    /// `ReplicationControlManager#handleBrokerUnfenced`, `#handleUncleanBrokerShutdown`, `#alterPartition`.
    pub(crate) fn with(
        &self,
        node: NodeId,
        min_insync_replicas: usize,
        was_killed: bool,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Option<Self> {
        let mut next = self.clone();
        if was_killed {
            next.elr.retain(|eligible| *eligible != node);
        }
        if next.leader == NO_LEADER {
            let last = next.last_known_elr.first().copied().filter(|last| is_up(*last));
            let elected = match next.elr.is_empty() {
                true => last,
                false => Some(node).filter(|node| next.elr.contains(node)),
            };
            // Kafka: `PartitionChangeBuilder#electAnyLeader` looks among the replicas. The ELR remembers removed ones.
            if let Some(elected) = elected.filter(|elected| next.replicas.contains(elected)) {
                next = next.led_by(elected);
                next.isr = vec![elected];
            }
        }
        if next.leader != NO_LEADER {
            if next.replicas.contains(&node) && !next.isr.contains(&node) {
                next.isr.push(node);
                next.isr.sort_unstable();
            }
            next.last_known_elr.clear();
            next.elr.retain(|eligible| !next.isr.contains(eligible));
            if !next.is_under_min_isr(min_insync_replicas) {
                next.elr.clear();
            }
        }
        (next != *self).then_some(next)
    }

    /// As `fletchlog.metadata` keeps it. Which replicas are in sync is not kept: when a broker is opened, all of its nodes run.
    pub(super) fn to_json(&self) -> Value {
        json!({"replicas": self.replicas, "leader": self.leader, "leader.epoch": self.leader_epoch})
    }

    /// Reads it; a partition that had no leader has its first replica as its leader, in the next epoch. `None`: it is not valid.
    pub(super) fn from_json(value: &Map<String, Value>, nodes: &NodeIds) -> Option<Self> {
        let node = |value: &Value| {
            let node = NodeId::try_from(value.as_i64()?).ok()?;
            nodes.contains(node).then_some(node)
        };
        let replicas: Vec<NodeId> = value
            .get("replicas")?
            .as_array()?
            .iter()
            .map(node)
            .collect::<Option<_>>()?;
        let leader_epoch = i32::try_from(value.get("leader.epoch")?.as_i64()?).ok()?;
        let leader = NodeId::try_from(value.get("leader")?.as_i64()?).ok()?;
        let first = *replicas.first()?;
        let state = Self {
            leader,
            leader_epoch,
            ..Self::new(replicas)
        };
        match leader {
            _ if leader_epoch < 0 => None,
            NO_LEADER => Some(state.led_by(first)),
            leader => state.replicas.contains(&leader).then_some(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(replicas: &[NodeId]) -> PartitionState {
        PartitionState::new(replicas.to_vec())
    }

    /// Leader, epoch, ISR, ELR.
    fn shown(state: &PartitionState) -> (NodeId, i32, Vec<NodeId>, Vec<NodeId>) {
        (state.leader, state.leader_epoch, state.isr.clone(), state.elr.clone())
    }

    #[test]
    fn a_stopped_leader_is_followed_by_the_next_replica_in_the_order_of_the_assignment() {
        let ended = state(&[3, 1, 2]).without(3, 2).unwrap();
        assert_eq!(shown(&ended), (1, 1, vec![1, 2], vec![]));
        let follower = state(&[2, 3, 1]).without(3, 2).unwrap();
        assert_eq!(
            shown(&follower),
            (2, 0, vec![2, 1], vec![]),
            "a follower changes no epoch"
        );
        assert_eq!(follower.without(3, 2), None);
        assert_eq!(
            shown(&follower.with(3, 2, false, |_| true).unwrap()),
            (2, 0, vec![1, 2, 3], vec![])
        );
    }

    #[test]
    fn the_last_replica_leaves_no_leader_and_leads_again_when_it_returns() {
        let one = state(&[1, 2, 3]).without(3, 2).unwrap();
        let two = one.without(1, 2).unwrap();
        assert_eq!(shown(&two), (2, 1, vec![2], vec![1]));
        let none = two.without(2, 2).unwrap();
        assert_eq!(shown(&none), (NO_LEADER, 2, vec![], vec![1, 2]));
        assert_eq!(none.last_known_elr, [2]);
        assert_eq!(none.with(3, 2, false, |node| node == 3), None, "it was not in sync");
        let back = none.with(2, 2, false, |_| true).unwrap();
        assert_eq!(shown(&back), (2, 3, vec![2], vec![1]));
        assert_eq!(
            shown(&back.with(3, 2, false, |_| true).unwrap()),
            (2, 3, vec![2, 3], vec![])
        );
    }

    #[test]
    fn a_killed_node_is_eligible_no_more_and_the_last_leader_leads_once_nobody_is() {
        let alone = state(&[3]).without(3, 1).unwrap();
        let back = alone.with(3, 1, true, |_| true).unwrap();
        assert_eq!(shown(&back), (3, 2, vec![3], vec![]));
        let none = state(&[2, 3]).without(3, 2).unwrap().without(2, 2).unwrap();
        assert_eq!(shown(&none), (NO_LEADER, 1, vec![], vec![2, 3]));
        let first = none.with(2, 2, true, |node| node == 2).unwrap();
        assert_eq!(shown(&first), (NO_LEADER, 1, vec![], vec![3]), "3 could lead");
        let second = first.with(3, 2, true, |_| true).unwrap();
        assert_eq!(shown(&second), (2, 2, vec![2, 3], vec![]), "the last leader");
    }

    #[test]
    fn a_removed_replica_that_is_remembered_as_eligible_never_leads() {
        let moved = state(&[3, 1]).reassigned(&[2], 2, |_| true).unwrap();
        assert_eq!(shown(&moved), (2, 1, vec![2], vec![1, 3]));
        let none = moved.without(2, 2).unwrap();
        assert_eq!(shown(&none), (NO_LEADER, 2, vec![], vec![1, 2, 3]));
        assert_eq!(none.with(1, 2, false, |_| true), None);
        let back = none.with(2, 2, false, |_| true).unwrap();
        assert_eq!((back.leader, back.isr), (2, vec![2]));
    }

    #[test]
    fn elections_have_kafkas_codes() {
        let code = |elected: Result<PartitionState, NoElection>| elected.unwrap_err().0;
        let first = state(&[1, 2, 3]);
        assert_eq!(code(first.elect_preferred(|_| true)), ErrorCode::ELECTION_NOT_NEEDED);
        assert_eq!(code(first.elect_unclean(|_| true)), ErrorCode::ELECTION_NOT_NEEDED);
        let reordered = first.reassigned(&[2, 3, 1], 2, |_| true).unwrap();
        assert_eq!(
            shown(&reordered),
            (1, 0, vec![1, 2, 3], vec![]),
            "another order moves nothing"
        );
        assert_eq!(
            shown(&reordered.elect_preferred(|_| true).unwrap()),
            (2, 1, vec![1, 2, 3], vec![])
        );
        let without = reordered.without(2, 1).unwrap();
        let unavailable = ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE;
        assert_eq!(code(without.elect_preferred(|node| node != 2)), unavailable);
        let none = without.without(3, 1).unwrap().without(1, 1).unwrap();
        assert_eq!(none.leader, NO_LEADER);
        let unclean = none.elect_unclean(|node| node == 3).unwrap();
        assert_eq!(shown(&unclean), (3, 2, vec![3], vec![]));
        let none_up = ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE;
        assert_eq!(code(none.elect_unclean(|_| false)), none_up);
    }

    #[test]
    fn a_reassignment_keeps_the_leader_if_it_stays_a_replica() {
        let kept = state(&[1, 2]).reassigned(&[3, 1], 2, |_| true).unwrap();
        assert_eq!(shown(&kept), (1, 0, vec![3, 1], vec![]));
        let moved = state(&[1, 2]).reassigned(&[3, 2], 1, |node| node != 3).unwrap();
        assert_eq!(shown(&moved), (2, 1, vec![2], vec![]));
        assert_eq!(state(&[1]).reassigned(&[2], 1, |_| false), None);
        let fewer = state(&[3, 1]).reassigned(&[2], 2, |_| true).unwrap();
        assert_eq!(shown(&fewer), (2, 1, vec![2], vec![1, 3]), "as recorded");
        assert_eq!(
            shown(&fewer.reassigned(&[2, 3], 2, |_| true).unwrap()),
            (2, 1, vec![2, 3], vec![])
        );
    }

    #[test]
    fn a_partition_without_a_leader_has_one_when_the_broker_is_opened_again() {
        let none = state(&[2, 1]).without(1, 1).unwrap().without(2, 1).unwrap();
        let value = none.to_json();
        let read = PartitionState::from_json(value.as_object().unwrap(), &NodeIds::numbered(2)).unwrap();
        assert_eq!(shown(&read), (2, 2, vec![2, 1], vec![]));
        for (key, bad) in [
            ("leader", json!(3)),
            ("leader.epoch", json!(-1)),
            ("replicas", json!([])),
        ] {
            let mut value = value.clone();
            value[key] = bad;
            assert_eq!(
                PartitionState::from_json(value.as_object().unwrap(), &NodeIds::numbered(2)),
                None,
                "{key}"
            );
        }
    }
}
