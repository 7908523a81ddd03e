//! Produce. Kafka: `KafkaApis#handleProduceRequest`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{ProduceRequest, ProduceResponse, produce_request, produce_response};
use fletchlog_records::batch_header::{ATTRIBUTES_POSITION, COMPRESSION_MASK, MAGIC_POSITION, TRANSACTIONAL_MASK};
use fletchlog_records::{Compression, ErrorCode, RecordError, TopicPartition, next_batch_size};

use super::{CLOSED, Call, Handled, Unreadable, by_topic, response};

/// The first version that names topics by their ids alone.
const BY_ID: i16 = 13;
/// The first version that may carry zstd.
const ZSTD: i16 = 7;
/// The first version whose clients know TRANSACTION_ABORTABLE. Kafka: `TransactionSupportedOperation#GENERIC_ERROR_SUPPORTED`.
const ABORTABLE: i16 = 11;

/// The partitions of a request that go to the broker, and those that are refused before.
#[derive(Default)]
struct Asked {
    partitions: Vec<(TopicPartition, Bytes)>,
    /// The index of each partition in `partitions`.
    places: HashMap<TopicPartition, usize>,
    /// Partitions whose first batch is transactional.
    transactional: HashSet<TopicPartition>,
    refused: Vec<(TopicPartition, ErrorCode)>,
    known_refused: HashSet<TopicPartition>,
    /// Why the first batch of a partition is not a batch.
    unreadable: HashMap<TopicPartition, Arc<str>>,
    /// The first batch of a partition has an unknown codec.
    unknown_codec: bool,
    /// Ids of topics, if the request names them by id. An unknown id is used as the topic's name.
    ids: HashMap<Arc<str>, [u8; 16]>,
}

