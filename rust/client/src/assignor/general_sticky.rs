//! The sticky assignor for members with different subscriptions (spec 8.6 step 4): valid, balanced, sticky.
//! Kafka's result depends on hash orders; this one has the same properties and depends only on the input.
//!
//! The partition counts end as even as the subscriptions allow: no chain of moves (a partition from A to B, one from B
//! to C, ...) leads from a member to one with at least two partitions fewer. So a second rebalance, after the owners
//! have released what they lose, reaches the same counts and moves nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::owned::Owned;
use super::racks::{PartitionRacks, RackInfo, Racks};
use super::{Assignment, Subscriptions, TopicCounts, java_compare, subscribed_partitions};

/// Topic -> the members that subscribe to it, sorted.
type Consumers<'a> = BTreeMap<Arc<str>, Vec<&'a Arc<str>>>;

/// Keeps what is owned, gives each other partition to its least loaded subscriber (those with few subscribers first),
/// then balances the counts: first by moving only partitions without an owner, then, if that is not enough, owned ones.
/// Owned partitions that an exchange can return go back to their owner.
///
/// Where racks decide, partitions go to subscribers with a replica in their rack, or without a rack, if there are any: also owned ones, and
/// moves to others follow only where these do not suffice.
pub(super) fn general(topics: &TopicCounts, racks: &PartitionRacks, members: &Subscriptions) -> Assignment {
    let all = subscribed_partitions(topics, members);
    let none = Racks::new();
    let racks = RackInfo::of(topics, racks, &none, members, &all);
    let consumers = consumers_of(members);
    let is_near = |tp: &TopicPartition, id: &Arc<str>| !racks.mismatch(id, tp);
    let has_near = |tp: &TopicPartition| {
        let mut ids = consumers.get(&tp.topic).into_iter().flatten();
        ids.any(|id| is_near(tp, id))
    };
    let mut assignment: Assignment = Owned::of(topics, members).by_member;
    for (id, list) in &mut assignment {
        list.retain(|tp| is_near(tp, id) || !has_near(tp));
    }
    let owners: BTreeMap<TopicPartition, Arc<str>> = assignment
        .iter()
        .flat_map(|(id, list)| list.iter().map(|tp| (tp.clone(), Arc::clone(id))))
        .collect();

    let mut free: Vec<TopicPartition> = all.into_iter().filter(|tp| !owners.contains_key(tp)).collect();
    free.sort_by_key(|tp| (!has_near(tp), consumers.get(&tp.topic).map_or(0, Vec::len)));
    for tp in free {
        let anywhere = !has_near(&tp);
        let ids = consumers.get(&tp.topic).into_iter().flatten().copied();
        let least = ids
            .filter(|id| anywhere || is_near(&tp, id))
            .min_by_key(|id| load(&assignment, id));
        if let Some(list) = least.and_then(|id| assignment.get_mut(id)) {
            list.push(tp);
        }
    }
    let is_free = |tp: &TopicPartition| !owners.contains_key(tp);
    if racks.decides() {
        even_out(&mut assignment, &consumers, &|tp, to| is_free(tp) && is_near(tp, to));
        even_out(&mut assignment, &consumers, &is_near);
    }
    even_out(&mut assignment, &consumers, &|tp, _| is_free(tp));
    even_out(&mut assignment, &consumers, &|_, _| true);
    let may_take =
        |tp: &TopicPartition, holder: &Arc<str>, owner: &Arc<str>| is_near(tp, holder) || !is_near(tp, owner);
    give_back(&mut assignment, &owners, &consumers, &may_take);
    assignment
}

/// Topic -> the members that subscribe to it.
fn consumers_of(members: &Subscriptions) -> Consumers<'_> {
    let mut consumers: Consumers<'_> = BTreeMap::new();
    for (id, member) in members {
        for topic in member.topics.iter().collect::<BTreeSet<_>>() {
            consumers.entry(Arc::clone(topic)).or_default().push(id);
        }
    }
    for ids in consumers.values_mut() {
        ids.sort_by(|a, b| java_compare(a, b));
    }
    consumers
}

/// Whether the first member may take a partition from the second one.
type MayTake<'a> = &'a dyn Fn(&TopicPartition, &Arc<str>, &Arc<str>) -> bool;

