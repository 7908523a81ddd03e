//! Reading and administration of a cluster. Kafka: `KafkaAdminClient`.
//!
//! Each call waits for its answers. A request that is lost, that has no answer within request.timeout.ms, or that a broker refuses for
//! the moment, is repeated after retry.backoff.ms, at the next node if any node will do, until default.api.timeout.ms is over. When
//! none of the known nodes gave metadata, those of bootstrap.servers are asked again (metadata.recovery.strategy).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::list_offsets::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP};
use fletchlog_api::{
    Clock, Config, CoordinatorType, ErrorCode, Failure, FindCoordinatorRequest, IsolationLevel, ListOffsetsRequest,
    MetadataRequest, MetadataResponse, NodeId, Request, Response, TopicMetadata, Transport,
};
use fletchlog_records::TopicPartition;
use fletchlog_wire::messages::describe_groups_response::DescribedGroup;
use fletchlog_wire::messages::list_groups_response::ListedGroup;
use fletchlog_wire::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse,
    create_topics_request, delete_topics_request, describe_configs_request,
};
use fletchlog_wire::{ApiKey, Message, Reader};

use crate::tcp_transport::{ConnectionSettings, TcpTransport};

mod verbs;

/// How long a wait may go on before the caller is asked whether to stop, ms.
const INTERRUPT_CHECK_MS: i64 = 50;
/// First version of DeleteTopics whose topics are structs.
const TOPIC_STATES: i16 = 6;
/// Kafka: `ConfigResource.Type#TOPIC`.
const TOPIC_RESOURCE: i8 = 2;
/// Kafka: `DescribeConfigsResponse.ConfigSource#TOPIC_CONFIG`.
const OF_THE_TOPIC: i8 = 1;

/// Asked about every 50 ms; true = stop.
pub type Interrupt<'a> = &'a mut dyn FnMut() -> bool;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// A broker refused it.
    #[error("{1}")]
    Refused(ErrorCode, String),
    /// default.api.timeout.ms is over. With the last failure.
    #[error("no answer within {0} ms (default.api.timeout.ms): {1}")]
    TimedOut(i64, String),
    /// The brokers cannot do it, or their answer cannot be understood.
    #[error("{0}")]
    Failed(Failure),
    /// The caller wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A partition of a topic and its offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// Number.
    pub partition: i32,
    /// Node that leads it.
    pub leader: NodeId,
    /// First readable offset.
    pub log_start_offset: i64,
    /// End for read_uncommitted.
    pub high_watermark: i64,
    /// End for read_committed.
    pub last_stable_offset: i64,
}

/// A topic.
#[derive(Debug, Clone)]
pub struct TopicOffsets {
    /// As the metadata has it.
    pub topic: TopicMetadata,
    /// Ascending.
    pub partitions: Vec<PartitionOffsets>,
}

/// Why an attempt failed.
enum Stop {
    /// Another attempt may succeed.
    Again(String),
    /// No attempt will.
    Final(AdminError),
}

/// See the module.
pub struct AdminClient {
    transport: TcpTransport,
    clock: Arc<dyn Clock>,
    limit_ms: i64,
    request_timeout_ms: i64,
    retry_backoff_ms: i64,
    next_id: i32,
    /// Nodes that may be asked for anything, the next one first.
    nodes: Vec<NodeId>,
    /// Attempts in a row without an answer to a metadata request.
    without_metadata: usize,
    /// metadata.recovery.strategy=rebootstrap.
    rebootstraps: bool,
}

/// One call with its limit.
struct Call<'a, 'b> {
    client: &'a mut AdminClient,
    until_ms: i64,
    stop: Interrupt<'b>,
}

