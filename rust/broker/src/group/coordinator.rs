//! Who coordinates a group, who is alive in it, who leaves (spec 8.7). Kafka 2.6: `GroupCoordinator`.
//!
//! All groups share one lock: group requests are rare beside produce and fetch. Time-outs are noticed by whoever calls
//! the broker next; a client that waits wakes up for them.

use std::sync::{Arc, Mutex};

use fletchlog_api::{Config, ErrorCode, HeartbeatRequest, LeaveGroupRequest, NodeId};
use rustc_hash::FxHashMap;

use super::member::{ClientLiveness, Member};
use super::rebalance::{join_error, sync_error};
use super::state::{Group, GroupState};
use crate::sync::lock;
use crate::topics::CONSUMER_OFFSETS;
use crate::{Broker, BrokerError, uuid};

/// The coordinator of every group.
#[derive(Debug)]
pub(crate) struct GroupCoordinator {
    pub(super) state: Mutex<Groups>,
    pub(super) min_session_timeout_ms: i32,
    pub(super) max_session_timeout_ms: i32,
    pub(super) max_size: usize,
    pub(super) initial_delay_ms: i64,
    /// End of every member id of this run.
    run: String,
}

/// The groups, and how far each partition of `__consumer_offsets` has been read.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(super) by_id: FxHashMap<Arc<str>, Group>,
    pub(super) loaded: FxHashMap<i32, i64>,
    pub(super) next_expiry_check_ms: Option<i64>,
    members_named: u64,
}

impl GroupCoordinator {
    /// With the broker's limits.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            state: Mutex::default(),
            min_session_timeout_ms: config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms: config.int("group.max.session.timeout.ms"),
            max_size: usize::try_from(config.int("group.max.size")).unwrap_or(usize::MAX),
            initial_delay_ms: i64::from(config.int("group.initial.rebalance.delay.ms")),
            run: uuid::random_hex(),
        }
    }

    /// `<prefix>-<uuid>`, as Kafka forms it; the first digits count, so that ids of the same client sort in the order in
    /// which they were given and assignments do not depend on chance.
    pub(super) fn member_id(&self, groups: &mut Groups, prefix: &str) -> Arc<str> {
        groups.members_named += 1;
        let n = groups.members_named;
        let (high, low) = (n >> 16, n & 0xffff);
        Arc::from(format!(
            "{prefix}-{high:08x}-{low:04x}-4{}-8{}-{}",
            &self.run[..3],
            &self.run[3..6],
            &self.run[6..18]
        ))
    }

    /// When a group has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        let groups = lock(&self.state);
        groups
            .by_id
            .values()
            .flat_map(|g| {
                let join = g.pending_join.map(|j| j.deadline_ms);
                join.into_iter()
                    .chain(g.pending_members.values().copied())
                    .chain(g.members.iter().filter_map(Member::deadline_ms))
            })
            .min()
    }
}

impl Broker {
    /// The node whose partition of `__consumer_offsets` keeps the group.
    pub(crate) fn coordinator_of(&self, group_id: &str) -> Result<NodeId, BrokerError> {
        let partition = self.offsets_partition(group_id);
        Ok(
            match self
                .topic_table()
                .get(CONSUMER_OFFSETS)
                .and_then(|t| t.partition(partition))
            {
                Some(p) => p.leader(),
                // Before the first commit: where it will be.
                None => 1 + partition.rem_euclid(i32::try_from(self.sessions.len()).unwrap_or(1)),
            },
        )
    }

    /// Kafka: `partitionFor(groupId)` = abs(hash) mod partitions, abs(MIN_VALUE) = 0.
    pub(crate) fn offsets_partition(&self, group_id: &str) -> i32 {
        let partitions = match self.topic_table().get(CONSUMER_OFFSETS) {
            Some(topic) => topic.record.partitions,
            None => self.config.int("offsets.topic.num.partitions"),
        };
        fletchlog_api::java_hash::string_hash(group_id)
            .checked_abs()
            .unwrap_or(0)
            % partitions.max(1)
    }

    /// NOT_COORDINATOR unless `node` keeps the group.
    pub(crate) fn check_coordinator(&self, node: NodeId, group_id: &str) -> Result<(), ErrorCode> {
        match self.coordinator_of(group_id) {
            Ok(coordinator) if coordinator == node => Ok(()),
            Ok(_) => Err(ErrorCode::NOT_COORDINATOR),
            Err(_) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        }
    }

