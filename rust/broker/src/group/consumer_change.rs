//! A change of a consumer group by one request or timer: its records take effect at once and are written together; if that fails, the
//! group is again as it was. Kafka: `CoordinatorResult`, `CoordinatorRuntime` with its snapshots.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::{BatchParams, planted};

use super::consumer_group::ConsumerGroup;
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::records;
use crate::BrokerError;
use crate::replica_manager::CoordinatorRecord;

/// The records of a change that is being made.
pub(super) struct Change<'a> {
    pub(super) group_id: Arc<str>,
    pub(super) group: &'a mut ConsumerGroup,
    /// Written in front of the group's records: the end of a classic group.
    ends_classic: bool,
    records: Vec<ConsumerRecord>,
    /// What would undo them.
    undo: Vec<ConsumerRecord>,
    /// The version of the table of topics, and the hash of the subscribed topics, if this change looked at them.
    pub(super) seen: Option<(u64, i64)>,
}

impl<'a> Change<'a> {
    pub(super) fn of(group_id: &Arc<str>, group: &'a mut ConsumerGroup) -> Self {
        Self {
            group_id: Arc::clone(group_id),
            group,
            ends_classic: false,
            records: Vec::new(),
            undo: Vec::new(),
            seen: None,
        }
    }

    /// The change also ends the classic group with this id.
    pub(super) fn end_classic(&mut self) {
        self.ends_classic = true;
    }

    /// Changes the group.
    pub(super) fn apply(&mut self, record: ConsumerRecord) {
        self.undo.push(self.group.replay(&record));
        self.records.push(record);
    }

    /// Whether nothing was changed.
    fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.ends_classic
    }
}

impl Drop for Change<'_> {
    /// Undoes what was not written.
    fn drop(&mut self) {
        if planted!("change-of-a-group-not-undone") {
            return;
        }
        for record in self.undo.drain(..).rev() {
            self.group.replay(&record);
        }
    }
}

/// Bytes of records that are written in one batch.
const BATCH_BYTES: usize = 512 * 1024;

impl GroupCoordinator {
    /// Writes the records of a change, which is final then.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE: they could not be written, and the change is undone.
    pub(super) fn commit_change(&self, mut change: Change<'_>) -> Result<(), ErrorCode> {
        if !change.is_empty() && !self.replicas.is_read_only() {
            let what = || format!("storing group {}", change.group_id);
            if let Err(error) = self.write_change(&change) {
                self.replicas.failures().failed(what(), &error);
                return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            }
            self.replicas.failures().succeeded(what);
        }
        change.undo.clear();
        if let Some(seen) = change.seen {
            change.group.seen = Some(seen);
        }
        Ok(())
    }

    fn write_change(&self, change: &Change<'_>) -> Result<(), BrokerError> {
        let mut batch: Vec<CoordinatorRecord> = Vec::new();
        if change.ends_classic {
            batch.push(records::group_tombstone(&change.group_id)?);
        }
        let mut bytes = 0;
        for record in &change.records {
            let (key, value) = record.encode(&change.group_id)?;
            let size = key.len() + value.as_ref().map_or(0, bytes::Bytes::len);
            if bytes + size > BATCH_BYTES && !batch.is_empty() {
                self.store_records(&change.group_id, &batch, &BatchParams::default())?;
                (bytes, batch) = (0, Vec::new());
            }
            bytes += size;
            batch.push((key, value));
        }
        self.store_records(&change.group_id, &batch, &BatchParams::default())
            .map(drop)
    }
}
