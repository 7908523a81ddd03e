//! Members of classic groups. Kafka: `KafkaApis#handleJoinGroupRequest`, `#handleSyncGroupRequest`, `#handleHeartbeatRequest`,
//! `#handleLeaveGroupRequest`.

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use fletchlog_records::ErrorCode;

use super::{Call, Handled, Unreadable, response};

pub(super) fn join_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: JoinGroupRequest = call.message()?;
    let version = call.version();
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(JoinGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            generation_id: -1,
            protocol_name: (version < 7).then(Default::default),
            ..Default::default()
        });
    }
    if version == 0 {
        // Kafka: `JoinGroupRequest#maybeOverrideRebalanceTimeout`.
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    request.sender = JoinSender {
        client_id: call.header.client_id.as_deref().unwrap_or_default().into(),
        version,
        principal: Some(call.peer.client().into_principal()),
    };
    call.ask(api::Request::JoinGroup(request), move |answer| {
        let mut joined = response!(JoinGroup, answer)?;
        // Before version 7 the name cannot be null.
        if joined.error_code != ErrorCode::NONE && version >= 7 {
            joined.protocol_name = None;
        }
        Ok(joined)
    })
}

pub(super) fn sync_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: SyncGroupRequest = call.message()?;
    // From version 5 on a member names both. Kafka: `SyncGroupRequest#areMandatoryProtocolTypeAndNamePresent`.
    if call.version() >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return call.answer(SyncGroupResponse {
            error_code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
            ..Default::default()
        });
    }
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(SyncGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    call.ask(api::Request::SyncGroup(request), |answer| response!(SyncGroup, answer))
}

pub(super) fn heartbeat(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: HeartbeatRequest = call.message()?;
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(HeartbeatResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    call.answer(response!(Heartbeat, call.ask_now(api::Request::Heartbeat(request))?)?)
}

pub(super) fn leave_group(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: LeaveGroupRequest = call.message()?;
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(LeaveGroupResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let request = api::Request::LeaveGroup(request);
    let left = response!(LeaveGroup, call.ask_now(request)?)?;
    call.answer(left)
}
