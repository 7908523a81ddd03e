//! What Kafka's tools ask of a broker beyond producing and fetching: topics, partitions, properties, producers, transactions, files.
//! Refusals carry Kafka's code and, where Kafka has one, its text.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_log::ProducerState;
use fletchlog_records::TopicPartition;

use super::Broker;
use crate::BrokerError;
use crate::config_description::{ConfigEntry, describe_broker_config, describe_topic_config};
use crate::log_manager::LogDirDescription;
use crate::replica_manager::{AlterConfig, CreatedTopic, NewTopic};
use crate::topics::validate_name;
use crate::transaction::{TransactionDescription, TransactionFilter, TransactionListing};

impl Broker {
    /// As [`Broker::create_topic`], with all that CreateTopics can ask for.
    ///
    /// # Errors
    /// INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_CONFIG, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    /// INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, `ReadOnly`, `Closed`, storage errors, as for [`Broker::create_topic`].
    pub fn create_topic_with(&self, name: &str, new: &NewTopic) -> Result<CreatedTopic, BrokerError> {
        let _open = self.enter()?;
        self.replicas.create_user_topic(name, new)
    }

    /// Gives a topic more partitions: `count` in all. `assignments`: nodes of the replicas of each new one, the leader first. Durable when
    /// it returns, and known to clients with their next look at the metadata.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS unless there are more than now, INVALID_REPLICA_ASSIGNMENT, `ReadOnly`, `Closed`,
    /// storage errors, after which nothing has changed.
    pub fn create_partitions(
        &self,
        topic: &str,
        count: i32,
        assignments: Option<&[Vec<NodeId>]>,
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.replicas
            .create_partitions(topic, count, assignments, validate_only)
    }

    /// Changes properties of a topic; those not named stay. All of the changes or none: durable when it returns, and in effect from then
    /// on, also for open logs.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST (a name twice, no value), `ReadOnly`, `Closed`, storage errors.
    pub fn alter_topic_config(
        &self,
        topic: &str,
        changes: &[AlterConfig],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.replicas.alter_topic_config(topic, changes, validate_only)
    }

    /// As [`Broker::alter_topic_config`], but `config` replaces everything that is set for the topic. Kafka: AlterConfigs.
    ///
    /// # Errors
    /// As [`Broker::alter_topic_config`].
    pub fn replace_topic_config(
        &self,
        topic: &str,
        config: &[(String, Option<String>)],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.replicas.replace_topic_config(topic, config, validate_only)
    }

    /// Every property of a topic, by name, or of the broker (`None`), with where it comes from.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for a name that no topic can have, `Closed`, storage errors.
    pub fn describe_config(&self, topic: Option<&str>) -> Result<Vec<ConfigEntry>, BrokerError> {
        let _open = self.enter()?;
        let Some(topic) = topic else {
            return Ok(describe_broker_config(self.replicas.config()));
        };
        validate_name(topic).map_err(|text| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text))?;
        self.replicas.see_new_topics()?;
        let topic = self.replicas.topic(topic)?;
        Ok(describe_topic_config(self.replicas.config(), &topic.record.config)?)
    }

    /// The name of the topic with this id; `None`: there is none.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn topic_name(&self, id: [u8; 16]) -> Result<Option<Arc<str>>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.see_new_topics()?;
        let table = self.replicas.topic_table();
        Ok(table.name_of(&id).cloned())
    }

    /// What a partition remembers of its producers, by producer id.
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

    /// One transactional id.
    ///
    /// # Errors
    /// TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR if `node` is another, `Closed`, storage errors.
    pub fn describe_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
    ) -> Result<TransactionDescription, BrokerError> {
        let _open = self.enter()?;
        self.transactions.describe_transaction(node, transactional_id)
    }

    /// The log directory of every node with the sizes of its partitions. Opens no log.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn describe_log_dirs(&self) -> Result<Vec<LogDirDescription>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.see_new_topics()?;
        self.logs.describe_log_dirs()
    }
}
