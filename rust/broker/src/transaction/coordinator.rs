//! Which node coordinates a transactional id, and what its requests have in common. Kafka: `TransactionCoordinator`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::producer_ids::ProducerIdManager;
use super::state::TransactionMetadata;
use crate::BrokerError;
use crate::group::GroupCoordinator;
use crate::loading::Loading;
use crate::panics::{contained, place};
use crate::replica_manager::ReplicaManager;
use crate::sync::{Mutex, MutexGuard, Periodic, Rank};
use crate::topic_names::TRANSACTION_STATE;

/// Longest transactional id: its length is an i16 in the log.
pub(super) const MAX_ID: usize = i16::MAX as usize;

/// A transactional id as `Broker::transactions` reports it. Kafka: `TransactionDescription`, `TransactionListing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionDescription {
    /// transactional.id.
    pub transactional_id: Arc<str>,
    /// Node of its coordinator.
    pub coordinator: NodeId,
    /// Kafka's name of the state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
    pub state: &'static str,
    /// Producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// transaction.timeout.ms.
    pub timeout_ms: i32,
    /// When the transaction began (ms since 1970), -1 when none has.
    pub start_ms: i64,
    /// Partitions of the open transaction, sorted.
    pub partitions: Vec<TopicPartition>,
}

/// The coordinator of every transactional id.
pub(crate) struct TransactionCoordinator {
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) groups: Arc<GroupCoordinator>,
    pub(super) producer_ids: ProducerIdManager,
    /// Never held while waiting for an id's lock or writing a log.
    by_id: Mutex<BTreeMap<Arc<str>, Arc<TransactionalId>>>,
    pub(super) max_timeout_ms: i32,
    pub(super) timeout_check_ms: i64,
    pub(super) expiry_check_ms: i64,
    pub(super) expiration_ms: i64,
    /// The checks for time-outs and for expired ids (monotonic).
    pub(super) timeout_check: Periodic,
    pub(super) expiry_check: Periodic,
    /// Partitions of `__transaction_state` whose new leader is loading them.
    loading: Loading,
}

/// A transactional id with its lock, which is held during appends of its metadata, its markers and the records of its verified
/// producer. Kafka: `TransactionMetadata#inLock`.
#[derive(Debug)]
pub(super) struct TransactionalId {
    state: Mutex<Option<TransactionMetadata>>,
    /// A transaction is open or unfinished; can be read while the lock is held.
    unfinished: AtomicBool,
}

/// A locked transactional id.
pub(super) struct Locked<'a> {
    id: &'a TransactionalId,
    metadata: MutexGuard<'a, Option<TransactionMetadata>>,
}

impl TransactionalId {
    fn new(metadata: Option<TransactionMetadata>) -> Self {
        Self {
            unfinished: AtomicBool::new(metadata.as_ref().is_some_and(TransactionMetadata::is_unfinished)),
            state: Mutex::new(Rank::TransactionalId, metadata),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let metadata = self.state.lock();
        Locked { id: self, metadata }
    }
}

impl Locked<'_> {
    /// The id's metadata; `None`: the id is new or was removed.
    pub(super) fn get(&self) -> Option<&TransactionMetadata> {
        self.metadata.as_ref()
    }

    /// Replaces the metadata.
    pub(super) fn set(&mut self, metadata: Option<TransactionMetadata>) {
        *self.metadata = metadata;
        let unfinished = self.get().is_some_and(TransactionMetadata::is_unfinished);
        self.id.unfinished.store(unfinished, Ordering::Relaxed);
    }

    /// Removes a partition whose marker was written.
    pub(super) fn remove_partition(&mut self, tp: &TopicPartition) {
        if let Some(metadata) = &mut *self.metadata {
            metadata.partitions.remove(tp);
        }
    }
}

