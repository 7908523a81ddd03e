//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the verification that partitions ask for (spec 10.2).

use std::collections::HashSet;
use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, ErrorCode, InitProducerIdRequest, InitProducerIdResponse, NodeId, StorageFailure,
    TransactionSupportedOperation,
};
use fletchlog_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use fletchlog_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use fletchlog_records::TopicPartition;
use fletchlog_records::ids::NO_PRODUCER_ID;
use fletchlog_records::planted;

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::{Init, TransactionMetadata};
use super::version::TransactionVersion;
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
            let init = known.init(expected, timeout_ms, now_ms, self.level(), new_id);
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

    /// AddPartitionsToTxn: for each transaction all or none. Brokers name several, and may ask only whether the partitions belong to it.
    /// Kafka: `KafkaApis#handleAddPartitionsToTxnRequest`.
    pub(crate) fn add_partitions_to_txn(
        &self,
        node: NodeId,
        request: &AddPartitionsToTxnRequest,
    ) -> AddPartitionsToTxnResponse {
        if !request.transactions.is_empty() {
            let results = request.transactions.iter().map(|transaction| AddPartitionsToTxnResult {
                transactional_id: transaction.transactional_id.clone(),
                topic_results: AddPartitionsToTxnTopicResult::by_topic(self.add_or_verify(node, transaction)),
            });
            return AddPartitionsToTxnResponse {
                results_by_transaction: results.collect(),
                ..Default::default()
            };
        }
        let partitions: Vec<TopicPartition> = request.partitions().collect();
        if let Err(codes) = self.check_partitions(&partitions, false) {
            return request.answered(codes);
        }
        let producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch);
        let id = &request.v3_and_below_transactional_id;
        let added = self.add_to_transaction(node, id, producer, &partitions, TransactionVersion::V0);
        let (code, failure) = outcome(added);
        AddPartitionsToTxnResponse {
            failure,
            ..request.answered(repeat(code))
        }
    }

    /// The error of each partition, if any cannot be added: of the others OPERATION_NOT_ATTEMPTED. `by_broker`: the broker's own
    /// topics too.
    fn check_partitions(&self, partitions: &[TopicPartition], by_broker: bool) -> Result<(), Vec<ErrorCode>> {
        let code = |tp: &TopicPartition| {
            if !by_broker && is_internal(&tp.topic) {
                ErrorCode::TOPIC_AUTHORIZATION_FAILED
            } else if self.replicas.partition(tp).is_err() {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            } else {
                ErrorCode::OPERATION_NOT_ATTEMPTED
            }
        };
        let codes: Vec<ErrorCode> = partitions.iter().map(code).collect();
        match codes.iter().all(|&code| code == ErrorCode::OPERATION_NOT_ATTEMPTED) {
            true => Ok(()),
            false => Err(codes),
        }
    }

    /// The error of each partition of one transaction that a broker names.
    fn add_or_verify(
        &self,
        node: NodeId,
        transaction: &AddPartitionsToTxnTransaction,
    ) -> Vec<(TopicPartition, ErrorCode)> {
        let mut seen = HashSet::new();
        let partitions = AddPartitionsToTxnTopic::all(&transaction.topics).filter(|tp| seen.insert(tp.clone()));
        let partitions: Vec<TopicPartition> = partitions.collect();
        let checked = self.check_partitions(&partitions, true);
        let codes = checked.map_or_else(
            |codes| codes,
            |()| self.add_or_verify_known(node, transaction, &partitions),
        );
        partitions.into_iter().zip(codes).collect()
    }

    fn add_or_verify_known(
        &self,
        node: NodeId,
        transaction: &AddPartitionsToTxnTransaction,
        partitions: &[TopicPartition],
    ) -> Vec<ErrorCode> {
        let id = &transaction.transactional_id;
        let producer = (transaction.producer_id, transaction.producer_epoch);
        if !transaction.verify_only {
            let added = self.add_to_transaction(node, id, producer, partitions, TransactionVersion::V2);
            return vec![outcome(added).0; partitions.len()];
        }
        let verify = || -> Result<Vec<ErrorCode>, ErrorCode> {
            self.check_transactional(node, id)?;
            let unknown = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
            let id = self.find(id).ok_or(unknown)?;
            let locked = id.lock();
            let known = locked.get().ok_or(unknown)?;
            let code = |tp| known.verify(producer, tp).err().unwrap_or(ErrorCode::NONE);
            Ok(partitions.iter().map(code).collect())
        };
        verify().unwrap_or_else(|code| vec![code; partitions.len()])
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
            self.add_to_transaction(
                node,
                &request.transactional_id,
                producer,
                &[partition],
                TransactionVersion::V0,
            )
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
        version: TransactionVersion,
    ) -> Result<(), Refused> {
        self.check_transactional(node, transactional_id)?;
        let added = self.in_known(transactional_id, |transaction| {
            self.add_to_locked(transaction, producer, partitions, version)
        });
        added.unwrap_or_else(|| Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING.into()))
    }

    fn add_to_locked(
        &self,
        transaction: &mut Locked<'_>,
        producer: (i64, i16),
        partitions: &[TopicPartition],
        version: TransactionVersion,
    ) -> Result<(), Refused> {
        let incomplete = self.complete_transaction(transaction);
        let known = transaction.get().ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        let added = known.add_partitions(producer, partitions, version, self.replicas.clock().now_ms());
        match added.map_err(|code| Refused::from(code).because(incomplete))? {
            Some(next) => self.store_transaction(transaction, next),
            None => Ok(()),
        }
    }

    /// EndTxn. Once PrepareX is written the outcome is decided, and the response says so.
    pub(crate) fn end_txn(&self, node: NodeId, request: &EndTxnRequest) -> EndTxnResponse {
        let id = &request.transactional_id;
        let producer = (request.producer_id, request.producer_epoch);
        let version = TransactionVersion::of_client(request.bumps_epoch);
        let end = || -> Result<(i64, i16), Refused> {
            self.check_transactional(node, id)?;
            let ended = self.in_known(id, |transaction| {
                let incomplete = self.complete_transaction(transaction);
                let known = transaction.get().ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
                let now_ms = self.replicas.clock().now_ms();
                let new_id = || Ok(self.producer_ids.generate(&self.replicas)?);
                let ended = known.end(producer, request.committed, version, now_ms, new_id);
                let Some(prepared) = ended.map_err(|refused: Refused| refused.because(incomplete))? else {
                    return Ok((known.producer_id, known.producer_epoch));
                };
                let goes_on = prepared.complete(now_ms);
                self.store_transaction(transaction, prepared)?;
                // The outcome is decided, whether or not every marker can be written now.
                self.complete_transaction(transaction);
                Ok((goes_on.producer_id, goes_on.producer_epoch))
            });
            ended.unwrap_or_else(|| Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING.into()))
        };
        match end() {
            Ok((producer_id, producer_epoch)) => EndTxnResponse {
                producer_id,
                producer_epoch,
                ..Default::default()
            },
            Err(Refused { code, failure }) => EndTxnResponse {
                error_code: code,
                failure,
                ..Default::default()
            },
        }
    }
}

