//! JoinGroup. Kafka 2.6: `GroupCoordinator#handleJoinGroup`, `#doUnknownJoinGroup`, `#doJoinGroup`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, JoinGroupRequest, NodeId, Response};

use super::coordinator::{GroupCoordinator, check_member};
use super::member::{ClientLiveness, Member};
use super::rebalance::{join_error, join_response, sync_error};
use super::state::{Group, GroupState};
use crate::sync::Answer;

/// Longest text that a record of `__consumer_offsets` can hold.
pub(super) const MAX_TEXT: usize = i16::MAX as usize;

impl GroupCoordinator {
    /// JoinGroup.
    pub(crate) fn join_group(
        &self,
        node: NodeId,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
    ) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        let now_ms = self.replicas.clock().monotonic_ms();
        client.seen(now_ms);
        self.tick(now_ms);
        let joined = self
            .check_join(node, request)
            .map_err(|error| (error, None))
            .and_then(|()| self.join(request, client, &answer, now_ms));
        if let Err((error, member_id)) = joined {
            let member_id = member_id.unwrap_or_else(|| request.member_id.clone());
            answer.complete(Response::JoinGroup(join_error(error, member_id)), self.changes());
        }
        answer
    }

    /// What can be said before the group is looked at.
    fn check_join(&self, node: NodeId, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
        self.check_coordinator(node, &request.group_id)?;
        if request.group_id.is_empty() || request.group_id.len() > MAX_TEXT {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let too_long = |text: &Arc<str>| text.len() > MAX_TEXT / 2;
        if too_long(&request.client_id) || request.group_instance_id.as_ref().is_some_and(too_long) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if !(self.min_session_timeout_ms..=self.max_session_timeout_ms).contains(&request.session_timeout_ms) {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        self.load_group(&request.group_id)
    }

    fn join(
        &self,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), (ErrorCode, Option<Arc<str>>)> {
        let known = !request.member_id.is_empty();
        let join = |group: &mut Group| {
            let prefix = request.group_instance_id.as_ref().unwrap_or(&request.client_id);
            let new_id = (!known).then(|| self.member_id(prefix));
            if !accepts(group, &request.member_id, self.max_size) {
                group.pending_members.remove(&request.member_id);
                return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, None));
            }
            match new_id {
                Some(new_id) => self.join_new(group, new_id, request, client, answer, now_ms),
                None => self
                    .join_known(group, request, client, answer, now_ms)
                    .map_err(|error| (error, None)),
            }
        };
        if known {
            let joined = self.in_group(&request.group_id, join);
            joined.unwrap_or(Err((ErrorCode::UNKNOWN_MEMBER_ID, None)))
        } else {
            self.in_new_group(&request.group_id, join)
        }
    }

    /// Kafka: `doUnknownJoinGroup`.
    fn join_new(
        &self,
        group: &mut Group,
        new_id: Arc<str>,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), (ErrorCode, Option<Arc<str>>)> {
        if !group.supports(&request.protocol_type, &request.protocols) {
            return Err((ErrorCode::INCONSISTENT_GROUP_PROTOCOL, None));
        }
        let Some(instance) = &request.group_instance_id else {
            let give_up_ms = now_ms.saturating_add(i64::from(request.session_timeout_ms));
            group.pending_members.insert(new_id.clone(), give_up_ms);
            return Err((ErrorCode::MEMBER_ID_REQUIRED, Some(new_id)));
        };
        if let Some(old_id) = group.static_member(instance).map(|m| m.id.clone()) {
            let replaced = self.replace_static(group, old_id, new_id, request, client, answer, now_ms);
            return replaced.map_err(|error| (error, None));
        }
        self.add_and_rebalance(group, new_id, request, client, answer, now_ms);
        Ok(())
    }

    /// Kafka: `doJoinGroup`.
    fn join_known(
        &self,
        group: &mut Group,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let id = &request.member_id;
        if group.pending_members.contains_key(id) {
            if !group.supports(&request.protocol_type, &request.protocols) {
                return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
            }
            self.add_and_rebalance(group, id.clone(), request, client, answer, now_ms);
            return Ok(());
        }
        check_member(group, id, request.group_instance_id.as_deref())?;
        if !group.supports(&request.protocol_type, &request.protocols) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        let unchanged = group.member(id).is_some_and(|m| m.matches(&request.protocols));
        let current = match group.state {
            GroupState::PreparingRebalance => false,
            // Its first answer may have been lost.
            GroupState::CompletingRebalance => unchanged,
            GroupState::Stable => unchanged && !group.is_leader(id),
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
        };
        if let Some(member) = group.member_mut(id) {
            member.update(request, client, now_ms);
        }
        if current {
            let response = join_response(group, id);
            answer.complete(Response::JoinGroup(response), self.changes());
            return Ok(());
        }
        if let Some(member) = group.member_mut(id) {
            member.joining = Some(answer.clone());
        }
        self.rebalance(group, now_ms);
        Ok(())
    }

    fn add_and_rebalance(
        &self,
        group: &mut Group,
        id: Arc<str>,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) {
        let mut member = Member::new(id, request, client, now_ms);
        member.joining = Some(answer.clone());
        group.add(member, &request.protocol_type);
        if let Some(join) = &mut group.pending_join {
            join.new_member = true;
        }
        self.rebalance(group, now_ms);
    }

    /// A static member comes back under a new id; the old id is fenced from now on. In a stable group whose choice of
    /// protocol stays the same nobody else notices, whatever its metadata says. If the new id cannot be stored, the old one stays.
    /// Kafka: `updateStaticMemberAndRebalance`.
    #[allow(clippy::too_many_arguments)] // A join is all of this; a struct for it would be used here alone.
    fn replace_static(
        &self,
        group: &mut Group,
        old_id: Arc<str>,
        new_id: Arc<str>,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
        answer: &Arc<Answer>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let was_leader = group.is_leader(&old_id);
        let Some(member) = group.member_mut(&old_id) else {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        member.answer_join(
            join_error(ErrorCode::FENCED_INSTANCE_ID, old_id.clone()),
            self.changes(),
        );
        member.answer_sync(sync_error(ErrorCode::FENCED_INSTANCE_ID), self.changes());
        let before = member.clone();
        member.id = new_id.clone();
        member.update(request, client, now_ms);
        if was_leader {
            group.leader = Some(new_id.clone());
        }
        if group.state == GroupState::Stable && group.select_protocol() == group.protocol {
            if self.store_group(group).is_err() {
                if let Some(member) = group.member_mut(&new_id) {
                    *member = before;
                }
                if was_leader {
                    group.leader = Some(old_id);
                }
                return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            }
            // The leader's return does not make it compute an assignment again: its answer is that of a follower.
            let mut response = join_response(group, &new_id);
            if was_leader {
                response.members = Vec::new();
                response.leader = old_id;
            }
            answer.complete(Response::JoinGroup(response), self.changes());
            return Ok(());
        }
        if let Some(member) = group.member_mut(&new_id) {
            member.joining = Some(answer.clone());
        }
        self.rebalance(group, now_ms);
        Ok(())
    }
}

/// Kafka: `acceptJoiningMember`.
fn accepts(group: &Group, member_id: &str, max_size: usize) -> bool {
    match group.state {
        GroupState::Empty => true,
        GroupState::PreparingRebalance => {
            group.member(member_id).is_some_and(|m| m.joining.is_some())
                || group.members.iter().filter(|m| m.joining.is_some()).count() < max_size
        }
        GroupState::CompletingRebalance | GroupState::Stable => {
            group.member(member_id).is_some() || group.members.len() < max_size
        }
    }
}
