//! Producer ids and transactions. Kafka: `KafkaApis#handleInitProducerIdRequest`, `#handleAddPartitionsToTxnRequest`,
//! `#handleAddOffsetsToTxnRequest`, `#handleEndTxnRequest`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, add_partitions_to_txn_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{Call, Handled, Unreadable, by_topic, response};

/// A client that does not know PRODUCER_FENCED (before version 2; InitProducerId: 4) gets INVALID_PRODUCER_EPOCH.
/// Kafka: KIP-588.
fn fenced_code(error: ErrorCode, version: i16, since: i16) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED if version < since => ErrorCode::INVALID_PRODUCER_EPOCH,
        other => other,
    }
}

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
        return call.answer(&InitProducerIdResponse {
            error_code: error,
            producer_epoch: -1,
            ..Default::default()
        });
    }
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return call.answer(&InitProducerIdResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            producer_epoch: -1,
            ..Default::default()
        });
    }
    let mut answer = response!(InitProducerId, call.ask_now(api::Request::InitProducerId(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 4);
    call.answer(&answer)
}

pub(super) fn add_partitions_to_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AddPartitionsToTxnRequest = call.message()?;
    let shape = request.v3_and_below_topics.iter();
    let shape: Vec<_> = shape.map(|t| (Arc::clone(&t.name), t.partitions.len())).collect();
    let partitions = request.v3_and_below_topics.iter().flat_map(|topic| {
        let of_topic = topic.partitions.iter();
        of_topic.map(|p| TopicPartition::new(Arc::clone(&topic.name), *p))
    });
    let partitions: Vec<TopicPartition> = partitions.collect();
    if let Some(refused) = refused_partitions(call, &request.v3_and_below_transactional_id, &partitions) {
        return call.answer(&added_partitions(call.version(), shape, refused));
    }
    let request = api::AddPartitionsToTxnRequest {
        partitions,
        transactional_id: request.v3_and_below_transactional_id,
        producer_id: request.v3_and_below_producer_id,
        producer_epoch: request.v3_and_below_producer_epoch,
    };
    let answer = response!(
        AddPartitionsToTxn,
        call.ask_now(api::Request::AddPartitionsToTxn(request))?
    )?;
    call.answer(&added_partitions(call.version(), shape, answer.partitions))
}

/// The error of each partition, if any is refused. A refused transactional id fails all; a refused topic fails its partitions, and the
/// others with OPERATION_NOT_ATTEMPTED.
fn refused_partitions(
    call: &Call<'_>,
    transactional_id: &str,
    partitions: &[TopicPartition],
) -> Option<Vec<(TopicPartition, ErrorCode)>> {
    let of_all = |error: ErrorCode| partitions.iter().map(|tp| (tp.clone(), error)).collect();
    if !call.may_transaction(AclOperation::Write, transactional_id) {
        return Some(of_all(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED));
    }
    let mut refused: Vec<(TopicPartition, ErrorCode)> = of_all(ErrorCode::OPERATION_NOT_ATTEMPTED);
    let denied = refused
        .iter_mut()
        .filter(|(tp, _)| !call.may_topic(AclOperation::Write, &tp.topic));
    let count = denied
        .map(|(_, error)| *error = ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        .count();
    (count > 0).then_some(refused)
}

/// If a topic or partition is refused, Kafka builds the response from a map of the partitions, which names each once; otherwise from the
/// request's `shape` (names of topics, numbers of partitions). Kafka: `AddPartitionsToTxnRequest#errorResponseForTransaction`.
fn added_partitions(
    version: i16,
    shape: Vec<(Arc<str>, usize)>,
    partitions: Vec<(TopicPartition, ErrorCode)>,
) -> AddPartitionsToTxnResponse {
    let of_one = [
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ];
    let is_map = partitions.iter().any(|(_, error)| of_one.contains(error));
    let mut seen = HashSet::new();
    let partitions = partitions.into_iter();
    let mut results = partitions
        .filter(|(tp, _)| !is_map || seen.insert(tp.clone()))
        .map(|(tp, error)| {
            let result = add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult {
                partition_index: tp.partition,
                partition_error_code: fenced_code(error, version, 2),
            };
            (tp.topic, result)
        });
    let topics: Vec<_> = match is_map {
        true => by_topic(results).collect(),
        false => shape
            .into_iter()
            .map(|(name, count)| (name, results.by_ref().take(count).map(|(_, result)| result).collect()))
            .collect(),
    };
    let topics = topics.into_iter().map(|(name, results_by_partition)| {
        add_partitions_to_txn_response::AddPartitionsToTxnTopicResult {
            name,
            results_by_partition,
        }
    });
    AddPartitionsToTxnResponse {
        results_by_topic_v3_and_below: topics.collect(),
        ..Default::default()
    }
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
        return call.answer(&AddOffsetsToTxnResponse {
            error_code: error,
            ..Default::default()
        });
    }
    let mut answer = response!(AddOffsetsToTxn, call.ask_now(api::Request::AddOffsetsToTxn(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 2);
    call.answer(&answer)
}

pub(super) fn end_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: EndTxnRequest = call.message()?;
    if !call.may_transaction(AclOperation::Write, &request.transactional_id) {
        return call.answer(&EndTxnResponse {
            error_code: ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ..Default::default()
        });
    }
    let mut answer = response!(EndTxn, call.ask_now(api::Request::EndTxn(request))?)?;
    answer.error_code = fenced_code(answer.error_code, call.version(), 2);
    call.answer(&answer)
}
