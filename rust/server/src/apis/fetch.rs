//! Fetch. Kafka: `KafkaApis#handleFetchRequest`, `FetchResponse#toMessage`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::IsolationLevel;
use fletchlog_broker::{AclOperation, Broker, ResourceType};
use fletchlog_records::{ErrorCode, TopicPartition};
use fletchlog_wire::messages::{FetchRequest, FetchResponse, fetch_request, fetch_response};

use super::authorization::Client;
use super::metadata::metadata_of;
use super::{CLOSED, Call, Handled, Unreadable, response};

/// The first version that names topics by their ids alone.
const BY_ID: i16 = 13;

pub(super) fn fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: FetchRequest = call.message()?;
    let by_id = call.version() >= BY_ID;
    let names = by_id.then(|| Arc::clone(&call.peer.topic_names));
    if let Some(names) = &names {
        for topic in &mut request.topics {
            topic.topic = names.resolve(call.broker(), topic.topic_id)?;
        }
        for topic in &mut request.forgotten_topics_data {
            topic.topic = names.resolve(call.broker(), topic.topic_id)?;
        }
    }
    let isolation_level = match isolation_level(request.isolation_level) {
        Some(level) => level,
        None if any_known(call, &request)? => return call.answer(&refused(&request, by_id)),
        // Nothing is read, so the level does not matter.
        None => IsolationLevel::ReadUncommitted,
    };
    let is_denied = request
        .topics
        .iter()
        .any(|t| !t.topic.starts_with(UNKNOWN) && !call.may_topic(AclOperation::Read, &t.topic));
    // The message is large, and freed before the answer is made.
    let topics = std::mem::take(&mut request.topics);
    let partitions = topics.iter().flat_map(partitions_of).collect();
    drop(topics);
    let forgotten = request
        .forgotten_topics_data
        .iter()
        .flat_map(|t| {
            t.partitions
                .iter()
                .map(|p| TopicPartition::new(Arc::clone(&t.topic), *p))
        })
        .collect();
    let (granted, reserved) = call.apis.unsent.reserve(request.max_bytes);
    *call.reserved = Some(reserved);
    let request = api::FetchRequest {
        // A refusal is answered at once.
        max_wait_ms: if is_denied { 0 } else { request.max_wait_ms },
        min_bytes: request.min_bytes,
        max_bytes: granted,
        isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        by_topic_ids: by_id,
        partitions,
        forgotten,
    };
    let broker = Arc::clone(call.broker());
    let client = call.peer.client();
    call.ask(api::Request::Fetch(request), move |answer| {
        let mut answer: api::FetchResponse = response!(Fetch, answer)?;
        if names.is_some() {
            answer.partitions.sort_by_key(place);
        }
        hide_denied(&broker, &client, &mut answer.partitions);
        let mut message = message(answer);
        if let Some(names) = names {
            message
                .responses
                .iter_mut()
                .for_each(|topic| names.put_id(&broker, topic));
        }
        Ok(message)
    })
}

/// Answers TOPIC_AUTHORIZATION_FAILED for what a client may not read, also for partitions that its session had before.
fn hide_denied(broker: &Broker, client: &Client, partitions: &mut [api::FetchPartitionResponse]) {
    for partition in partitions {
        let topic = &partition.tp.topic;
        if !topic.starts_with(UNKNOWN) && !client.may(broker, AclOperation::Read, ResourceType::Topic, topic) {
            fail(partition);
            partition.error = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
            partition.aborted_transactions = Some(Vec::new());
        }
    }
}

/// Whether the request names a partition that can be read.
fn any_known(call: &Call<'_>, request: &FetchRequest) -> Result<bool, Unreadable> {
    let names = request.topics.iter().map(|t| Arc::clone(&t.topic)).collect();
    let known = metadata_of(call, Some(names), false)?;
    let is_known = |topic: &fetch_request::FetchTopic| {
        if !call.may_topic(AclOperation::Read, &topic.topic) {
            return false;
        }
        let of_topic = known.topics.iter().filter(|t| t.name == topic.topic);
        let mut partitions = of_topic.flat_map(|t| &t.partitions);
        partitions.any(|known| topic.partitions.iter().any(|p| p.partition == known.partition))
    };
    Ok(request.topics.iter().any(is_known))
}

/// Where topics have ids, partitions that can be read come first, then unknown ids, then unknown partitions. Kafka:
/// `KafkaApis#handleFetchRequest` looks at the ids before it looks for partitions.
fn place(partition: &api::FetchPartitionResponse) -> u8 {
    match partition.error {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION if partition.tp.topic.starts_with(UNKNOWN) => 1,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => 2,
        _ => 0,
    }
}

/// Kafka's reading fails on a negative limit.
fn fail(partition: &mut api::FetchPartitionResponse) {
    partition.error = ErrorCode::UNKNOWN_SERVER_ERROR;
    (
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
    ) = (-1, -1, -1);
    partition.diverging_epoch = None;
    partition.aborted_transactions = None;
    partition.records = Bytes::new();
}

