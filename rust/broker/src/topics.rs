//! Topics: names by Kafka's rule, their partitions, and the table of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Config, Scope};
use fletchlog_records::TopicPartition;

use crate::BrokerError;
use crate::directory::{ClusterMetadata, Directory, TopicRecord};
use crate::partition::Partition;
use crate::topic_config::TopicConfig;

/// Kafka's topic of committed offsets and groups.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// Kafka's topic of transactional ids.
pub(crate) const TRANSACTION_STATE: &str = "__transaction_state";
const MAX_NAME_LENGTH: usize = 249;

/// Kafka: `Topic#validate`. The error says which part of the rule the name breaks.
pub(crate) fn validate_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a topic name must not be empty".to_owned());
    }
    if name == "." || name == ".." {
        return Err(format!("a topic cannot be called `{name}`"));
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(format!(
            "a topic name has at most {MAX_NAME_LENGTH} characters, this one has {}",
            name.chars().count()
        ));
    }
    match name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
    {
        Some(c) => Err(format!(
            "a topic name consists of ASCII letters, digits, `.`, `_` and `-`; `{}` is none of them",
            c.escape_default()
        )),
        None => Ok(()),
    }
}

/// Kafka's metric names map `.` to `_`, so two names that differ only in these collide. Kafka: `Topic#hasCollision`.
pub(crate) fn collide(a: &str, b: &str) -> bool {
    a != b
        && a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .all(|(x, y)| x == y || (matches!(x, b'.' | b'_') && matches!(y, b'.' | b'_')))
}

/// Kafka: `Topic#isInternal`.
pub(crate) fn is_internal(name: &str) -> bool {
    name == CONSUMER_OFFSETS || name == TRANSACTION_STATE
}

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
        broker_config: &Config,
        directory: &Directory,
    ) -> Result<Self, BrokerError> {
        let name: Arc<str> = Arc::from(name);
        let given = record.config.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let config = Arc::new(TopicConfig::new(broker_config, &Config::parse(Scope::Topic, given)?));
        let partitions = (0..record.partitions)
            .map(|p| {
                let tp = TopicPartition {
                    topic: name.clone(),
                    partition: p,
                };
                Arc::new(Partition::new(tp, &record, config.clone(), directory))
            })
            .collect();
        Ok(Self {
            name,
            record,
            partitions,
        })
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

/// Every topic by name.
#[derive(Debug, Default)]
pub(crate) struct TopicTable {
    topics: BTreeMap<Arc<str>, Arc<Topic>>,
}

impl TopicTable {
    /// The table of `metadata`, keeping what `old` has already opened.
    pub(crate) fn build(
        metadata: &ClusterMetadata,
        broker_config: &Config,
        directory: &Directory,
        old: &TopicTable,
    ) -> Result<Self, BrokerError> {
        let mut topics = BTreeMap::new();
        for (name, record) in &metadata.topics {
            let topic = match old.topics.get(name.as_str()) {
                Some(topic) if topic.record == *record => topic.clone(),
                _ => Arc::new(Topic::new(name, record.clone(), broker_config, directory)?),
            };
            topics.insert(topic.name.clone(), topic);
        }
        Ok(Self { topics })
    }

    /// A topic.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// A partition.
    pub(crate) fn partition(&self, tp: &TopicPartition) -> Option<&Arc<Partition>> {
        self.topics.get(&tp.topic).and_then(|t| t.partition(tp.partition))
    }

    /// Whether this very partition is there, and not one of a topic that was made under its name later.
    pub(crate) fn holds(&self, partition: &Partition) -> bool {
        self.partition(partition.tp())
            .is_some_and(|now| std::ptr::eq(&**now, partition))
    }

    /// By name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// Adds a topic.
    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        self.topics.insert(topic.name.clone(), topic);
    }

    /// Takes a topic out.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Topic>> {
        self.topics.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rule() {
        for good in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert_eq!(validate_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\n", &"x".repeat(250)] {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_differ_only_in_dot_and_underscore_collide() {
        assert!(collide("a.b", "a_b"));
        assert!(!collide("a.b", "a.b"));
        assert!(!collide("a.b", "a-b"));
        assert!(!collide("a.b", "a_bc"));
    }
}
