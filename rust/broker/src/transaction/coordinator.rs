//! Who coordinates a transactional id, and its requests' common ground. Kafka: `TransactionCoordinator`.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard};

use fletchlog_api::{Clock, Config, ErrorCode, NodeId};
use fletchlog_records::TopicPartition;

use super::state::TransactionMetadata;
use crate::sync::lock;
use crate::topics::TRANSACTION_STATE;
use crate::{Broker, BrokerError};

/// What `Broker::transactions` tells of a transactional id. Kafka: `TransactionDescription`, `TransactionListing`.
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
#[derive(Debug)]
pub(crate) struct TransactionCoordinator {
    by_id: Mutex<Transactions>,
    pub(super) verification: bool,
    pub(super) max_timeout_ms: i32,
    pub(super) timeout_check_ms: i64,
    pub(super) expiry_check_ms: i64,
    pub(super) expiration_ms: i64,
    /// When time-outs and expired ids are looked for next (monotonic).
    pub(super) next_timeout_check_ms: AtomicI64,
    pub(super) next_expiry_check_ms: AtomicI64,
}

/// Transactional ids. All share one lock: their requests are rare beside produce and fetch.
pub(super) type Transactions = BTreeMap<Arc<str>, TransactionMetadata>;

impl TransactionCoordinator {
    /// With the broker's limits.
    pub(crate) fn new(config: &Config, clock: &dyn Clock) -> Self {
        let interval = |name: &str| i64::from(config.int(name));
        let timeout_check_ms = interval("transaction.abort.timed.out.transaction.cleanup.interval.ms");
        let expiry_check_ms = interval("transaction.remove.expired.transaction.cleanup.interval.ms");
        let now_ms = clock.monotonic_ms();
        Self {
            by_id: Mutex::default(),
            verification: config.boolean("transaction.partition.verification.enable"),
            max_timeout_ms: config.int("transaction.max.timeout.ms"),
            timeout_check_ms,
            expiry_check_ms,
            expiration_ms: interval("transactional.id.expiration.ms"),
            next_timeout_check_ms: AtomicI64::new(now_ms.saturating_add(timeout_check_ms)),
            next_expiry_check_ms: AtomicI64::new(now_ms.saturating_add(expiry_check_ms)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Transactions> {
        lock(&self.by_id)
    }
}

impl Broker {
    /// The partition of `__transaction_state` that keeps the id. Kafka: `TransactionStateManager#partitionFor`.
    pub(super) fn transaction_partition(&self, transactional_id: &str) -> i32 {
        let partitions = match self.topic_table().get(TRANSACTION_STATE) {
            Some(topic) => topic.record.partitions,
            None => self.config.int("transaction.state.log.num.partitions"),
        };
        fletchlog_api::java_hash::string_hash(transactional_id)
            .checked_abs()
            .unwrap_or(0)
            % partitions.max(1)
    }

    /// The node whose partition of `__transaction_state` keeps the id.
    pub(crate) fn transaction_coordinator_of(&self, transactional_id: &str) -> NodeId {
        let number = self.transaction_partition(transactional_id);
        let table = self.topic_table();
        match table.get(TRANSACTION_STATE).and_then(|t| t.partition(number)) {
            Some(partition) => partition.leader(),
            // Before the first transactional producer: where it will be.
            None => 1 + number.rem_euclid(i32::try_from(self.sessions.len()).unwrap_or(1)),
        }
    }

    /// What every request to the coordinator has to pass: an id, the right node, a broker that writes.
    pub(super) fn check_transactional(&self, node: NodeId, transactional_id: &str) -> Result<(), ErrorCode> {
        self.for_writing("produce").map_err(|error| error.code())?;
        if transactional_id.is_empty() || transactional_id.len() > super::store::MAX_ID {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if self.transaction_coordinator_of(transactional_id) != node {
            return Err(ErrorCode::NOT_COORDINATOR);
        }
        Ok(())
    }

    /// Every transactional id that is known, by id. A read-only broker reads them from `__transaction_state` each time.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn transactions(&self) -> Result<Vec<TransactionDescription>, BrokerError> {
        let _open = self.enter()?;
        let known = if self.is_read_only() {
            self.see_new_topics()?;
            self.read_transactions()?
        } else {
            self.transactions.lock().clone()
        };
        Ok(known
            .into_values()
            .map(|t| TransactionDescription {
                coordinator: self.transaction_coordinator_of(&t.transactional_id),
                state: t.state.name(),
                producer_id: t.producer_id,
                producer_epoch: t.producer_epoch,
                timeout_ms: t.timeout_ms,
                start_ms: t.start_ms,
                partitions: t.partitions.into_iter().collect(),
                transactional_id: t.transactional_id,
            })
            .collect())
    }
}
