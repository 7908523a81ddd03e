//! One partition as the broker sees it: its leader, its directory, its log (opened when first needed).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_log::config::Durability;
use fletchlog_log::fs::Fs;
use fletchlog_log::{
    AppendError, AppendInfo, AppendOrigin, LogError, PartitionLog, checkpoint, file_name, stored_leader_epoch,
};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use crate::BrokerError;
use crate::directory::{Directory, NO_LEADER, PartitionState, TopicRecord, partition_dir_name};
use crate::error::ReadRefusal;
use crate::sync::{Mutex, Rank, RwLock};
use crate::topic_config::TopicConfig;

/// The end of a replica whose log was not open when the replica left.
const NOT_OPENED: i64 = -1;
/// A leader epoch that is not known yet.
const NOT_READ: i32 = -1;
/// Changes of the leader by a start of a broker: nobody leads when it has ended, and then it leads again.
const EPOCHS_OF_A_START: i32 = 2;

/// A partition.
#[derive(Debug)]
pub(crate) struct Partition {
    tp: TopicPartition,
    /// Its name in fetches by topic id.
    by_id: TopicPartition,
    topic_id: [u8; 16],
    /// The replicas of the new partition. The directory of the first one has the log, whichever node leads later.
    first_replicas: Vec<NodeId>,
    node_index: usize,
    /// `None`: nothing has changed since the partition was created.
    changed_state: RwLock<Option<Arc<PartitionState>>>,
    has_changed: AtomicBool,
    /// What requests ask of the state.
    leader: AtomicI32,
    /// [`NOT_READ`]: the log's epochs were not read yet.
    leader_epoch: AtomicI32,
    /// Some replicas are not in sync.
    is_under_replicated: AtomicBool,
    /// The high watermark stands still.
    is_held: AtomicBool,
    /// Where the logs of replicas end that are not in sync; [`NOT_OPENED`]: where the log ended when it was last closed.
    ends: Mutex<BTreeMap<NodeId, i64>>,
    /// There are such replicas.
    has_ends: AtomicBool,
    /// Until when followers do not ask the leader for records (monotonic ms).
    held_until_ms: AtomicI64,
    /// Its leader has begun meanwhile, and does not know the high watermark.
    is_offset_unknown: AtomicBool,
    /// An election has cut its log, and its coordinator does not know it yet.
    is_cut: AtomicBool,
    dir: PathBuf,
    config: RwLock<Arc<TopicConfig>>,
    log: OnceLock<Arc<PartitionLog>>,
    /// Held while its directory is created; true once the topic is deleted.
    deleted: Mutex<bool>,
    last_flush_ms: AtomicI64,
    uncleanable: AtomicBool,
}

impl Partition {
    /// The partition of a topic; nothing is opened.
    pub(crate) fn new(
        tp: TopicPartition,
        by_id: TopicPartition,
        record: &TopicRecord,
        config_of: impl Fn(NodeId) -> Arc<TopicConfig>,
        directory: &Directory,
    ) -> Self {
        let nodes = directory.nodes();
        let leader = record.leader_of(tp.partition, nodes);
        let log_dir = directory.log_dir_of(leader);
        let state = record.states.get(&tp.partition);
        let config = config_of(state.map_or(leader, |state| state.leader));
        Self {
            dir: log_dir.path().join(partition_dir_name(&tp)),
            by_id,
            topic_id: record.id,
            node_index: nodes.index_of(leader).unwrap_or(0),
            first_replicas: record.replicas_of(tp.partition, nodes),
            changed_state: RwLock::new(Rank::PartitionState, state.cloned()),
            has_changed: AtomicBool::new(state.is_some()),
            leader: AtomicI32::new(state.map_or(leader, |state| state.leader)),
            leader_epoch: AtomicI32::new(NOT_READ),
            is_under_replicated: AtomicBool::new(state.is_some_and(|state| state.is_under_replicated())),
            is_held: AtomicBool::new(state.is_some_and(|state| state.is_under_min_isr(config.min_insync_replicas))),
            ends: Mutex::new(Rank::ReplicaEnds, BTreeMap::new()),
            has_ends: AtomicBool::new(false),
            held_until_ms: AtomicI64::new(i64::MIN),
            is_offset_unknown: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            tp,
            config: RwLock::new(Rank::PartitionConfig, config),
            log: OnceLock::new(),
            deleted: Mutex::new(Rank::PartitionDirectory, false),
            last_flush_ms: AtomicI64::new(i64::MAX),
            uncleanable: AtomicBool::new(false),
        }
    }

