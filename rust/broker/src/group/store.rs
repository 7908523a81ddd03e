//! Groups and offsets in `__consumer_offsets`: writing them, and reading them back. Kafka: `GroupMetadataManager`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::ErrorCode;
use fletchlog_protocol::Value;
use fletchlog_protocol::values::{ConsumerOffsetsKey, GroupMetadataValue};
use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{
    BatchHeader, BatchParams, DECOMPRESSION_LIMIT, Record, RecordBatch, RecordCursor, RecordError, TopicPartition,
    planted,
};
use rustc_hash::FxHashMap;

use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::records;
use super::share::ShareRecord;
use super::state::{CommittedOffset, Group, GroupState, PendingOffsets};
use crate::BrokerError;
use crate::partition::Partition;
use crate::replica_manager::CoordinatorRecord;
use crate::topic_names::CONSUMER_OFFSETS;

impl GroupCoordinator {
    /// Writes the group's record. A read-only broker writes nothing: its groups are in memory only.
    pub(super) fn store_group(&self, group: &mut Group) -> Result<(), BrokerError> {
        if self.replicas.is_read_only() {
            return Ok(());
        }
        let record = records::group_record(group, self.replicas.clock().now_ms());
        let stored = record
            .map_err(BrokerError::from)
            .and_then(|record| self.store_records(&group.id, &[record], &BatchParams::default()));
        let what = || format!("storing group {}", group.id);
        match &stored {
            Ok(_) => {
                self.replicas.failures().succeeded(what);
                group.is_stored = true;
            }
            Err(error) => self.replicas.failures().failed(what(), error),
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
        let topic = self.replicas.controller().offsets_topic()?;
        let partition = topic
            .partition(self.partition_for(group_id))
            .ok_or_else(|| BrokerError::unknown_topic(CONSUMER_OFFSETS))?;
        self.replicas.append_records(partition, records, params)
    }

    /// Loads the group's partition, once; a read-only broker loads what was added to any partition since its last load.
    ///
    /// # Errors
    /// KAFKA_STORAGE_ERROR: a response without offsets would send consumers back to auto.offset.reset.
    pub(super) fn load_group(&self, group_id: &str) -> Result<(), ErrorCode> {
        let mut loaded = self.loaded.lock();
        let topic = self.replicas.topic(CONSUMER_OFFSETS).ok();
        if self.replicas.is_read_only() {
            let mut partitions = topic.iter().flat_map(|t| &t.partitions);
            return partitions.try_for_each(|p| self.load_partition(&mut loaded, p));
        }
        let number = self.partition_for(group_id);
        if loaded.contains_key(&number) {
            return Ok(());
        }
        match topic.as_ref().and_then(|t| t.partition(number)) {
            Some(partition) => self.load_partition(&mut loaded, partition)?,
            // Nothing was ever written, and what this broker writes later is in memory anyway.
            None => {
                loaded.insert(number, 0);
            }
        }
        drop(loaded);
        self.on_loaded();
        Ok(())
    }

    /// Loads every partition that is not loaded yet; one that cannot be read does not stop the others.
    ///
    /// # Errors
    /// The error of the first partition that cannot be read.
    pub(super) fn load_all_groups(&self) -> Result<(), ErrorCode> {
        let mut loaded = self.loaded.lock();
        let topic = self.replicas.topic(CONSUMER_OFFSETS).ok();
        let before = loaded.len();
        let mut all = Ok(());
        for partition in topic.iter().flat_map(|t| &t.partitions) {
            if !loaded.contains_key(&partition.tp().partition) {
                all = all.and(self.load_partition(&mut loaded, partition));
            }
        }
        if loaded.len() > before {
            drop(loaded);
            self.on_loaded();
        }
        all
    }

    pub(super) fn load_partition(
        &self,
        loaded: &mut FxHashMap<i32, i64>,
        partition: &Partition,
    ) -> Result<(), ErrorCode> {
        let number = partition.tp().partition;
        let read_only = self.replicas.is_read_only();
        if !self.replicas.has_directory(partition) {
            if !read_only {
                loaded.insert(number, 0);
            }
            return Ok(());
        }
        let from = loaded.get(&number).copied().unwrap_or(0);
        match self
            .replicas
            .read_records(partition, from, |batch| self.apply_batch(number, batch))
        {
            Ok(next) => {
                loaded.insert(number, next);
                Ok(())
            }
            Err(error) => {
                log::error!("{} could not be loaded: {error}", partition.tp());
                Err(ErrorCode::KAFKA_STORAGE_ERROR)
            }
        }
    }

    /// Applies a batch of `__consumer_offsets`. Kafka: `GroupMetadataManager#doLoadGroupsAndOffsets`.
    fn apply_batch(&self, partition: i32, batch: &RecordBatch) -> Result<(), RecordError> {
        let header = batch.header();
        let slice = batch.records(DECOMPRESSION_LIMIT)?;
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&slice)? {
            let Some(key) = record.key else { continue };
            if header.is_control() {
                if let Some(marker) = parse_control_record(key, record.value)
                    && !planted!("markers-of-offsets-not-loaded")
                {
                    let committed = marker.control_type == ControlType::Commit;
                    self.complete_pending_offsets(partition, header.producer_id, committed);
                }
                continue;
            }
            match ConsumerOffsetsKey::decode(Bytes::copy_from_slice(key)) {
                Ok(ConsumerOffsetsKey::Offset(key)) => {
                    let tp = TopicPartition {
                        topic: key.topic,
                        partition: key.partition,
                    };
                    self.apply_offset_record(header, &key.group, tp, &record);
                }
                Ok(ConsumerOffsetsKey::Group(key)) => self.apply_group_record(&key.group, record.value),
                Ok(
                    key @ (ConsumerOffsetsKey::ShareGroupMember(_)
                    | ConsumerOffsetsKey::ShareGroup(_)
                    | ConsumerOffsetsKey::ShareTargetAssignment(_)
                    | ConsumerOffsetsKey::ShareTargetAssignmentMember(_)
                    | ConsumerOffsetsKey::ShareCurrentMemberAssignment(_)
                    | ConsumerOffsetsKey::ShareStatePartitions(_)),
                ) => match ShareRecord::decode(key, record.value) {
                    Ok(Some((group_id, record))) => self.apply_share_record(&group_id, &record),
                    Ok(None) => {}
                    Err(error) => log::warn!("a record of a share group cannot be read and is skipped: {error}"),
                },
                Ok(key) => match ConsumerRecord::decode(key, record.value) {
                    Ok(Some((group_id, record))) => self.apply_consumer_record(&group_id, &record),
                    Ok(None) => {}
                    Err(error) => log::warn!("a record of a consumer group cannot be read and is skipped: {error}"),
                },
                Err(_) => log::warn!(
                    "a record of __consumer_offsets at offset {} has an unknown key",
                    record.offset
                ),
            }
        }
        Ok(())
    }

