//! ShareFetch, ShareAcknowledge, and the requests of leaders to the share coordinator (KIP-932). Kafka:
//! `KafkaApis#handleShareFetchRequest`, `#handleShareAcknowledgeRequest`, `#handleWriteShareGroupStateRequest`, ..

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::{AclOperation, Broker, ResourceType};
use fletchlog_protocol::messages::{
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse, ReadShareGroupStateRequest, ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, ShareAcknowledgeRequest,
    ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse, WriteShareGroupStateRequest,
    WriteShareGroupStateResponse, delete_share_group_state_response, initialize_share_group_state_response,
    read_share_group_state_response, read_share_group_state_summary_response, share_acknowledge_response,
    share_fetch_response, write_share_group_state_response,
};
use fletchlog_records::ErrorCode;

use super::authorization::Client;
use super::metadata::endpoints_of_leaders;
use super::{CLOSED, Call, Handled, Unreadable, response};

pub(super) fn share_fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ShareFetchRequest = call.message()?;
    let group_id = request.group_id.clone().unwrap_or_default();
    if !call.may_group(AclOperation::Read, &group_id) {
        return call.answer(ShareFetchResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let (broker, client) = (Arc::clone(call.broker()), call.peer.client());
    let mut denied = Vec::new();
    request.topics.retain_mut(|topic| {
        let is_denied = is_denied(&broker, &client, topic.topic_id);
        if is_denied {
            denied.push(std::mem::take(topic));
        }
        !is_denied
    });
    let (granted, reserved) = call.apis.unsent.reserve(request.max_bytes);
    *call.reserved = Some(reserved);
    request.max_bytes = granted;
    if !denied.is_empty() {
        // A refusal does not wait.
        request.max_wait_ms = 0;
    }
    let endpoints = Arc::clone(&call.apis.endpoints);
    call.ask(api::Request::ShareFetch(request), move |answer| {
        let mut answer: ShareFetchResponse = response!(ShareFetch, answer)?;
        if answer.error_code == ErrorCode::NONE {
            answer.responses.extend(denied.into_iter().map(refused_topic));
        }
        let leaders = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let leaders = leaders.filter_map(|p| (p.current_leader.leader_id != 0).then_some(p.current_leader.leader_id));
        let found = endpoints_of_leaders(&broker, &endpoints, leaders).into_iter();
        answer.node_endpoints = found
            .map(|e| share_fetch_response::NodeEndpoint {
                node_id: e.node,
                host: e.host.as_str().into(),
                port: i32::from(e.port),
                rack: broker.rack_of(e.node).cloned(),
            })
            .collect();
        Ok(answer)
    })
}

fn refused_topic(
    topic: fletchlog_protocol::messages::share_fetch_request::FetchTopic,
) -> share_fetch_response::ShareFetchableTopicResponse {
    let partitions = topic.partitions.into_iter();
    let partition = |partition: fletchlog_protocol::messages::share_fetch_request::FetchPartition| {
        let acknowledges = !partition.acknowledgement_batches.is_empty();
        share_fetch_response::PartitionData {
            partition_index: partition.partition_index,
            error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            acknowledge_error_code: match acknowledges {
                true => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                false => ErrorCode::NONE,
            },
            records: Some(bytes::Bytes::new()),
            ..Default::default()
        }
    };
    share_fetch_response::ShareFetchableTopicResponse {
        topic_id: topic.topic_id,
        partitions: partitions.map(partition).collect(),
    }
}

pub(super) fn share_acknowledge(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ShareAcknowledgeRequest = call.message()?;
    let group_id = request.group_id.clone().unwrap_or_default();
    if !call.may_group(AclOperation::Read, &group_id) {
        return call.answer(ShareAcknowledgeResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let (broker, client) = (Arc::clone(call.broker()), call.peer.client());
    let mut denied = Vec::new();
    request.topics.retain_mut(|topic| {
        let is_denied = is_denied(&broker, &client, topic.topic_id);
        if is_denied {
            denied.push(std::mem::take(topic));
        }
        !is_denied
    });
    let answer = call.ask_now(api::Request::ShareAcknowledge(request))?;
    let mut answer: ShareAcknowledgeResponse = response!(ShareAcknowledge, answer)?;
    if answer.error_code == ErrorCode::NONE {
        let refused = denied
            .into_iter()
            .map(|topic| share_acknowledge_response::ShareAcknowledgeTopicResponse {
                topic_id: topic.topic_id,
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| share_acknowledge_response::PartitionData {
                        partition_index: partition.partition_index,
                        error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                        ..Default::default()
                    })
                    .collect(),
            });
        answer.responses.extend(refused);
    }
    let leaders = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let leaders = leaders.filter_map(|p| (p.current_leader.leader_id != 0).then_some(p.current_leader.leader_id));
    let found = endpoints_of_leaders(&broker, &call.apis.endpoints, leaders).into_iter();
    answer.node_endpoints = found
        .map(|e| share_acknowledge_response::NodeEndpoint {
            node_id: e.node,
            host: e.host.as_str().into(),
            port: i32::from(e.port),
            rack: broker.rack_of(e.node).cloned(),
        })
        .collect();
    call.answer(answer)
}

/// Whether the client may not read a topic. An unknown id is not denied: it reveals nothing.
fn is_denied(broker: &Broker, client: &Client, topic_id: [u8; 16]) -> bool {
    if broker.authorizer().is_none() {
        return false;
    }
    match broker.topic_name(topic_id) {
        Ok(Some(name)) => !client.may(broker, AclOperation::Read, ResourceType::Topic, &name),
        Ok(None) => false,
        // The broker is closed.
        Err(_) => true,
    }
}

/// A request of the leader of a partition to the share coordinator. Only brokers may send it.
macro_rules! of_leaders {
    ($($handler:ident $verb:ident $request:ident $response:ident $module:ident $result:ident;)*) => {$(
        pub(super) fn $handler(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
            let request: $request = call.message()?;
            if let Err(error_code) = call.check_cluster(AclOperation::ClusterAction) {
                let results = request.topics.iter().map(|topic| $module::$result {
                    topic_id: topic.topic_id,
                    partitions: topic
                        .partitions
                        .iter()
                        .map(|partition| $module::PartitionResult {
                            partition: partition.partition,
                            error_code,
                            ..Default::default()
                        })
                        .collect(),
                });
                return call.answer($response {
                    results: results.collect(),
                });
            }
            let answer = call.broker().$verb(&request).map_err(|_| CLOSED)?;
            call.answer(answer)
        }
    )*};
}

of_leaders! {
    initialize_share_group_state initialize_state InitializeShareGroupStateRequest InitializeShareGroupStateResponse initialize_share_group_state_response InitializeStateResult;
    read_share_group_state read_state ReadShareGroupStateRequest ReadShareGroupStateResponse read_share_group_state_response ReadStateResult;
    write_share_group_state write_state WriteShareGroupStateRequest WriteShareGroupStateResponse write_share_group_state_response WriteStateResult;
    delete_share_group_state delete_state DeleteShareGroupStateRequest DeleteShareGroupStateResponse delete_share_group_state_response DeleteStateResult;
    read_share_group_state_summary read_state_summary ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse read_share_group_state_summary_response ReadStateSummaryResult;
}
