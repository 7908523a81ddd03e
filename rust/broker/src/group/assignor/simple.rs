//! The assignor of share groups, "simple" (spec 14.2). Kafka: `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`,
//! `SimpleHeterogeneousAssignmentBuilder`.
//!
//! Every partition goes to the same number of members, so that all members have one: P partitions and M members make S = ceil(M / P)
//! places of each partition. The S * P places are dealt out to the members: member i in the walk order of Kafka's table gets
//! ceil(x * (i + 1)) - ceil(x * i) of them, with x = S * P / M. What a member had it keeps, up to its number and that of the partition.
//! If all members subscribe to the same topics, their partitions are dealt out together, otherwise topic by topic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::TopicId;
use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};

/// Partitions by topic. A topic has at least one.
type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;

/// A member of a share group, as its assignor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShareMember {
    /// Its id.
    pub(crate) member_id: Arc<str>,
    /// The topics that it subscribes to.
    pub(crate) topics: BTreeSet<TopicId>,
    /// What the present target gives it.
    pub(crate) assigned: Partitions,
}

/// What each member is to have of the partitions that can be read; every member is in the result.
pub(crate) fn simple(
    members: &[ShareMember],
    readable: &BTreeMap<TopicId, Vec<i32>>,
) -> BTreeMap<Arc<str>, Partitions> {
    let hashes: Vec<i32> = members.iter().map(|m| string_hash(&m.member_id)).collect();
    let members: Vec<&ShareMember> = walk_order(&hashes, DEFAULT_CAPACITY)
        .into_iter()
        .map(|i| &members[i])
        .collect();
    let mut targets: Vec<Partitions> = vec![Partitions::new(); members.len()];
    let of_topic = |(id, partitions): (&TopicId, &Vec<i32>)| -> Vec<(TopicId, i32)> {
        partitions.iter().map(|p| (*id, *p)).collect()
    };
    let are_same = members.windows(2).all(|pair| pair[0].topics == pair[1].topics);
    let parts: Vec<Vec<(TopicId, i32)>> = match are_same {
        true => vec![readable.iter().flat_map(of_topic).collect()],
        false => readable.iter().map(of_topic).collect(),
    };
    for places in parts {
        let reads = |member: &ShareMember| places.first().is_some_and(|(topic, _)| member.topics.contains(topic));
        let readers: Vec<usize> = (0..members.len()).filter(|i| reads(members[*i])).collect();
        let had = |i: usize, place: &(TopicId, i32)| {
            let partitions = members[i].assigned.get(&place.0);
            partitions.is_some_and(|partitions| partitions.contains(&place.1))
        };
        for (i, (topic, partition)) in Deal::of(&places, readers, &had).finish() {
            targets[i].entry(topic).or_default().insert(partition);
        }
    }
    let ids = members.iter().map(|member| Arc::clone(&member.member_id));
    ids.zip(targets).collect()
}

/// The places of some partitions, while they are dealt out.
struct Deal<'a> {
    partitions: &'a [(TopicId, i32)],
    readers: Vec<usize>,
    /// How many members each partition has.
    sharing: usize,
    /// How many partitions each of the readers has.
    wanted: Vec<usize>,
    /// The readers of each partition, by their numbers in `readers`.
    holders: Vec<BTreeSet<usize>>,
    /// How many partitions each of the readers has so far.
    counts: Vec<usize>,
}

impl<'a> Deal<'a> {
    /// What is kept of what the readers had.
    fn of(partitions: &'a [(TopicId, i32)], readers: Vec<usize>, had: &dyn Fn(usize, &(TopicId, i32)) -> bool) -> Self {
        let (all, members) = (partitions.len(), readers.len());
        let sharing = members.div_ceil(all.max(1));
        let until = |i: usize| (sharing * all * i).div_ceil(members.max(1));
        let mut deal = Self {
            partitions,
            sharing,
            wanted: (0..members).map(|i| until(i + 1) - until(i)).collect(),
            holders: vec![BTreeSet::new(); all],
            counts: vec![0; members],
            readers,
        };
        for (at, partition) in partitions.iter().enumerate() {
            for (reader, i) in deal.readers.iter().enumerate() {
                if had(*i, partition) {
                    deal.holders[at].insert(reader);
                    deal.counts[reader] += 1;
                }
            }
        }
        deal
    }

