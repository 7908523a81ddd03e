//! Metadata and FindCoordinator. Kafka: `KafkaApis#handleTopicMetadataRequest`, `#handleFindCoordinatorRequest`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_records::ErrorCode;
use fletchlog_wire::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, find_coordinator_response,
    metadata_response,
};

use super::{Apis, Call, Handled, Unreadable, response};

pub(super) fn metadata(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: MetadataRequest = call.message()?;
    let topics = match request.topics {
        // Version 0 has no null: no topics means all.
        Some(topics) if call.version() == 0 && topics.is_empty() => None,
        Some(topics) => Some(topics.into_iter().map(|t| t.name.unwrap_or_default()).collect()),
        None => None,
    };
    let answer = response!(
        Metadata,
        call.ask_now(api::Request::Metadata(api::MetadataRequest {
            topics,
            allow_auto_topic_creation: request.allow_auto_topic_creation,
        }))?
    )?;
    let topics = answer.topics.into_iter().map(topic).collect();
    call.answer(&MetadataResponse {
        brokers: call.apis.brokers(),
        cluster_id: Some(answer.cluster_id),
        controller_id: answer.nodes.first().copied().unwrap_or(-1),
        topics,
        ..Default::default()
    })
}

impl Apis {
    fn brokers(&self) -> Vec<metadata_response::MetadataResponseBroker> {
        let broker = |e: &crate::Endpoint| metadata_response::MetadataResponseBroker {
            node_id: e.node,
            host: e.host.as_str().into(),
            port: i32::from(e.port),
            ..Default::default()
        };
        self.endpoints.iter().map(broker).collect()
    }
}

fn topic(topic: api::TopicMetadata) -> metadata_response::MetadataResponseTopic {
    let partition = |p: api::PartitionMetadata| metadata_response::MetadataResponsePartition {
        partition_index: p.partition,
        leader_id: p.leader,
        leader_epoch: p.leader_epoch,
        isr_nodes: p.replicas.clone(),
        replica_nodes: p.replicas,
        ..Default::default()
    };
    metadata_response::MetadataResponseTopic {
        error_code: topic.error.code(),
        name: Some(topic.name),
        topic_id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

pub(super) fn find_coordinator(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: FindCoordinatorRequest = call.message()?;
    let is_batched = call.version() >= 4;
    let keys = if is_batched {
        request.coordinator_keys
    } else {
        vec![request.key]
    };
    let coordinators = keys
        .into_iter()
        .map(|key| coordinator(call, request.key_type, key))
        .collect::<Result<Vec<_>, _>>()?;
    if is_batched {
        return call.answer(&FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        });
    }
    let Some(only) = coordinators.into_iter().next() else {
        return Err(super::OTHER_KIND);
    };
    let is_found = only.error_code == ErrorCode::NONE.code();
    call.answer(&FindCoordinatorResponse {
        error_code: only.error_code,
        error_message: if is_found {
            Some("NONE".into())
        } else {
            only.error_message
        },
        node_id: only.node_id,
        host: only.host,
        port: only.port,
        ..Default::default()
    })
}

/// Kafka: `Errors#INVALID_REQUEST`.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client library or the message was sent \
                         to an incompatible broker. See the broker logs for more details.";

fn coordinator(
    call: &Call<'_>,
    key_type: i8,
    key: Arc<str>,
) -> Result<find_coordinator_response::Coordinator, Unreadable> {
    let refused = |error: ErrorCode, key| find_coordinator_response::Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code: error.code(),
        error_message: Some(error.message().into()),
        ..Default::default()
    };
    let key_type = match key_type {
        0 => api::CoordinatorType::Group,
        1 => api::CoordinatorType::Transaction,
        // Share groups, which there are not: a batched answer has no text then.
        2 if call.version() >= 4 => {
            let mut answer = refused(ErrorCode::INVALID_REQUEST, key);
            answer.error_message = Some(Arc::default());
            return Ok(answer);
        }
        _ => {
            let mut answer = refused(ErrorCode::INVALID_REQUEST, key);
            answer.error_message = Some(MALFORMED.into());
            return Ok(answer);
        }
    };
    let request = api::FindCoordinatorRequest {
        key: Arc::clone(&key),
        key_type,
    };
    let answer = response!(FindCoordinator, call.ask_now(api::Request::FindCoordinator(request))?)?;
    let endpoint = call.apis.endpoints.iter().find(|e| e.node == answer.node);
    Ok(match endpoint {
        Some(endpoint) if answer.error == ErrorCode::NONE => find_coordinator_response::Coordinator {
            key,
            node_id: answer.node,
            host: endpoint.host.as_str().into(),
            port: i32::from(endpoint.port),
            ..Default::default()
        },
        Some(_) => refused(answer.error, key),
        None => refused(ErrorCode::COORDINATOR_NOT_AVAILABLE, key),
    })
}
