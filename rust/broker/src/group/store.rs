//! Groups and offsets in `__consumer_offsets`: writing them, and reading them back. Kafka: `GroupMetadataManager`.

use fletchlog_api::ErrorCode;
use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{BatchParams, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError, TopicPartition};

use super::coordinator::Groups;
use super::records::{self, Key};
use super::state::{CommittedOffset, Group};
use crate::coordinator_log::CoordinatorRecord;
use crate::partition::Partition;
use crate::sync::lock;
use crate::topics::CONSUMER_OFFSETS;
use crate::{Broker, BrokerError};

impl Broker {
    /// Writes the group's record. Nothing is written by a read-only broker: its groups live in memory.
    pub(super) fn store_group(&self, group: &Group) -> Result<(), BrokerError> {
        if self.is_read_only() {
            return Ok(());
        }
        let value = records::group_value(group, self.clock.now_ms());
        let record = (records::group_key(&group.id), Some(value));
        let stored = self.store_records(&group.id, &[record], &BatchParams::default());
        let what = || format!("storing group {}", group.id);
        match &stored {
            Ok(_) => self.failures.succeeded(what),
            Err(error) => self.failures.failed(what(), error),
        }
        stored.map(drop)
    }

    /// Appends one batch of records to the group's partition; returns the offset of the first.
    pub(super) fn store_records(
        &self,
        group_id: &str,
        records: &[CoordinatorRecord],
        params: &BatchParams,
    ) -> Result<i64, BrokerError> {
        let topic = self.offsets_topic()?;
        let partition = topic
            .partition(self.offsets_partition(group_id))
            .ok_or_else(|| BrokerError::unknown_topic(CONSUMER_OFFSETS))?;
        self.append_records(partition, records, params)
    }

    /// Reads what the group's partition holds, once; a read-only broker reads on, in every partition there is.
    ///
    /// # Errors
    /// KAFKA_STORAGE_ERROR: answering as if nothing were committed would send consumers back to auto.offset.reset.
    pub(super) fn load_group(&self, groups: &mut Groups, group_id: &str) -> Result<(), ErrorCode> {
        let topic = self.topic(CONSUMER_OFFSETS).ok();
        if self.is_read_only() {
            return topic
                .iter()
                .flat_map(|t| &t.partitions)
                .try_for_each(|p| self.load_partition(groups, p));
        }
        let number = self.offsets_partition(group_id);
        if groups.loaded.contains_key(&number) {
            return Ok(());
        }
        match topic.as_ref().and_then(|t| t.partition(number)) {
            Some(partition) => self.load_partition(groups, partition),
            // Nothing was ever written; what will be is known here already.
            None => {
                groups.loaded.insert(number, 0);
                Ok(())
            }
        }
    }

    /// Loads every partition there is.
    pub(super) fn load_all_groups(&self, groups: &mut Groups) -> Result<(), ErrorCode> {
        let topic = self.topic(CONSUMER_OFFSETS).ok();
        for partition in topic.iter().flat_map(|t| &t.partitions) {
            if !groups.loaded.contains_key(&partition.tp().partition) {
                self.load_partition(groups, partition)?;
            }
        }
        Ok(())
    }

    fn load_partition(&self, groups: &mut Groups, partition: &Partition) -> Result<(), ErrorCode> {
        let number = partition.tp().partition;
        if partition.opened_log().is_none() && !self.directory.fs().exists(partition.dir()) {
            if !self.is_read_only() {
                groups.loaded.insert(number, 0);
            }
            return Ok(());
        }
        let from = groups.loaded.get(&number).copied().unwrap_or(0);
        let with_groups = !self.is_read_only();
        match self.read_records(partition, from, |batch| {
            self.apply_batch(groups, number, batch, with_groups)
        }) {
            Ok(next) => {
                groups.loaded.insert(number, next);
                Ok(())
            }
            Err(error) => {
                log::error!("{} could not be loaded: {error}", partition.tp());
                Err(ErrorCode::KAFKA_STORAGE_ERROR)
            }
        }
    }