/// Returns moved partitions to their owners where an exchange keeps all counts. Ends: each exchange raises the number
/// of partitions that stayed.
fn give_back(
    assignment: &mut Assignment,
    owners: &BTreeMap<TopicPartition, Arc<str>>,
    consumers: &Consumers<'_>,
    may_take: MayTake<'_>,
) {
    while let Some((holder, tp, owner, other)) = exchange(assignment, owners, consumers, may_take) {
        transfer(assignment, &holder, &tp, &owner);
        if let Some(other) = other {
            transfer(assignment, &owner, &other, &holder);
        }
    }
}

/// (holder, partition, its owner, what the owner gives in return): a partition that the owner did not own before, or
/// nothing if the holder has more partitions than the owner.
#[allow(clippy::type_complexity, reason = "one exchange, named in the comment above")]
fn exchange(
    assignment: &Assignment,
    owners: &BTreeMap<TopicPartition, Arc<str>>,
    consumers: &Consumers<'_>,
    may_take: MayTake<'_>,
) -> Option<(Arc<str>, TopicPartition, Arc<str>, Option<TopicPartition>)> {
    assignment.iter().find_map(|(holder, list)| {
        list.iter().find_map(|tp| {
            let owner = owners.get(tp).filter(|owner| *owner != holder)?;
            let found = |other| Some((Arc::clone(holder), tp.clone(), Arc::clone(owner), other));
            if load(assignment, owner) < load(assignment, holder) {
                return found(None);
            }
            let takes = |other: &&TopicPartition| {
                owners.get(*other) != Some(owner)
                    && may_take(other, holder, owner)
                    && consumers.get(&other.topic).is_some_and(|ids| ids.contains(&holder))
            };
            let other = assignment.get(owner)?.iter().find(takes)?;
            found(Some(other.clone()))
        })
    })
}

fn transfer(assignment: &mut Assignment, from: &Arc<str>, tp: &TopicPartition, to: &Arc<str>) {
    if let Some(list) = assignment.get_mut(from) {
        list.retain(|other| other != tp);
    }
    if let Some(list) = assignment.get_mut(to) {
        list.push(tp.clone());
    }
}

fn load(assignment: &Assignment, member: &Arc<str>) -> usize {
    assignment.get(member).map_or(0, Vec::len)
}

/// Moves partitions along chains until none helps. Ends: each chain lowers the sum of the squares of the counts.
fn even_out(
    assignment: &mut Assignment,
    consumers: &Consumers<'_>,
    movable: &dyn Fn(&TopicPartition, &Arc<str>) -> bool,
) {
    while let Some(chain) = helping_chain(assignment, consumers, movable) {
        for (from, tp, to) in chain {
            transfer(assignment, &from, &tp, &to);
        }
    }
}

/// The shortest chain of moves from the most loaded member that can give to one with at least two fewer.
#[allow(clippy::type_complexity, reason = "one list of moves, named in the comment above")]
fn helping_chain(
    assignment: &Assignment,
    consumers: &Consumers<'_>,
    movable: &dyn Fn(&TopicPartition, &Arc<str>) -> bool,
) -> Option<Vec<(Arc<str>, TopicPartition, Arc<str>)>> {
    let mut by_load: Vec<&Arc<str>> = assignment.keys().collect();
    by_load.sort_by(|a, b| {
        load(assignment, b)
            .cmp(&load(assignment, a))
            .then_with(|| java_compare(a, b))
    });
    by_load.into_iter().find_map(|start| {
        // Breadth first; for each member reached: its giver and the partition given.
        let mut reached: BTreeMap<&Arc<str>, (&Arc<str>, &TopicPartition)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(from) = queue.pop_front() {
            for tp in assignment.get(from).into_iter().flatten() {
                for &to in consumers.get(&tp.topic).into_iter().flatten() {
                    if to == start || reached.contains_key(to) || !movable(tp, to) {
                        continue;
                    }
                    reached.insert(to, (from, tp));
                    if load(assignment, to) + 1 < load(assignment, start) {
                        return Some(chain_to(start, to, &reached));
                    }
                    queue.push_back(to);
                }
            }
        }
        None
    })
}

fn chain_to(
    start: &Arc<str>,
    end: &Arc<str>,
    reached: &BTreeMap<&Arc<str>, (&Arc<str>, &TopicPartition)>,
) -> Vec<(Arc<str>, TopicPartition, Arc<str>)> {
    let mut chain = Vec::new();
    let mut to = end;
    while let Some(&(from, tp)) = reached.get(to).filter(|_| to != start) {
        chain.push((Arc::clone(from), tp.clone(), Arc::clone(to)));
        to = from;
    }
    chain
}
