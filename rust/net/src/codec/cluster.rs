//! Metadata, FindCoordinator.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::{ErrorCode, Response};
use fletchlog_protocol::messages::{
    FindCoordinatorResponse, MetadataRequest, MetadataResponse, metadata_request, metadata_response,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};

use super::Throttle;
use crate::address_book::AddressBook;

/// First version whose leader epochs can be trusted (KAFKA-9212). Kafka: `MetadataResponse#hasReliableLeaderEpochs`.
const RELIABLE_EPOCHS: i16 = 9;

type Decoded = Result<(Response, Throttle), WireError>;

pub(super) fn metadata(request: api::MetadataRequest, version: i16, w: &mut Writer) -> Result<(), WireError> {
    let topic = |name| metadata_request::MetadataRequestTopic {
        name: Some(name),
        ..Default::default()
    };
    MetadataRequest {
        topics: request.topics.map(|names| names.into_iter().map(topic).collect()),
        allow_auto_topic_creation: request.allow_auto_topic_creation,
        ..Default::default()
    }
    .encode(w, version)
}

pub(super) fn metadata_answer(version: i16, r: &mut Reader, book: &mut AddressBook) -> Decoded {
    let response = MetadataResponse::decode(r, version)?;
    let brokers = response.brokers.into_iter();
    let nodes = book.set_brokers(brokers.map(|b| (b.node_id, b.host, b.port)));
    let topics = response.topics.into_iter().filter_map(|t| topic(t, version));
    let value = api::MetadataResponse {
        error: response.error_code,
        cluster_id: response.cluster_id.unwrap_or_default(),
        nodes,
        topics: topics.collect(),
    };
    Ok((Response::Metadata(value), response.throttle_time_ms))
}

fn topic(topic: metadata_response::MetadataResponseTopic, version: i16) -> Option<api::TopicMetadata> {
    let partition = |p: metadata_response::MetadataResponsePartition| api::PartitionMetadata {
        partition: p.partition_index,
        leader: p.leader_id,
        leader_epoch: if version >= RELIABLE_EPOCHS { p.leader_epoch } else { -1 },
        replicas: p.replica_nodes,
    };
    let count = topic.partitions.len();
    let mut partitions: Vec<_> = topic.partitions.into_iter().map(partition).collect();
    // A partition whose number is not below the number of partitions is left out: clients keep partitions in lists by number.
    partitions.retain(|p| usize::try_from(p.partition).is_ok_and(|number| number < count));
    partitions.sort_by_key(|p| p.partition);
    partitions.dedup_by_key(|p| p.partition);
    Some(api::TopicMetadata {
        error: topic.error_code,
        name: topic.name?,
        topic_id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions,
    })
}

/// Notes where the coordinators are. One with an unusable address is not available.
pub(super) fn note_coordinators(response: &mut FindCoordinatorResponse, book: &mut AddressBook) {
    for found in &mut response.coordinators {
        let host = Arc::clone(&found.host);
        if found.error_code == ErrorCode::NONE && !book.set_coordinator(found.node_id, host, found.port) {
            found.error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        }
    }
}
