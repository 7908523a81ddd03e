//! Metadata and FindCoordinator. Kafka: `KafkaApis#handleTopicMetadataRequest`, `#handleFindCoordinatorRequest`.

use std::collections::HashMap;
use std::sync::Arc;

use fletchlog_api::{
    CoordinatorType, ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
    NodeId,
};
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

use super::KafkaApis;
use crate::BrokerError;
use crate::controller::NewTopic;
use crate::directory::NO_LEADER;
use crate::partition::Partition;
use crate::topic_names;
use crate::topics::Topic;

/// A topic with some of its partitions.
#[derive(Debug)]
pub struct TopicPage {
    /// The topic and these partitions.
    pub topic: MetadataResponseTopic,
    /// Of each of these partitions: the replicas that may lead although they are not in sync, and the last leader of a partition without
    /// one (KIP-966).
    pub eligible: Vec<(Vec<NodeId>, Vec<NodeId>)>,
    /// Number of all its partitions; 0: no such topic.
    pub all: usize,
}

impl KafkaApis {
    /// A Metadata request for topics by name. The brokers of the response have no address: the listener knows it.
    pub(super) fn metadata_response(&self, request: &MetadataRequest) -> Result<MetadataResponse, BrokerError> {
        self.replicas.controller().see_new_topics()?;
        let topics = match &request.topics {
            None => {
                let all: Vec<_> = self.replicas.topic_table().iter().cloned().collect();
                all.iter()
                    .map(|t| self.describe_for_clients(t, &t.partitions))
                    .collect()
            }
            Some(topics) => {
                let names: Vec<&Arc<str>> = topics.iter().filter_map(|topic| topic.name.as_ref()).collect();
                let failed = match request.allow_auto_topic_creation {
                    true => self.auto_create(&names),
                    false => HashMap::new(),
                };
                let error = |name: &Arc<str>| failed.get(name).copied();
                names
                    .into_iter()
                    .map(|name| self.topic_metadata(name, error(name)))
                    .collect()
            }
        };
        let nodes = self.replicas.controller().live_nodes();
        let broker = |&node_id: &NodeId| MetadataResponseBroker {
            node_id,
            rack: self.replicas.controller().rack_of(node_id).cloned(),
            ..Default::default()
        };
        Ok(MetadataResponse {
            brokers: nodes.iter().map(broker).collect(),
            cluster_id: Some(self.replicas.controller().cluster_id().clone()),
            // Any live node passes requests on to the active controller; Kafka names a random one.
            controller_id: nodes.first().copied().unwrap_or(-1),
            topics,
            ..Default::default()
        })
    }

    /// The metadata of a topic with all of its partitions; `failed`: why it was not created.
    fn topic_metadata(&self, name: &Arc<str>, failed: Option<ErrorCode>) -> MetadataResponseTopic {
        let known = self.replicas.topic_table().get(name).cloned();
        if let Some(topic) = known {
            return self.describe_for_clients(&topic, &topic.partitions);
        }
        unknown_topic(name, failed)
    }

    /// The metadata of a topic with at most `most` of its partitions, beginning at partition `from`.
    pub(crate) fn topic_page(&self, name: &Arc<str>, from: usize, most: usize) -> Result<TopicPage, BrokerError> {
        self.replicas.controller().see_new_topics()?;
        let known = self.replicas.topic_table().get(name).cloned();
        let Some(topic) = known else {
            return Ok(TopicPage {
                topic: unknown_topic(name, None),
                eligible: Vec::new(),
                all: 0,
            });
        };
        let all = &topic.partitions;
        let end = from.saturating_add(most).min(all.len());
        let page = all.get(from..end).unwrap_or_default();
        Ok(TopicPage {
            topic: self.describe_for_clients(&topic, page),
            eligible: page.iter().map(|partition| partition.eligible_leaders()).collect(),
            all: all.len(),
        })
    }

