//! Blocks of producer ids, which are on disk before their first id is used.
//! Kafka: `ProducerIdControlManager`, `ProducerIdsBlock`.

use std::ops::Range;

use fletchlog_api::ErrorCode;
use fletchlog_records::planted;

use super::Controller;
use crate::BrokerError;

/// Kafka: `ProducerIdsBlock#PRODUCER_ID_BLOCK_SIZE`.
const BLOCK_SIZE: i64 = 1000;

impl Controller {
    /// A block of ids that were never assigned before. Kafka: `ProducerIdControlManager#generateNextProducerId`.
    pub(crate) fn allocate_producer_ids(&self) -> Result<Range<i64>, BrokerError> {
        let mut metadata = self.metadata.lock();
        let first = metadata.next_producer_id;
        let end = first
            .checked_add(BLOCK_SIZE)
            .ok_or_else(|| BrokerError::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, "all producer ids are used up"))?;
        let mut changed = metadata.clone();
        changed.next_producer_id = end;
        if !planted!("producer-ids-not-reserved") {
            changed.store(&**self.logs.directory().fs(), self.logs.directory().root())?;
        }
        *metadata = changed;
        Ok(first..end)
    }
}
