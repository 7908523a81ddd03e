//! An election has cut partitions of `__consumer_offsets`: their groups are what is left of their records (spec 8.14). Kafka:
//! `CoordinatorRuntime`, a context that is unloaded and loaded; `GroupMetadataManager#onUnloaded`, `#onLoaded`.
//!
//! What continues is which members of these groups are in this process: they live by their clients, not by sessions that begin anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_records::planted;
use rustc_hash::FxHashMap;

use super::coordinator::GroupCoordinator;
use super::member::{Member, Session};
use super::state::Group;
use crate::partition::Partition;
use crate::topic_names::CONSUMER_OFFSETS;

/// The sessions of members in this process, by member id.
type Sessions = FxHashMap<Arc<str>, Session>;

/// Who the members of a group were: of a classic group, and in this process of a consumer group or a share group.
#[derive(Debug, Default)]
struct Former {
    members: Vec<Member>,
    consumers: Sessions,
    sharers: Sessions,
}

impl Former {
    fn take(group: &mut Group) -> Self {
        let consumer = group.consumer.as_mut();
        let share = group.share.as_mut();
        Self {
            members: std::mem::take(&mut group.members),
            consumers: consumer.map_or_else(Sessions::default, |consumer| std::mem::take(&mut consumer.sessions)),
            sharers: share.map_or_else(Sessions::default, |share| std::mem::take(&mut share.sessions)),
        }
    }
}

impl GroupCoordinator {
    /// Called after an election has cut logs and [`Self::on_election`] has ended what waits in their groups. No request runs meanwhile, so nothing
    /// is written between the cut and the end of this. All groups of these partitions are removed from memory before timers run, and then read
    /// from their logs. A log that cannot be read is logged, and read again with the next request.
    pub(crate) fn load_cut(&self, cut: &[Arc<Partition>]) {
        let cut: Vec<&Arc<Partition>> = cut
            .iter()
            .filter(|partition| *partition.tp().topic == *CONSUMER_OFFSETS && !planted!("groups-of-a-cut-log-kept"))
            .collect();
        if cut.is_empty() {
            return;
        }
        let mut loaded = self.loaded.lock();
        let numbers: BTreeSet<i32> = cut.iter().map(|partition| partition.tp().partition).collect();
        let mut former = self.unload(&numbers);
        for partition in cut {
            // One that no request has asked for is loaded for the first one.
            if loaded.remove(&partition.tp().partition).is_some() && self.load_partition(&mut loaded, partition).is_ok()
            {
                self.continue_members(partition, &mut former);
            }
        }
        drop(loaded);
        self.on_loaded();
    }

    /// Removes the groups of partitions from memory; returns who their members were. Kafka: `GroupMetadataManager#onUnloaded`.
    fn unload(&self, partitions: &BTreeSet<i32>) -> FxHashMap<Arc<str>, Former> {
        let ids = self.ids().into_iter();
        let of_partitions = ids.filter(|id| partitions.contains(&self.partition_for(id)));
        let mut all = FxHashMap::default();
        for id in of_partitions {
            let former = self.in_group(&id, |group| {
                let former = Former::take(group);
                self.remove_group(group);
                former
            });
            all.insert(id, former.unwrap_or_default());
        }
        let mut open = self.open_groups_for_producer.lock();
        open.retain(|_, groups| {
            groups.retain(|id| !partitions.contains(&self.partition_for(id)));
            !groups.is_empty()
        });
        all
    }

    /// Lets the members in this process continue to live by their clients, in the groups of a partition that was read again.
    fn continue_members(&self, partition: &Partition, former: &mut FxHashMap<Arc<str>, Former>) {
        let number = partition.tp().partition;
        let ids: BTreeSet<Arc<str>> = former
            .keys()
            .filter(|id| self.partition_for(id) == number)
            .cloned()
            .collect();
        let mut written = self.last_written(partition, &ids);
        let now_ms = self.replicas.clock().monotonic_ms();
        for id in ids {
            let (former, value) = (former.remove(&id).unwrap_or_default(), written.remove(&id).flatten());
            self.in_group(&id, |group| match (&mut group.consumer, &mut group.share) {
                (Some(consumer), _) => {
                    let left = former.consumers.into_iter();
                    consumer.sessions = left.filter(|(id, _)| consumer.member(id).is_some()).collect();
                }
                (None, Some(share)) => {
                    let left = former.sharers.into_iter();
                    share.sessions = left.filter(|(id, _)| share.has_member(id)).collect();
                }
                (None, None) if value.is_some() => {
                    group.members = former.members;
                    group.restore(value, now_ms);
                }
                (None, None) => {}
            });
        }
    }
}
