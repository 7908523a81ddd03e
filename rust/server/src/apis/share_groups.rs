//! Share groups (KIP-932): members, descriptions, offsets. Kafka: `KafkaApis#handleShareGroupHeartbeat`, `#handleShareGroupDescribe`,
//! `#handleDescribeShareGroupOffsetsRequest`, `#handleAlterShareGroupOffsetsRequest`, `#handleDeleteShareGroupOffsetsRequest`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::{AclOperation, BrokerError, ResourceType};
use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::messages::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use fletchlog_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use fletchlog_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use fletchlog_protocol::messages::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use fletchlog_protocol::messages::share_group_describe_response::{DescribedGroup, Member};
use fletchlog_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use fletchlog_records::ErrorCode;

use super::group_admin::{AUTHORIZED_OPERATIONS, check_group, not_found};
use super::{Call, Handled, Unreadable, response};

pub(super) fn share_group_heartbeat(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ShareGroupHeartbeatRequest = call.message()?;
    let refused = |error_code| ShareGroupHeartbeatResponse {
        error_code,
        ..Default::default()
    };
    if !call.may_group(AclOperation::Read, &request.group_id) {
        return call.answer(refused(ErrorCode::GROUP_AUTHORIZATION_FAILED));
    }
    let mut names = request.subscribed_topic_names.iter().flatten();
    if !names.all(|name| call.may_topic(AclOperation::Describe, name)) {
        return call.answer(refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    }
    request.sender = JoinSender {
        client_id: call.header.client_id.as_deref().unwrap_or_default().into(),
        version: call.version(),
        principal: Some(call.peer.client().into_principal()),
    };
    let request = api::Request::ShareGroupHeartbeat(request);
    call.answer(response!(ShareGroupHeartbeat, call.ask_now(request)?)?)
}

pub(super) fn share_group_describe(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ShareGroupDescribeRequest = call.message()?;
    let mut room = call.room();
    let describe = |group_id: Arc<str>| {
        let mut group = described(call, &group_id);
        if request.include_authorized_operations && group.error_code == ErrorCode::NONE {
            group.authorized_operations =
                call.authorized_operations(AUTHORIZED_OPERATIONS, ResourceType::Group, &group_id);
        }
        let size = |m: &Member| {
            let names: usize = m.subscribed_topic_names.iter().map(|name| name.len()).sum();
            256 + names + m.assignment.topic_partitions.len() * 64
        };
        room.take(64 + group.members.iter().map(size).sum::<usize>())?;
        Ok(group)
    };
    let groups = request.group_ids.into_iter().map(describe);
    call.answer(ShareGroupDescribeResponse {
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
    if let Err(code) = check_group(call, AclOperation::Describe, group_id) {
        return refused(code, None);
    }
    if group_id.is_empty() {
        return refused(ErrorCode::INVALID_GROUP_ID, None);
    }
    let group = match call.broker().describe_share_group(group_id) {
        Ok(group) => group,
        Err(error) => return refused(error.code(), Some(text_of(group_id, &error))),
    };
    // Kafka: a client that may not see all topics sees none of the group.
    let mut topics = group
        .members
        .iter()
        .flat_map(|member| &member.assignment.topic_partitions);
    match topics.all(|topic| call.may_topic(AclOperation::Describe, &topic.topic_name)) {
        true => group,
        false => {
            let message = "The group has described topic(s) that the client is not authorized to describe.";
            refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED, Some(message.to_owned()))
        }
    }
}

/// Kafka's text of an error of a group.
fn text_of(group_id: &str, error: &BrokerError) -> String {
    match error.code() {
        ErrorCode::GROUP_ID_NOT_FOUND => not_found(group_id, error.to_string()),
        ErrorCode::NON_EMPTY_GROUP => "The group is not empty.".to_owned(),
        _ => error.to_string(),
    }
}

pub(super) fn describe_share_group_offsets(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeShareGroupOffsetsRequest = call.message()?;
    let mut room = call.room();
    let describe = |asked: DescribeShareGroupOffsetsRequestGroup| {
        let group = described_offsets(call, asked);
        let size = |topic: &DescribeShareGroupOffsetsResponseTopic| 64 + topic.partitions.len() * 64;
        room.take(64 + group.topics.iter().map(size).sum::<usize>())?;
        Ok(group)
    };
    let groups = request.groups.into_iter().map(describe);
    call.answer(DescribeShareGroupOffsetsResponse {
        groups: groups.collect::<Result<_, Unreadable>>()?,
        ..Default::default()
    })
}

fn described_offsets(
    call: &Call<'_>,
    asked: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup {
    let group_id = asked.group_id;
    let sees = |name: &Arc<str>| call.may_topic(AclOperation::Describe, name);
    let mut denied = Vec::new();
    let topics = asked.topics.map(|topics| {
        let mut seen = Vec::new();
        for topic in topics {
            match sees(&topic.topic_name) {
                true => seen.push((topic.topic_name, topic.partitions)),
                false => denied.push(denied_topic(topic.topic_name, topic.partitions)),
            }
        }
        seen
    });
    let found = check_group(call, AclOperation::Describe, &group_id).map_err(|code| (code, code.message().to_owned()));
    let found = found.and_then(|()| {
        let found = call.broker().share_group_offsets(&group_id, topics);
        found.map_err(|error| (error.code(), text_of(&group_id, &error)))
    });
    match found {
        Ok(topics) => DescribeShareGroupOffsetsResponseGroup {
            topics: topics
                .into_iter()
                .filter(|topic| sees(&topic.topic_name))
                .chain(denied)
                .collect(),
            group_id,
            ..Default::default()
        },
        Err((error_code, text)) => DescribeShareGroupOffsetsResponseGroup {
            group_id,
            error_code,
            error_message: Some(text.into()),
            ..Default::default()
        },
    }
}

/// Kafka's text of TOPIC_AUTHORIZATION_FAILED.
const DENIED: &str = "Topic authorization failed.";

fn denied_topic(topic_name: Arc<str>, partitions: Vec<i32>) -> DescribeShareGroupOffsetsResponseTopic {
    let partition = |partition_index| DescribeShareGroupOffsetsResponsePartition {
        partition_index,
        error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        error_message: Some(DENIED.into()),
        ..Default::default()
    };
    DescribeShareGroupOffsetsResponseTopic {
        topic_name,
        partitions: partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

/// INVALID_GROUP_ID for no id; then as [`check_group`]. With Kafka's text.
fn check_named(call: &Call<'_>, operation: AclOperation, group_id: &str) -> Result<(), (ErrorCode, String)> {
    if !call.may_group(operation, group_id) {
        return Err((
            ErrorCode::GROUP_AUTHORIZATION_FAILED,
            "Group authorization failed.".to_owned(),
        ));
    }
    if group_id.is_empty() {
        return Err((ErrorCode::INVALID_GROUP_ID, "The group id is invalid.".to_owned()));
    }
    check_group(call, operation, group_id).map_err(|code| (code, code.message().to_owned()))
}

pub(super) fn alter_share_group_offsets(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: AlterShareGroupOffsetsRequest = call.message()?;
    let group_id = Arc::clone(&request.group_id);
    let topics = std::mem::take(&mut request.topics).into_iter();
    let (topics, denied): (Vec<_>, Vec<_>) = topics.partition(|t| call.may_topic(AclOperation::Read, &t.topic_name));
    request.topics = topics;
    let altered = check_named(call, AclOperation::Read, &group_id).and_then(|()| {
        let altered = call.broker().alter_share_group_offsets(&request);
        altered.map_err(|error| (error.code(), text_of(&group_id, &error)))
    });
    call.answer(match altered {
        Ok(topics) => AlterShareGroupOffsetsResponse {
            responses: topics.into_iter().chain(denied.into_iter().map(not_altered)).collect(),
            ..Default::default()
        },
        Err((error_code, text)) => AlterShareGroupOffsetsResponse {
            error_code,
            error_message: Some(text.into()),
            ..Default::default()
        },
    })
}

fn not_altered(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic {
    let partitions = topic.partitions.into_iter();
    let partitions = partitions.map(|partition| AlterShareGroupOffsetsResponsePartition {
        partition_index: partition.partition_index,
        error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        error_message: Some(DENIED.into()),
    });
    AlterShareGroupOffsetsResponseTopic {
        topic_name: topic.topic_name,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

pub(super) fn delete_share_group_offsets(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: DeleteShareGroupOffsetsRequest = call.message()?;
    let group_id = Arc::clone(&request.group_id);
    let topics = std::mem::take(&mut request.topics).into_iter();
    let (topics, denied): (Vec<_>, Vec<_>) = topics.partition(|t| call.may_topic(AclOperation::Read, &t.topic_name));
    request.topics = topics;
    let deleted = check_named(call, AclOperation::Delete, &group_id).and_then(|()| {
        let deleted = call.broker().delete_share_group_offsets(&request);
        deleted.map_err(|error| (error.code(), text_of(&group_id, &error)))
    });
    let denied = denied.into_iter().map(|topic| DeleteShareGroupOffsetsResponseTopic {
        topic_name: topic.topic_name,
        error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        error_message: Some(DENIED.into()),
        ..Default::default()
    });
    call.answer(match deleted {
        Ok(topics) => DeleteShareGroupOffsetsResponse {
            responses: topics.into_iter().chain(denied).collect(),
            ..Default::default()
        },
        Err((error_code, text)) => DeleteShareGroupOffsetsResponse {
            error_code,
            error_message: Some(text.into()),
            ..Default::default()
        },
    })
}
