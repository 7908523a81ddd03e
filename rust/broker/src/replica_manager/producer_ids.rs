//! Producer ids: blocks of them, which are on disk before their first id is used, and their expiry in the logs.
//! Kafka: `ProducerIdControlManager`, `ProducerIdsBlock`, `UnifiedLog#removeExpiredProducers`.

use std::ops::Range;

use fletchlog_api::{Config, ErrorCode};

use super::ReplicaManager;
use crate::BrokerError;
use crate::sync::is_due;

/// Kafka: `ProducerIdsBlock#PRODUCER_ID_BLOCK_SIZE`.
const BLOCK_SIZE: i64 = 1000;

pub(super) fn expiry_check_ms(config: &Config) -> i64 {
    i64::from(config.int("producer.id.expiration.check.interval.ms"))
}

impl ReplicaManager {
    /// Lets every open log forget expired producers, when it is time to. What is forgotten is seen by the next append alone, so
    /// no waiting client has to wake up for it. Kafka: `UnifiedLog#removeExpiredProducers`, scheduled by each log.
    pub(crate) fn maybe_remove_expired_producers(&self, now_ms: i64) {
        if is_due(&self.next_producer_expiry_ms, now_ms, expiry_check_ms(&self.config)) {
            let now_ms = self.clock.now_ms();
            for partition in self.open_partitions() {
                if let Some(log) = partition.opened_log() {
                    log.remove_expired_producers(now_ms);
                }
            }
        }
    }

    /// A block of ids that were never given before. Kafka: `ProducerIdControlManager#generateNextProducerId`.
    pub(crate) fn allocate_producer_ids(&self) -> Result<Range<i64>, BrokerError> {
        let mut metadata = self.metadata.lock();
        let first = metadata.next_producer_id;
        let end = first
            .checked_add(BLOCK_SIZE)
            .ok_or_else(|| BrokerError::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, "all producer ids are used up"))?;
        let mut changed = metadata.clone();
        changed.next_producer_id = end;
        changed.store(&**self.directory.fs(), self.directory.root())?;
        *metadata = changed;
        Ok(first..end)
    }
}
