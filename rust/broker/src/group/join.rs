//! JoinGroup. Kafka: `GroupMetadataManager#classicGroupJoin`, `#classicGroupJoinNewMember`, `#classicGroupJoinExistingMember`;
//! before 4.0 `GroupCoordinator#handleJoinGroup`.

use std::cell::Cell;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, JoinGroupRequest, JoinGroupResponse, NodeId, Response};

use super::coordinator::{GroupCoordinator, check_member};
use super::member::{ClientLiveness, Member};
use super::rebalance::{join_error, join_response, sync_error};
use super::state::{Group, GroupState};
use crate::sync::Answer;

/// Longest text that a record of `__consumer_offsets` can hold.
pub(super) const MAX_TEXT: usize = i16::MAX as usize;

/// A join that is being handled.
struct Join<'a> {
    request: &'a JoinGroupRequest,
    client: &'a ClientLiveness,
    answer: Arc<Answer>,
    now_ms: i64,
    /// Its response waits for what it has written.
    waits: Cell<bool>,
}

/// The error code and the member id of the response.
type Refusal = (ErrorCode, Arc<str>);

impl GroupCoordinator {
    /// JoinGroup. Returns where the response will arrive, and whether it has to wait for what was written: that of a static member that returns
    /// to a stable group, or of a member of a consumer group. Kafka: `GroupCoordinator#handleJoinGroup`.
    pub(crate) fn join_group(
        &self,
        node: NodeId,
        request: &JoinGroupRequest,
        client: &Arc<ClientLiveness>,
    ) -> (Arc<Answer>, bool) {
        let join = Join {
            request,
            client,
            answer: Arc::default(),
            now_ms: self.replicas.clock().monotonic_ms(),
            waits: Cell::new(false),
        };
        client.seen(join.now_ms);
        self.tick(join.now_ms);
        if let Some(reason) = &request.reason {
            log::debug!(
                "member `{}` joins group {}: {reason}",
                request.member_id,
                request.group_id
            );
        }
        let checked = self.check_join(node, request);
        let joined = checked
            .map_err(|error| (error, request.member_id.clone()))
            .and_then(|()| self.join(&join));
        if let Err((error, member_id)) = joined {
            self.answer_join(&join, join_error(error, member_id));
        }
        (join.answer, join.waits.get())
    }

