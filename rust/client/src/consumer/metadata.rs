//! The consumer's view of topics and leaders. Kafka: `Metadata`, `ConsumerMetadata`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, MetadataRequest, MetadataResponse, NodeId};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::network_client::RequestId;

/// Topics the next request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// All of them: a pattern has to be matched.
    All,
    /// These.
    Topics(Vec<Arc<str>>),
}

#[derive(Debug)]
struct InProgress {
    id: RequestId,
    by_age: bool,
    version: u64,
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
pub struct Metadata {
    wanted: Wanted,
    nodes: Vec<NodeId>,
    topics: FxHashMap<Arc<str>, Vec<Option<Leader>>>,
    names: Vec<Arc<str>>,
    internal: Vec<Arc<str>>,
    allow_auto_create: bool,
    backoff_ms: i64,
    max_age_ms: i64,
    need_update: bool,
    /// No backoff: the topic set changed, or it has passed.
    need_now: bool,
    /// Topic ids are missing; asked for when the backoff has passed.
    need_ids: bool,
    /// Since time last passed between two polls.
    refreshed: bool,
    wanted_version: u64,
    /// Of the topics that the last answer was asked for.
    answered_version: u64,
    in_progress: Option<InProgress>,
    last_refresh_ms: Option<i64>,
    version: u64,
}

impl Metadata {
    /// Nothing known, nothing wanted.
    pub fn new(backoff_ms: i64, max_age_ms: i64, allow_auto_create: bool) -> Self {
        Self {
            wanted: Wanted::Topics(Vec::new()),
            nodes: Vec::new(),
            topics: FxHashMap::default(),
            names: Vec::new(),
            internal: Vec::new(),
            allow_auto_create,
            backoff_ms,
            max_age_ms,
            need_update: false,
            need_now: false,
            need_ids: false,
            refreshed: false,
            wanted_version: 0,
            answered_version: 0,
            in_progress: None,
            last_refresh_ms: None,
            version: 0,
        }
    }

    /// Asks for other topics from now on, and at once. Kafka: `Metadata#requestUpdateForNewTopics`.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.wanted_version += 1;
        self.need_now = true;
    }

    /// Asks again, not before the backoff has passed; nothing if a request is under way. Kafka: `Metadata#requestUpdate`.
    pub fn request_update(&mut self) {
        if self.in_progress.is_none() {
            self.need_update = true;
        }
    }

    /// Asks again because a fetch was refused for want of topic ids: at once, or when the backoff has passed if an answer has
    /// come in this poll. Kafka: `AbstractFetch#handleFetchSuccess`.
    pub fn request_update_for_ids(&mut self) {
        if self.in_progress.is_none() {
            self.need_ids = self.refreshed;
            self.need_now |= !self.refreshed;
        }
    }

    /// Whether a request has to go out before anything else is sent.
    pub fn is_update_due(&self, now: i64) -> bool {
        if self.in_progress.is_some() {
            return false;
        }
        self.need_now
            || (self.need_update
                && self
                    .last_refresh_ms
                    .is_none_or(|last| now.saturating_sub(last) >= self.backoff_ms))
    }

    /// Milliseconds until a request is due that is not due yet; `i64::MAX` if none is wanted.
    pub fn time_to_next_update(&self, now: i64) -> i64 {
        let wait = if self.need_update {
            self.backoff_ms
        } else {
            self.max_age_ms
        };
        match self.last_refresh_ms {
            Some(last) if self.in_progress.is_none() => last.saturating_add(wait).saturating_sub(now).max(0),
            _ => i64::MAX,
        }
    }

    /// Whether other topics were asked for and the answer is still to come.
    pub fn awaits_new_topics(&self) -> bool {
        self.answered_version != self.wanted_version
    }

    /// Ends the backoff for topics that were asked for while a request was under way. The clock must not decide in
    /// which poll they become known.
    pub fn let_backoff_pass(&mut self) {
        self.need_now |= (self.awaits_new_topics() || self.need_ids) && self.in_progress.is_none();
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
        self.in_progress.is_none()
            && self
                .last_refresh_ms
                .is_some_and(|last| now.saturating_sub(last) >= self.max_age_ms)
    }

    /// The request under way was sent because of age.
    pub fn in_progress_by_age(&self) -> bool {
        self.in_progress.as_ref().is_some_and(|p| p.by_age)
    }

    /// Whether a completion answers the request under way.
    pub fn is_mine(&self, id: RequestId) -> bool {
        self.in_progress.as_ref().is_some_and(|p| p.id == id)
    }

    /// Marks a request as under way.
    pub fn start_request(&mut self, id: RequestId, now: i64) -> MetadataRequest {
        let by_age = !self.is_update_due(now);
        self.in_progress = Some(InProgress {
            id,
            by_age,
            version: self.wanted_version,
        });
        self.need_now = false;
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
        self.answered_version = self.in_progress.take().map_or(0, |p| p.version);
        self.last_refresh_ms = Some(now);
        self.need_update = self.awaits_new_topics();
        self.need_now = false;
        self.need_ids = false;
        self.refreshed = true;
        self.nodes = response.nodes;
        self.topics.clear();
        self.names.clear();
        self.internal.clear();
        let wanted: Option<FxHashSet<Arc<str>>> = match &self.wanted {
            Wanted::All => None,
            Wanted::Topics(topics) => Some(topics.iter().cloned().collect()),
        };
        for topic in response.topics {
            // Other topics may be wanted than were asked for. Kafka: `ConsumerMetadata#retainTopic` (spec 7.4).
            let retained = wanted.as_ref().is_none_or(|wanted| wanted.contains(&topic.name));
            if topic.error != ErrorCode::NONE || !retained {
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

    /// The request was lost; it is sent again after the backoff.
    pub fn on_failure(&mut self, now: i64) {
        self.in_progress = None; // The backoff holds for new topics, too.
        self.last_refresh_ms = Some(now);
        self.need_update = true;
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

    /// Whether the last answer named this topic.
    pub fn knows(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
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
