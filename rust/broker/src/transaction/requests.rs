//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the verification that partitions ask for (spec 10.2).

use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, ErrorCode, InitProducerIdRequest, InitProducerIdResponse, NodeId, StorageFailure,
};
use fletchlog_records::TopicPartition;
use fletchlog_records::ids::NO_PRODUCER_ID;

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::{Init, TransactionMetadata};
use crate::failures::Refused;
use crate::replica_manager::AddPartitionsToTxnManager;
use crate::topic_names::{CONSUMER_OFFSETS, is_internal};

impl TransactionCoordinator {
    /// InitProducerId. Without a transactional id, Kafka always assigns a new id, even to a producer that has one.
    pub(crate) fn init_producer_id(&self, node: NodeId, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let given = match &request.transactional_id {
            Some(id) => self.init_transactional_producer(node, id, request),
            None => self
                .producer_ids
                .generate(&self.replicas)
                .map(|id| (id, 0))
                .map_err(Refused::from),
        };
        let (error_code, failure, (producer_id, producer_epoch)) = match given {
            Ok(given) => (ErrorCode::NONE, None, given),
            Err(Refused { code, failure }) => (code, failure, (-1, -1)),
        };
        InitProducerIdResponse {
            error_code,
            producer_id,
            producer_epoch,
            failure,
            ..Default::default()
        }
    }

