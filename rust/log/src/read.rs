//! Reading (spec 6.2-6.4). Kafka: `LocalLog#read`, `LogSegment#read`.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch_walk::{OFFSETS_SIZE, OffsetOrder, offsets_in};
use crate::partition_log::PartitionLog;
use crate::segment::LogSegment;
use crate::view::View;
use crate::{FetchBound, FetchDataInfo, LogError};

impl PartitionLog {
    /// Reads at most `max_bytes` (at least one batch if `min_one_message`) from `offset`, below the bound, from one
    /// segment (spec 6.2-6.4). `offset` at the bound or beyond (up to the log end): empty. Out of range: error.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        min_one_message: bool,
        bound: FetchBound,
    ) -> Result<FetchDataInfo, LogError> {
        let fetch = Fetch {
            offset,
            max_bytes,
            min_one_message,
            bound,
        };
        self.unless_gone(self.read_beside_writer(fetch))
    }

    fn read_beside_writer(&self, fetch: Fetch) -> Result<FetchDataInfo, LogError> {
        let mut result = self.read_view(&self.view()?, fetch);
        // The writer may have deleted or replaced a segment after the view was taken and before its file was opened: catch up with its
        // changes, and if that does not help, reload the directory.
        let retries = [Self::catch_up, Self::load_again, Self::load_again, Self::load_again];
        for retry in retries.into_iter().filter(|_| self.is_beside_writer()) {
            match result {
                Err(ref error) if error.is_not_found() => {}
                Err(LogError::Damaged { .. }) if self.has_other_files()? => {}
                other => return other,
            }
            retry(self)?;
            result = self.read_view(&self.view()?, fetch);
        }
        result
    }

    fn read_view(&self, view: &View, fetch: Fetch) -> Result<FetchDataInfo, LogError> {
        if !(view.log_start_offset..=view.log_end_offset).contains(&fetch.offset) {
            return Err(LogError::OffsetOutOfRange {
                partition: self.tp.to_string(),
                offset: fetch.offset,
                start: view.log_start_offset,
                end: view.log_end_offset,
            });
        }
        if fetch.offset < view.bound(fetch.bound) {
            let segments = view.segments.floor_and_after(fetch.offset);
            for i in 0..segments.len() {
                if let Some(info) = self.read_segment(view, &segments[i..], fetch)? {
                    return Ok(info);
                }
            }
        }
        Ok(fetch.nothing_at(view.segments.active().base_offset, view.active_size))
    }

    /// Reads from the first of the segments. `None`: the offset is after its last batch, in a gap left by compaction, so the
    /// read continues in the next segment.
    fn read_segment(
        &self,
        view: &View,
        segments: &[Arc<LogSegment>],
        fetch: Fetch,
    ) -> Result<Option<FetchDataInfo>, LogError> {
        let segment = &segments[0];
        let size = view.size_of(segment);
        if size == 0 {
            return Ok(None);
        }
        self.index_cache.touch(segment);
        let Some(found) = segment.find(fetch.offset, size)? else {
            return Ok(None);
        };
        let (position, first_size) = (found.batch.position, found.batch.header.size_in_bytes());
        let end = end_position(view, segments, fetch.bound, size)?;
        let readable = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let at_least = if fetch.min_one_message { first_size } else { 0 };
        let length = readable.min(fetch.max_bytes.max(at_least));
        // A slice smaller than its first batch is useless (spec 6.3).
        if length < first_size {
            return Ok(Some(fetch.nothing_at(segment.base_offset, position)));
        }
        // The head of the next batch is read too: it shows whether the last batch of the slice has a wrong offset.
        let mut records = segment.read_at(position, readable.min(length + OFFSETS_SIZE))?;
        if records.len() < first_size {
            let reason = "the file was cut while it was read; refresh and read again";
            return Err(LogError::damaged(&segment.files.log, position, reason));
        }
        let limit = segments.get(1).map_or(view.log_end_offset, |next| next.base_offset);
        let order = OffsetOrder::of_segment(segment.base_offset).below(limit);
        if let Err((valid, reason)) = check_order(&records, order, found.is_behind_gap) {
            if valid == 0 {
                let reason = format!("{reason}; run verify, or restore the file");
                return Err(LogError::damaged(&segment.files.log, position, reason));
            }
            records.truncate(valid);
        }
        records.truncate(length);
        let end = position + records.len() as u64;
        let lists_aborted = fetch.bound == FetchBound::LastStableOffset;
        let aborted = lists_aborted.then(|| collect_aborted_transactions(view, segments, fetch.offset, end));
        Ok(Some(FetchDataInfo {
            records,
            segment_base_offset: segment.base_offset,
            position,
            aborted_transactions: aborted.transpose()?,
        }))
    }
}

/// The arguments of a read.
#[derive(Clone, Copy)]
struct Fetch {
    offset: i64,
    max_bytes: usize,
    min_one_message: bool,
    bound: FetchBound,
}

impl Fetch {
    fn nothing_at(self, segment_base_offset: i64, position: u64) -> FetchDataInfo {
        FetchDataInfo {
            records: Bytes::new(),
            segment_base_offset,
            position,
            aborted_transactions: (self.bound == FetchBound::LastStableOffset).then(Vec::new),
        }
    }
}

/// Position of the bound in the first of the segments, which has `size` bytes; its end if the bound is not in it. Bounds are
/// batch boundaries.
fn end_position(view: &View, segments: &[Arc<LogSegment>], bound: FetchBound, size: u64) -> Result<u64, LogError> {
    let bound = view.bound(bound);
    let is_behind = segments.get(1).is_some_and(|next| bound >= next.base_offset);
    if bound >= view.log_end_offset || is_behind {
        return Ok(size);
    }
    let batch = segments[0].translate_offset(bound, size)?;
    Ok(batch.map_or(size, |batch| batch.position))
}

/// Producer id and first offset of the aborted transactions that a reader of a slice must know. The slice is in the first of
/// the segments. Kafka: `UnifiedLog#collectAbortedTransactions`, `LogSegment#fetchUpperBoundOffset`.
fn collect_aborted_transactions(
    view: &View,
    segments: &[Arc<LogSegment>],
    offset: i64,
    end_position: u64,
) -> Result<Vec<(i64, i64)>, LogError> {
    let next_base = segments.get(1).map(|next| next.base_offset);
    let upper_bound = segments[0]
        .upper_bound(end_position)?
        .map(|entry| entry.offset)
        .or(next_base)
        .unwrap_or(view.log_end_offset);
    let mut found = Vec::new();
    for segment in segments {
        if segment.collect_aborted(offset, upper_bound, &mut found) {
            break;
        }
    }
    Ok(found.iter().map(|txn| (txn.producer_id, txn.first_offset)).collect())
}

/// Checks that the offsets of a slice follow each other. The error holds the number of bytes in order, which readers still
/// get, and what is wrong after them.
fn check_order(records: &[u8], mut order: OffsetOrder, is_behind_gap: bool) -> Result<(), (usize, String)> {
    let mut position = 0;
    // Position of a batch that follows a gap: if the next batch contradicts it, the wrong offset may be its own.
    let mut behind_gap = is_behind_gap.then_some(0);
    while let Some((base_offset, last_offset_delta, size)) = records.get(position..).and_then(offsets_in) {
        let expected = order.next();
        let contradicts = base_offset < expected;
        if let Err(reason) = order.accept(base_offset, last_offset_delta) {
            return Err((behind_gap.filter(|_| contradicts).unwrap_or(position), reason));
        }
        if position > 0 {
            behind_gap = (base_offset > expected).then_some(position);
        }
        position += size;
    }
    Ok(())
}
