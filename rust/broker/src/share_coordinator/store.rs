//! `__share_group_state`: writing it, and reading it back. Kafka: `ShareCoordinatorShard#replay`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::Value;
use fletchlog_protocol::values::{ShareGroupStateKey, ShareSnapshotValue, ShareUpdateValue};
use fletchlog_records::{BatchParams, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError, planted};

use super::records::{ShareGroupOffset, SharePartitionKey};
use super::{ShareCoordinator, States};
use crate::BrokerError;
use crate::each_log::EachLog;
use crate::partition::Partition;
use crate::replica_manager::CoordinatorRecord;
use crate::topic_names::SHARE_GROUP_STATE;

impl ShareCoordinator {
    /// The partition of `__share_group_state` that keeps a share partition; `None`: there is no such topic yet.
    pub(crate) fn state_log(&self, key: &SharePartitionKey) -> Option<Arc<Partition>> {
        let topic = self.replicas.topic(SHARE_GROUP_STATE).ok()?;
        topic.partition(self.partition_for(&key.coordinator_key())).cloned()
    }

    /// Appends a record of a share partition; returns its offset.
    pub(super) fn append_state(&self, key: &SharePartitionKey, record: CoordinatorRecord) -> Result<i64, BrokerError> {
        let append = || {
            let topic = self.replicas.controller().share_state_topic()?;
            let partition = topic
                .partition(self.partition_for(&key.coordinator_key()))
                .ok_or_else(|| BrokerError::unknown_topic(SHARE_GROUP_STATE))?;
            self.replicas
                .append_records(partition, &[record], &BatchParams::default())
        };
        let what = || format!("writing the state of share group {}", key.group_id);
        match append() {
            Ok(offset) => {
                self.replicas.failures().succeeded(what);
                Ok(offset)
            }
            Err(error) => {
                self.replicas.failures().failed(what(), &error);
                Err(error)
            }
        }
    }

    /// What the log holds.
    pub(super) fn read_states(&self) -> Result<States, BrokerError> {
        let mut states = States::default();
        let topic = self.replicas.topic(SHARE_GROUP_STATE).ok();
        let mut reading = EachLog::new("cannot be read");
        for partition in topic.iter().flat_map(|topic| &topic.partitions) {
            reading.note(partition, self.read_partition(partition, &mut states));
        }
        reading.outcome().map(|()| states)
    }

    /// What a partition of it holds.
    pub(super) fn read_partition(&self, partition: &Partition, states: &mut States) -> Result<(), BrokerError> {
        self.replicas.read_log(partition, |batch| apply(states, batch))
    }
}

fn apply(states: &mut States, batch: &RecordBatch) -> Result<(), RecordError> {
    if batch.header().is_control() {
        return Ok(());
    }
    let slice = batch.records(DECOMPRESSION_LIMIT)?;
    let mut cursor = RecordCursor::new();
    while let Some(record) = cursor.next(&slice)? {
        let Some(key) = record.key else { continue };
        if replay(states, key, record.value, record.offset).is_none() {
            log::warn!(
                "{SHARE_GROUP_STATE}: the record at offset {} has an unknown format and is skipped",
                record.offset
            );
        }
    }
    Ok(())
}

/// Applies a record; `None`: it cannot be read.
fn replay(states: &mut States, key: &[u8], value: Option<&[u8]>, offset: i64) -> Option<()> {
    let value = value.map(Bytes::copy_from_slice);
    match ShareGroupStateKey::decode(Bytes::copy_from_slice(key)).ok()? {
        ShareGroupStateKey::Snapshot(key) => {
            let key = SharePartitionKey {
                group_id: key.group_id,
                topic_id: key.topic_id,
                partition: key.partition,
            };
            match value {
                Some(value) => {
                    let state = ShareGroupOffset::of_snapshot(ShareSnapshotValue::decode(value).ok()?, offset);
                    states.insert(key, state);
                }
                None => {
                    states.remove(&key);
                }
            }
        }
        ShareGroupStateKey::Update(key) => {
            let key = SharePartitionKey {
                group_id: key.group_id,
                topic_id: key.topic_id,
                partition: key.partition,
            };
            let update = ShareUpdateValue::decode(value?).ok()?;
            // Without a snapshot the share partition has been deleted, or its snapshot could not be read.
            if let Some(state) = states.get_mut(&key)
                && !planted!("share-updates-not-loaded")
            {
                *state = state.updated(&update);
            }
        }
        ShareGroupStateKey::Other(_) => return None,
    }
    Some(())
}
