//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the verification that partitions ask for (spec 10.2).

use std::sync::Arc;

use fletchlog_api::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, ErrorCode, InitProducerIdRequest, InitProducerIdResponse, NodeId, StorageFailure,
};
use fletchlog_records::TopicPartition;

use super::state::{Init, TransactionMetadata};
use crate::Broker;
use crate::failures::Refused;
use crate::topics::{CONSUMER_OFFSETS, is_internal};

impl Broker {
    /// InitProducerId with a transactional id. Kafka: `TransactionCoordinator#handleInitProducerId`.
    pub(crate) fn init_transactional_producer(
        &self,
        node: NodeId,
        transactional_id: &Arc<str>,
        request: &InitProducerIdRequest,
    ) -> Result<InitProducerIdResponse, Refused> {
        self.check_transactional(node, transactional_id)?;
        let timeout_ms = request.transaction_timeout_ms;
        if !(1..=self.transactions.max_timeout_ms).contains(&timeout_ms) {
            return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT.into());
        }
        let expected = (request.producer_id >= 0).then_some((request.producer_id, request.producer_epoch));
        let mut transactions = self.transactions.lock();
        let now_ms = self.clock.now_ms();
        let incomplete = self.complete_transaction(&mut transactions, transactional_id);
        let known = match transactions.get(transactional_id) {
            Some(known) => known.clone(),
            None => TransactionMetadata::new(transactional_id.clone(), self.next_producer_id()?),
        };
        let init = known.init(expected, timeout_ms, now_ms, || Ok(self.next_producer_id()?));
        match init.map_err(|refused: Refused| refused.because(incomplete))? {
            Init::Fenced(prepared) => {
                self.store_transaction(&mut transactions, prepared)?;
                let incomplete = self.complete_transaction(&mut transactions, transactional_id);
                Err(Refused::from(ErrorCode::CONCURRENT_TRANSACTIONS).because(incomplete))
            }
            Init::Ready(next) => {
                let response = InitProducerIdResponse {
                    error: ErrorCode::NONE,
                    producer_id: next.producer_id,
                    producer_epoch: next.producer_epoch,
                    failure: None,
                };
                self.store_transaction(&mut transactions, next)?;
                Ok(response)
            }
        }
    }

    /// AddPartitionsToTxn: all or none. Kafka: `KafkaApis#handleAddPartitionsToTxnRequest`.
    pub(crate) fn add_partitions_to_txn(
        &self,
        node: NodeId,
        request: &AddPartitionsToTxnRequest,
    ) -> AddPartitionsToTxnResponse {
        let known = |tp: &TopicPartition| {
            if is_internal(&tp.topic) {
                Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
            } else if self.partition(tp).is_err() {
                Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
            } else {
                Ok(())
            }
        };
        let checked: Vec<_> = request.partitions.iter().map(|tp| (tp.clone(), known(tp))).collect();
        let mut failure = None;
        let partitions = if checked.iter().any(|(_, known)| known.is_err()) {
            let code = |known: Result<(), ErrorCode>| known.err().unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED);
            checked.into_iter().map(|(tp, known)| (tp, code(known))).collect()
        } else {
            let producer = (request.producer_id, request.producer_epoch);
            let added = self.add_to_transaction(node, &request.transactional_id, producer, &request.partitions);
            let (code, behind) = outcome(added);
            failure = behind;
            checked.into_iter().map(|(tp, _)| (tp, code)).collect()
        };
        AddPartitionsToTxnResponse { partitions, failure }
    }

    /// AddOffsetsToTxn: adds the group's partition of `__consumer_offsets`.
    pub(crate) fn add_offsets_to_txn(&self, node: NodeId, request: &AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
        let add = || {
            // Its directory must be there for the marker, whatever becomes of the offsets.
            self.offsets_topic()
                .map_err(|error| Refused::by(ErrorCode::COORDINATOR_NOT_AVAILABLE, &error))?;
            let partition = TopicPartition::new(CONSUMER_OFFSETS, self.offsets_partition(&request.group_id));
            let producer = (request.producer_id, request.producer_epoch);
            self.add_to_transaction(node, &request.transactional_id, producer, &[partition])
        };
        let (error, failure) = outcome(add());
        AddOffsetsToTxnResponse { error, failure }
    }

    fn add_to_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
        producer: (i64, i16),
        partitions: &[TopicPartition],
    ) -> Result<(), Refused> {
        self.check_transactional(node, transactional_id)?;
        let mut transactions = self.transactions.lock();
        let incomplete = self.complete_transaction(&mut transactions, transactional_id);
        let known = transactions
            .get(transactional_id)
            .ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        let added = known.add_partitions(producer, partitions, self.clock.now_ms());
        match added.map_err(|code| Refused::from(code).because(incomplete))? {
            Some(next) => self.store_transaction(&mut transactions, next),
            None => Ok(()),
        }
    }

    /// EndTxn. Once PrepareX is written the outcome stands, and the producer is told so.
    pub(crate) fn end_txn(&self, node: NodeId, request: &EndTxnRequest) -> EndTxnResponse {
        let end = || -> Result<(), Refused> {
            let id = &request.transactional_id;
            self.check_transactional(node, id)?;
            let mut transactions = self.transactions.lock();
            let incomplete = self.complete_transaction(&mut transactions, id);
            let known = transactions.get(id).ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
            let producer = (request.producer_id, request.producer_epoch);
            let ended = known.end(producer, request.committed, self.clock.now_ms());
            if let Some(prepared) = ended.map_err(|code| Refused::from(code).because(incomplete))? {
                self.store_transaction(&mut transactions, prepared)?;
                // The outcome stands, whether or not every marker can be written now.
                self.complete_transaction(&mut transactions, id);
            }
            Ok(())
        };
        let (error, failure) = outcome(end());
        EndTxnResponse { error, failure }
    }

    /// Runs `append` if the partition belongs to the producer's open transaction. The transaction cannot end meanwhile, so
    /// what is appended is below its marker (KIP-890).
    ///
    /// # Errors
    /// INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    /// Kafka: `AddPartitionsToTxnManager`, which answers 47 where the coordinator says PRODUCER_FENCED.
    pub(crate) fn in_transaction<T>(
        &self,
        transactional_id: &str,
        producer: (i64, i16),
        partition: &TopicPartition,
        append: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode> {
        let transactions = self.transactions.lock();
        if self.transactions.verification {
            let verified = transactions
                .get(transactional_id)
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

/// The fields of an answer.
fn outcome(done: Result<(), Refused>) -> (ErrorCode, Option<StorageFailure>) {
    match done {
        Ok(()) => (ErrorCode::NONE, None),
        Err(refused) => (refused.code, refused.failure),
    }
}