/// The topics that a connection has named by their ids: the broker's sessions know names. Kafka: `FetchSession#topicNames`.
#[derive(Debug, Default)]
pub(crate) struct TopicNames {
    ids: Mutex<HashMap<Arc<str>, [u8; 16]>>,
}

impl TopicNames {
    /// The name of a topic. An id that no topic has gets a name that no topic can have: the broker answers that it is unknown.
    fn resolve(&self, broker: &Broker, id: [u8; 16]) -> Result<Arc<str>, Unreadable> {
        let known = broker.topic_name(id).map_err(|_| CLOSED)?;
        let name = known.unwrap_or_else(|| format!("{UNKNOWN}{:032x}", u128::from_be_bytes(id)).into());
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(Arc::clone(&name), id);
        Ok(name)
    }

    /// Puts the id that the client uses in place of the name. A topic that has been deleted, or made anew with another id, is
    /// unknown by this id.
    fn put_id(&self, broker: &Broker, topic: &mut fetch_response::FetchableTopicResponse) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        topic.topic_id = ids.get(&topic.topic).copied().unwrap_or_default();
        let is_current = broker
            .topic_name(topic.topic_id)
            .is_ok_and(|name| name.is_some_and(|name| name == topic.topic));
        if is_current {
            return;
        }
        ids.remove(&topic.topic);
        for partition in &mut topic.partitions {
            *partition = unknown_id(partition.partition_index);
        }
    }
}

/// The prefix of a name that is made for an id that no topic has; its hexadecimal digits follow.
const UNKNOWN: char = '\0';

fn unknown_id(partition_index: i32) -> fetch_response::PartitionData {
    fetch_response::PartitionData {
        partition_index,
        error_code: ErrorCode::UNKNOWN_TOPIC_ID.code(),
        high_watermark: -1,
        aborted_transactions: Some(Vec::new()),
        records: Some(Bytes::new()),
        ..Default::default()
    }
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
        last_fetched_epoch: p.last_fetched_epoch,
        partition_max_bytes: p.partition_max_bytes,
    })
}

/// UNKNOWN_SERVER_ERROR for the request and, where topics have names, each of its partitions: Kafka's handler fails on an
/// isolation level that it does not know.
fn refused(request: &FetchRequest, by_id: bool) -> FetchResponse {
    let error_code = ErrorCode::UNKNOWN_SERVER_ERROR.code();
    let partition = |p: &fetch_request::FetchPartition| fetch_response::PartitionData {
        partition_index: p.partition,
        error_code,
        high_watermark: -1,
        aborted_transactions: Some(Vec::new()),
        records: Some(Bytes::new()),
        ..Default::default()
    };
    let topic = |t: &fetch_request::FetchTopic| fetch_response::FetchableTopicResponse {
        topic: Arc::clone(&t.topic),
        partitions: t.partitions.iter().map(partition).collect(),
        ..Default::default()
    };
    let topics = request.topics.iter().filter(|_| !by_id);
    FetchResponse {
        error_code,
        responses: topics.map(topic).collect(),
        ..Default::default()
    }
}

/// Neighbours of one topic share an entry.
fn message(answer: api::FetchResponse) -> FetchResponse {
    let same_topic = |a: &api::FetchPartitionResponse, b: &api::FetchPartitionResponse| a.tp.topic == b.tp.topic;
    let runs: Vec<(Arc<str>, usize)> = answer
        .partitions
        .chunk_by(same_topic)
        .map(|run| (Arc::clone(&run[0].tp.topic), run.len()))
        .collect();
    let mut partitions = answer.partitions.into_iter();
    let entry = |(topic, len)| fetch_response::FetchableTopicResponse {
        topic,
        partitions: partitions.by_ref().take(len).map(partition_data).collect(),
        ..Default::default()
    };
    let responses = runs.into_iter().map(entry).collect();
    FetchResponse {
        error_code: answer.error.code(),
        session_id: answer.session_id,
        responses,
        ..Default::default()
    }
}

fn partition_data(mut partition: api::FetchPartitionResponse) -> fetch_response::PartitionData {
    // a negative limit
    if partition.error == ErrorCode::INVALID_REQUEST {
        fail(&mut partition);
    }
    let aborted = |transaction: api::AbortedTransaction| fetch_response::AbortedTransaction {
        producer_id: transaction.producer_id,
        first_offset: transaction.first_offset,
    };
    let diverging_epoch = partition
        .diverging_epoch
        .map(|(epoch, end_offset)| fetch_response::EpochEndOffset { epoch, end_offset });
    fetch_response::PartitionData {
        partition_index: partition.tp.partition,
        diverging_epoch: diverging_epoch.unwrap_or_default(),
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