    /// Creates the topics that do not exist; returns the errors of those that could not be created. Kafka:
    /// `DefaultAutoTopicCreationManager#creatableTopic`.
    fn auto_create(&self, names: &[&Arc<str>]) -> HashMap<Arc<str>, ErrorCode> {
        if self.replicas.is_read_only() || !self.replicas.config().boolean("auto.create.topics.enable") {
            return HashMap::new();
        }
        let is_missing = |name: &&Arc<str>| {
            topic_names::validate_name(name).is_ok() && self.replicas.topic_table().get(name).is_none()
        };
        let (of_coordinators, of_users): (Vec<&Arc<str>>, Vec<_>) = names
            .iter()
            .copied()
            .filter(is_missing)
            .partition(|name| [topic_names::CONSUMER_OFFSETS, topic_names::TRANSACTION_STATE].contains(&&***name));
        let as_configured = NewTopic::default();
        let new: Vec<_> = of_users.iter().map(|name| (&***name, &as_configured)).collect();
        let created = self
            .replicas
            .controller()
            .create_topics(&new)
            .into_iter()
            .map(|created| created.map(drop));
        let coordinators = of_coordinators.iter().map(|name| match &***name {
            topic_names::CONSUMER_OFFSETS => self.replicas.controller().offsets_topic().map(drop),
            _ => self.replicas.controller().transaction_topic().map(drop),
        });
        let coordinators: Vec<_> = coordinators.collect();
        let results = created.chain(coordinators).zip(of_users.iter().chain(&of_coordinators));
        let mut failed = HashMap::new();
        for (created, name) in results {
            match created {
                Err(error) if error.code() != ErrorCode::TOPIC_ALREADY_EXISTS => {
                    let failures = self.replicas.failures();
                    failures.failed(format_args!("creating topic {name}"), &error);
                    failed.insert(Arc::clone(name), error.code());
                }
                _ => self.replicas.failures().succeeded(|| format!("creating topic {name}")),
            }
        }
        failed
    }

    /// A topic with these of its partitions.
    fn describe_for_clients(&self, topic: &Topic, partitions: &[Arc<Partition>]) -> MetadataResponseTopic {
        let partitions = partitions
            .iter()
            .map(|p| {
                let (replica_nodes, isr_nodes) = p.replicas_and_isr();
                let (leader_id, controller) = (p.leader(), self.replicas.controller());
                let is_offline = |node: &NodeId| !controller.is_up(*node);
                MetadataResponsePartition {
                    error_code: match leader_id {
                        NO_LEADER => ErrorCode::LEADER_NOT_AVAILABLE,
                        _ => ErrorCode::NONE,
                    },
                    partition_index: p.tp().partition,
                    leader_id,
                    leader_epoch: self.replicas.leader_epoch_of(p).unwrap_or_else(|error| {
                        log::warn!("the leader epoch of {} cannot be read now: {error}", p.tp());
                        -1
                    }),
                    offline_replicas: replica_nodes.iter().copied().filter(is_offline).collect(),
                    replica_nodes,
                    isr_nodes,
                }
            })
            .collect();
        MetadataResponseTopic {
            name: Some(topic.name.clone()),
            topic_id: topic.record.id,
            is_internal: topic.is_internal(),
            partitions,
            ..Default::default()
        }
    }

    /// A FindCoordinator request: for each key the leader of the group's partition of `__consumer_offsets`, or of the transactional
    /// id's of `__transaction_state`. The listener adds the addresses.
    pub(super) fn find_coordinator(&self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        let node_of = |key: &Arc<str>| match request.key_type {
            CoordinatorType::Group | CoordinatorType::Other(_) => self.groups.coordinator_of(key),
            CoordinatorType::Share => self.share.coordinator_of(key),
            CoordinatorType::Transaction => self.transactions.coordinator_of(key),
        };
        let coordinators = request.coordinator_keys.iter().map(|key| {
            let node_id = node_of(key);
            Coordinator {
                key: Arc::clone(key),
                node_id,
                error_code: match node_id {
                    NO_LEADER => ErrorCode::COORDINATOR_NOT_AVAILABLE,
                    _ => ErrorCode::NONE,
                },
                ..Default::default()
            }
        });
        FindCoordinatorResponse {
            coordinators: coordinators.collect(),
            ..Default::default()
        }
    }
}

/// The metadata of a topic that does not exist; `failed`: why it was not created.
fn unknown_topic(name: &Arc<str>, failed: Option<ErrorCode>) -> MetadataResponseTopic {
    let error = match topic_names::validate_name(name) {
        Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        Ok(()) => failed.unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    };
    MetadataResponseTopic {
        error_code: error,
        name: Some(name.clone()),
        is_internal: topic_names::is_internal(name),
        ..Default::default()
    }
}
