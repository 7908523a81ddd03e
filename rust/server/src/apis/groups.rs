//! Members of classic groups. Kafka: `KafkaApis#handleJoinGroupRequest`, `#handleSyncGroupRequest`, `#handleHeartbeatRequest`,
//! `#handleLeaveGroupRequest`.

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse, join_group_response, leave_group_response,
};
use fletchlog_records::ErrorCode;

use super::{Call, Handled, Unreadable, response};

pub(super) fn join_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: JoinGroupRequest = call.message()?;
    let version = call.version();
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(&JoinGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            generation_id: -1,
            protocol_name: (version < 7).then(Default::default),
            ..Default::default()
        });
    }
    let protocols = request.protocols.into_iter().map(|p| (p.name, p.metadata));
    let request = api::JoinGroupRequest {
        group_id: request.group_id,
        session_timeout_ms: request.session_timeout_ms,
        // Kafka: `JoinGroupRequest#maybeOverrideRebalanceTimeout`.
        rebalance_timeout_ms: if version == 0 {
            request.session_timeout_ms
        } else {
            request.rebalance_timeout_ms
        },
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        client_id: call.header.client_id.as_deref().unwrap_or_default().into(),
        protocol_type: request.protocol_type,
        protocols: protocols.collect(),
        requires_known_member_id: version >= 4,
        supports_skipping_assignment: version >= 9,
        reason: request.reason,
    };
    call.ask(api::Request::JoinGroup(request), move |answer| {
        Ok(joined(response!(JoinGroup, answer)?, version))
    })
}

fn joined(answer: api::JoinGroupResponse, version: i16) -> JoinGroupResponse {
    // Before version 7 the name cannot be null.
    let is_named = answer.error == ErrorCode::NONE || version < 7;
    let member = |m: api::JoinGroupMember| join_group_response::JoinGroupResponseMember {
        member_id: m.member_id,
        group_instance_id: m.group_instance_id,
        metadata: m.metadata,
    };
    JoinGroupResponse {
        error_code: answer.error,
        generation_id: answer.generation_id,
        protocol_type: answer.protocol_type,
        protocol_name: is_named.then_some(answer.protocol_name),
        leader: answer.leader,
        skip_assignment: answer.skip_assignment,
        member_id: answer.member_id,
        members: answer.members.into_iter().map(member).collect(),
        ..Default::default()
    }
}

pub(super) fn sync_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: SyncGroupRequest = call.message()?;
    // From version 5 on a member names both. Kafka: `SyncGroupRequest#areMandatoryProtocolTypeAndNamePresent`.
    if call.version() >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return call.answer(&SyncGroupResponse {
            error_code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
            ..Default::default()
        });
    }
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(&SyncGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let assignments = request.assignments.into_iter().map(|a| (a.member_id, a.assignment));
    let request = api::SyncGroupRequest {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: assignments.collect(),
    };
    call.ask(api::Request::SyncGroup(request), |answer| {
        let answer = response!(SyncGroup, answer)?;
        Ok(SyncGroupResponse {
            error_code: answer.error,
            protocol_type: answer.protocol_type,
            protocol_name: answer.protocol_name,
            assignment: answer.assignment,
            ..Default::default()
        })
    })
}

pub(super) fn heartbeat(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: HeartbeatRequest = call.message()?;
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(&HeartbeatResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let request = api::HeartbeatRequest {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
    };
    let error = response!(Heartbeat, call.ask_now(api::Request::Heartbeat(request))?)?;
    call.answer(&HeartbeatResponse {
        error_code: error,
        ..Default::default()
    })
}

pub(super) fn leave_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: LeaveGroupRequest = call.message()?;
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(&LeaveGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let leaving = |member_id, group_instance_id, reason| api::LeavingMember {
        member_id,
        group_instance_id,
        reason,
    };
    let is_batched = call.version() >= 3;
    let members = if is_batched {
        let members = request.members.into_iter();
        members
            .map(|m| leaving(m.member_id, m.group_instance_id, m.reason))
            .collect()
    } else {
        vec![leaving(request.member_id, None, None)]
    };
    let request = api::LeaveGroupRequest {
        group_id: request.group_id,
        members,
    };
    let answer = response!(LeaveGroup, call.ask_now(api::Request::LeaveGroup(request))?)?;
    if !is_batched {
        let of_member = answer.members.first().map(|(_, code)| *code);
        let error = of_member
            .filter(|_| answer.error == ErrorCode::NONE)
            .unwrap_or(answer.error);
        return call.answer(&LeaveGroupResponse {
            error_code: error,
            ..Default::default()
        });
    }
    let member = |(member, code): (api::LeavingMember, ErrorCode)| leave_group_response::MemberResponse {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        error_code: code,
    };
    call.answer(&LeaveGroupResponse {
        error_code: answer.error,
        members: answer.members.into_iter().map(member).collect(),
        ..Default::default()
    })
}
