//! The share partitions in memory, their locks and what is persisted of them. Kafka: `SharePartitionManager`, `SharePartitionCache`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_log::FetchBound;
use fletchlog_protocol::local::ClientName;
use fletchlog_protocol::messages::{
    ReadShareGroupStateRequest, ReadShareGroupStateResponse, WriteShareGroupStateRequest,
    read_share_group_state_request, read_share_group_state_response, write_share_group_state_request,
};
use fletchlog_records::{TopicPartition, planted};
use rustc_hash::FxHashMap;

use super::change::{Change, DeadLetters, Refusal};
use super::delayed_share_fetch::DelayedShareFetch;
use super::group_config::{OffsetReset, ShareGroupConfig};
use super::record_state::{NO_LOCK, RecordState};
use super::session::{ConnectionId, ShareSessionCache, ShareSessionKey, TopicIdPartition};
use super::share_partition::{Limits, SharePartition, StateBatch};
use crate::BrokerError;
use crate::panics::{contained, place};
use crate::partition::Partition;
use crate::replica_manager::{ReplicaManager, ShareWatchKey};
use crate::security::{AclOperation, Action, Principal, ResourceType};
use crate::share_coordinator::{NO_START_OFFSET, ShareCoordinator, SharePartitionKey};
use crate::sync::{Mutex, MutexGuard, Rank};

/// After a panic the end of locks is tried again so many ms later.
const LOOK_AGAIN_MS: i64 = 100;

/// The share partitions of all groups. Thread-safe.
pub(crate) struct SharePartitionManager {
    pub(super) replicas: Arc<ReplicaManager>,
    coordinator: Arc<ShareCoordinator>,
    pub(super) sessions: Mutex<ShareSessionCache>,
    partitions: Mutex<FxHashMap<SharePartitionKey, Arc<Managed>>>,
    /// When the next lock of a share partition ends.
    locks: Mutex<BTreeSet<(i64, SharePartitionKey)>>,
    /// The fetches that wait, by number, and when they time out.
    pub(super) waiting: Mutex<Waiting>,
    pub(super) last_fetch: AtomicU64,
    /// Connections that have closed, whose sessions are to be ended.
    closed: Mutex<Vec<ConnectionId>>,
}

/// See [`SharePartitionManager::waiting`].
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) by_id: FxHashMap<u64, Arc<DelayedShareFetch>>,
    pub(super) by_deadline: BTreeSet<(i64, u64)>,
}

/// A share partition and its lock, which is held while states are persisted and records are read for it.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) key: SharePartitionKey,
    pub(super) tp: TopicPartition,
    state: Mutex<Option<Loaded>>,
}

/// A share partition whose state has been read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) partition: SharePartition,
    state_epoch: i32,
    /// Of the partition.
    leader_epoch: i32,
    /// What the coordinator compares with the epoch of earlier leaders: not less than theirs.
    coordinator_epoch: i32,
    /// The offset of which a waiting fetch knows where it is in the log. Kafka: `SharePartition#fetchOffsetMetadata`.
    pub(super) known_offset: Option<i64>,
    /// It was loaded by a fetch of this member that had its answer before.
    pub(super) joins_after: Option<Arc<str>>,
    /// When its next lock ends, as noted in [`SharePartitionManager::locks`].
    noted_lock_ms: i64,
}

/// A range of records that a share group is not done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRecordState {
    /// Partition of the topic.
    pub partition: i32,
    /// First offset of the range.
    pub first_offset: i64,
    /// Its last one.
    pub last_offset: i64,
    /// Kafka's name of the state: Available, Acquired, Archiving.
    pub state: &'static str,
    /// The member that has acquired it.
    pub member_id: Option<Arc<str>>,
    /// How many times it was acquired.
    pub delivery_count: u16,
    /// Milliseconds until the lock of an acquired record ends.
    pub lock_left_ms: Option<i64>,
}

/// Why a share partition cannot be used.
#[derive(Debug, Clone)]
pub(super) struct LoadFailure {
    pub(super) code: ErrorCode,
}

impl From<ErrorCode> for LoadFailure {
    fn from(code: ErrorCode) -> Self {
        Self { code }
    }
}

impl From<BrokerError> for LoadFailure {
    fn from(error: BrokerError) -> Self {
        Self { code: error.code() }
    }
}

