//! ConsumerGroupHeartbeat (spec 8.9, 8.10). Kafka: `GroupCoordinatorService#consumerGroupHeartbeat`,
//! `GroupMetadataManager#consumerGroupHeartbeat`.

use std::fmt::Display;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use fletchlog_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH, ShareGroupHeartbeatResponse,
};
use fletchlog_protocol::values::ConsumerGroupMemberMetadataValue;
use fletchlog_records::planted;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_member::{ConsumerGroupMember, Partitions, nothing_reported, partitions_of_request, regex_of};
use super::consumer_records::{ConsumerRecord, in_order};
use super::coordinator::GroupCoordinator;
use super::join::MAX_TEXT;
use super::member::ClientLiveness;
use super::member_step::Step;
use super::regex::compile;
use super::state::Group;
use super::timers::Timer;

/// Why a request of a member is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    message: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: ErrorCode, message: impl Display) -> Self {
        Self {
            code,
            message: Some(message.to_string()),
        }
    }

    /// Kafka says nothing of the reason.
    pub(super) fn without_text(code: ErrorCode) -> Self {
        Self { code, message: None }
    }

    /// The response to a member of a share group.
    pub(super) fn of_share(self) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            error_code: self.code,
            error_message: self.message.map(Arc::from),
            ..Default::default()
        }
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::without_text(code)
    }
}

/// A heartbeat that is being handled.
struct Heartbeat<'a> {
    request: &'a ConsumerGroupHeartbeatRequest,
    member_id: Arc<str>,
    client: &'a ClientLiveness,
    /// Monotonic.
    now_ms: i64,
}

impl Heartbeat<'_> {
    fn joins(&self) -> bool {
        self.request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    }

    /// Whether it says everything that a member can say. Kafka: `GroupMetadataManager#consumerGroupHeartbeat`, `isFullRequest`.
    fn is_full(&self) -> bool {
        let request = self.request;
        let subscribes = request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
        request.rebalance_timeout_ms != -1 && subscribes && request.topic_partitions.is_some()
    }
}

impl GroupCoordinator {
    /// ConsumerGroupHeartbeat.
    pub(crate) fn consumer_group_heartbeat(
        &self,
        node: NodeId,
        request: &ConsumerGroupHeartbeatRequest,
        client: &Arc<ClientLiveness>,
    ) -> ConsumerGroupHeartbeatResponse {
        let now_ms = self.replicas.clock().monotonic_ms();
        client.seen(now_ms);
        self.tick(now_ms);
        let handled = self.check_heartbeat(request).and_then(|()| {
            self.check_group(node, &request.group_id)?;
            let member_id = match request.member_id.is_empty() {
                // Only version 0, in which the broker names the member.
                true => self.consumer_member_id(),
                false => Arc::clone(&request.member_id),
            };
            let heartbeat = Heartbeat {
                request,
                member_id,
                client,
                now_ms,
            };
            self.heartbeat_of(&heartbeat)
        });
        handled.unwrap_or_else(|refusal| ConsumerGroupHeartbeatResponse {
            error_code: refusal.code,
            error_message: refusal.message.map(Arc::from),
            ..Default::default()
        })
    }

