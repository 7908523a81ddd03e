//! Metadata and FindCoordinator. Kafka: `KafkaApis#handleTopicMetadataRequest`, `#handleFindCoordinatorRequest`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_api::NodeId;
use fletchlog_broker::{AclOperation, Broker, CLUSTER_NAME, ResourceType};
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, metadata_request,
    metadata_response,
};
use fletchlog_records::ErrorCode;

use super::{Apis, CLOSED, Call, Handled, Unreadable, response};

/// The first version that can name topics by their ids.
const BY_ID: i16 = 12;

/// The value for operations that were not asked for. Kafka: `MetadataResponse#AUTHORIZED_OPERATIONS_OMITTED`.
pub(super) const OPERATIONS_OMITTED: i32 = i32::MIN;
/// Every operation on a topic, as bits: without an authorizer all are allowed. Kafka: `AclEntry#supportedOperations`.
pub(super) const TOPIC_OPERATIONS: i32 = 3576;
/// Every operation on the cluster, see [`TOPIC_OPERATIONS`].
pub(super) const CLUSTER_OPERATIONS: i32 = 8096;

pub(super) fn metadata(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: MetadataRequest = call.message()?;
    let has_id = |t: &metadata_request::MetadataRequestTopic| t.topic_id != [0; 16] || t.name.is_none();
    if call.version() < BY_ID && request.topics.iter().flatten().any(has_id) {
        return call.answer(refused(request.topics.unwrap_or_default(), ErrorCode::INVALID_REQUEST));
    }
    let has_no_name = |t: &metadata_request::MetadataRequestTopic| t.name.is_none();
    if request.topics.iter().flatten().all(|t| t.topic_id == [0; 16])
        && request.topics.iter().flatten().any(has_no_name)
    {
        // Kafka's handler fails on it.
        return call.answer(refused(
            request.topics.unwrap_or_default(),
            ErrorCode::UNKNOWN_SERVER_ERROR,
        ));
    }
    let mut refused_topics = Vec::new();
    let is_all = request.topics.is_none();
    let names = match request.topics {
        Some(topics) => Some(names(call, topics, &mut refused_topics)?),
        None => None,
    };
    let mut answer = metadata_of(call, names, false)?;
    if is_all {
        answer
            .topics
            .retain(|t| call.may_topic(AclOperation::Describe, t.name.as_deref().unwrap_or_default()));
    }
    if request.allow_auto_topic_creation {
        // Kafka reports the topic as unknown and creates it meanwhile: clients ask again.
        let unknown = answer
            .topics
            .iter()
            .filter(|t| t.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let unknown = unknown.filter_map(|t| t.name.clone());
        let (allowed, denied): (Vec<_>, Vec<_>) = unknown
            .partition(|name| call.may_cluster(AclOperation::Create) || call.may_topic(AclOperation::Create, name));
        let hidden: HashSet<&Arc<str>> = denied.iter().collect();
        answer
            .topics
            .retain(|t| t.name.as_ref().is_none_or(|name| !hidden.contains(name)));
        refused_topics.extend(denied.into_iter().map(|name| denied_topic(Some(name), [0; 16])));
        if !allowed.is_empty() {
            metadata_of(call, Some(allowed), true)?;
        }
    }
    if request.include_topic_authorized_operations {
        for topic in &mut answer.topics {
            let name = topic.name.as_deref().unwrap_or_default();
            topic.topic_authorized_operations = call.authorized_operations(TOPIC_OPERATIONS, ResourceType::Topic, name);
        }
    }
    if request.include_cluster_authorized_operations {
        answer.cluster_authorized_operations =
            call.authorized_operations(CLUSTER_OPERATIONS, ResourceType::Cluster, CLUSTER_NAME);
    }
    answer.brokers = call.apis.brokers();
    answer.topics.extend(refused_topics);
    call.answer(answer)
}

/// The broker's metadata of these topics; `None`: of all.
pub(super) fn metadata_of(
    call: &Call<'_>,
    topics: Option<Vec<Arc<str>>>,
    allow_auto_topic_creation: bool,
) -> Result<MetadataResponse, Unreadable> {
    let request = MetadataRequest::for_topics(topics, allow_auto_topic_creation);
    response!(Metadata, call.ask_now(api::Request::Metadata(request))?)
}

/// The names of the topics, each once. If any topic has an id, names are ignored. An unknown id, and a topic that the client may not see,
/// get an error.
/// Kafka: `KafkaApis#handleTopicMetadataRequest`, `useTopicId`.
fn names(
    call: &Call<'_>,
    topics: Vec<metadata_request::MetadataRequestTopic>,
    refused: &mut Vec<metadata_response::MetadataResponseTopic>,
) -> Result<Vec<Arc<str>>, Unreadable> {
    let by_id = topics.iter().any(|t| t.topic_id != [0; 16]);
    let mut seen = HashSet::new();
    if !by_id {
        let names = topics.into_iter().filter_map(|t| t.name);
        let names = names.filter(|name| seen.insert(Arc::clone(name)));
        let (allowed, denied) = names.partition(|name| call.may_topic(AclOperation::Describe, name));
        let denied: Vec<Arc<str>> = denied;
        refused.extend(denied.into_iter().map(|name| denied_topic(Some(name), [0; 16])));
        return Ok(allowed);
    }
    let mut ids = HashSet::new();
    let mut names = Vec::with_capacity(topics.len());
    let ids = topics
        .into_iter()
        .map(|t| t.topic_id)
        .filter(|id| *id != [0; 16] && ids.insert(*id));
    for id in ids {
        match call.broker().topic_name(id).map_err(|_| CLOSED)? {
            Some(name) if !call.may_topic(AclOperation::Describe, &name) => refused.push(denied_topic(None, id)),
            Some(name) if seen.insert(Arc::clone(&name)) => names.push(name),
            Some(_) => {}
            None => refused.push(refused_topic(ErrorCode::UNKNOWN_TOPIC_ID, None, id)),
        }
    }
    Ok(names)
}

fn denied_topic(name: Option<Arc<str>>, topic_id: [u8; 16]) -> metadata_response::MetadataResponseTopic {
    refused_topic(ErrorCode::TOPIC_AUTHORIZATION_FAILED, name, topic_id)
}

fn refused_topic(
    error: ErrorCode,
    name: Option<Arc<str>>,
    topic_id: [u8; 16],
) -> metadata_response::MetadataResponseTopic {
    metadata_response::MetadataResponseTopic {
        error_code: error,
        name,
        topic_id,
        topic_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    }
}

/// The response to a request that is refused as a whole: versions 10 and 11 have a field for ids, and Kafka's handler does not support it.
/// Kafka: `MetadataRequest#getErrorResponse`.
fn refused(topics: Vec<metadata_request::MetadataRequestTopic>, error: ErrorCode) -> MetadataResponse {
    let refused =
        |t: metadata_request::MetadataRequestTopic| refused_topic(error, Some(t.name.unwrap_or_default()), t.topic_id);
    MetadataResponse {
        error_code: error,
        controller_id: -1,
        topics: topics.into_iter().map(refused).collect(),
        cluster_authorized_operations: OPERATIONS_OMITTED,
        ..Default::default()
    }
}

impl Apis {
    fn brokers(&self) -> Vec<metadata_response::MetadataResponseBroker> {
        let broker = |e: &crate::Endpoint| metadata_response::MetadataResponseBroker {
            node_id: e.node,
            host: e.host.as_str().into(),
            port: i32::from(e.port),
            rack: self.broker.rack_of(e.node).cloned(),
        };
        let live = self.endpoints.iter().filter(|e| !self.broker.is_node_fenced(e.node));
        live.map(broker).collect()
    }
}

/// The addresses of the leaders in a response, each once, in the order in which they come; those of fenced nodes are left out (KIP-951).
/// Kafka: `KafkaApis#getCurrentLeader`.
pub(super) fn endpoints_of_leaders<'a>(
    broker: &Broker,
    endpoints: &'a [crate::Endpoint],
    leaders: impl IntoIterator<Item = NodeId>,
) -> Vec<&'a crate::Endpoint> {
    let mut found: Vec<&crate::Endpoint> = Vec::new();
    for leader in leaders {
        let is_new = found.iter().all(|e| e.node != leader);
        let endpoint = endpoints.iter().find(|e| e.node == leader);
        found.extend(endpoint.filter(|_| is_new && !broker.is_node_fenced(leader)));
    }
    found
}