impl SharePartitionManager {
    /// A manager without share partitions.
    pub(crate) fn new(replicas: &Arc<ReplicaManager>, coordinator: &Arc<ShareCoordinator>) -> Self {
        let max_sessions =
            usize::try_from(replicas.config().int("group.share.max.share.sessions")).unwrap_or(usize::MAX);
        Self {
            replicas: Arc::clone(replicas),
            coordinator: Arc::clone(coordinator),
            sessions: Mutex::new(Rank::ShareSessions, ShareSessionCache::new(max_sessions)),
            partitions: Mutex::new(Rank::SharePartitions, FxHashMap::default()),
            locks: Mutex::new(Rank::ShareLocks, BTreeSet::new()),
            waiting: Mutex::new(Rank::ShareFetches, Waiting::default()),
            last_fetch: AtomicU64::new(0),
            closed: Mutex::new(Rank::ClosedConnections, Vec::new()),
        }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.replicas.clock().monotonic_ms()
    }

    /// The node that keeps what is persisted of a share partition.
    pub(crate) fn coordinator_of(&self, key: &str) -> NodeId {
        self.coordinator.coordinator_of(key)
    }

    /// The log that keeps what is persisted of a share partition; `None`: there is none yet.
    pub(crate) fn state_log(&self, group_id: &Arc<str>, topic_id: [u8; 16], partition: i32) -> Option<Arc<Partition>> {
        self.coordinator.state_log(&SharePartitionKey {
            group_id: Arc::clone(group_id),
            topic_id,
            partition,
        })
    }

