//! ShareFetch, ShareAcknowledge, and the requests of leaders to the share coordinator (KIP-932). Kafka:
//! `KafkaApis#handleShareFetchRequest`, `#handleShareAcknowledgeRequest`, `#handleWriteShareGroupStateRequest`, ..

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
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
    let broker = Arc::clone(call.broker());
    request.reader = Some(call.peer.client().into());
    let (granted, reserved) = call.apis.unsent.reserve(request.max_bytes);
    *call.reserved = Some(reserved);
    request.max_bytes = granted;
    let endpoints = Arc::clone(&call.apis.endpoints);
    call.ask(api::Request::ShareFetch(request), move |answer| {
        let mut answer: ShareFetchResponse = response!(ShareFetch, answer)?;
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

pub(super) fn share_acknowledge(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: ShareAcknowledgeRequest = call.message()?;
    let group_id = request.group_id.clone().unwrap_or_default();
    if !call.may_group(AclOperation::Read, &group_id) {
        return call.answer(ShareAcknowledgeResponse {
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let broker = Arc::clone(call.broker());
    request.reader = Some(call.peer.client().into());
    let answer = call.ask_now(api::Request::ShareAcknowledge(request))?;
    let mut answer: ShareAcknowledgeResponse = response!(ShareAcknowledge, answer)?;
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