    fn apply_offset_record(&self, header: &BatchHeader, group_id: &Arc<str>, tp: TopicPartition, record: &Record<'_>) {
        let parsed = record
            .value
            .map(|value| records::committed_offset(value, record.offset));
        let Ok(offset) = parsed.transpose() else {
            log::warn!("an offset of group {group_id} for {tp} has an unknown format and is skipped");
            return;
        };
        if offset.is_none() && !header.is_transactional() {
            self.in_group(group_id, |group| group.forget_offsets(std::slice::from_ref(&tp)));
            return;
        }
        self.in_new_group(group_id, |group| {
            group.is_stored = true;
            if header.is_transactional() {
                self.add_group_for_producer(group, header.producer_id)
                    .insert(tp, offset);
            } else {
                apply_offset(group, tp, offset);
            }
        });
    }

    /// Restores a group of an earlier run. Kafka: `GroupMetadataManager#replay` of `GroupMetadataValue`.
    ///
    /// A read-only broker takes over the protocol type only: the members belong to the broker that writes the records.
    fn apply_group_record(&self, group_id: &Arc<str>, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.in_group(group_id, |group| {
                group.end_classic();
                let is_used = !group.members.is_empty() || !group.pending_members.is_empty();
                if group.with_offsets().next().is_none() && !is_used {
                    self.remove_group(group);
                }
            });
            return;
        };
        let Ok(value) = GroupMetadataValue::decode(Bytes::copy_from_slice(value)) else {
            log::warn!("group {group_id} has an unknown format and is skipped");
            return;
        };
        let now_ms = self.replicas.clock().monotonic_ms();
        self.in_new_group(group_id, |group| {
            if !self.replicas.is_read_only() {
                group.is_stored = true;
                group.load(value, now_ms);
            } else if group.members.is_empty() {
                group.protocol_type = Some(value.protocol_type).filter(|t| !t.is_empty());
            }
        });
    }

    /// Restores a consumer group of an earlier run. Kafka: `GroupMetadataManager#replay` of its values.
    ///
    /// A read-only broker takes over that the group exists only: the members belong to the broker that writes the records.
    fn apply_consumer_record(&self, group_id: &Arc<str>, record: &ConsumerRecord) {
        let is_end = matches!(record, ConsumerRecord::Epoch(None));
        if self.replicas.is_read_only() && !matches!(record, ConsumerRecord::Epoch(_)) {
            return;
        }
        if record.is_tombstone() {
            self.in_group(group_id, |group| {
                let Some(consumer) = &mut group.consumer else { return };
                consumer.replay(record);
                if is_end {
                    group.consumer = None;
                    if group.with_offsets().next().is_none() {
                        self.remove_group(group);
                    }
                }
            });
            return;
        }
        self.in_new_group(group_id, |group| {
            group.is_stored = true;
            if group.consumer.is_none() {
                group.end_classic();
            }
            group.consumer.get_or_insert_default().replay(record);
        });
    }

    /// Restores a share group of an earlier run. Kafka: `GroupMetadataManager#replay` of its values.
    ///
    /// A read-only broker takes over that the group exists, and which partitions have a state: the members belong to the broker that writes
    /// the records.
    fn apply_share_record(&self, group_id: &Arc<str>, record: &ShareRecord) {
        let is_kept = matches!(record, ShareRecord::Epoch(_) | ShareRecord::Partitions(_));
        if self.replicas.is_read_only() && !is_kept {
            return;
        }
        if record.is_tombstone() {
            let is_end = matches!(record, ShareRecord::Epoch(None));
            self.in_group(group_id, |group| {
                let Some(share) = &mut group.share else { return };
                share.replay(record);
                if is_end {
                    group.share = None;
                    if group.with_offsets().next().is_none() {
                        self.remove_group(group);
                    }
                }
            });
            return;
        }
        self.in_new_group(group_id, |group| {
            group.is_stored = true;
            group.share.get_or_insert_default().replay(record);
        });
    }

    /// Called after loading: removes members whose sessions are over, and rebalances groups that are too large. Kafka:
    /// `GroupMetadataManager#onLoaded`.
    pub(super) fn on_loaded(&self) {
        let now_ms = self.replicas.clock().monotonic_ms();
        let session_timeout_ms = |group_id: &str| self.group_config(group_id, "consumer.session.timeout.ms");
        self.in_idle_groups(|group| {
            if let Some(consumer) = &mut group.consumer {
                consumer.start_timers(now_ms, || session_timeout_ms(&group.id));
            }
            if let Some(share) = &mut group.share {
                share.start_timers(now_ms, self.share_session_timeout_ms(&group.id));
            }
            if group.members.len() > self.max_size && group.state == GroupState::Stable {
                self.rebalance(group, now_ms);
            }
        });
        self.tick(now_ms);
    }

    /// The offsets of a producer's open transaction, to add to. Kafka: `GroupMetadataManager#addProducerGroup`.
    pub(super) fn add_group_for_producer<'a>(&self, group: &'a mut Group, producer_id: i64) -> &'a mut PendingOffsets {
        let mut open = self.open_groups_for_producer.lock();
        open.entry(producer_id).or_default().insert(group.id.clone());
        group.pending_txn_offsets.entry(producer_id).or_default()
    }

    /// Called after a transaction's marker was written to a partition of `__consumer_offsets`: commits or drops the offsets that the
    /// producer has written there since its previous marker. Kafka: `GroupCoordinator#scheduleHandleTxnCompletion`.
    pub(crate) fn complete_pending_offsets(&self, partition: i32, producer_id: i64, committed: bool) {
        let of_partition = {
            let mut open = self.open_groups_for_producer.lock();
            let groups = open.remove(&producer_id).unwrap_or_default();
            let (of_partition, others): (BTreeSet<_>, BTreeSet<_>) =
                groups.into_iter().partition(|id| self.partition_for(id) == partition);
            if !others.is_empty() {
                open.insert(producer_id, others);
            }
            of_partition
        };
        for id in of_partition {
            self.in_group(&id, |group| {
                let pending = group.pending_txn_offsets.remove(&producer_id).unwrap_or_default();
                for (tp, offset) in pending.into_iter().filter(|_| committed) {
                    apply_pending(group, tp, offset);
                }
            });
        }
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

/// Kafka: `GroupMetadata#completePendingTxnOffsetCommit`: what was committed after it stays.
fn apply_pending(group: &mut Group, tp: TopicPartition, offset: Option<CommittedOffset>) {
    let newer = match (group.offsets.get(&tp), &offset) {
        (Some(current), Some(pending)) => current.record_offset < pending.record_offset,
        _ => true,
    };
    if newer {
        apply_offset(group, tp, offset);
    }
}
