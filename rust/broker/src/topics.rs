//! Topics, their partitions, and the table of them.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::{Config, ConfigError, Scope, topic_by_id};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;
use rustc_hash::FxHashMap;

use crate::BrokerError;
use crate::directory::{ClusterMetadata, Directory, TopicRecord};
use crate::dynamic_config::{BrokerConfigs, ByNode};
use crate::each_log::EachLog;
use crate::partition::Partition;
use crate::topic_config::TopicConfig;
use crate::topic_names::{is_internal, unified};

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) record: TopicRecord,
    pub(crate) partitions: Vec<Arc<Partition>>,
}

impl Topic {
    /// A topic as its record says; no log is opened.
    pub(crate) fn new(
        name: &str,
        record: TopicRecord,
        broker: &BrokerConfigs,
        directory: &Directory,
    ) -> Result<Self, BrokerError> {
        Self::with_partitions(name, record, broker, directory, &[])
    }

    /// The same topic after a change of its settings or with more partitions. Its partitions stay, with their logs, and get the new
    /// settings.
    pub(crate) fn altered(
        &self,
        record: TopicRecord,
        broker: &BrokerConfigs,
        directory: &Directory,
    ) -> Result<Self, BrokerError> {
        Self::with_partitions(&self.name, record, broker, directory, &self.partitions)
    }

    fn with_partitions(
        name: &str,
        record: TopicRecord,
        broker: &BrokerConfigs,
        directory: &Directory,
        existing: &[Arc<Partition>],
    ) -> Result<Self, BrokerError> {
        let name: Arc<str> = Arc::from(name);
        let configs = record.configs(broker)?;
        let config_of = |node| Arc::clone(configs.of(node));
        let by_id = topic_by_id(record.id);
        let mut partitions = existing.to_vec();
        for partition in &partitions {
            if let Some(state) = record.states.get(&partition.tp().partition) {
                partition.set_state(state, directory.read_only());
            }
            if !planted!("change-of-a-node-not-in-effect-for-open-logs") {
                partition.set_config(config_of(partition.leader()));
            }
        }
        for p in i32::try_from(existing.len()).unwrap_or(i32::MAX)..record.partitions {
            let tp = TopicPartition {
                topic: name.clone(),
                partition: p,
            };
            let by_id = TopicPartition::new(by_id.clone(), p);
            partitions.push(Arc::new(Partition::new(tp, by_id, &record, config_of, directory)));
        }
        Ok(Self {
            name,
            record,
            partitions,
        })
    }

    /// Whether a record describes this topic after a change, and not another topic with its name.
    fn may_become(&self, record: &TopicRecord) -> bool {
        self.record.id == record.id && record.id != [0; 16] && self.record.partitions <= record.partitions
    }

    /// One of its partitions.
    pub(crate) fn partition(&self, partition: i32) -> Option<&Arc<Partition>> {
        usize::try_from(partition).ok().and_then(|p| self.partitions.get(p))
    }

    /// Kafka: `Topic#isInternal`.
    pub(crate) fn is_internal(&self) -> bool {
        is_internal(&self.name)
    }
}

impl TopicRecord {
    /// The settings of its logs on each node.
    ///
    /// # Errors
    /// A property that a topic cannot have.
    pub(crate) fn configs(&self, broker: &BrokerConfigs) -> Result<ByNode<TopicConfig>, ConfigError> {
        let given = self.config.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let given = Config::parse(Scope::Topic, given)?;
        Ok(broker.by_node(|broker| TopicConfig::new(broker, &given)))
    }
}

/// Every topic by name.
#[derive(Debug, Default)]
pub(crate) struct TopicTable {
    topics: BTreeMap<Arc<str>, Arc<Topic>>,
    /// Names by topic id, without topics of a Kafka broker's directory that have no id.
    names: FxHashMap<[u8; 16], Arc<str>>,
    /// The names of topics by their [unified] names; more than one only in an old directory.
    by_unified: FxHashMap<String, Vec<Arc<str>>>,
    /// A number that no earlier state of a table had.
    version: u64,
    /// The version when a topic was last added.
    created: u64,
}

/// Versions of tables so far.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

impl TopicTable {
    /// Builds the table of `metadata`, keeping what `old` has already opened. A topic with a bad property stays as it was in `old`,
    /// if it exists there.
    pub(crate) fn build(
        metadata: &ClusterMetadata,
        broker: &BrokerConfigs,
        directory: &Directory,
        old: &TopicTable,
        building: &mut EachLog,
    ) -> Self {
        let mut table = Self::default();
        for (name, record) in &metadata.topics {
            let known = old.topics.get(name.as_str());
            let known = known.filter(|topic| topic.record == *record || topic.may_become(record));
            let topic = match known {
                Some(topic) if topic.record == *record => Ok(topic.clone()),
                Some(topic) => topic.altered(record.clone(), broker, directory).map(Arc::new),
                None => Topic::new(name, record.clone(), broker, directory).map(Arc::new),
            };
            if let Some(topic) = building.note_topic(name, topic).or_else(|| known.cloned()) {
                table.insert(topic);
            }
        }
        table
    }

    /// A topic.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// The name of the topic with this id.
    pub(crate) fn name_of(&self, id: &[u8; 16]) -> Option<&Arc<str>> {
        self.names.get(id)
    }

    /// A topic whose name collides with this name or equals it.
    pub(crate) fn named_alike(&self, name: &str) -> Option<&Arc<str>> {
        let alike = self.by_unified.get(&unified(name))?;
        alike.iter().find(|other| &***other != name).or(alike.first())
    }

    /// A partition.
    pub(crate) fn partition(&self, tp: &TopicPartition) -> Option<&Arc<Partition>> {
        self.topics.get(&tp.topic).and_then(|t| t.partition(tp.partition))
    }

    /// Whether the table has this very partition, and not that of a later topic with the same name.
    pub(crate) fn holds(&self, partition: &Partition) -> bool {
        self.partition(partition.tp())
            .is_some_and(|now| std::ptr::eq(&**now, partition))
    }

    /// All topics, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// A number that changes with the table. Kafka: `MetadataImage#version`.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A number that changes when a topic is added. Kafka: `GroupMetadataManager#lastMetadataImageWithNewTopics`.
    pub(crate) fn created(&self) -> i64 {
        i64::try_from(self.created).unwrap_or(i64::MAX)
    }

    /// Adds a topic, or replaces it.
    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        self.version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
        if self
            .get(&topic.name)
            .is_none_or(|known| known.record.id != topic.record.id)
        {
            self.created = self.version;
        }
        if topic.record.id != [0; 16] {
            self.names.insert(topic.record.id, topic.name.clone());
        }
        if !self.topics.contains_key(&topic.name) {
            let alike = self.by_unified.entry(unified(&topic.name)).or_default();
            alike.push(topic.name.clone());
        }
        self.topics.insert(topic.name.clone(), topic);
    }

    /// Removes a topic.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.topics.remove(name)?;
        self.version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
        self.names.remove(&topic.record.id);
        if let Entry::Occupied(mut alike) = self.by_unified.entry(unified(name)) {
            alike.get_mut().retain(|other| **other != *name);
            if alike.get().is_empty() {
                alike.remove();
            }
        }
        Some(topic)
    }
}
