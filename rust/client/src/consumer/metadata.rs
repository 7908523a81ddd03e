//! The consumer's view of topics and leaders. Kafka: `ConsumerMetadata`.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fletchlog_api::{ErrorCode, MetadataRequest, MetadataResponse, NO_TOPIC_ID, NodeId, TopicId};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::net::{Metadata, is_metadata_error};

/// Topics the next request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// All topics, to match a pattern.
    All,
    /// These.
    Topics(Vec<Arc<str>>),
}

/// Leader of a partition, from the last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Node.
    pub node: NodeId,
    /// Leader epoch.
    pub epoch: i32,
}

/// The cluster, from the last metadata response.
#[derive(Debug, Clone)]
pub struct ConsumerMetadata {
    updates: Metadata,
    wanted: Wanted,
    nodes: Vec<NodeId>,
    topics: FxHashMap<Arc<str>, Vec<Option<Leader>>>,
    /// Racks of the replicas of each partition, if nodes have racks.
    racks: FxHashMap<Arc<str>, Vec<BTreeSet<Arc<str>>>>,
    /// Topic ids, if the response had them. Kafka: `MetadataSnapshot#topicIds`.
    ids: FxHashMap<Arc<str>, TopicId>,
    /// See [`Self::expect_topic_id`].
    expected_ids: FxHashMap<Arc<str>, TopicId>,
    names: Vec<Arc<str>>,
    internal: Vec<Arc<str>>,
    /// Wanted topics with an error in the last response, in its order.
    errors: Vec<(Arc<str>, ErrorCode)>,
    allow_auto_create: bool,
    /// Topic ids are missing; they are requested when the backoff has passed.
    need_ids: bool,
    /// A response was applied since the last [`Self::let_backoff_pass`].
    refreshed: bool,
    in_progress_by_age: bool,
    version: u64,
    /// A response was applied since the last [`Self::take_changed`].
    changed: bool,
}

impl Deref for ConsumerMetadata {
    type Target = Metadata;
    fn deref(&self) -> &Metadata {
        &self.updates
    }
}

impl DerefMut for ConsumerMetadata {
    fn deref_mut(&mut self) -> &mut Metadata {
        &mut self.updates
    }
}

impl ConsumerMetadata {
    /// Starts with nothing known and nothing wanted.
    pub fn new(backoff_ms: i64, max_age_ms: i64, allow_auto_create: bool) -> Self {
        Self {
            updates: Metadata::new(backoff_ms, max_age_ms),
            wanted: Wanted::Topics(Vec::new()),
            nodes: Vec::new(),
            topics: FxHashMap::default(),
            racks: FxHashMap::default(),
            ids: FxHashMap::default(),
            expected_ids: FxHashMap::default(),
            names: Vec::new(),
            internal: Vec::new(),
            errors: Vec::new(),
            allow_auto_create,
            need_ids: false,
            refreshed: false,
            in_progress_by_age: false,
            version: 0,
            changed: false,
        }
    }

