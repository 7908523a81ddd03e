//! Producer ids, assigned from blocks that are on disk before their first id is used, so that no id is ever assigned twice, not even
//! after a crash. Kafka: `RPCProducerIdManager`.

use std::ops::Range;

use crate::BrokerError;
use crate::replica_manager::ReplicaManager;
use crate::sync::{Mutex, Rank};

/// The producer ids of a broker.
#[derive(Debug)]
pub(super) struct ProducerIdManager {
    /// What is left of the current block.
    block: Mutex<Range<i64>>,
}

impl Default for ProducerIdManager {
    fn default() -> Self {
        Self {
            block: Mutex::new(Rank::ProducerIds, 0..0),
        }
    }
}

impl ProducerIdManager {
    /// An id that was never assigned before. Kafka: `ProducerIdManager#generateProducerId`.
    pub(super) fn generate(&self, replicas: &ReplicaManager) -> Result<i64, BrokerError> {
        const WHAT: &str = "handing out producer ids";
        let id = self.take(replicas);
        match &id {
            Ok(_) => replicas.failures().succeeded(|| WHAT),
            Err(error) => replicas.failures().failed(WHAT, error),
        }
        id
    }

    fn take(&self, replicas: &ReplicaManager) -> Result<i64, BrokerError> {
        replicas.for_writing("produce")?;
        let mut block = self.block.lock();
        if let Some(id) = block.next() {
            return Ok(id);
        }
        let new = replicas.controller().allocate_producer_ids()?;
        *block = new.start + 1..new.end;
        Ok(new.start)
    }
}