    /// Topic and number.
    pub(crate) fn tp(&self) -> &TopicPartition {
        &self.tp
    }

    /// Topic and number as fetches name them: by name, and [by id](fletchlog_api::topic_by_id).
    pub(crate) fn fetched_as(&self) -> [&TopicPartition; 2] {
        [&self.tp, &self.by_id]
    }

    /// The id of its topic.
    pub(crate) fn topic_id(&self) -> &[u8; 16] {
        &self.topic_id
    }

    /// Node that leads it; [`NO_LEADER`](crate::directory::NO_LEADER): none.
    pub(crate) fn leader(&self) -> NodeId {
        self.leader.load(Ordering::Acquire)
    }

    /// The place of the directory that has its log among those of all nodes.
    pub(crate) fn node_index(&self) -> usize {
        self.node_index
    }

    /// Its replicas, the preferred leader first.
    pub(crate) fn replicas(&self) -> Vec<NodeId> {
        match &*self.changed_state.read() {
            Some(state) => state.replicas.clone(),
            None => self.first_replicas.clone(),
        }
    }

    /// Whether it has never had a second replica.
    pub(crate) fn has_one_replica(&self) -> bool {
        match self.first_replicas.len() {
            1 => !self.has_changed.load(Ordering::Acquire),
            _ => false,
        }
    }

    /// Its replicas, and those in sync.
    pub(crate) fn replicas_and_isr(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        match &*self.changed_state.read() {
            Some(state) => (state.replicas.clone(), state.isr.clone()),
            None => (self.first_replicas.clone(), self.first_replicas.clone()),
        }
    }

    /// The replicas that may lead although they are not in sync, and the last leader if there is none.
    pub(crate) fn eligible_leaders(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        match &*self.changed_state.read() {
            Some(state) => (state.elr.clone(), state.last_known_elr.clone()),
            None => (Vec::new(), Vec::new()),
        }
    }

    /// Leader, replicas and ISR. The epoch in it is as of the last change, see [`Partition::leader_epoch`].
    pub(crate) fn state(&self) -> Arc<PartitionState> {
        let changed = self.changed_state.read().clone();
        changed.unwrap_or_else(|| Arc::new(PartitionState::new(self.first_replicas.clone())))
    }

    /// Whether some replicas are not in sync.
    pub(crate) fn is_under_replicated(&self) -> bool {
        self.is_under_replicated.load(Ordering::Acquire)
    }

    /// Called when the replica of a node ends: from now on its log does not grow. Kafka has a log of each replica.
    pub(crate) fn note_end(&self, node: NodeId) {
        let state = self.state();
        if !state.isr.contains(&node) {
            return;
        }
        let end = self.log.get().map_or(NOT_OPENED, |log| log.log_end_offset());
        self.ends.lock().entry(node).or_insert(end);
        self.has_ends.store(true, Ordering::Release);
    }

    /// Called when the replica of a node has not ended after all.
    pub(crate) fn forget_end(&self, node: NodeId) {
        let mut ends = self.ends.lock();
        ends.remove(&node);
        self.has_ends.store(!ends.is_empty(), Ordering::Release);
    }

    /// Where the log of a node's replica ends, if it ends before the one that all replicas share.
    pub(crate) fn end_of(&self, node: NodeId) -> Option<i64> {
        if !self.has_ends.load(Ordering::Acquire) {
            return None;
        }
        let end = self.ends.lock().get(&node).copied();
        end.filter(|end| *end != NOT_OPENED && *end < self.log_end())
    }

