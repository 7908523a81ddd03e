//! The second half of a transaction: markers into every partition, then CompleteX. Kafka:
//! `TransactionMarkerChannelManager`, `KafkaApis#handleWriteTxnMarkersRequest`.

use fletchlog_api::{ErrorCode, StorageFailure};
use fletchlog_records::TopicPartition;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::{TransactionMetadata, TransactionState};
use crate::BrokerError;
use crate::topic_names::CONSUMER_OFFSETS;

impl TransactionCoordinator {
    /// Writes the markers that a prepared transaction lacks, then its CompleteX state. If a write fails, the rest remains to be done,
    /// and the failure is returned.
    pub(super) fn complete_transaction(&self, transaction: &mut Locked<'_>) -> Option<StorageFailure> {
        let prepared = transaction.get().filter(|t| t.state.is_prepared())?.clone();
        let id = &prepared.transactional_id;
        let coordinator_epoch = match self.coordinator_epoch(id) {
            Ok(epoch) => epoch,
            Err(error) => {
                let error = BrokerError::Log(error);
                self.replicas
                    .failures()
                    .failed(format_args!("ending transaction {id}"), &error);
                return error.storage_failure();
            }
        };
        let mut failure = None;
        for tp in &prepared.partitions {
            match self.write_txn_marker(&prepared, tp, coordinator_epoch) {
                Ok(()) => transaction.remove_partition(tp),
                Err(error) => failure = error.storage_failure(),
            }
        }
        if let Some(marked) = transaction.get().filter(|t| t.partitions.is_empty()) {
            let complete = marked.complete(self.replicas.clock().now_ms());
            // When this fails the transaction is found prepared again, and its markers are written twice: harmless.
            failure = self
                .store_transaction(transaction, complete)
                .err()
                .and_then(|refused| refused.failure);
        }
        failure
    }

    /// WriteTxnMarkers for one partition.
    ///
    /// # Errors
    /// The marker could not be written; it will be tried again.
    fn write_txn_marker(
        &self,
        metadata: &TransactionMetadata,
        tp: &TopicPartition,
        coordinator_epoch: i32,
    ) -> Result<(), BrokerError> {
        let committed = metadata.state == TransactionState::PrepareCommit;
        let marker = EndTxnMarker {
            control_type: if committed {
                ControlType::Commit
            } else {
                ControlType::Abort
            },
            coordinator_epoch,
        };
        let write = || -> Result<(), BrokerError> {
            let partition = self.replicas.partition(tp)?;
            let now_ms = self.replicas.clock().now_ms();
            let batch = build_marker(0, metadata.producer_id, metadata.producer_epoch, -1, now_ms, marker);
            self.replicas.append_as_coordinator(&partition, batch, now_ms).map(drop)
        };
        let what = || {
            format!(
                "writing the marker of transaction {} to {tp}",
                metadata.transactional_id
            )
        };
        match write() {
            Ok(()) => {
                self.replicas.failures().succeeded(what);
                if &*tp.topic == CONSUMER_OFFSETS {
                    self.groups
                        .complete_pending_offsets(tp.partition, metadata.producer_id, committed);
                }
                Ok(())
            }
            Err(error) => match error.code() {
                // Deleted meanwhile.
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Ok(()),
                // The partition knows a newer producer or coordinator, which has ended the transaction.
                ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::TRANSACTION_COORDINATOR_FENCED => {
                    let id = &metadata.transactional_id;
                    log::error!("{tp} refused the marker of transaction {id}: {error}");
                    Ok(())
                }
                _ => {
                    self.replicas.failures().failed(what(), &error);
                    Err(error)
                }
            },
        }
    }
}
