//! What readers see: segments and bounds, published in one assignment after the bytes that they cover are written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use crate::segment::LogSegment;
use crate::sync::lock;
use crate::{FetchBound, LogBounds};

/// Segments ascending by base offset; never empty.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    list: Arc<Vec<Arc<LogSegment>>>,
}

impl Segments {
    pub fn new(list: Vec<Arc<LogSegment>>) -> Self {
        assert!(!list.is_empty(), "a log has an active segment");
        assert!(
            list.windows(2).all(|pair| pair[0].base_offset < pair[1].base_offset),
            "segments are in order"
        );
        Self { list: Arc::new(list) }
    }

    pub fn as_slice(&self) -> &[Arc<LogSegment>] {
        &self.list
    }

    pub fn active(&self) -> &Arc<LogSegment> {
        &self.list[self.list.len() - 1]
    }

    pub fn first(&self) -> &Arc<LogSegment> {
        &self.list[0]
    }

    /// The segment with the greatest base offset <= `offset`, else the first; and those after it.
    pub fn floor_and_after(&self, offset: i64) -> &[Arc<LogSegment>] {
        let count = self.list.partition_point(|segment| segment.base_offset <= offset);
        &self.list[count.saturating_sub(1)..]
    }

    /// Replaces consecutive segments by one.
    pub fn with_replaced(&self, old: &[Arc<LogSegment>], new: Arc<LogSegment>) -> Self {
        let is_old = |segment: &Arc<LogSegment>| old.iter().any(|old| Arc::ptr_eq(old, segment));
        let mut list: Vec<_> = self.list.iter().filter(|segment| !is_old(segment)).cloned().collect();
        let at = list.partition_point(|segment| segment.base_offset < new.base_offset);
        list.insert(at, new);
        Self::new(list)
    }

    pub fn with(&self, segment: Arc<LogSegment>) -> Self {
        let mut list = Vec::with_capacity(self.list.len() + 1);
        list.extend(
            self.list
                .iter()
                .filter(|s| s.base_offset != segment.base_offset)
                .cloned(),
        );
        list.push(segment);
        Self::new(list)
    }
}

/// One consistent state of the log.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub segments: Segments,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// Below the log end only while appends wait for their fsync, or while it is held.
    pub high_watermark: i64,
    /// The high watermark stands still.
    pub is_held: bool,
    /// First offset of the oldest open transaction.
    pub first_unstable_offset: Option<i64>,
    /// Bytes of the active segment below the log end.
    pub active_size: u64,
}

impl View {
    /// Spec 3.8: min(HW, first unstable offset), which cannot be below the log start.
    pub fn last_stable_offset(&self) -> i64 {
        self.first_unstable_offset.map_or(self.high_watermark, |first| {
            first.max(self.log_start_offset).min(self.high_watermark)
        })
    }

    pub fn bounds(&self) -> LogBounds {
        LogBounds {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset(),
            active_base_offset: self.segments.active().base_offset,
            active_size: self.active_size,
        }
    }

    /// Where a read with this bound ends.
    pub fn bound(&self, bound: FetchBound) -> i64 {
        self.bounds().of(bound)
    }

    /// Readable bytes of a segment in this state.
    pub fn size_of(&self, segment: &LogSegment) -> u64 {
        if segment.base_offset == self.segments.active().base_offset {
            self.active_size
        } else {
            segment.size()
        }
    }
}

/// How many sealed segments keep their indexes in memory and their file open. A segment of 1 GiB has up to 5 MiB of
/// indexes; a reader or a lookup works on one or two at a time.
const LOADED_SEGMENTS: usize = 8;

/// Tracks which sealed segments have loaded their indexes, and evicts the oldest: neither memory nor open files grow with the
/// log.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    loaded: Mutex<VecDeque<Weak<LogSegment>>>,
}

impl IndexCache {
    pub fn touch(&self, segment: &Arc<LogSegment>) {
        if segment.has_loaded_indexes() {
            return;
        }
        let mut loaded = lock(&self.loaded);
        loaded.push_back(Arc::downgrade(segment));
        if loaded.len() > LOADED_SEGMENTS
            && let Some(oldest) = loaded.pop_front().and_then(|segment| segment.upgrade())
        {
            oldest.evict();
        }
    }
}