impl AdminClient {
    /// Connects with the first call. The properties are those of a consumer.
    ///
    /// # Errors
    /// The system gives no selector.
    pub fn new(settings: ConnectionSettings, config: &Config, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let transport = TcpTransport::new(settings, Arc::clone(&clock))?;
        Ok(Self {
            nodes: transport.bootstrap(),
            transport,
            clock,
            limit_ms: i64::from(config.int("default.api.timeout.ms")),
            request_timeout_ms: i64::from(config.int("request.timeout.ms")),
            retry_backoff_ms: config.long("retry.backoff.ms"),
            next_id: 0,
            without_metadata: 0,
            rebootstraps: config.text("metadata.recovery.strategy") == "rebootstrap",
        })
    }

    /// Repeats attempts until one succeeds, fails for good, or the time is over.
    fn call<T>(
        &mut self,
        stop: Interrupt<'_>,
        mut attempt: impl FnMut(&mut Call<'_, '_>) -> Result<T, Stop>,
    ) -> Result<T, AdminError> {
        let (limit_ms, backoff_ms) = (self.limit_ms, self.retry_backoff_ms);
        let until_ms = self.clock.monotonic_ms().saturating_add(limit_ms);
        let mut call = Call {
            client: self,
            until_ms,
            stop,
        };
        loop {
            let why = match attempt(&mut call) {
                Ok(value) => return Ok(value),
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Again(why)) => why,
            };
            call.client.turn_to_next_node();
            let again_ms = call.now_ms().saturating_add(backoff_ms);
            if again_ms >= until_ms {
                return Err(AdminError::TimedOut(limit_ms, why));
            }
            while call.now_ms() < again_ms {
                call.wait(again_ms).map_err(|_| AdminError::Interrupted)?;
            }
        }
    }

    /// Kafka: `KafkaAdminClient.MetadataUpdateNodeIdProvider#provide` (KIP-899).
    fn turn_to_next_node(&mut self) {
        self.without_metadata += 1;
        if self.without_metadata < self.nodes.len() || !self.rebootstraps {
            self.nodes.rotate_left(1);
            return;
        }
        self.without_metadata = 0;
        self.nodes = self.transport.bootstrap();
    }

    /// Topics by name; `None`: all.
    ///
    /// # Errors
    /// See [`AdminError`]; a topic that is asked for by name and unknown is refused.
    pub fn topics(
        &mut self,
        names: Option<&[Arc<str>]>,
        stop: Interrupt<'_>,
    ) -> Result<Vec<TopicMetadata>, AdminError> {
        self.call(stop, |call| Ok(call.metadata(names)?.topics))
    }

    /// A topic, the ends of its partitions, and the properties that it has of its own: `None` if the client may not read them
    /// (DESCRIBE_CONFIGS on the topic).
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn describe_topic(
        &mut self,
        name: &str,
        stop: Interrupt<'_>,
    ) -> Result<(TopicOffsets, Option<BTreeMap<String, String>>), AdminError> {
        let described = self.topic_offsets(name, stop)?;
        match self.call(stop, |call| call.topic_config(&described.topic.name)) {
            Err(AdminError::Refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED, why)) => {
                log::debug!("{why}");
                Ok((described, None))
            }
            config => Ok((described, Some(config?))),
        }
    }

    /// A topic and the ends of its partitions.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn topic_offsets(&mut self, name: &str, stop: Interrupt<'_>) -> Result<TopicOffsets, AdminError> {
        self.call(stop, |call| {
            let topic = call.topic(name)?;
            let partitions = call.offsets(&topic)?;
            Ok(TopicOffsets { topic, partitions })
        })
    }

    /// Where records from a time (ms) on can be, by partition: below this offset none has a timestamp at or above it; `i64::MAX` if
    /// none has at all. Partitions of which the cluster does not say are left out.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn first_offsets_of_times(
        &mut self,
        name: &str,
        timestamp: i64,
        stop: Interrupt<'_>,
    ) -> Result<BTreeMap<i32, i64>, AdminError> {
        self.call(stop, |call| {
            let topic = call.topic(name)?;
            let mut firsts = BTreeMap::new();
            for (leader, partitions) in by_leader(&topic)? {
                let mut look_up =
                    |timestamp| call.list_offsets(leader, &partitions, timestamp, IsolationLevel::ReadUncommitted);
                let mut found = look_up(timestamp)?;
                // Kafka looks into one segment, which may have none although a later one has: the greatest timestamp
                // of the log decides. A broker before 3.0 does not have it.
                let greatest = match found.values().any(|first| first.offset < 0) {
                    true => match look_up(MAX_TIMESTAMP) {
                        Err(Stop::Final(AdminError::Failed(Failure::UnsupportedVersion(_)))) => BTreeMap::new(),
                        other => other?,
                    },
                    false => BTreeMap::new(),
                };
                for (partition, first) in &mut found {
                    let has_none = |greatest: &Listed| (0..timestamp).contains(&greatest.timestamp);
                    if first.offset < 0 && greatest.get(partition).is_some_and(has_none) {
                        first.offset = i64::MAX;
                    }
                }
                firsts.extend(found.into_iter().map(|(partition, first)| (partition, first.offset)));
            }
            firsts.retain(|_, offset| *offset >= 0);
            Ok(firsts)
        })
    }

    /// Creates a topic and waits until each partition has a leader. A replication factor of -1 is the cluster's default.
    ///
    /// # Errors
    /// See [`AdminError`]; TOPIC_ALREADY_EXISTS and what else a broker refuses.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        config: &[(String, String)],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let names = [Arc::from(name)];
        let configs = config
            .iter()
            .map(|(name, value)| create_topics_request::CreatableTopicConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
            });
        let topic = create_topics_request::CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor,
            configs: configs.collect(),
            ..Default::default()
        };
        let limit_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(&mut *stop, |call| {
            let topic = topic.clone();
            let node = call.any_node()?;
            let response: CreateTopicsResponse =
                call.exchange(node, ApiKey::CreateTopics, move |_| CreateTopicsRequest {
                    topics: vec![topic],
                    timeout_ms: limit_ms,
                    validate_only: false,
                })?;
            let refused = response
                .topics
                .iter()
                .map(|t| (t.error_code, t.error_message.as_deref()));
            checked(&format!("topic {name} was not created"), refused)
        })?;
        self.call(stop, |call| {
            let metadata = call.metadata(None)?;
            let made = metadata.topics.iter().find(|t| t.name == names[0]);
            match made {
                Some(t) if !t.partitions.is_empty() && t.partitions.iter().all(|p| p.leader >= 0) => Ok(()),
                _ => Err(Stop::Again(format!("topic {name} was created and has no leaders yet"))),
            }
        })
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn delete_topic(&mut self, name: &str, stop: Interrupt<'_>) -> Result<(), AdminError> {
        let name: Arc<str> = name.into();
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(stop, |call| {
            let node = call.any_node()?;
            let topic = Arc::clone(&name);
            let response: DeleteTopicsResponse = call.exchange(node, ApiKey::DeleteTopics, move |version| {
                let state = delete_topics_request::DeleteTopicState {
                    name: Some(Arc::clone(&topic)),
                    ..Default::default()
                };
                let (topics, topic_names) = if version >= TOPIC_STATES {
                    (vec![state], Vec::new())
                } else {
                    (Vec::new(), vec![topic])
                };
                DeleteTopicsRequest {
                    topics,
                    topic_names,
                    timeout_ms,
                }
            })?;
            let refused = response
                .responses
                .iter()
                .map(|t| (t.error_code, t.error_message.as_deref()));
            checked(&format!("topic {name} was not deleted"), refused)
        })
    }

    /// The groups of every node, each with the node, by id.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn groups(&mut self, stop: Interrupt<'_>) -> Result<Vec<(ListedGroup, NodeId)>, AdminError> {
        self.call(stop, |call| {
            let mut groups = Vec::new();
            for node in call.metadata(Some(&[]))?.nodes {
                let response: ListGroupsResponse =
                    call.exchange(node, ApiKey::ListGroups, |_| ListGroupsRequest::default())?;
                checked("groups were not listed", [(response.error_code, None)].into_iter())?;
                groups.extend(response.groups.into_iter().map(|group| (group, node)));
            }
            groups.sort_by(|a, b| a.0.group_id.cmp(&b.0.group_id));
            Ok(groups)
        })
    }

    /// A group and its coordinator.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND.
    pub fn describe_group(
        &mut self,
        group_id: &str,
        stop: Interrupt<'_>,
    ) -> Result<(DescribedGroup, NodeId), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let asked = Arc::clone(&id);
            let response: DescribeGroupsResponse =
                call.exchange(node, ApiKey::DescribeGroups, move |_| DescribeGroupsRequest {
                    groups: vec![asked],
                    include_authorized_operations: false,
                })?;
            let Some(group) = response.groups.into_iter().next() else {
                return Err(Stop::Again(format!("node {node} did not describe group {id}")));
            };
            let what = format!("group {id} was not described");
            checked(&what, [(group.error_code, group.error_message.as_deref())].into_iter())?;
            // Before version 6 a group that does not exist is described as Dead.
            if &*group.group_state == "Dead" {
                checked(&what, [(ErrorCode::GROUP_ID_NOT_FOUND.code(), None)].into_iter())?;
            }
            Ok((group, node))
        })
    }
}

