//! SyncGroup. Kafka: `GroupMetadataManager#classicGroupSync`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, Response, SyncGroupRequest, SyncGroupResponse};
use rustc_hash::FxHashMap;

use super::coordinator::{GroupCoordinator, check_generation};
use super::member::{ClientLiveness, Member};
use super::rebalance::sync_error;
use super::state::{Group, GroupState, PendingAssignment};
use crate::partition::Partition;
use crate::sync::Answer;
use crate::topic_names::CONSUMER_OFFSETS;

impl GroupCoordinator {
    /// SyncGroup.
    pub(crate) fn sync_group(
        &self,
        node: NodeId,
        request: &SyncGroupRequest,
        client: &Arc<ClientLiveness>,
    ) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        let now_ms = self.replicas.clock().monotonic_ms();
        client.seen(now_ms);
        self.tick(now_ms);
        let synced = self.check_group(node, &request.group_id).and_then(|()| {
            let done = self.in_group(&request.group_id, |group| {
                self.sync(group, request, client, &answer, now_ms)
            });
            done.unwrap_or(Err(ErrorCode::UNKNOWN_MEMBER_ID))
        });
        if let Err(error) = synced {
            answer.complete(Response::SyncGroup(sync_error(error)), self.changes());
        }
        answer
    }

    fn sync(
        &self,
        group: &mut Group,
        request: &SyncGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        if group.consumer.is_some() {
            let response = self.sync_consumer_group(group, request, now_ms)?;
            answer.complete(Response::SyncGroup(response), self.changes());
            return Ok(());
        }
        check_sync(group, request)?;
        let (state, leads) = (group.state, group.is_leader(&request.member_id));
        if let Some(member) = group.member_mut(&request.member_id) {
            member.belongs_to(client, now_ms);
        }
        match state {
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => return Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::CompletingRebalance | GroupState::Stable => group.has_synced(&request.member_id),
        }
        if let Some(member) = group.member_mut(&request.member_id) {
            member.syncing = Some(answer.clone());
        }
        match state {
            GroupState::Stable => {
                let (protocol_type, protocol_name) = (group.protocol_type.clone(), group.protocol.clone());
                if let Some(member) = group.member_mut(&request.member_id) {
                    self.answer_sync(member, (&protocol_type, &protocol_name), None);
                }
            }
            _ if leads => self.assign(group, request, now_ms),
            _ => {}
        }
        Ok(())
    }

    /// Takes over the leader's assignment, which the members get once its record is on all replicas in sync. Kafka: `classicGroupSync`.
    fn assign(&self, group: &mut Group, request: &SyncGroupRequest, now_ms: i64) {
        // If a member is named twice, the later assignment counts.
        let given = request.assignments.iter().map(|a| (&a.member_id, &a.assignment));
        let given: FxHashMap<&Arc<str>, &Bytes> = given.collect();
        for member in &mut group.members {
            member.assignment = given.get(&member.id).copied().cloned().unwrap_or_default();
        }
        if self.store_group(group).is_err() {
            self.reset_assignments(group, ErrorCode::COORDINATOR_NOT_AVAILABLE, now_ms);
            self.rebalance(group, now_ms);
            return;
        }
        match self.waits_for_replicas(&group.id) {
            Some(end) => {
                let wait_ms = i64::from(self.replicas.config().int("offsets.commit.timeout.ms"));
                let deadline_ms = now_ms.saturating_add(wait_ms);
                group.pending_assignment = Some(PendingAssignment { end, deadline_ms });
            }
            None => self.propagate_assignment(group, now_ms),
        }
    }

    /// Kafka: `setAndPropagateAssignment`.
    fn propagate_assignment(&self, group: &mut Group, now_ms: i64) {
        self.transition(group, GroupState::Stable);
        let (protocol_type, protocol_name) = (group.protocol_type.clone(), group.protocol.clone());
        for member in &mut group.members {
            self.answer_sync(member, (&protocol_type, &protocol_name), Some(now_ms));
        }
    }

    /// Ends the wait for an assignment whose record is on all replicas in sync, or whose time has passed. Kafka: `classicGroupSync`, its
    /// append future.
    pub(super) fn settle_assignment(&self, group: &mut Group, now_ms: i64) {
        let Some(PendingAssignment { end, deadline_ms }) = group.pending_assignment else {
            return;
        };
        let is_written = self
            .log_of_group(&group.id)
            .is_none_or(|log| log.high_watermark() >= end);
        if !is_written && now_ms < deadline_ms {
            return;
        }
        group.pending_assignment = None;
        if is_written {
            return self.propagate_assignment(group, now_ms);
        }
        self.reset_assignments(group, ErrorCode::COORDINATOR_NOT_AVAILABLE, now_ms);
        self.rebalance(group, now_ms);
    }

    /// Called when high watermarks have moved on.
    pub(crate) fn records_are_replicated(&self) {
        let now_ms = self.replicas.clock().monotonic_ms();
        self.in_idle_groups(|group| self.settle_assignment(group, now_ms));
    }

    /// The end of the group's log, if that is not on all replicas in sync.
    fn waits_for_replicas(&self, group_id: &str) -> Option<i64> {
        let log = self.log_of_group(group_id).filter(|log| log.is_held())?;
        let end = log.log_end();
        (log.high_watermark() < end).then_some(end)
    }

    fn log_of_group(&self, group_id: &str) -> Option<Arc<Partition>> {
        let topic = self.replicas.topic(CONSUMER_OFFSETS).ok()?;
        topic.partition(self.partition_for(group_id)).cloned()
    }

    /// Completes a member's waiting sync with its assignment, in a group of this protocol; `now_ms` restarts its session time-out.
    fn answer_sync(&self, member: &mut Member, (protocol_type, protocol_name): Protocol<'_>, now_ms: Option<i64>) {
        let response = SyncGroupResponse {
            protocol_type: protocol_type.clone(),
            protocol_name: protocol_name.clone(),
            assignment: member.assignment.clone(),
            ..Default::default()
        };
        let answered = member.answer_sync(response, self.changes());
        if let Some(now_ms) = now_ms.filter(|_| answered) {
            member.reschedule_heartbeat(now_ms);
        }
    }
}

/// Protocol type and name.
type Protocol<'a> = (&'a Option<Arc<str>>, &'a Option<Arc<str>>);

/// Kafka: `validateSyncGroup`.
fn check_sync(group: &Group, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
    let instance_id = request.group_instance_id.as_deref();
    check_generation(group, &request.member_id, instance_id, request.generation_id)?;
    let differs =
        |asked: &Option<Arc<str>>, known: &Option<Arc<str>>| asked.is_some() && known.is_some() && asked != known;
    if differs(&request.protocol_type, &group.protocol_type) || differs(&request.protocol_name, &group.protocol) {
        return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
    Ok(())
}
