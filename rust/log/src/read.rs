//! Reading (spec 6.2-6.4). Kafka: `LocalLog#read`, `LogSegment#read`.

use bytes::Bytes;

use crate::batch_walk::{OFFSETS_SIZE, OffsetOrder, offsets_in};
use crate::partition_log::PartitionLog;
use crate::segment::Found;
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
        let view = self.view()?;
        let mut result = self.read_view(&view, offset, max_bytes, min_one_message, bound);
        // A segment was deleted or replaced between the look at the view and the opening of its file, by the writer that
        // this log is read beside: first what it has appended and deleted is looked at, then everything.
        for look in [Self::catch_up, Self::load_again] {
            match result {
                Err(LogError::Io { ref source, .. }) if source.kind() == std::io::ErrorKind::NotFound => look(self)?,
                other => return other,
            }
            result = self.read_view(&self.view()?, offset, max_bytes, min_one_message, bound);
        }
        result
    }

    fn read_view(
        &self,
        view: &View,
        offset: i64,
        max_bytes: usize,
        min_one_message: bool,
        bound: FetchBound,
    ) -> Result<FetchDataInfo, LogError> {
        if offset > view.log_end_offset || offset < view.log_start_offset {
            return Err(LogError::OffsetOutOfRange {
                partition: self.tp.to_string(),
                offset,
                start: view.log_start_offset,
                end: view.log_end_offset,
            });
        }
        let aborted = (bound == FetchBound::LastStableOffset).then(Vec::new);
        let empty = |segment_base_offset, position| FetchDataInfo {
            records: Bytes::new(),
            segment_base_offset,
            position,
            aborted_transactions: aborted.clone(),
        };
        let bound_offset = view.bound(bound);
        if offset >= bound_offset {
            return Ok(empty(view.segments.active().base_offset, view.active_size));
        }
        let segments = view.segments.floor_and_after(offset);
        for (i, segment) in segments.iter().enumerate() {
            let size = view.size_of(segment);
            if size == 0 {
                continue;
            }
            self.index_cache.touch(segment);
            // Behind the last batch of a segment (a gap that compaction left): the next segment has the answer.
            let Some(Found {
                batch: first,
                is_behind_gap,
            }) = segment.find(offset, size)?
            else {
                continue;
            };
            let next = segments.get(i + 1);
            let ends_here =
                bound_offset < view.log_end_offset && next.is_none_or(|next| bound_offset < next.base_offset);
            // Bounds are batch boundaries.
            let end = if ends_here {
                segment
                    .translate_offset(bound_offset, size)?
                    .map_or(size, |batch| batch.position)
            } else {
                size
            };
            if first.position >= end {
                return Ok(empty(segment.base_offset, first.position));
            }
            let first_size = first.header.size_in_bytes();
            let limit = if min_one_message {
                max_bytes.max(first_size)
            } else {
                max_bytes
            };
            let readable = usize::try_from(end - first.position).unwrap_or(usize::MAX);
            let length = readable.min(limit);
            // A slice smaller than its first batch is of no use (spec 6.3).
            if length < first_size {
                return Ok(empty(segment.base_offset, first.position));
            }
            // With the head of the batch behind it, which contradicts a last batch with a wrong offset.
            let mut records = segment.read_at(first.position, readable.min(length + OFFSETS_SIZE))?;
            if records.len() < first_size {
                let reason = "the file was cut while it was read; refresh and read again";
                return Err(LogError::damaged(&segment.files.log, first.position, reason));
            }
            let limit = next.map_or(view.log_end_offset, |next| next.base_offset);
            let order = OffsetOrder::of_segment(segment.base_offset).below(limit);
            if let Err((valid, reason)) = check_order(&records, order, is_behind_gap) {
                if valid == 0 {
                    let reason = format!("{reason}; run verify, or restore the file");
                    return Err(LogError::damaged(&segment.files.log, first.position, reason));
                }
                records.truncate(valid);
            }
            records.truncate(length);
            let aborted_transactions = match bound {
                FetchBound::LastStableOffset => {
                    Some(self.aborted_in(view, i, offset, first.position + records.len() as u64)?)
                }
                _ => None,
            };
            return Ok(FetchDataInfo {
                records,
                segment_base_offset: segment.base_offset,
                position: first.position,
                aborted_transactions,
            });
        }
        Ok(empty(view.segments.active().base_offset, view.active_size))
    }

    /// Aborted transactions that a reader of the slice must know. `index`: of the segment, counted from the floor of the
    /// offset. Kafka: `UnifiedLog#collectAbortedTransactions`, `LogSegment#fetchUpperBoundOffset`.
    fn aborted_in(
        &self,
        view: &View,
        index: usize,
        offset: i64,
        end_position: u64,
    ) -> Result<Vec<(i64, i64)>, LogError> {
        let segments = &view.segments.floor_and_after(offset)[index..];
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
        Ok(found
            .into_iter()
            .map(|txn| (txn.producer_id, txn.first_offset))
            .collect())
    }
}

/// Holds the offsets of a slice against each other. The error tells how many bytes are in order, and what is not: readers get what
/// stands before it first.
fn check_order(records: &[u8], mut order: OffsetOrder, is_behind_gap: bool) -> Result<(), (usize, String)> {
    let mut position = 0;
    // Where a batch behind a gap is: when the next one contradicts it, the gap may be its own wrong offset.
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
