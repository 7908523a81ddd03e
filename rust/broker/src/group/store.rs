//! Groups and offsets in `__consumer_offsets`: writing them, and reading them back. Kafka: `GroupMetadataManager`.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use fletchlog_log::{AppendError, AppendOrigin, FetchBound};
use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordBatch, RecordCursor, RecordError};

use super::coordinator::Groups;
use super::records::{self, Key};
use super::state::Group;
use crate::partition::Partition;
use crate::topics::CONSUMER_OFFSETS;
use crate::{Broker, BrokerError};

/// Bytes per read while loading: one batch of commits is far smaller, and a bigger batch comes whole anyway.
const LOAD_CHUNK: usize = 1 << 20;
/// Most bytes that a compressed batch of commits may expand to; a broker writes at most max.message.bytes of them.
const MAX_BATCH: usize = 256 << 20;

/// Key and value; a null value is a tombstone.
pub(super) type GroupRecord = (Vec<u8>, Option<Vec<u8>>);

impl Broker {
    /// Writes the group's record. Nothing is written by a read-only broker: its groups live in memory.
    pub(super) fn store_group(&self, group: &Group) -> Result<(), BrokerError> {
        if self.is_read_only() {
            return Ok(());
        }
        let value = records::group_value(group, self.clock.now_ms());
        self.store_records(&group.id, &[(records::group_key(&group.id), Some(value))])
    }

    /// Appends one batch of records to the group's partition.
    pub(super) fn store_records(&self, group_id: &str, records: &[GroupRecord]) -> Result<(), BrokerError> {
        let topic = self.offsets_topic()?;
        let partition = topic
            .partition(self.offsets_partition(group_id))
            .ok_or_else(|| BrokerError::unknown_topic(CONSUMER_OFFSETS))?
            .clone();
        let log = self.log_of(&partition)?;
        let now_ms = self.clock.now_ms();
        let mut builder = BatchBuilder::with_capacity(
            records
                .iter()
                .map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len) + 32)
                .sum(),
        );
        for (key, value) in records {
            builder.append(now_ms, Some(key), value.as_deref(), &[]);
        }
        let batch = builder.build(&BatchParams::default());
        match partition.append(&self.directory, log, batch, AppendOrigin::Coordinator, now_ms) {
            Ok(_) => {
                self.purgatory.check(self, partition.tp());
                Ok(())
            }
            Err(AppendError::Log(error)) => Err(error.into()),
            Err(AppendError::Refused { code, message, .. }) => Err(BrokerError::kafka(
                ErrorCode::from_code(code).unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
                message,
            )),
        }
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
        match self.read_group_records(groups, partition, from) {
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

    fn read_group_records(&self, groups: &mut Groups, partition: &Partition, from: i64) -> Result<i64, BrokerError> {
        let log = self.log_of(partition)?;
        let end = log.high_watermark();
        let mut next = from.max(log.log_start_offset());
        while next < end {
            let data = log.read(next, LOAD_CHUNK, true, FetchBound::HighWatermark)?;
            let before = next;
            for batch in BatchIter::new(data.records) {
                let batch = batch.map_err(fletchlog_log::LogError::from)?;
                next = next.max(batch.header().next_offset());
                if let Err(error) = apply_batch(groups, &batch, !self.is_read_only()) {
                    // One bad batch must not hide the commits behind it.
                    log::error!(
                        "{}: the batch at offset {} is skipped: {error}",
                        partition.tp(),
                        batch.header().base_offset
                    );
                }
            }
            if next == before {
                break;
            }
        }
        Ok(next)
    }
}

fn apply_batch(groups: &mut Groups, batch: &RecordBatch, with_groups: bool) -> Result<(), RecordError> {
    let header = batch.header();
    let slice = batch.records(MAX_BATCH)?;
    let mut cursor = RecordCursor::new();
    while let Some(record) = cursor.next(&slice)? {
        let Some(key) = record.key else { continue };
        if header.is_control() {
            if let Some(marker) = parse_control_record(key, record.value) {
                end_transaction(groups, header.producer_id, marker.control_type == ControlType::Commit);
            }
            continue;
        }
        match records::parse_key(key) {
            Some(Key::Offset(group_id, tp)) => {
                let offset = match record.value {
                    None => None,
                    Some(value) => match records::parse_offset(value) {
                        Some(offset) => Some(offset),
                        None => {
                            log::warn!("an offset of group {group_id} for {tp} has an unknown format and is skipped");
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
                    if groups.by_id.get(&group_id).is_some_and(|g| g.offsets.is_empty()) {
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

fn apply_offset(
    group: &mut Group,
    tp: fletchlog_records::TopicPartition,
    offset: Option<super::state::CommittedOffset>,
) {
    match offset {
        Some(offset) => {
            group.offsets.insert(tp, offset);
        }
        None => {
            group.offsets.remove(&tp);
        }
    }
}

/// A marker decides about the offsets that its producer has written since the last one.
fn end_transaction(groups: &mut Groups, producer_id: i64, committed: bool) {
    for group in groups.by_id.values_mut() {
        let pending: BTreeMap<_, _> = group.pending_txn_offsets.remove(&producer_id).unwrap_or_default();
        if committed {
            for (tp, offset) in pending {
                apply_offset(group, tp, offset);
            }
        }
    }
}