    /// The checks that do not need the group. Kafka: `GroupCoordinatorService#throwIfConsumerGroupHeartbeatRequestIsInvalid`.
    fn check_heartbeat(&self, request: &ConsumerGroupHeartbeatRequest) -> Result<(), Refusal> {
        if !self.serves_consumer_groups() {
            return Err(Refusal::without_text(ErrorCode::UNSUPPORTED_VERSION));
        }
        let invalid = |message: &str| Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        let is_blank = |text: &str| text.chars().all(|c| c <= ' ');
        let epoch = request.member_epoch;
        if is_blank(&request.member_id) && (request.sender.version >= 1 || epoch != JOIN_GROUP_MEMBER_EPOCH) {
            return invalid("MemberId can't be empty.");
        }
        if is_blank(&request.group_id) {
            return invalid("GroupId can't be empty.");
        }
        if request.instance_id.as_deref().is_some_and(is_blank) {
            return invalid("InstanceId can't be empty.");
        }
        if request.rack_id.as_deref().is_some_and(is_blank) {
            return invalid("RackId can't be empty.");
        }
        match epoch {
            JOIN_GROUP_MEMBER_EPOCH => {
                if request.rebalance_timeout_ms == -1 {
                    return invalid("RebalanceTimeoutMs must be provided in first request.");
                }
                if !request.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
                    return invalid("TopicPartitions must be empty when (re-)joining.");
                }
                if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
                    return invalid(
                        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                    );
                }
            }
            LEAVE_GROUP_STATIC_MEMBER_EPOCH if request.instance_id.is_none() => {
                return invalid("InstanceId can't be null.");
            }
            ..LEAVE_GROUP_STATIC_MEMBER_EPOCH => return invalid("MemberEpoch is invalid."),
            _ => {}
        }
        if let Some(assignor) = &request.server_assignor {
            let known = self.assignors();
            if !known.iter().any(|known| **known == **assignor) {
                let known = known.join(", ");
                let message = format!("ServerAssignor {assignor} is not supported. Supported assignors: {known}.");
                return Err(Refusal::new(ErrorCode::UNSUPPORTED_ASSIGNOR, message));
            }
        }
        let texts = [&request.instance_id, &request.rack_id, &request.subscribed_topic_regex];
        let texts = texts
            .into_iter()
            .flatten()
            .chain([&request.member_id, &request.sender.client_id]);
        let mut texts = texts.chain(request.subscribed_topic_names.iter().flatten());
        match texts.any(|text| text.len() > MAX_TEXT) {
            true => invalid("A text is longer than a record can hold."),
            false => Ok(()),
        }
    }

    fn heartbeat_of(&self, heartbeat: &Heartbeat<'_>) -> Result<ConsumerGroupHeartbeatResponse, Refusal> {
        let group_id = &heartbeat.request.group_id;
        if heartbeat.joins() {
            return self.in_new_group(group_id, |group| {
                let joined = self.heartbeat_to(group, heartbeat);
                if joined.is_err() && !group.is_in_use() {
                    self.remove_group(group);
                }
                joined
            });
        }
        let answered = self.in_group(group_id, |group| {
            if group.consumer.is_none() {
                let message = format!("Group {group_id} is not a consumer group.");
                return Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, message));
            }
            match heartbeat.request.member_epoch {
                LEAVE_GROUP_MEMBER_EPOCH | LEAVE_GROUP_STATIC_MEMBER_EPOCH => self.leave_by_heartbeat(group, heartbeat),
                _ => self.heartbeat_to(group, heartbeat),
            }
        });
        answered.unwrap_or_else(|| {
            let kind = if heartbeat.request.member_epoch > 0 {
                "Consumer group"
            } else {
                "Group"
            };
            let message = format!("{kind} {group_id} not found.");
            Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, message))
        })
    }

    /// A heartbeat of a member that stays. A join makes a consumer group of an empty classic one. Kafka:
    /// `GroupMetadataManager#getOrMaybeCreateConsumerGroup`.
    fn heartbeat_to(
        &self,
        group: &mut Group,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, Refusal> {
        let group_id = Arc::clone(&group.id);
        if let Some(consumer) = &mut group.consumer {
            return self.beat(&group_id, consumer, None, heartbeat);
        }
        if group.share.is_some() {
            let message = format!("Group {group_id} is not a consumer group.");
            return Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, message));
        }
        let mut consumer = Box::<ConsumerGroup>::default();
        let classic = group.is_in_use().then_some(&*group);
        let response = self.beat(&group_id, &mut consumer, classic, heartbeat)?;
        self.upgraded(group, consumer, heartbeat.now_ms);
        Ok(response)
    }

    /// Kafka: `GroupMetadataManager#consumerGroupHeartbeat`.
    fn beat(
        &self,
        group_id: &Arc<str>,
        group: &mut ConsumerGroup,
        classic: Option<&Group>,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, Refusal> {
        let request = heartbeat.request;
        let mut change = Change::of(group_id, group);
        if let Some(classic) = classic {
            self.upgrade(classic, &mut change)?;
        }
        self.check_size(change.group, heartbeat)?;
        let owned = request.topic_partitions.as_deref().map(partitions_of_request);
        let replaced = self.member_of(&mut change, heartbeat, owned.as_ref())?;
        let before = change.group.member(&heartbeat.member_id);
        let metadata = self.metadata_of(before.map(|member| &*member.metadata), heartbeat);
        if let Some(regex) = regex_of(&metadata).filter(|regex| change.group.users_of(regex) == 0) {
            compile(regex).map_err(|why| Refusal::new(ErrorCode::INVALID_REGULAR_EXPRESSION, why))?;
        }
        let step = self.step(
            &mut change,
            Step {
                member_id: &heartbeat.member_id,
                metadata,
                owned: owned.as_ref(),
            },
        );
        let member = change
            .group
            .member(&heartbeat.member_id)
            .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let interval_ms = self.group_config(&change.group_id, "consumer.heartbeat.interval.ms");
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(Arc::clone(&member.id)),
            member_epoch: member.current.epoch,
            heartbeat_interval_ms: interval_ms,
            assignment: (heartbeat.joins() || heartbeat.is_full() || step.assigned_changed)
                .then(|| assignment_of(member)),
            ..Default::default()
        };
        self.commit_change(change)?;
        if let Some(old) = replaced {
            group.timers.forget(&old);
            group.sessions.remove(&old);
        }
        if step.resolves {
            group.resolve_for(&request.sender, heartbeat.client);
        }
        self.beaten(group_id, group, heartbeat, step.current_changed);
        Ok(response)
    }

    /// Restarts the member's timers. Kafka: `GroupMetadataManager#scheduleConsumerGroupSessionTimeout`,
    /// `#scheduleConsumerGroupRebalanceTimeout`.
    fn beaten(&self, group_id: &str, group: &mut ConsumerGroup, heartbeat: &Heartbeat<'_>, current_changed: bool) {
        let timeout_ms = self.group_config(group_id, "consumer.session.timeout.ms");
        let id = &heartbeat.member_id;
        let rebalance_timeout_ms = group
            .member(id)
            .map_or(0, |member| member.metadata.rebalance_timeout_ms);
        match heartbeat.client.session(timeout_ms, rebalance_timeout_ms) {
            Some(session) => {
                group.timers.cancel(id, Timer::Session);
                group.sessions.insert(Arc::clone(id), session);
            }
            None => {
                group.sessions.remove(id);
                let at_ms = heartbeat.now_ms.saturating_add(i64::from(timeout_ms));
                group.timers.set(id, Timer::Session, at_ms);
            }
        }
        group.timers.cancel(id, Timer::Join);
        group.timers.cancel(id, Timer::Sync);
        if current_changed {
            group.restart_rebalance_timer(id, heartbeat.now_ms);
        }
    }

    /// Kafka: `GroupMetadataManager#throwIfConsumerGroupIsFull`; a static member takes the place of the former one.
    fn check_size(&self, group: &ConsumerGroup, heartbeat: &Heartbeat<'_>) -> Result<(), Refusal> {
        let max = self.consumer_group_max_size();
        let instance = heartbeat.request.instance_id.as_deref();
        let has_place = || instance.is_some_and(|instance| group.static_member(instance).is_some());
        if group.len() < max || group.member(&heartbeat.member_id).is_some() || has_place() {
            return Ok(());
        }
        let message = format!("The consumer group has reached its maximum capacity of {max} members.");
        Err(Refusal::new(ErrorCode::GROUP_MAX_SIZE_REACHED, message))
    }

    /// Checks that the member may send the heartbeat. A static member that comes back takes over what the former one had, whose id is
    /// returned. Kafka: `GroupMetadataManager#getOrMaybeSubscribeDynamicConsumerMember`,
    /// `#getOrMaybeSubscribeStaticConsumerMember`.
    fn member_of(
        &self,
        change: &mut Change<'_>,
        heartbeat: &Heartbeat<'_>,
        owned: Option<&Partitions>,
    ) -> Result<Option<Arc<str>>, Refusal> {
        let id = &heartbeat.member_id;
        let Some(instance) = &heartbeat.request.instance_id else {
            return match change.group.member(id) {
                Some(member) => check_epoch(member, heartbeat, owned).map(|()| None),
                None if heartbeat.joins() => Ok(None),
                None => Err(unknown_member(id, &change.group_id)),
            };
        };
        let existing = change.group.static_member(instance);
        match existing {
            // A member of its own, or a dynamic one that becomes static.
            None if heartbeat.joins() => Ok(None),
            None => Err(unknown_instance(instance)),
            Some(member) if heartbeat.joins() => {
                if member.classic().is_none()
                    && !member.is_away()
                    && !planted!("static-member-taken-over-while-it-lives")
                {
                    let message = format!(
                        "Static member {id} with instance id {instance} cannot join the group because the instance id is owned by \
                         {} member.",
                        member.id
                    );
                    return Err(Refusal::new(ErrorCode::UNRELEASED_INSTANCE_ID, message));
                }
                let old = member.clone();
                replace(change, &old, id);
                Ok(Some(old.id))
            }
            Some(member) if member.id != *id => match planted!("former-static-member-goes-on") {
                true => Ok(None),
                false => Err(fenced_instance(member, id, instance)),
            },
            Some(member) => check_epoch(member, heartbeat, owned).map(|()| None),
        }
    }

    /// What the member has reported of itself, with this heartbeat: what is left out stays as it was. Kafka:
    /// `ConsumerGroupMember.Builder#maybeUpdateSubscribedTopicNames` and the like.
    fn metadata_of(
        &self,
        before: Option<&ConsumerGroupMemberMetadataValue>,
        heartbeat: &Heartbeat<'_>,
    ) -> ConsumerGroupMemberMetadataValue {
        let request = heartbeat.request;
        let mut metadata = before.cloned().unwrap_or_else(nothing_reported);
        if let Some(names) = &request.subscribed_topic_names {
            metadata.subscribed_topic_names.clone_from(names);
            in_order(&mut metadata.subscribed_topic_names);
        }
        let given = [
            (&request.instance_id, &mut metadata.instance_id),
            (&request.rack_id, &mut metadata.rack_id),
            (&request.subscribed_topic_regex, &mut metadata.subscribed_topic_regex),
            (&request.server_assignor, &mut metadata.server_assignor),
        ];
        for (given, kept) in given {
            if given.is_some() {
                kept.clone_from(given);
            }
        }
        if request.rebalance_timeout_ms != -1 {
            metadata.rebalance_timeout_ms = request.rebalance_timeout_ms;
        }
        metadata.client_id = Arc::clone(&request.sender.client_id);
        metadata.client_host = Arc::clone(heartbeat.client.host());
        metadata.classic_member_metadata = None;
        metadata
    }

    /// A member leaves: for good, or for some time. Kafka: `GroupMetadataManager#consumerGroupLeave`.
    fn leave_by_heartbeat(
        &self,
        group: &mut Group,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, Refusal> {
        let (id, request) = (&heartbeat.member_id, heartbeat.request);
        let consumer = group.consumer.as_deref().ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        let member = match &request.instance_id {
            None => consumer.member(id).ok_or_else(|| unknown_member(id, &group.id))?,
            Some(instance) => match consumer.static_member(instance) {
                None => return Err(unknown_instance(instance)),
                Some(member) if member.id != *id => return Err(fenced_instance(member, id, instance)),
                Some(member) => member,
            },
        };
        let away = member.current.away();
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH && !planted!("static-member-that-is-away-is-put-out")
        {
            self.leave_for_some_time(group, id, away)?;
        } else {
            self.fence_members(group, &[Arc::clone(id)], heartbeat.now_ms)?;
        }
        Ok(ConsumerGroupHeartbeatResponse {
            member_id: Some(Arc::clone(id)),
            member_epoch: request.member_epoch,
            ..Default::default()
        })
    }
}

