//! What a round of cleaning counts.

/// What a round of cleaning did. Kafka: `CleanerStats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanerStats {
    /// First offset that was dirty before.
    pub first_dirty_offset: i64,
    /// Everything below is clean now: what `cleaner-offset-checkpoint` says.
    pub end_offset: i64,
    /// Segments that were read.
    pub segments_read: usize,
    /// Segments written in their place.
    pub segments_written: usize,
    /// Records read, control records included.
    pub messages_read: u64,
    /// Records kept.
    pub messages_written: u64,
    /// Bytes of the segments read.
    pub bytes_read: u64,
    /// Bytes of the segments written.
    pub bytes_written: u64,
    /// Records without a key, which a compacted topic cannot keep.
    pub invalid_messages: u64,
}
