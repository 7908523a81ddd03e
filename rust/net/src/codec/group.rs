//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::{ErrorCode, OffsetAndMetadata, Response};
use fletchlog_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest,
    SyncGroupResponse, join_group_request, leave_group_request, offset_commit_request, offset_fetch_request,
    sync_group_request,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};

use super::{Throttle, by_topic, flat, tp};

/// First version of LeaveGroup with many members.
const MANY_MEMBERS: i16 = 3;
/// First version of OffsetFetch with many groups.
const MANY_GROUPS: i16 = 8;
/// First version of OffsetFetch that can ask for stable offsets. Below, Java goes on without (`OffsetFetchRequest.Builder`).
const REQUIRE_STABLE: i16 = 7;

type Decoded = Result<(Response, Throttle), WireError>;

pub(super) fn join(request: api::JoinGroupRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let protocol = |(name, metadata)| join_group_request::JoinGroupRequestProtocol { name, metadata };
    JoinGroupRequest {
        group_id: request.group_id,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocols: request.protocols.into_iter().map(protocol).collect(),
        reason: request.reason,
    }
    .encode(w, version)
}

pub(super) fn joined(version: i16, r: &mut Reader) -> Decoded {
    let response = JoinGroupResponse::decode(r, version)?;
    let members = response.members.into_iter().map(|m| api::JoinGroupMember {
        member_id: m.member_id,
        group_instance_id: m.group_instance_id,
        metadata: m.metadata,
    });
    let value = api::JoinGroupResponse {
        error: response.error_code,
        generation_id: response.generation_id,
        protocol_type: response.protocol_type,
        protocol_name: response.protocol_name.unwrap_or_default(),
        leader: response.leader,
        skip_assignment: response.skip_assignment,
        member_id: response.member_id,
        members: members.collect(),
    };
    Ok((Response::JoinGroup(value), response.throttle_time_ms))
}

pub(super) fn sync(request: api::SyncGroupRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let assignment = |(member_id, assignment)| sync_group_request::SyncGroupRequestAssignment { member_id, assignment };
    SyncGroupRequest {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: request.assignments.into_iter().map(assignment).collect(),
    }
    .encode(w, version)
}

pub(super) fn synced(version: i16, r: &mut Reader) -> Decoded {
    let response = SyncGroupResponse::decode(r, version)?;
    let value = api::SyncGroupResponse {
        error: response.error_code,
        protocol_type: response.protocol_type,
        protocol_name: response.protocol_name,
        assignment: response.assignment,
    };
    Ok((Response::SyncGroup(value), response.throttle_time_ms))
}

pub(super) fn heartbeat(request: api::HeartbeatRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    HeartbeatRequest {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
    }
    .encode(w, version)
}

pub(super) fn heartbeat_answer(version: i16, r: &mut Reader) -> Decoded {
    let response = HeartbeatResponse::decode(r, version)?;
    Ok((Response::Heartbeat(response.error_code), response.throttle_time_ms))
}

pub(super) fn leave(request: api::LeaveGroupRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let mut members = request.members;
    let mut message = LeaveGroupRequest {
        group_id: request.group_id,
        ..Default::default()
    };
    // Several members in an old version are refused by the encoder, which has no place for what is left.
    if version < MANY_MEMBERS && members.len() == 1 {
        message.member_id = members.swap_remove(0).member_id;
    }
    message.members = members
        .into_iter()
        .map(|m| leave_group_request::MemberIdentity {
            member_id: m.member_id,
            group_instance_id: m.group_instance_id,
            reason: m.reason,
        })
        .collect();
    message.encode(w, version)
}

pub(super) fn left(version: i16, r: &mut Reader) -> Decoded {
    let response = LeaveGroupResponse::decode(r, version)?;
    let member = |m: fletchlog_protocol::messages::leave_group_response::MemberResponse| {
        let identity = api::LeavingMember {
            member_id: m.member_id,
            group_instance_id: m.group_instance_id,
            reason: None,
        };
        (identity, m.error_code)
    };
    let value = api::LeaveGroupResponse {
        error: response.error_code,
        members: response.members.into_iter().map(member).collect(),
    };
    Ok((Response::LeaveGroup(value), response.throttle_time_ms))
}

