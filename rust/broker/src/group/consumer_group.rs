//! The state of a consumer group (spec 8.9). It changes only by its records: those that are written, and those that are read when the
//! group is loaded. Kafka: `ConsumerGroup`, `ModernGroup`.
//!
//! | state | when |
//! |---|---|
//! | Empty | it has no members |
//! | Assigning | its target is older than its epoch |
//! | Reconciling | else: a member does not have its target yet, or is away |
//! | Stable | else |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::{ConsumerGroupMemberMetadataValue, ConsumerGroupRegularExpressionValue};
use rustc_hash::FxHashMap;

use super::consumer_member::{
    ConsumerGroupMember, CurrentAssignment, MemberState, Partitions, nothing_reported, regex_of,
};
use super::consumer_records::ConsumerRecord;
use super::member::{IN_PROCESS, Session};
use super::regex::Requester;
use super::timers::{Timer, Timers};

/// The epoch of a group and of its target before anything was written.
const FIRST_EPOCH: i32 = 1;

/// A consumer group.
#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    /// Kafka: `ModernGroup#groupEpoch`.
    pub(crate) epoch: i32,
    /// Of the subscribed topics, when the epoch was written.
    pub(crate) metadata_hash: i64,
    /// The epoch of the target.
    pub(crate) assignment_epoch: i32,
    /// When the target was computed (wall clock); 0: the next one need not wait.
    pub(crate) assignment_timestamp_ms: i64,
    members: FxHashMap<Arc<str>, ConsumerGroupMember>,
    /// Members that have joined so far.
    joined: u64,
    /// Member ids by group.instance.id.
    static_members: FxHashMap<Arc<str>, Arc<str>>,
    targets: FxHashMap<Arc<str>, Arc<Partitions>>,
    /// Who has a partition, or has to give it up.
    owners: FxHashMap<(TopicId, i32), Arc<str>>,
    /// How many members name a topic.
    names: FxHashMap<Arc<str>, usize>,
    /// How many members subscribe to a regular expression.
    regexes: BTreeMap<Arc<str>, usize>,
    resolved: BTreeMap<Arc<str>, Arc<ConsumerGroupRegularExpressionValue>>,
    /// How many members ask for an assignor.
    votes: BTreeMap<Arc<str>, usize>,
    /// How many members use the classic protocol, and how many of them know an assignor of it.
    classic_members: usize,
    classic_protocols: FxHashMap<Arc<str>, usize>,
    /// Not in the records: it begins anew when the group is loaded.
    pub(crate) timers: Timers,
    /// The sessions of members in this process.
    pub(crate) sessions: FxHashMap<Arc<str>, Session>,
    /// The version of the table of topics that was last looked at, and the hash that the subscribed topics had then.
    pub(crate) seen: Option<(u64, i64)>,
    /// The regular expressions are to be resolved for this client when timed work is next done.
    pub(crate) resolves: Option<Requester>,
    /// They were resolved by this run of the broker.
    pub(crate) regexes_checked: bool,
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self {
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            assignment_epoch: FIRST_EPOCH,
            assignment_timestamp_ms: 0,
            members: FxHashMap::default(),
            joined: 0,
            static_members: FxHashMap::default(),
            targets: FxHashMap::default(),
            owners: FxHashMap::default(),
            names: FxHashMap::default(),
            regexes: BTreeMap::new(),
            resolved: BTreeMap::new(),
            votes: BTreeMap::new(),
            classic_members: 0,
            classic_protocols: FxHashMap::default(),
            timers: Timers::default(),
            sessions: FxHashMap::default(),
            seen: None,
            resolves: None,
            regexes_checked: false,
        }
    }
}

