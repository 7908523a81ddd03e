//! ShareGroupHeartbeat (spec 14.1). Kafka: `GroupCoordinatorService#shareGroupHeartbeat`,
//! `GroupMetadataManager#shareGroupHeartbeat`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use fletchlog_protocol::messages::{
    JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use fletchlog_protocol::values::ShareGroupMemberMetadataValue;

use super::super::consumer_change::Change;
use super::super::consumer_heartbeat::{Refusal, unknown_member};
use super::super::consumer_records::in_order;
use super::super::coordinator::GroupCoordinator;
use super::super::join::MAX_TEXT;
use super::super::member::ClientLiveness;
use super::super::state::Group;
use super::super::timers::Timer;
use super::group::ShareGroup;
use super::member::{ShareAssignment, ShareGroupMember};
use super::step::ToInitialize;

/// Most characters of a member id. Kafka: `ShareGroupHeartbeatRequest`, of KIP-932.
const MAX_MEMBER_ID: usize = 36;

/// No member has such an epoch.
const BELOW_LEAVE: i32 = LEAVE_GROUP_MEMBER_EPOCH - 1;

/// A heartbeat that is being handled.
struct Heartbeat<'a> {
    request: &'a ShareGroupHeartbeatRequest,
    client: &'a ClientLiveness,
    /// Monotonic.
    now_ms: i64,
}

/// What a heartbeat leads to: its response, and the partitions whose state is to be made after it.
type Beaten = (ShareGroupHeartbeatResponse, Option<ToInitialize>);

impl Heartbeat<'_> {
    fn joins(&self) -> bool {
        self.request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    }
}

impl GroupCoordinator {
    /// ShareGroupHeartbeat. The states of partitions that the group reads first are made after the response is decided: the next
    /// heartbeat brings them.
    pub(crate) fn share_group_heartbeat(
        &self,
        node: NodeId,
        request: &ShareGroupHeartbeatRequest,
        client: &Arc<ClientLiveness>,
    ) -> ShareGroupHeartbeatResponse {
        let now_ms = self.replicas.clock().monotonic_ms();
        client.seen(now_ms);
        self.tick(now_ms);
        let heartbeat = Heartbeat {
            request,
            client,
            now_ms,
        };
        let handled = check_heartbeat(request).and_then(|()| {
            self.check_group(node, &request.group_id)?;
            self.share_heartbeat_of(&heartbeat)
        });
        match handled {
            Ok((response, to_initialize)) => {
                if let Some(to_initialize) = to_initialize {
                    self.initialize_share_states(&request.group_id, &to_initialize);
                }
                response
            }
            Err(refusal) => refusal.of_share(),
        }
    }

    fn share_heartbeat_of(&self, heartbeat: &Heartbeat<'_>) -> Result<Beaten, Refusal> {
        let group_id = &heartbeat.request.group_id;
        if heartbeat.joins() {
            return self.in_new_group(group_id, |group| {
                let joined = self.share_heartbeat_to(group, heartbeat);
                if joined.is_err() && !group.is_in_use() {
                    self.remove_group(group);
                }
                joined
            });
        }
        let leaves = heartbeat.request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH;
        let answered = self.in_group(group_id, |group| match leaves {
            true => self.leave_share_group(group, heartbeat),
            false => self.share_heartbeat_to(group, heartbeat),
        });
        answered.unwrap_or_else(|| {
            let kind = if leaves { "Group" } else { "Share group" };
            let message = format!("{kind} {group_id} not found.");
            Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, message))
        })
    }

    /// A heartbeat of a member that stays. Kafka: `GroupMetadataManager#getOrMaybeCreatePersistedShareGroup`.
    fn share_heartbeat_to(&self, group: &mut Group, heartbeat: &Heartbeat<'_>) -> Result<Beaten, Refusal> {
        let group_id = Arc::clone(&group.id);
        if let Some(share) = &mut group.share {
            return self.beat_share_group(&group_id, share, heartbeat);
        }
        if group.is_in_use() || !heartbeat.joins() {
            return Err(not_a_share_group(&group_id));
        }
        let mut share = Box::<ShareGroup>::default();
        let beaten = self.beat_share_group(&group_id, &mut share, heartbeat)?;
        group.is_stored = !self.replicas.is_read_only();
        group.share = Some(share);
        Ok(beaten)
    }

    fn beat_share_group(
        &self,
        group_id: &Arc<str>,
        group: &mut ShareGroup,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<Beaten, Refusal> {
        let request = heartbeat.request;
        let id = &request.member_id;
        self.check_share_size(group, id)?;
        let before = match group.member(id) {
            Some(member) => {
                check_epoch(member, heartbeat)?;
                Some(Arc::clone(&member.metadata))
            }
            None if heartbeat.joins() => None,
            None => return Err(unknown_member(id, group_id)),
        };
        let had = group.member(id).map(|member| member.current.clone());
        let metadata = metadata_of(before.as_deref(), heartbeat);
        let mut change = Change::of(group_id, group);
        let to_initialize = self.step_share_group(&mut change, id, before, metadata);
        let member = change.group.member(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let is_new = had.is_none_or(|had| had.assigned != member.current.assigned);
        let shows = heartbeat.joins() || request.subscribed_topic_names.is_some() || is_new;
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(Arc::clone(id)),
            member_epoch: member.current.epoch,
            heartbeat_interval_ms: self.group_config(group_id, "share.heartbeat.interval.ms"),
            assignment: shows.then(|| assignment_of(&member.current)),
            ..Default::default()
        };
        self.commit_change(change)?;
        if let Some(to_initialize) = &to_initialize {
            group.in_flight.extend(to_initialize.partitions());
        }
        self.restart_share_session(group_id, group, heartbeat);
        Ok((response, to_initialize))
    }

    /// Kafka: `GroupMetadataManager#scheduleShareGroupSessionTimeout`.
    fn restart_share_session(&self, group_id: &str, group: &mut ShareGroup, heartbeat: &Heartbeat<'_>) {
        let timeout_ms = self.share_session_timeout_ms(group_id);
        let id = &heartbeat.request.member_id;
        // A member of a share group may take any time between two polls.
        match heartbeat.client.session(timeout_ms, i32::MAX) {
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
    }

    /// Kafka: `GroupMetadataManager#throwIfShareGroupIsFull`.
    fn check_share_size(&self, group: &ShareGroup, id: &str) -> Result<(), Refusal> {
        let max = self.share_group_max_size();
        if group.len() < max || group.member(id).is_some() {
            return Ok(());
        }
        let message = format!("The share group has reached its maximum capacity of {max} members.");
        Err(Refusal::new(ErrorCode::GROUP_MAX_SIZE_REACHED, message))
    }

    /// A member leaves. Kafka: `GroupMetadataManager#shareGroupLeave`.
    fn leave_share_group(&self, group: &mut Group, heartbeat: &Heartbeat<'_>) -> Result<Beaten, Refusal> {
        let id = &heartbeat.request.member_id;
        let group_id = Arc::clone(&group.id);
        let share = group.share.as_deref_mut().ok_or_else(|| not_a_share_group(&group_id))?;
        if share.member(id).is_none() {
            return Err(unknown_member(id, &group_id));
        }
        self.fence_share_member(&group_id, share, id)?;
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(Arc::clone(id)),
            member_epoch: LEAVE_GROUP_MEMBER_EPOCH,
            ..Default::default()
        };
        Ok((response, None))
    }
}

