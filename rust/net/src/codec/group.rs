//! OffsetCommit, OffsetFetch.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::{ErrorCode, OffsetAndMetadata, Response};
use fletchlog_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, offset_commit_request,
    offset_fetch_request,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};

use super::{Throttle, by_topic, flat, tp};

/// First version of OffsetFetch with many groups.
const MANY_GROUPS: i16 = 8;
/// First version of OffsetFetch that can ask for stable offsets. Below, Java continues without them (`OffsetFetchRequest.Builder`).
const REQUIRE_STABLE: i16 = 7;

type Decoded = Result<(Response, Throttle), WireError>;

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