impl AddPartitionsToTxnManager for TransactionCoordinator {
    fn in_transaction<T>(
        &self,
        transactional_id: &str,
        producer: (i64, i16),
        partition: &TopicPartition,
        all: &[TopicPartition],
        operation: TransactionSupportedOperation,
        append: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode> {
        let id = self.find(transactional_id);
        if let Some(owner) = self.owner_of_ongoing(id.as_ref(), producer, partition) {
            let owner = owner.lock();
            let is_verified = owner.get().map(|known| known.verify(producer, partition));
            if is_verified == Some(Ok(())) {
                return Ok(append());
            }
        }
        let mut transaction = id.as_ref().map(|id| id.lock());
        let config = Arc::clone(self.replicas.configs().of(1));
        let is_verified = config.boolean("transaction.partition.verification.enable");
        if operation.adds() || is_verified {
            if transactional_id.is_empty() {
                return Err(ErrorCode::INVALID_REQUEST);
            }
            let of_group = is_internal(&partition.topic);
            let known = transaction.as_mut().ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
            let allowed = known.and_then(|known| match operation {
                TransactionSupportedOperation::AddPartition
                    if planted!("partition-that-is-produced-to-not-added") && !of_group =>
                {
                    Ok(())
                }
                TransactionSupportedOperation::AddPartition
                    if planted!("group-whose-offsets-are-committed-not-added") && of_group =>
                {
                    Ok(())
                }
                TransactionSupportedOperation::AddPartition => {
                    // The first partition of a request adds all of them.
                    if known
                        .get()
                        .is_some_and(|known| known.verify(producer, partition).is_ok())
                    {
                        return Ok(());
                    }
                    let added = self.add_to_locked(known, producer, all, TransactionVersion::V2);
                    added.map_err(|refused| refused.code)
                }
                _ => match known.get() {
                    Some(known) => known.verify(producer, partition),
                    None => Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING),
                },
            });
            allowed.map_err(|code| match (code, operation) {
                (ErrorCode::PRODUCER_FENCED, _) => ErrorCode::INVALID_PRODUCER_EPOCH,
                (ErrorCode::TRANSACTION_ABORTABLE, TransactionSupportedOperation::DefaultError) => {
                    ErrorCode::INVALID_TXN_STATE
                }
                (other, _) => other,
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
