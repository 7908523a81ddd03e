//! Merges several sources in the order of their timestamps, for `fletchlog.fetch.order=timestamp` and for scans by timestamp.
//! Kafka's consumer has no such order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The sources that have a next record. The least by (timestamp, place) comes next; within a source the caller keeps its own
/// order.
#[derive(Debug, Default)]
pub struct TimestampMerge {
    heads: BinaryHeap<Reverse<(i64, usize)>>,
}

/// The source whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeTurn {
    /// Timestamp of its next record, ms.
    pub timestamp: i64,
    /// Its place.
    pub place: usize,
    /// Its records up to this timestamp, ms, are before those of every other source.
    pub until: i64,
}

impl TimestampMerge {
    /// The source at `place` has a next record, with this timestamp (ms).
    pub fn push(&mut self, timestamp: i64, place: usize) {
        self.heads.push(Reverse((timestamp, place)));
    }

    /// Removes the source whose turn it is; the caller pushes its place again with its following record. `None`: no source
    /// has a record.
    pub fn pop(&mut self) -> Option<MergeTurn> {
        let Reverse((timestamp, place)) = self.heads.pop()?;
        let until = self.heads.peek().map_or(
            i64::MAX,
            |&Reverse((next, other))| {
                if place < other { next } else { next.saturating_sub(1) }
            },
        );
        Some(MergeTurn {
            timestamp,
            place,
            until,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_record_is_next_and_the_first_place_among_equals() {
        let mut merge = TimestampMerge::default();
        for (timestamp, place) in [(5, 0), (3, 2), (3, 1)] {
            merge.push(timestamp, place);
        }
        let turn = |timestamp, place, until| {
            Some(MergeTurn {
                timestamp,
                place,
                until,
            })
        };
        assert_eq!(merge.pop(), turn(3, 1, 3), "equal ones of place 2 come after its own");
        assert_eq!(merge.pop(), turn(3, 2, 4), "equal ones of place 0 come first");
        assert_eq!(merge.pop(), turn(5, 0, i64::MAX));
        assert_eq!(merge.pop(), None);
    }
}
