//! Metadata and FindCoordinator. Kafka: `KafkaApis#handleTopicMetadataRequest`, `#handleFindCoordinatorRequest`.

use std::sync::Arc;

use fletchlog_api::{
    CoordinatorType, ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
    PartitionMetadata, TopicMetadata,
};

use super::KafkaApis;
use crate::BrokerError;
use crate::replica_manager::NewTopic;
use crate::topics::{self, Topic};

impl KafkaApis {
    /// A Metadata request.
    pub(super) fn metadata_response(&self, request: &MetadataRequest) -> Result<MetadataResponse, BrokerError> {
        self.replicas.see_new_topics()?;
        let topics = match &request.topics {
            None => {
                let all: Vec<_> = self.replicas.topic_table().iter().cloned().collect();
                all.iter().map(|t| self.describe_for_clients(t)).collect()
            }
            Some(names) => names
                .iter()
                .map(|name| self.topic_metadata(name, request.allow_auto_topic_creation))
                .collect(),
        };
        Ok(MetadataResponse {
            error: ErrorCode::NONE,
            cluster_id: self.replicas.cluster_id().clone(),
            nodes: self.replicas.nodes(),
            topics,
        })
    }

    fn topic_metadata(&self, name: &Arc<str>, create: bool) -> TopicMetadata {
        let known = self.replicas.topic_table().get(name).cloned();
        if let Some(topic) = known {
            return self.describe_for_clients(&topic);
        }
        let mut error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        if topics::validate_name(name).is_err() {
            error = ErrorCode::INVALID_TOPIC_EXCEPTION;
        } else if create && !self.replicas.is_read_only() && self.replicas.config().boolean("auto.create.topics.enable")
        {
            match self.auto_create(name) {
                Ok(())
                | Err(BrokerError::Kafka {
                    code: ErrorCode::TOPIC_ALREADY_EXISTS,
                    ..
                }) => {
                    self.replicas.failures().succeeded(|| format!("creating topic {name}"));
                    if let Ok(topic) = self.replicas.topic(name) {
                        return self.describe_for_clients(&topic);
                    }
                }
                Err(failed) => {
                    self.replicas
                        .failures()
                        .failed(format_args!("creating topic {name}"), &failed);
                    error = failed.code();
                }
            }
        }
        TopicMetadata {
            error,
            name: name.clone(),
            topic_id: [0; 16],
            is_internal: topics::is_internal(name),
            partitions: Vec::new(),
        }
    }

    /// Kafka: `DefaultAutoTopicCreationManager#creatableTopic`.
    fn auto_create(&self, name: &str) -> Result<(), BrokerError> {
        match name {
            topics::CONSUMER_OFFSETS => self.replicas.offsets_topic().map(drop),
            topics::TRANSACTION_STATE => self.replicas.transaction_topic().map(drop),
            _ => self.replicas.create_user_topic(name, &NewTopic::default()).map(drop),
        }
    }

    fn describe_for_clients(&self, topic: &Topic) -> TopicMetadata {
        let partitions = topic
            .partitions
            .iter()
            .map(|p| PartitionMetadata {
                partition: p.tp().partition,
                leader: p.leader(),
                leader_epoch: self.replicas.leader_epoch_of(p).unwrap_or_else(|error| {
                    log::warn!("the leader epoch of {} cannot be read now: {error}", p.tp());
                    -1
                }),
                replicas: p.replicas().to_vec(),
            })
            .collect();
        TopicMetadata {
            error: ErrorCode::NONE,
            name: topic.name.clone(),
            topic_id: topic.record.id,
            is_internal: topic.is_internal(),
            partitions,
        }
    }

    /// A FindCoordinator request: the leader of the group's partition of `__consumer_offsets`, or of the transactional id's
    /// of `__transaction_state`.
    pub(super) fn find_coordinator(&self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        let node = match request.key_type {
            CoordinatorType::Group => self.groups.coordinator_of(&request.key),
            CoordinatorType::Transaction => self.transactions.coordinator_of(&request.key),
        };
        FindCoordinatorResponse {
            error: ErrorCode::NONE,
            node,
            failure: None,
        }
    }
}