    /// Reads a group's properties.
    pub(super) fn with_config<T>(&self, group_id: &str, read: impl FnOnce(&ShareGroupConfig<'_>) -> T) -> T {
        let configs = self.replicas.configs();
        read(&ShareGroupConfig::new(&configs, group_id))
    }

    pub(super) fn limits(&self, group_id: &str) -> Limits {
        self.with_config(group_id, |config| config.limits())
    }

    /// The partition with this topic id; `None`: there is none.
    pub(super) fn partition_of(&self, at: TopicIdPartition) -> Option<Arc<Partition>> {
        let table = self.replicas.topic_table();
        let topic = table.name_of(&at.topic_id).and_then(|name| table.get(name))?;
        topic.partition(at.partition).cloned()
    }

    /// Whether a topic has this id.
    pub(super) fn is_known_topic(&self, topic_id: &[u8; 16]) -> bool {
        self.replicas.topic_table().name_of(topic_id).is_some()
    }

    /// TOPIC_AUTHORIZATION_FAILED, if the client may not read the topic. An unknown id reveals nothing.
    pub(super) fn check_may_read(&self, reader: Option<&ClientName>, topic_id: &[u8; 16]) -> Result<(), ErrorCode> {
        let (Some(authorizer), Some(reader)) = (self.replicas.controller().authorizer(), reader) else {
            return Ok(());
        };
        let table = self.replicas.topic_table();
        let Some(name) = table.name_of(topic_id) else {
            return Ok(());
        };
        let principal = Principal {
            name: &reader.principal,
            host: &reader.host,
        };
        let action = Action {
            operation: AclOperation::Read,
            resource_type: ResourceType::Topic,
            resource_name: name,
        };
        match authorizer.authorize(principal, action) {
            true => Ok(()),
            false => Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
        }
    }

    /// The share partition if it is in memory, and the node still leads the partition in the same epoch.
    pub(super) fn loaded(&self, node: NodeId, group_id: &Arc<str>, at: TopicIdPartition) -> Option<Arc<Managed>> {
        let key = SharePartitionKey {
            group_id: Arc::clone(group_id),
            topic_id: at.topic_id,
            partition: at.partition,
        };
        let managed = self.partitions.lock().get(&key).cloned()?;
        let partition = self.partition_of(at).filter(|partition| partition.leader() == node);
        let epoch = partition.and_then(|partition| self.replicas.leader_epoch_of(&partition).ok())?;
        let is_current = managed
            .lock()
            .as_ref()
            .is_some_and(|loaded| loaded.leader_epoch == epoch);
        if !is_current {
            self.forget(&managed);
        }
        is_current.then_some(managed)
    }

    /// Reads the state of a share partition, if it is not in memory. Kafka: `SharePartition#maybeInitialize`.
    pub(super) fn load(&self, node: NodeId, group_id: &Arc<str>, at: TopicIdPartition) -> Result<(), LoadFailure> {
        let partition = self.partition_of(at).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if partition.leader() != node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        let key = SharePartitionKey {
            group_id: Arc::clone(group_id),
            topic_id: at.topic_id,
            partition: at.partition,
        };
        let managed = {
            let mut partitions = self.partitions.lock();
            let new = || {
                Arc::new(Managed {
                    key: key.clone(),
                    tp: partition.tp().clone(),
                    state: Mutex::new(Rank::SharePartition, None),
                })
            };
            Arc::clone(partitions.entry(key.clone()).or_insert_with(new))
        };
        let mut state = managed.lock();
        if state.is_some() {
            return Ok(());
        }
        match self.read_state(&managed, &partition) {
            Ok(loaded) => {
                *state = Some(loaded);
                self.finish_dead_letters(&managed, &mut state);
                Ok(())
            }
            Err(failure) => {
                drop(state);
                self.forget(&managed);
                Err(failure)
            }
        }
    }

    /// Asks the share coordinator for what is persisted.
    fn read_state(&self, managed: &Managed, partition: &Partition) -> Result<Loaded, LoadFailure> {
        let key = &managed.key;
        let leader_epoch = self.replicas.leader_epoch_of(partition).map_err(BrokerError::from)?;
        // A Kafka broker that has led the partition before may have had a later epoch in which nothing was appended.
        let coordinator_epoch = leader_epoch.max(self.coordinator.leader_epoch_of(key).unwrap_or(0));
        let asked = read_share_group_state_request::PartitionData {
            partition: key.partition,
            leader_epoch: coordinator_epoch,
        };
        let response = self.coordinator.read_state(&ReadShareGroupStateRequest {
            group_id: Arc::clone(&key.group_id),
            topics: vec![read_share_group_state_request::ReadStateData {
                topic_id: key.topic_id,
                partitions: vec![asked],
            }],
        });
        let result = only_result(response).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        if result.error_code != ErrorCode::NONE {
            return Err(of_coordinator(result.error_code).into());
        }
        let start = match result.start_offset {
            NO_START_OFFSET => self.reset_offset(&key.group_id, partition)?,
            start => start,
        };
        let batch = |batch: &read_share_group_state_response::StateBatch| {
            Some(StateBatch {
                first: batch.first_offset,
                last: batch.last_offset,
                state: RecordState::from_id(batch.delivery_state)?,
                deliveries: u16::try_from(batch.delivery_count).ok()?,
            })
        };
        let batches: Option<Vec<StateBatch>> = result.state_batches.iter().map(batch).collect();
        let loaded = batches.map(|batches| SharePartition::new(start, &batches));
        let partition = match loaded {
            Some(Ok(partition)) => partition,
            Some(Err(error)) => {
                log::error!("share group {}: {} cannot be loaded: {error}", key.group_id, managed.tp);
                return Err(ErrorCode::UNKNOWN_SERVER_ERROR.into());
            }
            None => {
                log::error!(
                    "share group {}: {} has states of an unknown kind",
                    key.group_id,
                    managed.tp
                );
                return Err(ErrorCode::UNKNOWN_SERVER_ERROR.into());
            }
        };
        Ok(Loaded {
            partition,
            state_epoch: result.state_epoch,
            leader_epoch,
            coordinator_epoch,
            known_offset: None,
            joins_after: None,
            noted_lock_ms: NO_LOCK,
        })
    }

    /// Where the group begins that has no start offset. Kafka: `SharePartition#startOffsetDuringInitialization`.
    fn reset_offset(&self, group_id: &str, partition: &Partition) -> Result<i64, LoadFailure> {
        let log = self.replicas.log_of(partition)?;
        let bounds = log.bounds().map_err(BrokerError::from)?;
        match self.with_config(group_id, |config| config.offset_reset()) {
            OffsetReset::Earliest => Ok(bounds.log_start_offset),
            OffsetReset::Latest => Ok(bounds.high_watermark),
            OffsetReset::Before(ms) => {
                let time_ms = self.replicas.clock().now_ms().saturating_sub(ms).max(0);
                let found = log
                    .fetch_offset_by_timestamp(time_ms, FetchBound::HighWatermark)
                    .map_err(BrokerError::from)?;
                match found.offset {
                    -1 => Err(ErrorCode::OFFSET_NOT_AVAILABLE.into()),
                    offset => Ok(offset),
                }
            }
        }
    }

    /// Drops a share partition from memory: what is persisted counts from now on. Kafka: `SharePartition#markFenced`.
    pub(super) fn forget(&self, managed: &Arc<Managed>) {
        let mut partitions = self.partitions.lock();
        if partitions
            .get(&managed.key)
            .is_some_and(|current| Arc::ptr_eq(current, managed))
        {
            partitions.remove(&managed.key);
        }
        drop(partitions);
        let mut state = managed.lock();
        if let Some(loaded) = state.take() {
            self.locks.lock().remove(&(loaded.noted_lock_ms, managed.key.clone()));
        }
    }

    /// Persists a change and puts it into effect. True: waiting fetches are to be tried. As in Kafka they are after the start offset has
    /// moved and after the end of a lock; what a member releases is found by the next fetch, or when the time of a waiting one is over.
    /// Then the dead letters are written.
    ///
    /// # Errors
    /// The coordinator's refusal, as the client gets it: nothing has changed.
    pub(super) fn persist(
        &self,
        managed: &Managed,
        loaded: &mut Loaded,
        change: Change,
        limits: &Limits,
    ) -> Result<bool, Refusal> {
        if let Err(refusal) = self.write_state(&managed.key, loaded, &change) {
            loaded.partition.roll_back(change);
            return Err(refusal);
        }
        Ok(self.commit(managed, loaded, change, limits))
    }

    fn commit(&self, managed: &Managed, loaded: &mut Loaded, change: Change, limits: &Limits) -> bool {
        let dead = change.dead.clone();
        let mut is_news = loaded.partition.commit(change, self.now_ms(), limits);
        if !dead.is_empty() {
            is_news |= self.bury(managed, loaded, &dead, limits);
        }
        is_news
    }

    /// Writes dead letters, and archives their records one batch after the other, each noted alone; true: the start offset has moved. As in
    /// Kafka it moves after each of them, but after the last one if they cannot be written: there all are noted at once.
    fn bury(&self, managed: &Managed, loaded: &mut Loaded, dead: &[DeadLetters], limits: &Limits) -> bool {
        let are_written = self.write_dead_letters(managed, dead);
        let mut has_moved = false;
        let mut noted = Vec::new();
        while let Some(buried) = loaded.partition.bury(dead) {
            // If it cannot be persisted, the next leader writes the dead letters again.
            if let Err(refusal) = self.write_state(&managed.key, loaded, &buried) {
                log::debug!("{}: dead letters are not noted: {}", managed.tp, refusal.message);
            }
            match are_written {
                true => has_moved |= loaded.partition.commit(buried, self.now_ms(), limits),
                false => noted.push(buried),
            }
        }
        for buried in noted {
            has_moved |= loaded.partition.commit(buried, self.now_ms(), limits);
        }
        has_moved
    }

    /// Writes dead letters that an earlier leader has not finished.
    fn finish_dead_letters(&self, managed: &Managed, state: &mut Option<Loaded>) {
        let Some(loaded) = state else { return };
        let dead = loaded.partition.unfinished_dead();
        if dead.is_empty() {
            return;
        }
        let limits = self.limits(&managed.key.group_id);
        self.bury(managed, loaded, &dead, &limits);
    }

    /// Kafka: `SharePartition#writeShareGroupState`, with the texts of `PersisterStateManager`.
    fn write_state(&self, key: &SharePartitionKey, loaded: &Loaded, change: &Change) -> Result<(), Refusal> {
        if change.is_empty() || planted!("share-acknowledgement-not-persisted") {
            return Ok(());
        }
        let (start_offset, complete) = loaded.partition.start_and_complete();
        let batch = |batch: &StateBatch| write_share_group_state_request::StateBatch {
            first_offset: batch.first,
            last_offset: batch.last,
            delivery_state: batch.state.id(),
            delivery_count: match planted!("share-deliveries-not-persisted") {
                true => 1,
                false => i16::try_from(batch.deliveries).unwrap_or(i16::MAX),
            },
        };
        let asked = write_share_group_state_request::PartitionData {
            partition: key.partition,
            state_epoch: loaded.state_epoch,
            leader_epoch: loaded.coordinator_epoch,
            start_offset,
            delivery_complete_count: i32::try_from(complete).unwrap_or(i32::MAX),
            state_batches: change.batches.iter().map(batch).collect(),
        };
        let response = self.coordinator.write_state(&WriteShareGroupStateRequest {
            group_id: Arc::clone(&key.group_id),
            topics: vec![write_share_group_state_request::WriteStateData {
                topic_id: key.topic_id,
                partitions: vec![asked],
            }],
        });
        let mut results = response.results.into_iter().flat_map(|topic| topic.partitions);
        match results.next() {
            Some(result) if result.error_code == ErrorCode::NONE => Ok(()),
            Some(result) => {
                let text = result.error_message.unwrap_or_default();
                let text = format!("Error in write state RPC. {text}");
                Err(Refusal::new(of_coordinator(result.error_code), &text))
            }
            None => Err(Refusal::new(
                ErrorCode::UNKNOWN_SERVER_ERROR,
                "Error in write state RPC.",
            )),
        }
    }

    /// Called after a share partition has changed, with its lock: notes when its next lock ends.
    pub(super) fn note_locks(&self, managed: &Managed, loaded: &mut Loaded) {
        let next_ms = loaded.partition.next_lock_end().unwrap_or(NO_LOCK);
        if next_ms == loaded.noted_lock_ms {
            return;
        }
        let mut locks = self.locks.lock();
        locks.remove(&(loaded.noted_lock_ms, managed.key.clone()));
        loaded.noted_lock_ms = next_ms;
        if next_ms == NO_LOCK {
            return;
        }
        locks.insert((next_ms, managed.key.clone()));
        let is_first = locks.first().is_some_and(|(_, key)| *key == managed.key);
        drop(locks);
        if is_first {
            self.replicas.changes().notify();
        }
    }

    /// Called after records of a share partition have become available, or its start has moved.
    pub(super) fn available(&self, managed: &Managed) {
        let key = || ShareWatchKey::Group(Arc::clone(&managed.key.group_id), managed.tp.clone());
        self.replicas.share_changed(key);
    }

    /// When the next lock ends, or the next waiting fetch times out or is to be tried.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        let lock = self.locks.lock().first().map(|(at_ms, _)| *at_ms);
        let fetch = self.waiting.lock().by_deadline.first().map(|(at_ms, _)| *at_ms);
        let is_ready = self.replicas.share_watch().is_any_ready() || !self.closed.lock().is_empty();
        let ready = is_ready.then(|| self.now_ms());
        [lock, fetch, ready].into_iter().flatten().min()
    }

