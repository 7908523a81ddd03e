//! Topics, their properties, offsets and records. Kafka: `KafkaAdminClient`, one method each.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{
    ConfigResource, ErrorCode, Failure, IsolationLevel, ListOffsetsRequest, ListOffsetsResponse, NodeId,
};
use fletchlog_protocol::messages::create_topics_request::CreatableTopic;
use fletchlog_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use fletchlog_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use fletchlog_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, create_partitions_request, delete_records_request, delete_topics_request,
    describe_configs_request, incremental_alter_configs_request,
};
use fletchlog_records::TopicPartition;

use super::{AdminClient, AdminError, Call, Interrupt, PartitionOffsets, Stop, TopicOffsets, checked};

/// Kafka: `ConfigResource.Type#TOPIC`.
const TOPIC_RESOURCE: i8 = 2;
/// Kafka: `DescribeConfigsResponse.ConfigSource#TOPIC_CONFIG`.
const OF_THE_TOPIC: i8 = 1;
/// Kafka: `AlterConfigOp.OpType#SET`.
const SET: i8 = 0;
/// Kafka: `AlterConfigOp.OpType#DELETE`.
const DELETE: i8 = 1;
/// The end of a log. Kafka: `DeleteRecordsRequest.HIGH_WATERMARK`.
const HIGH_WATERMARK: i64 = -1;

/// Kafka: `ConfigResource.Type`.
fn resource_type(of: &ConfigResource) -> i8 {
    match of {
        ConfigResource::Topic(_) => TOPIC_RESOURCE,
        ConfigResource::AllBrokers | ConfigResource::Broker(_) => 4,
        ConfigResource::ClientMetrics(_) => 16,
        ConfigResource::Group(_) => 32,
    }
}

fn resource_name(of: &ConfigResource) -> Arc<str> {
    match of {
        ConfigResource::AllBrokers => "".into(),
        ConfigResource::Broker(node) => node.to_string().into(),
        ConfigResource::Topic(name) | ConfigResource::Group(name) | ConfigResource::ClientMetrics(name) => {
            name.as_str().into()
        }
    }
}

/// For messages.
fn named(of: &ConfigResource) -> String {
    match of {
        ConfigResource::Topic(name) => format!("topic {name}"),
        ConfigResource::AllBrokers => "the nodes".to_owned(),
        ConfigResource::Broker(node) => format!("node {node}"),
        ConfigResource::Group(name) => format!("group {name}"),
        ConfigResource::ClientMetrics(name) => format!("subscription {name}"),
    }
}

impl AdminClient {
    /// Topics by name; `None`: all.
    ///
    /// # Errors
    /// See [`AdminError`]; a topic that is asked for by name and unknown is refused.
    pub fn topics(
        &mut self,
        names: Option<&[Arc<str>]>,
        stop: Interrupt<'_>,
    ) -> Result<Vec<MetadataResponseTopic>, AdminError> {
        self.call(stop, |call| Ok(call.metadata(names)?.topics))
    }

