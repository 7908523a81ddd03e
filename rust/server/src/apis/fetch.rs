//! Fetch. Kafka: `KafkaApis#handleFetchRequest`, `FetchResponse#toMessage`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::{IsolationLevel, topic_id_of};
use fletchlog_broker::{AclOperation, Broker, ResourceType};
use fletchlog_protocol::messages::fetch_response::{LeaderIdAndEpoch, NodeEndpoint, PartitionData};
use fletchlog_protocol::messages::{FetchRequest, FetchResponse, fetch_request, fetch_response};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::authorization::Client;
use super::metadata::endpoints_of_leaders;
use super::{CLOSED, Call, Handled, Unreadable, response};

pub(super) fn fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: FetchRequest = call.message()?;
    let by_id = request.topic_ids.by_ids;
    // If it is not refused, nothing is read, so the level does not matter.
    if matches!(request.isolation_level, IsolationLevel::Other(_)) && any_known(call, &request)? {
        return call.answer(refused(&request, by_id));
    }
    let (broker, client) = (Arc::clone(call.broker()), call.peer.client());
    let is_denied = request.topics.iter().any(|t| is_denied(&broker, &client, &t.topic));
    let follower = Follower::of(call, &request);
    // A broker that replicates asks the leader.
    request.topic_ids.leader_only |= follower.is_some();
    let (granted, reserved) = call.apis.unsent.reserve(request.max_bytes);
    *call.reserved = Some(reserved);
    request.max_bytes = granted;
    if is_denied || follower.is_some() {
        // A refusal does not wait.
        request.max_wait_ms = 0;
    }
    let (version, endpoints) = (call.version(), Arc::clone(&call.apis.endpoints));
    call.ask(api::Request::Fetch(request), move |answer| {
        let mut answer: FetchResponse = response!(Fetch, answer)?;
        if by_id {
            answer = in_order_of_ids(answer);
        }
        if let Some(follower) = follower {
            follower.refuse(&mut answer);
        }
        hide_denied(&broker, &client, &mut answer);
        answer
            .responses
            .iter_mut()
            .flat_map(|t| &mut t.partitions)
            .for_each(fail_negative_limit);
        hint_leaders(version, &broker, &endpoints, &mut answer);
        Ok(answer)
    })
}

/// Adds the addresses of the leaders that the client should ask instead; an older client does not learn of them. Kafka:
/// `KafkaApis#processFetchResponse`.
fn hint_leaders(version: i16, broker: &Broker, endpoints: &[crate::Endpoint], answer: &mut FetchResponse) {
    let hints = answer.responses.iter_mut().flat_map(|t| &mut t.partitions);
    let hints = hints.filter(|p| p.error_code != ErrorCode::NONE);
    if version < WITH_LEADERS {
        return hints.for_each(|p| p.current_leader = LeaderIdAndEpoch::default());
    }
    let leaders = hints.map(|p| p.current_leader.leader_id);
    let endpoints = endpoints_of_leaders(broker, endpoints, leaders).into_iter();
    let endpoint = |e: &crate::Endpoint| NodeEndpoint {
        node_id: e.node,
        host: e.host.as_str().into(),
        port: i32::from(e.port),
        rack: broker.rack_of(e.node).cloned(),
    };
    answer.node_endpoints = endpoints.map(endpoint).collect();
}

/// The first version whose responses name leaders (KIP-951).
const WITH_LEADERS: i16 = 16;

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
        let with_epoch = request.partitions().filter(|(_, p)| p.current_leader_epoch >= 0);
        let with_epoch = with_epoch.map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p.partition));
        Some(Self {
            may_follow: call.check_cluster(AclOperation::ClusterAction).is_ok(),
            with_epoch: with_epoch.collect(),
        })
    }

    /// An error of the partition or the epoch takes precedence over the unknown replica. Kafka: `Partition#followerReplicaOrThrow`.
    fn refuse(&self, answer: &mut FetchResponse) {
        for topic in &mut answer.responses {
            for partition in &mut topic.partitions {
                let tp = TopicPartition::new(Arc::clone(&topic.topic), partition.partition_index);
                let is_readable = matches!(partition.error_code, ErrorCode::NONE | ErrorCode::OFFSET_OUT_OF_RANGE);
                let error = match (self.may_follow, is_readable) {
                    (false, _) => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                    (true, false) => continue,
                    (true, true) if self.with_epoch.contains(&tp) => ErrorCode::UNKNOWN_LEADER_EPOCH,
                    (true, true) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                };
                *partition = PartitionData::failed(tp.partition, error);
            }
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
fn hide_denied(broker: &Broker, client: &Client, answer: &mut FetchResponse) {
    let topics = answer.responses.iter_mut();
    for topic in topics.filter(|t| is_denied(broker, client, &t.topic)) {
        for partition in &mut topic.partitions {
            *partition = PartitionData {
                aborted_transactions: Some(Vec::new()),
                ..PartitionData::failed(partition.partition_index, ErrorCode::TOPIC_AUTHORIZATION_FAILED)
            };
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
fn in_order_of_ids(answer: FetchResponse) -> FetchResponse {
    let place = |partition: &PartitionData| match partition.error_code {
        ErrorCode::UNKNOWN_TOPIC_ID => 1,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => 2,
        _ => 0,
    };
    if answer.partitions().map(|(_, p)| place(p)).is_sorted() {
        return answer;
    }
    let (error_code, session_id) = (answer.error_code, answer.session_id);
    let mut partitions: Vec<(TopicPartition, PartitionData)> = answer.into_partitions().collect();
    partitions.sort_by_key(|(_, partition)| place(partition));
    FetchResponse {
        error_code,
        session_id,
        ..FetchResponse::of(partitions)
    }
}

/// Turns the refusal of a negative limit into that of a failed read, as in Kafka.
fn fail_negative_limit(partition: &mut PartitionData) {
    if partition.error_code == ErrorCode::INVALID_REQUEST {
        *partition = PartitionData::failed(partition.partition_index, ErrorCode::UNKNOWN_SERVER_ERROR);
    }
}

/// UNKNOWN_SERVER_ERROR for the request and, where topics have names, each of its partitions: Kafka's handler fails on an
/// isolation level that it does not know.
fn refused(request: &FetchRequest, by_id: bool) -> FetchResponse {
    let error_code = ErrorCode::UNKNOWN_SERVER_ERROR;
    let partition = |p: &fetch_request::FetchPartition| PartitionData {
        aborted_transactions: Some(Vec::new()),
        ..PartitionData::failed(p.partition, error_code)
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
