//! Produce. Kafka: `KafkaApis#handleProduceRequest`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::TopicId;
use fletchlog_broker::{AclOperation, Broker};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use fletchlog_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use fletchlog_protocol::messages::{ProduceRequest, ProduceResponse};
use fletchlog_records::batch_header::{ATTRIBUTES_POSITION, COMPRESSION_MASK, MAGIC_POSITION, TRANSACTIONAL_MASK};
use fletchlog_records::{Compression, ErrorCode, RecordError, TopicPartition, next_batch_size};

use super::metadata::endpoints_of_leaders;
use super::{CLOSED, Call, Handled, Unreadable, response};

/// The first version that names topics by their ids alone.
const BY_ID: i16 = 13;
/// The first version whose responses name leaders (KIP-951).
const WITH_LEADERS: i16 = 10;
/// The first version that may carry zstd.
const ZSTD: i16 = 7;

/// The partitions of a request that go to the broker, and those that are refused before.
#[derive(Default)]
struct Asked {
    topic_data: Vec<TopicProduceData>,
    /// The indexes of each partition in `topic_data`.
    places: HashMap<TopicPartition, (usize, usize)>,
    /// The first batch of a partition is transactional.
    any_transactional: bool,
    /// With the ids of their topics, if the request names topics by id.
    refused: Vec<(TopicPartition, TopicId, ErrorCode)>,
    known_refused: HashSet<TopicPartition>,
    /// Why the first batch of a partition is not a batch.
    unreadable: HashMap<TopicPartition, Arc<str>>,
    /// The first batch of a partition has an unknown codec.
    unknown_codec: bool,
}

