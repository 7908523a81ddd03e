//! DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers. Kafka: `TransactionCoordinator#handleDescribeTransactions`,
//! `#handleListTransactions`, `ReplicaManager#activeProducerState`,
//! `KafkaApis#handleWriteTxnMarkersRequest`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_api::java_hash;
use fletchlog_broker::{AclOperation, TransactionDescription, TransactionFilter};
use fletchlog_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    ListTransactionsRequest, ListTransactionsResponse, WriteTxnMarkersRequest, describe_producers_response,
    describe_transactions_response, list_transactions_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{CLOSED, Call, Handled, Unreadable, by_topic};

pub(super) fn describe_transactions(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeTransactionsRequest = call.message()?;
    let node = call.peer.port.node();
    let mut room = call.room();
    let states = request.transactional_ids.into_iter().map(|id| {
        if id.is_empty() {
            return Ok(refused(ErrorCode::INVALID_REQUEST, id));
        }
        if !call.may_transaction(AclOperation::Describe, &id) {
            return Ok(refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id));
        }
        Ok(match call.broker().describe_transaction(node, &id) {
            Ok(mut found) => {
                found
                    .partitions
                    .retain(|tp| call.may_topic(AclOperation::Describe, &tp.topic));
                room.take(found.partitions.len() * size_of::<TopicPartition>())?;
                described(found)
            }
            Err(error) => refused(error.code(), id),
        })
    });
    let transaction_states = states.collect::<Result<_, Unreadable>>()?;
    call.answer(DescribeTransactionsResponse {
        transaction_states,
        ..Default::default()
    })
}

fn refused(error: ErrorCode, transactional_id: Arc<str>) -> describe_transactions_response::TransactionState {
    describe_transactions_response::TransactionState {
        error_code: error,
        transactional_id,
        ..Default::default()
    }
}

fn described(found: TransactionDescription) -> describe_transactions_response::TransactionState {
    let partitions = found.partitions.into_iter().map(|tp| (tp.topic, tp.partition));
    describe_transactions_response::TransactionState {
        transactional_id: found.transactional_id,
        transaction_state: found.state.into(),
        transaction_timeout_ms: found.timeout_ms,
        transaction_start_time_ms: found.start_ms,
        producer_id: found.producer_id,
        producer_epoch: found.producer_epoch,
        topics: by_topic(partitions)
            .map(|(topic, partitions)| describe_transactions_response::TopicData { topic, partitions })
            .collect(),
        ..Default::default()
    }
}

pub(super) fn list_transactions(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ListTransactionsRequest = call.message()?;
    let filter = TransactionFilter {
        states: request.state_filters.iter().map(ToString::to_string).collect(),
        producer_ids: request.producer_id_filters,
        duration_ms: (request.duration_filter >= 0).then_some(request.duration_filter),
        pattern: request.transactional_id_pattern.map(|pattern| pattern.to_string()),
    };
    let node = call.peer.port.node();
    call.answer(match call.broker().list_transactions(node, &filter) {
        Ok(listing) => ListTransactionsResponse {
            unknown_state_filters: {
                let once: BTreeSet<String> = listing.unknown_states.into_iter().collect();
                once.into_iter().map(Into::into).collect()
            },
            transaction_states: listing
                .transactions
                .into_iter()
                .filter(|found| call.may_transaction(AclOperation::Describe, &found.transactional_id))
                .map(listed)
                .collect(),
            ..Default::default()
        },
        Err(error) => ListTransactionsResponse {
            error_code: error.code(),
            ..Default::default()
        },
    })
}

fn listed(found: TransactionDescription) -> list_transactions_response::TransactionState {
    list_transactions_response::TransactionState {
        transactional_id: found.transactional_id,
        producer_id: found.producer_id,
        transaction_state: found.state.into(),
    }
}

pub(super) fn describe_producers(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeProducersRequest = call.message()?;
    let mut room = call.room();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|p| {
            let producers = producers_of(call, &TopicPartition::new(Arc::clone(&topic.name), p));
            room.take(size_of_val(&*producers.active_producers))?;
            Ok(producers)
        });
        Ok(describe_producers_response::TopicResponse {
            partitions: partitions.collect::<Result<_, Unreadable>>()?,
            name: Arc::clone(&topic.name),
        })
    });
    let topics = topics.collect::<Result<_, Unreadable>>()?;
    call.answer(DescribeProducersResponse {
        topics,
        ..Default::default()
    })
}

/// Producers in the order of Kafka's table, a Java HashMap by id.
fn in_table_order(known: &[fletchlog_broker::ProducerState]) -> impl Iterator<Item = &fletchlog_broker::ProducerState> {
    let hashes: Vec<i32> = known.iter().map(|p| java_hash::long_hash(p.producer_id)).collect();
    let order = java_hash::walk_order(&hashes, java_hash::DEFAULT_CAPACITY);
    order.into_iter().map(|at| &known[at])
}

fn producers_of(call: &Call<'_>, tp: &TopicPartition) -> describe_producers_response::PartitionResponse {
    let producer = |p: &fletchlog_broker::ProducerState| describe_producers_response::ProducerState {
        producer_id: p.producer_id,
        producer_epoch: i32::from(p.producer_epoch),
        last_sequence: p.last_sequence,
        last_timestamp: p.last_timestamp,
        coordinator_epoch: p.coordinator_epoch,
        current_txn_start_offset: p.current_txn_start_offset,
    };
    if !call.may_topic(AclOperation::Read, &tp.topic) {
        return describe_producers_response::PartitionResponse {
            partition_index: tp.partition,
            error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            error_message: Some("Topic authorization failed.".into()),
            ..Default::default()
        };
    }
    let (error, text, active_producers) = match call.broker().describe_producers(call.peer.port.node(), tp) {
        Ok(known) => (ErrorCode::NONE, None, in_table_order(&known).map(producer).collect()),
        Err(error) => (error.code(), Some(error.kafka_message().into()), Vec::new()),
    };
    // Kafka has a text for an unknown topic, and none for an unknown partition of a topic.
    let is_topic = || call.broker().topic_id(&tp.topic).is_ok_and(|id| id.is_some());
    let is_unknown = error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION && !is_topic();
    let error_message = match (error, is_unknown) {
        (ErrorCode::INVALID_TOPIC_EXCEPTION, _) => text,
        (_, true) => Some("This server does not host this topic-partition.".into()),
        (_, false) => None,
    };
    describe_producers_response::PartitionResponse {
        partition_index: tp.partition,
        error_code: error,
        error_message,
        active_producers,
    }
}

pub(super) fn write_txn_markers(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: WriteTxnMarkersRequest = call.message()?;
    let is_allowed = call.may_cluster(AclOperation::Alter) || call.may_cluster(AclOperation::ClusterAction);
    let answer = match is_allowed {
        true => call.broker().write_txn_markers(call.peer.port.node(), &request),
        false => Ok(request.answered(|_, _| ErrorCode::CLUSTER_AUTHORIZATION_FAILED)),
    };
    call.answer(answer.map_err(|_| CLOSED)?)
}