    /// A topic, the ends of its partitions, and the properties that are set for it: `None` if the client may not read them
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
        match self.call(stop, |call| call.topic_config(&described.name)) {
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
            Ok(TopicOffsets {
                name: topic.name.unwrap_or_default(),
                topic_id: topic.topic_id,
                partitions,
            })
        })
    }

    /// Where the records since `timestamp` (ms) begin, by partition: no record below this offset has a timestamp at or above it; `i64::MAX`
    /// if no record has one. Partitions for which the cluster reports no offset are left out.
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
                let mut look_up = |timestamp| {
                    call.offsets_by_partition(leader, &partitions, timestamp, IsolationLevel::ReadUncommitted)
                };
                let mut found = look_up(timestamp)?;
                // Kafka searches one segment, which may have no such record although a later one has: the greatest timestamp of the log
                // decides. A broker before 3.0 does not report it.
                let greatest = match found.values().any(|first| first.offset < 0) {
                    true => match look_up(ListOffsetsRequest::MAX_TIMESTAMP) {
                        Err(Stop::Final(AdminError::Failed(Failure::UnsupportedVersion(_)))) => BTreeMap::new(),
                        other => other?,
                    },
                    false => BTreeMap::new(),
                };
                for (partition, first) in &mut found {
                    let has_none =
                        |greatest: &ListOffsetsPartitionResponse| (0..timestamp).contains(&greatest.timestamp);
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

    /// Creates topics, in one request, and waits until each of their partitions has a leader. Returns the outcome of each, in order. A
    /// replication factor of -1 is the cluster's default.
    ///
    /// # Errors
    /// See [`AdminError`]. Per topic: TOPIC_ALREADY_EXISTS and other errors of a broker.
    pub fn create_topics(
        &mut self,
        topics: &[CreatableTopic],
        stop: Interrupt<'_>,
    ) -> Result<Vec<Result<(), AdminError>>, AdminError> {
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        let mut outcomes: BTreeMap<Arc<str>, Result<(), AdminError>> = BTreeMap::new();
        self.call(&mut *stop, |call| {
            // Another attempt is for those that were not decided.
            let open = topics.iter().filter(|topic| !outcomes.contains_key(&topic.name));
            let request = CreateTopicsRequest {
                topics: open.cloned().collect(),
                timeout_ms,
                validate_only: false,
            };
            let node = call.any_node()?;
            let mut again = Ok(());
            for topic in call.ask(node, request)?.topics {
                let refused = [(topic.error_code, topic.error_message.as_deref())].into_iter();
                let outcome = match checked(&format!("topic {} was not created", topic.name), refused) {
                    Err(Stop::Again(why)) => {
                        again = Err(Stop::Again(why));
                        continue;
                    }
                    Err(Stop::Final(error)) => Err(error),
                    Ok(()) => Ok(()),
                };
                outcomes.insert(topic.name, outcome);
            }
            again
        })?;
        let made = outcomes.iter().filter(|(_, outcome)| outcome.is_ok());
        let made: Vec<Arc<str>> = made.map(|(name, _)| Arc::clone(name)).collect();
        self.wait_for_leaders(&made, stop)?;
        let no_answer = || AdminError::Failed(Failure::Malformed("a topic without an answer".into()));
        let outcome = |topic: &CreatableTopic| outcomes.remove(&topic.name).unwrap_or_else(|| Err(no_answer()));
        Ok(topics.iter().map(outcome).collect())
    }

    fn wait_for_leaders(&mut self, names: &[Arc<str>], stop: Interrupt<'_>) -> Result<(), AdminError> {
        if names.is_empty() {
            return Ok(());
        }
        self.call(stop, |call| {
            let metadata = call.metadata_of_any(Some(names))?;
            let has_leaders = |t: &&MetadataResponseTopic| {
                !t.partitions.is_empty() && t.partitions.iter().all(|p| p.leader().is_some())
            };
            let led = metadata.topics.iter().filter(has_leaders);
            let led: Vec<_> = led.filter_map(|topic| topic.name.as_ref()).collect();
            match names.iter().find(|name| !led.contains(name)) {
                None => Ok(()),
                Some(name) => Err(Stop::Again(format!("topic {name} was created and has no leaders yet"))),
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
            let topic = delete_topics_request::DeleteTopicState {
                name: Some(Arc::clone(&name)),
                ..Default::default()
            };
            let response = call.ask(
                node,
                DeleteTopicsRequest {
                    topics: vec![topic],
                    timeout_ms,
                    ..Default::default()
                },
            )?;
            let refused = response
                .responses
                .iter()
                .map(|t| (t.error_code, t.error_message.as_deref()));
            checked(&format!("topic {name} was not deleted"), refused)
        })
    }

    /// Gives a topic more partitions: `count` in all.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS.
    pub fn create_partitions(
        &mut self,
        topic: &str,
        count: i32,
        validate_only: bool,
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(stop, |call| {
            let node = call.any_node()?;
            let more = create_partitions_request::CreatePartitionsTopic {
                name: topic.into(),
                count,
                assignments: None,
            };
            let response = call.ask(
                node,
                CreatePartitionsRequest {
                    topics: vec![more],
                    timeout_ms,
                    validate_only,
                },
            )?;
            let refused = response
                .results
                .iter()
                .map(|t| (t.error_code, t.error_message.as_deref()));
            checked(&format!("topic {topic} was not given more partitions"), refused)
        })
    }

    /// Changes properties of a resource; `None` removes the value set for it. A node's properties are changed by that node.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST.
    pub fn alter_config(
        &mut self,
        of: &ConfigResource,
        changes: &[(String, Option<String>)],
        validate_only: bool,
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let change = |(name, value): &(String, Option<String>)| incremental_alter_configs_request::AlterableConfig {
            name: name.as_str().into(),
            config_operation: if value.is_some() { SET } else { DELETE },
            value: value.as_deref().map(Arc::from),
        };
        let resource = incremental_alter_configs_request::AlterConfigsResource {
            resource_type: resource_type(of),
            resource_name: resource_name(of),
            configs: changes.iter().map(change).collect(),
        };
        self.call(stop, |call| {
            let node = call.node_for(of)?;
            let resources = vec![resource.clone()];
            let response = call.ask(node, {
                IncrementalAlterConfigsRequest {
                    resources,
                    validate_only,
                }
            })?;
            let refused = response
                .responses
                .iter()
                .map(|r| (r.error_code, r.error_message.as_deref()));
            checked(&format!("{} was not altered", named(of)), refused)
        })
    }

    /// Every property of a resource, by name; `None`: of any node.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn describe_config(
        &mut self,
        of: Option<&ConfigResource>,
        stop: Interrupt<'_>,
    ) -> Result<Vec<DescribeConfigsResourceResult>, AdminError> {
        self.call(stop, |call| {
            let of = match of {
                Some(of) => of.clone(),
                None => ConfigResource::Broker(call.a_broker()?),
            };
            let node = call.node_for(&of)?;
            let resource = describe_configs_request::DescribeConfigsResource {
                resource_type: resource_type(&of),
                resource_name: resource_name(&of),
                configuration_keys: None,
            };
            let response = call.ask(
                node,
                DescribeConfigsRequest {
                    resources: vec![resource],
                    include_synonyms: true,
                    include_documentation: true,
                },
            )?;
            let refused = response
                .results
                .iter()
                .map(|r| (r.error_code, r.error_message.as_deref()));
            checked("properties were not described", refused)?;
            let mut entries: Vec<_> = response.results.into_iter().flat_map(|r| r.configs).collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    /// Moves the start of a log to `before_offset` (`None`: its end), on its leader; returns the new start.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION.
    pub fn delete_records(
        &mut self,
        tp: &TopicPartition,
        before_offset: Option<i64>,
        stop: Interrupt<'_>,
    ) -> Result<i64, AdminError> {
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(stop, |call| {
            let leader = call.leader(tp)?;
            let topic = delete_records_request::DeleteRecordsTopic {
                name: Arc::clone(&tp.topic),
                partitions: vec![delete_records_request::DeleteRecordsPartition {
                    partition_index: tp.partition,
                    offset: before_offset.unwrap_or(HIGH_WATERMARK),
                }],
            };
            let response = call.ask(
                leader,
                DeleteRecordsRequest {
                    topics: vec![topic],
                    timeout_ms,
                },
            )?;
            let deleted = response.topics.iter().flat_map(|t| &t.partitions);
            checked(
                &format!("records of {tp} were not deleted"),
                deleted.clone().map(|p| (p.error_code, None)),
            )?;
            let start = deleted.map(|p| p.low_watermark).next();
            start.ok_or_else(|| Stop::Again(format!("node {leader} did not answer for {tp}")))
        })
    }
}

impl Call<'_, '_> {
    /// The node that serves properties: for those of a node, that node.
    fn node_for(&mut self, of: &ConfigResource) -> Result<NodeId, Stop> {
        match of {
            ConfigResource::Broker(node) => {
                let nodes: Vec<NodeId> = self.metadata(Some(&[]))?.nodes().collect();
                if nodes.contains(node) {
                    return Ok(*node);
                }
                let text = format!("the cluster has no node {node}; its nodes are {nodes:?}");
                Err(Stop::Final(AdminError::Refused(ErrorCode::INVALID_REQUEST, text)))
            }
            _ => self.any_node(),
        }
    }

    /// The metadata of a topic.
    fn topic(&mut self, name: &str) -> Result<MetadataResponseTopic, Stop> {
        let topics = self.metadata(Some(&[Arc::from(name)]))?.topics;
        let topic = topics.into_iter().next();
        topic.ok_or_else(|| Stop::Again(format!("the metadata has no topic {name}")))
    }

    /// Starts and ends of a topic's partitions, from their leaders.
    fn offsets(&mut self, topic: &MetadataResponseTopic) -> Result<Vec<PartitionOffsets>, Stop> {
        let mut all = Vec::new();
        let described: BTreeMap<i32, _> = topic.partitions.iter().map(|p| (p.partition_index, p)).collect();
        for (leader, partitions) in by_leader(topic)? {
            let mut look_up =
                |timestamp, isolation| self.offsets_by_partition(leader, &partitions, timestamp, isolation);
            let starts = look_up(ListOffsetsRequest::EARLIEST_TIMESTAMP, IsolationLevel::ReadUncommitted)?;
            let ends = look_up(ListOffsetsRequest::LATEST_TIMESTAMP, IsolationLevel::ReadUncommitted)?;
            let stable = look_up(ListOffsetsRequest::LATEST_TIMESTAMP, IsolationLevel::ReadCommitted)?;
            for tp in &partitions {
                let of = |listed: &BTreeMap<i32, ListOffsetsPartitionResponse>| {
                    listed.get(&tp.partition).map_or(-1, |listed| listed.offset)
                };
                let described = described.get(&tp.partition);
                all.push(PartitionOffsets {
                    leader_epoch: described.map_or(-1, |p| p.leader_epoch),
                    replicas: described.map(|p| p.replica_nodes.clone()).unwrap_or_default(),
                    isr: described.map(|p| p.isr_nodes.clone()).unwrap_or_default(),
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

    /// The leader's response to ListOffsets, in which each partition has its own error.
    pub(super) fn list_offsets(
        &mut self,
        leader: NodeId,
        partitions: &[TopicPartition],
        timestamp: i64,
        isolation_level: IsolationLevel,
    ) -> Result<ListOffsetsResponse, Stop> {
        let partitions = partitions.iter().map(|tp| {
            let partition = ListOffsetsPartition {
                partition_index: tp.partition,
                timestamp,
                ..Default::default()
            };
            (Arc::clone(&tp.topic), partition)
        });
        let request = ListOffsetsRequest::for_consumer(isolation_level, partitions);
        self.ask(leader, request)
    }

    /// As [`Call::list_offsets`], for partitions of one topic, by number; fails if a partition has an error.
    fn offsets_by_partition(
        &mut self,
        leader: NodeId,
        partitions: &[TopicPartition],
        timestamp: i64,
        isolation_level: IsolationLevel,
    ) -> Result<BTreeMap<i32, ListOffsetsPartitionResponse>, Stop> {
        let mut offsets = BTreeMap::new();
        let listed = self.list_offsets(leader, partitions, timestamp, isolation_level)?;
        for topic in listed.topics {
            for p in topic.partitions {
                checked(
                    &format!("the offsets of {}-{} were not listed", topic.name, p.partition_index),
                    [(p.error_code, None)].into_iter(),
                )?;
                offsets.insert(p.partition_index, p);
            }
        }
        Ok(offsets)
    }

    /// The properties that are set for a topic.
    fn topic_config(&mut self, name: &Arc<str>) -> Result<BTreeMap<String, String>, Stop> {
        let node = self.any_node()?;
        let resource = describe_configs_request::DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: Arc::clone(name),
            configuration_keys: None,
        };
        let response = self.ask(
            node,
            DescribeConfigsRequest {
                resources: vec![resource],
                ..Default::default()
            },
        )?;
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

    fn leader(&mut self, tp: &TopicPartition) -> Result<NodeId, Stop> {
        let topics = self.metadata(Some(&[Arc::clone(&tp.topic)]))?.topics;
        let partitions = topics.iter().flat_map(|t| &t.partitions);
        match partitions
            .clone()
            .find(|p| p.partition_index == tp.partition)
            .map(MetadataResponsePartition::leader)
        {
            Some(Some(leader)) => Ok(leader),
            Some(None) => Err(Stop::Again(format!("{tp} has no leader"))),
            None => {
                let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                Err(Stop::Final(AdminError::Refused(
                    code,
                    format!("{tp}: {}", code.message()),
                )))
            }
        }
    }
}

/// The partitions of a topic by their leaders.
fn by_leader(topic: &MetadataResponseTopic) -> Result<BTreeMap<NodeId, Vec<TopicPartition>>, Stop> {
    let mut by_leader: BTreeMap<NodeId, Vec<TopicPartition>> = BTreeMap::new();
    for p in &topic.partitions {
        let tp = TopicPartition::new(topic.name.clone().unwrap_or_default(), p.partition_index);
        let Some(leader) = p.leader() else {
            return Err(Stop::Again(format!("{tp} has no leader")));
        };
        by_leader.entry(leader).or_default().push(tp);
    }
    Ok(by_leader)
}