    /// Where the shared log is to be cut: at the end of that of a new leader, which others have to follow. Forgets the ends of replicas that
    /// are in sync again, or are replicas no more. A new replica has all records at once, and so has the one that led last: what was written
    /// since its end, such as the marker of a transaction, would have waited for it in Kafka. One in sync that has ended unnoticed cuts
    /// nothing either: it leads until that is detected, and then another one in sync does. The recovery point goes back at once, because
    /// recovery checks nothing below it: put it into the checkpoint, then cut by [`Self::cut`]. Kafka: `ReplicaFetcherThread#truncate`.
    pub(crate) fn follow_leader(&self, state: &PartitionState) -> Option<i64> {
        if !self.has_ends.load(Ordering::Acquire) {
            return None;
        }
        let before = self.state();
        let is_behind = state.leader != before.leader
            && before.replicas.contains(&state.leader)
            && !before.isr.contains(&state.leader)
            && !before.last_known_elr.contains(&state.leader);
        let end = is_behind.then(|| self.end_of(state.leader)).flatten();
        let end = end.filter(|_| !planted!("unclean-leader-cuts-nothing"));
        let mut ends = self.ends.lock();
        let end = match planted!("log-cut-to-the-shortest") {
            true => end.and(ends.values().copied().min()),
            false => end,
        };
        if let Some(end) = end {
            ends.values_mut().for_each(|other| *other = end.min(*other));
        }
        ends.retain(|node, _| state.replicas.contains(node) && !state.isr.contains(node));
        self.has_ends.store(!ends.is_empty(), Ordering::Release);
        drop(ends);
        let (end, log) = (end?, self.log.get()?);
        log::warn!(
            "{} loses what is beyond offset {end}: node {} leads",
            self.tp,
            state.leader
        );
        log.lower_recovery_point(end);
        Some(end)
    }

    /// Cuts the log.
    ///
    /// # Errors
    /// Storage errors: the log is fenced.
    pub(crate) fn cut(&self, end: i64, now_ms: i64) -> Result<(), LogError> {
        self.is_cut.store(true, Ordering::Release);
        self.log.get().map_or(Ok(()), |log| log.truncate_to(end, now_ms))
    }

    /// Whether its log was cut since the last call: what a coordinator has in memory of it is to be read again.
    pub(crate) fn take_cut(&self) -> bool {
        self.is_cut.swap(false, Ordering::AcqRel)
    }

    /// Stops all writes until the log is reopened.
    pub(crate) fn fence(&self, cause: &str) {
        if let Some(log) = self.log.get() {
            log.fence_because(cause.to_owned());
        }
    }

    /// Whether the high watermark stands still: acks=all waits.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Lets followers ask the leader for records only after this time (monotonic ms).
    pub(crate) fn hold_until(&self, at_ms: i64) {
        self.held_until_ms.store(at_ms, Ordering::Release);
    }

    /// Until when they do not (monotonic ms).
    pub(crate) fn held_until_ms(&self) -> i64 {
        self.held_until_ms.load(Ordering::Acquire)
    }

    /// Lets the high watermark stand still or move on; true: this changes something. Kafka: `Partition#maybeIncrementLeaderHW`.
    pub(crate) fn hold_high_watermark(&self, is_held: bool) -> bool {
        if self.is_held.swap(is_held, Ordering::AcqRel) == is_held {
            return false;
        }
        if !is_held {
            self.is_offset_unknown.store(false, Ordering::Release);
        }
        if let Some(log) = self.log.get() {
            log.hold_high_watermark(is_held);
        }
        true
    }

    /// Called for a new leader: if its high watermark stands still below the first offset of its epoch, it does not know where the log ends
    /// for clients until that moves on.
    pub(crate) fn note_new_leader(&self) {
        let is_behind = self.is_held() && self.high_watermark() < self.log_end();
        self.is_offset_unknown.store(is_behind, Ordering::Release);
    }

    /// Called for a new leader that was killed and has started: its high watermark is that of an old checkpoint.
    pub(crate) fn note_lost_high_watermark(&self) {
        self.is_offset_unknown.store(self.is_held(), Ordering::Release);
    }

    /// Whether the leader does not know yet where the log ends for clients. Kafka: `Partition#fetchOffsetForTimestamp`, its
    /// OFFSET_NOT_AVAILABLE.
    pub(crate) fn is_offset_unknown(&self) -> bool {
        self.is_offset_unknown.load(Ordering::Acquire)
    }

    /// The end of the log for clients; 0 if the log is not open: nothing waits for it.
    pub(crate) fn high_watermark(&self) -> i64 {
        self.log.get().map_or(0, |log| log.high_watermark())
    }

    /// The end of the log; 0 if it is not open.
    pub(crate) fn log_end(&self) -> i64 {
        self.log.get().map_or(0, |log| log.log_end_offset())
    }

