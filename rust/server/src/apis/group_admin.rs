//! Group requests of administrators. Kafka: `KafkaApis#handleListGroupsRequest`, `#handleDescribeGroupsRequest`,
//! `#handleDeleteGroupsRequest`, `#handleOffsetDeleteRequest`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_broker::{AclOperation, BrokerError, GroupDescription, GroupMember, ResourceType};
use fletchlog_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse, delete_groups_response, describe_groups_response,
    list_groups_response, offset_delete_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{Call, Handled, Unreadable, by_topic};

/// The operations on a group that every client may do without an authorizer: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
/// Kafka: `AclEntry#supportedOperations`, as bits.
pub(super) const AUTHORIZED_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

pub(super) fn list_groups(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ListGroupsRequest = call.message()?;
    let lower = |filter: &[Arc<str>]| filter.iter().map(|asked| asked.to_ascii_lowercase()).collect();
    let [states, types]: [HashSet<String>; 2] = [lower(&request.states_filter), lower(&request.types_filter)];
    let is_asked =
        |filter: &HashSet<String>, value: &str| filter.is_empty() || filter.contains(&value.to_ascii_lowercase());
    let groups = match call.apis.broker().groups() {
        Ok(groups) => groups,
        Err(error) => {
            return call.answer(ListGroupsResponse {
                error_code: error.code(),
                ..Default::default()
            });
        }
    };
    let node = call.peer.port.node();
    let sees_all = call.may_cluster(AclOperation::Describe);
    let groups = groups
        .into_iter()
        .filter(|group| sees_all || call.may_group(AclOperation::Describe, &group.group_id));
    let groups = groups.filter(|group| {
        let is_asked = is_asked(&states, group.state) && is_asked(&types, &group.group_type);
        group.coordinator == node && is_asked
    });
    let listed = groups.map(|group| list_groups_response::ListedGroup {
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        group_state: group.state.into(),
        group_type: group.group_type,
    });
    call.answer(ListGroupsResponse {
        groups: listed.collect(),
        ..Default::default()
    })
}

pub(super) fn describe_groups(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeGroupsRequest = call.message()?;
    let mut room = call.room();
    let describe = |group_id: Arc<str>| {
        let described = match check_group(call, AclOperation::Describe, &group_id) {
            Ok(()) => call
                .apis
                .broker()
                .describe_group(&group_id)
                .map_err(|error| (error.code(), error.to_string())),
            Err(code) => Err((code, String::new())),
        };
        let mut group = match described {
            Ok(described) => of_description(described),
            Err((code, text)) => undescribed(group_id, code, text, call.version()),
        };
        if request.include_authorized_operations && group.error_code == ErrorCode::NONE {
            let name = Arc::clone(&group.group_id);
            group.authorized_operations = call.authorized_operations(AUTHORIZED_OPERATIONS, ResourceType::Group, &name);
        }
        let size = |m: &describe_groups_response::DescribedGroupMember| {
            128 + m.member_metadata.len() + m.member_assignment.len()
        };
        room.take(group.members.iter().map(size).sum())?;
        Ok(group)
    };
    let groups = request
        .groups
        .into_iter()
        .map(describe)
        .collect::<Result<_, Unreadable>>()?;
    call.answer(DescribeGroupsResponse {
        groups,
        ..Default::default()
    })
}

fn of_description(group: GroupDescription) -> describe_groups_response::DescribedGroup {
    let member = |m: GroupMember| describe_groups_response::DescribedGroupMember {
        member_id: m.member_id,
        group_instance_id: m.group_instance_id,
        client_id: m.client_id,
        client_host: m.client_host,
        member_metadata: m.metadata,
        member_assignment: m.assignment,
    };
    describe_groups_response::DescribedGroup {
        group_id: group.group_id,
        group_state: group.state.into(),
        protocol_type: group.protocol_type,
        protocol_data: group.protocol,
        members: group.members.into_iter().map(member).collect(),
        ..Default::default()
    }
}