/// The checks that do not need the group. Kafka: `KafkaApis#handleShareGroupHeartbeat`,
/// `GroupCoordinatorService#throwIfShareGroupHeartbeatRequestIsInvalid`.
fn check_heartbeat(request: &ShareGroupHeartbeatRequest) -> Result<(), Refusal> {
    let id = &request.member_id;
    if id.is_empty() || id.encode_utf16().count() > MAX_MEMBER_ID {
        return Err(Refusal::without_text(ErrorCode::INVALID_REQUEST));
    }
    let invalid = |message: &str| Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
    let is_blank = |text: &str| text.chars().all(|c| c <= ' ');
    if is_blank(id) {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(&request.group_id) {
        return invalid("GroupId can't be empty.");
    }
    if request.rack_id.as_deref().is_some_and(is_blank) {
        return invalid("RackId can't be empty.");
    }
    match request.member_epoch {
        JOIN_GROUP_MEMBER_EPOCH if request.subscribed_topic_names.as_ref().is_none_or(Vec::is_empty) => {
            return invalid("SubscribedTopicNames must be set in first request.");
        }
        ..=BELOW_LEAVE => return invalid("MemberEpoch is invalid."),
        _ => {}
    }
    let texts = request.rack_id.iter().chain([&request.sender.client_id]);
    let mut texts = texts.chain(request.subscribed_topic_names.iter().flatten());
    match texts.any(|text| text.len() > MAX_TEXT) {
        true => invalid("A text is longer than a record can hold."),
        false => Ok(()),
    }
}

/// Error of a share group's request for a group of another kind.
pub(super) fn not_a_share_group(group_id: &str) -> Refusal {
    Refusal::new(
        ErrorCode::GROUP_ID_NOT_FOUND,
        format!("Group {group_id} is not a share group."),
    )
}

/// A member may be one epoch behind: the response with the new epoch may have been lost. Kafka:
/// `GroupMetadataManager#throwIfShareGroupMemberEpochIsInvalid`.
fn check_epoch(member: &ShareGroupMember, heartbeat: &Heartbeat<'_>) -> Result<(), Refusal> {
    let (sent, current) = (heartbeat.request.member_epoch, &member.current);
    if heartbeat.joins() || sent == current.epoch || sent == current.previous_epoch {
        return Ok(());
    }
    let known = current.epoch;
    let begin = "The share group member has a";
    let end = "The member must abandon all its partitions and rejoin.";
    let message = match sent > known {
        true => format!(
            "{begin} greater member epoch ({sent}) than the one known by the group coordinator ({known}). {end}"
        ),
        false => format!(
            "{begin} smaller member epoch ({sent}) than the one known by the group coordinator ({known}), and it does not match the \
             previous member epoch ({}). {end}",
            current.previous_epoch
        ),
    };
    Err(Refusal::new(ErrorCode::FENCED_MEMBER_EPOCH, message))
}

/// What the member has reported of itself, with this heartbeat: what is left out stays as it was. Kafka:
/// `ShareGroupMember.Builder#maybeUpdateSubscribedTopicNames` and the like.
fn metadata_of(
    before: Option<&ShareGroupMemberMetadataValue>,
    heartbeat: &Heartbeat<'_>,
) -> ShareGroupMemberMetadataValue {
    let request = heartbeat.request;
    let mut metadata = before.cloned().unwrap_or_else(|| ShareGroupMemberMetadataValue {
        rack_id: None,
        ..Default::default()
    });
    if let Some(names) = &request.subscribed_topic_names {
        metadata.subscribed_topic_names.clone_from(names);
        in_order(&mut metadata.subscribed_topic_names);
    }
    if request.rack_id.is_some() {
        metadata.rack_id.clone_from(&request.rack_id);
    }
    metadata.client_id = Arc::clone(&request.sender.client_id);
    metadata.client_host = Arc::clone(heartbeat.client.host());
    metadata
}

fn assignment_of(current: &ShareAssignment) -> Assignment {
    let topics = current.assigned.iter().map(|(&topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
    });
    Assignment {
        topic_partitions: topics.collect(),
    }
}
