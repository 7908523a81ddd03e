//! Lookup of offsets by time and of the special timestamps (spec 5). Kafka: `UnifiedLog#fetchOffsetByTimestamp`,
//! `LogSegment#findOffsetByTimestamp`.

use std::sync::Arc;

use fletchlog_records::{DECOMPRESSION_LIMIT, RecordCursor};

use crate::batch_walk::{BatchMeta, HeaderWalk, OffsetOrder};
use crate::partition_log::PartitionLog;
use crate::segment::LogSegment;
use crate::sync::read;
use crate::view::View;
use crate::{FetchBound, LogError, TimestampAndOffset};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;

const NOT_FOUND: TimestampAndOffset = TimestampAndOffset {
    timestamp: -1,
    offset: -1,
    leader_epoch: -1,
};

impl PartitionLog {
    /// ListOffsets for one partition, special timestamps included (spec 5): -1 LATEST returns the bound; the results of
    /// lookups at or beyond the bound are not found. The caller refuses special timestamps that it does not support.
    pub fn fetch_offset_by_timestamp(&self, timestamp: i64, bound: FetchBound) -> Result<TimestampAndOffset, LogError> {
        self.unless_gone(self.offset_by_timestamp(timestamp, bound))
    }

    fn offset_by_timestamp(&self, timestamp: i64, bound: FetchBound) -> Result<TimestampAndOffset, LogError> {
        let view = self.view()?;
        let at = |offset: i64, leader_epoch: Option<i32>| TimestampAndOffset {
            timestamp: -1,
            offset,
            leader_epoch: leader_epoch.unwrap_or(-1),
        };
        let found = match timestamp {
            LATEST => return Ok(at(view.bound(bound), read(&self.epochs).latest_epoch())),
            EARLIEST | EARLIEST_LOCAL => {
                let epoch = read(&self.epochs).epoch_for_offset(view.log_start_offset);
                return Ok(at(view.log_start_offset, epoch));
            }
            MAX_TIMESTAMP => self.find_max_timestamp(&view)?,
            ..0 => None,
            _ => self.find_timestamp(&view, timestamp)?,
        };
        Ok(found
            .filter(|found| found.offset < view.bound(bound))
            .unwrap_or(NOT_FOUND))
    }

    /// The first record with the greatest timestamp. Searches below the log start too, as Kafka does.
    fn find_max_timestamp(&self, view: &View) -> Result<Option<TimestampAndOffset>, LogError> {
        let mut best: Option<(&Arc<LogSegment>, i64, i64)> = None;
        for segment in without_empty_last(view) {
            self.index_cache.touch(segment);
            let max = segment.max_timestamp()?;
            if best.is_none_or(|(_, timestamp, _)| max.timestamp > timestamp) {
                best = Some((segment, max.timestamp, max.offset));
            }
        }
        let Some((segment, timestamp, offset)) = best else {
            return Ok(None);
        };
        let position = segment.with_indexes(|indexes| indexes.offset.lookup(offset).position)?;
        self.first_record(
            view,
            segment,
            position,
            i64::MIN,
            |batch| batch.header.max_timestamp == timestamp,
            |t| t == timestamp,
        )
    }

    /// An offset below which no record of the log has a timestamp at or above `target` (ms): usually the first record that
    /// has one, the end of the log if none has. For a reader that checks the timestamps itself.
    ///
    /// Kafka's lookup can end at a segment without a result although later segments have one (a segment whose greatest
    /// timestamp is below the log start, one without timestamps, a damaged one). Then the offset is the start of that
    /// segment.
    ///
    /// # Errors
    /// The log or an index cannot be read.
    pub(crate) fn first_offset_of_times(&self, target: i64) -> Result<i64, LogError> {
        let view = self.view()?;
        // Records without a timestamp have -1, and are in no index.
        if target < 0 {
            return Ok(view.log_start_offset);
        }
        let Some(segment) = self.unless_gone(self.segment_reaching(&view, target))? else {
            return Ok(view.log_end_offset);
        };
        // Damage in a segment is reported when the reader reads it.
        let found = self.find_in_segment(&view, segment, target).ok().flatten();
        Ok(found.map_or(segment.base_offset.max(view.log_start_offset), |found| found.offset))
    }

