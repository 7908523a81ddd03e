//! Fetch. Kafka: `KafkaApis#handleFetchRequest`, `FetchResponse#toMessage`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::{IsolationLevel, NO_TOPIC_ID, topic_by_id, topic_id_of};
use fletchlog_broker::{AclOperation, Broker, ResourceType};
use fletchlog_protocol::messages::{FetchRequest, FetchResponse, fetch_request, fetch_response};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::authorization::Client;
use super::{CLOSED, Call, Handled, Unreadable, response};

/// The first version that names topics by their ids alone.
const BY_ID: i16 = 13;

pub(super) fn fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: FetchRequest = call.message()?;
    let by_id = call.version() >= BY_ID;
    if by_id {
        for topic in &mut request.topics {
            topic.topic = topic_by_id(topic.topic_id);
        }
        for topic in &mut request.forgotten_topics_data {
            topic.topic = topic_by_id(topic.topic_id);
        }
    }
    // If it is not refused, nothing is read, so the level does not matter.
    if matches!(request.isolation_level, IsolationLevel::Other(_)) && any_known(call, &request)? {
        return call.answer(&refused(&request, by_id));
    }
    let (broker, client) = (Arc::clone(call.broker()), call.peer.client());
    let is_denied = request.topics.iter().any(|t| is_denied(&broker, &client, &t.topic));
    let follower = Follower::of(call, &request);
    // Frees the topics of the message, which may be large, before the response is made.
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
        // A refusal does not wait.
        max_wait_ms: if is_denied || follower.is_some() {
            0
        } else {
            request.max_wait_ms
        },
        min_bytes: request.min_bytes,
        max_bytes: granted,
        isolation_level: request.isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        by_topic_ids: by_id,
        partitions,
        forgotten,
        forgotten_by_id: Vec::new(),
    };
    call.ask(api::Request::Fetch(request), move |answer| {
        let mut answer: api::FetchResponse = response!(Fetch, answer)?;
        if by_id {
            answer.partitions.sort_by_key(place);
        }
        if let Some(follower) = follower {
            follower.refuse(&mut answer.partitions);
        }
        hide_denied(&broker, &client, &mut answer.partitions);
        Ok(message(answer))
    })
}

/// A broker that fetches as a follower of the partitions. It is always refused: no broker of another process is a replica.
struct Follower {
    may_follow: bool,
    /// The partitions for which it sent a leader epoch.
    with_epoch: HashSet<TopicPartition>,
}

impl Follower {
    fn of(call: &Call<'_>, request: &FetchRequest) -> Option<Self> {
        if request.replica_id.max(request.replica_state.replica_id) < 0 {
            return None;
        }
        let partitions = request.topics.iter().flat_map(partitions_of);
        let with_epoch = partitions.filter(|p| p.current_leader_epoch >= 0).map(|p| p.tp);
        Some(Self {
            may_follow: call.check_cluster(AclOperation::ClusterAction).is_ok(),
            with_epoch: with_epoch.collect(),
        })
    }

    /// An error of the partition or the epoch takes precedence over the unknown replica. Kafka: `Partition#followerReplicaOrThrow`.
    fn refuse(&self, partitions: &mut [api::FetchPartitionResponse]) {
        for partition in partitions {
            let is_readable = matches!(partition.error, ErrorCode::NONE | ErrorCode::OFFSET_OUT_OF_RANGE);
            let error = match (self.may_follow, is_readable) {
                (false, _) => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                (true, false) => continue,
                (true, true) if self.with_epoch.contains(&partition.tp) => ErrorCode::UNKNOWN_LEADER_EPOCH,
                (true, true) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            };
            fail(partition);
            partition.error = error;
        }
    }
}

/// Whether the client may not read a topic. An unknown topic id is not denied: it reveals nothing.
fn is_denied(broker: &Broker, client: &Client, topic: &Arc<str>) -> bool {
    if broker.authorizer().is_none() {
        return false;
    }
    let name = match topic_id_of(topic).map(|id| broker.topic_name(id)) {
        None => Arc::clone(topic),
        Some(Ok(Some(name))) => name,
        Some(Ok(None)) => return false,
        // The broker is closed.
        Some(Err(_)) => return true,
    };
    !client.may(broker, AclOperation::Read, ResourceType::Topic, &name)
}

/// Sets TOPIC_AUTHORIZATION_FAILED on the partitions that a client may not read, also on those that its session had before.
fn hide_denied(broker: &Broker, client: &Client, partitions: &mut [api::FetchPartitionResponse]) {
    for partition in partitions {
        if is_denied(broker, client, &partition.tp.topic) {
            fail(partition);
            partition.error = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
            partition.aborted_transactions = Some(Vec::new());
        }
    }
}

/// Whether the request names a partition that can be read.
fn any_known(call: &Call<'_>, request: &FetchRequest) -> Result<bool, Unreadable> {
    for topic in &request.topics {
        let name = match topic_id_of(&topic.topic) {
            Some(id) => call.broker().topic_name(id).map_err(|_| CLOSED)?,
            None => Some(Arc::clone(&topic.topic)),
        };
        let Some(name) = name.filter(|name| call.may_topic(AclOperation::Read, name)) else {
            continue;
        };
        for partition in &topic.partitions {
            let tp = TopicPartition::new(Arc::clone(&name), partition.partition);
            if call.broker().replicas_of(&tp).map_err(|_| CLOSED)?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The order of partitions in a response with topic ids: readable ones, unknown ids, unknown partitions. Kafka:
/// `KafkaApis#handleFetchRequest` checks the ids before it checks the partitions.
fn place(partition: &api::FetchPartitionResponse) -> u8 {
    match partition.error {
        ErrorCode::UNKNOWN_TOPIC_ID => 1,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => 2,
        _ => 0,
    }
}

/// Turns a partition's response into that of a failed read, such as one with a negative limit in Kafka.
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

fn partitions_of(topic: &fetch_request::FetchTopic) -> impl Iterator<Item = api::FetchPartition> {
    topic.partitions.iter().map(|p| api::FetchPartition {
        tp: TopicPartition::new(Arc::clone(&topic.topic), p.partition),
        topic_id: NO_TOPIC_ID, // `tp` has the name.
        fetch_offset: p.fetch_offset,
        current_leader_epoch: p.current_leader_epoch,
        last_fetched_epoch: p.last_fetched_epoch,
        partition_max_bytes: p.partition_max_bytes,
    })
}

/// UNKNOWN_SERVER_ERROR for the request and, where topics have names, each of its partitions: Kafka's handler fails on an
/// isolation level that it does not know.
fn refused(request: &FetchRequest, by_id: bool) -> FetchResponse {
    let error_code = ErrorCode::UNKNOWN_SERVER_ERROR;
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

/// Consecutive partitions of one topic share an entry.
fn message(answer: api::FetchResponse) -> FetchResponse {
    let same_topic = |a: &api::FetchPartitionResponse, b: &api::FetchPartitionResponse| a.tp.topic == b.tp.topic;
    let runs: Vec<(Arc<str>, usize)> = answer
        .partitions
        .chunk_by(same_topic)
        .map(|run| (Arc::clone(&run[0].tp.topic), run.len()))
        .collect();
    let mut partitions = answer.partitions.into_iter();
    let entry = |(topic, len): (Arc<str>, usize)| fetch_response::FetchableTopicResponse {
        topic_id: topic_id_of(&topic).unwrap_or_default(),
        topic,
        partitions: partitions.by_ref().take(len).map(partition_data).collect(),
    };
    let responses = runs.into_iter().map(entry).collect();
    FetchResponse {
        error_code: answer.error,
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
        error_code: partition.error,
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