pub(super) fn find_coordinator(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: FindCoordinatorRequest = call.message()?;
    // In the order of the request: the keys that the broker is not asked for.
    let keys = std::mem::take(&mut request.coordinator_keys);
    let refused: Vec<Option<Coordinator>> = keys
        .iter()
        .map(|key| refused_key(call, request.key_type, key))
        .collect();
    let asked = keys.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    request.coordinator_keys = asked.map(|(key, _)| key).collect();
    let asks_for_group = request.key_type == api::CoordinatorType::Group && !request.coordinator_keys.is_empty();
    if asks_for_group && let Err(error) = call.broker().create_offsets_topic() {
        // A commit will try again, and be told.
        log::warn!("the topic of offsets cannot be created: {error}");
    }
    let found = response!(FindCoordinator, call.ask_now(api::Request::FindCoordinator(request))?)?;
    let mut found = found.coordinators.into_iter().map(|found| addressed(call, found));
    let answer = FindCoordinatorResponse {
        coordinators: refused
            .into_iter()
            .filter_map(|refused| refused.or_else(|| found.next()))
            .collect(),
        ..Default::default()
    };
    call.answer(answer)
}

/// Adds the address of the coordinator's node.
fn addressed(call: &Call<'_>, mut found: Coordinator) -> Coordinator {
    match call.apis.endpoints.iter().find(|e| e.node == found.node_id) {
        Some(endpoint) => {
            found.host = endpoint.host.as_str().into();
            found.port = i32::from(endpoint.port);
            found
        }
        None => {
            let error = ErrorCode::COORDINATOR_NOT_AVAILABLE;
            not_found(&found.key, error, error.message())
        }
    }
}

