//! One group: its state, members and offsets. Kafka: `GroupMetadata`.
//!
//! | state | comes from | leaves by |
//! |---|---|---|
//! | Empty | PreparingRebalance (the last member left) | the first join |
//! | PreparingRebalance | Empty, Stable, CompletingRebalance | all members have rejoined, or the rebalance time-out |
//! | CompletingRebalance | PreparingRebalance | the leader's sync, or another rebalance |
//! | Stable | CompletingRebalance | a join that changes something, a member that leaves or is missed |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::OffsetAndMetadata;
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::consumer_protocol::PROTOCOL_TYPE;
use fletchlog_protocol::values::{ConsumerProtocolSubscription, GroupMetadataValue};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::consumer_group::ConsumerGroup;
use super::member::Member;
use super::share::ShareGroup;

/// State of a group (Kafka's Dead is [`Group::dead`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl GroupState {
    /// Kafka's name. Kafka: `ClassicGroupState`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// The members that have joined a generation and not synced yet. Kafka: `ClassicGroup#pendingSyncMembers`.
#[derive(Debug)]
pub(crate) struct PendingSync {
    /// When they are removed (monotonic).
    pub(crate) deadline_ms: i64,
    pub(crate) members: BTreeSet<Arc<str>>,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedOffset {
    pub(crate) value: OffsetAndMetadata,
    pub(crate) commit_timestamp_ms: i64,
    /// Offset of its record in `__consumer_offsets`: the later of two commits counts, whenever its transaction ends.
    pub(crate) record_offset: i64,
    /// The topic's id. `None`: a release before 4.1 has to be able to read it.
    pub(crate) topic_id: Option<TopicId>,
    /// Only values of version 1 carry it.
    pub(crate) expire_timestamp_ms: Option<i64>,
}

/// Offsets in an open transaction; `None`: a tombstone.
pub(crate) type PendingOffsets = BTreeMap<TopicPartition, Option<CommittedOffset>>;

/// The rebalance that is being prepared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingJoin {
    /// When it is completed with the members that have joined.
    pub(crate) deadline_ms: i64,
    /// First rebalance of an empty group: it waits the initial delay even when all known members have joined, and each
    /// new member extends the wait up to this instant.
    pub(crate) extend_until_ms: Option<i64>,
    /// A member has joined since the initial delay last began.
    pub(crate) new_member: bool,
}

/// A leader's assignment that is written, but not on all replicas in sync yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingAssignment {
    /// The end of the log after its record.
    pub(crate) end: i64,
    /// When the members hear that it has failed.
    pub(crate) deadline_ms: i64,
}

/// A group: a classic one, a consumer group, or a share group. Kafka: `Group`, `ClassicGroup`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: Arc<str>,
    /// The consumer group that it is. `None`: it is a classic group, in the fields that follow, or has offsets only.
    pub(crate) consumer: Option<Box<ConsumerGroup>>,
    /// The share group that it is. It is one kind of group, and a share group has no committed offsets.
    pub(crate) share: Option<Box<ShareGroup>>,
    /// Removed from the table of groups: a thread that got the group before that gets it again from the table. Kafka: `GroupState`
    /// Dead.
    pub(crate) dead: bool,
    pub(crate) state: GroupState,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) leader: Option<Arc<str>>,
    /// In the order in which they joined.
    pub(crate) members: Vec<Member>,
    /// Ids sent with MEMBER_ID_REQUIRED that have not joined yet, and when they expire (monotonic).
    pub(crate) pending_members: BTreeMap<Arc<str>, i64>,
    pub(crate) pending_join: Option<PendingJoin>,
    /// `None`: all have synced.
    pub(crate) pending_sync: Option<PendingSync>,
    /// The assignment that the members wait for.
    pub(crate) pending_assignment: Option<PendingAssignment>,
    /// What the members of this generation subscribe to, if that is known.
    pub(crate) subscribed_topics: Option<BTreeSet<Arc<str>>>,
    pub(crate) offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// Offsets in open transactions, by producer id.
    pub(crate) pending_txn_offsets: BTreeMap<i64, PendingOffsets>,
    /// It has records in `__consumer_offsets`, so its removal needs a tombstone.
    pub(crate) is_stored: bool,
    /// When it entered this state (wall clock).
    pub(crate) state_timestamp_ms: Option<i64>,
    /// Its timers are paused until then (monotonic), because one of them panicked.
    pub(crate) not_before_ms: i64,
}