pub(super) fn offset_commit(request: api::OffsetCommitRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let partition =
        |(partition_index, committed): (i32, OffsetAndMetadata)| offset_commit_request::OffsetCommitRequestPartition {
            partition_index,
            committed_offset: committed.offset,
            committed_leader_epoch: committed.leader_epoch,
            committed_metadata: Some(committed.metadata),
        };
    let topics = by_topic(request.offsets).into_iter();
    let topics = topics.map(|(name, partitions)| offset_commit_request::OffsetCommitRequestTopic {
        name,
        partitions: partitions.into_iter().map(partition).collect(),
        ..Default::default()
    });
    OffsetCommitRequest {
        group_id: request.group_id,
        generation_id_or_member_epoch: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        retention_time_ms: request.retention_ms.unwrap_or(-1),
        topics: topics.collect(),
    }
    .encode(w, version)
}

pub(super) fn offsets_committed(version: i16, r: &mut Reader) -> Decoded {
    let response = OffsetCommitResponse::decode(r, version)?;
    let topics = response.topics.into_iter().map(|t| (t.name, t.partitions));
    let partitions = flat(topics, |topic, p| (tp(topic, p.partition_index), p.error_code));
    let value = api::OffsetCommitResponse {
        partitions,
        error_message: None,
    };
    Ok((Response::OffsetCommit(value), response.throttle_time_ms))
}

pub(super) fn offset_fetch(request: api::OffsetFetchRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let topics = request.partitions.map(|partitions| {
        let numbers = |of: Vec<(i32, ())>| of.into_iter().map(|(partition, ())| partition).collect::<Vec<_>>();
        let topics = by_topic(partitions.into_iter().map(|tp| (tp, ()))).into_iter();
        topics
            .map(|(name, partitions)| (name, numbers(partitions)))
            .collect::<Vec<_>>()
    });
    let mut message = OffsetFetchRequest {
        require_stable: request.require_stable && version >= REQUIRE_STABLE,
        ..Default::default()
    };
    if version >= MANY_GROUPS {
        let topic = |(name, partition_indexes)| offset_fetch_request::OffsetFetchRequestTopics {
            name,
            partition_indexes,
            ..Default::default()
        };
        message.groups = vec![offset_fetch_request::OffsetFetchRequestGroup {
            group_id: request.group_id,
            topics: topics.map(|topics| topics.into_iter().map(topic).collect()),
            ..Default::default()
        }];
    } else {
        let topic = |(name, partition_indexes)| offset_fetch_request::OffsetFetchRequestTopic {
            name,
            partition_indexes,
        };
        message.group_id = request.group_id;
        message.topics = topics.map(|topics| topics.into_iter().map(topic).collect());
    }
    message.encode(w, version)
}

pub(super) fn offsets_fetched(version: i16, r: &mut Reader) -> Decoded {
    let response = OffsetFetchResponse::decode(r, version)?;
    let (code, partitions) = if version >= MANY_GROUPS {
        let group = response.groups.into_iter().next();
        let Some(group) = group else {
            return Ok(offsets(
                ErrorCode::UNKNOWN_SERVER_ERROR,
                Vec::new(),
                response.throttle_time_ms,
            ));
        };
        let topics = group.topics.into_iter().map(|t| (t.name, t.partitions));
        let partitions = flat(topics, |topic, p| {
            let found = committed(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code);
            (tp(topic, p.partition_index), found)
        });
        (group.error_code, partitions)
    } else {
        let topics = response.topics.into_iter().map(|t| (t.name, t.partitions));
        let partitions = flat(topics, |topic, p| {
            let found = committed(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code);
            (tp(topic, p.partition_index), found)
        });
        (response.error_code, partitions)
    };
    Ok(offsets(code, partitions, response.throttle_time_ms))
}

type Committed = Result<Option<OffsetAndMetadata>, ErrorCode>;

/// An offset below 0 means that nothing is committed. Kafka: `OffsetFetchResponse#INVALID_OFFSET`.
fn committed(offset: i64, leader_epoch: i32, metadata: Option<Arc<str>>, code: ErrorCode) -> Committed {
    match code {
        ErrorCode::NONE => Ok((offset >= 0).then(|| OffsetAndMetadata {
            offset,
            leader_epoch,
            metadata: metadata.unwrap_or_default(),
        })),
        refused => Err(refused),
    }
}

fn offsets(
    error: ErrorCode,
    partitions: Vec<(fletchlog_records::TopicPartition, Committed)>,
    throttle: Throttle,
) -> (Response, Throttle) {
    (
        Response::OffsetFetch(api::OffsetFetchResponse { error, partitions }),
        throttle,
    )
}
