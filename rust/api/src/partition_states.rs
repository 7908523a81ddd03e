//! A map that remembers an order in which any entry can be moved to the end: the partitions of a consumer, and those of a fetch session.
//! Kafka: `PartitionStates`; the broker's sessions use a linked hash map in the same way.

use std::collections::BTreeMap;

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

/// Partitions with their state, in an order. Each has a place, a number that grows along the order, so some of the partitions can be sorted
/// without visiting the others. Every change costs O(log n).
#[derive(Debug, Clone)]
pub struct PartitionStates<S> {
    places: FxHashMap<TopicPartition, u64>,
    entries: BTreeMap<u64, (TopicPartition, S)>,
    next_place: u64,
}

impl<S> Default for PartitionStates<S> {
    fn default() -> Self {
        Self {
            places: FxHashMap::default(),
            entries: BTreeMap::new(),
            next_place: 0,
        }
    }
}

impl<S> FromIterator<(TopicPartition, S)> for PartitionStates<S> {
    fn from_iter<T: IntoIterator<Item = (TopicPartition, S)>>(states: T) -> Self {
        let mut all = Self::default();
        for (tp, state) in states {
            all.insert(tp, state);
        }
        all
    }
}

impl<S> PartitionStates<S> {
    /// Number of partitions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no partition.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// State of a partition.
    pub fn get(&self, tp: &TopicPartition) -> Option<&S> {
        self.at(*self.places.get(tp)?).map(|(_, state)| state)
    }

    /// State of a partition, to change.
    pub fn get_mut(&mut self, tp: &TopicPartition) -> Option<&mut S> {
        let place = self.places.get(tp)?;
        self.entries.get_mut(place).map(|(_, state)| state)
    }

    /// Whether the map contains the partition.
    pub fn contains(&self, tp: &TopicPartition) -> bool {
        self.places.contains_key(tp)
    }

    /// The place of the partition in the order; the same until it is moved or removed.
    pub fn place(&self, tp: &TopicPartition) -> Option<u64> {
        self.places.get(tp).copied()
    }

    /// The partition at a place.
    pub fn at(&self, place: u64) -> Option<&(TopicPartition, S)> {
        self.entries.get(&place)
    }

    /// Partitions and states in order.
    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &S)> {
        self.entries.values().map(|(tp, state)| (tp, state))
    }

    /// Changes every state, in order.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&TopicPartition, &mut S)) {
        for (tp, state) in self.entries.values_mut() {
            change(tp, state);
        }
    }

    /// A known partition keeps its place and gets another state; a new one is added at the end. Returns the place.
    pub fn insert(&mut self, tp: TopicPartition, state: S) -> u64 {
        let place = self.place(&tp).unwrap_or(self.next_place);
        if place == self.next_place {
            self.next_place += 1;
            self.places.insert(tp.clone(), place);
        }
        self.entries.insert(place, (tp, state));
        place
    }

    /// Removes a partition; returns its place.
    pub fn remove(&mut self, tp: &TopicPartition) -> Option<u64> {
        let place = self.places.remove(tp)?;
        self.entries.remove(&place);
        Some(place)
    }

    /// Moves a partition to the end; does nothing if the map does not contain it. Returns its places before and after.
    pub fn move_to_end(&mut self, tp: &TopicPartition) -> Option<(u64, u64)> {
        let place = self.places.get_mut(tp)?;
        let old = *place;
        if self.entries.last_key_value().is_some_and(|(&last, _)| last == old) {
            return Some((old, old));
        }
        let entry = self.entries.remove(&old)?;
        *place = self.next_place;
        self.next_place += 1;
        self.entries.insert(*place, entry);
        Some((old, *place))
    }

    /// The states by partition, without their order.
    pub fn into_states(self) -> FxHashMap<TopicPartition, S> {
        self.entries.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    fn states(n: i32) -> PartitionStates<i32> {
        (0..n).map(|p| (tp(p), p)).collect()
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
            s.move_to_end(&tp(p));
            assert_eq!(order(&s), expected);
        }
        assert_eq!(s.move_to_end(&tp(9)), None);
        assert_eq!(order(&s), [1, 0, 2, 3]);
    }

    #[test]
    fn a_single_partition_can_be_moved() {
        let mut s = states(1);
        s.move_to_end(&tp(0));
        assert_eq!(order(&s), [0]);
    }

    #[test]
    fn a_known_partition_keeps_its_place_and_one_that_comes_back_goes_to_the_end() {
        let mut s = states(3);
        s.insert(tp(0), 10);
        assert_eq!(order(&s), [10, 1, 2]);
        assert_eq!(s.remove(&tp(1)), Some(1));
        assert_eq!((s.get(&tp(1)), s.len()), (None, 2));
        s.insert(tp(1), 11);
        assert_eq!(order(&s), [10, 2, 11]);
    }

    #[test]
    fn places_grow_along_the_order() {
        let mut s = states(5);
        s.move_to_end(&tp(2));
        s.remove(&tp(0));
        s.insert(tp(0), 0);
        let places: Vec<u64> = s.iter().filter_map(|(tp, _)| s.place(tp)).collect();
        assert!(places.is_sorted() && places.len() == 5);
        for (found, &place) in s.iter().zip(&places) {
            assert_eq!(s.at(place).map(|(tp, p)| (tp, p)), Some(found));
        }
    }
}