    /// Puts a new state into effect; the next records of an open log have its leader epoch. No request runs meanwhile. Kafka:
    /// `Partition#makeLeader`.
    pub(crate) fn set_state(&self, state: &Arc<PartitionState>, read_only: bool) {
        if let (Some(log), false) = (self.log.get(), read_only)
            && let Err(error) = assign_epoch(log, state)
        {
            // The first append of the epoch does it again.
            log::error!(
                "the leader epoch {} of {} cannot be noted: {error}",
                state.leader_epoch,
                self.tp
            );
        }
        *self.changed_state.write() = Some(Arc::clone(state));
        self.has_changed.store(true, Ordering::Release);
        self.is_under_replicated
            .store(state.is_under_replicated(), Ordering::Release);
        self.leader_epoch.fetch_max(state.leader_epoch, Ordering::AcqRel);
        self.leader.store(state.leader, Ordering::Release);
    }

    /// Whether a node may answer a request that knows this leader epoch (-1: none): it has a replica, the epoch is the current one, and it
    /// leads, if only the leader may answer. Returns the current epoch. Kafka: `Partition#localLogWithEpochOrThrow`,
    /// `#getLocalLog`, in their order.
    pub(crate) fn check_replica(
        &self,
        directory: &Directory,
        node: NodeId,
        known_epoch: i32,
        leader_only: bool,
    ) -> Result<i32, ReadRefusal> {
        let leads = self.leader() == node;
        if !leads && !self.replicas().contains(&node) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        let current = self.leader_epoch(directory)?;
        check_leader_epoch(known_epoch, current)?;
        if !leads && leader_only {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        Ok(current)
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its settings.
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.config.read())
    }

    /// Replaces its settings, also those of the open log. Kafka: `UnifiedLog#updateConfig`.
    pub(crate) fn set_config(&self, config: Arc<TopicConfig>) {
        let mut current = self.config.write();
        if let Some(log) = self.log.get() {
            log.update_config(config.log.clone());
        }
        *current = config;
    }

    /// Whether the background cleaner skips it because it could not clean it. Kafka: `uncleanablePartitions`.
    pub(crate) fn is_uncleanable(&self) -> bool {
        self.uncleanable.load(Ordering::Relaxed)
    }

    pub(crate) fn set_uncleanable(&self, uncleanable: bool) {
        self.uncleanable.store(uncleanable, Ordering::Relaxed);
    }

    /// Called when fletchlog.durability becomes `fsync`: from now on an append is acknowledged once it and everything before it are
    /// on disk. A log that is opened later begins with its directory on disk.
    pub(crate) fn make_durable(&self, fs: &dyn Fs) -> Result<(), BrokerError> {
        // While this is locked, no log is opened with the old settings.
        let _opening = self.deleted.lock();
        let mut config = TopicConfig::clone(&self.config());
        if config.log.durability == Durability::Fsync {
            return Ok(());
        }
        if let (Some(log), Some(parent)) = (self.log.get(), self.dir.parent()) {
            fs.sync_dir(parent)
                .map_err(|e| BrokerError::directory(fs, parent, format!("cannot be synced: {e}")))?;
            if !planted!("topic-made-durable-without-what-it-had") {
                log.flush()?;
            }
        }
        config.log.durability = Durability::Fsync;
        self.set_config(Arc::new(config));
        Ok(())
    }

    /// The log if it has been opened.
    pub(crate) fn opened_log(&self) -> Option<&Arc<PartitionLog>> {
        self.log.get()
    }

    /// The log, opened and recovered on first use. When read-only, it has what a live writer has added since.
    pub(crate) fn log(&self, directory: &Directory, now_ms: i64) -> Result<&Arc<PartitionLog>, BrokerError> {
        let fs = directory.fs();
        let log_dir = &directory.log_dirs()[self.node_index()];
        if let Some(log) = self.log.get() {
            if directory.read_only() {
                log.refresh(log_dir.log_start_offset(&**fs, &self.tp)?)?;
            }
            return Ok(log);
        }
        let deleted = self.deleted.lock();
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        if directory.read_only() {
            // In a directory of fletchlog's, a partition without a directory was never used: its log is empty until the writer
            // creates it.
            if directory.is_kafkas() && !fs.exists(&self.dir) {
                // The directory has only one broker's part of a cluster.
                return Err(BrokerError::unknown_partition(&self.tp));
            }
        } else {
            self.stamp(*deleted, directory)?;
            // The log drops the last epoch from its file if nothing was written in it.
            let _ = self.leader_epoch(directory);
        }
        let log = PartitionLog::open(
            fs.clone(),
            &self.dir,
            self.tp.clone(),
            self.config().log.clone(),
            log_dir.open_mode(&**fs, &self.tp, directory.read_only())?,
            now_ms,
        )?;
        self.last_flush_ms.store(now_ms, Ordering::Relaxed);
        if !directory.read_only() {
            log_dir.lower_offsets(&**fs, &self.tp, log.log_end_offset())?;
            if let Some(state) = &*self.changed_state.read() {
                assign_epoch(&log, state)?;
            }
            self.note_epoch(&log)?;
        }
        // The settings may have changed while the log was opened; the lock prevents a change until other threads find the log.
        let config = self.config.read();
        log.update_config(config.log.clone());
        let log = self.log.get_or_init(|| Arc::new(log));
        if self.is_held() {
            log.hold_high_watermark(true);
        }
        if self.has_ends.load(Ordering::Acquire) {
            let mut ends = self.ends.lock();
            let unknown = ends.values_mut().filter(|end| **end == NOT_OPENED);
            unknown.for_each(|end| *end = log.log_end_offset());
        }
        Ok(log)
    }

