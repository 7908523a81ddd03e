//! What members own before they are assigned anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::{Subscriptions, TopicCounts};

/// What members own before they are assigned anew.
pub(super) struct Owned {
    /// Per member, the partitions that exist and that it still subscribes to. If several members claim a partition, the
    /// claim of the highest generation counts (measured 4.3.1).
    pub(super) by_member: BTreeMap<Arc<str>, Vec<TopicPartition>>,
    /// Claimed by two members of one generation: they have no owner (spec 8.6 step 1).
    pub(super) contested: BTreeSet<TopicPartition>,
}

impl Owned {
    pub(super) fn of(topics: &TopicCounts, members: &Subscriptions) -> Self {
        let exists = |tp: &TopicPartition| {
            topics
                .get(&tp.topic)
                .is_some_and(|&count| (0..count).contains(&tp.partition))
        };
        // partition -> (highest generation that claims it, its claimants)
        let mut claimed: BTreeMap<&TopicPartition, (i32, BTreeSet<&Arc<str>>)> = BTreeMap::new();
        for (id, member) in members {
            let generation = member.generation.unwrap_or(-1);
            for tp in member
                .owned
                .iter()
                .filter(|tp| exists(tp) && member.topics.contains(&tp.topic))
            {
                let (best, claimants) = claimed.entry(tp).or_insert_with(|| (generation, BTreeSet::new()));
                if generation > *best {
                    *best = generation;
                    claimants.clear();
                }
                if generation == *best {
                    claimants.insert(id);
                }
            }
        }
        let mut owned = Self {
            by_member: members.keys().map(|id| (Arc::clone(id), Vec::new())).collect(),
            contested: BTreeSet::new(),
        };
        for (tp, (_, claimants)) in claimed {
            match (
                claimants.len(),
                claimants.first().and_then(|id| owned.by_member.get_mut(*id)),
            ) {
                (1, Some(list)) => list.push(tp.clone()),
                _ => _ = owned.contested.insert(tp.clone()),
            }
        }
        owned
    }
}
