//! Records of `__share_group_state`, and the state that they add up to. Kafka: `ShareCoordinatorRecordHelpers`, `ShareGroupOffset`.

use std::sync::Arc;

use fletchlog_protocol::values::share_snapshot_value::StateBatch;
use fletchlog_protocol::values::{
    ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue, share_update_value,
};
use fletchlog_protocol::{Value, WireError};

use super::combine::combine;
use crate::replica_manager::CoordinatorRecord;

/// The start offset of a share partition that has none yet. Kafka: `PartitionFactory#UNINITIALIZED_START_OFFSET`.
pub(crate) const NO_START_OFFSET: i64 = -1;
/// Kafka: `PartitionFactory#UNINITIALIZED_DELIVERY_COMPLETE_COUNT`.
const NO_COUNT: i32 = -1;

/// A partition of a group. Kafka: `SharePartitionKey`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SharePartitionKey {
    pub(crate) group_id: Arc<str>,
    pub(crate) topic_id: [u8; 16],
    pub(crate) partition: i32,
}

/// What is persisted of a share partition. Kafka: `ShareGroupOffset`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShareGroupOffset {
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: i32,
    pub(super) start_offset: i64,
    pub(super) delivery_complete_count: i32,
    pub(super) create_ms: i64,
    pub(super) write_ms: i64,
    pub(super) batches: Vec<StateBatch>,
    /// Updates since the last snapshot.
    pub(super) updates: i32,
    /// Where that snapshot is in its log.
    pub(super) snapshot_at: i64,
}

impl ShareGroupOffset {
    /// A share partition that is initialized, again if there is a `previous` state.
    pub(super) fn initial(previous: Option<&Self>, state_epoch: i32, start_offset: i64, now_ms: i64) -> Self {
        Self {
            snapshot_epoch: previous.map_or(0, |previous| previous.snapshot_epoch.saturating_add(1)),
            state_epoch,
            leader_epoch: previous.map_or(0, |previous| previous.leader_epoch),
            start_offset,
            delivery_complete_count: match start_offset {
                NO_START_OFFSET => NO_COUNT,
                _ => 0,
            },
            create_ms: now_ms,
            write_ms: now_ms,
            batches: Vec::new(),
            updates: 0,
            snapshot_at: 0,
        }
    }

    /// The state after an update.
    pub(super) fn updated(&self, update: &ShareUpdateValue) -> Self {
        // The count is that from the start offset on: without one both stay as they were.
        let (start_offset, delivery_complete_count) = match update.start_offset {
            NO_START_OFFSET => (self.start_offset, self.delivery_complete_count),
            moved => (moved, update.delivery_complete_count),
        };
        let new = update.state_batches.iter().map(|batch| StateBatch {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        Self {
            snapshot_epoch: self.snapshot_epoch,
            state_epoch: self.state_epoch,
            leader_epoch: match update.leader_epoch {
                -1 => self.leader_epoch,
                epoch => epoch,
            },
            start_offset,
            delivery_complete_count,
            create_ms: self.create_ms,
            write_ms: self.write_ms,
            batches: combine(self.batches.iter().cloned().chain(new), start_offset),
            updates: self.updates.saturating_add(1),
            snapshot_at: self.snapshot_at,
        }
    }

    /// The same as a new snapshot, after many updates.
    pub(super) fn into_snapshot(self, now_ms: i64) -> Self {
        Self {
            create_ms: now_ms,
            ..self.into_cold_snapshot(now_ms)
        }
    }

    /// The same as a new snapshot, because the last one is old. It keeps the time of its creation.
    pub(super) fn into_cold_snapshot(self, now_ms: i64) -> Self {
        Self {
            snapshot_epoch: self.snapshot_epoch.saturating_add(1),
            write_ms: now_ms,
            updates: 0,
            ..self
        }
    }

    /// Whether its last snapshot is one of [`ShareGroupOffset::into_cold_snapshot`].
    pub(super) fn is_cold(&self) -> bool {
        self.create_ms != self.write_ms
    }

    /// The state that the snapshot at an offset holds.
    pub(super) fn of_snapshot(value: ShareSnapshotValue, snapshot_at: i64) -> Self {
        Self {
            snapshot_epoch: value.snapshot_epoch,
            state_epoch: value.state_epoch,
            leader_epoch: value.leader_epoch,
            start_offset: value.start_offset,
            delivery_complete_count: value.delivery_complete_count,
            create_ms: value.create_timestamp,
            write_ms: value.write_timestamp,
            batches: value.state_batches,
            updates: 0,
            snapshot_at,
        }
    }
}

/// The record of a snapshot; `None`: the share partition is deleted.
pub(super) fn snapshot(
    key: &SharePartitionKey,
    state: Option<&ShareGroupOffset>,
) -> Result<CoordinatorRecord, WireError> {
    let key = ShareSnapshotKey {
        group_id: Arc::clone(&key.group_id),
        topic_id: key.topic_id,
        partition: key.partition,
    };
    let value = state.map(|state| {
        let value = ShareSnapshotValue {
            snapshot_epoch: state.snapshot_epoch,
            state_epoch: state.state_epoch,
            leader_epoch: state.leader_epoch,
            start_offset: state.start_offset,
            delivery_complete_count: state.delivery_complete_count,
            create_timestamp: state.create_ms,
            write_timestamp: state.write_ms,
            state_batches: state.batches.clone(),
        };
        value.encode(ShareSnapshotValue::MAX_VERSION)
    });
    Ok((key.encode(ShareSnapshotKey::MAX_VERSION)?, value.transpose()?))
}

/// The record of an update.
pub(super) fn update(key: &SharePartitionKey, value: ShareUpdateValue) -> Result<CoordinatorRecord, WireError> {
    let key = ShareUpdateKey {
        group_id: Arc::clone(&key.group_id),
        topic_id: key.topic_id,
        partition: key.partition,
    };
    let value = value.encode(ShareUpdateValue::MAX_VERSION)?;
    Ok((key.encode(ShareUpdateKey::MAX_VERSION)?, Some(value)))
}

/// The batches of an update, equal neighbours as one.
pub(super) fn combined(
    batches: impl IntoIterator<Item = StateBatch>,
    start_offset: i64,
) -> Vec<share_update_value::StateBatch> {
    let update = |batch: StateBatch| share_update_value::StateBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_state: batch.delivery_state,
        delivery_count: batch.delivery_count,
    };
    combine(batches, start_offset).into_iter().map(update).collect()
}
