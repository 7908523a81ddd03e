//! Fetch, ListOffsets, OffsetForLeaderEpoch.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::{Response, TopicId, topic_by_id};
use fletchlog_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, fetch_request, list_offsets_request, offset_for_leader_epoch_request,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};
use fletchlog_records::TopicPartition;

use super::{Throttle, by_topic, flat, grouped, tp};

/// The replica id of a client that is no broker. Kafka: `ListOffsetsRequest#CONSUMER_REPLICA_ID`.
const CONSUMER: i32 = -1;

/// First version of Fetch that names topics by their ids alone.
pub(super) const FETCH_BY_ID: i16 = 13;

type Decoded = Result<(Response, Throttle), WireError>;

pub(super) fn fetch(
    request: api::FetchRequest,
    rack: &Arc<str>,
    version: i16,
    w: &mut Writer,
) -> Result<(), WireError> {
    // Only consecutive partitions share a topic's entry: their order is that of the response. Kafka: `FetchRequest.Builder#build`.
    let mut topics: Vec<fetch_request::FetchTopic> = Vec::new();
    for p in request.partitions {
        let partition = fetch_request::FetchPartition {
            partition: p.tp.partition,
            current_leader_epoch: p.current_leader_epoch,
            last_fetched_epoch: p.last_fetched_epoch,
            fetch_offset: p.fetch_offset,
            partition_max_bytes: p.partition_max_bytes,
            ..Default::default()
        };
        match topics.last_mut().filter(|topic| topic.topic == p.tp.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(fetch_request::FetchTopic {
                topic: p.tp.topic,
                topic_id: p.topic_id,
                partitions: vec![partition],
            }),
        }
    }
    let forgotten = if version < FETCH_BY_ID {
        forgotten_by_name(request.forgotten)
    } else {
        forgotten_by_id(request.forgotten_by_id)
    };
    FetchRequest {
        replica_id: CONSUMER,
        max_wait_ms: request.max_wait_ms,
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        isolation_level: request.isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        topics,
        forgotten_topics_data: forgotten,
        rack_id: Arc::clone(rack),
        ..Default::default()
    }
    .encode(w, version)
}

fn forgotten_by_name(forgotten: Vec<TopicPartition>) -> Vec<fetch_request::ForgottenTopic> {
    let topics = grouped(forgotten.into_iter().map(|tp| (tp.topic, tp.partition))).into_iter();
    let topic = |(topic, partitions)| fetch_request::ForgottenTopic {
        topic,
        partitions,
        ..Default::default()
    };
    topics.map(topic).collect()
}

fn forgotten_by_id(forgotten: Vec<(TopicPartition, TopicId)>) -> Vec<fetch_request::ForgottenTopic> {
    let topics = grouped(forgotten.into_iter().map(|(tp, id)| (id, tp.partition))).into_iter();
    let topic = |(topic_id, partitions)| fetch_request::ForgottenTopic {
        topic_id,
        partitions,
        ..Default::default()
    };
    topics.map(topic).collect()
}

pub(super) fn fetched(version: i16, r: &mut Reader) -> Decoded {
    let response = FetchResponse::decode(r, version)?;
    let topics = response.responses.into_iter().map(|t| match version {
        FETCH_BY_ID.. => (topic_by_id(t.topic_id), t.partitions),
        _ => (t.topic, t.partitions),
    });
    let partitions = flat(topics, |topic, p| api::FetchPartitionResponse {
        tp: tp(topic, p.partition_index),
        error: p.error_code,
        error_message: None,
        high_watermark: p.high_watermark,
        last_stable_offset: p.last_stable_offset,
        log_start_offset: p.log_start_offset,
        diverging_epoch: Some((p.diverging_epoch.epoch, p.diverging_epoch.end_offset)).filter(|(epoch, _)| *epoch >= 0),
        aborted_transactions: p.aborted_transactions.map(|aborted| {
            let one = |a: fletchlog_protocol::messages::fetch_response::AbortedTransaction| api::AbortedTransaction {
                producer_id: a.producer_id,
                first_offset: a.first_offset,
            };
            aborted.into_iter().map(one).collect()
        }),
        preferred_read_replica: Some(p.preferred_read_replica).filter(|&node| node >= 0),
        records: p.records.unwrap_or_default(),
    });
    let response_value = api::FetchResponse {
        error: response.error_code,
        session_id: response.session_id,
        partitions,
    };
    Ok((Response::Fetch(response_value), response.throttle_time_ms))
}

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
