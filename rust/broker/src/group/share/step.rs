//! What a heartbeat does to its share group: the member's record, the group's epoch, the target, what the member has, and the partitions
//! whose state is to be made (spec 14.1). Kafka: `GroupMetadataManager#shareGroupHeartbeat`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::InitializeShareGroupStateRequest;
use fletchlog_protocol::messages::initialize_share_group_state_request::{InitializeStateData, PartitionData};
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::ShareGroupMemberMetadataValue;

use super::super::assignor::{ShareMember, simple};
use super::super::consumer_change::Change;
use super::super::consumer_member::Partitions;
use super::super::coordinator::GroupCoordinator;
use super::super::metadata_hash::group_hash;
use super::group::ShareGroup;
use super::member::ShareAssignment;
use super::records::ShareRecord;
use super::state_partitions::{Named, StatePartitions, merge};
use crate::topics::TopicTable;

/// A change of a share group.
pub(super) type ShareChange<'a> = Change<'a, ShareGroup>;

/// Partitions whose state is to be made.
pub(super) struct ToInitialize {
    /// The group's epoch becomes the epoch of their states.
    pub(super) state_epoch: i32,
    pub(super) topics: Named,
    /// Where their records begin, if that was asked for; otherwise it is decided when they are first read.
    pub(super) starts: BTreeMap<(TopicId, i32), i64>,
}

/// The start of a state that is decided when the partition is first read. Kafka: `PartitionFactory#UNINITIALIZED_START_OFFSET`.
const UNINITIALIZED: i64 = -1;

impl ToInitialize {
    pub(super) fn partitions(&self) -> impl Iterator<Item = (TopicId, i32)> {
        let topics = self.topics.iter();
        topics.flat_map(|(id, (_, partitions))| partitions.iter().map(|p| (*id, *p)))
    }

    fn request(&self, group_id: &Arc<str>) -> InitializeShareGroupStateRequest {
        let partition = |topic: TopicId, partition: i32| PartitionData {
            partition,
            state_epoch: self.state_epoch,
            start_offset: self.starts.get(&(topic, partition)).copied().unwrap_or(UNINITIALIZED),
        };
        let topics = self.topics.iter().filter(|(_, (_, partitions))| !partitions.is_empty());
        let topics = topics.map(|(id, (_, partitions))| InitializeStateData {
            topic_id: *id,
            partitions: partitions.iter().map(|p| partition(*id, *p)).collect(),
        });
        InitializeShareGroupStateRequest {
            group_id: Arc::clone(group_id),
            topics: topics.collect(),
        }
    }
}

impl GroupCoordinator {
    /// Does what a heartbeat means for the group. Returns the partitions whose state has to be made.
    pub(super) fn step_share_group(
        &self,
        change: &mut ShareChange<'_>,
        id: &Arc<str>,
        before: Option<Arc<ShareGroupMemberMetadataValue>>,
        metadata: ShareGroupMemberMetadataValue,
    ) -> Option<ToInitialize> {
        let table = self.replicas.topic_table();
        let metadata = Arc::new(metadata);
        let subscribed = before.as_ref().map(|before| &before.subscribed_topic_names);
        let subscription_changed = subscribed.is_none_or(|names| *names != metadata.subscribed_topic_names);
        if before.as_ref() != Some(&metadata) {
            change.apply(ShareRecord::Member(Arc::clone(id), Some(metadata)));
        }
        let hash = match change.group.seen {
            Some((version, hash)) if version == table.version() && !subscription_changed => hash,
            _ => group_hash(&table, &change.group.subscribed_topics()),
        };
        change.seen = Some((table.version(), hash));
        let topics_changed = hash != change.group.metadata_hash;
        let is_settled = change.group.settled == Some(table.version()) && !subscription_changed && !topics_changed;
        let waits = || !is_settled && waits_for_assignment(change.group, &table);
        let bumps = subscription_changed || topics_changed || waits();
        let is_quiet = !bumps && change.group.epoch <= change.group.assignment_epoch;
        if bumps {
            let epoch = change.group.epoch.saturating_add(1);
            change.apply(ShareRecord::Epoch(Some((epoch, hash))));
        }
        self.update_share_target(change, &table);
        reconcile(change, id, subscription_changed, &table);
        if is_settled {
            return None;
        }
        let wanted = to_initialize(change, &table);
        if is_quiet && wanted.is_none() && change.group.in_flight.is_empty() {
            change.group.settled = Some(table.version());
        }
        wanted
    }

