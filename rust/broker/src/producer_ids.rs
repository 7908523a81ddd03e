//! Producer ids, handed out from blocks of 1000 that are on disk before their first id is used, so that no id is ever
//! given twice, not even after a crash. Kafka: `RPCProducerIdManager`, `ProducerIdsBlock`.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;

use fletchlog_api::{Clock, Config, ErrorCode, InitProducerIdRequest, InitProducerIdResponse, NodeId};

use crate::failures::Refused;
use crate::sync::{is_due, lock};
use crate::{Broker, BrokerError};

/// Kafka: `ProducerIdsBlock#PRODUCER_ID_BLOCK_SIZE`.
const BLOCK_SIZE: i64 = 1000;

/// The producer ids of a broker.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    /// What is left of the current block.
    block: Mutex<Range<i64>>,
    expiry_check_ms: i64,
    /// When expired ids are looked for next (monotonic).
    next_expiry_check_ms: AtomicI64,
}

impl ProducerIds {
    /// No id yet; expired ones are looked for as the configuration says.
    pub(crate) fn new(config: &Config, clock: &dyn Clock) -> Self {
        let expiry_check_ms = i64::from(config.int("producer.id.expiration.check.interval.ms"));
        Self {
            block: Mutex::new(0..0),
            expiry_check_ms,
            next_expiry_check_ms: AtomicI64::new(clock.monotonic_ms().saturating_add(expiry_check_ms)),
        }
    }
}

impl Broker {
    /// Lets every open log forget expired producers, when it is time to. What is forgotten is seen by the next append alone, so
    /// no waiting client has to wake up for it. Kafka: `UnifiedLog#removeExpiredProducers`, scheduled by each log.
    pub(crate) fn tick_producer_ids(&self, now_ms: i64) {
        let ids = &self.producer_ids;
        if is_due(&ids.next_expiry_check_ms, now_ms, ids.expiry_check_ms) {
            let now_ms = self.clock.now_ms();
            for partition in self.open_partitions() {
                if let Some(log) = partition.opened_log() {
                    log.remove_expired_producers(now_ms);
                }
            }
        }
    }

    /// InitProducerId. Without a transactional id Kafka blindly gives a new id, also to a producer that has one.
    pub(crate) fn init_producer_id(&self, node: NodeId, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let refused = |refused: Refused| InitProducerIdResponse {
            error: refused.code,
            producer_id: -1,
            producer_epoch: -1,
            failure: refused.failure,
        };
        if let Some(id) = &request.transactional_id {
            return self
                .init_transactional_producer(node, id, request)
                .unwrap_or_else(refused);
        }
        match self.next_producer_id() {
            Ok(producer_id) => InitProducerIdResponse {
                error: ErrorCode::NONE,
                producer_id,
                producer_epoch: 0,
                failure: None,
            },
            Err(error) => refused(error.into()),
        }
    }

    /// An id that was never given before.
    pub(crate) fn next_producer_id(&self) -> Result<i64, BrokerError> {
        const WHAT: &str = "handing out producer ids";
        let id = self.take_producer_id();
        match &id {
            Ok(_) => self.failures.succeeded(|| WHAT),
            Err(error) => self.failures.failed(WHAT, error),
        }
        id
    }

    fn take_producer_id(&self) -> Result<i64, BrokerError> {
        self.for_writing("produce")?;
        let mut block = lock(&self.producer_ids.block);
        if let Some(id) = block.next() {
            return Ok(id);
        }
        let mut metadata = lock(&self.metadata);
        let first = metadata.next_producer_id;
        let end = first
            .checked_add(BLOCK_SIZE)
            .ok_or_else(|| BrokerError::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, "all producer ids are used up"))?;
        let mut changed = metadata.clone();
        changed.next_producer_id = end;
        changed.store(&**self.directory.fs(), self.directory.root())?;
        *metadata = changed;
        *block = first + 1..end;
        Ok(first)
    }
}