impl Call<'_, '_> {
    fn now_ms(&self) -> i64 {
        self.client.clock.monotonic_ms()
    }

    fn any_node(&self) -> Result<NodeId, Stop> {
        let first = self.client.nodes.first().copied();
        first.ok_or_else(|| Stop::Again("no server is known".to_owned()))
    }

    /// Waits for anything, at most until then.
    fn wait(&mut self, until_ms: i64) -> Result<(), Stop> {
        let left = until_ms.saturating_sub(self.now_ms()).clamp(1, INTERRUPT_CHECK_MS);
        self.client.transport.wait(Duration::from_millis(left.unsigned_abs()));
        match (self.stop)() {
            true => Err(Stop::Final(AdminError::Interrupted)),
            false => Ok(()),
        }
    }

    fn new_id(&mut self) -> i32 {
        self.client.next_id = self.client.next_id.checked_add(1).unwrap_or(0);
        self.client.next_id
    }

    /// Any message and its answer.
    fn exchange<Q: Message, A: Message>(
        &mut self,
        node: NodeId,
        api: ApiKey,
        message: impl FnOnce(i16) -> Q + Send + 'static,
    ) -> Result<A, Stop> {
        let id = self.new_id();
        let encode = Box::new(move |w: &mut fletchlog_wire::Writer, version| message(version).encode(w, version));
        self.client.transport.send_message(node, id, api, encode);
        let late_ms = self.late_ms();
        loop {
            if let Some(answer) = self.client.transport.take_body(id) {
                let (version, body) = answer.map_err(|failure| failed(node, failure))?;
                let decoded = A::decode(&mut Reader::new(body), version);
                return decoded.map_err(|error| failed(node, Failure::Malformed(error.to_string().into())));
            }
            self.wait_for_answer(node, late_ms)
                .inspect_err(|_| self.client.transport.forget_body(id))?;
        }
    }

