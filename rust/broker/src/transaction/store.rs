//! `__transaction_state`: writing it, and reading it back. Kafka: `TransactionStateManager#appendTransactionToLog`,
//! `#loadTransactionMetadata`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_log::LogError;
use fletchlog_records::{BatchParams, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError, planted};

use super::coordinator::{Locked, TransactionCoordinator};
use super::records;
use super::state::TransactionMetadata;
use super::version::TransactionVersion;
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::failures::Refused;
use crate::features::Feature;
use crate::partition::Partition;
use crate::topic_names::TRANSACTION_STATE;

/// By transactional id.
pub(super) type Transactions = BTreeMap<Arc<str>, TransactionMetadata>;

impl TransactionCoordinator {
    /// Writes the new metadata, which takes effect once it is written.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE: it could not be written, and nothing has changed.
    pub(super) fn store_transaction(
        &self,
        transaction: &mut Locked<'_>,
        metadata: TransactionMetadata,
    ) -> Result<(), Refused> {
        self.append_transaction(&metadata.transactional_id, Some(&metadata))?;
        transaction.set(Some(metadata));
        Ok(())
    }

    /// The broker's level of transaction.version. Kafka: `TransactionStateManager#transactionVersionLevel`.
    pub(super) fn level(&self) -> TransactionVersion {
        TransactionVersion::new(self.replicas.controller().finalized_level(Feature::TransactionVersion))
    }

    /// Appends the metadata or a tombstone.
    pub(super) fn append_transaction(
        &self,
        transactional_id: &Arc<str>,
        metadata: Option<&TransactionMetadata>,
    ) -> Result<(), Refused> {
        let append = || {
            let record = records::record(transactional_id, metadata, self.level())?;
            let topic = self.replicas.controller().transaction_topic()?;
            let partition = topic
                .partition(self.partition_for(transactional_id))
                .ok_or_else(|| BrokerError::unknown_topic(TRANSACTION_STATE))?;
            self.replicas
                .append_records(partition, &[record], &BatchParams::default())
        };
        let what = || format!("writing the transaction of {transactional_id} to {TRANSACTION_STATE}");
        match append() {
            Ok(_) => {
                self.replicas.failures().succeeded(what);
                Ok(())
            }
            Err(error) => {
                self.replicas.failures().failed(what(), &error);
                Err(Refused::by(ErrorCode::COORDINATOR_NOT_AVAILABLE, &error))
            }
        }
    }

    /// The epoch of the coordinator, which markers carry: the leader epoch of the id's partition.
    pub(super) fn coordinator_epoch(&self, transactional_id: &str) -> Result<i32, LogError> {
        let number = self.partition_for(transactional_id);
        let topic = self.replicas.topic(TRANSACTION_STATE).ok();
        let partition = topic.as_ref().and_then(|t| t.partition(number));
        partition.map_or(Ok(0), |partition| self.replicas.leader_epoch_of(partition))
    }

    /// What the log holds: the last value of every id.
    pub(super) fn read_transactions(&self) -> Result<Transactions, BrokerError> {
        let mut transactions = Transactions::new();
        let topic = self.replicas.topic(TRANSACTION_STATE).ok();
        let mut reading = EachLog::new("cannot be read");
        for partition in topic.iter().flat_map(|t| &t.partitions) {
            let read = self
                .replicas
                .read_log(partition, |batch| apply(&mut transactions, batch));
            reading.note(partition, read);
        }
        reading.outcome().map(|()| transactions)
    }

    /// Called after an election has cut logs: the new coordinator knows of the ids of these partitions what is left of their records, and nothing
    /// of the others. Decisions that are left are carried out by [`Self::complete_prepared`], when high watermarks have moved. A log that cannot be
    /// read is logged, and its ids are unknown. Kafka: `TransactionStateManager#removeTransactionsForTxnTopicPartition`,
    /// `#loadTransactionsForTxnTopicPartition`.
    pub(crate) fn load_cut(&self, cut: &[Arc<Partition>]) {
        let of_transactions = cut
            .iter()
            .filter(|partition| *partition.tp().topic == *TRANSACTION_STATE);
        for partition in of_transactions.filter(|_| !planted!("transactions-of-a-cut-log-kept")) {
            self.remove_partition(partition.tp().partition);
            let mut transactions = Transactions::new();
            let read = self
                .replicas
                .read_log(partition, |batch| apply(&mut transactions, batch));
            if let Err(error) = read {
                log::error!("{} could not be read after it was cut: {error}", partition.tp());
            }
            for metadata in transactions.into_values() {
                self.insert(metadata);
            }
        }
    }

    /// Takes over the transactions of an earlier run, and writes the markers that it did not write. Open
    /// transactions wait for their producer or their time-out.
    pub(super) fn load(&self) -> Result<(), BrokerError> {
        if self.replicas.is_read_only() {
            return Ok(());
        }
        for metadata in self.read_transactions()?.into_values() {
            self.insert(metadata);
        }
        if !planted!("prepared-transaction-not-completed-when-loaded") {
            self.for_each_unlocked(true, |_, transaction| drop(self.complete_transaction(transaction)));
        }
        Ok(())
    }
}

fn apply(transactions: &mut Transactions, batch: &RecordBatch) -> Result<(), RecordError> {
    if batch.header().is_control() {
        return Ok(());
    }
    let slice = batch.records(DECOMPRESSION_LIMIT)?;
    let mut cursor = RecordCursor::new();
    while let Some(record) = cursor.next(&slice)? {
        let Some(id) = record.key.and_then(records::parse_key) else {
            log::warn!(
                "{TRANSACTION_STATE}: the record at offset {} has an unknown key",
                record.offset
            );
            continue;
        };
        match record.value.map(|value| records::parse_value(id.clone(), value)) {
            // A tombstone: the id was removed.
            None => drop(transactions.remove(&id)),
            Some(Some(metadata)) => drop(transactions.insert(id, metadata)),
            Some(None) => {
                log::warn!("{TRANSACTION_STATE}: the transaction of {id} has an unknown format and is skipped");
            }
        }
    }
    Ok(())
}
