//! SyncGroup. Kafka: `GroupMetadataManager#classicGroupSync`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, Response, SyncGroupRequest, SyncGroupResponse};
use rustc_hash::FxHashMap;

use super::coordinator::{GroupCoordinator, check_generation};
use super::member::{ClientLiveness, Member};
use super::rebalance::sync_error;
use super::state::{Group, GroupState};
use crate::sync::Answer;

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

    /// Takes over the leader's assignment. Kafka: `setAndPropagateAssignment`.
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
        self.transition(group, GroupState::Stable);
        let (protocol_type, protocol_name) = (group.protocol_type.clone(), group.protocol.clone());
        for member in &mut group.members {
            self.answer_sync(member, (&protocol_type, &protocol_name), Some(now_ms));
        }
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