    /// Takes places away from partitions and members that have too many, deals out the others.
    fn finish(mut self) -> Vec<(usize, (TopicId, i32))> {
        self.take_from_crowded_partitions();
        self.take_from_members_with_too_many();
        self.fill();
        let mut dealt = Vec::new();
        for (at, readers) in self.holders.iter().enumerate() {
            dealt.extend(
                readers
                    .iter()
                    .map(|reader| (self.readers[*reader], self.partitions[at])),
            );
        }
        dealt
    }

    fn take(&mut self, at: usize, reader: usize) {
        self.holders[at].remove(&reader);
        self.counts[reader] -= 1;
    }

    /// From members with too many partitions first.
    fn take_from_crowded_partitions(&mut self) {
        for at in 0..self.holders.len() {
            while self.holders[at].len() > self.sharing {
                let holders = &self.holders[at];
                let has_too_many = |reader: &&usize| self.counts[**reader] > self.wanted[**reader];
                let Some(reader) = holders.iter().find(has_too_many).or_else(|| holders.first()) else {
                    break;
                };
                self.take(at, *reader);
            }
        }
    }

    fn take_from_members_with_too_many(&mut self) {
        for at in 0..self.holders.len() {
            let has_too_many = |reader: &usize| self.counts[*reader] > self.wanted[*reader];
            let over: Vec<usize> = self.holders[at].iter().copied().filter(has_too_many).collect();
            for reader in over {
                self.take(at, reader);
            }
        }
    }

