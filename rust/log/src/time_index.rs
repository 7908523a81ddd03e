//! `.timeindex`: from a timestamp to an offset (spec 1.8). Kafka: `TimeIndex`.
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | i64 | largest timestamp so far, the batch being indexed included |
//! | 8 | i32 | last offset of the earliest batch that has it, relative to the base offset of the segment |
//!
//! Entries of 12 bytes, timestamps strictly increasing: no record of the segment up to that offset has a larger one.

use crate::offset_index::InvalidOffset;

/// Bytes of one entry.
pub(crate) const ENTRY_SIZE: usize = 12;

/// A timestamp and the offset of the batch that has it; (-1, base offset) when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct TimeIndex {
    base: i64,
    entries: Vec<(i64, u32)>,
}

impl TimeIndex {
    pub fn new(base: i64) -> Self {
        Self {
            base,
            entries: Vec::new(),
        }
    }

    /// Takes entries up to the zero tail: the first one not greater than its predecessor ends the index.
    pub fn parse(base: i64, bytes: &[u8]) -> Self {
        let mut entries: Vec<(i64, u32)> = Vec::new();
        for entry in bytes.as_chunks::<ENTRY_SIZE>().0 {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
            let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let offset = u32::from_be_bytes([i, j, k, l]);
            if entries
                .last()
                .is_some_and(|last| timestamp <= last.0 || offset < last.1)
            {
                break;
            }
            entries.push((timestamp, offset));
        }
        // All zeros: an index that never got an entry. (A real entry of time 0 at the base offset is restored by the
        // check of the tail when the segment is opened.)
        if entries == [(0, 0)] {
            entries.clear();
        }
        Self { base, entries }
    }

    pub fn encode(&self, from: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (timestamp, offset) in self.entries.get(from..).unwrap_or_default() {
            bytes.extend_from_slice(&timestamp.to_be_bytes());
            bytes.extend_from_slice(&offset.to_be_bytes());
        }
        bytes
    }

    /// Adds an entry if the timestamp is greater than the last one. Kafka: `TimeIndex#maybeAppend`.
    pub fn maybe_append(&mut self, entry: TimestampOffset) -> Result<(), InvalidOffset> {
        let relative = u32::try_from(entry.offset - self.base).map_err(|_| InvalidOffset)?;
        let last = self.entries.last().copied().unwrap_or((-1, 0));
        if !self.entries.is_empty() && relative < last.1 {
            return Err(InvalidOffset);
        }
        if entry.timestamp > last.0 {
            self.entries.push((entry.timestamp, relative));
        }
        Ok(())
    }

    pub fn entry(&self, i: usize) -> Option<TimestampOffset> {
        let (timestamp, offset) = self.entries.get(i)?;
        Some(TimestampOffset {
            timestamp: *timestamp,
            offset: self.base + i64::from(*offset),
        })
    }

    /// Greatest entry with timestamp <= target, else (-1, base offset).
    pub fn lookup(&self, target: i64) -> TimestampOffset {
        let count = self.entries.partition_point(|(timestamp, _)| *timestamp <= target);
        count
            .checked_sub(1)
            .and_then(|i| self.entry(i))
            .unwrap_or(TimestampOffset {
                timestamp: -1,
                offset: self.base,
            })
    }

    /// The last entry, else (-1, base offset).
    pub fn last(&self) -> TimestampOffset {
        self.lookup(i64::MAX)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(i64, i64)]) -> TimeIndex {
        let mut index = TimeIndex::new(45);
        for (timestamp, offset) in entries {
            index
                .maybe_append(TimestampOffset {
                    timestamp: *timestamp,
                    offset: *offset,
                })
                .unwrap();
        }
        index
    }

    #[test]
    fn lookup_finds_the_greatest_timestamp_at_or_below_the_target() {
        let index = index(&[(10, 55), (20, 65), (30, 75)]);
        for (target, timestamp, offset) in [(9, -1, 45), (10, 10, 55), (25, 20, 65), (30, 30, 75), (99, 30, 75)] {
            assert_eq!(index.lookup(target), TimestampOffset { timestamp, offset }, "{target}");
        }
    }

    #[test]
    fn only_a_greater_timestamp_makes_an_entry() {
        let index = index(&[(10, 55), (10, 60), (9, 65), (11, 66)]);
        assert_eq!(index.entries, [(10, 10), (11, 21)]);
        let mut index = index;
        assert_eq!(
            index.maybe_append(TimestampOffset {
                timestamp: 12,
                offset: 65
            }),
            Err(InvalidOffset)
        );
    }

    #[test]
    fn a_preallocated_file_is_read_up_to_its_zero_tail() {
        let index = index(&[(10, 45), (20, 65)]);
        let mut bytes = index.encode(0);
        assert_eq!(bytes.len(), 24);
        bytes.resize(4096 + 3, 0);
        assert_eq!(TimeIndex::parse(45, &bytes).entries, index.entries);
        assert_eq!(
            TimeIndex::parse(45, &[0; 4096]).last(),
            TimestampOffset {
                timestamp: -1,
                offset: 45
            }
        );
    }
}
