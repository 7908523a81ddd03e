//! A range of timestamps that selects records.

use crate::{BatchHeader, TimestampType};

/// Timestamps (ms) from `first` to `last`, both included. Empty if `last` is below `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The lowest timestamp.
    pub first: i64,
    /// The highest timestamp.
    pub last: i64,
}

impl TimeRange {
    /// Every timestamp.
    pub const ALL: Self = Self {
        first: i64::MIN,
        last: i64::MAX,
    };

    /// From `start` on, and below `end`; `None` is no limit.
    pub fn new(start: Option<i64>, end: Option<i64>) -> Self {
        let first = start.unwrap_or(i64::MIN);
        match end.map(|end| end.checked_sub(1)) {
            None => Self { first, last: i64::MAX },
            Some(Some(last)) => Self { first, last },
            // Nothing is below the least number.
            Some(None) => Self {
                first: i64::MAX,
                last: i64::MIN,
            },
        }
    }

    /// Whether it holds this timestamp.
    #[inline(always)]
    pub fn contains(self, timestamp: i64) -> bool {
        self.first <= timestamp && timestamp <= self.last
    }

    /// Whether the header of a batch shows that none of its records is in the range. The header has the greatest timestamp of
    /// the batch, but not the least, which is known only where all records have the time of the append. Batches of an old
    /// format are never excluded.
    pub fn excludes(self, header: &BatchHeader) -> bool {
        let max = header.max_timestamp;
        header.magic >= 2
            && (max < self.first || (max > self.last && header.timestamp_type() == TimestampType::LogAppendTime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_begins_with_its_start_and_ends_before_its_end() {
        for (start, end, inside, outside) in [
            (None, None, vec![i64::MIN, -1, i64::MAX], vec![]),
            (Some(5), None, vec![5, i64::MAX], vec![4, i64::MIN]),
            (None, Some(5), vec![i64::MIN, 4], vec![5, i64::MAX]),
            (Some(5), Some(7), vec![5, 6], vec![4, 7]),
            (Some(5), Some(5), vec![], vec![4, 5, 6]),
            (None, Some(i64::MIN), vec![], vec![i64::MIN, 0, i64::MAX]),
            (Some(i64::MAX), None, vec![i64::MAX], vec![i64::MAX - 1]),
        ] {
            let range = TimeRange::new(start, end);
            assert!(inside.into_iter().all(|t| range.contains(t)), "{range:?}");
            assert!(!outside.into_iter().any(|t| range.contains(t)), "{range:?}");
        }
    }
}