/// The new id of a static member takes over from the old one. Kafka: `GroupMetadataManager#replaceMember`.
pub(super) fn replace(change: &mut Change<'_>, old: &ConsumerGroupMember, new_id: &Arc<str>) {
    let target = change.group.target(&old.id).cloned();
    let target = target.filter(|_| !planted!("static-member-comes-back-without-its-partitions"));
    change.apply(ConsumerRecord::Current(Arc::clone(&old.id), None));
    change.apply(ConsumerRecord::Target(Arc::clone(&old.id), None));
    change.apply(ConsumerRecord::Member(Arc::clone(&old.id), None));
    let mut current = old.current.clone();
    (current.epoch, current.previous_epoch) = (0, 0);
    change.apply(ConsumerRecord::Member(
        Arc::clone(new_id),
        Some(Arc::clone(&old.metadata)),
    ));
    change.apply(ConsumerRecord::Target(
        Arc::clone(new_id),
        Some(target.unwrap_or_default()),
    ));
    change.apply(ConsumerRecord::Current(Arc::clone(new_id), Some(current)));
}

/// A member may be one epoch behind, if it has nothing but what is assigned to it: the response with the new epoch may have been
/// lost. Kafka: `GroupMetadataManager#throwIfConsumerGroupMemberEpochIsInvalid`.
fn check_epoch(
    member: &ConsumerGroupMember,
    heartbeat: &Heartbeat<'_>,
    owned: Option<&Partitions>,
) -> Result<(), Refusal> {
    let (sent, current) = (heartbeat.request.member_epoch, &member.current);
    let has = |(id, partitions): (&_, &std::collections::BTreeSet<i32>)| {
        let assigned = current.assigned.get(id);
        assigned.is_some_and(|assigned| partitions.iter().all(|p| assigned.contains_key(p)))
    };
    let is_behind = || sent == current.previous_epoch && owned.is_some_and(|owned| owned.iter().all(has));
    if heartbeat.joins() || sent == current.epoch || (sent < current.epoch && is_behind()) {
        return Ok(());
    }
    let relation = if sent > current.epoch { "greater" } else { "smaller" };
    let message = format!(
        "The consumer group member has a {relation} member epoch ({sent}) than the one known by the group coordinator ({}). The member \
         must abandon all its partitions and rejoin.",
        current.epoch
    );
    Err(Refusal::new(ErrorCode::FENCED_MEMBER_EPOCH, message))
}

pub(super) fn unknown_member(id: &str, group_id: &str) -> Refusal {
    let message = format!("Member {id} is not a member of group {group_id}.");
    Refusal::new(ErrorCode::UNKNOWN_MEMBER_ID, message)
}

fn unknown_instance(instance: &str) -> Refusal {
    Refusal::new(
        ErrorCode::UNKNOWN_MEMBER_ID,
        format!("Instance id {instance} is unknown."),
    )
}

fn fenced_instance(member: &ConsumerGroupMember, id: &str, instance: &str) -> Refusal {
    let message = format!(
        "Static member {id} with instance id {instance} was fenced by member {}.",
        member.id
    );
    Refusal::new(ErrorCode::FENCED_INSTANCE_ID, message)
}

fn assignment_of(member: &ConsumerGroupMember) -> Assignment {
    let topics = member.current.assigned.iter();
    let topics = topics.map(|(&topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.keys().copied().collect(),
    });
    Assignment {
        topic_partitions: topics.collect(),
    }
}
