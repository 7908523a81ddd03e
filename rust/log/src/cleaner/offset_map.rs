//! Key to newest offset, in bounded memory. Kafka: `SkimpyOffsetMap`, which keeps hashes of the keys; the keys themselves
//! are kept here, so that two keys are never mixed up.

use std::collections::HashMap;

/// Memory of an entry beside the bytes of its key: pointer, length, offset and the share of empty slots of the table.
const ENTRY_OVERHEAD: usize = 48;

#[derive(Debug)]
pub(super) struct OffsetMap {
    offsets: HashMap<Box<[u8]>, i64>,
    used: usize,
    limit: usize,
    latest: i64,
}

impl OffsetMap {
    /// An empty map for records from `start` on.
    pub fn new(limit: usize, start: i64) -> Self {
        Self {
            offsets: HashMap::new(),
            used: 0,
            limit,
            latest: start - 1,
        }
    }

    /// False if there is no room for another key. One key always fits, so that each round makes progress.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        if let Some(newest) = self.offsets.get_mut(key) {
            *newest = offset;
        } else {
            let size = key.len() + ENTRY_OVERHEAD;
            if !self.offsets.is_empty() && self.used + size > self.limit {
                return false;
            }
            self.used += size;
            self.offsets.insert(key.into(), offset);
        }
        self.latest = offset;
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<i64> {
        self.offsets.get(key).copied()
    }

    /// Everything up to here is in the map.
    pub fn latest_offset(&self) -> i64 {
        self.latest
    }

    pub fn update_latest_offset(&mut self, offset: i64) {
        self.latest = offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_takes_newer_offsets_of_known_keys_only() {
        let mut map = OffsetMap::new(2 * (ENTRY_OVERHEAD + 1), 0);
        assert!(map.put(b"a", 0) && map.put(b"b", 1) && map.put(b"a", 2));
        assert!(!map.put(b"c", 3));
        assert_eq!((map.get(b"a"), map.get(b"b"), map.get(b"c")), (Some(2), Some(1), None));
        assert_eq!(map.latest_offset(), 2);
        assert!(OffsetMap::new(0, 0).put(b"a", 0));
    }
}