    fn apply_batch(
        &self,
        groups: &mut Groups,
        partition: i32,
        batch: &RecordBatch,
        with_groups: bool,
    ) -> Result<(), RecordError> {
        let header = batch.header();
        let slice = batch.records(DECOMPRESSION_LIMIT)?;
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&slice)? {
            let Some(key) = record.key else { continue };
            if header.is_control() {
                if let Some(marker) = parse_control_record(key, record.value) {
                    let committed = marker.control_type == ControlType::Commit;
                    self.end_transaction(groups, partition, header.producer_id, committed);
                }
                continue;
            }
            match records::parse_key(key) {
                Some(Key::Offset(group_id, tp)) => {
                    let offset = match record.value {
                        None => None,
                        Some(value) => match records::parse_offset(value, record.offset) {
                            Some(offset) => Some(offset),
                            None => {
                                log::warn!(
                                    "an offset of group {group_id} for {tp} has an unknown format and is skipped"
                                );
                                continue;
                            }
                        },
                    };
                    let group = groups
                        .by_id
                        .entry(group_id.clone())
                        .or_insert_with(|| Group::new(group_id));
                    if header.is_transactional() {
                        group
                            .pending_txn_offsets
                            .entry(header.producer_id)
                            .or_default()
                            .insert(tp, offset);
                    } else {
                        apply_offset(group, tp, offset);
                    }
                }
                Some(Key::Group(group_id)) if with_groups => match record.value.and_then(records::parse_group) {
                    Some(value) => {
                        let group = groups
                            .by_id
                            .entry(group_id.clone())
                            .or_insert_with(|| Group::new(group_id));
                        // Its members lived in another run of the broker: the group is empty, the generation goes on.
                        group.generation = value.generation;
                        group.protocol_type = Some(value.protocol_type).filter(|t| !t.is_empty());
                        group.state_timestamp_ms = value.timestamp_ms;
                    }
                    None if record.value.is_none() => {
                        if groups
                            .by_id
                            .get(&group_id)
                            .is_some_and(|g| g.offsets.is_empty() && g.pending_txn_offsets.is_empty())
                        {
                            groups.by_id.remove(&group_id);
                        }
                    }
                    None => log::warn!("group {group_id} has an unknown format and is skipped"),
                },
                Some(Key::Group(_) | Key::Other(_)) => {}
                None => log::warn!(
                    "a record of __consumer_offsets at offset {} has an unknown key",
                    record.offset
                ),
            }
        }
        Ok(())
    }

    /// A marker decides about the offsets that its producer has written to this partition since the last one.
    fn end_transaction(&self, groups: &mut Groups, partition: i32, producer_id: i64, committed: bool) {
        for group in groups.by_id.values_mut() {
            if !group.pending_txn_offsets.contains_key(&producer_id) || self.offsets_partition(&group.id) != partition {
                continue;
            }
            let pending = group.pending_txn_offsets.remove(&producer_id).unwrap_or_default();
            if committed {
                for (tp, offset) in pending {
                    apply_pending(group, tp, offset);
                }
            }
        }
    }

    /// The marker of a transaction was written to a partition of `__consumer_offsets`.
    /// Kafka: `GroupCoordinator#scheduleHandleTxnCompletion`.
    pub(crate) fn complete_pending_offsets(&self, partition: i32, producer_id: i64, committed: bool) {
        let mut groups = lock(&self.groups.state);
        self.end_transaction(&mut groups, partition, producer_id, committed);
    }
}

fn apply_offset(group: &mut Group, tp: TopicPartition, offset: Option<CommittedOffset>) {
    match offset {
        Some(offset) => {
            group.offsets.insert(tp, offset);
        }
        None => {
            group.offsets.remove(&tp);
        }
    }
}

/// Kafka: `GroupMetadata#completePendingTxnOffsetCommit`: what was committed after it stands.
fn apply_pending(group: &mut Group, tp: TopicPartition, offset: Option<CommittedOffset>) {
    let newer = match (group.offsets.get(&tp), &offset) {
        (Some(current), Some(pending)) => current.record_offset < pending.record_offset,
        _ => true,
    };
    if newer {
        apply_offset(group, tp, offset);
    }
}