impl Asked {
    /// An unknown id is used as the topic's name.
    fn add_topic(&mut self, call: &Call<'_>, mut topic: TopicProduceData) -> Result<(), Unreadable> {
        let mut is_unknown = false;
        if call.version() >= BY_ID {
            let name = call.broker().topic_name(topic.topic_id).map_err(|_| CLOSED)?;
            is_unknown = name.is_none();
            topic.name = name.unwrap_or_else(|| format!("{:032x}", u128::from_be_bytes(topic.topic_id)).into());
        }
        let is_denied = !is_unknown && !call.may_topic(AclOperation::Write, &topic.name);
        let partitions = std::mem::take(&mut topic.partition_data);
        let (name, topic_id) = (Arc::clone(&topic.name), topic.topic_id);
        self.topic_data.push(topic);
        for partition in partitions {
            let tp = TopicPartition::new(Arc::clone(&name), partition.index);
            let records = partition.records.as_deref().unwrap_or_default();
            let attributes = attributes(records);
            self.any_transactional |= attributes & TRANSACTIONAL_MASK != 0;
            if let Err(RecordError::Corrupt { reason, .. }) = next_batch_size(records) {
                self.unreadable.insert(tp.clone(), reason.into());
            }
            self.unknown_codec |= !is_denied && codec(attributes).is_none() && is_there(call, &tp);
            if is_unknown {
                self.refuse(tp, topic_id, ErrorCode::UNKNOWN_TOPIC_ID);
            } else if is_denied {
                self.refuse(tp, topic_id, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
            } else if call.version() < ZSTD && codec(attributes) == Some(Compression::Zstd) && is_there(call, &tp) {
                self.refuse(tp, topic_id, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
            } else {
                self.add(tp, partition);
            }
        }
        Ok(())
    }

    /// Adds a refused partition, once even if it is named twice.
    fn refuse(&mut self, tp: TopicPartition, topic_id: TopicId, error: ErrorCode) {
        if self.known_refused.insert(tp.clone()) {
            self.refused.push((tp, topic_id, error));
        }
    }

    /// Adds a partition to the last topic. If it is named twice, the later records replace the earlier ones, as in Kafka's map.
    fn add(&mut self, tp: TopicPartition, partition: PartitionProduceData) {
        let last = self.topic_data.len() - 1;
        let (topic, at) = *self
            .places
            .entry(tp)
            .or_insert((last, self.topic_data[last].partition_data.len()));
        let partitions = &mut self.topic_data[topic].partition_data;
        match partitions.get_mut(at) {
            Some(earlier) => *earlier = partition,
            None => partitions.push(partition),
        }
    }

    /// What the client gets of the broker's response for a partition.
    fn response(&mut self, tp: &TopicPartition, mut response: PartitionProduceResponse) -> PartitionProduceResponse {
        // Kafka's response has a text only if single records are invalid, or the partition is not in the transaction.
        let is_unverified = response.error_code == ErrorCode::INVALID_TXN_STATE && response.log_start_offset == -1;
        if !is_unverified && response.record_errors.is_empty() {
            response.error_message = None;
        }
        if response.error_code == ErrorCode::CORRUPT_MESSAGE
            && let Some(reason) = self.unreadable.remove(tp)
        {
            response.error_message = Some(reason);
        }
        response
    }

    /// The topics of the response to the client: what the broker was asked for, then what was refused before.
    fn responses(mut self, answer: ProduceResponse) -> Vec<TopicProduceResponse> {
        let refused = std::mem::take(&mut self.refused).into_iter().map(|(tp, id, error)| {
            let response = PartitionProduceResponse::refused(tp.partition, error);
            ((tp.topic, id), response)
        });
        let appended = answer.responses.into_iter().flat_map(|topic| {
            let key = (topic.name, topic.topic_id);
            topic.partition_responses.into_iter().map(move |p| (key.clone(), p))
        });
        let appended = appended.map(|((name, id), p)| {
            let tp = TopicPartition::new(name, p.index);
            let response = self.response(&tp, p);
            ((tp.topic, id), response)
        });
        let topic = |((name, topic_id), partition_responses)| TopicProduceResponse {
            name,
            topic_id,
            partition_responses,
        };
        grouped(appended.chain(refused)).into_iter().map(topic).collect()
    }

    /// Refuses everything, as an exception in Kafka's handler does.
    fn fail(&mut self, error: ErrorCode) {
        let all = self.topic_data.drain(..).flat_map(|topic| {
            let of =
                move |p: PartitionProduceData| (TopicPartition::new(Arc::clone(&topic.name), p.index), topic.topic_id);
            topic.partition_data.into_iter().map(of)
        });
        let all = all.chain(self.refused.drain(..).map(|(tp, id, _)| (tp, id)));
        self.refused = all.map(|(tp, id)| (tp, id, error)).collect();
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
    let mut request: ProduceRequest = call.message()?;
    let acks = request.acks;
    let mut asked = Asked::default();
    for topic in std::mem::take(&mut request.topic_data) {
        asked.add_topic(call, topic)?;
    }
    if call.version() < ZSTD && asked.unknown_codec {
        asked.fail(ErrorCode::UNKNOWN_SERVER_ERROR);
    }
    let is_allowed = match &request.transactional_id {
        Some(id) => call.may_transaction(AclOperation::Write, id),
        None => false,
    };
    if asked.any_transactional && !is_allowed {
        asked.fail(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    request.topic_data = std::mem::take(&mut asked.topic_data);
    if acks == 0 {
        call.ask_now(api::Request::Produce(request))?;
        return match asked.refused.is_empty() {
            true => Ok(Handled::NoAnswer),
            false => Err(Unreadable::Refused("a batch is refused, and acks=0 has no answer")),
        };
    }
    let (version, broker, endpoints) = (
        call.version(),
        Arc::clone(call.broker()),
        Arc::clone(&call.apis.endpoints),
    );
    call.ask(api::Request::Produce(request), move |answer| {
        let mut responses = asked.responses(response!(Produce, answer)?);
        let node_endpoints = hint_leaders(version, &broker, &endpoints, &mut responses);
        Ok(ProduceResponse {
            responses,
            node_endpoints,
            ..Default::default()
        })
    })
}

/// The addresses of the leaders that a client should ask instead; an older client does not learn of them.
fn hint_leaders(
    version: i16,
    broker: &Broker,
    endpoints: &[crate::Endpoint],
    responses: &mut [TopicProduceResponse],
) -> Vec<NodeEndpoint> {
    let hints = responses
        .iter_mut()
        .flat_map(|topic| &mut topic.partition_responses)
        .filter(|p| p.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER);
    if version < WITH_LEADERS {
        hints.for_each(|p| p.current_leader = LeaderIdAndEpoch::default());
        return Vec::new();
    }
    let leaders = hints.map(|p| p.current_leader.leader_id);
    let endpoints = endpoints_of_leaders(broker, endpoints, leaders).into_iter();
    let endpoint = |e: &crate::Endpoint| NodeEndpoint {
        node_id: e.node,
        host: e.host.as_str().into(),
        port: i32::from(e.port),
        rack: broker.rack_of(e.node).cloned(),
    };
    endpoints.map(endpoint).collect()
}
