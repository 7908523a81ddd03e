//! SyncGroup. Kafka 2.6: `GroupCoordinator#handleSyncGroup`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, Response, SyncGroupRequest, SyncGroupResponse};

use super::coordinator::{GroupCoordinator, check_member};
use super::member::ClientLiveness;
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
        let synced = self.check_coordinator(node, &request.group_id).and_then(|()| {
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

    /// Kafka: `doSyncGroup`.
    fn sync(
        &self,
        group: &mut Group,
        request: &SyncGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        check_member(group, &request.member_id, request.group_instance_id.as_deref())?;
        if group.generation != request.generation_id {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let leads = group.is_leader(&request.member_id);
        let state = group.state;
        let member = group
            .member_mut(&request.member_id)
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        member.heard_from(client, now_ms);
        match state {
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => return Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::Stable => {
                let response = SyncGroupResponse {
                    error: ErrorCode::NONE,
                    assignment: member.assignment.clone(),
                };
                answer.complete(Response::SyncGroup(response), self.changes());
                return Ok(());
            }
            GroupState::CompletingRebalance => member.syncing = Some(answer.clone()),
        }
        if !leads {
            return Ok(());
        }
        for member in &mut group.members {
            let given = request.assignments.iter().find(|(id, _)| *id == member.id);
            member.assignment = given.map(|(_, a)| a.clone()).unwrap_or_default();
        }
        if self.store_group(group).is_err() {
            for member in &mut group.members {
                member.assignment = Bytes::new();
                member.answer_sync(sync_error(ErrorCode::COORDINATOR_NOT_AVAILABLE), self.changes());
            }
            self.rebalance(group, now_ms);
            return Ok(());
        }
        self.transition(group, GroupState::Stable);
        for member in &mut group.members {
            let response = SyncGroupResponse {
                error: ErrorCode::NONE,
                assignment: member.assignment.clone(),
            };
            member.answer_sync(response, self.changes());
        }
        Ok(())
    }
}
