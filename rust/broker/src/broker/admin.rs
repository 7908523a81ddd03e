//! The broker's operations for Kafka's admin tools: topics, partitions, properties, producers, transactions, files. Refusals carry
//! Kafka's code and, where Kafka has one, its text.

use std::sync::Arc;

use fletchlog_api::{ConfigResource, ErrorCode, NodeId};
use fletchlog_log::ProducerState;
use fletchlog_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use fletchlog_records::TopicPartition;

use super::{Broker, only};
use crate::BrokerError;
use crate::config_description::{
    ConfigEntry, describe_all_brokers, describe_broker_config, describe_client_metrics, describe_group_config,
    describe_topic_config,
};
use crate::controller::{AlterConfig, Alteration, ConfigChange, CreatedTopic, MorePartitions, NewTopic};
use crate::features::{Feature, FeatureUpdate};
use crate::kafka_apis::TopicPage;
use crate::log_manager::LogDirDescription;
use crate::metrics::{BrokerMetric, value};
use crate::topic_names::validate_name;
use crate::transaction::{TransactionDescription, TransactionFilter, TransactionListing};

impl Broker {
    /// As [`Broker::create_topic`], with all options of CreateTopics; returns the result of each topic.
    ///
    /// # Errors
    /// `Closed`. Per topic: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_CONFIG, INVALID_PARTITIONS,
    /// INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, `ReadOnly`, `Closed`, storage errors, as for
    /// [`Broker::create_topic`].
    pub fn create_topics(
        &self,
        topics: &[(&str, &NewTopic)],
    ) -> Result<Vec<Result<CreatedTopic, BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self.replicas.controller().create_topics(topics))
    }

    /// Adds partitions to a topic, up to `count` in total. `assignments`: the replica nodes of each new partition, the leader first.
    /// Durable when it returns; clients see the new partitions with their next metadata request.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS unless `count` exceeds the current number, INVALID_REPLICA_ASSIGNMENT,
    /// `ReadOnly`, `Closed`, storage errors, after which nothing has changed.
    pub fn create_partitions(
        &self,
        topic: &str,
        count: i32,
        assignments: Option<&[Vec<NodeId>]>,
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let more = MorePartitions {
            topic: topic.into(),
            count,
            assignments: assignments.map(<[_]>::to_vec),
        };
        only(self.grow_topics(&[more], validate_only)?)
    }

    /// As [`Broker::create_partitions`], for several topics; returns the result of each.
    ///
    /// # Errors
    /// `Closed`.
    pub fn grow_topics(
        &self,
        topics: &[MorePartitions],
        validate_only: bool,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self.replicas.controller().create_partitions(topics, validate_only))
    }

    /// Changes properties of a topic, a node, all nodes, a group or a subscription to client metrics; properties not named stay.
    /// Either all changes are made or none. They are durable and in effect when it returns, also for open logs and listeners.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST (a name twice, no value, a property of a broker that cannot be altered
    /// while it runs), `ReadOnly`, `Closed`, storage errors.
    pub fn alter_config(
        &self,
        resource: &ConfigResource,
        changes: &[AlterConfig],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        let change = ConfigChange::Some(changes.to_vec());
        let resource = resource.clone();
        only(self.altered(&[Alteration { resource, change }], validate_only))
    }

    fn altered(&self, alterations: &[Alteration], validate_only: bool) -> Vec<Result<(), BrokerError>> {
        let results = self.replicas.controller().alter_configs(alterations, validate_only);
        if !self.replicas.controller().all_run() {
            // min.insync.replicas may be another one.
            self.update_high_watermarks(&self.all_partitions());
        }
        results
    }

    /// As [`Broker::alter_config`], for several resources; returns the result of each alteration.
    ///
    /// # Errors
    /// `Closed`.
    pub fn alter_configs(
        &self,
        alterations: &[Alteration],
        validate_only: bool,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let _open = self.enter()?;
        Ok(self.altered(alterations, validate_only))
    }

    /// Every property by name, with its source: of a topic as `node` sees it, of a node, of a group or of a subscription to client
    /// metrics. For all nodes: only the properties that are set.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for a name that no topic can have, `Closed`, storage errors.
    pub fn describe_config(&self, node: NodeId, resource: &ConfigResource) -> Result<Vec<ConfigEntry>, BrokerError> {
        let _open = self.enter()?;
        if let ConfigResource::Topic(name) = resource {
            validate_name(name).map_err(|text| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text))?;
        }
        self.replicas.controller().see_new_topics()?;
        self.replicas.controller().check_node(resource)?;
        let configs = self.replicas.configs();
        Ok(match resource {
            ConfigResource::Topic(name) => {
                let topic = self.replicas.topic(name)?;
                describe_topic_config(&configs, node, &topic.record.config)?
            }
            ConfigResource::AllBrokers => describe_all_brokers(&configs),
            ConfigResource::Broker(node) => describe_broker_config(&configs, *node),
            ConfigResource::Group(_) => describe_group_config(&configs, node, resource),
            ConfigResource::ClientMetrics(_) => describe_client_metrics(&configs, resource),
        })
    }

    /// The nodes, groups and subscriptions to client metrics for which properties are set, in order.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn altered_resources(&self) -> Result<Vec<ConfigResource>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let configs = self.replicas.configs();
        Ok(configs.altered().resources().cloned().collect())
    }

    /// The name of the topic with this id; `None`: no such topic.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topic_name(&self, id: [u8; 16]) -> Result<Option<Arc<str>>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let table = self.replicas.topic_table();
        Ok(table.name_of(&id).cloned())
    }

    /// The metadata of a topic with at most `most` of its partitions, beginning at partition `from`. Kafka:
    /// `KRaftMetadataCache#describeTopicResponse`.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topic_page(&self, name: &Arc<str>, from: usize, most: usize) -> Result<TopicPage, BrokerError> {
        let _open = self.enter()?;
        self.apis.topic_page(name, from, most)
    }

    /// The id of the topic with this name; `None`: no such topic. Opens no log.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topic_id(&self, name: &str) -> Result<Option<[u8; 16]>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let table = self.replicas.topic_table();
        Ok(table.get(name).map(|topic| topic.record.id))
    }

    /// The nodes of a partition's replicas, the preferred leader first; `None`: no such partition. Opens no log.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn replicas_of(&self, tp: &TopicPartition) -> Result<Option<Vec<NodeId>>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let table = self.replicas.topic_table();
        Ok(table.partition(tp).map(|partition| partition.replicas()))
    }

    /// Checks that each of these partitions exists. Opens no log.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION for the first that does not; `Closed`; read-only: the directory has become unreadable.
    pub fn check_partitions<'a>(&self, tps: impl IntoIterator<Item = &'a TopicPartition>) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let table = self.replicas.topic_table();
        let missing = tps.into_iter().find(|tp| table.partition(tp).is_none());
        missing.map_or(Ok(()), |tp| match table.get(&tp.topic) {
            Some(_) => Err(BrokerError::unknown_partition(tp)),
            None => Err(BrokerError::unknown_topic(&tp.topic)),
        })
    }

    /// The producer states of a partition, by producer id.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER if `node` has no replica, `Closed`, storage errors.
    pub fn describe_producers(&self, node: NodeId, tp: &TopicPartition) -> Result<Vec<ProducerState>, BrokerError> {
        let _open = self.enter()?;
        validate_name(&tp.topic).map_err(|text| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text))?;
        self.do_scheduled_work();
        self.replicas.describe_producers(node, tp)
    }

    /// The transactional ids that a node coordinates, by id.
    ///
    /// # Errors
    /// INVALID_REGULAR_EXPRESSION, `Closed`, storage errors.
    pub fn list_transactions(
        &self,
        node: NodeId,
        filter: &TransactionFilter,
    ) -> Result<TransactionListing, BrokerError> {
        let _open = self.enter()?;
        self.transactions.list_transactions(node, filter)
    }

    /// Ends transactions in partitions that `node` leads, whatever their coordinator knows; returns the result of each partition. A
    /// partition that stays open after its transaction is closed in this way.
    ///
    /// # Errors
    /// `Closed`. Per partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH if the partition knows a newer
    /// epoch, TRANSACTION_COORDINATOR_FENCED if it knows a newer coordinator, storage errors.
    pub fn write_txn_markers(
        &self,
        node: NodeId,
        request: &WriteTxnMarkersRequest,
    ) -> Result<WriteTxnMarkersResponse, BrokerError> {
        let _open = self.enter()?;
        Ok(self.transactions.write_txn_markers(node, request))
    }

    /// The level of a feature that is in effect.
    pub fn finalized_level(&self, feature: Feature) -> i16 {
        self.replicas.controller().finalized_level(feature)
    }

    /// The number of changes of levels so far.
    pub fn features_epoch(&self) -> i64 {
        self.replicas.controller().features_epoch()
    }

    /// Changes levels of features: all, or none. Durable and in effect when it returns.
    ///
    /// # Errors
    /// INVALID_UPDATE_VERSION, `ReadOnly`, `Closed`, storage errors.
    pub fn update_features(&self, updates: &[FeatureUpdate], validate_only: bool) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().update_features(updates, validate_only)
    }

    /// Describes one transactional id.
    ///
    /// # Errors
    /// TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR if another node coordinates it, `Closed`, storage errors.
    pub fn describe_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
    ) -> Result<TransactionDescription, BrokerError> {
        let _open = self.enter()?;
        self.transactions.describe_transaction(node, transactional_id)
    }

    /// The broker's metrics under Kafka's names: counts since it was opened, and current sizes. Opens no log.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn metrics(&self) -> Result<Vec<BrokerMetric>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let dirs = self.logs.describe_log_dirs()?;
        let size = dirs
            .iter()
            .flat_map(|dir| &dir.partitions)
            .map(|(_, bytes)| bytes)
            .sum();
        let topics = self.replicas.topic_table();
        let partitions: usize = topics.iter().map(|topic| topic.partitions.len()).sum();
        let held = [
            ("global-topic-count", value(topics.iter().count() as u64)),
            ("global-partition-count", value(partitions as u64)),
            ("log-size", value(size)),
        ];
        drop(topics);
        let groups = ("group-count", value(self.groups.groups()?.len() as u64));
        Ok(self
            .replicas
            .metrics()
            .into_iter()
            .chain(held)
            .chain([groups])
            .collect())
    }

    /// The log directory of every node with the sizes of its partitions. Opens no log.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn describe_log_dirs(&self) -> Result<Vec<LogDirDescription>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        self.logs.describe_log_dirs()
    }
}