    /// To members with too few, in turn. A partition has fewer if all of these have it already.
    fn fill(&mut self) {
        let members = self.readers.len();
        let mut next = 0;
        for at in 0..self.holders.len() {
            while self.holders[at].len() < self.sharing {
                let fits =
                    |reader: &usize| self.counts[*reader] < self.wanted[*reader] && !self.holders[at].contains(reader);
                let Some(reader) = (0..members).map(|i| (next + i) % members).find(fits) else {
                    break;
                };
                self.holders[at].insert(reader);
                self.counts[reader] += 1;
                next = reader + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: TopicId = [1; 16];
    const B: TopicId = [2; 16];

    fn member(id: &str, topics: &[TopicId]) -> ShareMember {
        ShareMember {
            member_id: id.into(),
            topics: topics.iter().copied().collect(),
            assigned: Partitions::new(),
        }
    }

    /// The sizes of the members' parts, in the order of their ids.
    fn sizes(target: &BTreeMap<Arc<str>, Partitions>) -> Vec<usize> {
        target
            .values()
            .map(|topics| topics.values().map(BTreeSet::len).sum())
            .collect()
    }

    /// The members with what the target gives them.
    fn after(members: &[ShareMember], target: &BTreeMap<Arc<str>, Partitions>) -> Vec<ShareMember> {
        let with = |member: &ShareMember| ShareMember {
            assigned: target.get(&member.member_id).cloned().unwrap_or_default(),
            ..member.clone()
        };
        members.iter().map(with).collect()
    }

    #[test]
    fn places_are_rounded_up_and_dealt_out_in_the_walk_order_of_kafkas_table() {
        // Recorded: two partitions, members that join one after the other.
        let readable = BTreeMap::from([(A, vec![0, 1])]);
        let mut members = vec![member("m-a", &[A])];
        let mut seen = Vec::new();
        for id in ["m-b", "m-c", "m-d", ""] {
            let target = simple(&members, &readable);
            seen.push(sizes(&target));
            members = after(&members, &target);
            members.push(member(id, &[A]));
        }
        assert_eq!(seen, [vec![2], vec![1, 1], vec![2, 1, 1], vec![1, 1, 1, 1]]);
    }

    /// From SimpleAssignor of Kafka 4.4.0: groups step by step, see tests/golden/README.md.
    #[test]
    fn each_member_has_as_many_partitions_as_kafka_gives_it() {
        let recorded = include_str!("../../../../../tests/golden/share-groups/assignors.jsonl");
        let mut steps = 0;
        for line in recorded.lines() {
            let group: serde_json::Value = serde_json::from_str(line).unwrap();
            let id = |text: &str| u128::from_str_radix(text, 16).unwrap().to_be_bytes();
            let count = |n: &serde_json::Value| i32::try_from(n.as_i64().unwrap()).unwrap();
            let mut had: BTreeMap<String, Partitions> = BTreeMap::new();
            for step in group["steps"].as_array().unwrap() {
                let members = step["members"].as_array().unwrap().iter().map(|m| {
                    let topics = m["topics"].as_array().unwrap().iter();
                    let name = m["id"].as_str().unwrap();
                    ShareMember {
                        member_id: name.into(),
                        topics: topics.map(|t| id(t.as_str().unwrap())).collect(),
                        assigned: had.get(name).cloned().unwrap_or_default(),
                    }
                });
                let members: Vec<ShareMember> = members.collect();
                let topics = group["topics"].as_object().unwrap().iter();
                let readable = topics.map(|(topic, n)| (id(topic), (0..count(n)).collect::<Vec<i32>>()));
                let is_subscribed = |topic: &TopicId| members.iter().any(|m| m.topics.contains(topic));
                let readable = readable.filter(|(topic, _)| is_subscribed(topic)).collect();
                let given = step["target"].as_object().unwrap().iter().map(|(name, topics)| {
                    let topics = topics.as_object().unwrap().iter();
                    let partitions =
                        topics.map(|(topic, p)| (id(topic), p.as_array().unwrap().iter().map(count).collect()));
                    (name.clone(), partitions.collect::<Partitions>())
                });
                had = given.collect();
                let kafkas: Vec<usize> = had
                    .values()
                    .map(|topics| topics.values().map(BTreeSet::len).sum())
                    .collect();
                assert_eq!(sizes(&simple(&members, &readable)), kafkas, "{step}");
                steps += 1;
            }
        }
        assert!(steps > 150);
    }

    #[test]
    fn with_different_subscriptions_each_topic_is_dealt_out_alone() {
        let readable = BTreeMap::from([(A, vec![0, 1]), (B, vec![0, 1])]);
        let members = [member("a", &[A]), member("b", &[B]), member("c", &[A, B])];
        let target = simple(&members, &readable);
        assert_eq!(sizes(&target), [1, 1, 2]);
        assert_eq!(target["a"].keys().collect::<Vec<_>>(), [&A]);
    }

    #[test]
    fn nothing_to_read_and_nobody_to_read_it() {
        assert_eq!(
            sizes(&simple(&[member("a", &[A])], &BTreeMap::from([(A, vec![])]))),
            [0]
        );
        assert_eq!(sizes(&simple(&[member("a", &[])], &BTreeMap::new())), [0]);
        assert!(simple(&[], &BTreeMap::from([(A, vec![0])])).is_empty());
    }

    proptest! {
        /// Members join and leave: no member has more than its number, none has a partition twice or one of another topic, every
        /// partition has a reader, and who does not have too many keeps what it has when others leave.
        #[test]
        fn every_partition_is_read_and_nobody_has_too_many(
            joins in proptest::collection::vec((0u8..30, any::<bool>()), 1..40), partitions in 1i32..12,
        ) {
            let readable = BTreeMap::from([(A, (0..partitions).collect::<Vec<_>>())]);
            let mut members: Vec<ShareMember> = Vec::new();
            for (id, joins) in joins {
                let id = format!("member-{id}");
                let (before, known) = (members.len(), members.iter().position(|m| *m.member_id == *id));
                match (known, joins) {
                    (None, true) => members.push(member(&id, &[A])),
                    (Some(at), false) if before > 1 => drop(members.remove(at)),
                    _ => continue,
                }
                let target = simple(&members, &readable);
                let (all, count) = (usize::try_from(partitions).unwrap(), members.len());
                let sharing = count.div_ceil(all);
                let most = (sharing * all).div_ceil(count);
                prop_assert!(sizes(&target).iter().all(|size| *size <= most));
                let read: BTreeSet<i32> = target.values().flat_map(|t| t.get(&A)).flatten().copied().collect();
                prop_assert_eq!(read.len(), all);
                members = after(&members, &target);
                // Nothing has changed: nothing moves.
                prop_assert_eq!(&simple(&members, &readable), &target);
            }
        }
    }
}
