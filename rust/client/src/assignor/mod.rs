//! Assignors: pure functions from subscriptions to assignments (spec 8.1, 8.3 - 8.6).
//!
//! The legacy pair ([`legacy_range`], [`legacy_round_robin`]) deals partitions to the *threads* of the 0.8 high-level
//! consumer; the others deal them to *members* of a consumer group. Strings are compared as Java compares them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_records::TopicPartition;

pub mod cooperative_sticky;
mod general_sticky;
pub mod legacy_range;
pub mod legacy_round_robin;
mod owned;
mod racks;
mod range;
pub mod round_robin;
pub mod sticky;

pub use cooperative_sticky::cooperative_sticky;
pub use legacy_range::legacy_range;
pub use legacy_round_robin::legacy_round_robin;
pub use racks::{PartitionRacks, Racks};
pub use range::range;
pub use round_robin::round_robin;
pub use sticky::sticky;

/// Topic -> number of partitions. A topic that is missing or has none is unknown, and no partition of it is assigned.
pub type TopicCounts = BTreeMap<Arc<str>, i32>;

/// What one member of a consumer group sends to the leader. Kafka: `ConsumerPartitionAssignor.Subscription`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberSubscription {
    /// Topics, in subscribe() order.
    pub topics: Vec<Arc<str>>,
    /// group.instance.id: static members come first in the order of members.
    pub group_instance_id: Option<Arc<str>>,
    /// Partitions owned before (sticky assignors only).
    pub owned: Vec<TopicPartition>,
    /// Generation in which they were assigned; `None` = unknown, lower than any.
    pub generation: Option<i32>,
    /// client.rack; `None` or empty: unknown.
    pub rack: Option<Arc<str>>,
    /// Position in the broker's response. It decides the order of ids that share a bucket of Java's `HashMap`; ids with
    /// equal places are in string order.
    pub place: usize,
}

/// Member id -> subscription.
pub type Subscriptions = BTreeMap<Arc<str>, MemberSubscription>;

/// Member id -> partitions, in the order in which Kafka's assignor lists them. Every member has an entry.
pub type Assignment = BTreeMap<Arc<str>, Vec<TopicPartition>>;

/// Member or thread id -> topic -> partitions ascending: the shape handed to Python.
pub type AssignmentByTopic = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<i32>>>;

/// `assignment` as member -> topic -> partitions ascending; a topic of which a member has nothing is left out.
pub fn by_topic(assignment: &Assignment) -> AssignmentByTopic {
    let topics_of = |partitions: &[TopicPartition]| {
        let mut topics: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for tp in partitions {
            topics.entry(Arc::clone(&tp.topic)).or_default().push(tp.partition);
        }
        topics.values_mut().for_each(|partitions| partitions.sort_unstable());
        topics
    };
    assignment
        .iter()
        .map(|(member, partitions)| (Arc::clone(member), topics_of(partitions)))
        .collect()
}

/// Why an assignor refused its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignorError {
    /// Fewer than one stream.
    #[error("consumer {consumer} asks for {streams} streams of topic {topic}; ask for at least 1")]
    Streams {
        /// Consumer id.
        consumer: Arc<str>,
        /// Topic.
        topic: Arc<str>,
        /// Number given.
        streams: i32,
    },
    /// Legacy round robin: the topics are not consumed by the same threads.
    #[error(
        "round robin needs every consumer of the group to subscribe to the same topics with the same number of streams, but the threads of topic {topic} differ from those of topic {other}; use range or make the subscriptions equal"
    )]
    UnequalThreads {
        /// A topic.
        topic: Arc<str>,
        /// The topic it differs from.
        other: Arc<str>,
    },
}

/// The assignors of `partition.assignment.strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignor {
    /// [`range()`].
    Range,
    /// [`round_robin()`].
    RoundRobin,
    /// [`sticky()`].
    Sticky,
    /// [`cooperative_sticky()`].
    CooperativeSticky,
}

impl Assignor {
    /// By the name used in the group protocol, or by the Java class name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.strip_prefix("org.apache.kafka.clients.consumer.").unwrap_or(name) {
            "range" | "RangeAssignor" => Some(Self::Range),
            "roundrobin" | "RoundRobinAssignor" => Some(Self::RoundRobin),
            "sticky" | "StickyAssignor" => Some(Self::Sticky),
            "cooperative-sticky" | "CooperativeStickyAssignor" => Some(Self::CooperativeSticky),
            _ => None,
        }
    }

    /// The name in the group protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Whether members may keep their partitions while they rejoin (Kafka: `RebalanceProtocol.COOPERATIVE`).
    pub fn is_cooperative(self) -> bool {
        self == Self::CooperativeSticky
    }

    /// Computes the assignment of a group. `racks`: where replicas are, if members with a rack are to be near them (KIP-881).
    pub fn assign(self, topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
        match self {
            Self::Range => range(topics, racks, members),
            Self::RoundRobin => round_robin(topics, members),
            Self::Sticky => sticky(topics, racks, members),
            Self::CooperativeSticky => cooperative_sticky(topics, racks, members),
        }
    }
}

/// `String.compareTo`: by UTF-16 code units (differs from byte order beyond the basic multilingual plane).
pub fn java_compare(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// Members in the order of Kafka's `AbstractPartitionAssignor.MemberInfo`: static ones first, by group.instance.id, then
/// the others by member id (spec 8.4).
fn sorted_members(members: &Subscriptions) -> Vec<(&Arc<str>, &MemberSubscription)> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, x), (b, y)| match (&x.group_instance_id, &y.group_instance_id) {
        (Some(i), Some(j)) => java_compare(i, j).then_with(|| java_compare(a, b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => java_compare(a, b),
    });
    sorted
}

/// All partitions of the topics that at least one member subscribes to: by topic name, then ascending.
fn subscribed_partitions(topics: &TopicCounts, members: &Subscriptions) -> Vec<TopicPartition> {
    let mut names: Vec<&Arc<str>> = members
        .values()
        .flat_map(|m| &m.topics)
        .filter(|t| topics.contains_key(*t))
        .collect();
    names.sort_by(|a, b| java_compare(a, b));
    names.dedup();
    names
        .into_iter()
        .flat_map(|topic| partitions_of(topics, topic))
        .collect()
}

/// The partitions of one topic, ascending; none if it is unknown.
fn partitions_of(topics: &TopicCounts, topic: &Arc<str>) -> impl Iterator<Item = TopicPartition> + use<> {
    let count = topics.get(topic).copied().unwrap_or(0);
    let topic = Arc::clone(topic);
    (0..count).map(move |partition| TopicPartition {
        topic: Arc::clone(&topic),
        partition,
    })
}

/// An empty list for every member.
fn empty_assignment(members: &Subscriptions) -> Assignment {
    members.keys().map(|member| (Arc::clone(member), Vec::new())).collect()
}

#[cfg(test)]
mod tests;