    /// Creates the directory with its `partition.metadata`; the log is created when it is first needed.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION once the topic is deleted, a directory of another topic id, storage errors.
    pub(crate) fn stamp_topic_id(&self, directory: &Directory) -> Result<(), BrokerError> {
        let deleted = self.deleted.lock();
        self.stamp(*deleted, directory)
    }

    /// Whether its directory belongs to another topic that had this name.
    pub(crate) fn is_foreign(&self, directory: &Directory) -> bool {
        let found = checkpoint::read_partition_metadata(&**directory.fs(), &self.dir);
        matches!(found, Ok(Some(id)) if id != self.topic_id)
    }

    /// Called when the topic is deleted. From now on this partition does not create its directory again: a new topic of the name
    /// would find it.
    pub(crate) fn set_deleted(&self) {
        *self.deleted.lock() = true;
    }

    fn stamp(&self, deleted: bool, directory: &Directory) -> Result<(), BrokerError> {
        if deleted {
            return Err(BrokerError::unknown_partition(&self.tp));
        }
        let fs = directory.fs();
        let found = match checkpoint::read_partition_metadata(&**fs, &self.dir) {
            // fletchlog's metadata file has the id.
            Err(_) if self.is_torn(directory) => None,
            other => other?,
        };
        match found {
            Some(id) if id == self.topic_id => Ok(()),
            Some(_) => Err(BrokerError::directory(
                &**fs,
                &self.dir,
                "partition.metadata names another topic id than fletchlog.metadata: the directory belongs to another incarnation of the topic; move it away",
            )),
            None => self.write_topic_id(directory),
        }
    }

    fn write_topic_id(&self, directory: &Directory) -> Result<(), BrokerError> {
        let fs = directory.fs();
        fs.create_dir_all(&self.dir)
            .map_err(|e| BrokerError::directory(&**fs, &self.dir, format!("cannot be created: {e}")))?;
        Ok(checkpoint::write_partition_metadata(&**fs, &self.dir, &self.topic_id)?)
    }

    /// Writes `partition.metadata` again if a power loss has left it without its content: a Kafka broker would not start with it.
    pub(crate) fn mend_topic_id(&self, directory: &Directory) -> Result<(), BrokerError> {
        if self.is_torn(directory) {
            self.write_topic_id(directory)?;
        }
        Ok(())
    }

    /// Whether `partition.metadata` has only a part of its expected content, cut short or with zeros, as after a full disk, a kill or
    /// a power loss.
    fn is_torn(&self, directory: &Directory) -> bool {
        let bytes = directory.fs().read(&self.dir.join(file_name::PARTITION_METADATA));
        let whole = checkpoint::partition_metadata_text(&self.topic_id).into_bytes();
        bytes.is_ok_and(|bytes| {
            bytes != whole
                && !planted!("torn-topic-id-refused")
                && bytes.len() <= whole.len()
                && bytes
                    .iter()
                    .zip(&whole)
                    .all(|(found, right)| *found == 0 || found == right)
        })
    }

