//! A map from offsets to values that keeps runs of consecutive offsets with the same value as one entry.

use std::collections::BTreeMap;

/// First offset of a run to its last offset and its value. Runs do not overlap, and neighbours with the same value are one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OffsetRuns<T> {
    runs: BTreeMap<i64, (i64, T)>,
}

impl<T> Default for OffsetRuns<T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new() }
    }
}

impl<T: Copy + PartialEq> OffsetRuns<T> {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs in ascending order: first offset, last offset, value.
    pub fn iter(&self) -> impl Iterator<Item = (i64, i64, T)> + '_ {
        self.runs.iter().map(|(&first, &(last, value))| (first, last, value))
    }

    /// Gives the offsets from `first` to `last` this value, whatever they had before.
    pub fn set(&mut self, first: i64, last: i64, value: T) {
        if last < first {
            return;
        }
        self.remove(first, last);
        let (mut from, mut to) = (first, last);
        if let Some((&before, &(end, same))) = self.runs.range(..first).next_back()
            && end.checked_add(1) == Some(first)
            && same == value
        {
            from = before;
        }
        if let Some(behind) = last.checked_add(1)
            && let Some(&(end, same)) = self.runs.get(&behind)
            && same == value
        {
            self.runs.remove(&behind);
            to = end;
        }
        self.runs.insert(from, (to, value));
    }

    /// Takes the offsets from `first` to `last` out.
    pub fn remove(&mut self, first: i64, last: i64) {
        let overlap = self.runs.range(..=last).rev();
        let overlap = overlap.take_while(|(_, (end, _))| *end >= first);
        let overlap: Vec<(i64, i64, T)> = overlap.map(|(&from, &(end, value))| (from, end, value)).collect();
        for (from, end, value) in overlap {
            self.runs.remove(&from);
            if from < first {
                self.runs.insert(from, (first - 1, value));
            }
            if end > last {
                self.runs.insert(last + 1, (end, value));
            }
        }
    }

    /// The parts of the runs between `first` and `last`.
    pub fn between(&self, first: i64, last: i64) -> Vec<(i64, i64, T)> {
        let overlap = self.runs.range(..=last).rev();
        let overlap = overlap.take_while(|(_, (end, _))| *end >= first);
        let mut parts: Vec<(i64, i64, T)> = overlap
            .map(|(&from, &(end, value))| (from.max(first), end.min(last), value))
            .collect();
        parts.reverse();
        parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_a_map_of_single_offsets(steps in proptest::collection::vec((0i64..30, 0i64..10, 0u8..4), 0..40)) {
            let (mut runs, mut model) = (OffsetRuns::default(), BTreeMap::new());
            for (first, length, value) in steps {
                let last = first + length;
                match value {
                    0 => {
                        runs.remove(first, last);
                        model.retain(|offset, _| !(first..=last).contains(offset));
                    }
                    _ => {
                        runs.set(first, last, value);
                        model.extend((first..=last).map(|offset| (offset, value)));
                    }
                }
                let all: BTreeMap<i64, u8> = runs.iter().flat_map(|(f, l, v)| (f..=l).map(move |o| (o, v))).collect();
                prop_assert_eq!(&all, &model);
                let joined = runs.iter().zip(runs.iter().skip(1)).all(|(a, b)| a.1 + 1 < b.0 || a.2 != b.2);
                prop_assert!(joined, "neighbours with the same value are one run");
                let cut: Vec<i64> = runs.between(5, 12).into_iter().flat_map(|(f, l, _)| f..=l).collect();
                let expected: Vec<i64> = model.range(5..=12).map(|(offset, _)| *offset).collect();
                prop_assert_eq!(cut, expected);
            }
        }
    }
}
