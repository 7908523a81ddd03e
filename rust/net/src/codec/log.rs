//! ListOffsets, OffsetForLeaderEpoch.

use fletchlog_api as api;
use fletchlog_api::Response;
use fletchlog_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    list_offsets_request, offset_for_leader_epoch_request,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};

use super::{Throttle, by_topic, flat, tp};

/// The replica id of a client that is no broker. Kafka: `ListOffsetsRequest#CONSUMER_REPLICA_ID`.
const CONSUMER: i32 = -1;

type Decoded = Result<(Response, Throttle), WireError>;

pub(super) fn list_offsets(request: api::ListOffsetsRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let partitions = request.partitions.into_iter();
    let topics = by_topic(partitions.map(|(tp, epoch, timestamp)| (tp, (epoch, timestamp)))).into_iter();
    let partition = |(partition_index, (current_leader_epoch, timestamp))| list_offsets_request::ListOffsetsPartition {
        partition_index,
        current_leader_epoch,
        timestamp,
    };
    let topics = topics.map(|(name, partitions)| list_offsets_request::ListOffsetsTopic {
        name,
        partitions: partitions.into_iter().map(partition).collect(),
    });
    ListOffsetsRequest {
        replica_id: CONSUMER,
        isolation_level: request.isolation_level,
        topics: topics.collect(),
        ..Default::default()
    }
    .encode(w, version)
}

pub(super) fn listed_offsets(version: i16, r: &mut Reader) -> Decoded {
    let response = ListOffsetsResponse::decode(r, version)?;
    let topics = response.topics.into_iter().map(|t| (t.name, t.partitions));
    let partitions = flat(topics, |topic, p| api::ListOffsetsPartitionResponse {
        tp: tp(topic, p.partition_index),
        error: p.error_code,
        error_message: None,
        timestamp: p.timestamp,
        offset: p.offset,
        leader_epoch: p.leader_epoch,
    });
    let value = api::ListOffsetsResponse { partitions };
    Ok((Response::ListOffsets(value), response.throttle_time_ms))
}

pub(super) fn offset_for_leader_epoch(
    request: api::OffsetForLeaderEpochRequest,
    version: i16,
    w: &mut Writer,
) -> Result<(), WireError> {
    let partitions = request.partitions.into_iter();
    let topics = by_topic(partitions.map(|(tp, current, asked)| (tp, (current, asked)))).into_iter();
    let partition =
        |(partition, (current_leader_epoch, leader_epoch))| offset_for_leader_epoch_request::OffsetForLeaderPartition {
            partition,
            current_leader_epoch,
            leader_epoch,
        };
    let topics = topics.map(
        |(topic, partitions)| offset_for_leader_epoch_request::OffsetForLeaderTopic {
            topic,
            partitions: partitions.into_iter().map(partition).collect(),
        },
    );
    OffsetForLeaderEpochRequest {
        replica_id: CONSUMER,
        topics: topics.collect(),
    }
    .encode(w, version)
}

pub(super) fn epoch_ends(version: i16, r: &mut Reader) -> Decoded {
    let response = OffsetForLeaderEpochResponse::decode(r, version)?;
    let topics = response.topics.into_iter().map(|t| (t.topic, t.partitions));
    let partitions = flat(topics, |topic, p| api::EpochEndOffset {
        tp: tp(topic, p.partition),
        error: p.error_code,
        error_message: None,
        leader_epoch: p.leader_epoch,
        end_offset: p.end_offset,
    });
    let value = api::OffsetForLeaderEpochResponse { partitions };
    Ok((Response::OffsetForLeaderEpoch(value), response.throttle_time_ms))
}