impl Group {
    /// A group without members.
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            consumer: None,
            share: None,
            dead: false,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: Vec::new(),
            pending_members: BTreeMap::new(),
            pending_join: None,
            pending_sync: None,
            pending_assignment: None,
            subscribed_topics: None,
            offsets: BTreeMap::new(),
            pending_txn_offsets: BTreeMap::new(),
            is_stored: false,
            state_timestamp_ms: None,
            not_before_ms: i64::MIN,
        }
    }

    /// Takes over the state of its record; if no member can still be alive, the group is empty. Kafka: `GroupMetadataManager#replay`.
    pub(crate) fn load(&mut self, value: GroupMetadataValue, now_ms: i64) {
        let protocol = value.protocol.clone().unwrap_or_default();
        let members = value.members.into_iter().flatten();
        let known = std::mem::take(&mut self.members);
        let loaded = |member| {
            let member = Member::loaded(member, &protocol, now_ms);
            let before = known.iter().find(|before| before.id == member.id);
            member.continued(before)
        };
        self.members = members.map(loaded).collect();
        if !self.members.iter().any(Member::may_be_alive) {
            self.members.clear();
        }
        let is_empty = self.members.is_empty();
        self.state = if is_empty {
            GroupState::Empty
        } else {
            GroupState::Stable
        };
        self.generation = value.generation;
        self.protocol_type = Some(value.protocol_type).filter(|t| !t.is_empty());
        self.protocol = value.protocol.filter(|_| !is_empty);
        self.leader = value.leader.filter(|_| !is_empty);
        self.state_timestamp_ms = Some(value.current_state_timestamp).filter(|&t| t >= 0);
        self.subscribed_topics = self.compute_subscribed_topics();
    }

    /// Takes over the state of its last record; without one it has offsets only. Members in this process continue to live by their
    /// clients.
    pub(crate) fn restore(&mut self, value: Option<GroupMetadataValue>, now_ms: i64) {
        let members = std::mem::take(&mut self.members);
        self.end_classic();
        if let Some(value) = value {
            self.members = members;
            self.load(value, now_ms);
        }
    }

    /// Removes what it is as a classic group; its offsets stay.
    pub(crate) fn end_classic(&mut self) {
        self.state = GroupState::Empty;
        self.generation = 0;
        self.protocol_type = None;
        self.protocol = None;
        self.leader = None;
        self.members.clear();
        self.pending_members.clear();
        self.pending_join = None;
        self.pending_sync = None;
        self.pending_assignment = None;
        self.subscribed_topics = None;
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.consumer, &self.share) {
            (Some(consumer), _) => consumer.is_empty(),
            (None, Some(share)) => share.is_empty(),
            (None, None) => self.state == GroupState::Empty,
        }
    }

    /// Kafka's name of its state.
    pub(crate) fn state_name(&self) -> &'static str {
        match (&self.consumer, &self.share) {
            (Some(consumer), _) => consumer.state(),
            (None, Some(share)) => share.state(),
            (None, None) => self.state.name(),
        }
    }

    /// Whether its members are consumers, so that it is known what they subscribe to.
    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.consumer.is_some() || self.protocol_type.as_deref() == Some(PROTOCOL_TYPE)
    }

    /// What the members subscribe to; `None`: its members are not consumers, or their metadata cannot be read. Kafka:
    /// `ClassicGroup#computeSubscribedTopics`.
    pub(crate) fn compute_subscribed_topics(&self) -> Option<BTreeSet<Arc<str>>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut all = BTreeSet::new();
        for member in &self.members {
            all.extend(ConsumerProtocolSubscription::topics_of(member.metadata(protocol)).ok()?);
        }
        Some(all)
    }

    /// Whether a member may read the topic: a group of consumers whose subscriptions are not known may read any.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        if let Some(consumer) = &self.consumer {
            return consumer.is_subscribed_to(topic);
        }
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    /// The partitions for which open transactions commit offsets. Kafka: `hasPendingTransactionalOffsets`.
    pub(crate) fn pending_partitions(&self) -> FxHashSet<&TopicPartition> {
        self.pending_txn_offsets.values().flat_map(BTreeMap::keys).collect()
    }

    /// Removes the offsets of these partitions, also those in open transactions. Kafka: `OffsetMetadataManager#replay` of a
    /// tombstone.
    pub(crate) fn forget_offsets(&mut self, tps: &[TopicPartition]) {
        for tp in tps {
            self.offsets.remove(tp);
            self.pending_txn_offsets.values_mut().for_each(|pending| {
                pending.remove(tp);
            });
        }
        self.pending_txn_offsets.retain(|_, pending| !pending.is_empty());
    }

    /// The partitions with an offset, committed or in an open transaction; some twice.
    pub(crate) fn with_offsets(&self) -> impl Iterator<Item = &TopicPartition> {
        let pending = self.pending_txn_offsets.values().flat_map(BTreeMap::keys);
        self.offsets.keys().chain(pending)
    }

    /// Whether it has a record, an offset, a member or a joining member.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_empty = self.members.is_empty() && self.pending_members.is_empty();
        self.is_stored
            || self.consumer.is_some()
            || self.share.is_some()
            || !is_empty
            || self.with_offsets().next().is_some()
    }

    /// A member.
    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.iter().find(|m| &*m.id == id)
    }

    /// A member.
    pub(crate) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.iter_mut().find(|m| &*m.id == id)
    }

    /// The member with this group.instance.id.
    pub(crate) fn static_member(&self, instance_id: &str) -> Option<&Member> {
        self.members
            .iter()
            .find(|m| m.instance_id.as_deref() == Some(instance_id))
    }

    /// Adds a member; the first one leads. Kafka: `GroupMetadata#add`.
    pub(crate) fn add(&mut self, member: Member, protocol_type: &Arc<str>) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.pending_members.remove(&member.id);
        self.members.push(member);
    }

    /// Removes a member; if it was the leader, the next member leads. Kafka: `GroupMetadata#remove`.
    pub(crate) fn remove(&mut self, id: &Arc<str>) {
        self.remove_all(&BTreeSet::from([Arc::clone(id)]));
    }

    /// Removes members, see [`Self::remove`].
    pub(crate) fn remove_all(&mut self, ids: &BTreeSet<Arc<str>>) -> Vec<Member> {
        for id in ids {
            self.pending_members.remove(id);
            self.has_synced(id);
        }
        let (gone, left) = self.members.drain(..).partition(|member| ids.contains(&member.id));
        self.members = left;
        if self.leader.as_ref().is_some_and(|leader| ids.contains(leader)) {
            self.leader = self.members.first().map(|m| m.id.clone());
        }
        gone
    }

    /// The sync phase no longer waits for the member. Kafka: `removePendingSyncMember`.
    pub(crate) fn has_synced(&mut self, id: &str) {
        if let Some(pending) = &mut self.pending_sync {
            pending.members.remove(id);
            if pending.members.is_empty() {
                self.pending_sync = None;
            }
        }
    }

    /// Whether the member leads.
    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// Longest time any member gets to rejoin.
    pub(crate) fn rebalance_timeout_ms(&self) -> i64 {
        i64::from(
            self.members
                .iter()
                .map(|m| m.rebalance_timeout_ms)
                .max()
                .unwrap_or(0)
                .max(0),
        )
    }

    /// Kafka: `GroupMetadata#hasAllMembersJoined`.
    pub(crate) fn all_joined(&self) -> bool {
        self.pending_members.is_empty() && self.members.iter().all(|m| m.joining.is_some())
    }

    /// The protocols that all members know. Kafka: `ClassicGroup#supportedProtocols`.
    fn common_protocols(&self) -> FxHashSet<&Arc<str>> {
        let mut known: FxHashMap<&Arc<str>, usize> = FxHashMap::default();
        for (at, member) in self.members.iter().enumerate() {
            for JoinGroupRequestProtocol { name, .. } in &member.protocols {
                // Known to all previous members, and to this one: a name that it lists twice counts once.
                match known.get_mut(name) {
                    Some(members) if *members == at => *members = at + 1,
                    None if at == 0 => drop(known.insert(name, 1)),
                    _ => {}
                }
            }
        }
        let all = self.members.len();
        let common = known.into_iter().filter(|(_, members)| *members == all);
        common.map(|(name, _)| name).collect()
    }

    /// Whether a member with these protocols fits the group. Kafka: `GroupMetadata#supportsProtocols`.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[JoinGroupRequestProtocol]) -> bool {
        if self.state == GroupState::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        if self.protocol_type.as_deref() != Some(protocol_type) {
            return false;
        }
        let common = self.common_protocols();
        let mut names = protocols.iter().map(|protocol| &protocol.name);
        names.any(|name| self.members.is_empty() || common.contains(name))
    }

    /// The protocol that most members vote for; each votes for its first one that all members know. Kafka: `selectProtocol`.
    pub(crate) fn select_protocol(&self) -> Option<Arc<str>> {
        let common = self.common_protocols();
        let mut votes: FxHashMap<&Arc<str>, usize> = FxHashMap::default();
        let first_common = |m: &'_ Member| m.protocols.iter().position(|protocol| common.contains(&protocol.name));
        let voted: Vec<&Arc<str>> = self
            .members
            .iter()
            .filter_map(|m| Some(&m.protocols.get(first_common(m)?)?.name))
            .collect();
        voted.iter().for_each(|name| *votes.entry(name).or_default() += 1);
        // The first vote wins a tie.
        let most = voted.iter().rev().max_by_key(|name| votes.get(**name));
        most.map(|name| (*name).clone())
    }

    /// The member list that the leader gets.
    pub(crate) fn member_list(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        self.members
            .iter()
            .map(|m| JoinGroupResponseMember {
                member_id: m.id.clone(),
                group_instance_id: m.instance_id.clone(),
                metadata: m.metadata(protocol),
            })
            .collect()
    }
}
