//! The share coordinator: what is persisted of the partitions of share groups, in `__share_group_state` (spec 14.4). Kafka:
//! `ShareCoordinatorService`, `ShareCoordinatorShard`.
//!
//! The leader of a partition asks it with request values, as another process would.

mod combine;
mod jobs;
mod records;
mod requests;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_records::planted;
use rustc_hash::FxHashMap;

use crate::BrokerError;
use crate::loading::Loading;
use crate::partition::Partition;
use crate::replica_manager::ReplicaManager;
use crate::sync::{Mutex, Periodic, Rank};
use crate::topic_names::SHARE_GROUP_STATE;
use records::ShareGroupOffset;
pub(crate) use records::{NO_START_OFFSET, SharePartitionKey};

/// States that are behind the same lock, so that writes of other share partitions need not wait for it.
const SHARDS: usize = 16;

type States = FxHashMap<SharePartitionKey, ShareGroupOffset>;

/// The states of all share partitions.
pub(crate) struct ShareCoordinator {
    replicas: Arc<ReplicaManager>,
    /// Each is held while its records are appended: the log has them in the order in which they take effect.
    shards: Vec<Mutex<States>>,
    /// share.coordinator.snapshot.update.records.per.snapshot
    updates_per_snapshot: i32,
    /// The log has been read, or there is none.
    is_loaded: AtomicBool,
    loading: Loading,
    load: Mutex<()>,
    /// The look for states whose last snapshot is old, and its interval (monotonic).
    cold_check: Periodic,
    cold_check_ms: i64,
    /// The look for records that are not needed, and its interval (monotonic).
    prune_check: Periodic,
    prune_check_ms: i64,
}

impl SharePartitionKey {
    /// The text whose hash says where it is kept. Kafka: `SharePartitionKey#asCoordinatorKey`.
    fn coordinator_key(&self) -> String {
        let id = URL_SAFE_NO_PAD.encode(self.topic_id);
        format!("{}:{id}:{}", self.group_id, self.partition)
    }
}

impl ShareCoordinator {
    /// A coordinator that reads the log when it is first needed.
    pub(crate) fn new(replicas: &Arc<ReplicaManager>) -> Self {
        let shard = || Mutex::new(Rank::ShareState, States::default());
        let config = replicas.config();
        let cold_check_ms = i64::from(config.int("share.coordinator.cold.partition.snapshot.interval.ms"));
        let prune_check_ms = i64::from(config.int("share.coordinator.state.topic.prune.interval.ms"));
        let after = |ms| Periodic::new(replicas.clock().monotonic_ms().saturating_add(ms));
        Self {
            cold_check: after(cold_check_ms),
            cold_check_ms,
            prune_check: after(prune_check_ms),
            prune_check_ms,
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            updates_per_snapshot: replicas
                .config()
                .int("share.coordinator.snapshot.update.records.per.snapshot"),
            is_loaded: AtomicBool::new(false),
            loading: Loading::default(),
            load: Mutex::new(Rank::ShareLoading, ()),
            replicas: Arc::clone(replicas),
        }
    }

    fn shard(&self, key: &SharePartitionKey) -> &Mutex<States> {
        let hash = fletchlog_api::java_hash::string_hash(&key.group_id)
            .wrapping_mul(31)
            .wrapping_add(i32::from(key.topic_id[0]))
            .wrapping_add(key.partition);
        &self.shards[hash.unsigned_abs() as usize % SHARDS]
    }

    /// The partition of `__share_group_state` that keeps what has this key. Kafka: `ShareCoordinatorService#partitionFor`.
    fn partition_for(&self, key: &str) -> i32 {
        let partitions = match self.replicas.topic_table().get(SHARE_GROUP_STATE) {
            Some(topic) => topic.record.partitions,
            None => self
                .replicas
                .config()
                .int("share.coordinator.state.topic.num.partitions"),
        };
        fletchlog_api::java_hash::string_hash(key).checked_abs().unwrap_or(0) % partitions.max(1)
    }

    /// The node whose partition of `__share_group_state` keeps a share partition; its key is `group:topic id:partition`, the id in Kafka's
    /// text form.
    pub(crate) fn coordinator_of(&self, key: &str) -> NodeId {
        let number = self.partition_for(key);
        let table = self.replicas.topic_table();
        match table.get(SHARE_GROUP_STATE).and_then(|topic| topic.partition(number)) {
            Some(partition) => partition.leader(),
            // Before the first share group: where it will be.
            None => self.replicas.controller().first_coordinator(SHARE_GROUP_STATE, number),
        }
    }

    /// Called after the leader of a partition of `__share_group_state` has changed: the new coordinator loads for `loading_ms`. Kafka:
    /// `ShareCoordinator#onElection`.
    pub(crate) fn on_election(&self, partition: i32, loading_ms: i64) {
        let loaded_ms = self.replicas.clock().monotonic_ms().saturating_add(loading_ms);
        self.loading.begin(partition, loaded_ms);
    }

    /// Called after an election has cut logs: the new coordinator knows of these partitions what is left of their records. The leaders of share
    /// partitions keep what they have in memory, and write the next change on top of what is left (spec 14.4). If a log cannot be read, the next
    /// request reads all of them. Kafka: `CoordinatorRuntime`, a context that is unloaded and loaded.
    pub(crate) fn load_cut(&self, cut: &[Arc<Partition>]) {
        let of_states = cut
            .iter()
            .filter(|partition| *partition.tp().topic == *SHARE_GROUP_STATE);
        for partition in of_states.filter(|_| !planted!("share-states-of-a-cut-log-kept")) {
            let _loading = self.load.lock();
            if !self.is_loaded.load(Ordering::Acquire) {
                // The next request reads it.
                return;
            }
            let number = partition.tp().partition;
            let is_of_others = |key: &SharePartitionKey| self.partition_for(&key.coordinator_key()) != number;
            for shard in &self.shards {
                shard.lock().retain(|key, _| is_of_others(key));
            }
            let mut states = States::default();
            if let Err(error) = self.read_partition(partition, &mut states) {
                log::error!("{} could not be read after it was cut: {error}", partition.tp());
                self.is_loaded.store(false, Ordering::Release);
            }
            for (key, state) in states {
                self.shard(&key).lock().insert(key, state);
            }
        }
    }

    /// COORDINATOR_LOAD_IN_PROGRESS while a new coordinator loads.
    fn check_loaded(&self, key: &SharePartitionKey) -> Result<(), ErrorCode> {
        let clock = self.replicas.clock();
        self.loading
            .check(|| self.partition_for(&key.coordinator_key()), &**clock)
    }

    /// Reads the log, once. A read-only broker reads it each time.
    ///
    /// # Errors
    /// The log cannot be read.
    fn ensure_loaded(&self) -> Result<(), BrokerError> {
        if self.is_loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        let _loading = self.load.lock();
        if self.is_loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        let states = self.read_states()?;
        for shard in &self.shards {
            shard.lock().clear();
        }
        for (key, state) in states {
            self.shard(&key).lock().insert(key, state);
        }
        self.is_loaded.store(!self.replicas.is_read_only(), Ordering::Release);
        Ok(())
    }
}
