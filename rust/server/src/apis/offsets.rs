//! ListOffsets and OffsetForLeaderEpoch. Kafka: `KafkaApis#handleListOffsetRequest`, `#handleOffsetForLeaderEpochRequest`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::IsolationLevel;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use fletchlog_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use fletchlog_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic;
use fletchlog_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use fletchlog_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest};
use fletchlog_records::ErrorCode;

use super::{Call, Handled, Unreadable, by_topic, repeated, response};

pub(super) fn list_offsets(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ListOffsetsRequest = call.message()?;
    let version = call.version();
    if matches!(request.isolation_level, IsolationLevel::Other(_)) {
        return call.answer(all_refused(&request));
    }
    let twice = repeated(
        request
            .partitions()
            .map(|(name, p)| (Arc::clone(name), p.partition_index)),
    );
    let mut reported = HashSet::new();
    let mut refused = Vec::new();
    for ListOffsetsTopic { name, partitions } in &mut request.topics {
        let is_allowed = call.may_topic(AclOperation::Describe, name);
        partitions.retain(|asked| {
            let key = (Arc::clone(name), asked.partition_index);
            let error = if !is_allowed {
                ErrorCode::TOPIC_AUTHORIZATION_FAILED
            } else if twice.contains(&key) {
                if !reported.insert(key) {
                    return false; // It gets one entry.
                }
                ErrorCode::INVALID_REQUEST
            } else if ListOffsetsRequest::first_version_of(asked.timestamp).is_none_or(|first| first > version) {
                ErrorCode::UNSUPPORTED_VERSION
            } else {
                return true;
            };
            refused.push((Arc::clone(name), refusal(asked, error)));
            false
        });
    }
    let answer = response!(ListOffsets, call.ask_now(api::Request::ListOffsets(request))?)?;
    let found = answer.topics.into_iter();
    let found = found.flat_map(|topic| {
        let name = topic.name;
        topic
            .partitions
            .into_iter()
            .map(move |found| (Arc::clone(&name), found))
    });
    let topics = by_topic(found.chain(refused)).map(|(name, partitions)| ListOffsetsTopicResponse { name, partitions });
    let answer = ListOffsetsResponse {
        topics: topics.collect(),
        ..Default::default()
    };
    call.answer(answer)
}

fn refusal(asked: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        error_code: error,
        ..Default::default()
    }
}

/// UNKNOWN_SERVER_ERROR for each partition, in the request's shape. Kafka: `ListOffsetsRequest#getErrorResponse`.
fn all_refused(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topic = |topic: &ListOffsetsTopic| {
        let partitions = topic.partitions.iter();
        ListOffsetsTopicResponse {
            name: Arc::clone(&topic.name),
            partitions: partitions
                .map(|asked| refusal(asked, ErrorCode::UNKNOWN_SERVER_ERROR))
                .collect(),
        }
    };
    ListOffsetsResponse {
        topics: request.topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

pub(super) fn offset_for_leader_epoch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetForLeaderEpochRequest = call.message()?;
    let topics = request.topics.into_iter();
    let (allowed, denied): (Vec<_>, Vec<_>) = topics.partition(|t| call.may_topic(AclOperation::Describe, &t.topic));
    let request = OffsetForLeaderEpochRequest {
        topics: allowed,
        ..request
    };
    let mut answer = response!(
        OffsetForLeaderEpoch,
        call.ask_now(api::Request::OffsetForLeaderEpoch(request))?
    )?;
    answer.topics.extend(denied.into_iter().map(denied_topic));
    call.answer(answer)
}

fn denied_topic(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult {
    let partitions = topic.partitions.iter().map(|asked| EpochEndOffset {
        error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        partition: asked.partition,
        ..Default::default()
    });
    OffsetForLeaderTopicResult {
        topic: topic.topic,
        partitions: partitions.collect(),
    }
}
