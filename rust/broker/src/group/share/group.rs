//! The state of a share group (spec 14.1). It changes only by its records: those that are written, and those that are read when the
//! group is loaded. Kafka: `ShareGroup`, `ModernGroup`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fletchlog_protocol::WireError;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::ShareGroupMemberMetadataValue;
use rustc_hash::FxHashMap;

use super::super::consumer_change::Recorded;
use super::super::consumer_member::Partitions;
use super::super::member::{IN_PROCESS, Session};
use super::super::timers::{Timer, Timers};
use super::member::{ShareAssignment, ShareGroupMember};
use super::records::ShareRecord;
use super::state_partitions::StatePartitions;
use crate::replica_manager::CoordinatorRecord;

/// The epoch of a group and of its target before anything was written.
const FIRST_EPOCH: i32 = 1;

/// A share group.
#[derive(Debug)]
pub(crate) struct ShareGroup {
    pub(super) epoch: i32,
    /// Of the subscribed topics, when the epoch was written.
    pub(super) metadata_hash: i64,
    /// The epoch of the target.
    pub(super) assignment_epoch: i32,
    /// When the target was computed (wall clock); 0: the next one need not wait.
    pub(super) assignment_timestamp_ms: i64,
    members: FxHashMap<Arc<str>, ShareGroupMember>,
    /// Members that have joined so far.
    joined: u64,
    targets: FxHashMap<Arc<str>, Arc<Partitions>>,
    /// How many members subscribe to a topic.
    names: FxHashMap<Arc<str>, usize>,
    pub(super) partitions: Arc<StatePartitions>,
    /// There is a record of them.
    pub(super) has_partitions_record: bool,
    /// Not in the records: the session of each member begins anew when the group is loaded.
    pub(crate) timers: Timers,
    /// The sessions of members in this process.
    pub(crate) sessions: FxHashMap<Arc<str>, Session>,
    /// Partitions whose state a thread of this broker is making.
    pub(super) in_flight: BTreeSet<(TopicId, i32)>,
    /// The version of the table of topics that was last looked at, and the hash that the subscribed topics had then.
    pub(super) seen: Option<(u64, i64)>,
    /// The version of the table of topics at which every partition had a state and a member, if no record has changed the group since. A
    /// heartbeat then looks at no partition.
    pub(super) settled: Option<u64>,
}

impl Default for ShareGroup {
    fn default() -> Self {
        Self {
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            assignment_epoch: FIRST_EPOCH,
            assignment_timestamp_ms: 0,
            members: FxHashMap::default(),
            joined: 0,
            targets: FxHashMap::default(),
            names: FxHashMap::default(),
            partitions: Arc::default(),
            has_partitions_record: false,
            timers: Timers::default(),
            sessions: FxHashMap::default(),
            in_flight: BTreeSet::new(),
            seen: None,
            settled: None,
        }
    }
}

impl ShareGroup {
    /// Kafka's name of its state. Kafka: `ShareGroup.ShareGroupState`.
    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() { "Empty" } else { "Stable" }
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The number of its members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has this member.
    pub(crate) fn has_member(&self, id: &str) -> bool {
        self.members.contains_key(id)
    }

    /// A member.
    pub(super) fn member(&self, id: &str) -> Option<&ShareGroupMember> {
        self.members.get(id)
    }

    /// The members in the order in which they joined.
    pub(super) fn members(&self) -> Vec<&ShareGroupMember> {
        let mut members: Vec<_> = self.members.values().collect();
        members.sort_unstable_by_key(|member| member.joined);
        members
    }

    /// The target of a member, if it has one.
    pub(super) fn target(&self, member: &str) -> Option<&Arc<Partitions>> {
        self.targets.get(member)
    }

