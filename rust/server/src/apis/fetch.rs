//! Fetch. Kafka: `KafkaApis#handleFetchRequest`, `FetchResponse#toMessage`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::IsolationLevel;
use fletchlog_records::{ErrorCode, TopicPartition};
use fletchlog_wire::messages::{FetchRequest, FetchResponse, fetch_request, fetch_response};

use super::{Call, Handled, Unreadable, response};

pub(super) fn fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: FetchRequest = call.message()?;
    let Some(isolation_level) = isolation_level(request.isolation_level) else {
        return call.answer(&refused(request));
    };
    let partitions = request.topics.iter().flat_map(partitions_of).collect();
    let forgotten = request
        .forgotten_topics_data
        .iter()
        .flat_map(|t| {
            t.partitions
                .iter()
                .map(|p| TopicPartition::new(Arc::clone(&t.topic), *p))
        })
        .collect();
    let request = api::FetchRequest {
        max_wait_ms: request.max_wait_ms,
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        partitions,
        forgotten,
    };
    call.ask(api::Request::Fetch(request), |answer| {
        Ok(message(response!(Fetch, answer)?))
    })
}

/// Kafka: `IsolationLevel#forId`.
pub(super) fn isolation_level(id: i8) -> Option<IsolationLevel> {
    match id {
        0 => Some(IsolationLevel::ReadUncommitted),
        1 => Some(IsolationLevel::ReadCommitted),
        _ => None,
    }
}

fn partitions_of(topic: &fetch_request::FetchTopic) -> impl Iterator<Item = api::FetchPartition> {
    topic.partitions.iter().map(|p| api::FetchPartition {
        tp: TopicPartition::new(Arc::clone(&topic.topic), p.partition),
        fetch_offset: p.fetch_offset,
        current_leader_epoch: p.current_leader_epoch,
        partition_max_bytes: p.partition_max_bytes,
    })
}

/// UNKNOWN_SERVER_ERROR for the request and each of its partitions: Kafka's handler fails on an isolation level that it does not
/// know.
fn refused(request: FetchRequest) -> FetchResponse {
    let error_code = ErrorCode::UNKNOWN_SERVER_ERROR.code();
    let partition = |p: &fetch_request::FetchPartition| fetch_response::PartitionData {
        partition_index: p.partition,
        error_code,
        high_watermark: -1,
        ..Default::default()
    };
    let topic = |t: &fetch_request::FetchTopic| fetch_response::FetchableTopicResponse {
        topic: Arc::clone(&t.topic),
        partitions: t.partitions.iter().map(partition).collect(),
        ..Default::default()
    };
    FetchResponse {
        error_code,
        responses: request.topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

/// Neighbours of one topic share an entry.
fn message(answer: api::FetchResponse) -> FetchResponse {
    let mut responses: Vec<fetch_response::FetchableTopicResponse> = Vec::new();
    for partition in answer.partitions {
        let topic = Arc::clone(&partition.tp.topic);
        let data = partition_data(partition);
        match responses.last_mut().filter(|last| last.topic == topic) {
            Some(last) => last.partitions.push(data),
            None => responses.push(fetch_response::FetchableTopicResponse {
                topic,
                partitions: vec![data],
                ..Default::default()
            }),
        }
    }
    FetchResponse {
        error_code: answer.error.code(),
        session_id: answer.session_id,
        responses,
        ..Default::default()
    }
}

fn partition_data(partition: api::FetchPartitionResponse) -> fetch_response::PartitionData {
    let aborted = |transaction: api::AbortedTransaction| fetch_response::AbortedTransaction {
        producer_id: transaction.producer_id,
        first_offset: transaction.first_offset,
    };
    fetch_response::PartitionData {
        partition_index: partition.tp.partition,
        error_code: partition.error.code(),
        high_watermark: partition.high_watermark,
        last_stable_offset: partition.last_stable_offset,
        log_start_offset: partition.log_start_offset,
        aborted_transactions: partition
            .aborted_transactions
            .map(|all| all.into_iter().map(aborted).collect()),
        records: Some(partition.records),
        ..Default::default()
    }
}