    /// Changes the wanted topics, and requests an update at once. Kafka: `Metadata#requestUpdateForNewTopics`.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.request_update_for_new_topics();
    }

    /// Requests an update because a fetch was refused for lack of topic ids: at once, or after the backoff if a
    /// response has arrived in this poll. Kafka: `AbstractFetch#handleFetchSuccess`.
    pub fn request_update_for_ids(&mut self) {
        if self.is_in_progress() {
            return;
        }
        self.need_ids = self.refreshed;
        if !self.refreshed {
            self.request_update_now();
        }
    }

    /// Whether a metadata request must precede everything else. A refresh by age need not.
    pub fn is_update_due(&self, now: i64) -> bool {
        self.is_update_requested() && self.updates.is_update_due(now)
    }

    /// Ends the backoff for topics and ids that are still to be requested. The clock must not decide in which poll they
    /// become known.
    pub fn let_backoff_pass(&mut self) {
        if (self.awaits_new_topics() || self.need_ids) && !self.is_in_progress() {
            self.request_update_now();
        }
        self.refreshed = false;
    }

    /// Changes the wanted topics without requesting an update.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Topics the next request asks for.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether the metadata is older than metadata.max.age.ms. Unlike in Kafka, such a refresh waits until nothing else
    /// is to be sent, so that the clock never changes an order.
    pub fn is_due_by_age(&self, now: i64) -> bool {
        !self.is_update_requested() && self.updates.is_update_due(now)
    }

    /// Whether the request in flight was sent because of age.
    pub fn in_progress_by_age(&self) -> bool {
        self.is_in_progress() && self.in_progress_by_age
    }

    /// Builds a request and marks it as in flight.
    pub fn start_request(&mut self) -> MetadataRequest {
        self.in_progress_by_age = !self.is_update_requested();
        self.updates.start_request();
        let topics = match &self.wanted {
            Wanted::All => None,
            Wanted::Topics(topics) => Some(topics.clone()),
        };
        MetadataRequest::for_topics(topics, self.allow_auto_create)
    }

    /// Applies a response; topics that are no longer wanted are ignored.
    pub fn on_response(&mut self, response: MetadataResponse, now: i64) {
        self.updated(now);
        self.need_ids = false;
        self.refreshed = true;
        self.nodes = response.nodes().collect();
        self.topics.clear();
        self.racks.clear();
        let rack_of: FxHashMap<NodeId, Arc<str>> = response
            .brokers
            .iter()
            .filter_map(|broker| Some((broker.node_id, broker.rack.clone()?)))
            .collect();
        self.ids.clear();
        self.names.clear();
        self.internal.clear();
        self.errors.clear();
        let wanted: Option<FxHashSet<Arc<str>>> = match &self.wanted {
            Wanted::All => None,
            Wanted::Topics(topics) => Some(topics.iter().cloned().collect()),
        };
        for topic in response.topics {
            let Some(name) = topic.name else {
                continue;
            };
            // The wanted topics may have changed since the request. Kafka: `ConsumerMetadata#retainTopic` (spec 7.4).
            let retained = wanted.as_ref().is_none_or(|wanted| wanted.contains(&name));
            if retained && is_metadata_error(topic.error_code) {
                self.updates.request_update(); // Kafka: `Metadata#handleMetadataResponse`.
            }
            if !retained {
                continue;
            }
            if topic.topic_id != NO_TOPIC_ID {
                self.ids.insert(Arc::clone(&name), topic.topic_id);
            }
            if topic.error_code != ErrorCode::NONE {
                self.errors.push((name, topic.error_code));
                continue;
            }
            let mut partitions = Vec::new();
            let mut racks: Vec<BTreeSet<Arc<str>>> = Vec::new();
            for p in &topic.partitions {
                let Ok(index) = usize::try_from(p.partition_index) else {
                    continue;
                };
                if partitions.len() <= index {
                    partitions.resize(index + 1, None);
                }
                partitions[index] = p.leader().map(|node| Leader {
                    node,
                    epoch: p.leader_epoch,
                });
                if !rack_of.is_empty() {
                    racks.resize(partitions.len(), BTreeSet::new());
                    racks[index] = p
                        .replica_nodes
                        .iter()
                        .filter_map(|node| rack_of.get(node).cloned())
                        .collect();
                }
            }
            if topic.is_internal {
                self.internal.push(name.clone());
            }
            self.names.push(name.clone());
            if !racks.is_empty() {
                self.racks.insert(name.clone(), racks);
            }
            self.topics.insert(name, partitions);
        }
        self.version += 1;
        self.changed = true;
    }

    /// Increases with every response.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a response was applied since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Known nodes, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Known topics, in the order of the response.
    pub fn topic_names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Whether a topic is internal, such as `__consumer_offsets`. Kafka: `exclude.internal.topics`.
    pub fn is_internal(&self, topic: &str) -> bool {
        self.internal.iter().any(|t| &**t == topic)
    }

    /// Wanted topics with an error in the last response, and that error, in its order.
    pub fn errors(&self) -> &[(Arc<str>, ErrorCode)] {
        &self.errors
    }

    /// The error of a topic in the last response.
    pub fn error_of(&self, topic: &str) -> Option<ErrorCode> {
        self.errors
            .iter()
            .find(|(name, _)| **name == *topic)
            .map(|(_, error)| *error)
    }

    /// Whether the last response had this topic, without an error.
    pub fn knows(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// Expects this id of the topic: one of the same name that was recreated is not wanted. [`NO_TOPIC_ID`] expects
    /// nothing.
    pub fn expect_topic_id(&mut self, topic: &Arc<str>, id: TopicId) {
        if id != NO_TOPIC_ID {
            self.expected_ids.insert(Arc::clone(topic), id);
        }
    }

    /// Topics with an expected id.
    pub fn topics_with_expected_ids(&self) -> Vec<Arc<str>> {
        self.expected_ids.keys().cloned().collect()
    }

    /// A topic whose id in the last response is not the expected one.
    pub fn made_again(&self) -> Option<&Arc<str>> {
        let is_other = |(name, id): &(&Arc<str>, &TopicId)| self.ids.get(*name).is_some_and(|now| now != *id);
        self.expected_ids.iter().find(is_other).map(|(name, _)| name)
    }

    /// The id to request a topic by: the expected one, else that of the last response; [`NO_TOPIC_ID`] if there is
    /// none.
    pub fn topic_id(&self, topic: &str) -> TopicId {
        let id = self.expected_ids.get(topic).or_else(|| self.ids.get(topic));
        id.copied().unwrap_or(NO_TOPIC_ID)
    }

    /// Name of the topic with this id in the last response.
    pub fn topic_name(&self, id: &TopicId) -> Option<Arc<str>> {
        let found = self.ids.iter().find(|(_, known)| *known == id);
        found.map(|(name, _)| Arc::clone(name))
    }

    /// Number of partitions of a known topic.
    pub fn partition_count(&self, topic: &str) -> Option<i32> {
        self.topics.get(topic).and_then(|p| i32::try_from(p.len()).ok())
    }

    /// Racks of the replicas of a topic's partitions, by partition; empty if no node has a rack.
    pub fn racks(&self, topic: &str) -> &[BTreeSet<Arc<str>>] {
        self.racks.get(topic).map_or(&[], Vec::as_slice)
    }

    /// Leader of a partition, if known.
    pub fn leader(&self, tp: &TopicPartition) -> Option<Leader> {
        let index = usize::try_from(tp.partition).ok()?;
        self.topics.get(&tp.topic)?.get(index).copied().flatten()
    }
}