    /// Ends the locks whose time has come, and answers waiting fetches.
    pub(crate) fn tick(&self, now_ms: i64) {
        let closed = std::mem::take(&mut *self.closed.lock());
        for connection in closed {
            self.disconnected(connection);
        }
        loop {
            let due = self.locks.lock().first().filter(|(at_ms, _)| *at_ms <= now_ms).cloned();
            let Some((at_ms, key)) = due else { break };
            self.locks.lock().remove(&(at_ms, key.clone()));
            let managed = self.partitions.lock().get(&key).cloned();
            if let Some(managed) = managed {
                let what = format_args!("locks of share group {} in {}", key.group_id, managed.tp);
                let done = contained(what, || {
                    place(|| format!("locks of share group {}", key.group_id));
                    self.end_locks(&managed, now_ms);
                });
                if done.is_none() {
                    self.look_again(&managed, now_ms);
                }
            }
        }
        self.complete_ready();
        self.expire_fetches(now_ms);
    }

    /// Called after a panic: the locks of a share partition are looked at again soon.
    fn look_again(&self, managed: &Managed, now_ms: i64) {
        if let Some(loaded) = &mut *managed.lock() {
            let mut locks = self.locks.lock();
            locks.remove(&(loaded.noted_lock_ms, managed.key.clone()));
            loaded.noted_lock_ms = now_ms.saturating_add(LOOK_AGAIN_MS);
            locks.insert((loaded.noted_lock_ms, managed.key.clone()));
        }
    }

