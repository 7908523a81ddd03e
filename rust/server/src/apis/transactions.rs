//! Producer ids and transactions. Kafka: `KafkaApis#handleInitProducerIdRequest`, `#handleAddPartitionsToTxnRequest`,
//! `#handleAddOffsetsToTxnRequest`, `#handleEndTxnRequest`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_records::{ErrorCode, TopicPartition};
use fletchlog_wire::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, add_partitions_to_txn_response,
};

use super::{Call, Handled, Unreadable, by_topic, response};

/// Before version 2 (InitProducerId: 4) a client does not know PRODUCER_FENCED, and is told INVALID_PRODUCER_EPOCH.
/// Kafka: KIP-588.
fn fenced_code(error: ErrorCode, version: i16, since: i16) -> i16 {
    match error {
        ErrorCode::PRODUCER_FENCED if version < since => ErrorCode::INVALID_PRODUCER_EPOCH.code(),
        other => other.code(),
    }
}

pub(super) fn init_producer_id(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: InitProducerIdRequest = call.message()?;
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return call.answer(&InitProducerIdResponse {
            error_code: ErrorCode::INVALID_REQUEST.code(),
            producer_epoch: -1,
            ..Default::default()
        });
    }
    let request = api::InitProducerIdRequest {
        transactional_id: request.transactional_id,
        transaction_timeout_ms: request.transaction_timeout_ms,
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
    };
    let answer = response!(InitProducerId, call.ask_now(api::Request::InitProducerId(request))?)?;
    call.answer(&InitProducerIdResponse {
        error_code: fenced_code(answer.error, call.version(), 4),
        producer_id: answer.producer_id,
        producer_epoch: answer.producer_epoch,
        ..Default::default()
    })
}

pub(super) fn add_partitions_to_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AddPartitionsToTxnRequest = call.message()?;
    let partitions = request.v3_and_below_topics.iter().flat_map(|topic| {
        let of_topic = topic.partitions.iter();
        of_topic.map(|p| TopicPartition::new(Arc::clone(&topic.name), *p))
    });
    let request = api::AddPartitionsToTxnRequest {
        partitions: partitions.collect(),
        transactional_id: request.v3_and_below_transactional_id,
        producer_id: request.v3_and_below_producer_id,
        producer_epoch: request.v3_and_below_producer_epoch,
    };
    let answer = response!(
        AddPartitionsToTxn,
        call.ask_now(api::Request::AddPartitionsToTxn(request))?
    )?;
    let version = call.version();
    let results = answer.partitions.into_iter().map(|(tp, error)| {
        let result = add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult {
            partition_index: tp.partition,
            partition_error_code: fenced_code(error, version, 2),
        };
        (tp.topic, result)
    });
    let topics = by_topic(results).map(|(name, results_by_partition)| {
        add_partitions_to_txn_response::AddPartitionsToTxnTopicResult {
            name,
            results_by_partition,
        }
    });
    call.answer(&AddPartitionsToTxnResponse {
        results_by_topic_v3_and_below: topics.collect(),
        ..Default::default()
    })
}

pub(super) fn add_offsets_to_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AddOffsetsToTxnRequest = call.message()?;
    let request = api::AddOffsetsToTxnRequest {
        transactional_id: request.transactional_id,
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        group_id: request.group_id,
    };
    let answer = response!(AddOffsetsToTxn, call.ask_now(api::Request::AddOffsetsToTxn(request))?)?;
    call.answer(&AddOffsetsToTxnResponse {
        error_code: fenced_code(answer.error, call.version(), 2),
        ..Default::default()
    })
}

pub(super) fn end_txn(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: EndTxnRequest = call.message()?;
    let request = api::EndTxnRequest {
        transactional_id: request.transactional_id,
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        committed: request.committed,
    };
    let answer = response!(EndTxn, call.ask_now(api::Request::EndTxn(request))?)?;
    call.answer(&EndTxnResponse {
        error_code: fenced_code(answer.error, call.version(), 2),
        ..Default::default()
    })
}