    /// A request that consumers also send.
    fn ask(&mut self, node: NodeId, request: Request) -> Result<Response, Stop> {
        let id = self.new_id();
        self.client.transport.send(node, id, request);
        let late_ms = self.late_ms();
        loop {
            while let Some(completion) = self.client.transport.receive(node) {
                if completion.correlation_id == id {
                    return completion.result.map_err(|failure| failed(node, failure));
                }
            }
            self.wait_for_answer(node, late_ms)?;
        }
    }

    /// When a request that is sent now has waited too long.
    fn late_ms(&self) -> i64 {
        let late_ms = self.now_ms().saturating_add(self.client.request_timeout_ms);
        late_ms.min(self.until_ms)
    }

    /// Kafka: `NetworkClient#handleTimedOutRequests`: the connection of a request that has waited too long is closed.
    fn wait_for_answer(&mut self, node: NodeId, late_ms: i64) -> Result<(), Stop> {
        if self.now_ms() >= late_ms {
            self.client.transport.disconnect(node);
            return Err(failed(node, Failure::TimedOut));
        }
        self.wait(late_ms)
    }

    fn metadata(&mut self, names: Option<&[Arc<str>]>) -> Result<MetadataResponse, Stop> {
        let node = self.any_node()?;
        let request = Request::Metadata(MetadataRequest {
            topics: names.map(<[_]>::to_vec),
            allow_auto_topic_creation: false,
        });
        let Response::Metadata(metadata) = self.ask(node, request)? else {
            return Err(failed(node, Failure::Malformed("another answer than metadata".into())));
        };
        self.client.without_metadata = 0;
        for topic in metadata.topics.iter().filter(|_| names.is_some()) {
            match topic.error {
                ErrorCode::NONE => {}
                ErrorCode::LEADER_NOT_AVAILABLE => {
                    return Err(Stop::Again(format!("topic {}: {}", topic.name, topic.error.message())));
                }
                // Final, although the error is retriable: Kafka's client does not retry it either.
                code => {
                    let why = format!("topic {}: {}", topic.name, code.message());
                    return Err(Stop::Final(AdminError::Refused(code, why)));
                }
            }
        }
        if !metadata.nodes.is_empty() {
            self.client.nodes.clone_from(&metadata.nodes);
        }
        Ok(metadata)
    }

