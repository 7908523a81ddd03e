//! Partitions whose new coordinator is still loading. Kafka: `CoordinatorRuntime`, its state LOADING;
//! `TransactionStateManager#loadingPartitions`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use fletchlog_api::{Clock, ErrorCode};

use crate::sync::{Mutex, Rank};

/// Until when partitions are loaded (monotonic ms).
#[derive(Debug)]
pub(crate) struct Loading {
    partitions: Mutex<BTreeMap<i32, i64>>,
    /// When all of them are loaded.
    until_ms: AtomicI64,
}

impl Default for Loading {
    fn default() -> Self {
        Self {
            partitions: Mutex::new(Rank::Loading, BTreeMap::new()),
            until_ms: AtomicI64::new(i64::MIN),
        }
    }
}

impl Loading {
    /// A partition is loaded at this time.
    pub(crate) fn begin(&self, partition: i32, loaded_ms: i64) {
        let mut partitions = self.partitions.lock();
        partitions.insert(partition, loaded_ms);
        let last_ms = partitions.values().max().copied().unwrap_or(i64::MIN);
        self.until_ms.store(last_ms, Ordering::Release);
    }

    /// COORDINATOR_LOAD_IN_PROGRESS while the partition is being loaded.
    pub(crate) fn check(&self, partition: impl FnOnce() -> i32, clock: &dyn Clock) -> Result<(), ErrorCode> {
        let until_ms = self.until_ms.load(Ordering::Acquire);
        if until_ms == i64::MIN {
            return Ok(());
        }
        let now_ms = clock.monotonic_ms();
        let partition = partition();
        let is_loading = |loaded_ms: &i64| now_ms < *loaded_ms;
        match now_ms < until_ms && self.partitions.lock().get(&partition).is_some_and(is_loading) {
            true => Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            false => Ok(()),
        }
    }
}
