//! Which part of a log is cleaned, whether it is worth it, and into how many segments (spec 4.3, 4.4 step 2). Kafka:
//! `LogCleanerManager#cleanableOffsets`, `#calculateCleanableBytes`, `#maxCompactionDelay`, `Cleaner#groupSegmentsBySize`.

use std::ops::Range;
use std::sync::Arc;

use crate::segment::{KEPT_OPEN, LogSegment};
use crate::view::View;
use crate::{LogConfig, LogError, offset_index, time_index};

/// What the cleaner would do with a log now. Kafka: `LogToClean`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleanable {
    /// Everything below was cleaned before.
    pub first_dirty_offset: i64,
    /// Nothing from here on may be cleaned: open transactions, the active segment, min.compaction.lag.ms.
    pub first_uncleanable_offset: i64,
    /// The checkpointed offset is outside of the log.
    pub checkpoint_is_invalid: bool,
    /// Bytes below the dirty part.
    pub clean_bytes: u64,
    /// Bytes of the dirty part.
    pub cleanable_bytes: u64,
    /// max.compaction.lag.ms has passed for a record of the dirty part.
    pub needs_compaction_now: bool,
    /// min.cleanable.dirty.ratio.
    pub min_cleanable_ratio: f64,
}

impl Cleanable {
    /// Share of dirty bytes; 0 for an empty log.
    #[allow(clippy::cast_precision_loss)] // a ratio
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 {
            return 0.0;
        }
        self.cleanable_bytes as f64 / total as f64
    }

    /// Whether Kafka's cleaner would clean it now.
    pub fn is_due(&self) -> bool {
        self.cleanable_bytes > 0 && (self.needs_compaction_now || self.ratio() > self.min_cleanable_ratio)
    }
}

pub(super) fn cleanable(
    view: &View,
    config: &LogConfig,
    last_clean_offset: Option<i64>,
    now_ms: i64,
) -> Result<Cleanable, LogError> {
    let segments = view.segments.as_slice();
    let start = view.log_start_offset;
    let checkpoint = last_clean_offset.unwrap_or(start);
    let checkpoint_is_invalid = checkpoint < start || checkpoint > view.log_end_offset;
    let first_dirty_offset = if checkpoint_is_invalid { start } else { checkpoint };
    let active = view.segments.active().base_offset;
    let mut first_uncleanable_offset = view.last_stable_offset().min(active);
    let dirty = inactive_from(segments, first_dirty_offset);
    if config.min_compaction_lag_ms > 0 {
        for segment in dirty {
            if segment.largest_timestamp()? > now_ms.saturating_sub(config.min_compaction_lag_ms) {
                first_uncleanable_offset = first_uncleanable_offset.min(segment.base_offset);
                break;
            }
        }
    }
    // Whole segments are cleaned: the one that holds the bound is not.
    let first_uncleanable_segment = inactive_from(segments, first_uncleanable_offset.max(first_dirty_offset))
        .first()
        .map_or(active, |segment| segment.base_offset);
    let size = |from: i64, to: i64| -> u64 {
        let from = segments
            .partition_point(|segment| segment.base_offset <= from)
            .saturating_sub(1);
        let to = segments.partition_point(|segment| segment.base_offset < to);
        segments
            .get(from..to)
            .unwrap_or_default()
            .iter()
            .map(|segment| segment.size())
            .sum()
    };
    Ok(Cleanable {
        first_dirty_offset,
        first_uncleanable_offset: first_uncleanable_segment,
        checkpoint_is_invalid,
        clean_bytes: size(-1, first_dirty_offset),
        cleanable_bytes: size(
            first_dirty_offset.min(first_uncleanable_segment),
            first_uncleanable_segment,
        ),
        needs_compaction_now: lag_is_over(dirty, config, now_ms)?,
        min_cleanable_ratio: config.min_cleanable_dirty_ratio,
    })
}

/// Segments from the one that holds `offset` on, without the active one. Kafka: `UnifiedLog#nonActiveLogSegmentsFrom`.
fn inactive_from(segments: &[Arc<LogSegment>], offset: i64) -> &[Arc<LogSegment>] {
    let inactive = &segments[..segments.len() - 1];
    if segments[segments.len() - 1].base_offset <= offset {
        return &[];
    }
    let floor = inactive.partition_point(|segment| segment.base_offset <= offset);
    &inactive[floor.saturating_sub(1)..]
}

fn lag_is_over(dirty: &[Arc<LogSegment>], config: &LogConfig, now_ms: i64) -> Result<bool, LogError> {
    let until = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
    for segment in dirty {
        if segment
            .first_batch_timestamp()?
            .is_some_and(|first| first > 0 && first < until)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ranges of consecutive segments before `end` that fit into one. Kafka: `Cleaner#groupSegmentsBySize`.
pub(super) fn group_segments(
    segments: &[Arc<LogSegment>],
    end: usize,
    config: &LogConfig,
    first_uncleanable_offset: i64,
) -> Result<Vec<Range<usize>>, LogError> {
    let max_size = u64::try_from(config.segment_bytes).unwrap_or(0);
    let max_index = usize::try_from(config.segment_index_bytes).unwrap_or(0);
    let mut groups: Vec<Range<usize>> = Vec::new();
    let (mut size, mut offset_bytes, mut time_bytes) = (0, 0, 0);
    for (i, segment) in segments[..end].iter().enumerate() {
        let (offsets, times) = segment.with_indexes(|indexes| (indexes.offset.len(), indexes.time.len()))?;
        let (offsets, times) = (offsets * offset_index::ENTRY_SIZE, times * time_index::ENTRY_SIZE);
        let last_offset = if i + 1 < end {
            segments[i + 1].base_offset
        } else {
            first_uncleanable_offset
        } - 1;
        if let Some(group) = groups.last_mut()
            // Kafka has no such limit: further segments are merged the next time.
            && group.len() < KEPT_OPEN
            && size + segment.size() <= max_size
            && offset_bytes + offsets <= max_index
            && time_bytes + times <= max_index
            && (segment.size() == 0
                || last_offset.saturating_sub(segments[group.start].base_offset) <= i64::from(i32::MAX))
        {
            group.end = i + 1;
            size += segment.size();
            offset_bytes += offsets;
            time_bytes += times;
        } else {
            groups.push(i..i + 1);
            (size, offset_bytes, time_bytes) = (segment.size(), offsets, times);
        }
    }
    Ok(groups)
}
