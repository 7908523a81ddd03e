//! The consumer's view of topics and leaders. Kafka: `ConsumerMetadata`.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fletchlog_api::{ErrorCode, MetadataRequest, MetadataResponse, NO_TOPIC_ID, NodeId, TopicId};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::net::{Metadata, is_metadata_error};

/// Topics the next request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// All of them: a pattern has to be matched.
    All,
    /// These.
    Topics(Vec<Arc<str>>),
}

/// Leader of a partition as last heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Node.
    pub node: NodeId,
    /// Leader epoch.
    pub epoch: i32,
}

/// The cluster as last heard.
#[derive(Debug)]
pub struct ConsumerMetadata {
    updates: Metadata,
    wanted: Wanted,
    nodes: Vec<NodeId>,
    topics: FxHashMap<Arc<str>, Vec<Option<Leader>>>,
    /// Where the answer had them. Kafka: `MetadataSnapshot#topicIds`.
    ids: FxHashMap<Arc<str>, TopicId>,
    /// See [`Self::expect_topic_id`].
    expected_ids: FxHashMap<Arc<str>, TopicId>,
    names: Vec<Arc<str>>,
    internal: Vec<Arc<str>>,
    /// Wanted topics that the last answer has refused, in its order.
    errors: Vec<(Arc<str>, ErrorCode)>,
    allow_auto_create: bool,
    /// Topic ids are missing; asked for when the backoff has passed.
    need_ids: bool,
    /// Since time last passed between two polls.
    refreshed: bool,
    in_progress_by_age: bool,
    version: u64,
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
    /// Nothing known, nothing wanted.
    pub fn new(backoff_ms: i64, max_age_ms: i64, allow_auto_create: bool) -> Self {
        Self {
            updates: Metadata::new(backoff_ms, max_age_ms),
            wanted: Wanted::Topics(Vec::new()),
            nodes: Vec::new(),
            topics: FxHashMap::default(),
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
        }
    }

