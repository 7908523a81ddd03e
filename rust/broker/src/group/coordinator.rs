//! Which node coordinates a group, which members are alive, how they leave (spec 8.7). Kafka 2.6: `GroupCoordinator`.
//!
//! Each group has its own lock, which is held while its offsets or its record are appended; the table of groups is not locked then.
//! Time-outs are handled by the next call to the broker; a waiting client wakes up for them. A check for time-outs skips a group that
//! another thread has locked, and checks it again later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::{ErrorCode, HeartbeatRequest, HeartbeatResponse, NodeId, SettableClock};
use fletchlog_log::checkpoint::encode_uuid;
use fletchlog_records::planted;
use rustc_hash::FxHashMap;

use super::join::MAX_TEXT;
use super::member::{ClientLiveness, Member};
use super::state::{Group, GroupState};
use super::table::{Deadlines, GroupTable, LockedGroup};
use crate::loading::Loading;
use crate::panics::{contained, place};
use crate::replica_manager::ReplicaManager;
use crate::share_coordinator::ShareCoordinator;
use crate::sync::{Changes, Mutex, MutexGuard, Periodic, Rank};
use crate::topic_names::CONSUMER_OFFSETS;
use crate::uuid;

/// The coordinator of every group.
pub(crate) struct GroupCoordinator {
    pub(super) replicas: Arc<ReplicaManager>,
    /// Never held while waiting for a group's lock or writing a log.
    groups: Mutex<GroupTable>,
    /// How far each partition of `__consumer_offsets` has been read. Held while one is read.
    pub(super) loaded: Mutex<FxHashMap<i32, i64>>,
    /// Groups with offsets in the open transaction of a producer. Kafka: `GroupMetadataManager#openGroupsForProducer`.
    pub(super) open_groups_for_producer: Mutex<FxHashMap<i64, BTreeSet<Arc<str>>>>,
    /// The check for expired offsets (monotonic).
    pub(super) expiry_check: Periodic,
    pub(super) min_session_timeout_ms: i32,
    pub(super) max_session_timeout_ms: i32,
    pub(super) max_size: usize,
    pub(super) initial_delay_ms: i64,
    /// The assignors of consumer groups, the default first.
    pub(super) assignors: Vec<Arc<str>>,
    pub(super) expiry_check_ms: i64,
    /// Partitions of `__consumer_offsets` whose new leader is loading them.
    pub(super) loading: Loading,
    /// Keeps the states of the partitions of share groups. Never called while a group's lock is held.
    pub(super) share_states: Arc<ShareCoordinator>,
    members_named: AtomicU64,
    /// Suffix of every member id of this run.
    run: String,
}

/// How long the timers of a group are paused after one of them panicked.
const PAUSE_AFTER_PANIC_MS: i64 = 1000;

/// A locked group. When the work on it ends, also by a panic, the group's deadlines in the table are updated.
struct Working<'a> {
    coordinator: &'a GroupCoordinator,
    locked: &'a LockedGroup,
    group: MutexGuard<'a, Group>,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.coordinator.release(self.locked, &self.group);
    }
}

impl GroupCoordinator {
    /// A coordinator with the broker's limits.
    pub(crate) fn new(replicas: &Arc<ReplicaManager>, share_states: &Arc<ShareCoordinator>) -> Self {
        let config = replicas.config();
        let expiry_check_ms = config.long("offsets.retention.check.interval.ms");
        Self {
            groups: Mutex::new(Rank::GroupTable, GroupTable::default()),
            loaded: Mutex::new(Rank::GroupLoading, FxHashMap::default()),
            open_groups_for_producer: Mutex::new(Rank::OpenGroups, FxHashMap::default()),
            expiry_check: Periodic::new(replicas.clock().monotonic_ms().saturating_add(expiry_check_ms)),
            min_session_timeout_ms: config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms: config.int("group.max.session.timeout.ms"),
            max_size: usize::try_from(config.int("group.max.size")).unwrap_or(usize::MAX),
            initial_delay_ms: i64::from(config.int("group.initial.rebalance.delay.ms")),
            assignors: config
                .list("group.consumer.assignors")
                .into_iter()
                .map(Arc::from)
                .collect(),
            expiry_check_ms,
            loading: Loading::default(),
            share_states: Arc::clone(share_states),
            members_named: AtomicU64::new(0),
            run: uuid::random_hex(),
            replicas: Arc::clone(replicas),
        }
    }