    /// The id and epoch of a transactional producer. Kafka: `TransactionCoordinator#handleInitProducerId`.
    fn init_transactional_producer(
        &self,
        node: NodeId,
        transactional_id: &Arc<str>,
        request: &InitProducerIdRequest,
    ) -> Result<(i64, i16), Refused> {
        self.check_transactional(node, transactional_id)?;
        let timeout_ms = request.transaction_timeout_ms;
        if !(1..=self.max_timeout_ms).contains(&timeout_ms) {
            return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT.into());
        }
        let expected = (request.producer_id != NO_PRODUCER_ID).then_some((request.producer_id, request.producer_epoch));
        self.in_new(transactional_id, |transaction| {
            let now_ms = self.replicas.clock().now_ms();
            let incomplete = self.complete_transaction(transaction);
            let new_id = || Ok(self.producer_ids.generate(&self.replicas)?);
            let known = match transaction.get() {
                Some(known) => known.clone(),
                None => TransactionMetadata::new(transactional_id.clone(), new_id()?),
            };
            let init = known.init(expected, timeout_ms, now_ms, new_id);
            match init.map_err(|refused: Refused| refused.because(incomplete))? {
                Init::Fenced(prepared) => {
                    self.store_transaction(transaction, prepared)?;
                    let incomplete = self.complete_transaction(transaction);
                    Err(Refused::from(ErrorCode::CONCURRENT_TRANSACTIONS).because(incomplete))
                }
                Init::Ready(next) => {
                    let given = (next.producer_id, next.producer_epoch);
                    self.store_transaction(transaction, next)?;
                    Ok(given)
                }
            }
        })
    }

    /// AddPartitionsToTxn: all or none. Kafka: `KafkaApis#handleAddPartitionsToTxnRequest`.
    pub(crate) fn add_partitions_to_txn(
        &self,
        node: NodeId,
        request: &AddPartitionsToTxnRequest,
    ) -> AddPartitionsToTxnResponse {
        let code = |tp: &TopicPartition| {
            if is_internal(&tp.topic) {
                ErrorCode::TOPIC_AUTHORIZATION_FAILED
            } else if self.replicas.partition(tp).is_err() {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            } else {
                ErrorCode::OPERATION_NOT_ATTEMPTED
            }
        };
        let partitions: Vec<TopicPartition> = request.partitions().collect();
        let codes: Vec<ErrorCode> = partitions.iter().map(code).collect();
        if codes.iter().any(|&code| code != ErrorCode::OPERATION_NOT_ATTEMPTED) {
            return request.answered(codes);
        }
        let producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch);
        let added = self.add_to_transaction(node, &request.v3_and_below_transactional_id, producer, &partitions);
        let (code, failure) = outcome(added);
        AddPartitionsToTxnResponse {
            failure,
            ..request.answered(repeat(code))
        }
    }

    /// AddOffsetsToTxn: adds the group's partition of `__consumer_offsets`.
    pub(crate) fn add_offsets_to_txn(&self, node: NodeId, request: &AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
        let add = || {
            // The marker needs its directory, even if no offsets follow.
            self.replicas
                .controller()
                .offsets_topic()
                .map_err(|error| Refused::by(ErrorCode::COORDINATOR_NOT_AVAILABLE, &error))?;
            let partition = TopicPartition::new(CONSUMER_OFFSETS, self.groups.partition_for(&request.group_id));
            let producer = (request.producer_id, request.producer_epoch);
            self.add_to_transaction(node, &request.transactional_id, producer, &[partition])
        };
        let (error_code, failure) = outcome(add());
        AddOffsetsToTxnResponse {
            error_code,
            failure,
            ..Default::default()
        }
    }

    fn add_to_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
        producer: (i64, i16),
        partitions: &[TopicPartition],
    ) -> Result<(), Refused> {
        self.check_transactional(node, transactional_id)?;
        let added = self.in_known(transactional_id, |transaction| {
            let incomplete = self.complete_transaction(transaction);
            let known = transaction.get().ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
            let added = known.add_partitions(producer, partitions, self.replicas.clock().now_ms());
            match added.map_err(|code| Refused::from(code).because(incomplete))? {
                Some(next) => self.store_transaction(transaction, next),
                None => Ok(()),
            }
        });
        added.unwrap_or_else(|| Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING.into()))
    }

    /// EndTxn. Once PrepareX is written the outcome is decided, and the response says so.
    pub(crate) fn end_txn(&self, node: NodeId, request: &EndTxnRequest) -> EndTxnResponse {
        let id = &request.transactional_id;
        let producer = (request.producer_id, request.producer_epoch);
        let end = || -> Result<(), Refused> {
            self.check_transactional(node, id)?;
            let ended = self.in_known(id, |transaction| {
                let incomplete = self.complete_transaction(transaction);
                let known = transaction.get().ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
                let ended = known.end(producer, request.committed, self.replicas.clock().now_ms());
                if let Some(prepared) = ended.map_err(|code| Refused::from(code).because(incomplete))? {
                    self.store_transaction(transaction, prepared)?;
                    // The outcome is decided, whether or not every marker can be written now.
                    self.complete_transaction(transaction);
                }
                Ok(())
            });
            ended.unwrap_or_else(|| Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING.into()))
        };
        let (error_code, failure) = outcome(end());
        EndTxnResponse {
            error_code,
            failure,
            ..Default::default()
        }
    }
}

impl AddPartitionsToTxnManager for TransactionCoordinator {
    fn in_transaction<T>(
        &self,
        transactional_id: &str,
        producer: (i64, i16),
        partition: &TopicPartition,
        append: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode> {
        let id = self.find(transactional_id);
        let transaction = id.as_ref().map(|id| id.lock());
        let config = Arc::clone(self.replicas.configs().of(1));
        if config.boolean("transaction.partition.verification.enable") {
            if transactional_id.is_empty() {
                return Err(ErrorCode::INVALID_REQUEST);
            }
            let known = transaction.as_ref().and_then(Locked::get);
            let verified = known
                .ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
                .and_then(|known| known.verify(producer, partition));
            verified.map_err(|code| match code {
                ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
                other => other,
            })?;
        }
        Ok(append())
    }
}

/// The result fields of a response.
fn outcome(done: Result<(), Refused>) -> (ErrorCode, Option<StorageFailure>) {
    match done {
        Ok(()) => (ErrorCode::NONE, None),
        Err(refused) => (refused.code, refused.failure),
    }
}
