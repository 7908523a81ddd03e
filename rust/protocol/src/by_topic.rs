//! Lists of partitions, as messages nest them in topics.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key: keys in the order of their first value, the values of a key in the order given. Linear time.
pub fn grouped<K: Clone + Eq + Hash, V>(values: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    let mut places = HashMap::new();
    for (key, value) in values {
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(value);
    }
    groups
}

/// Values by key: only consecutive values share an entry, so that the order of all values is kept.
pub fn in_runs<K: PartialEq, V>(values: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut runs: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in values {
        match runs.last_mut().filter(|(last, _)| *last == key) {
            Some((_, run)) => run.push(value),
            None => runs.push((key, vec![value])),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [(&str, i32); 4] = [("b", 1), ("a", 2), ("a", 3), ("b", 4)];

    #[test]
    fn a_group_holds_all_values_of_its_key_and_a_run_only_consecutive_ones() {
        assert_eq!(grouped(VALUES), [("b", vec![1, 4]), ("a", vec![2, 3])]);
        assert_eq!(in_runs(VALUES), [("b", vec![1]), ("a", vec![2, 3]), ("b", vec![4])]);
    }
}