/// An unknown group is Dead; before version 6 that is no error. Kafka: `GroupMetadataManager#describeGroups`.
fn undescribed(
    group_id: Arc<str>,
    code: ErrorCode,
    text: String,
    version: i16,
) -> describe_groups_response::DescribedGroup {
    let is_dead = code == ErrorCode::GROUP_ID_NOT_FOUND;
    let message = is_dead && version >= 6;
    describe_groups_response::DescribedGroup {
        error_message: message.then(|| not_found(&group_id, text).into()),
        error_code: if is_dead && version < 6 { ErrorCode::NONE } else { code },
        group_id,
        group_state: if is_dead { "Dead" } else { "" }.into(),
        ..Default::default()
    }
}

/// Kafka's text for a group that does not exist; one of another kind says so itself.
pub(super) fn not_found(group_id: &str, text: String) -> String {
    match text.starts_with("Group ") {
        true => text,
        false => format!("Group {group_id} not found."),
    }
}

pub(super) fn delete_groups(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DeleteGroupsRequest = call.message()?;
    let delete = |group_id: Arc<str>| {
        let deleted = check_group(call, AclOperation::Delete, &group_id).and_then(|()| {
            let deleted = call.apis.broker().delete_group(&group_id);
            deleted.map_err(|error| error.code())
        });
        delete_groups_response::DeletableGroupResult {
            group_id,
            error_code: deleted.err().unwrap_or(ErrorCode::NONE),
            // Kafka: only for GROUP_DELETION_FAILED, of groups of Kafka Streams.
            error_message: None,
        }
    };
    let mut seen = HashSet::new();
    let names = request
        .groups_names
        .into_iter()
        .filter(|name| seen.insert(Arc::clone(name)));
    call.answer(DeleteGroupsResponse {
        results: names.map(delete).collect(),
        ..Default::default()
    })
}

pub(super) fn offset_delete(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetDeleteRequest = call.message()?;
    let tps = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|p| TopicPartition::new(Arc::clone(&topic.name), p.partition_index))
    });
    let (tps, denied): (Vec<TopicPartition>, Vec<_>) =
        tps.partition(|tp| call.may_topic(AclOperation::Read, &tp.topic));
    let deleted = check_group(call, AclOperation::Delete, &request.group_id).and_then(|()| {
        let deleted = call.apis.broker().delete_offsets(&request.group_id, &tps);
        deleted.map_err(|error: BrokerError| error.code())
    });
    let results = match deleted {
        Ok(results) => results,
        Err(code) => {
            return call.answer(OffsetDeleteResponse {
                error_code: code,
                ..Default::default()
            });
        }
    };
    let denied = denied.into_iter().map(|tp| (tp, ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    let results = results.into_iter().chain(denied).map(|(tp, code)| {
        let result = offset_delete_response::OffsetDeleteResponsePartition {
            partition_index: tp.partition,
            error_code: code,
        };
        (tp.topic, result)
    });
    let topics = by_topic(results)
        .map(|(name, partitions)| offset_delete_response::OffsetDeleteResponseTopic { name, partitions });
    call.answer(OffsetDeleteResponse {
        topics: topics.collect(),
        ..Default::default()
    })
}

/// GROUP_AUTHORIZATION_FAILED unless the client may do this; then as [`check_coordinator`].
pub(super) fn check_group(call: &Call<'_>, operation: AclOperation, group_id: &str) -> Result<(), ErrorCode> {
    match call.may_group(operation, group_id) {
        true => check_coordinator(call, group_id),
        false => Err(ErrorCode::GROUP_AUTHORIZATION_FAILED),
    }
}

/// NOT_COORDINATOR unless the node that was asked coordinates the group.
fn check_coordinator(call: &Call<'_>, group_id: &str) -> Result<(), ErrorCode> {
    if call.apis.broker().group_coordinator(group_id) == call.peer.port.node() {
        Ok(())
    } else {
        Err(ErrorCode::NOT_COORDINATOR)
    }
}