    /// The checks that do not need the group.
    fn check_join(&self, node: NodeId, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
        self.check_group(node, &request.group_id)?;
        let too_long = |text: &Arc<str>| text.len() > MAX_TEXT / 2;
        let protocols = request.protocols.iter().map(|protocol| &protocol.name);
        let mut texts = [&request.sender.client_id, &request.protocol_type].into_iter();
        if texts.any(too_long) || request.group_instance_id.as_ref().is_some_and(too_long) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if protocols.into_iter().any(too_long) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if !(self.min_session_timeout_ms..=self.max_session_timeout_ms).contains(&request.session_timeout_ms) {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        Ok(())
    }

    fn join(&self, join: &Join<'_>) -> Result<(), Refusal> {
        let member_id = &join.request.member_id;
        let enter = |group: &mut Group| {
            if group.share.is_some() {
                return Err((ErrorCode::INCONSISTENT_GROUP_PROTOCOL, Arc::from("")));
            }
            if group.consumer.is_some() {
                let joined = self.join_consumer_group(group, join.request, join.client, join.now_ms)?;
                join.waits.set(true);
                self.answer_join(join, joined);
                return Ok(());
            }
            if !accepts(group, member_id, self.max_size) {
                // As in Kafka, nothing checks here whether all others have joined: the rebalance ends with its time-out.
                group.remove(member_id);
                return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, Arc::from("")));
            }
            if member_id.is_empty() {
                return self.join_new(group, join);
            }
            let joined = self.join_existing(group, join);
            joined.map_err(|error| (error, member_id.clone()))
        };
        if member_id.is_empty() {
            return self.in_new_group(&join.request.group_id, |group| {
                if group.consumer.as_ref().is_some_and(|consumer| consumer.is_empty()) {
                    let ended = self.end_empty_consumer_group(group);
                    ended.map_err(|code| (code, Arc::from("")))?;
                }
                if group.consumer.is_none() && group.share.is_none() {
                    self.store_new(group)?;
                }
                enter(group)
            });
        }
        let known = |group: &mut Group| match &group.consumer {
            Some(consumer) if consumer.is_empty() => Err((ErrorCode::UNKNOWN_MEMBER_ID, member_id.clone())),
            _ => enter(group),
        };
        let joined = self.in_group(&join.request.group_id, known);
        joined.unwrap_or_else(|| Err((ErrorCode::UNKNOWN_MEMBER_ID, member_id.clone())))
    }

    /// Writes the record of a group that a join has created, before it has members. A join that gets MEMBER_ID_REQUIRED creates the
    /// group too. Kafka: `GroupMetadataManager#classicGroupJoinToClassicGroup`, `isNewGroup`.
    fn store_new(&self, group: &mut Group) -> Result<(), Refusal> {
        if group.is_stored || self.store_group(group).is_ok() {
            return Ok(());
        }
        if !group.is_in_use() {
            self.remove_group(group);
        }
        Err((ErrorCode::COORDINATOR_NOT_AVAILABLE, Arc::from("")))
    }

    /// Kafka: `classicGroupJoinNewMember`.
    fn join_new(&self, group: &mut Group, join: &Join<'_>) -> Result<(), Refusal> {
        let request = join.request;
        if !group.supports(&request.protocol_type, &request.protocols) {
            return Err((ErrorCode::INCONSISTENT_GROUP_PROTOCOL, Arc::from("")));
        }
        let prefix = request.group_instance_id.as_ref().unwrap_or(&request.sender.client_id);
        let new_id = self.member_id(prefix);
        let instance = request.group_instance_id.as_ref();
        if instance.is_none() && request.requires_known_member_id() {
            let give_up_ms = join.now_ms.saturating_add(i64::from(request.session_timeout_ms));
            group.pending_members.insert(new_id.clone(), give_up_ms);
            return Err((ErrorCode::MEMBER_ID_REQUIRED, new_id));
        }
        let old = instance.and_then(|instance| group.static_member(instance));
        match old.map(|m| m.id.clone()) {
            Some(old_id) => self
                .replace_static(group, old_id, new_id, join)
                .map_err(|error| (error, Arc::from(""))),
            None => {
                self.add_and_rebalance(group, new_id, join);
                Ok(())
            }
        }
    }

    /// Kafka: `classicGroupJoinExistingMember`.
    fn join_existing(&self, group: &mut Group, join: &Join<'_>) -> Result<(), ErrorCode> {
        let (request, id) = (join.request, &join.request.member_id);
        if !group.supports(&request.protocol_type, &request.protocols) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if group.pending_members.contains_key(id) {
            self.add_and_rebalance(group, id.clone(), join);
            return Ok(());
        }
        check_member(group, id, request.group_instance_id.as_deref())?;
        let unchanged = group.member(id).is_some_and(|m| m.matches(&request.protocols));
        let current = match group.state {
            GroupState::PreparingRebalance => false,
            // The response to its first join may have been lost.
            GroupState::CompletingRebalance => unchanged,
            GroupState::Stable => unchanged && !group.is_leader(id),
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
        };
        if let Some(member) = group.member_mut(id) {
            member.update(request, join.client, join.now_ms);
        }
        if current {
            self.answer_join(join, join_response(group, id));
            return Ok(());
        }
        if let Some(member) = group.member_mut(id) {
            member.joining = Some(join.answer.clone());
        }
        self.rebalance(group, join.now_ms);
        Ok(())
    }

    fn add_and_rebalance(&self, group: &mut Group, id: Arc<str>, join: &Join<'_>) {
        let mut member = Member::new(id, join.request, join.client, join.now_ms);
        member.joining = Some(join.answer.clone());
        group.add(member, &join.request.protocol_type);
        if let Some(pending) = &mut group.pending_join {
            pending.new_member = true;
        }
        self.rebalance(group, join.now_ms);
    }

    /// Gives a static member that rejoins a new id; the old id is fenced from now on. In a stable group whose protocol stays the
    /// same, the other members do not notice, even if the metadata has changed. If the new id cannot be stored, the old one stays.
    /// Kafka: `updateStaticMemberThenRebalanceOrCompleteJoin`.
    fn replace_static(
        &self,
        group: &mut Group,
        old_id: Arc<str>,
        new_id: Arc<str>,
        join: &Join<'_>,
    ) -> Result<(), ErrorCode> {
        let was_leader = group.is_leader(&old_id);
        let before = self.take_over(group, &old_id, &new_id, join)?;
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
            join.waits.set(true);
            let response = returned(group, &new_id, was_leader.then_some(old_id), join.request);
            self.answer_join(join, response);
            return Ok(());
        }
        if let Some(member) = group.member_mut(&new_id) {
            member.joining = Some(join.answer.clone());
        }
        self.rebalance(group, join.now_ms);
        Ok(())
    }

    /// Gives the member its new id; returns the member as it was before. Kafka: `ClassicGroup#replaceStaticMember`.
    fn take_over(
        &self,
        group: &mut Group,
        old_id: &Arc<str>,
        new_id: &Arc<str>,
        join: &Join<'_>,
    ) -> Result<Member, ErrorCode> {
        let member = group.member_mut(old_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        member.answer_join(
            join_error(ErrorCode::FENCED_INSTANCE_ID, old_id.clone()),
            self.changes(),
        );
        member.answer_sync(sync_error(ErrorCode::FENCED_INSTANCE_ID), self.changes());
        let before = member.clone();
        member.id = new_id.clone();
        member.is_new = false;
        member.update(join.request, join.client, join.now_ms);
        member.reschedule_heartbeat(join.now_ms);
        if group.is_leader(old_id) {
            group.leader = Some(new_id.clone());
        }
        group.has_synced(old_id);
        Ok(before)
    }

    fn answer_join(&self, join: &Join<'_>, response: JoinGroupResponse) {
        join.answer.complete(Response::JoinGroup(response), self.changes());
    }
}

/// The response to a static member that rejoins a stable group. A leader must not compute an assignment again: it gets the response
/// of a follower, unless it knows `skip_assignment`.
fn returned(group: &Group, id: &Arc<str>, led_as: Option<Arc<str>>, request: &JoinGroupRequest) -> JoinGroupResponse {
    let mut response = join_response(group, id);
    if let Some(old_id) = led_as {
        response.skip_assignment = request.supports_skipping_assignment();
        if !response.skip_assignment {
            response.members = Vec::new();
            response.leader = old_id;
        }
    }
    response
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
