//! Producer ids and transactions. Kafka: `KafkaApis#handleInitProducerIdRequest`, `#handleAddPartitionsToTxnRequest`,
//! `#handleAddOffsetsToTxnRequest`, `#handleEndTxnRequest`.

use std::collections::HashSet;
use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, add_partitions_to_txn_response,
};
use fletchlog_records::ErrorCode;

use super::{Call, Handled, Unreadable, by_topic, response};

/// A client that does not know PRODUCER_FENCED (before version 2; InitProducerId: 4) gets INVALID_PRODUCER_EPOCH.
/// Kafka: KIP-588.
fn fenced_code(error: ErrorCode, version: i16, since: i16) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED if version < since => ErrorCode::INVALID_PRODUCER_EPOCH,
        other => other,
    }
}

/// The first version of AddPartitionsToTxn that only brokers send.
const OF_BROKERS: i16 = 4;

pub(super) fn init_producer_id(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: InitProducerIdRequest = call.message()?;
    let denied = match &request.transactional_id {
        Some(id) if !call.may_transaction(AclOperation::Write, id) => {
            Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        }
        None if !call.may_cluster(AclOperation::IdempotentWrite) && !call.may_write_anywhere() => {
            Some(ErrorCode::CLUSTER_AUTHORIZATION_FAILED)
        }
        _ => None,
    };
    if let Some(error) = denied {
        return call.answer(InitProducerIdResponse {
            error_code: error,
            producer_epoch: -1,
            ..Default::default()
        });
    }
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return call.answer(InitProducerIdResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            producer_epoch: -1,
            ..Default::default()
        });
    }
    let mut answer = response!(InitProducerId, call.ask_now(api::Request::InitProducerId(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 4);
    call.answer(answer)
}

pub(super) fn add_partitions_to_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AddPartitionsToTxnRequest = call.message()?;
    if call.version() >= OF_BROKERS {
        // Brokers are not asked for permissions of transactional ids and topics.
        let answer = match call.check_cluster(AclOperation::ClusterAction) {
            Ok(()) => response!(
                AddPartitionsToTxn,
                call.ask_now(api::Request::AddPartitionsToTxn(request))?
            )?,
            Err(error_code) => AddPartitionsToTxnResponse {
                error_code,
                ..Default::default()
            },
        };
        return call.answer(answer);
    }
    let answer = match refused_partitions(call, &request) {
        Some(refused) => refused,
        None => response!(
            AddPartitionsToTxn,
            call.ask_now(api::Request::AddPartitionsToTxn(request))?
        )?,
    };
    call.answer(added_partitions(answer, call.version()))
}

/// The response, if any partition is refused. A refused transactional id fails all; a refused topic fails its partitions, and the others
/// with OPERATION_NOT_ATTEMPTED.
fn refused_partitions(call: &Call<'_>, request: &AddPartitionsToTxnRequest) -> Option<AddPartitionsToTxnResponse> {
    if !call.may_transaction(AclOperation::Write, &request.v3_and_below_transactional_id) {
        return Some(request.answered(repeat(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)));
    }
    let mut refused = request.answered(repeat(ErrorCode::OPERATION_NOT_ATTEMPTED));
    let mut is_any = false;
    for topic in &mut refused.results_by_topic_v3_and_below {
        if !call.may_topic(AclOperation::Write, &topic.name) {
            for partition in &mut topic.results_by_partition {
                partition.partition_error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
                is_any = true;
            }
        }
    }
    is_any.then_some(refused)
}

/// If a topic or partition is refused, Kafka builds the response from a map of the partitions, which names each once; otherwise it is
/// nested as the request. Kafka: `AddPartitionsToTxnRequest#errorResponseForTransaction`.
fn added_partitions(mut answer: AddPartitionsToTxnResponse, version: i16) -> AddPartitionsToTxnResponse {
    let of_one = [
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ];
    let topics = &mut answer.results_by_topic_v3_and_below;
    let mut results = topics.iter().flat_map(|topic| &topic.results_by_partition);
    if results.any(|result| of_one.contains(&result.partition_error_code)) {
        let mut seen = HashSet::new();
        let results = std::mem::take(topics).into_iter().flat_map(|topic| {
            let name = topic.name;
            let results = topic.results_by_partition.into_iter();
            results.map(move |result| (Arc::clone(&name), result))
        });
        let once = results.filter(|(name, result)| seen.insert((Arc::clone(name), result.partition_index)));
        let once = by_topic(once).map(|(name, results_by_partition)| {
            add_partitions_to_txn_response::AddPartitionsToTxnTopicResult {
                name,
                results_by_partition,
            }
        });
        *topics = once.collect();
    }
    for result in topics.iter_mut().flat_map(|topic| &mut topic.results_by_partition) {
        result.partition_error_code = fenced_code(result.partition_error_code, version, 2);
    }
    answer
}

pub(super) fn add_offsets_to_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AddOffsetsToTxnRequest = call.message()?;
    let denied = if !call.may_transaction(AclOperation::Write, &request.transactional_id) {
        Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    } else if !call.may_group(AclOperation::Read, &request.group_id) {
        Some(ErrorCode::GROUP_AUTHORIZATION_FAILED)
    } else {
        None
    };
    if let Some(error) = denied {
        return call.answer(AddOffsetsToTxnResponse {
            error_code: error,
            ..Default::default()
        });
    }
    let mut answer = response!(AddOffsetsToTxn, call.ask_now(api::Request::AddOffsetsToTxn(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 2);
    call.answer(answer)
}

pub(super) fn end_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: EndTxnRequest = call.message()?;
    if !call.may_transaction(AclOperation::Write, &request.transactional_id) {
        return call.answer(EndTxnResponse {
            error_code: ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let mut answer = response!(EndTxn, call.ask_now(api::Request::EndTxn(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 2);
    call.answer(answer)
}
