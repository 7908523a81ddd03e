//! A change of a consumer or share group by one request or timer: its records take effect at once and are written together; if that fails,
//! the group is again as it was. Kafka: `CoordinatorResult`, `CoordinatorRuntime` with its snapshots.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::WireError;
use fletchlog_records::{BatchParams, planted};

use super::consumer_group::ConsumerGroup;
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::records;
use crate::BrokerError;
use crate::replica_manager::CoordinatorRecord;

/// A group that changes only by its records.
pub(super) trait Recorded {
    /// Its records.
    type Record;

    /// Changes the group as a record says; returns the record that would undo it.
    fn replay(&mut self, record: &Self::Record) -> Self::Record;

    /// Key and value of a record of the group with this id.
    fn encode(record: &Self::Record, group_id: &Arc<str>) -> Result<CoordinatorRecord, WireError>;

    /// The version of the table of topics, and the hash of the subscribed topics, when they were last looked at.
    fn saw(&mut self, seen: (u64, i64));
}

impl Recorded for ConsumerGroup {
    type Record = ConsumerRecord;

    fn replay(&mut self, record: &ConsumerRecord) -> ConsumerRecord {
        self.replay(record)
    }

    fn encode(record: &ConsumerRecord, group_id: &Arc<str>) -> Result<CoordinatorRecord, WireError> {
        record.encode(group_id)
    }

    fn saw(&mut self, seen: (u64, i64)) {
        self.seen = Some(seen);
    }
}

/// The records of a change that is being made.
pub(super) struct Change<'a, G: Recorded = ConsumerGroup> {
    pub(super) group_id: Arc<str>,
    pub(super) group: &'a mut G,
    /// Written in front of the group's records: the end of a classic group.
    ends_classic: bool,
    records: Vec<G::Record>,
    /// What would undo them.
    undo: Vec<G::Record>,
    /// The version of the table of topics, and the hash of the subscribed topics, if this change looked at them.
    pub(super) seen: Option<(u64, i64)>,
}

impl<'a, G: Recorded> Change<'a, G> {
    pub(super) fn of(group_id: &Arc<str>, group: &'a mut G) -> Self {
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
    pub(super) fn apply(&mut self, record: G::Record) {
        self.undo.push(self.group.replay(&record));
        self.records.push(record);
    }

    /// Whether nothing was changed.
    fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.ends_classic
    }
}

impl<G: Recorded> Drop for Change<'_, G> {
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
    pub(super) fn commit_change<G: Recorded>(&self, mut change: Change<'_, G>) -> Result<(), ErrorCode> {
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
            change.group.saw(seen);
        }
        Ok(())
    }

    fn write_change<G: Recorded>(&self, change: &Change<'_, G>) -> Result<(), BrokerError> {
        let mut batch: Vec<CoordinatorRecord> = Vec::new();
        if change.ends_classic {
            batch.push(records::group_tombstone(&change.group_id)?);
        }
        let mut bytes = 0;
        for record in &change.records {
            let (key, value) = G::encode(record, &change.group_id)?;
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
