//! A map that remembers an order in which any entry can be moved to the end. Kafka: `PartitionStates`.

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

const NONE: usize = usize::MAX;

#[derive(Debug)]
struct Entry<S> {
    tp: TopicPartition,
    state: S,
    previous: usize,
    next: usize,
}

/// Partitions with their state, in assignment order. Moving to the end is O(1).
#[derive(Debug)]
pub struct PartitionStates<S> {
    entries: Vec<Entry<S>>,
    index: FxHashMap<TopicPartition, usize>,
    first: usize,
    last: usize,
}

impl<S> Default for PartitionStates<S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            index: FxHashMap::default(),
            first: NONE,
            last: NONE,
        }
    }
}

impl<S> PartitionStates<S> {
    /// These, in this order. Partitions must be distinct.
    pub fn from_ordered(states: impl IntoIterator<Item = (TopicPartition, S)>) -> Self {
        let mut all = Self::default();
        for (tp, state) in states {
            let slot = all.entries.len();
            all.index.insert(tp.clone(), slot);
            all.entries.push(Entry {
                tp,
                state,
                previous: NONE,
                next: NONE,
            });
            all.link_last(slot);
        }
        all
    }

    /// Number of partitions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// State of a partition.
    pub fn get(&self, tp: &TopicPartition) -> Option<&S> {
        self.index.get(tp).map(|&slot| &self.entries[slot].state)
    }

    /// State of a partition, to change.
    pub fn get_mut(&mut self, tp: &TopicPartition) -> Option<&mut S> {
        self.index.get(tp).map(|&slot| &mut self.entries[slot].state)
    }

    /// Whether the partition is there.
    pub fn contains(&self, tp: &TopicPartition) -> bool {
        self.index.contains_key(tp)
    }

    /// Partitions and states in order.
    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &S)> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at)?;
            at = entry.next;
            Some((&entry.tp, &entry.state))
        })
    }

    /// Changes every state, in no particular order.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&TopicPartition, &mut S)) {
        for entry in &mut self.entries {
            change(&entry.tp, &mut entry.state);
        }
    }

    /// Moves a partition behind all others; nothing if it is not there.
    pub fn move_to_end(&mut self, tp: &TopicPartition) {
        let Some(&slot) = self.index.get(tp) else { return };
        if slot == self.last {
            return;
        }
        let (previous, next) = (self.entries[slot].previous, self.entries[slot].next);
        match self.entries.get_mut(previous) {
            Some(entry) => entry.next = next,
            None => self.first = next,
        }
        if let Some(entry) = self.entries.get_mut(next) {
            entry.previous = previous;
        }
        self.link_last(slot);
    }

    /// Takes the states out.
    pub fn into_states(self) -> FxHashMap<TopicPartition, S> {
        self.entries.into_iter().map(|e| (e.tp, e.state)).collect()
    }

    fn link_last(&mut self, slot: usize) {
        let last = self.last;
        self.entries[slot].previous = last;
        self.entries[slot].next = NONE;
        match self.entries.get_mut(last) {
            Some(entry) => entry.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(n: i32) -> PartitionStates<i32> {
        PartitionStates::from_ordered((0..n).map(|p| (TopicPartition::new("t", p), p)))
    }

    fn order(states: &PartitionStates<i32>) -> Vec<i32> {
        states.iter().map(|(_, &p)| p).collect()
    }

    #[test]
    fn moving_to_the_end_keeps_the_order_of_the_others() {
        let mut s = states(4);
        for (p, expected) in [
            (1, [0, 2, 3, 1]),
            (0, [2, 3, 1, 0]),
            (0, [2, 3, 1, 0]),
            (2, [3, 1, 0, 2]),
            (3, [1, 0, 2, 3]),
        ] {
            s.move_to_end(&TopicPartition::new("t", p));
            assert_eq!(order(&s), expected);
        }
        s.move_to_end(&TopicPartition::new("t", 9));
        assert_eq!(order(&s), [1, 0, 2, 3]);
    }

    #[test]
    fn a_single_partition_can_be_moved() {
        let mut s = states(1);
        s.move_to_end(&TopicPartition::new("t", 0));
        assert_eq!(order(&s), [0]);
    }
}
