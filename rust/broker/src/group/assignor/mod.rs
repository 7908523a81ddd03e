//! The assignors of the coordinator: who is to read which partition of a consumer group (spec 8.11) or of a share
//! group (spec 14.2). Kafka: `PartitionAssignor`.
//!
//! Pure functions. Their results depend on the walk order of Java's hash tables, so that a group has the same target as with a real broker.

mod heterogeneous;
mod homogeneous;
mod range;
mod simple;

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::TopicId;
use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};

pub(super) use simple::{ShareMember, simple};

/// Partitions by topic, ascending. Kafka: `MemberAssignment`.
pub type MemberAssignment = BTreeMap<TopicId, Vec<i32>>;

/// A member of the group, as an assignor sees it. Kafka: `MemberSubscription`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSubscription {
    /// Its id.
    pub member_id: Arc<str>,
    /// Its `group.instance.id`.
    pub instance_id: Option<Arc<str>>,
    /// The topics that it subscribes to, each once.
    pub topics: Vec<TopicId>,
    /// What the present target gives it.
    pub assigned: MemberAssignment,
}

/// A group. Kafka: `GroupSpec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// The number of partitions of each topic that exists.
    pub topics: BTreeMap<TopicId, i32>,
    /// The members, in the order in which they joined.
    pub members: Vec<MemberSubscription>,
}

/// A member subscribes to a topic that does not exist. Kafka: `PartitionAssignorException`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTopic(pub TopicId);

/// An assignor of the coordinator, as in `group.consumer.assignors` and `group.remote.assignor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAssignor {
    /// Balances the partitions of all topics together, and moves few. Kafka: `UniformAssignor`.
    Uniform,
    /// Gives each member consecutive partitions of each topic. Kafka: `RangeAssignor`.
    Range,
}

impl ServerAssignor {
    /// What each member is to have; every member is in the result.
    ///
    /// # Errors
    /// A member subscribes to a topic that does not exist.
    pub fn assign(self, group: &GroupSpec) -> Result<BTreeMap<Arc<str>, MemberAssignment>, UnknownTopic> {
        let known = Topics::of(group)?;
        let assigned = match self {
            Self::Range => range::assign(group, &known),
            Self::Uniform if known.are_same_for_all(group) => homogeneous::assign(group, &known),
            Self::Uniform => heterogeneous::assign(group, &known),
        };
        let of_member = |(i, partitions): (usize, Vec<(usize, Vec<i32>)>)| {
            let topics = partitions.into_iter().map(|(topic, mut partitions)| {
                partitions.sort_unstable();
                (known.ids[topic], partitions)
            });
            (Arc::clone(&group.members[i].member_id), topics.collect())
        };
        Ok(assigned.into_iter().enumerate().map(of_member).collect())
    }
}

/// Of each member, in the order of [`GroupSpec::members`]: topics by number, each with partitions in any order.
type Assigned = Vec<Vec<(usize, Vec<i32>)>>;

/// The topics by number: their ids in ascending order.
struct Topics {
    ids: Vec<TopicId>,
    partitions: Vec<i32>,
    /// What each member subscribes to, ascending.
    subscribed: Vec<Vec<usize>>,
    /// The members that subscribe to each topic, in the order in which they joined.
    subscribers: Vec<Vec<usize>>,
}

impl Topics {
    fn of(group: &GroupSpec) -> Result<Self, UnknownTopic> {
        let (ids, partitions): (Vec<TopicId>, Vec<i32>) = group.topics.iter().map(|(id, n)| (*id, *n)).unzip();
        let number = |id: &TopicId| ids.binary_search(id).map_err(|_| UnknownTopic(*id));
        let mut subscribed = Vec::with_capacity(group.members.len());
        let mut subscribers = vec![Vec::new(); ids.len()];
        for (i, member) in group.members.iter().enumerate() {
            let mut topics = member.topics.iter().map(number).collect::<Result<Vec<usize>, _>>()?;
            topics.sort_unstable();
            topics.dedup();
            topics.iter().for_each(|&topic| subscribers[topic].push(i));
            subscribed.push(topics);
        }
        Ok(Self {
            ids,
            partitions,
            subscribed,
            subscribers,
        })
    }

    /// Whether every topic that a member subscribes to is one of all members. Kafka: `SubscriptionType#HOMOGENEOUS`.
    fn are_same_for_all(&self, group: &GroupSpec) -> bool {
        self.subscribers
            .iter()
            .all(|members| members.is_empty() || members.len() == group.members.len())
    }

    /// What the target gives a member: the topics that exist by number, in ascending order of their ids.
    fn assigned<'a>(&'a self, member: &'a MemberSubscription) -> impl Iterator<Item = (usize, &'a [i32])> {
        let numbered = |(id, partitions): (&TopicId, &'a Vec<i32>)| {
            let topic = self.ids.binary_search(id).ok()?;
            Some((topic, partitions.as_slice()))
        };
        member.assigned.iter().filter_map(numbered)
    }
}

/// The members in the walk order of Kafka's table of them, `HashMap<String, ..>`.
fn walk_of_members(group: &GroupSpec) -> Vec<usize> {
    let hashes: Vec<i32> = group.members.iter().map(|m| string_hash(&m.member_id)).collect();
    walk_order(&hashes, DEFAULT_CAPACITY)
}

/// `java.util.UUID#hashCode`: its four words, one over the other.
fn uuid_hash(id: &TopicId) -> i32 {
    let words = id.as_chunks::<4>().0.iter();
    words.fold(0, |hash, word| hash ^ i32::from_be_bytes(*word))
}

/// A number that is ordered as a `java.util.UUID`: by its two halves, which are signed.
fn uuid_order(id: &TopicId) -> i128 {
    i128::from_be_bytes(*id) ^ (1 << 63)
}