    /// Kafka: `SharePartition#releaseAcquisitionLockOnTimeout`: the records are released even if that cannot be persisted, and waiting
    /// fetches are tried after each lock. The start offset moves after the last one: in Kafka the writes are under way meanwhile.
    fn end_locks(&self, managed: &Managed, now_ms: i64) {
        let limits = self.limits(&managed.key.group_id);
        let mut ended = Vec::new();
        loop {
            let mut state = managed.lock();
            let Some(loaded) = &mut *state else { return };
            // It was taken out of the set.
            loaded.noted_lock_ms = NO_LOCK;
            let Some(change) = loaded.partition.end_lock(now_ms, &limits) else {
                let mut is_news = false;
                for change in ended {
                    is_news |= self.commit(managed, loaded, change, &limits);
                }
                self.note_locks(managed, loaded);
                drop(state);
                if is_news {
                    self.available(managed);
                }
                return;
            };
            if change.is_empty() {
                continue;
            }
            if let Err(refusal) = self.write_state(&managed.key, loaded, &change) {
                log::debug!("{}: the end of a lock is not noted: {}", managed.tp, refusal.message);
            }
            loaded.partition.take_effect(&change);
            ended.push(change);
            drop(state);
            self.available(managed);
            self.complete_ready();
        }
    }