    /// The targets of all members.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Arc<Partitions>> {
        self.targets.values()
    }

    /// The names of the topics that its members subscribe to.
    pub(super) fn subscribed_topics(&self) -> BTreeSet<&Arc<str>> {
        self.names.keys().collect()
    }

    /// Starts the sessions of members that a record named. Those that were in the process of an earlier run have ended with it. Kafka:
    /// `GroupMetadataManager#onLoaded`.
    pub(crate) fn start_timers(&mut self, now_ms: i64, session_timeout_ms: i32) {
        let at_ms = now_ms.saturating_add(i64::from(session_timeout_ms));
        let without_session = self.members.values().filter(|m| !self.sessions.contains_key(&m.id));
        for member in without_session {
            let at_ms = match &*member.metadata.client_host {
                IN_PROCESS => i64::MIN,
                _ => at_ms,
            };
            self.timers.set_if_absent(&member.id, Timer::Session, at_ms);
        }
    }

    /// Restarts the sessions of the members behind sockets in full, as a new coordinator does.
    pub(crate) fn restart_sessions(&mut self, now_ms: i64, session_timeout_ms: i32) {
        let at_ms = now_ms.saturating_add(i64::from(session_timeout_ms));
        let in_sockets = self
            .members
            .values()
            .filter(|member| *member.metadata.client_host != *IN_PROCESS);
        for member in in_sockets {
            self.timers.set(&member.id, Timer::Session, at_ms);
        }
    }

    /// Ends the timers of a member.
    pub(super) fn forget(&mut self, id: &Arc<str>) {
        self.timers.forget(id);
        self.sessions.remove(id);
    }

    /// Changes the group as a record says; returns the record that would undo it. Kafka: `GroupMetadataManager#replay`.
    pub(crate) fn replay(&mut self, record: &ShareRecord) -> ShareRecord {
        self.settled = None;
        match record {
            ShareRecord::Member(id, metadata) => ShareRecord::Member(Arc::clone(id), self.set_member(id, metadata)),
            ShareRecord::Epoch(value) => {
                let before = ShareRecord::Epoch(Some((self.epoch, self.metadata_hash)));
                (self.epoch, self.metadata_hash) = value.unwrap_or((FIRST_EPOCH, 0));
                before
            }
            ShareRecord::Target(id, target) => {
                let before = match target {
                    Some(target) => self.targets.insert(Arc::clone(id), Arc::clone(target)),
                    None => self.targets.remove(id),
                };
                ShareRecord::Target(Arc::clone(id), before)
            }
            ShareRecord::TargetEpoch(value) => {
                let before = (self.assignment_epoch, self.assignment_timestamp_ms);
                (self.assignment_epoch, self.assignment_timestamp_ms) = value.unwrap_or((FIRST_EPOCH, 0));
                ShareRecord::TargetEpoch(Some(before))
            }
            ShareRecord::Current(id, current) => ShareRecord::Current(Arc::clone(id), self.set_current(id, current)),
            ShareRecord::Partitions(partitions) => {
                self.has_partitions_record = partitions.is_some();
                let new = partitions.clone().unwrap_or_default();
                ShareRecord::Partitions(Some(std::mem::replace(&mut self.partitions, new)))
            }
        }
    }

    fn set_member(
        &mut self,
        id: &Arc<str>,
        metadata: &Option<Arc<ShareGroupMemberMetadataValue>>,
    ) -> Option<Arc<ShareGroupMemberMetadataValue>> {
        let before = self.members.get(id).map(|member| Arc::clone(&member.metadata));
        for name in before.iter().flat_map(|before| &before.subscribed_topic_names) {
            if let Some(members) = self.names.get_mut(name) {
                *members -= 1;
                if *members == 0 {
                    self.names.remove(name);
                }
            }
        }
        match metadata {
            Some(metadata) => {
                for name in &metadata.subscribed_topic_names {
                    *self.names.entry(Arc::clone(name)).or_default() += 1;
                }
                self.member_or_new(id).metadata = Arc::clone(metadata);
            }
            None => {
                self.members.remove(id);
            }
        }
        before
    }

    /// A compacted log may have what a member has in front of what it reported of itself.
    fn member_or_new(&mut self, id: &Arc<str>) -> &mut ShareGroupMember {
        let joined = &mut self.joined;
        self.members.entry(Arc::clone(id)).or_insert_with(|| {
            *joined += 1;
            ShareGroupMember {
                id: Arc::clone(id),
                metadata: Arc::default(),
                current: ShareAssignment::default(),
                joined: *joined,
            }
        })
    }

    fn set_current(&mut self, id: &Arc<str>, current: &Option<ShareAssignment>) -> Option<ShareAssignment> {
        if current.is_none() && !self.members.contains_key(id) {
            return None;
        }
        let member = self.member_or_new(id);
        Some(std::mem::replace(
            &mut member.current,
            current.clone().unwrap_or_default(),
        ))
    }
}

impl Recorded for ShareGroup {
    type Record = ShareRecord;

    fn replay(&mut self, record: &ShareRecord) -> ShareRecord {
        self.replay(record)
    }

    fn encode(record: &ShareRecord, group_id: &Arc<str>) -> Result<CoordinatorRecord, WireError> {
        record.encode(group_id)
    }

    fn saw(&mut self, seen: (u64, i64)) {
        self.seen = Some(seen);
    }
}
