//! The second half of a transaction: markers into every partition, then CompleteX. Kafka:
//! `TransactionMarkerChannelManager`, `KafkaApis#handleWriteTxnMarkersRequest`.

use fletchlog_api::{ErrorCode, NodeId, StorageFailure};
use fletchlog_log::AppendOrigin;
use fletchlog_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use fletchlog_records::TopicPartition;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::planted;

use super::coordinator::{Locked, TransactionCoordinator};
use super::state::{TransactionMetadata, TransactionState};
use super::version::TransactionVersion;
use crate::BrokerError;
use crate::directory::NO_LEADER;
use crate::partition::Partition;
use crate::topic_names::{CONSUMER_OFFSETS, TRANSACTION_STATE};

impl TransactionCoordinator {
    /// Writes the markers that a prepared transaction lacks, then its CompleteX state. If a write fails, the rest remains to be done,
    /// and the failure is returned.
    pub(super) fn complete_transaction(&self, transaction: &mut Locked<'_>) -> Option<StorageFailure> {
        let prepared = transaction.get().filter(|t| t.state.is_prepared())?.clone();
        let id = &prepared.transactional_id;
        if self.is_undecided(id) {
            return None;
        }
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

    /// Writes the markers that waited for a leader, or for the replicas of the coordinator's log.
    pub(crate) fn complete_prepared(&self) {
        if !self.replicas.is_read_only() {
            self.for_each_unlocked(true, |_, transaction| drop(self.complete_transaction(transaction)));
        }
    }

    /// Whether the id has no coordinator that runs, or its PrepareX state may not be on all replicas in sync yet: no marker is sent before. An
    /// election may cut that state off. Kafka: `TransactionStateManager#appendTransactionToLog`, its callback;
    /// `#removeTransactionsForTxnTopicPartition`.
    fn is_undecided(&self, id: &str) -> bool {
        let topic = self.replicas.topic(TRANSACTION_STATE).ok();
        let Some(partition) = topic.as_ref().and_then(|topic| topic.partition(self.partition_for(id))) else {
            return false;
        };
        let leader = partition.leader();
        let is_replicated = !partition.is_held() || partition.high_watermark() >= partition.log_end();
        leader == NO_LEADER || !self.replicas.controller().runs(leader) || !is_replicated
    }

    /// Writes the marker of one partition.
    ///
    /// # Errors
    /// The marker could not be written; it will be tried again.
    fn write_txn_marker(
        &self,
        metadata: &TransactionMetadata,
        tp: &TopicPartition,
        coordinator_epoch: i32,
    ) -> Result<(), BrokerError> {
        let marker = TxnMarker {
            producer: (
                metadata.producer_id,
                metadata.producer_epoch - i16::from(planted!("marker-with-the-epoch-before")),
            ),
            committed: metadata.state == TransactionState::PrepareCommit
                && !(planted!("one-partition-ends-the-other-way") && tp.partition == 1),
            coordinator_epoch,
            version: metadata.client_version,
        };
        let write = || {
            let partition = self.replicas.partition(tp)?;
            let leader = partition.leader();
            match self.replicas.controller().runs(leader) {
                true => self.append_txn_marker(&marker, &partition),
                false => {
                    let text = format!("node {leader}, which leads {tp}, does not run");
                    Err(BrokerError::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER, text))
                }
            }
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
                // It waits for the next leader. Kafka: `TransactionMarkerChannelManager`, its unknown brokers.
                ErrorCode::NOT_LEADER_OR_FOLLOWER => Err(error),
                _ => {
                    self.replicas.failures().failed(what(), &error);
                    Err(error)
                }
            },
        }
    }

    /// Appends a marker; offsets of the transaction are decided by it.
    fn append_txn_marker(&self, marker: &TxnMarker, partition: &Partition) -> Result<(), BrokerError> {
        let control = EndTxnMarker {
            control_type: match marker.committed {
                true => ControlType::Commit,
                false => ControlType::Abort,
            },
            coordinator_epoch: marker.coordinator_epoch,
        };
        let (producer_id, epoch) = marker.producer;
        let now_ms = self.replicas.clock().now_ms();
        let batch = build_marker(0, producer_id, epoch, -1, now_ms, control);
        let origin = marker_origin(marker.version);
        self.replicas.append_as_coordinator(partition, batch, origin, now_ms)?;
        let tp = partition.tp();
        if &*tp.topic == CONSUMER_OFFSETS {
            self.groups
                .complete_pending_offsets(tp.partition, producer_id, marker.committed);
        }
        Ok(())
    }

    /// WriteTxnMarkers: an admin ends transactions in single partitions. The state of the transactional ids does not change.
    pub(crate) fn write_txn_markers(&self, node: NodeId, request: &WriteTxnMarkersRequest) -> WriteTxnMarkersResponse {
        request.answered(|asked, tp| {
            let marker = TxnMarker {
                producer: (asked.producer_id, asked.producer_epoch),
                committed: asked.transaction_result,
                coordinator_epoch: asked.coordinator_epoch,
                version: TransactionVersion::new(asked.transaction_version.into()),
            };
            self.write_asked_marker(node, &marker, tp)
        })
    }

    fn write_asked_marker(&self, node: NodeId, marker: &TxnMarker, tp: &TopicPartition) -> ErrorCode {
        let write = || -> Result<(), BrokerError> {
            self.replicas.for_writing("write markers")?;
            let partition = self.replicas.partition(tp)?;
            if partition.leader() != node {
                let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
                return Err(BrokerError::kafka(code, format!("node {node} does not lead {tp}")));
            }
            self.append_txn_marker(marker, &partition)
        };
        write().err().map_or(ErrorCode::NONE, |error| error.code())
    }
}

/// What ends a transaction in one partition.
struct TxnMarker {
    producer: (i64, i16),
    committed: bool,
    coordinator_epoch: i32,
    version: TransactionVersion,
}

/// How the partition checks a marker of this version.
fn marker_origin(version: TransactionVersion) -> AppendOrigin {
    match version.supports_epoch_bump() {
        true => AppendOrigin::BumpingCoordinator,
        false => AppendOrigin::Coordinator,
    }
}