    /// The lowest offset at or above the log start whose timestamp is at or above the target.
    fn find_timestamp(&self, view: &View, target: i64) -> Result<Option<TimestampAndOffset>, LogError> {
        match self.segment_reaching(view, target)? {
            Some(segment) => self.find_in_segment(view, segment, target),
            None => Ok(None),
        }
    }

    /// The first segment at or above the log start whose largest timestamp is at or above the target.
    fn segment_reaching<'a>(&self, view: &'a View, target: i64) -> Result<Option<&'a Arc<LogSegment>>, LogError> {
        let segments = view.segments.as_slice();
        for (i, segment) in without_empty_last(view).iter().enumerate() {
            // A segment wholly below the log start has nothing to find (it hides what follows from a Kafka broker).
            if segments
                .get(i + 1)
                .is_some_and(|next| next.base_offset <= view.log_start_offset)
            {
                continue;
            }
            self.index_cache.touch(segment);
            // Without timestamps the file's modification time decides, although such records are never found (Kafka's rule).
            if segment.largest_timestamp()? >= target {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    /// The first such record in a segment.
    fn find_in_segment(
        &self,
        view: &View,
        segment: &LogSegment,
        target: i64,
    ) -> Result<Option<TimestampAndOffset>, LogError> {
        let start = view.log_start_offset;
        let position = segment.with_indexes(|indexes| {
            let entry = indexes.time.lookup(target);
            indexes.offset.lookup(entry.offset.max(start)).position
        })?;
        self.first_record(
            view,
            segment,
            position,
            start,
            |batch| batch.header.max_timestamp >= target,
            |t| t >= target,
        )
    }

    /// The first matching record at or above `start` in the matching batches from `position` on. Kafka:
    /// `FileRecords#searchForTimestamp`.
    fn first_record(
        &self,
        view: &View,
        segment: &LogSegment,
        position: u64,
        start: i64,
        batch_matches: impl Fn(&BatchMeta) -> bool,
        matches: impl Fn(i64) -> bool,
    ) -> Result<Option<TimestampAndOffset>, LogError> {
        let file = segment.file()?;
        let mut walk = HeaderWalk::new(&*file, position, view.size_of(segment))
            .in_order(OffsetOrder::of_segment(segment.base_offset));
        loop {
            let meta = match walk.next().map_err(|e| segment.io("read", e))? {
                Ok(meta) => meta,
                Err(why) => {
                    why.unless_disorder(&segment.files.log, walk.position())?;
                    return Ok(None);
                }
            };
            if !batch_matches(&meta) {
                continue;
            }
            let batch = segment.read_batch(&meta)?;
            let slice = batch.records(DECOMPRESSION_LIMIT)?;
            let too_large = self.config().first_too_large(&meta.header, &slice);
            let mut cursor = RecordCursor::new();
            loop {
                if let Some((index, limit)) = too_large.filter(|(index, _)| *index == cursor.returned()) {
                    return Err(slice.too_large(index, limit).into());
                }
                let Some(record) = cursor.next(&slice)? else {
                    break;
                };
                if record.offset >= start && matches(record.timestamp) {
                    let leader_epoch = slice.leader_epoch;
                    return Ok(Some(TimestampAndOffset {
                        timestamp: record.timestamp,
                        offset: record.offset,
                        leader_epoch,
                    }));
                }
            }
        }
    }
}

/// All segments except an empty last one, which has nothing to find and, beside a writer, may have no file. Other empty
/// segments stay: by their modification time they may hide what follows, as in a Kafka broker.
fn without_empty_last(view: &View) -> &[Arc<LogSegment>] {
    match view.segments.as_slice().split_last() {
        Some((_, rest)) if view.active_size == 0 => rest,
        _ => view.segments.as_slice(),
    }
}