impl TransactionCoordinator {
    /// Opens the coordinator with the broker's limits, and takes over what an earlier run has left, see [`Self::load`].
    pub(crate) fn open(replicas: &Arc<ReplicaManager>, groups: &Arc<GroupCoordinator>) -> Result<Self, BrokerError> {
        let config = replicas.config();
        let interval = |name: &str| i64::from(config.int(name));
        let timeout_check_ms = interval("transaction.abort.timed.out.transaction.cleanup.interval.ms");
        let expiry_check_ms = interval("transaction.remove.expired.transaction.cleanup.interval.ms");
        let now_ms = replicas.clock().monotonic_ms();
        let coordinator = Self {
            producer_ids: ProducerIdManager::default(),
            by_id: Mutex::new(Rank::TransactionTable, BTreeMap::new()),
            max_timeout_ms: config.int("transaction.max.timeout.ms"),
            timeout_check_ms,
            expiry_check_ms,
            expiration_ms: interval("transactional.id.expiration.ms"),
            timeout_check: Periodic::new(now_ms.saturating_add(timeout_check_ms)),
            expiry_check: Periodic::new(now_ms.saturating_add(expiry_check_ms)),
            loading: Loading::default(),
            replicas: Arc::clone(replicas),
            groups: Arc::clone(groups),
        };
        coordinator.load()?;
        Ok(coordinator)
    }

    pub(super) fn insert(&self, metadata: TransactionMetadata) {
        let id = metadata.transactional_id.clone();
        let state = Arc::new(TransactionalId::new(Some(metadata)));
        self.by_id.lock().insert(id, state);
    }

    /// Removes the ids of a partition of `__transaction_state` from memory.
    pub(super) fn remove_partition(&self, number: i32) {
        let all: Vec<(Arc<str>, Arc<TransactionalId>)> = {
            let by_id = self.by_id.lock();
            by_id.iter().map(|(name, id)| (name.clone(), Arc::clone(id))).collect()
        };
        for (name, id) in all {
            if self.partition_for(&name) == number {
                // A thread that has found it before finds that it was removed.
                id.lock().set(None);
                self.by_id.lock().remove(&name);
            }
        }
    }

    pub(super) fn find(&self, transactional_id: &str) -> Option<Arc<TransactionalId>> {
        self.by_id.lock().get(transactional_id).cloned()
    }

    /// The id whose transaction the producer has open in the log of the partition, if the request names another one: nobody asks for it
    /// then. Kafka: `UnifiedLog#maybeStartTransactionVerification`.
    pub(super) fn owner_of_ongoing(
        &self,
        named: Option<&Arc<TransactionalId>>,
        producer: (i64, i16),
        partition: &TopicPartition,
    ) -> Option<Arc<TransactionalId>> {
        let is_of = |id: &Arc<TransactionalId>| id.lock().get().is_some_and(|known| known.producer_id == producer.0);
        if named.is_some_and(is_of) || !self.replicas.has_ongoing_transaction(partition, producer) {
            return None;
        }
        let ids: Vec<_> = self.by_id.lock().values().cloned().collect();
        ids.into_iter().find(is_of)
    }

