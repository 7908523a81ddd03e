//! Consumer groups (KIP-848). Kafka: `KafkaApis#handleConsumerGroupHeartbeat`, `#handleConsumerGroupDescribe`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::{AclOperation, ResourceType};
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup};
use fletchlog_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
};
use fletchlog_records::ErrorCode;

use super::group_admin::{AUTHORIZED_OPERATIONS, check_group, not_found};
use super::{Call, Handled, Unreadable, response};

pub(super) fn consumer_group_heartbeat(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ConsumerGroupHeartbeatRequest = call.message()?;
    let refused = |error_code| ConsumerGroupHeartbeatResponse {
        error_code,
        ..Default::default()
    };
    if !call.broker().serves_consumer_groups() {
        return call.answer(refused(ErrorCode::UNSUPPORTED_VERSION));
    }
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(refused(ErrorCode::GROUP_AUTHORIZATION_FAILED));
    }
    let names = request.subscribed_topic_names.iter().flatten();
    if !names.clone().all(|name| call.may_topic(AclOperation::Describe, name)) {
        return call.answer(refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    }
    request.sender = JoinSender {
        client_id: call.header.client_id.as_deref().unwrap_or_default().into(),
        version: call.version(),
        principal: Some(call.peer.client().into_principal()),
    };
    let request = api::Request::ConsumerGroupHeartbeat(request);
    call.answer(response!(ConsumerGroupHeartbeat, call.ask_now(request)?)?)
}

pub(super) fn consumer_group_describe(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ConsumerGroupDescribeRequest = call.message()?;
    let mut room = call.room();
    let describe = |group_id: Arc<str>| {
        let mut group = described(call, &group_id);
        if request.include_authorized_operations && group.error_code == ErrorCode::NONE {
            group.authorized_operations =
                call.authorized_operations(AUTHORIZED_OPERATIONS, ResourceType::Group, &group_id);
        }
        let topics = |assignment: &Assignment| assignment.topic_partitions.len() * 64;
        let size = |m: &fletchlog_protocol::messages::consumer_group_describe_response::Member| {
            let names: usize = m.subscribed_topic_names.iter().map(|name| name.len()).sum();
            256 + names + topics(&m.assignment) + topics(&m.target_assignment)
        };
        room.take(64 + group.members.iter().map(size).sum::<usize>())?;
        Ok(group)
    };
    let groups = request.group_ids.into_iter().map(describe);
    call.answer(ConsumerGroupDescribeResponse {
        groups: groups.collect::<Result<_, Unreadable>>()?,
        ..Default::default()
    })
}

fn described(call: &Call<'_>, group_id: &Arc<str>) -> DescribedGroup {
    let refused = |error_code, error_message: Option<String>| DescribedGroup {
        error_code,
        error_message: error_message.map(Arc::from),
        group_id: Arc::clone(group_id),
        ..Default::default()
    };
    if !call.broker().serves_consumer_groups() {
        return refused(ErrorCode::UNSUPPORTED_VERSION, None);
    }
    if let Err(code) = check_group(call, AclOperation::Describe, group_id) {
        return refused(code, None);
    }
    let group = match call.broker().describe_consumer_group(group_id) {
        Ok(group) => group,
        Err(error) if error.code() == ErrorCode::GROUP_ID_NOT_FOUND => {
            return refused(error.code(), Some(not_found(group_id, error.to_string())));
        }
        Err(error) => return refused(error.code(), Some(error.to_string())),
    };
    // Kafka: a client that may not see all topics sees none of the group.
    let sees = |assignment: &Assignment| {
        let mut topics = assignment.topic_partitions.iter();
        topics.all(|topic| call.may_topic(AclOperation::Describe, &topic.topic_name))
    };
    let mut members = group.members.iter();
    let sees_all = members.all(|member| sees(&member.assignment) && sees(&member.target_assignment));
    match sees_all {
        true => group,
        false => {
            let message = "The group has described topic(s) that the client is not authorized to describe.";
            refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED, Some(message.to_owned()))
        }
    }
}
