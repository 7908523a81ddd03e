//! ListOffsets and OffsetForLeaderEpoch. Kafka: `KafkaApis#handleListOffsetRequest`, `#handleOffsetForLeaderEpochRequest`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::IsolationLevel;
use fletchlog_api::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, LATEST_TIERED_TIMESTAMP, MAX_TIMESTAMP,
};
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    list_offsets_request, list_offsets_response, offset_for_leader_epoch_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{Call, Handled, Unreadable, by_topic, response};

/// Whether a request of this version may ask for the timestamp. If not, it is refused with UNSUPPORTED_VERSION. Kafka:
/// `KafkaApis#handleListOffsetRequest`, `ListOffsetsRequest`.
fn is_supported(timestamp: i64, version: i16) -> bool {
    match timestamp {
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL_TIMESTAMP => version >= 8,
        LATEST_TIERED_TIMESTAMP => version >= 9,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP => version >= 11,
        other => other >= -2,
    }
}

pub(super) fn list_offsets(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ListOffsetsRequest = call.message()?;
    let version = call.version();
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    let mut asked = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let tp = TopicPartition::new(Arc::clone(&topic.name), partition.partition_index);
            if !seen.insert(tp.clone()) {
                twice.insert(tp.clone());
            }
            asked.push((tp, partition.current_leader_epoch, partition.timestamp));
        }
    }
    if matches!(request.isolation_level, IsolationLevel::Other(_)) {
        return call.answer(&all_refused(&request));
    }
    let mut refused = Vec::new();
    asked.retain(|(tp, _, timestamp)| {
        let error = if !call.may_topic(AclOperation::Describe, &tp.topic) {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED
        } else if twice.contains(tp) {
            if !seen.remove(tp) {
                return false; // It gets one entry.
            }
            ErrorCode::INVALID_REQUEST
        } else if !is_supported(*timestamp, version) {
            ErrorCode::UNSUPPORTED_VERSION
        } else {
            return true;
        };
        refused.push((tp.clone(), error));
        false
    });
    let request = api::ListOffsetsRequest {
        isolation_level: request.isolation_level,
        partitions: asked,
    };
    let answer = response!(ListOffsets, call.ask_now(api::Request::ListOffsets(request))?)?;
    call.answer(&offsets_message(version, answer.partitions, refused))
}

/// UNKNOWN_SERVER_ERROR for each partition, in the request's shape. Kafka: `ListOffsetsRequest#getErrorResponse`.
fn all_refused(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topic = |t: &list_offsets_request::ListOffsetsTopic| list_offsets_response::ListOffsetsTopicResponse {
        name: Arc::clone(&t.name),
        partitions: t
            .partitions
            .iter()
            .map(|p| list_offsets_response::ListOffsetsPartitionResponse {
                partition_index: p.partition_index,
                error_code: ErrorCode::UNKNOWN_SERVER_ERROR,
                ..Default::default()
            })
            .collect(),
    };
    ListOffsetsResponse {
        topics: request.topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

fn offsets_message(
    version: i16,
    found: Vec<api::ListOffsetsPartitionResponse>,
    refused: Vec<(TopicPartition, ErrorCode)>,
) -> ListOffsetsResponse {
    let found = found.into_iter().map(|p| {
        let partition = list_offsets_response::ListOffsetsPartitionResponse {
            partition_index: p.tp.partition,
            error_code: p.error,
            timestamp: p.timestamp,
            offset: p.offset,
            leader_epoch: if version >= 4 { p.leader_epoch } else { -1 },
        };
        (p.tp.topic, partition)
    });
    let refused = refused.into_iter().map(|(tp, error)| {
        let partition = list_offsets_response::ListOffsetsPartitionResponse {
            partition_index: tp.partition,
            error_code: error,
            ..Default::default()
        };
        (tp.topic, partition)
    });
    let topics = by_topic(found.chain(refused))
        .map(|(name, partitions)| list_offsets_response::ListOffsetsTopicResponse { name, partitions })
        .collect();
    ListOffsetsResponse {
        topics,
        ..Default::default()
    }
}

pub(super) fn offset_for_leader_epoch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetForLeaderEpochRequest = call.message()?;
    let of_topic = |t: &fletchlog_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic| {
        let tp = |p: i32| TopicPartition::new(Arc::clone(&t.topic), p);
        let asked = t.partitions.iter();
        asked
            .map(|p| (tp(p.partition), p.current_leader_epoch, p.leader_epoch))
            .collect::<Vec<_>>()
    };
    let (allowed, denied): (Vec<_>, Vec<_>) = request
        .topics
        .iter()
        .partition(|t| call.may_topic(AclOperation::Describe, &t.topic));
    let request = api::OffsetForLeaderEpochRequest {
        partitions: allowed.iter().copied().flat_map(of_topic).collect(),
    };
    let answer = response!(
        OffsetForLeaderEpoch,
        call.ask_now(api::Request::OffsetForLeaderEpoch(request))?
    )?;
    let mut found = answer
        .partitions
        .into_iter()
        .map(|found| offset_for_leader_epoch_response::EpochEndOffset {
            error_code: found.error,
            partition: found.tp.partition,
            leader_epoch: found.leader_epoch,
            end_offset: found.end_offset,
        });
    // Each topic entry of the request gets an entry, also if it is a repetition or has no partitions.
    let mut topics = Vec::with_capacity(allowed.len() + denied.len());
    for topic in allowed {
        topics.push(offset_for_leader_epoch_response::OffsetForLeaderTopicResult {
            topic: Arc::clone(&topic.topic),
            partitions: found.by_ref().take(topic.partitions.len()).collect(),
        });
    }
    for topic in denied {
        let refused = |p: i32| offset_for_leader_epoch_response::EpochEndOffset {
            error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            partition: p,
            ..Default::default()
        };
        topics.push(offset_for_leader_epoch_response::OffsetForLeaderTopicResult {
            topic: Arc::clone(&topic.topic),
            partitions: topic.partitions.iter().map(|p| refused(p.partition)).collect(),
        });
    }
    call.answer(&OffsetForLeaderEpochResponse {
        topics,
        ..Default::default()
    })
}