    /// Whether its directory holds files of a log. A directory that cannot be listed is an error: if it counted as empty, its
    /// records would be ignored.
    pub(crate) fn has_log(&self, directory: &Directory) -> Result<bool, BrokerError> {
        match directory.fs().read_dir(&self.dir) {
            Ok(entries) => Ok(entries.iter().any(|e| e.name.ends_with(file_name::LOG))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(BrokerError::Log(LogError::Io {
                action: "list",
                path: self.dir.clone(),
                source,
            })),
        }
    }

    /// The leader epoch: stamped into appended batches, sent to clients and checked when they send it back. At first it is the latest
    /// epoch of the stored log (0 for a new one), which is read without opening the log; it rises with each change of the leader. If
    /// the file of the epochs is damaged, it is 0 until the log is open and has determined it. A file that cannot be read is an error: as
    /// 0, the epoch would go back.
    pub(crate) fn leader_epoch(&self, directory: &Directory) -> Result<i32, LogError> {
        let known = self.leader_epoch.load(Ordering::Acquire);
        if known != NOT_READ {
            return Ok(known);
        }
        let of_changes = self.changed_state.read().as_ref().map_or(0, |state| state.leader_epoch);
        let newest = if let Some(log) = self.opened_log() {
            log.latest_epoch()
        } else {
            match stored_leader_epoch(&**directory.fs(), &self.dir) {
                Err(LogError::Damaged { .. }) => return Ok(of_changes),
                read => read?,
            }
        };
        let newest = newest.unwrap_or(0).max(of_changes);
        Ok(newest.max(self.leader_epoch.fetch_max(newest, Ordering::AcqRel)))
    }

    /// Called once the log is open: it has the epoch that is known, or a later one counts. Kafka: `Partition#makeLeader`.
    fn note_epoch(&self, log: &PartitionLog) -> Result<(), LogError> {
        let known = self.leader_epoch.load(Ordering::Acquire);
        match log.latest_epoch() {
            Some(latest) if known == NOT_READ || known == latest => Ok(()),
            Some(latest) if known < latest => {
                self.leader_epoch.fetch_max(latest, Ordering::AcqRel);
                Ok(())
            }
            Some(_) if self.leader() == NO_LEADER => Ok(()),
            // Without any it has had no leader before.
            _ => log.assign_leader_epoch(known.max(0)),
        }
    }

    /// A broker that begins to listen on what an earlier one has left leads it in a new epoch, which is noted once the log is open. If the
    /// file of the epochs is damaged, the epoch stays. Kafka: `ReplicationControlManager#handleBrokerFenced`, `#handleBrokerUnfenced`.
    ///
    /// # Errors
    /// The file of the epochs cannot be read or, if the log is open, not be written.
    pub(crate) fn lead_anew(&self, directory: &Directory) -> Result<(), LogError> {
        let before = self.leader_epoch(directory)?;
        let epoch = before.saturating_add(EPOCHS_OF_A_START);
        let raised = self
            .leader_epoch
            .compare_exchange(before, epoch, Ordering::AcqRel, Ordering::Acquire);
        match self.opened_log() {
            Some(log) if raised.is_ok() && self.leader() != NO_LEADER => log.assign_leader_epoch(epoch),
            _ => Ok(()),
        }
    }

    /// Appends as the leader and flushes as flush.messages and flush.ms require.
    pub(crate) fn append(
        &self,
        directory: &Directory,
        log: &PartitionLog,
        records: Bytes,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        let info = log.append_as_leader(records, self.leader_epoch(directory)?, origin, now_ms)?;
        let unflushed = log.log_end_offset().saturating_sub(log.recovery_point());
        let waited = now_ms.saturating_sub(self.last_flush_ms.load(Ordering::Relaxed));
        let config = self.config();
        if unflushed > 0 && (unflushed >= config.flush_messages || waited >= config.flush_ms) {
            log.flush()?;
            self.last_flush_ms.store(now_ms, Ordering::Relaxed);
        }
        Ok(info)
    }
}

/// Notes in a log the epoch from which on a leader writes to it. Kafka: `Partition#makeLeader`.
fn assign_epoch(log: &PartitionLog, state: &PartitionState) -> Result<(), LogError> {
    let is_newer = log.latest_epoch().is_none_or(|latest| state.leader_epoch > latest);
    match is_newer && state.leader != NO_LEADER {
        true => log.assign_leader_epoch(state.leader_epoch),
        false => Ok(()),
    }
}

/// Kafka: `Partition#checkCurrentLeaderEpoch`; -1 = the client does not know the epoch (in a fetch any negative number says so,
/// `FetchRequest#optionalEpoch`).
fn check_leader_epoch(requested: i32, current: i32) -> Result<(), ErrorCode> {
    match requested {
        e if e == -1 || e == current => Ok(()),
        e if e < current => Err(ErrorCode::FENCED_LEADER_EPOCH),
        _ => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
    }
}