    fn coordinator(&mut self, group_id: &Arc<str>) -> Result<NodeId, Stop> {
        let node = self.any_node()?;
        let lookup = Request::FindCoordinator(FindCoordinatorRequest {
            key: Arc::clone(group_id),
            key_type: CoordinatorType::Group,
        });
        let Response::FindCoordinator(found) = self.ask(node, lookup)? else {
            return Err(failed(
                node,
                Failure::Malformed("another answer than a coordinator".into()),
            ));
        };
        let refused = [(found.error.code(), None)].into_iter();
        checked(&format!("the coordinator of group {group_id} was not found"), refused)?;
        Ok(found.node)
    }

    /// The metadata of a topic.
    fn topic(&mut self, name: &str) -> Result<TopicMetadata, Stop> {
        let topics = self.metadata(Some(&[Arc::from(name)]))?.topics;
        let topic = topics.into_iter().next();
        topic.ok_or_else(|| Stop::Again(format!("the metadata has no topic {name}")))
    }

    /// Starts and ends of a topic's partitions, from their leaders.
    fn offsets(&mut self, topic: &TopicMetadata) -> Result<Vec<PartitionOffsets>, Stop> {
        let mut all = Vec::new();
        for (leader, partitions) in by_leader(topic)? {
            let mut look_up = |timestamp, isolation| self.list_offsets(leader, &partitions, timestamp, isolation);
            let starts = look_up(EARLIEST_TIMESTAMP, IsolationLevel::ReadUncommitted)?;
            let ends = look_up(LATEST_TIMESTAMP, IsolationLevel::ReadUncommitted)?;
            let stable = look_up(LATEST_TIMESTAMP, IsolationLevel::ReadCommitted)?;
            for tp in &partitions {
                let of = |listed: &BTreeMap<i32, Listed>| listed.get(&tp.partition).map_or(-1, |listed| listed.offset);
                all.push(PartitionOffsets {
                    partition: tp.partition,
                    leader,
                    log_start_offset: of(&starts),
                    high_watermark: of(&ends),
                    last_stable_offset: of(&stable),
                });
            }
        }
        all.sort_by_key(|p| p.partition);
        Ok(all)
    }

