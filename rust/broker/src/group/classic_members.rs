//! Members of the classic protocol in a consumer group (spec 8.12). Kafka: `GroupMetadataManager#classicGroupJoinToConsumerGroup`,
//! `#classicGroupSyncToConsumerGroup`, `#classicGroupHeartbeatToConsumerGroup`.

use std::sync::Arc;

use fletchlog_api::{
    ErrorCode, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use fletchlog_protocol::Value;
use fletchlog_protocol::values::consumer_group_member_metadata_value::{ClassicMemberMetadata, ClassicProtocol};
use fletchlog_protocol::values::consumer_protocol::PROTOCOL_TYPE;
use fletchlog_protocol::values::{ConsumerGroupMemberMetadataValue, ConsumerProtocolSubscription};

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_heartbeat::replace;
use super::consumer_member::{ConsumerGroupMember, MemberState, nothing_reported};
use super::consumer_records::in_order;
use super::coordinator::GroupCoordinator;
use super::member::ClientLiveness;
use super::member_step::Step;
use super::migration::{assignment_bytes, with_ids};
use super::state::Group;
use super::timers::Timer;

/// The error code and the member id of the response.
type Refusal = (ErrorCode, Arc<str>);

impl GroupCoordinator {
    /// JoinGroup to a consumer group with members. It is answered at once: there is no leader, and the member's epoch is the generation.
    pub(super) fn join_consumer_group(
        &self,
        group: &mut Group,
        request: &JoinGroupRequest,
        client: &ClientLiveness,
        now_ms: i64,
    ) -> Result<JoinGroupResponse, Refusal> {
        let group_id = Arc::clone(&group.id);
        let asked = &request.member_id;
        let refused = |code: ErrorCode| (code, Arc::default());
        let is_unknown = asked.is_empty();
        let id = match is_unknown {
            true => self.consumer_member_id(),
            false => Arc::clone(asked),
        };
        let consumer = group
            .consumer
            .as_deref_mut()
            .ok_or(refused(ErrorCode::UNKNOWN_MEMBER_ID))?;
        let has_place = consumer.member(&id).is_some()
            || request
                .group_instance_id
                .as_deref()
                .is_some_and(|i| consumer.static_member(i).is_some());
        if consumer.len() >= self.consumer_group_max_size() && !has_place {
            return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, Arc::default()));
        }
        let subscription = self.check_protocols(consumer, request).map_err(refused)?;
        if is_unknown && request.group_instance_id.is_none() && request.requires_known_member_id() {
            return Err((ErrorCode::MEMBER_ID_REQUIRED, id));
        }
        let mut change = Change::of(&group_id, consumer);
        let existing = request
            .group_instance_id
            .as_ref()
            .and_then(|i| change.group.static_member(i).cloned());
        let replaced = match existing {
            Some(old) if old.id != id && !is_unknown => return Err(refused(ErrorCode::FENCED_INSTANCE_ID)),
            Some(old) if old.id != id => {
                replace(&mut change, &old, &id);
                Some(old)
            }
            _ => None,
        };
        let table = self.replicas.topic_table();
        let owned = with_ids(&subscription.owned_partitions, &table);
        drop(table);
        let before = change.group.member(&id).map(|member| Arc::clone(&member.metadata));
        let metadata = metadata_of(before.as_deref(), request, client, subscription);
        let step = self.step(
            &mut change,
            Step {
                member_id: &id,
                metadata,
                owned: Some(&owned),
            },
        );
        let member = change.group.member(&id).ok_or(refused(ErrorCode::UNKNOWN_MEMBER_ID))?;
        let response = JoinGroupResponse {
            generation_id: member.current.epoch,
            protocol_type: Some(Arc::from(PROTOCOL_TYPE)),
            protocol_name: common_protocol(change.group, member),
            member_id: Arc::clone(&id),
            ..Default::default()
        };
        self.commit_change(change).map_err(refused)?;
        if step.resolves {
            consumer.resolve_for(&request.sender, client);
        }
        self.joined(group, &id, request, client, now_ms);
        if let Some(old) = replaced {
            self.replaced(group, &old, &id, now_ms).map_err(refused)?;
        }
        Ok(response)
    }

    /// Starts the timers of a member that has joined.
    fn joined(
        &self,
        group: &mut Group,
        id: &Arc<str>,
        request: &JoinGroupRequest,
        client: &ClientLiveness,
        now_ms: i64,
    ) {
        let Some(consumer) = group.consumer.as_deref_mut() else {
            return;
        };
        let rebalance_timeout_ms = request.rebalance_timeout_ms;
        consumer.timers.cancel(id, Timer::Join);
        consumer.timers.cancel(id, Timer::Rebalance);
        match client.session(request.session_timeout_ms, rebalance_timeout_ms) {
            Some(session) => drop(consumer.sessions.insert(Arc::clone(id), session)),
            None => {
                let at_ms = now_ms.saturating_add(i64::from(request.session_timeout_ms));
                consumer.timers.set(id, Timer::Session, at_ms);
            }
        }
        let at_ms = now_ms.saturating_add(i64::from(rebalance_timeout_ms));
        consumer.timers.set(id, Timer::Sync, at_ms);
    }

    /// A static member came back with the classic protocol: if no other uses that of consumer groups, the group becomes a classic one,
    /// which need not rebalance unless the member subscribes to other topics. Kafka:
    /// `GroupMetadataManager#validateOnlineDowngradeWithReplacedMember`.
    fn replaced(
        &self,
        group: &mut Group,
        old: &ConsumerGroupMember,
        id: &Arc<str>,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let Some(consumer) = group.consumer.as_deref_mut() else {
            return Ok(());
        };
        consumer.timers.forget(&old.id);
        consumer.sessions.remove(&old.id);
        let all_classic = consumer.classic_members() == consumer.len() && consumer.len() <= self.max_size;
        if old.classic().is_some() || !all_classic || !self.downgrades() {
            return Ok(());
        }
        let new = consumer.member(id);
        let subscribes_otherwise =
            new.is_some_and(|new| new.metadata.subscribed_topic_names != old.metadata.subscribed_topic_names);
        self.downgrade(group, &[], now_ms)?;
        if subscribes_otherwise {
            self.rebalance(group, now_ms);
        }
        Ok(())
    }

    /// Kafka: `GroupMetadataManager#throwIfClassicProtocolIsNotSupported`, `#deserializeSubscription`.
    fn check_protocols(
        &self,
        group: &ConsumerGroup,
        request: &JoinGroupRequest,
    ) -> Result<ConsumerProtocolSubscription, ErrorCode> {
        let inconsistent = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
        let is_consumer = &*request.protocol_type == PROTOCOL_TYPE;
        let mut known = request.protocols.iter();
        if !self.mixes() || !is_consumer || !known.any(|protocol| group.all_classic_know(&protocol.name)) {
            return Err(inconsistent);
        }
        let first = request.protocols.first().ok_or(inconsistent)?;
        ConsumerProtocolSubscription::decode(first.metadata.clone()).map_err(|_| inconsistent)
    }

    /// SyncGroup to a consumer group.
    pub(super) fn sync_consumer_group(
        &self,
        group: &mut Group,
        request: &SyncGroupRequest,
        now_ms: i64,
    ) -> Result<SyncGroupResponse, ErrorCode> {
        let consumer = group.consumer.as_deref_mut().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let (id, instance) = (&request.member_id, request.group_instance_id.as_deref());
        let member = classic_member(consumer, id, instance, request.generation_id)?;
        let protocol = common_protocol(consumer, member);
        let is_other = |asked: &Option<Arc<str>>, known: &str| asked.as_deref().is_some_and(|asked| asked != known);
        let is_other_name = request.protocol_name.is_some() && request.protocol_name != protocol;
        if is_other(&request.protocol_type, PROTOCOL_TYPE) || is_other_name {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        let timeouts = timeouts_of(member);
        let unrevoked = member.current.state == MemberState::UnrevokedPartitions;
        if consumer.assignment_epoch > member.current.epoch && !unrevoked {
            consumer
                .timers
                .set_if_absent(id, Timer::Join, now_ms.saturating_add(timeouts.rebalance_ms));
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        let table = self.replicas.topic_table();
        let assigned = member.current.assigned.iter();
        let assigned = assigned.map(|(topic, partitions)| (topic, partitions.keys().copied()));
        let assignment = assignment_bytes(member, assigned, &table).map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
        drop(table);
        consumer.timers.cancel(id, Timer::Sync);
        restart_session(consumer, id, &timeouts, now_ms);
        Ok(SyncGroupResponse {
            protocol_type: request.protocol_type.clone(),
            protocol_name: request.protocol_name.clone(),
            assignment,
            ..Default::default()
        })
    }

    /// Heartbeat to a consumer group: the member has to join again if the group has a newer epoch, if it has to give up partitions, or if
    /// all that it waits for is free.
    pub(super) fn beat_consumer_group(
        &self,
        group: &mut Group,
        request: &HeartbeatRequest,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let consumer = group.consumer.as_deref_mut().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let (id, instance) = (&request.member_id, request.group_instance_id.as_deref());
        let member = classic_member(consumer, id, instance, request.generation_id)?;
        let rejoins = member.current.epoch < consumer.epoch
            || match member.current.state {
                MemberState::Stable => false,
                MemberState::UnrevokedPartitions => true,
                MemberState::UnreleasedPartitions => !consumer.waits_for_others(member),
            };
        let timeouts = timeouts_of(member);
        restart_session(consumer, id, &timeouts, now_ms);
        if rejoins {
            consumer
                .timers
                .set_if_absent(id, Timer::Join, now_ms.saturating_add(timeouts.rebalance_ms));
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }
}

/// A member's time-outs (ms).
struct Timeouts {
    session_ms: i64,
    rebalance_ms: i64,
}

fn timeouts_of(member: &ConsumerGroupMember) -> Timeouts {
    Timeouts {
        session_ms: i64::from(member.classic().map_or(0, |classic| classic.session_timeout_ms)),
        rebalance_ms: i64::from(member.metadata.rebalance_timeout_ms),
    }
}

fn restart_session(group: &mut ConsumerGroup, id: &Arc<str>, timeouts: &Timeouts, now_ms: i64) {
    if !group.sessions.contains_key(id) {
        group
            .timers
            .set(id, Timer::Session, now_ms.saturating_add(timeouts.session_ms));
    }
}

/// A member of the classic protocol in this generation. Kafka: `GroupMetadataManager#validateConsumerGroupMember`,
/// `#throwIfMemberDoesNotUseClassicProtocol`, `#throwIfGenerationIdUnmatched`.
fn classic_member<'a>(
    group: &'a ConsumerGroup,
    id: &str,
    instance: Option<&str>,
    generation: i32,
) -> Result<&'a ConsumerGroupMember, ErrorCode> {
    let member = match instance {
        None => group.member(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?,
        Some(instance) => match group.static_member(instance) {
            None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(member) if &*member.id != id => return Err(ErrorCode::FENCED_INSTANCE_ID),
            Some(member) => member,
        },
    };
    if member.classic().is_none() {
        return Err(ErrorCode::UNKNOWN_MEMBER_ID);
    }
    match member.current.epoch == generation {
        true => Ok(member),
        false => Err(ErrorCode::ILLEGAL_GENERATION),
    }
}

/// The first protocol of a member that all members of the classic protocol know.
fn common_protocol(group: &ConsumerGroup, member: &ConsumerGroupMember) -> Option<Arc<str>> {
    let mut names = member.classic_protocols().iter().map(|protocol| &protocol.name);
    names.find(|name| group.all_classic_know(name)).cloned()
}

/// What the member has reported of itself, with this join.
fn metadata_of(
    before: Option<&ConsumerGroupMemberMetadataValue>,
    request: &JoinGroupRequest,
    client: &ClientLiveness,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerGroupMemberMetadataValue {
    let mut metadata = before.cloned().unwrap_or_else(nothing_reported);
    metadata.subscribed_topic_names = subscription.topics;
    in_order(&mut metadata.subscribed_topic_names);
    metadata.instance_id = request.group_instance_id.clone().or(metadata.instance_id);
    metadata.rack_id = subscription.rack_id.or(metadata.rack_id);
    if request.rebalance_timeout_ms != -1 {
        metadata.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    metadata.client_id = Arc::clone(&request.sender.client_id);
    metadata.client_host = Arc::clone(client.host());
    let protocols = request.protocols.iter().map(|protocol| ClassicProtocol {
        name: Arc::clone(&protocol.name),
        metadata: protocol.metadata.clone(),
    });
    metadata.classic_member_metadata = Some(ClassicMemberMetadata {
        session_timeout_ms: request.session_timeout_ms,
        supported_protocols: protocols.collect(),
    });
    metadata
}