    /// Asks for other topics from now on, and at once. Kafka: `Metadata#requestUpdateForNewTopics`.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.request_update_for_new_topics();
    }

    /// Asks again because a fetch was refused for want of topic ids: at once, or when the backoff has passed if an answer has
    /// come in this poll. Kafka: `AbstractFetch#handleFetchSuccess`.
    pub fn request_update_for_ids(&mut self) {
        if self.is_in_progress() {
            return;
        }
        self.need_ids = self.refreshed;
        if !self.refreshed {
            self.request_update_now();
        }
    }

    /// Whether a request has to go out before anything else is sent; one by age need not.
    pub fn is_update_due(&self, now: i64) -> bool {
        self.is_update_requested() && self.updates.is_update_due(now)
    }

    /// Ends the backoff for topics that were asked for while a request was under way. The clock must not decide in
    /// which poll they become known.
    pub fn let_backoff_pass(&mut self) {
        if (self.awaits_new_topics() || self.need_ids) && !self.is_in_progress() {
            self.request_update_now();
        }
        self.refreshed = false;
    }

    /// Asks for other topics from the next request on, without causing one.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Topics the next request asks for.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether the metadata is older than metadata.max.age.ms. ours: such a refresh waits until nothing else is to be
    /// sent, so that the clock never changes an order.
    pub fn is_due_by_age(&self, now: i64) -> bool {
        !self.is_update_requested() && self.updates.is_update_due(now)
    }

    /// The request under way was sent because of age.
    pub fn in_progress_by_age(&self) -> bool {
        self.is_in_progress() && self.in_progress_by_age
    }

    /// Marks a request as under way.
    pub fn start_request(&mut self) -> MetadataRequest {
        self.in_progress_by_age = !self.is_update_requested();
        self.updates.start_request();
        let topics = match &self.wanted {
            Wanted::All => None,
            Wanted::Topics(topics) => Some(topics.clone()),
        };
        MetadataRequest {
            topics,
            allow_auto_topic_creation: self.allow_auto_create,
        }
    }

    /// Applies an answer; of topics that are no longer wanted nothing is kept.
    pub fn on_response(&mut self, response: MetadataResponse, now: i64) {
        self.updated(now);
        self.need_ids = false;
        self.refreshed = true;
        self.nodes = response.nodes;
        self.topics.clear();
        self.ids.clear();
        self.names.clear();
        self.internal.clear();
        self.errors.clear();
        let wanted: Option<FxHashSet<Arc<str>>> = match &self.wanted {
            Wanted::All => None,
            Wanted::Topics(topics) => Some(topics.iter().cloned().collect()),
        };
        for topic in response.topics {
            // Other topics may be wanted than were asked for. Kafka: `ConsumerMetadata#retainTopic` (spec 7.4).
            let retained = wanted.as_ref().is_none_or(|wanted| wanted.contains(&topic.name));
            if retained && is_metadata_error(topic.error) {
                self.updates.request_update(); // Kafka: `Metadata#handleMetadataResponse`.
            }
            if !retained {
                continue;
            }
            if topic.topic_id != NO_TOPIC_ID {
                self.ids.insert(Arc::clone(&topic.name), topic.topic_id);
            }
            if topic.error != ErrorCode::NONE {
                self.errors.push((topic.name, topic.error));
                continue;
            }
            let mut partitions = Vec::new();
            for p in &topic.partitions {
                let Ok(index) = usize::try_from(p.partition) else {
                    continue;
                };
                if partitions.len() <= index {
                    partitions.resize(index + 1, None);
                }
                partitions[index] = (p.leader >= 0).then_some(Leader {
                    node: p.leader,
                    epoch: p.leader_epoch,
                });
            }
            if topic.is_internal {
                self.internal.push(topic.name.clone());
            }
            self.names.push(topic.name.clone());
            self.topics.insert(topic.name, partitions);
        }
        self.version += 1;
    }

    /// Grows with every answer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Known nodes, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Known topics, in the order of the answer.
    pub fn topic_names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Topics such as `__consumer_offsets`. Kafka: `exclude.internal.topics`.
    pub fn is_internal(&self, topic: &str) -> bool {
        self.internal.iter().any(|t| &**t == topic)
    }

    /// Wanted topics that the last answer has refused, and why, in its order.
    pub fn errors(&self) -> &[(Arc<str>, ErrorCode)] {
        &self.errors
    }

    /// Why the last answer has refused a topic.
    pub fn error_of(&self, topic: &str) -> Option<ErrorCode> {
        self.errors
            .iter()
            .find(|(name, _)| **name == *topic)
            .map(|(_, error)| *error)
    }

    /// Whether the last answer named this topic.
    pub fn knows(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// Only the topic with this id is wanted, also when it is deleted and made again. [`NO_TOPIC_ID`] expects nothing.
    pub fn expect_topic_id(&mut self, topic: &Arc<str>, id: TopicId) {
        if id != NO_TOPIC_ID {
            self.expected_ids.insert(Arc::clone(topic), id);
        }
    }

    /// Topics of which an id is expected.
    pub fn topics_with_expected_ids(&self) -> Vec<Arc<str>> {
        self.expected_ids.keys().cloned().collect()
    }

    /// A topic that has another id in the last answer than is expected.
    pub fn made_again(&self) -> Option<&Arc<str>> {
        let is_other = |(name, id): &(&Arc<str>, &TopicId)| self.ids.get(*name).is_some_and(|now| now != *id);
        self.expected_ids.iter().find(is_other).map(|(name, _)| name)
    }

    /// The id by which a topic is asked for: the one that is expected, or that of the last answer; [`NO_TOPIC_ID`] if there is none.
    pub fn topic_id(&self, topic: &str) -> TopicId {
        let id = self.expected_ids.get(topic).or_else(|| self.ids.get(topic));
        id.copied().unwrap_or(NO_TOPIC_ID)
    }

    /// Number of partitions of a known topic.
    pub fn partition_count(&self, topic: &str) -> Option<i32> {
        self.topics.get(topic).and_then(|p| i32::try_from(p.len()).ok())
    }

    /// Leader of a partition, if known.
    pub fn leader(&self, tp: &TopicPartition) -> Option<Leader> {
        let index = usize::try_from(tp.partition).ok()?;
        self.topics.get(&tp.topic)?.get(index).copied().flatten()
    }
}