impl ConsumerGroup {
    /// Kafka's name of its state. Kafka: `ConsumerGroup.ConsumerGroupState`.
    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(|m| m.is_reconciled_to(self.assignment_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The number of its members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// A member.
    pub(crate) fn member(&self, id: &str) -> Option<&ConsumerGroupMember> {
        self.members.get(id)
    }

    /// The static member with this group.instance.id.
    pub(crate) fn static_member(&self, instance_id: &str) -> Option<&ConsumerGroupMember> {
        self.members.get(self.static_members.get(instance_id)?)
    }

    /// The members in the order in which they joined.
    pub(crate) fn members(&self) -> Vec<&ConsumerGroupMember> {
        let mut members: Vec<_> = self.members.values().collect();
        members.sort_unstable_by_key(|member| member.joined);
        members
    }

    /// The target of a member, if it has one.
    pub(crate) fn target(&self, member: &str) -> Option<&Arc<Partitions>> {
        self.targets.get(member)
    }

    /// Whether no member has the partition. Kafka: `ConsumerGroup#currentPartitionEpoch`.
    pub(crate) fn is_free(&self, topic: TopicId, partition: i32) -> bool {
        !self.owners.contains_key(&(topic, partition))
    }

    /// Whether the member has to wait for a partition of its target. Kafka: `ConsumerGroup#waitingOnUnreleasedPartition`.
    pub(crate) fn waits_for_others(&self, member: &ConsumerGroupMember) -> bool {
        let assigned = &member.current.assigned;
        let has = |id: &TopicId, p: &i32| assigned.get(id).is_some_and(|assigned| assigned.contains_key(p));
        let target = self.target(&member.id).into_iter().flat_map(|target| target.iter());
        let mut missing = target.flat_map(|(id, partitions)| partitions.iter().map(move |p| (id, p)));
        missing.any(|(id, p)| !has(id, p) && !self.is_free(*id, *p))
    }

    /// The names of the topics that its members subscribe to, by name or by a resolved regular expression.
    pub(crate) fn subscribed_topics(&self) -> BTreeSet<&Arc<str>> {
        let matched = self.resolved.values().flat_map(|resolved| &resolved.topics);
        self.names.keys().chain(matched).collect()
    }

    /// Whether a member subscribes to the topic.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.names.contains_key(topic) || self.resolved.values().any(|resolved| contains(&resolved.topics, topic))
    }

    /// Whether a member with this subscription subscribes to the topic: by its name or by its regular expression, once that is
    /// resolved.
    pub(crate) fn subscribes(&self, metadata: &ConsumerGroupMemberMetadataValue, topic: &str) -> bool {
        contains(&metadata.subscribed_topic_names, topic)
            || regex_of(metadata)
                .and_then(|regex| self.resolved.get(regex))
                .is_some_and(|resolved| contains(&resolved.topics, topic))
    }

    /// The names of the topics that a member with this subscription subscribes to; some twice.
    pub(crate) fn topics_of<'a>(
        &'a self,
        metadata: &'a ConsumerGroupMemberMetadataValue,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let resolved = regex_of(metadata).and_then(|regex| self.resolved.get(regex));
        let matched = resolved.into_iter().flat_map(|resolved| &resolved.topics);
        metadata.subscribed_topic_names.iter().chain(matched)
    }

    /// How many members subscribe to the regular expression.
    pub(crate) fn users_of(&self, regex: &str) -> usize {
        self.regexes.get(regex).copied().unwrap_or(0)
    }