impl Asked {
    fn add_topic(&mut self, call: &Call<'_>, mut topic: produce_request::TopicProduceData) -> Result<(), Unreadable> {
        let mut is_unknown = false;
        if call.version() >= BY_ID {
            let name = call.broker().topic_name(topic.topic_id).map_err(|_| CLOSED)?;
            is_unknown = name.is_none();
            topic.name = name.unwrap_or_else(|| format!("{:032x}", u128::from_be_bytes(topic.topic_id)).into());
            self.ids.insert(Arc::clone(&topic.name), topic.topic_id);
        }
        let is_denied = !is_unknown && !call.may_topic(AclOperation::Write, &topic.name);
        for partition in topic.partition_data {
            let tp = TopicPartition::new(Arc::clone(&topic.name), partition.index);
            // Kafka never responds to null records. Here they count as empty, and empty records are refused.
            let records = partition.records.unwrap_or_default();
            let attributes = attributes(&records);
            if attributes & TRANSACTIONAL_MASK != 0 {
                self.transactional.insert(tp.clone());
            }
            if let Err(RecordError::Corrupt { reason, .. }) = next_batch_size(&records) {
                self.unreadable.insert(tp.clone(), reason.into());
            }
            self.unknown_codec |= !is_denied && codec(attributes).is_none() && is_there(call, &tp);
            if is_unknown {
                self.refuse(tp, ErrorCode::UNKNOWN_TOPIC_ID);
            } else if is_denied {
                self.refuse(tp, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
            } else if call.version() < ZSTD && codec(attributes) == Some(Compression::Zstd) && is_there(call, &tp) {
                self.refuse(tp, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
            } else {
                self.add(tp, records);
            }
        }
        Ok(())
    }

    /// Adds a refused partition, once even if it is named twice.
    fn refuse(&mut self, tp: TopicPartition, error: ErrorCode) {
        if self.known_refused.insert(tp.clone()) {
            self.refused.push((tp, error));
        }
    }

    /// If a partition is named twice, the later records replace the earlier ones, as in Kafka's map.
    fn add(&mut self, tp: TopicPartition, records: Bytes) {
        match self.places.entry(tp) {
            Entry::Occupied(place) => self.partitions[*place.get()].1 = records,
            Entry::Vacant(place) => {
                self.partitions.push((place.key().clone(), records));
                place.insert(self.partitions.len() - 1);
            }
        }
    }

    /// Refuses everything, as an exception in Kafka's handler does.
    fn fail(&mut self, error: ErrorCode) {
        let all = self.partitions.drain(..).map(|(tp, _)| tp);
        let all = all.chain(self.refused.drain(..).map(|(tp, _)| tp));
        self.refused = all.map(|tp| (tp, error)).collect();
    }
}

/// Whether the partition exists. An unknown partition is reported as unknown even if its records are invalid.
fn is_there(call: &Call<'_>, tp: &TopicPartition) -> bool {
    call.broker().replicas_of(tp).is_ok_and(|replicas| replicas.is_some())
}

/// The attributes of the first batch; 0 without a batch, and for an older magic, which is refused later.
fn attributes(records: &[u8]) -> i16 {
    if records.get(MAGIC_POSITION) != Some(&2) {
        return 0;
    }
    let at = records.get(ATTRIBUTES_POSITION..).and_then(<[u8]>::first_chunk);
    at.map_or(0, |bytes| i16::from_be_bytes(*bytes))
}

fn codec(attributes: i16) -> Option<Compression> {
    Compression::from_id(u8::try_from(attributes & COMPRESSION_MASK).unwrap_or_default())
}

pub(super) fn produce(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ProduceRequest = call.message()?;
    let acks = request.acks;
    let mut asked = Asked::default();
    for topic in request.topic_data {
        asked.add_topic(call, topic)?;
    }
    if call.version() < ZSTD && asked.unknown_codec {
        asked.fail(ErrorCode::UNKNOWN_SERVER_ERROR);
    }
    let is_allowed = match &request.transactional_id {
        Some(id) => call.may_transaction(AclOperation::Write, id),
        None => false,
    };
    if !asked.transactional.is_empty() && !is_allowed {
        asked.fail(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    let answer = call.ask_now(api::Request::Produce(api::ProduceRequest {
        transactional_id: request.transactional_id,
        acks,
        timeout_ms: request.timeout_ms,
        partitions: std::mem::take(&mut asked.partitions),
    }))?;
    if acks == 0 {
        return match asked.refused.is_empty() {
            true => Ok(Handled::NoAnswer),
            false => Err(Unreadable::Refused("a batch is refused, and acks=0 has no answer")),
        };
    }
    let version = call.version();
    let appended = response!(Produce, answer)?.partitions.into_iter().map(|mut p| {
        if p.error == ErrorCode::INVALID_TXN_STATE && version >= ABORTABLE && asked.transactional.contains(&p.tp) {
            p.error = ErrorCode::TRANSACTION_ABORTABLE;
        }
        let is_corrupt = p.error == ErrorCode::CORRUPT_MESSAGE;
        let reason = asked.unreadable.remove(&p.tp).filter(|_| is_corrupt);
        let topic = Arc::clone(&p.tp.topic);
        let mut response = partition_response(p);
        response.error_message = reason.or(response.error_message);
        (topic, response)
    });
    let refused = asked.refused.into_iter().map(|(tp, error)| {
        let response = produce_response::PartitionProduceResponse {
            index: tp.partition,
            error_code: error,
            base_offset: -1,
            log_start_offset: -1,
            ..Default::default()
        };
        (tp.topic, response)
    });
    let responses = by_topic(appended.chain(refused))
        .map(|(name, partition_responses)| produce_response::TopicProduceResponse {
            topic_id: asked.ids.get(&name).copied().unwrap_or_default(),
            name,
            partition_responses,
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
    // Kafka's response has a text only if single records are invalid, or the partition is not in the transaction.
    let is_unverified = partition.error == ErrorCode::INVALID_TXN_STATE && partition.log_start_offset == -1;
    let error_message = partition
        .error_message
        .filter(|_| is_unverified || !partition.record_errors.is_empty());
    produce_response::PartitionProduceResponse {
        index: partition.tp.partition,
        error_code: partition.error,
        base_offset: partition.base_offset,
        log_append_time_ms: partition.log_append_time_ms,
        log_start_offset: partition.log_start_offset,
        record_errors: partition.record_errors.into_iter().map(record_error).collect(),
        error_message: error_message.map(Into::into),
        ..Default::default()
    }
}
