//! Produce. Kafka: `KafkaApis#handleProduceRequest`.

use std::collections::HashMap;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_records::{ErrorCode, TopicPartition};
use fletchlog_wire::messages::{ProduceRequest, ProduceResponse, produce_request, produce_response};

use super::{CLOSED, Call, Handled, Unreadable, by_topic, response};

/// The first version that names topics by their ids alone.
const BY_ID: i16 = 13;

pub(super) fn produce(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ProduceRequest = call.message()?;
    let acks = request.acks;
    let mut ids: HashMap<Arc<str>, [u8; 16]> = HashMap::new();
    let mut unknown = Vec::new();
    let mut partitions = Vec::new();
    for mut topic in request.topic_data {
        if call.version() >= BY_ID {
            let Some(name) = call.broker().topic_name(topic.topic_id).map_err(|_| CLOSED)? else {
                unknown.push(unknown_id(&topic));
                continue;
            };
            ids.insert(Arc::clone(&name), topic.topic_id);
            topic.name = name;
        }
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
        return match unknown.is_empty() {
            true => Ok(Handled::NoAnswer),
            false => Err(Unreadable::Refused(
                "it names a topic id that is unknown, and acks=0 has no answer",
            )),
        };
    }
    let partitions = response!(Produce, answer)?.partitions.into_iter();
    let responses = by_topic(partitions.map(|p| (Arc::clone(&p.tp.topic), partition_response(p))))
        .map(|(name, partition_responses)| produce_response::TopicProduceResponse {
            topic_id: ids.get(&name).copied().unwrap_or_default(),
            name,
            partition_responses,
        })
        .chain(unknown)
        .collect();
    call.answer(&ProduceResponse {
        responses,
        ..Default::default()
    })
}

/// UNKNOWN_TOPIC_ID for each partition.
fn unknown_id(topic: &produce_request::TopicProduceData) -> produce_response::TopicProduceResponse {
    let refused = |p: &produce_request::PartitionProduceData| produce_response::PartitionProduceResponse {
        index: p.index,
        error_code: ErrorCode::UNKNOWN_TOPIC_ID.code(),
        base_offset: -1,
        ..Default::default()
    };
    produce_response::TopicProduceResponse {
        topic_id: topic.topic_id,
        partition_responses: topic.partition_data.iter().map(refused).collect(),
        ..Default::default()
    }
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
