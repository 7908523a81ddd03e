//! What is kept of one batch (spec 4.4, step 3). Kafka: `Cleaner#cleanInto`, `#shouldRetainRecord`,
//! `MemoryRecords#filterTo`.

use fletchlog_records::planted;
use std::collections::HashMap;
use std::fmt::Display;

use bytes::Bytes;
use fletchlog_records::{
    BatchHeader, DECOMPRESSION_LIMIT, Record, RecordBatch, RecordCursor, RecordError, RecordsSlice, empty_batch,
    retained_batch,
};

use super::offset_map::OffsetMap;
use super::stats::CleanerStats;
use super::transactions::CleanedTransactions;
use crate::batch_walk::BatchMeta;
use crate::segment::LogSegment;
use crate::{LogConfig, LogError};

/// What must stay so that a producer's state can be rebuilt from the log. Kafka: `LastRecord`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastRecord {
    /// `None`: only markers are known.
    pub last_data_offset: Option<i64>,
    pub producer_epoch: i16,
}

impl LastRecord {
    fn is_in(&self, header: &BatchHeader) -> bool {
        match self.last_data_offset {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && header.producer_epoch == self.producer_epoch,
        }
    }
}

pub(super) struct BatchFilter<'a> {
    pub map: &'a OffsetMap,
    pub now_ms: i64,
    pub config: &'a LogConfig,
    pub retain_legacy_deletes: bool,
    pub active: &'a HashMap<i64, LastRecord>,
    /// The batch that ends here keeps at least its header, so that the last offset of the round is not lost.
    pub round_end: i64,
    pub transactions: &'a mut CleanedTransactions,
    pub stats: &'a mut CleanerStats,
}

/// A batch with its records, uncompressed.
pub(super) fn decode(
    segment: &LogSegment,
    meta: &BatchMeta,
    bytes: &Bytes,
    config: &LogConfig,
) -> Result<(RecordBatch, RecordsSlice), LogError> {
    let batch = RecordBatch::parse(bytes)
        .map_err(|e| damaged(segment, meta, e))?
        .ok_or_else(|| damaged(segment, meta, "the batch is incomplete"))?;
    let slice = batch
        .records(DECOMPRESSION_LIMIT)
        .map_err(|e| damaged(segment, meta, e))?;
    match config.first_too_large(batch.header(), &slice) {
        Some((index, limit)) => Err(damaged(segment, meta, slice.too_large(index, limit))),
        None => Ok((batch, slice)),
    }
}

fn damaged(segment: &LogSegment, meta: &BatchMeta, reason: impl Display) -> LogError {
    let reason = format!("{reason}; the log is not cleaned");
    LogError::damaged(&segment.files.log, meta.position, reason)
}

/// Notes the offsets of a batch's keys; false: the map is full.
pub(super) fn map_records(slice: &RecordsSlice, start: i64, map: &mut OffsetMap) -> Result<bool, RecordError> {
    let mut cursor = RecordCursor::new();
    while let Some(record) = cursor.next(slice)? {
        if let Some(key) = record.key
            && record.offset >= start
            && !map.put(key, record.offset)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl BatchFilter<'_> {
    /// The bytes to write in place of a batch and their header, `None` if nothing is kept.
    pub fn apply(
        &mut self,
        segment: &LogSegment,
        meta: &BatchMeta,
        bytes: &Bytes,
    ) -> Result<Option<(BatchHeader, Bytes)>, LogError> {
        let (batch, slice) = decode(segment, meta, bytes, self.config)?;
        let header = batch.header();
        let emptied_marker = header.is_control() && self.transactions.on_control_batch(header, &slice);
        let drop_all = if header.is_control() {
            emptied_marker && self.horizon_has_passed(header)
        } else {
            self.transactions.on_data_batch(header)
        };
        let mut kept: Vec<Record<'_>> = Vec::new();
        let mut count = 0;
        let mut tombstones = false;
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&slice)? {
            count += 1;
            if !drop_all && (header.is_control() || self.keeps(header, &record)) {
                tombstones |= record.value.is_none();
                kept.push(record);
            }
        }
        self.stats.messages_read += count;
        self.stats.messages_written += kept.len() as u64;
        let written = if kept.is_empty() {
            if !self.keeps_header(header) {
                return Ok(None);
            }
            empty_batch(header)
        } else {
            let set_horizon = header.magic >= 2 && (tombstones || emptied_marker) && !header.has_delete_horizon();
            if kept.len() as u64 == count && !set_horizon {
                return Ok(Some((meta.header, bytes.clone())));
            }
            // In an old wrapper each entry has its own offset. Kafka: `MemoryRecordsBuilder#appendWithOffset`.
            if header.magic < 2 && !kept.is_sorted_by(|a, b| a.offset < b.offset) {
                return Err(damaged(segment, meta, "the offsets of an old batch do not increase"));
            }
            let horizon = if set_horizon {
                Some(self.now_ms.saturating_add(self.config.delete_retention_ms))
            } else {
                header.has_delete_horizon().then_some(header.base_timestamp)
            };
            retained_batch(header, &kept, horizon)
        };
        let header = BatchHeader::parse(&written)?;
        Ok(Some((header, written)))
    }

    fn horizon_has_passed(&self, header: &BatchHeader) -> bool {
        header.has_delete_horizon() && header.base_timestamp <= self.now_ms && !planted!("tombstones-stay")
    }

    /// Whether the header stays although no record does.
    fn keeps_header(&self, header: &BatchHeader) -> bool {
        let newest_of_producer = header.has_producer_id()
            && self
                .active
                .get(&header.producer_id)
                .is_some_and(|last| last.is_in(header));
        header.magic >= 2 && (newest_of_producer || header.next_offset() == self.round_end)
    }

    fn keeps(&mut self, header: &BatchHeader, record: &Record<'_>) -> bool {
        if record.offset > self.map.latest_offset() {
            return true;
        }
        let Some(key) = record.key else {
            self.stats.invalid_messages += 1;
            return false;
        };
        let newest = self.map.get(key).is_none_or(|newest| record.offset >= newest);
        newest && (record.value.is_some() || self.keeps_tombstone(header))
    }

    fn keeps_tombstone(&self, header: &BatchHeader) -> bool {
        if header.magic < 2 {
            self.retain_legacy_deletes
        } else {
            !self.horizon_has_passed(header) && !planted!("tombstone-goes-at-once")
        }
    }
}