    /// Whether the assignment of a group may be computed again that was computed at `assigned_ms` (0: never). No interval ends while the
    /// clock is frozen, so then nothing waits for it.
    pub(super) fn may_assign(&self, assigned_ms: i64, interval_ms: i64) -> bool {
        let clock = self.replicas.clock();
        let is_frozen = clock.settable().is_some_and(SettableClock::is_frozen);
        is_frozen || assigned_ms <= 0 || clock.now_ms() >= assigned_ms.saturating_add(interval_ms)
    }

    /// `<prefix>-<uuid>`, as in Kafka; the first digits are a counter, so that ids of the same client sort in the order in which they
    /// were created and assignments are deterministic.
    pub(super) fn member_id(&self, prefix: &str) -> Arc<str> {
        let n = self.members_named.fetch_add(1, Ordering::Relaxed) + 1;
        let (high, low) = (n >> 16, n & 0xffff);
        Arc::from(format!(
            "{prefix}-{high:08x}-{low:04x}-4{}-8{}-{}",
            &self.run[..3],
            &self.run[3..6],
            &self.run[6..18]
        ))
    }

    /// The id of a member that brings none. Kafka: `Uuid#randomUuid`.
    pub(super) fn consumer_member_id(&self) -> Arc<str> {
        Arc::from(encode_uuid(&uuid::random()))
    }

    pub(super) fn changes(&self) -> &Changes {
        self.replicas.changes()
    }

    /// Runs `work` on a group under its lock; `None`: no such group. Kafka: `GroupMetadata#inLock`.
    pub(super) fn in_group<T>(&self, group_id: &str, work: impl FnOnce(&mut Group) -> T) -> Option<T> {
        loop {
            let found = self.groups.lock().get(group_id)?;
            let group = found.lock();
            if !group.dead {
                let group = &mut self.working(&found, group).group;
                place(|| format!("work on group {group_id}"));
                return Some(work(group));
            }
        }
    }

    /// As [`Self::in_group`]; creates the group if it does not exist. Kafka: `GroupMetadataManager#addGroup`.
    pub(super) fn in_new_group<T>(&self, group_id: &Arc<str>, work: impl FnOnce(&mut Group) -> T) -> T {
        loop {
            let found = self.groups.lock().get_or_new(group_id);
            let group = found.lock();
            if !group.dead {
                let group = &mut self.working(&found, group).group;
                place(|| format!("work on group {group_id}"));
                return work(group);
            }
        }
    }