    /// A new epoch of the group.
    pub(super) fn bump_share_group(&self, change: &mut ShareChange<'_>) {
        let table = self.replicas.topic_table();
        let hash = group_hash(&table, &change.group.subscribed_topics());
        let epoch = change.group.epoch.saturating_add(1);
        change.seen = Some((table.version(), hash));
        change.apply(ShareRecord::Epoch(Some((epoch, hash))));
    }

    /// Computes the target if the group's epoch is newer, unless the previous one was computed a moment ago. Kafka:
    /// `GroupMetadataManager#maybeUpdateTargetAssignment`.
    fn update_share_target(&self, change: &mut ShareChange<'_>, table: &TopicTable) {
        let group = &*change.group;
        if group.epoch <= group.assignment_epoch {
            return;
        }
        let interval_ms = i64::from(self.group_config(&change.group_id, "share.assignment.interval.ms"));
        if !self.may_assign(group.assignment_timestamp_ms, interval_ms) {
            return;
        }
        let target = target_of(group, table);
        let epoch = group.epoch;
        for (id, target) in target {
            if change.group.target(&id).is_none_or(|known| **known != target) {
                change.apply(ShareRecord::Target(id, Some(Arc::new(target))));
            }
        }
        change.apply(ShareRecord::TargetEpoch(Some((epoch, self.replicas.clock().now_ms()))));
    }

    /// Makes the states of partitions, and notes which have one. Kafka: `GroupCoordinatorService#persisterInitialize`,
    /// `#handlePersisterInitializeResponse`.
    ///
    /// Returns the error of each partition whose state could not be made. Not under the group's lock: the share coordinator writes.
    pub(super) fn initialize_share_states(
        &self,
        group_id: &Arc<str>,
        wanted: &ToInitialize,
    ) -> BTreeMap<(TopicId, i32), ErrorCode> {
        let response = self.share_states.initialize_state(&wanted.request(group_id));
        let mut errors = BTreeMap::new();
        for topic in &response.results {
            for result in topic.partitions.iter().filter(|p| p.error_code != ErrorCode::NONE) {
                errors.insert((topic.topic_id, result.partition), result.error_code);
            }
        }
        if !errors.is_empty() {
            let count = errors.len();
            log::warn!("the states of {count} partitions for share group {group_id} could not be made");
        }
        let (mut made, mut failed) = (Named::new(), Named::new());
        for (id, (name, partitions)) in &wanted.topics {
            let (bad, good): (BTreeSet<i32>, BTreeSet<i32>) =
                partitions.iter().partition(|p| errors.contains_key(&(*id, **p)));
            for (into, partitions) in [(&mut made, good), (&mut failed, bad)] {
                if !partitions.is_empty() {
                    into.insert(*id, (Arc::clone(name), partitions));
                }
            }
        }
        self.in_group(group_id, |group| {
            let Some(share) = &mut group.share else { return };
            wanted.partitions().for_each(|partition| {
                share.in_flight.remove(&partition);
            });
            if made.is_empty() && failed.is_empty() {
                return;
            }
            let mut partitions = StatePartitions::clone(&share.partitions);
            partitions.settle(&made, &failed);
            let mut change = Change::of(group_id, &mut **share);
            change.apply(ShareRecord::Partitions(Some(Arc::new(partitions))));
            if self.commit_change(change).is_err() {
                log::warn!("the partitions of share group {group_id} with a state could not be stored; the next heartbeat does it");
            }
        });
        errors
    }
}

/// Whether a partition with a state is in no target, while the target is not due anyway. Kafka:
/// `GroupMetadataManager#initializedAssignmentPending`.
fn waits_for_assignment(group: &ShareGroup, table: &TopicTable) -> bool {
    if group.epoch > group.assignment_epoch || group.partitions.initialized.is_empty() {
        return false;
    }
    let subscribed = group.subscribed_topics();
    let mut readable = group.partitions.initialized.iter().filter(|(id, _)| {
        let name = table.name_of(id);
        name.is_some_and(|name| subscribed.contains(name))
    });
    readable.any(|(id, (_, partitions))| {
        let assigned: BTreeSet<i32> = group
            .targets()
            .filter_map(|target| target.get(id))
            .flatten()
            .copied()
            .collect();
        !partitions.is_subset(&assigned)
    })
}