    fn list_offsets(
        &mut self,
        node: NodeId,
        partitions: &[TopicPartition],
        timestamp: i64,
        isolation_level: IsolationLevel,
    ) -> Result<BTreeMap<i32, Listed>, Stop> {
        let request = Request::ListOffsets(ListOffsetsRequest {
            isolation_level,
            partitions: partitions.iter().map(|tp| (tp.clone(), -1, timestamp)).collect(),
        });
        let Response::ListOffsets(listed) = self.ask(node, request)? else {
            return Err(failed(node, Failure::Malformed("another answer than offsets".into())));
        };
        let mut offsets = BTreeMap::new();
        for p in listed.partitions {
            checked(
                &format!("the offsets of {} were not listed", p.tp),
                [(p.error.code(), None)].into_iter(),
            )?;
            let (timestamp, offset) = (p.timestamp, p.offset);
            offsets.insert(p.tp.partition, Listed { timestamp, offset });
        }
        Ok(offsets)
    }

    /// The properties that a topic has of its own.
    fn topic_config(&mut self, name: &Arc<str>) -> Result<BTreeMap<String, String>, Stop> {
        let node = self.any_node()?;
        let resource = describe_configs_request::DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: Arc::clone(name),
            configuration_keys: None,
        };
        let response: DescribeConfigsResponse =
            self.exchange(node, ApiKey::DescribeConfigs, move |_| DescribeConfigsRequest {
                resources: vec![resource],
                ..Default::default()
            })?;
        let mut config = BTreeMap::new();
        for result in response.results {
            let refused = [(result.error_code, result.error_message.as_deref())].into_iter();
            checked(&format!("the properties of topic {name} were not described"), refused)?;
            let own = result
                .configs
                .into_iter()
                .filter(|entry| entry.config_source == OF_THE_TOPIC);
            config.extend(own.filter_map(|entry| Some((entry.name.to_string(), entry.value?.to_string()))));
        }
        Ok(config)
    }
}

/// A failure of the connection or of the node itself.
fn failed(node: NodeId, failure: Failure) -> Stop {
    match failure {
        Failure::Disconnected | Failure::TimedOut | Failure::NotConnected(_) => {
            Stop::Again(format!("node {node}: {failure}"))
        }
        Failure::SslAuthentication(_)
        | Failure::SaslAuthentication(_)
        | Failure::UnsupportedVersion(_)
        | Failure::Malformed(_) => Stop::Final(AdminError::Failed(failure)),
    }
}

/// What a partition's leader answers to ListOffsets; -1 where there is none.
struct Listed {
    timestamp: i64,
    offset: i64,
}

/// The partitions of a topic by their leaders.
fn by_leader(topic: &TopicMetadata) -> Result<BTreeMap<NodeId, Vec<TopicPartition>>, Stop> {
    let mut by_leader: BTreeMap<NodeId, Vec<TopicPartition>> = BTreeMap::new();
    for p in &topic.partitions {
        if p.leader < 0 {
            return Err(Stop::Again(format!("{}-{} has no leader", topic.name, p.partition)));
        }
        let tp = TopicPartition::new(Arc::clone(&topic.name), p.partition);
        by_leader.entry(p.leader).or_default().push(tp);
    }
    Ok(by_leader)
}

/// The first error of an answer.
fn checked<'a>(what: &str, mut codes: impl Iterator<Item = (i16, Option<&'a str>)>) -> Result<(), Stop> {
    let Some((code, message)) = codes.find(|&(code, _)| code != ErrorCode::NONE.code()) else {
        return Ok(());
    };
    let code = crate::codec::error(code);
    let why = format!("{what}: {}", message.unwrap_or_else(|| code.message()));
    let is_final = !code.is_retriable() || code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    Err(match is_final {
        true => Stop::Final(AdminError::Refused(code, why)),
        false => Stop::Again(why),
    })
}