    /// Runs `work` on an id under its lock; `None`: the id is unknown. Kafka: `TransactionMetadata#inLock`.
    pub(super) fn in_known<T>(&self, transactional_id: &str, work: impl FnOnce(&mut Locked<'_>) -> T) -> Option<T> {
        let id = self.find(transactional_id)?;
        let mut locked = id.lock();
        // The id may have been removed meanwhile, or its first request may have failed.
        locked.get()?;
        Some(work(&mut locked))
    }

    /// Runs `work` on an id under its lock; adds an unknown id.
    pub(super) fn in_new<T>(&self, transactional_id: &Arc<str>, work: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        loop {
            let id = {
                let mut by_id = self.by_id.lock();
                let new = || Arc::new(TransactionalId::new(None));
                Arc::clone(by_id.entry(transactional_id.clone()).or_insert_with(new))
            };
            let mut locked = id.lock();
            if self.is_current(transactional_id, &id) {
                let done = work(&mut locked);
                if locked.get().is_none() {
                    self.by_id.lock().remove(transactional_id);
                }
                return done;
            }
        }
    }

    /// Whether this is the current id of that name, and not one that was removed.
    fn is_current(&self, transactional_id: &str, id: &Arc<TransactionalId>) -> bool {
        let by_id = self.by_id.lock();
        by_id.get(transactional_id).is_some_and(|now| Arc::ptr_eq(now, id))
    }

    /// Does timed work on the ids that no other thread has locked, by id: all, or those with an open or unfinished transaction. A
    /// panic ends the work for its id only.
    pub(super) fn for_each_unlocked(&self, only_unfinished: bool, mut work: impl FnMut(&Arc<str>, &mut Locked<'_>)) {
        let found: Vec<_> = {
            let by_id = self.by_id.lock();
            let wanted = by_id
                .iter()
                .filter(|(_, id)| !only_unfinished || id.unfinished.load(Ordering::Relaxed));
            wanted.map(|(name, id)| (name.clone(), Arc::clone(id))).collect()
        };
        for (name, id) in found {
            let Some(metadata) = (if planted!("time-outs-wait-for-a-transactional-id") {
                Some(id.state.lock())
            } else {
                id.state.try_lock()
            }) else {
                continue;
            };
            let mut locked = Locked { id: &id, metadata };
            if locked.get().is_some() {
                contained(format_args!("timed work of transaction {name}"), || {
                    place(|| format!("timer of transaction {name}"));
                    work(&name, &mut locked);
                });
                if locked.get().is_none() {
                    self.by_id.lock().remove(&name);
                }
            }
        }
    }

    /// Whether any transaction is open or unfinished. Does not wait for an id's lock.
    pub(super) fn any_unfinished(&self) -> bool {
        let by_id = self.by_id.lock();
        by_id.values().any(|id| id.unfinished.load(Ordering::Relaxed))
    }

    /// Whether any id is known.
    pub(super) fn any_known(&self) -> bool {
        !self.by_id.lock().is_empty()
    }

    /// The partition of `__transaction_state` that keeps the id. Kafka: `TransactionStateManager#partitionFor`.
    pub(crate) fn partition_for(&self, transactional_id: &str) -> i32 {
        let partitions = match self.replicas.topic_table().get(TRANSACTION_STATE) {
            Some(topic) => topic.record.partitions,
            None => self.replicas.config().int("transaction.state.log.num.partitions"),
        };
        fletchlog_api::java_hash::string_hash(transactional_id)
            .checked_abs()
            .unwrap_or(0)
            % partitions.max(1)
    }

    /// The node whose partition of `__transaction_state` keeps the id.
    pub(crate) fn coordinator_of(&self, transactional_id: &str) -> NodeId {
        let number = self.partition_for(transactional_id);
        let table = self.replicas.topic_table();
        match table.get(TRANSACTION_STATE).and_then(|t| t.partition(number)) {
            Some(partition) => partition.leader(),
            // Before the first transactional producer: where it will be.
            None => self.replicas.controller().first_coordinator(TRANSACTION_STATE, number),
        }
    }

    /// The checks of every request to the coordinator: it has an id, this is the right node, the broker may write.
    pub(super) fn check_transactional(&self, node: NodeId, transactional_id: &str) -> Result<(), ErrorCode> {
        self.replicas.for_writing("produce").map_err(|error| error.code())?;
        if transactional_id.is_empty() || transactional_id.len() > MAX_ID {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if self.coordinator_of(transactional_id) != node {
            return Err(ErrorCode::NOT_COORDINATOR);
        }
        let clock = self.replicas.clock();
        self.loading.check(|| self.partition_for(transactional_id), &**clock)
    }

    /// Called after the leader of a partition of `__transaction_state` has changed. The new coordinator finds in the log what is in memory
    /// (otherwise [`Self::load_cut`] was called); it loads for `loading_ms`, and answers COORDINATOR_LOAD_IN_PROGRESS meanwhile. Kafka:
    /// `TransactionCoordinator#onElection`.
    pub(crate) fn on_election(&self, partition: i32, loading_ms: i64) {
        let loaded_ms = self.replicas.clock().monotonic_ms().saturating_add(loading_ms);
        self.loading.begin(partition, loaded_ms);
    }

    /// All known transactional ids, sorted. A read-only broker reads them from `__transaction_state` each time.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) fn describe_transactions(&self) -> Result<Vec<TransactionDescription>, BrokerError> {
        let known: Vec<TransactionMetadata> = if self.replicas.is_read_only() {
            self.replicas.controller().see_new_topics()?;
            self.read_transactions()?.into_values().collect()
        } else {
            let ids: Vec<_> = self.by_id.lock().values().cloned().collect();
            ids.iter().filter_map(|id| id.lock().get().cloned()).collect()
        };
        Ok(known.into_iter().map(|t| self.description(t)).collect())
    }

    /// The metadata as it is reported.
    pub(super) fn description(&self, t: TransactionMetadata) -> TransactionDescription {
        TransactionDescription {
            coordinator: self.coordinator_of(&t.transactional_id),
            state: t.state.name(),
            producer_id: t.producer_id,
            producer_epoch: t.producer_epoch,
            timeout_ms: t.timeout_ms,
            start_ms: t.start_ms,
            partitions: t.partitions.into_iter().collect(),
            transactional_id: t.transactional_id,
        }
    }
}
