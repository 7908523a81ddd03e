//! LeaveGroup, and what becomes of a group whose member has gone. Kafka: `GroupMetadataManager#classicGroupLeave`,
//! `#removeMemberAndUpdateClassicGroup`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse, LeavingMember, NodeId};

use super::coordinator::{GroupCoordinator, check_member};
use super::rebalance::join_error;
use super::state::{Group, GroupState};

impl GroupCoordinator {
    /// LeaveGroup. Each member is judged by itself; the group rebalances once for all that have left.
    pub(crate) fn leave_group(&self, node: NodeId, request: &LeaveGroupRequest) -> LeaveGroupResponse {
        let now_ms = self.replicas.clock().monotonic_ms();
        self.tick(now_ms);
        if let Err(error) = self.check_group(node, &request.group_id) {
            let members = Vec::new();
            return LeaveGroupResponse { error, members };
        }
        let left = self.in_group(&request.group_id, |group| {
            let left: Vec<_> = request.members.iter().map(|m| self.leave(group, m).err()).collect();
            if left.contains(&None) {
                self.members_left(group, now_ms);
            }
            left
        });
        let left = left.unwrap_or_else(|| vec![Some(ErrorCode::UNKNOWN_MEMBER_ID); request.members.len()]);
        let codes = left.into_iter().map(|error| error.unwrap_or(ErrorCode::NONE));
        LeaveGroupResponse {
            error: ErrorCode::NONE,
            members: request.members.iter().cloned().zip(codes).collect(),
        }
    }

    fn leave(&self, group: &mut Group, leaving: &LeavingMember) -> Result<(), ErrorCode> {
        let id = match (&*leaving.member_id, &leaving.group_instance_id) {
            // An administrator removes a static member without knowing its id.
            ("", Some(instance)) => {
                let member = group.static_member(instance).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                member.id.clone()
            }
            _ if group.pending_members.contains_key(&leaving.member_id) => leaving.member_id.clone(),
            (id, instance) => {
                check_member(group, id, instance.as_deref())?;
                leaving.member_id.clone()
            }
        };
        let reason = leaving.reason.as_deref().unwrap_or("not provided");
        log::debug!("member {id} has left group {}: {reason}", group.id);
        self.take_out(group, &id);
        Ok(())
    }

    /// A member is removed because its session has timed out. Kafka: `removeMemberAndUpdateClassicGroup`.
    pub(super) fn remove_member(&self, group: &mut Group, id: &str, now_ms: i64) {
        self.take_out(group, id);
        self.members_left(group, now_ms);
    }

    /// A waiting join is answered, so that the client tries again; a waiting sync is not, as with Kafka.
    fn take_out(&self, group: &mut Group, id: &str) {
        if let Some(mut member) = group.remove(id) {
            let nobody: Arc<str> = Arc::from("");
            member.answer_join(join_error(ErrorCode::UNKNOWN_MEMBER_ID, nobody), self.changes());
        }
    }

    fn members_left(&self, group: &mut Group, now_ms: i64) {
        match group.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.rebalance(group, now_ms),
            GroupState::PreparingRebalance => self.try_complete_join(group, now_ms),
            GroupState::Empty => {}
        }
    }
}
