//! The uniform assignor where all members subscribe to the same topics. Kafka: `UniformHomogeneousAssignmentBuilder`.
//!
//! Each member has a quota: the partitions divided by the members, and one more for as many members as there are partitions left. A member
//! keeps what it has up to its quota; the rest goes to those below theirs, in the walk order of Kafka's table of members.

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, hash_set_capacity, walk_order};

use super::{Assigned, GroupSpec, Topics, uuid_hash, walk_of_members};

pub(super) fn assign(group: &GroupSpec, topics: &Topics) -> Assigned {
    let mut assigned = vec![Vec::new(); group.members.len()];
    let order = walk_of_members(group);
    let Some(subscribed) = order.first().map(|&first| &topics.subscribed[first]) else {
        return assigned;
    };
    let mut quotas = Quotas::of(
        subscribed.iter().map(|&t| count(topics.partitions[t])).sum(),
        order.len(),
    );
    let mut free = without_owner(group, topics, subscribed);
    let mut wanting = Vec::new();
    for &member in &order {
        let mut quota = quotas.next();
        for (topic, partitions) in walk_of_assignment(topics, topics.assigned(&group.members[member]).collect()) {
            if subscribed.binary_search(&topic).is_ok() {
                let kept = keep(topic, partitions, &mut quota.left, &mut free);
                if !kept.is_empty() {
                    assigned[member].push((topic, kept));
                }
            }
        }
        quotas.settle(&mut quota);
        if quota.left > 0 {
            wanting.push((member, quota.left));
        }
    }
    let mut free = free.into_iter();
    for (member, quota) in wanting {
        for (topic, partition) in free.by_ref().take(quota) {
            match assigned[member].iter_mut().find(|(t, _)| *t == topic) {
                Some((_, partitions)) => partitions.push(partition),
                None => assigned[member].push((topic, vec![partition])),
            }
        }
    }
    assigned
}

/// How many partitions the members may have.
struct Quotas {
    low: usize,
    /// How many of the members that were not looked at get one more.
    extra: usize,
    members_left: usize,
}

/// That of one member.
struct Quota {
    left: usize,
    has_extra: bool,
}

impl Quotas {
    fn of(partitions: usize, members: usize) -> Self {
        Self {
            low: partitions / members,
            extra: partitions % members,
            members_left: members,
        }
    }

    fn next(&self) -> Quota {
        let has_extra = self.extra > 0;
        Quota {
            left: self.low + usize::from(has_extra),
            has_extra,
        }
    }

    /// A member that does not own its extra partition leaves it to a later member, as long as enough of them are left.
    fn settle(&mut self, quota: &mut Quota) {
        if quota.has_extra {
            if quota.left > 0 && self.members_left > self.extra {
                quota.left -= 1;
            } else {
                self.extra -= 1;
            }
        }
        self.members_left -= 1;
    }
}

/// Takes from a quota what a member has of a topic. If not all of it fits, the rest is free.
fn keep(topic: usize, partitions: &[i32], quota: &mut usize, free: &mut Vec<(usize, i32)>) -> Vec<i32> {
    if partitions.len() <= *quota {
        *quota -= partitions.len();
        return partitions.to_vec();
    }
    // the walk order of `new HashSet<Integer>(partitions)`
    let mut walk = walk_order(partitions, hash_set_capacity(partitions.len())).into_iter();
    let kept = walk.by_ref().take(*quota).map(|i| partitions[i]).collect();
    *quota = 0;
    free.extend(walk.map(|i| (topic, partitions[i])));
    kept
}

/// The partitions that the target gives to nobody: topics in the walk order of `new HashSet<Uuid>(topics)`, partitions ascending.
fn without_owner(group: &GroupSpec, topics: &Topics, subscribed: &[usize]) -> Vec<(usize, i32)> {
    let mut owned: Vec<Vec<bool>> = topics.partitions.iter().map(|&n| vec![false; count(n)]).collect();
    for member in &group.members {
        for (topic, partitions) in topics.assigned(member) {
            for &partition in partitions {
                if let Some(owned) = owned[topic].get_mut(usize::try_from(partition).unwrap_or(usize::MAX)) {
                    *owned = true;
                }
            }
        }
    }
    let hashes: Vec<i32> = subscribed.iter().map(|&t| uuid_hash(&topics.ids[t])).collect();
    let walk = walk_order(&hashes, hash_set_capacity(subscribed.len()));
    let free_of = |i: usize| {
        let topic = subscribed[i];
        let free = (0..topics.partitions[topic]).zip(&owned[topic]);
        free.filter(|(_, owned)| !**owned)
            .map(move |(partition, _)| (topic, partition))
    };
    walk.into_iter().flat_map(free_of).collect()
}

/// What a member has, in the walk order of `HashMap<Uuid, ..>`.
fn walk_of_assignment<'a>(topics: &Topics, assigned: Vec<(usize, &'a [i32])>) -> Vec<(usize, &'a [i32])> {
    let hashes: Vec<i32> = assigned.iter().map(|&(t, _)| uuid_hash(&topics.ids[t])).collect();
    let walk = walk_order(&hashes, DEFAULT_CAPACITY);
    walk.into_iter().map(|i| assigned[i]).collect()
}

fn count(partitions: i32) -> usize {
    usize::try_from(partitions).unwrap_or(0)
}
