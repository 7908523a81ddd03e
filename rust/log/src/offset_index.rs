//! `.index`: from an offset to the position of a batch (spec 1.8). Kafka: `OffsetIndex`.
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | i32 | last offset of a batch, relative to the base offset of the segment |
//! | 4 | i32 | position of that batch in the `.log` |
//!
//! Entries of 8 bytes, offsets strictly increasing. The file of a running or killed broker has a tail of zeros.

/// Bytes of one entry.
pub(crate) const ENTRY_SIZE: usize = 8;

/// An entry would not be greater than its predecessor. Kafka: `InvalidOffsetException`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidOffset;

/// An offset and the position of the batch that ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetPosition {
    pub offset: i64,
    pub position: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct OffsetIndex {
    base: i64,
    entries: Vec<(u32, u32)>,
}

impl OffsetIndex {
    pub fn new(base: i64) -> Self {
        Self {
            base,
            entries: Vec::new(),
        }
    }

    /// Takes entries up to the zero tail: the first one not greater than its predecessor ends the index.
    pub fn parse(base: i64, bytes: &[u8]) -> Self {
        let mut entries: Vec<(u32, u32)> = Vec::new();
        for entry in bytes.as_chunks::<ENTRY_SIZE>().0 {
            let [a, b, c, d, e, f, g, h] = *entry;
            let (offset, position) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
            if entries.last().is_some_and(|last| offset <= last.0 || position < last.1) {
                break;
            }
            entries.push((offset, position));
        }
        // All zeros: an index that never got an entry. (A real entry for the base offset alone would lead to the start of the
        // file, as a lookup without entries does.)
        if entries == [(0, 0)] {
            entries.clear();
        }
        Self { base, entries }
    }

    pub fn encode(&self, from: usize) -> Vec<u8> {
        let entries = self.entries.get(from..).unwrap_or_default();
        entries
            .iter()
            .flat_map(|(offset, position)| (u64::from(*offset) << 32 | u64::from(*position)).to_be_bytes())
            .collect()
    }

    /// The caller has checked that the offset fits the segment (31 bits relative to its base).
    pub fn append(&mut self, offset: i64, position: u64) -> Result<(), InvalidOffset> {
        let (Ok(relative), Ok(position)) = (u32::try_from(offset - self.base), u32::try_from(position)) else {
            return Err(InvalidOffset);
        };
        if self.entries.last().is_some_and(|last| relative <= last.0) {
            return Err(InvalidOffset);
        }
        self.entries.push((relative, position));
        Ok(())
    }

    pub fn entry(&self, i: usize) -> Option<OffsetPosition> {
        let (offset, position) = self.entries.get(i)?;
        Some(OffsetPosition {
            offset: self.base + i64::from(*offset),
            position: u64::from(*position),
        })
    }

    /// Greatest entry with offset <= target, else the start of the file.
    pub fn lookup(&self, target: i64) -> OffsetPosition {
        let count = self
            .entries
            .partition_point(|(offset, _)| self.base + i64::from(*offset) <= target);
        count
            .checked_sub(1)
            .and_then(|i| self.entry(i))
            .unwrap_or(OffsetPosition {
                offset: self.base,
                position: 0,
            })
    }

    /// First entry at or after a position. Kafka: `OffsetIndex#fetchUpperBoundOffset`.
    pub fn upper_bound(&self, position: u64) -> Option<OffsetPosition> {
        self.entry(self.entries.partition_point(|(_, p)| u64::from(*p) < position))
    }

    pub fn last(&self) -> Option<OffsetPosition> {
        self.entry(self.entries.len().checked_sub(1)?)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(i64, u64)]) -> OffsetIndex {
        let mut index = OffsetIndex::new(45);
        for (offset, position) in entries {
            index.append(*offset, *position).unwrap();
        }
        index
    }

    #[test]
    fn lookup_finds_the_greatest_entry_at_or_below_the_target() {
        assert_eq!(
            OffsetIndex::new(45).lookup(92),
            OffsetPosition {
                offset: 45,
                position: 0
            }
        );
        let index = index(&[(46, 1), (47, 2), (50, 9)]);
        for (target, offset, position) in [
            (45, 45, 0),
            (46, 46, 1),
            (47, 47, 2),
            (49, 47, 2),
            (50, 50, 9),
            (99, 50, 9),
        ] {
            assert_eq!(index.lookup(target), OffsetPosition { offset, position }, "{target}");
        }
    }

    #[test]
    fn an_offset_not_greater_than_the_last_is_refused() {
        let mut index = index(&[(51, 0), (52, 1)]);
        assert_eq!(index.append(52, 2), Err(InvalidOffset));
        assert_eq!(index.append(51, 2), Err(InvalidOffset));
        assert_eq!(index.append(45 + i64::from(u32::MAX) + 1, 2), Err(InvalidOffset));
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn upper_bound_is_the_first_entry_behind_the_slice() {
        let index = index(&[(46, 0), (47, 10), (48, 23), (49, 37)]);
        assert_eq!(index.upper_bound(5).map(|e| e.offset), Some(47));
        assert_eq!(index.upper_bound(10).map(|e| e.offset), Some(47));
        assert_eq!(index.upper_bound(22).map(|e| e.offset), Some(48));
        assert_eq!(index.upper_bound(38), None);
    }

    #[test]
    fn a_preallocated_file_is_read_up_to_its_zero_tail() {
        let index = index(&[(46, 1), (47, 2)]);
        let mut bytes = index.encode(0);
        assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2]);
        bytes.resize(4096 + 3, 0);
        assert_eq!(OffsetIndex::parse(45, &bytes).entries, index.entries);
        assert_eq!(OffsetIndex::parse(45, &[0; 4096]).len(), 0);
        assert_eq!(OffsetIndex::parse(45, &[]).len(), 0);
    }
}
