//! The second half of a transaction: markers into every partition, then CompleteX. Kafka:
//! `TransactionMarkerChannelManager`, `KafkaApis#handleWriteTxnMarkersRequest`.

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};

use super::coordinator::Transactions;
use super::state::{TransactionMetadata, TransactionState};
use crate::topics::CONSUMER_OFFSETS;
use crate::{Broker, BrokerError};

impl Broker {
    /// Writes the markers that a prepared transaction lacks, then that it is complete. What cannot be written stays to
    /// be done.
    pub(super) fn complete_transaction(&self, transactions: &mut Transactions, transactional_id: &str) {
        let Some(metadata) = transactions.get_mut(transactional_id).filter(|t| t.state.is_prepared()) else {
            return;
        };
        let partitions: Vec<TopicPartition> = metadata.partitions.iter().cloned().collect();
        let coordinator_epoch = match self.coordinator_epoch(transactional_id) {
            Ok(epoch) => epoch,
            Err(error) => {
                log::error!(
                    "the markers of transaction {transactional_id} cannot be written now, and will be: {error}"
                );
                return;
            }
        };
        for tp in partitions {
            if self.write_txn_marker(metadata, &tp, coordinator_epoch) {
                metadata.partitions.remove(&tp);
            }
        }
        if metadata.partitions.is_empty() {
            let complete = metadata.complete(self.clock.now_ms());
            // When this fails the transaction is found prepared again, and its markers are written twice: harmless.
            let _ = self.store_transaction(transactions, complete);
        }
    }

    /// WriteTxnMarkers for one partition; true if nothing is left to do there.
    fn write_txn_marker(&self, metadata: &TransactionMetadata, tp: &TopicPartition, coordinator_epoch: i32) -> bool {
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
            let partition = self.partition(tp)?;
            let now_ms = self.clock.now_ms();
            let batch = build_marker(0, metadata.producer_id, metadata.producer_epoch, -1, now_ms, marker);
            self.append_as_coordinator(&partition, batch, now_ms).map(drop)
        };
        match write() {
            Ok(()) => {
                if &*tp.topic == CONSUMER_OFFSETS {
                    self.complete_pending_offsets(tp.partition, metadata.producer_id, committed);
                }
                true
            }
            Err(error) => {
                let id = &metadata.transactional_id;
                match error.code() {
                    // Deleted meanwhile.
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => true,
                    // The partition knows a newer producer or coordinator, which has ended the transaction.
                    ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::TRANSACTION_COORDINATOR_FENCED => {
                        log::error!("{tp} refused the marker of transaction {id}: {error}");
                        true
                    }
                    _ => {
                        log::error!(
                            "the marker of transaction {id} could not be written to {tp}, and will be: {error}"
                        );
                        false
                    }
                }
            }
        }
    }
}