    /// Heartbeat. Kafka: `handleHeartbeat`; during CompletingRebalance as since 2.7.
    pub(crate) fn heartbeat(
        &self,
        node: NodeId,
        request: &HeartbeatRequest,
        client: &Arc<ClientLiveness>,
    ) -> ErrorCode {
        let now_ms = self.clock.monotonic_ms();
        client.seen(now_ms);
        let mut groups = lock(&self.groups.state);
        self.tick(&mut groups, now_ms);
        let mut beat = || -> Result<(), ErrorCode> {
            self.check_coordinator(node, &request.group_id)?;
            let group = groups
                .by_id
                .get_mut(&request.group_id)
                .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            check_member(group, &request.member_id, request.group_instance_id.as_deref())?;
            if group.generation != request.generation_id {
                return Err(ErrorCode::ILLEGAL_GENERATION);
            }
            let state = group.state;
            group
                .member_mut(&request.member_id)
                .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?
                .heard_from(client);
            match state {
                GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
                GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
                GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            }
        };
        beat().err().unwrap_or(ErrorCode::NONE)
    }

    /// LeaveGroup. Kafka: `handleLeaveGroup`.
    pub(crate) fn leave_group(&self, node: NodeId, request: &LeaveGroupRequest) -> ErrorCode {
        let now_ms = self.clock.monotonic_ms();
        let mut groups = lock(&self.groups.state);
        self.tick(&mut groups, now_ms);
        if let Err(error) = self.check_coordinator(node, &request.group_id) {
            return error;
        }
        let Some(group) = groups.by_id.get_mut(&request.group_id) else {
            return ErrorCode::UNKNOWN_MEMBER_ID;
        };
        if group.pending_members.remove(&request.member_id).is_some() {
            self.try_complete_join(group, now_ms);
            return ErrorCode::NONE;
        }
        if let Err(error) = check_member(group, &request.member_id, request.group_instance_id.as_deref()) {
            return error;
        }
        self.remove_member(group, &request.member_id, now_ms);
        ErrorCode::NONE
    }

    /// Kafka: `removeMemberAndUpdateGroup`.
    fn remove_member(&self, group: &mut Group, id: &str, now_ms: i64) {
        let Some(mut member) = group.remove(id) else { return };
        member.answer_join(
            join_error(ErrorCode::UNKNOWN_MEMBER_ID, member.id.clone()),
            &self.changes,
        );
        member.answer_sync(sync_error(ErrorCode::UNKNOWN_MEMBER_ID), &self.changes);
        match group.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.rebalance(group, now_ms),
            GroupState::PreparingRebalance => self.try_complete_join(group, now_ms),
            GroupState::Empty => {}
        }
    }

    /// Does what is due in the groups.
    pub(crate) fn tick_groups(&self, now_ms: i64) {
        let mut groups = lock(&self.groups.state);
        self.tick(&mut groups, now_ms);
    }

    /// Members missed, ids never used, rebalances whose time is over, offsets expired.
    pub(super) fn tick(&self, groups: &mut Groups, now_ms: i64) {
        for group in groups.by_id.values_mut() {
            if group.members.is_empty() && group.pending_members.is_empty() && group.pending_join.is_none() {
                continue;
            }
            group.pending_members.retain(|_, give_up_ms| now_ms < *give_up_ms);
            let missed: Vec<Arc<str>> = group
                .members
                .iter()
                .filter(|m| m.deadline_ms().is_some_and(|deadline| now_ms >= deadline))
                .map(|m| m.id.clone())
                .collect();
            for id in missed {
                log::info!(
                    "member {id} of group {} was not heard of in time and is removed",
                    group.id
                );
                self.remove_member(group, &id, now_ms);
            }
            self.try_complete_join(group, now_ms);
        }
        self.expire_offsets(groups, now_ms);
    }
}

/// 82 for the old id of a static member, 25 for an unknown one.
pub(super) fn check_member(group: &Group, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
    if let Some(instance) = instance_id {
        match group.static_member(instance) {
            None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(member) if &*member.id != member_id => return Err(ErrorCode::FENCED_INSTANCE_ID),
            Some(_) => {}
        }
    }
    if group.member(member_id).is_some() {
        Ok(())
    } else {
        Err(ErrorCode::UNKNOWN_MEMBER_ID)
    }
}
