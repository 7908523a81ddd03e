//! The partitions of a share group whose state the share coordinator keeps, or is to make or to delete. Kafka:
//! `ShareGroupStatePartitionMetadataInfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::ShareGroupStatePartitionMetadataValue;
use fletchlog_protocol::values::share_group_state_partition_metadata_value::{TopicInfo, TopicPartitionsInfo};

/// Partitions of named topics; a topic may have none.
pub(crate) type Named = BTreeMap<TopicId, (Arc<str>, BTreeSet<i32>)>;

/// Kafka: the record `ShareGroupStatePartitionMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StatePartitions {
    /// Their state is being made.
    pub(super) initializing: Named,
    /// They have a state: members can read them.
    pub(super) initialized: Named,
    /// Topics whose states are being deleted.
    pub(super) deleting: BTreeMap<TopicId, Arc<str>>,
}

impl StatePartitions {
    /// The value of its record.
    pub(super) fn value(&self) -> ShareGroupStatePartitionMetadataValue {
        let info = |(&topic_id, (name, partitions)): (&TopicId, &(Arc<str>, BTreeSet<i32>))| TopicPartitionsInfo {
            topic_id,
            topic_name: Arc::clone(name),
            partitions: partitions.iter().copied().collect(),
        };
        let topic = |(&topic_id, name): (&TopicId, &Arc<str>)| TopicInfo {
            topic_id,
            topic_name: Arc::clone(name),
        };
        ShareGroupStatePartitionMetadataValue {
            initializing_topics: self.initializing.iter().map(info).collect(),
            initialized_topics: self.initialized.iter().map(info).collect(),
            deleting_topics: self.deleting.iter().map(topic).collect(),
        }
    }

    /// Reads the value of its record.
    pub(super) fn of_value(value: ShareGroupStatePartitionMetadataValue) -> Self {
        let info =
            |info: TopicPartitionsInfo| (info.topic_id, (info.topic_name, info.partitions.into_iter().collect()));
        let topics = value.deleting_topics.into_iter();
        Self {
            initializing: value.initializing_topics.into_iter().map(info).collect(),
            initialized: value.initialized_topics.into_iter().map(info).collect(),
            deleting: topics.map(|topic| (topic.topic_id, topic.topic_name)).collect(),
        }
    }

    /// Whether the partition has a state.
    pub(super) fn is_initialized(&self, topic: &TopicId, partition: i32) -> bool {
        contains(&self.initialized, topic, partition)
    }

    /// Whether the partition's state is being made.
    pub(super) fn is_initializing(&self, topic: &TopicId, partition: i32) -> bool {
        contains(&self.initializing, topic, partition)
    }

    /// The states of these partitions were made, or could not be made. Kafka: `GroupMetadataManager#initializeShareGroupState`,
    /// `#uninitializeShareGroupState`.
    pub(super) fn settle(&mut self, made: &Named, failed: &Named) {
        for (id, (_, partitions)) in made.iter().chain(failed) {
            if let Some((_, initializing)) = self.initializing.get_mut(id) {
                initializing.retain(|p| !partitions.contains(p));
                if initializing.is_empty() {
                    self.initializing.remove(id);
                }
            }
        }
        merge(&mut self.initialized, made);
    }

    /// All partitions that may have a state.
    pub(super) fn all(&self) -> Named {
        let mut all = self.initialized.clone();
        merge(&mut all, &self.initializing);
        all.retain(|_, (_, partitions)| !partitions.is_empty());
        all
    }

    /// Removes topics that no longer exist; false: it has none of them.
    pub(super) fn forget(&mut self, topics: &BTreeSet<TopicId>) -> bool {
        let before = self.initializing.len() + self.initialized.len() + self.deleting.len();
        self.initializing.retain(|id, _| !topics.contains(id));
        self.initialized.retain(|id, _| !topics.contains(id));
        self.deleting.retain(|id, _| !topics.contains(id));
        before != self.initializing.len() + self.initialized.len() + self.deleting.len()
    }
}

fn contains(named: &Named, topic: &TopicId, partition: i32) -> bool {
    named
        .get(topic)
        .is_some_and(|(_, partitions)| partitions.contains(&partition))
}

/// Adds partitions.
pub(super) fn merge(into: &mut Named, more: &Named) {
    for (id, (name, partitions)) in more {
        let (_, known) = into.entry(*id).or_insert_with(|| (Arc::clone(name), BTreeSet::new()));
        known.extend(partitions);
    }
}