/// What each member is to have: partitions with a state, of topics that exist. Kafka: `TargetAssignmentBuilder`.
fn target_of(group: &ShareGroup, table: &TopicTable) -> BTreeMap<Arc<str>, Partitions> {
    let members = group.members();
    let mut assignable: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    let subscription = |names: &Vec<Arc<str>>, assignable: &mut BTreeMap<TopicId, Vec<i32>>| {
        let topics = names.iter().filter_map(|name| table.get(name));
        let of_topic = |topic: &Arc<crate::topics::Topic>| {
            let id = topic.record.id;
            assignable.entry(id).or_insert_with(|| {
                let all = 0..topic.record.partitions;
                all.filter(|p| group.partitions.is_initialized(&id, *p)).collect()
            });
            id
        };
        topics.map(of_topic).collect::<BTreeSet<TopicId>>()
    };
    let members: Vec<ShareMember> = members
        .iter()
        .map(|member| ShareMember {
            member_id: Arc::clone(&member.id),
            topics: subscription(&member.metadata.subscribed_topic_names, &mut assignable),
            assigned: group
                .target(&member.id)
                .map(|target| Partitions::clone(target))
                .unwrap_or_default(),
        })
        .collect();
    simple(&members, &assignable)
}

/// The member takes over its target at once. Kafka: `ShareGroupAssignmentBuilder`.
fn reconcile(change: &mut ShareChange<'_>, id: &Arc<str>, subscription_changed: bool, table: &TopicTable) {
    let group = &*change.group;
    let Some(member) = group.member(id) else { return };
    let current = &member.current;
    let is_behind = current.epoch != group.assignment_epoch;
    if !is_behind && !subscription_changed {
        return;
    }
    let has = match is_behind {
        true => group
            .target(id)
            .map(|target| Partitions::clone(target))
            .unwrap_or_default(),
        false => current.assigned.clone(),
    };
    let names = &member.metadata.subscribed_topic_names;
    let is_subscribed = |topic: &TopicId| {
        let name = table.name_of(topic);
        name.is_some_and(|name| names.binary_search(name).is_ok())
    };
    let next = ShareAssignment {
        epoch: group.assignment_epoch,
        previous_epoch: if is_behind {
            current.epoch
        } else {
            current.previous_epoch
        },
        assigned: has.into_iter().filter(|(topic, _)| is_subscribed(topic)).collect(),
    };
    if next != *current {
        change.apply(ShareRecord::Current(Arc::clone(id), Some(next)));
    }
}

/// The partitions of subscribed topics without a state that nobody is making. Kafka:
/// `GroupMetadataManager#maybeCreateInitializeShareGroupStateRequest`, `#subscribedTopicsChangeMap`.
fn to_initialize(change: &mut ShareChange<'_>, table: &TopicTable) -> Option<ToInitialize> {
    let group = &*change.group;
    let mut missing = Named::new();
    for topic in group.subscribed_topics().into_iter().filter_map(|name| table.get(name)) {
        let id = topic.record.id;
        let is_missing = |p: &i32| !group.partitions.is_initialized(&id, *p) && !group.in_flight.contains(&(id, *p));
        let partitions: BTreeSet<i32> = (0..topic.record.partitions).filter(is_missing).collect();
        if !partitions.is_empty() {
            missing.insert(id, (topic.name.clone(), partitions));
        }
    }
    if missing.is_empty() {
        return None;
    }
    let is_noted = |(id, (_, partitions)): (&TopicId, &(Arc<str>, BTreeSet<i32>))| {
        partitions.iter().all(|p| group.partitions.is_initializing(id, *p))
    };
    let wanted = ToInitialize {
        state_epoch: group.epoch,
        topics: missing,
        starts: BTreeMap::new(),
    };
    if !wanted.topics.iter().all(is_noted) {
        let mut partitions = StatePartitions::clone(&group.partitions);
        merge(&mut partitions.initializing, &wanted.topics);
        change.apply(ShareRecord::Partitions(Some(Arc::new(partitions))));
    }
    Some(wanted)
}
