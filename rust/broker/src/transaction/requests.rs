//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the verification that partitions ask for (spec 10.2).

use std::sync::Arc;

use fletchlog_api::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, ErrorCode,
    InitProducerIdRequest, InitProducerIdResponse, NodeId,
};
use fletchlog_records::TopicPartition;

use super::coordinator::Transactions;
use super::state::{Init, TransactionMetadata};
use crate::Broker;
use crate::topics::{CONSUMER_OFFSETS, is_internal};

impl Broker {
    /// InitProducerId with a transactional id. Kafka: `TransactionCoordinator#handleInitProducerId`.
    pub(crate) fn init_transactional_producer(
        &self,
        node: NodeId,
        transactional_id: &Arc<str>,
        request: &InitProducerIdRequest,
    ) -> Result<InitProducerIdResponse, ErrorCode> {
        self.check_transactional(node, transactional_id)?;
        let timeout_ms = request.transaction_timeout_ms;
        if !(1..=self.transactions.max_timeout_ms).contains(&timeout_ms) {
            return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT);
        }
        let expected = (request.producer_id >= 0).then_some((request.producer_id, request.producer_epoch));
        let mut transactions = self.transactions.lock();
        let now_ms = self.clock.now_ms();
        let known = match self.finished(&mut transactions, transactional_id) {
            Some(known) => known.clone(),
            None => TransactionMetadata::new(transactional_id.clone(), self.fresh_producer_id()?),
        };
        match known.init(expected, timeout_ms, now_ms, || self.fresh_producer_id())? {
            Init::Fenced(prepared) => {
                self.store_transaction(&mut transactions, prepared)?;
                self.complete_transaction(&mut transactions, transactional_id);
                Err(ErrorCode::CONCURRENT_TRANSACTIONS)
            }
            Init::Ready(next) => {
                let response = InitProducerIdResponse {
                    error: ErrorCode::NONE,
                    producer_id: next.producer_id,
                    producer_epoch: next.producer_epoch,
                };
                self.store_transaction(&mut transactions, next)?;
                Ok(response)
            }
        }
    }

    fn fresh_producer_id(&self) -> Result<i64, ErrorCode> {
        self.next_producer_id().map_err(|error| {
            log::warn!("no producer id: {error}");
            error.code()
        })
    }

    /// The id's metadata, after another attempt at markers that are missing.
    fn finished<'a>(&self, transactions: &'a mut Transactions, id: &str) -> Option<&'a TransactionMetadata> {
        self.complete_transaction(transactions, id);
        transactions.get(id)
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
        let partitions = if checked.iter().any(|(_, known)| known.is_err()) {
            let code = |known: Result<(), ErrorCode>| known.err().unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED);
            checked.into_iter().map(|(tp, known)| (tp, code(known))).collect()
        } else {
            let producer = (request.producer_id, request.producer_epoch);
            let added = self.add_to_transaction(node, &request.transactional_id, producer, &request.partitions);
            let code = added.err().unwrap_or(ErrorCode::NONE);
            checked.into_iter().map(|(tp, _)| (tp, code)).collect()
        };
        AddPartitionsToTxnResponse { partitions }
    }

    /// AddOffsetsToTxn: adds the group's partition of `__consumer_offsets`.
    pub(crate) fn add_offsets_to_txn(&self, node: NodeId, request: &AddOffsetsToTxnRequest) -> ErrorCode {
        // Its directory must be there for the marker, whatever becomes of the offsets.
        if let Err(error) = self.offsets_topic() {
            log::error!("{CONSUMER_OFFSETS} could not be made: {error}");
            return ErrorCode::COORDINATOR_NOT_AVAILABLE;
        }
        let partition = TopicPartition::new(CONSUMER_OFFSETS, self.offsets_partition(&request.group_id));
        let producer = (request.producer_id, request.producer_epoch);
        self.add_to_transaction(node, &request.transactional_id, producer, &[partition])
            .err()
            .unwrap_or(ErrorCode::NONE)
    }

    fn add_to_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
        producer: (i64, i16),
        partitions: &[TopicPartition],
    ) -> Result<(), ErrorCode> {
        self.check_transactional(node, transactional_id)?;
        let mut transactions = self.transactions.lock();
        let known = self
            .finished(&mut transactions, transactional_id)
            .ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        match known.add_partitions(producer, partitions, self.clock.now_ms())? {
            Some(next) => self.store_transaction(&mut transactions, next),
            None => Ok(()),
        }
    }

    /// EndTxn. Once PrepareX is written the outcome stands, and the producer is told so.
    pub(crate) fn end_txn(&self, node: NodeId, request: &EndTxnRequest) -> ErrorCode {
        let end = || -> Result<(), ErrorCode> {
            let id = &request.transactional_id;
            self.check_transactional(node, id)?;
            let mut transactions = self.transactions.lock();
            let known = self
                .finished(&mut transactions, id)
                .ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
            let producer = (request.producer_id, request.producer_epoch);
            if let Some(prepared) = known.end(producer, request.committed, self.clock.now_ms())? {
                self.store_transaction(&mut transactions, prepared)?;
                self.complete_transaction(&mut transactions, id);
            }
            Ok(())
        };
        end().err().unwrap_or(ErrorCode::NONE)
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