fn not_found(key: &Arc<str>, error: ErrorCode, text: &str) -> Coordinator {
    Coordinator {
        key: Arc::clone(key),
        node_id: -1,
        port: -1,
        error_code: error,
        error_message: Some(text.into()),
        ..Default::default()
    }
}

/// Kafka: `Errors#INVALID_REQUEST`.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client library or the message was sent \
                         to an incompatible broker. See the broker logs for more details.";

/// Whether the key of a share coordinator is group.id, topic id and number of a partition. Kafka: `SharePartitionKey#validate`.
fn is_share_partition(key: &str) -> bool {
    // The group may have colons.
    let mut parts = key.rsplitn(3, ':');
    let (Some(partition), Some(topic), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    !group.trim().is_empty() && is_topic_id(topic) && partition.parse::<i32>().is_ok()
}

/// Whether it is a topic's id as Kafka writes it: 16 bytes in base64 for URLs. Kafka: `Uuid#fromString`.
fn is_topic_id(text: &str) -> bool {
    let text = text.strip_suffix("==").unwrap_or(text);
    text.len() == 22
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The answer for a key that may not be looked up.
fn refused_key(call: &Call<'_>, key_type: api::CoordinatorType, key: &Arc<str>) -> Option<Coordinator> {
    // A batched response has no text.
    let is_batched = call.version() >= 4;
    let text_of = |text| if is_batched { "" } else { text };
    let (error, text) = match key_type {
        api::CoordinatorType::Group if !call.may_group(AclOperation::Describe, key) => (
            ErrorCode::GROUP_AUTHORIZATION_FAILED,
            text_of("Group authorization failed."),
        ),
        api::CoordinatorType::Transaction if !call.may_transaction(AclOperation::Describe, key) => (
            ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            text_of("Transactional Id authorization failed."),
        ),
        api::CoordinatorType::Group | api::CoordinatorType::Transaction => return None,
        api::CoordinatorType::Share if call.version() >= 6 && is_share_partition(key) => {
            if call.may_cluster(AclOperation::ClusterAction) {
                return None;
            }
            (ErrorCode::CLUSTER_AUTHORIZATION_FAILED, "")
        }
        api::CoordinatorType::Share if is_batched => (ErrorCode::INVALID_REQUEST, ""),
        api::CoordinatorType::Share | api::CoordinatorType::Other(_) => (ErrorCode::INVALID_REQUEST, MALFORMED),
    };
    Some(not_found(key, error, text))
}