    /// Releases what a member has of these partitions: its session has ended. A refusal is not reported, as in Kafka.
    pub(super) fn release(&self, key: &ShareSessionKey, partitions: &[TopicIdPartition]) {
        for at in partitions {
            let Some(managed) = self.loaded(key.node, &key.group_id, *at) else {
                continue;
            };
            let limits = self.limits(&key.group_id);
            let mut state = managed.lock();
            let Some(loaded) = &mut *state else { continue };
            let change = loaded.partition.release(&key.member_id, &limits);
            let released = self.persist(&managed, loaded, change, &limits);
            self.note_locks(&managed, loaded);
            drop(state);
            match released {
                Ok(true) => self.available(&managed),
                Ok(false) => {}
                Err(refusal) => self.maybe_fence(&managed, &refusal),
            }
        }
    }

    /// Drops the share partition if a refusal says that this state is no longer the current one. Kafka:
    /// `SharePartitionManager#handleFencedSharePartitionException`.
    pub(super) fn maybe_fence(&self, managed: &Arc<Managed>, refusal: &Refusal) {
        let is_fenced = matches!(
            refusal.code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        );
        if is_fenced {
            self.forget(managed);
        }
    }

    /// Notes that a connection has closed. The thread must not wait: the next [`Self::tick`] ends the session.
    pub(crate) fn disconnects(&self, connection: ConnectionId) {
        if self.sessions.lock().has_opened(connection) {
            self.closed.lock().push(connection);
            self.replicas.changes().notify();
        }
    }

    /// Called when a connection has closed: the session that was opened last over it ends, and what the group has in memory with its
    /// last session.
    pub(crate) fn disconnected(&self, connection: ConnectionId) {
        let ended = self.sessions.lock().disconnected(connection);
        if let Some((key, partitions)) = &ended.session {
            self.release(key, partitions);
        }
        if let Some(group_id) = ended.emptied_group {
            self.forget_group(&group_id);
        }
        self.complete_ready();
    }

    fn forget_group(&self, group_id: &str) {
        let of_group: Vec<Arc<Managed>> = {
            let partitions = self.partitions.lock();
            let all = partitions.values().filter(|managed| &*managed.key.group_id == group_id);
            all.cloned().collect()
        };
        for managed in of_group {
            self.forget(&managed);
        }
    }

    /// The records of a topic that a group is not done with, by partition and offset.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION.
    pub(crate) fn share_state(&self, group_id: &str, topic: &str) -> Result<Vec<ShareRecordState>, BrokerError> {
        let topic_id = self.replicas.topic(topic)?.record.id;
        let mut of_topic: Vec<Arc<Managed>> = {
            let partitions = self.partitions.lock();
            let all = partitions
                .values()
                .filter(|managed| &*managed.key.group_id == group_id && managed.key.topic_id == topic_id);
            all.cloned().collect()
        };
        of_topic.sort_by_key(|managed| managed.key.partition);
        let now_ms = self.now_ms();
        let mut open = Vec::new();
        for managed in of_topic {
            let state = managed.lock();
            let states = state.iter().flat_map(|loaded| loaded.partition.open_states());
            open.extend(states.map(|(first_offset, last_offset, state)| ShareRecordState {
                partition: managed.key.partition,
                first_offset,
                last_offset,
                state: state.state.name(),
                delivery_count: state.deliveries,
                lock_left_ms:
                    (state.locked_until_ms != NO_LOCK).then(|| state.locked_until_ms.saturating_sub(now_ms).max(0)),
                member_id: state.member,
            }));
        }
        Ok(open)
    }
}

impl Managed {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.state.lock()
    }
}

fn only_result(response: ReadShareGroupStateResponse) -> Option<read_share_group_state_response::PartitionResult> {
    response.results.into_iter().flat_map(|topic| topic.partitions).next()
}

/// The error of a client for the coordinator's. Kafka: `SharePartition#fetchPersisterError`.
fn of_coordinator(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
            ErrorCode::COORDINATOR_NOT_AVAILABLE
        }
        ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => code,
        ErrorCode::FENCED_LEADER_EPOCH | ErrorCode::FENCED_STATE_EPOCH => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}