    /// The regular expressions that members subscribe to.
    pub(crate) fn regexes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.regexes.keys()
    }

    /// The topics that match a regular expression, if that is known.
    pub(crate) fn resolved(&self, regex: &str) -> Option<&Arc<ConsumerGroupRegularExpressionValue>> {
        self.resolved.get(regex)
    }

    /// The regular expressions whose topics are known.
    pub(crate) fn all_resolved(&self) -> &BTreeMap<Arc<str>, Arc<ConsumerGroupRegularExpressionValue>> {
        &self.resolved
    }

    /// The assignor that most members ask for; those that ask for none do not count. Where two have as many, Kafka's table has
    /// `uniform` first. Kafka: `ConsumerGroup#preferredServerAssignor`.
    pub(crate) fn preferred_assignor(&self) -> Option<&Arc<str>> {
        // By name, so `uniform` is the last.
        self.votes.iter().max_by_key(|(_, votes)| **votes).map(|(name, _)| name)
    }

    /// How many members use the classic protocol.
    pub(crate) fn classic_members(&self) -> usize {
        self.classic_members
    }

    /// Whether all members that use the classic protocol know this protocol of it.
    pub(crate) fn all_classic_know(&self, protocol: &str) -> bool {
        self.classic_protocols.get(protocol).copied().unwrap_or(0) == self.classic_members
    }

    /// A member that was asked to give up partitions has its rebalance time-out for it, from now on; a member of the classic protocol has
    /// other timers. Kafka: `GroupMetadataManager#scheduleConsumerGroupRebalanceTimeout`.
    pub(crate) fn restart_rebalance_timer(&mut self, id: &Arc<str>, now_ms: i64) {
        let Some(member) = self.members.get(id).filter(|member| member.classic().is_none()) else {
            return;
        };
        if member.current.state == MemberState::UnrevokedPartitions {
            let timeout_ms = i64::from(member.metadata.rebalance_timeout_ms);
            self.timers.set(id, Timer::Rebalance, now_ms.saturating_add(timeout_ms));
        } else {
            self.timers.cancel(id, Timer::Rebalance);
        }
    }

    /// Starts the timers of members that a record named: their sessions and what they have to give up begin anew. Members that were in
    /// the process of an earlier run have ended with it. Kafka: `GroupMetadataManager#onLoaded`.
    pub(crate) fn start_timers(&mut self, now_ms: i64, session_timeout_ms: impl Fn() -> i32) {
        for member in self
            .members
            .values()
            .filter(|member| !self.sessions.contains_key(&member.id))
        {
            let timeout_ms = member
                .classic()
                .map_or_else(&session_timeout_ms, |classic| classic.session_timeout_ms);
            let at_ms = match &*member.metadata.client_host {
                IN_PROCESS => i64::MIN,
                _ => now_ms.saturating_add(i64::from(timeout_ms)),
            };
            self.timers.set_if_absent(&member.id, Timer::Session, at_ms);
            if member.classic().is_none() && member.current.state == MemberState::UnrevokedPartitions {
                let at_ms = now_ms.saturating_add(i64::from(member.metadata.rebalance_timeout_ms));
                self.timers.set_if_absent(&member.id, Timer::Rebalance, at_ms);
            }
        }
    }

    /// Restarts the sessions of the members behind sockets in full, as a new coordinator does. Kafka: `GroupMetadataManager#onLoaded`.
    pub(crate) fn restart_sessions(&mut self, now_ms: i64, session_timeout_ms: impl Fn() -> i32) {
        let in_sockets = self
            .members
            .values()
            .filter(|member| *member.metadata.client_host != *IN_PROCESS);
        for member in in_sockets {
            let timeout_ms = member
                .classic()
                .map_or_else(&session_timeout_ms, |classic| classic.session_timeout_ms);
            let at_ms = now_ms.saturating_add(i64::from(timeout_ms));
            self.timers.set(&member.id, Timer::Session, at_ms);
        }
    }

    /// Changes the group as a record says; returns the record that would undo it. Kafka: `GroupMetadataManager#replay`.
    pub(crate) fn replay(&mut self, record: &ConsumerRecord) -> ConsumerRecord {
        match record {
            ConsumerRecord::Member(id, metadata) => {
                ConsumerRecord::Member(Arc::clone(id), self.set_member(id, metadata))
            }
            ConsumerRecord::Regex(regex, value) => {
                let before = match value {
                    Some(value) => self.resolved.insert(Arc::clone(regex), Arc::clone(value)),
                    None => self.resolved.remove(regex),
                };
                ConsumerRecord::Regex(Arc::clone(regex), before)
            }
            ConsumerRecord::Epoch(value) => {
                let before = ConsumerRecord::Epoch(Some((self.epoch, self.metadata_hash)));
                (self.epoch, self.metadata_hash) = value.unwrap_or((FIRST_EPOCH, 0));
                before
            }
            ConsumerRecord::Target(id, target) => {
                let before = match target {
                    Some(target) => self.targets.insert(Arc::clone(id), Arc::clone(target)),
                    None => self.targets.remove(id),
                };
                ConsumerRecord::Target(Arc::clone(id), before)
            }
            ConsumerRecord::TargetEpoch(value) => {
                let before = (self.assignment_epoch, self.assignment_timestamp_ms);
                (self.assignment_epoch, self.assignment_timestamp_ms) = value.unwrap_or((FIRST_EPOCH, 0));
                ConsumerRecord::TargetEpoch(Some(before))
            }
            ConsumerRecord::Current(id, current) => {
                ConsumerRecord::Current(Arc::clone(id), self.set_current(id, current))
            }
            ConsumerRecord::PartitionMetadata => ConsumerRecord::PartitionMetadata,
        }
    }

    fn set_member(
        &mut self,
        id: &Arc<str>,
        metadata: &Option<Arc<ConsumerGroupMemberMetadataValue>>,
    ) -> Option<Arc<ConsumerGroupMemberMetadataValue>> {
        let before = self.members.get(id).map(|member| Arc::clone(&member.metadata));
        if let Some(before) = &before {
            self.count(id, before, false);
        }
        match metadata {
            Some(metadata) => {
                self.count(id, metadata, true);
                let member = self.member_or_new(id);
                member.metadata = Arc::clone(metadata);
            }
            None => {
                self.set_current(id, &None);
                self.members.remove(id);
            }
        }
        before
    }

    /// Counts what a member subscribes to and asks for, or no longer.
    fn count(&mut self, id: &Arc<str>, metadata: &ConsumerGroupMemberMetadataValue, add: bool) {
        for name in &metadata.subscribed_topic_names {
            let entry = self.names.entry(Arc::clone(name)).or_default();
            *entry = if add { *entry + 1 } else { entry.saturating_sub(1) };
            if *entry == 0 {
                self.names.remove(name);
            }
        }
        let count = |table: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>| {
            let entry = table.entry(Arc::clone(key)).or_default();
            *entry = if add { *entry + 1 } else { entry.saturating_sub(1) };
            if *entry == 0 {
                table.remove(key);
            }
        };
        if let Some(regex) = regex_of(metadata) {
            count(&mut self.regexes, regex);
        }
        if let Some(assignor) = &metadata.server_assignor {
            count(&mut self.votes, assignor);
        }
        if let Some(instance) = &metadata.instance_id {
            if add {
                self.static_members.insert(Arc::clone(instance), Arc::clone(id));
            } else if self.static_members.get(instance) == Some(id) {
                self.static_members.remove(instance);
            }
        }
        if let Some(classic) = &metadata.classic_member_metadata {
            let by = |n: usize| if add { n + 1 } else { n.saturating_sub(1) };
            self.classic_members = by(self.classic_members);
            let names: BTreeSet<&Arc<str>> = classic.supported_protocols.iter().map(|p| &p.name).collect();
            for name in names {
                let entry = self.classic_protocols.entry(Arc::clone(name)).or_default();
                *entry = by(*entry);
            }
        }
    }

    /// A compacted log may have what a member has in front of what it reported of itself.
    fn member_or_new(&mut self, id: &Arc<str>) -> &mut ConsumerGroupMember {
        let joined = &mut self.joined;
        self.members.entry(Arc::clone(id)).or_insert_with(|| {
            *joined += 1;
            ConsumerGroupMember {
                id: Arc::clone(id),
                metadata: Arc::new(nothing_reported()),
                current: CurrentAssignment::default(),
                joined: *joined,
            }
        })
    }

    fn set_current(&mut self, id: &Arc<str>, current: &Option<CurrentAssignment>) -> Option<CurrentAssignment> {
        if current.is_none() && !self.members.contains_key(id) {
            return None;
        }
        let member = self.member_or_new(id);
        let before = std::mem::replace(&mut member.current, current.clone().unwrap_or_default());
        let held: Vec<_> = member.current.held().collect();
        for partition in before.held() {
            if self.owners.get(&partition) == Some(id) {
                self.owners.remove(&partition);
            }
        }
        self.owners
            .extend(held.into_iter().map(|partition| (partition, Arc::clone(id))));
        Some(before)
    }
}

/// Whether names, which are in order, contain this one.
fn contains(names: &[Arc<str>], name: &str) -> bool {
    names.binary_search_by(|known| (**known).cmp(name)).is_ok()
}
