//! LeaveGroup, and the removal of members from a group. Kafka: `GroupMetadataManager#classicGroupLeave`,
//! `#removeMemberAndUpdateClassicGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse, NodeId};
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;
use fletchlog_protocol::messages::leave_group_response::MemberResponse;
use rustc_hash::{FxHashMap, FxHashSet};

use super::coordinator::GroupCoordinator;
use super::member::Member;
use super::rebalance::join_error;
use super::state::{Group, GroupState};

impl GroupCoordinator {
    /// LeaveGroup. Each member is checked separately; the group rebalances once for all that have left.
    pub(crate) fn leave_group(&self, node: NodeId, request: &LeaveGroupRequest) -> LeaveGroupResponse {
        let now_ms = self.replicas.clock().monotonic_ms();
        self.tick(now_ms);
        if let Err(error_code) = self.check_group(node, &request.group_id) {
            return LeaveGroupResponse {
                error_code,
                ..Default::default()
            };
        }
        let left = self.in_group(&request.group_id, |group| {
            if group.consumer.is_some() {
                let left = self.leave_consumer_group(group, &request.members, now_ms);
                return left.unwrap_or_else(|code| vec![Some(code); request.members.len()]);
            }
            let mut leaving = Leaving::new(group);
            let left: Vec<_> = request.members.iter().map(|m| leaving.judge(m).err()).collect();
            let ids = leaving.ids;
            if left.contains(&None) {
                self.remove_members(group, &ids, now_ms);
            }
            left
        });
        let left = left.unwrap_or_else(|| vec![Some(ErrorCode::UNKNOWN_MEMBER_ID); request.members.len()]);
        let response = |(member, error): (&MemberIdentity, Option<ErrorCode>)| MemberResponse {
            member_id: Arc::clone(&member.member_id),
            group_instance_id: member.group_instance_id.clone(),
            error_code: error.unwrap_or(ErrorCode::NONE),
        };
        LeaveGroupResponse {
            members: request.members.iter().zip(left).map(response).collect(),
            ..Default::default()
        }
    }

    /// Removes members that leave or whose sessions have timed out. Their waiting joins get a response, so that their clients retry;
    /// as in Kafka, a waiting sync gets none. Kafka: `removeMemberAndUpdateClassicGroup`.
    pub(super) fn remove_members(&self, group: &mut Group, ids: &BTreeSet<Arc<str>>, now_ms: i64) {
        for mut member in group.remove_all(ids) {
            let nobody: Arc<str> = Arc::from("");
            member.answer_join(join_error(ErrorCode::UNKNOWN_MEMBER_ID, nobody), self.changes());
        }
        self.members_left(group, now_ms);
    }

    fn members_left(&self, group: &mut Group, now_ms: i64) {
        match group.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.rebalance(group, now_ms),
            GroupState::PreparingRebalance => self.try_complete_join(group, now_ms),
            GroupState::Empty => {}
        }
    }
}

/// The members that leave with one request, and those that stay.
struct Leaving<'a> {
    group: &'a Group,
    by_id: FxHashSet<&'a str>,
    /// Ids by group.instance.id.
    by_instance: FxHashMap<&'a str, &'a Arc<str>>,
    ids: BTreeSet<Arc<str>>,
}

impl<'a> Leaving<'a> {
    fn new(group: &'a Group) -> Self {
        let of_instance = |m: &'a Member| Some((m.instance_id.as_deref()?, &m.id));
        Self {
            group,
            by_id: group.members.iter().map(|m| &*m.id).collect(),
            by_instance: group.members.iter().filter_map(of_instance).collect(),
            ids: BTreeSet::new(),
        }
    }

    /// Checks that a member may leave, and adds it to those that leave.
    fn judge(&mut self, leaving: &MemberIdentity) -> Result<(), ErrorCode> {
        let of_instance = leaving.group_instance_id.as_deref().map(|instance| {
            let id = self.by_instance.get(instance).copied();
            id.filter(|id| !self.ids.contains(*id))
                .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)
        });
        let is_pending = self.group.pending_members.contains_key(&leaving.member_id);
        let id = match (&*leaving.member_id, of_instance) {
            // An administrator removes a static member without knowing its id.
            ("", Some(id)) => Arc::clone(id?),
            _ if is_pending && !self.ids.contains(&leaving.member_id) => Arc::clone(&leaving.member_id),
            (id, of_instance) => {
                if of_instance.transpose()?.is_some_and(|owner| **owner != *id) {
                    return Err(ErrorCode::FENCED_INSTANCE_ID);
                }
                if !self.by_id.contains(id) {
                    return Err(ErrorCode::UNKNOWN_MEMBER_ID);
                }
                Arc::clone(&leaving.member_id)
            }
        };
        let reason = leaving.reason.as_deref().unwrap_or("not provided");
        log::debug!("member {id} has left group {}: {reason}", self.group.id);
        match self.ids.insert(id) {
            true => Ok(()),
            // It has left already.
            false => Err(ErrorCode::UNKNOWN_MEMBER_ID),
        }
    }
}
