//! Produce. Kafka: `KafkaApis#handleProduceRequest`.

use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_records::TopicPartition;
use fletchlog_wire::messages::{ProduceRequest, ProduceResponse, produce_response};

use super::{Call, Handled, Unreadable, by_topic, response};

pub(super) fn produce(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ProduceRequest = call.message()?;
    let acks = request.acks;
    let mut partitions = Vec::new();
    for topic in request.topic_data {
        for partition in topic.partition_data {
            let tp = TopicPartition::new(Arc::clone(&topic.name), partition.index);
            // Kafka never answers a request without records; an empty batch is refused.
            partitions.push((tp, partition.records.unwrap_or_default()));
        }
    }
    let answer = call.ask_now(api::Request::Produce(api::ProduceRequest {
        transactional_id: request.transactional_id,
        acks,
        timeout_ms: request.timeout_ms,
        partitions,
    }))?;
    if acks == 0 {
        return Ok(Handled::NoAnswer);
    }
    let partitions = response!(Produce, answer)?.partitions.into_iter();
    let responses = by_topic(partitions.map(|p| (Arc::clone(&p.tp.topic), partition_response(p))))
        .map(|(name, partition_responses)| produce_response::TopicProduceResponse {
            name,
            partition_responses,
            ..Default::default()
        })
        .collect();
    call.answer(&ProduceResponse {
        responses,
        ..Default::default()
    })
}

fn partition_response(partition: api::ProducePartitionResponse) -> produce_response::PartitionProduceResponse {
    let record_error = |(batch_index, message): (i32, String)| produce_response::BatchIndexAndErrorMessage {
        batch_index,
        batch_index_error_message: Some(message.into()),
    };
    produce_response::PartitionProduceResponse {
        index: partition.tp.partition,
        error_code: partition.error.code(),
        base_offset: partition.base_offset,
        log_append_time_ms: partition.log_append_time_ms,
        log_start_offset: partition.log_start_offset,
        record_errors: partition.record_errors.into_iter().map(record_error).collect(),
        error_message: partition.error_message.map(Into::into),
        ..Default::default()
    }
}
