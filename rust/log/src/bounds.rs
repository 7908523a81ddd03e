//! From where to where a log can be read.

/// Upper bound of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchBound {
    /// Replicas and tools.
    LogEnd,
    /// read_uncommitted.
    HighWatermark,
    /// read_committed; the result lists aborted transactions.
    LastStableOffset,
}

/// The bounds of a log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// First readable offset.
    pub log_start_offset: i64,
    /// Next offset to assign.
    pub log_end_offset: i64,
    /// End for read_uncommitted.
    pub high_watermark: i64,
    /// End for read_committed.
    pub last_stable_offset: i64,
    /// Base offset of the active segment.
    pub active_base_offset: i64,
    /// Its bytes below the log end.
    pub active_size: u64,
}

impl LogBounds {
    /// Where a read with this bound ends.
    pub fn of(&self, bound: FetchBound) -> i64 {
        match bound {
            FetchBound::LogEnd => self.log_end_offset,
            FetchBound::HighWatermark => self.high_watermark,
            FetchBound::LastStableOffset => self.last_stable_offset,
        }
    }
    /// Whether a read at `offset` finds nothing because `offset` is at or beyond the bound. False if it is out of range.
    pub fn is_at_end(&self, offset: i64, bound: FetchBound) -> bool {
        (self.of(bound).max(self.log_start_offset)..=self.log_end_offset).contains(&offset)
    }
}