    fn working<'a>(&'a self, locked: &'a LockedGroup, group: MutexGuard<'a, Group>) -> Working<'a> {
        Working {
            coordinator: self,
            locked,
            group,
        }
    }

    /// Ends work on a group; wakes waiting threads if the group's next deadline is now earlier than the one they know.
    fn release(&self, locked: &LockedGroup, group: &Group) {
        let deadlines = if group.dead {
            Deadlines::default()
        } else {
            group.deadlines()
        };
        let before = locked.replace_deadlines(deadlines).next_ms();
        // Read afterwards: a client may be gone since, whose group was looked at before.
        if let Some(next) = locked
            .next_deadline()
            .filter(|next| before.is_none_or(|before| *next < before))
        {
            self.groups.lock().earlier(&group.id, next);
            self.changes().notify();
        }
    }

    /// A client in this process is gone: its members are removed earlier. Others may wait for that.
    pub(crate) fn client_gone(&self, client: &ClientLiveness) {
        client.disconnected(self.replicas.clock().monotonic_ms());
        self.groups.lock().all_earlier();
        self.changes().notify();
    }

    /// Removes a group from the table. Kafka: `GroupMetadataManager#removeGroup`.
    pub(super) fn remove_group(&self, group: &mut Group) {
        group.dead = true;
        self.groups.lock().remove(&group.id);
    }

    /// The ids of all groups.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        self.groups.lock().all().map(|(id, _)| id.clone()).collect()
    }

    /// Does timed work on those of the groups that no other thread has locked. If it panics, the timers of that group are paused for
    /// some time.
    fn for_each_unlocked(&self, groups: Vec<Arc<LockedGroup>>, mut work: impl FnMut(&mut Group)) {
        let now_ms = self.replicas.clock().monotonic_ms();
        for locked in groups {
            let idle = |group: &MutexGuard<'_, Group>| !group.dead && group.not_before_ms <= now_ms;
            let Some(group) = (if planted!("time-outs-wait-for-a-group") {
                Some(locked.lock())
            } else {
                locked.try_lock()
            })
            .filter(idle) else {
                continue;
            };
            let id = Arc::clone(&group.id);
            let group = &mut self.working(&locked, group).group;
            let done = contained(format_args!("timed work of group {id}"), || {
                place(|| format!("timer of group {id}"));
                work(group);
            });
            if done.is_none() {
                group.not_before_ms = now_ms.saturating_add(PAUSE_AFTER_PANIC_MS);
            }
        }
    }

    /// Does timed work on all groups that no other thread has locked.
    pub(super) fn in_idle_groups(&self, work: impl FnMut(&mut Group)) {
        let all = self.groups.lock().all().map(|(_, group)| group.clone()).collect();
        self.for_each_unlocked(all, work);
    }

    /// The earliest deadline of all groups. Does not wait for a group's lock.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.groups.lock().next_deadline()
    }

    /// When offsets that may have expired are checked next; `None`: there are no groups, or they are only read. No waiting client can see
    /// the difference.
    pub(crate) fn next_expiry_check(&self) -> Option<i64> {
        let any = self.groups.lock().all().next().is_some();
        (any && !self.replicas.is_read_only()).then(|| self.expiry_check.next_ms())
    }

    /// Whether a thread checks for expired offsets.
    pub(crate) fn is_checking(&self) -> bool {
        self.expiry_check.is_running()
    }

    /// The node whose partition of `__consumer_offsets` keeps the group.
    pub(crate) fn coordinator_of(&self, group_id: &str) -> NodeId {
        let number = self.partition_for(group_id);
        let table = self.replicas.topic_table();
        match table.get(CONSUMER_OFFSETS).and_then(|t| t.partition(number)) {
            Some(partition) => partition.leader(),
            // Before the first commit: where it will be.
            None => self.replicas.controller().first_coordinator(CONSUMER_OFFSETS, number),
        }
    }

    /// The partition of `__consumer_offsets` that keeps the group: abs(hash) mod partitions, abs(MIN_VALUE) = 0.
    /// Kafka: `GroupMetadataManager#partitionFor`.
    pub(crate) fn partition_for(&self, group_id: &str) -> i32 {
        let partitions = match self.replicas.topic_table().get(CONSUMER_OFFSETS) {
            Some(topic) => topic.record.partitions,
            None => self.replicas.config().int("offsets.topic.num.partitions"),
        };
        fletchlog_api::java_hash::string_hash(group_id)
            .checked_abs()
            .unwrap_or(0)
            % partitions.max(1)
    }

    /// NOT_COORDINATOR unless `node` keeps the group, COORDINATOR_LOAD_IN_PROGRESS while it loads it.
    pub(super) fn check_coordinator(&self, node: NodeId, group_id: &str) -> Result<(), ErrorCode> {
        if self.coordinator_of(group_id) != node {
            return Err(ErrorCode::NOT_COORDINATOR);
        }
        let clock = self.replicas.clock();
        self.loading.check(|| self.partition_for(group_id), &**clock)
    }

    /// As [`Self::check_coordinator`]; INVALID_GROUP_ID for an id that cannot have members. Loads what an earlier run stored of the
    /// group.
    pub(super) fn check_group(&self, node: NodeId, group_id: &str) -> Result<(), ErrorCode> {
        self.check_coordinator(node, group_id)?;
        if group_id.is_empty() || group_id.len() > MAX_TEXT {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        self.load_group(group_id)
    }

    /// Heartbeat. Kafka: `classicGroupHeartbeatToClassicGroup`; during CompletingRebalance as in 2.7 and later.
    pub(crate) fn heartbeat(
        &self,
        node: NodeId,
        request: &HeartbeatRequest,
        client: &Arc<ClientLiveness>,
    ) -> HeartbeatResponse {
        let now_ms = self.replicas.clock().monotonic_ms();
        client.seen(now_ms);
        self.tick(now_ms);
        let beat = |group: &mut Group| -> Result<(), ErrorCode> {
            if group.consumer.is_some() {
                return self.beat_consumer_group(group, request, now_ms);
            }
            let instance_id = request.group_instance_id.as_deref();
            check_generation(group, &request.member_id, instance_id, request.generation_id)?;
            let state = group.state;
            let member = group
                .member_mut(&request.member_id)
                .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            member.belongs_to(client, now_ms);
            member.reschedule_heartbeat(now_ms);
            match state {
                GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
                GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
                GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            }
        };
        let beaten = self.check_group(node, &request.group_id).and_then(|()| {
            let done = self.in_group(&request.group_id, beat);
            done.unwrap_or(Err(ErrorCode::UNKNOWN_MEMBER_ID))
        });
        HeartbeatResponse {
            error_code: match beaten {
                // The member must not rejoin. Kafka: `GroupCoordinatorService#heartbeat`.
                Ok(()) | Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => ErrorCode::NONE,
                Err(error) => error,
            },
            ..Default::default()
        }
    }

    /// Does what is due in the groups: removes members that have timed out and ids that were never used, ends rebalances that have
    /// timed out, removes expired offsets.
    pub(crate) fn tick(&self, now_ms: i64) {
        let due = self.groups.lock().due(now_ms);
        self.for_each_unlocked(due, |group| {
            if group.consumer.is_some() {
                self.resolve_regexes(group);
                self.expire_consumers(group, now_ms);
                return;
            }
            if group.share.is_some() {
                self.expire_share_members(group, now_ms);
                return;
            }
            let pending = group.pending_members.len();
            group.pending_members.retain(|_, give_up_ms| now_ms < *give_up_ms);
            if group.pending_members.len() < pending {
                self.try_complete_join(group, now_ms);
            }
            self.expire_members(group, now_ms);
            if group.pending_join.is_some_and(|join| now_ms >= join.deadline_ms) {
                self.try_complete_join(group, now_ms);
            }
            self.expire_pending_sync(group, now_ms);
            self.settle_assignment(group, now_ms);
        });
        self.maybe_expire_offsets(now_ms);
    }

    /// Kafka: `expireClassicGroupMemberHeartbeat`.
    fn expire_members(&self, group: &mut Group, now_ms: i64) {
        let missed = |m: &&Member| m.session().is_some_and(|session| now_ms >= session.deadline_ms());
        let missed: BTreeSet<Arc<str>> = group.members.iter().filter(missed).map(|m| m.id.clone()).collect();
        if missed.is_empty() {
            return;
        }
        for id in &missed {
            let group_id = &group.id;
            log::info!("member {id} of group {group_id} was not heard of in time and is removed");
        }
        self.remove_members(group, &missed, now_ms);
    }
}

/// Error 82 for the old id of a static member, 25 for an unknown member.
pub(super) fn check_member(group: &Group, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
    if let Some(instance) = instance_id {
        match group.static_member(instance) {
            None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(member) if &*member.id != member_id => return Err(ErrorCode::FENCED_INSTANCE_ID),
            Some(_) => {}
        }
    }
    if group.member(member_id).is_some() {
        Ok(())
    } else {
        Err(ErrorCode::UNKNOWN_MEMBER_ID)
    }
}

/// Whether the group has this member in this generation.
pub(super) fn check_generation(
    group: &Group,
    member_id: &str,
    instance_id: Option<&str>,
    generation_id: i32,
) -> Result<(), ErrorCode> {
    check_member(group, member_id, instance_id)?;
    match generation_id == group.generation {
        true => Ok(()),
        false => Err(ErrorCode::ILLEGAL_GENERATION),
    }
}
