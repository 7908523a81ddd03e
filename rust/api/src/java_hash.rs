//! Java's hash tables, as far as Kafka's clients show their walk order (spec 7.2).
//! The order of partitions in requests and in a printed `ConsumerRecords` is the walk order of such tables.

use fletchlog_records::TopicPartition;

/// `String.hashCode`: h = 31*h + utf16 unit, wrapping.
pub fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `TopicPartition.hashCode` = 31*(31+partition) + hash(topic), wrapping.
pub fn topic_partition_hash(tp: &TopicPartition) -> i32 {
    31i32
        .wrapping_mul(31i32.wrapping_add(tp.partition))
        .wrapping_add(string_hash(&tp.topic))
}

/// `Long.hashCode`: the exclusive or of its halves.
pub fn long_hash(value: i64) -> i32 {
    #[allow(clippy::cast_possible_truncation)]
    let halves = (value as i32, (value >> 32) as i32);
    halves.0 ^ halves.1
}

/// Capacity of `new HashMap(n)` before anything is inserted: the smallest power of two >= max(n, 1).
pub fn table_size_for(n: usize) -> usize {
    n.max(1).next_power_of_two()
}

/// Initial capacity of `new HashSet(collection)` with `size` elements.
pub fn hash_set_capacity(size: usize) -> usize {
    // (int)(size / .75f) + 1, at least 16; f32 as in Java.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let wanted = (size as f32 / 0.75_f32) as usize + 1;
    table_size_for(wanted.max(16))
}

/// `new HashMap()`: 16 buckets.
pub const DEFAULT_CAPACITY: usize = 16;

/// In a table with this many buckets or more, a crowded bin does not double the table. Java: `HashMap.MIN_TREEIFY_CAPACITY`.
pub const MIN_TREEIFY_CAPACITY: usize = 64;

fn spread(hash: i32) -> usize {
    #[allow(clippy::cast_sign_loss)]
    let h = hash as u32;
    (h ^ (h >> 16)) as usize
}

/// Bucket of a hash in a table of `capacity` buckets (a power of two). A table of [`MIN_TREEIFY_CAPACITY`] buckets or more
/// that need not grow is walked in the order of (bucket, insertion).
pub fn bucket(hash: i32, capacity: usize) -> usize {
    spread(hash) & (capacity - 1)
}

/// Walk order of a `java.util.HashMap` of the given initial capacity (a power of two) into which `keys` (distinct) are
/// inserted in order: indices into `keys`. Buckets ascending; inside a bucket insertion order; doubles when the size
/// exceeds 0.75 of the capacity, and when a bin would get its 9th entry while the table has fewer than 64 buckets.
/// Bins that would turn into trees (9 entries, 64 buckets or more) keep insertion order here (spec 7.2).
pub fn walk_order(hashes: &[i32], initial_capacity: usize) -> Vec<usize> {
    filled(hashes, initial_capacity).into_iter().flatten().collect()
}

/// Number of buckets of that table once all keys are inserted.
pub fn table_size(hashes: &[i32], initial_capacity: usize) -> usize {
    filled(hashes, initial_capacity).len()
}

fn filled(hashes: &[i32], initial_capacity: usize) -> Vec<Vec<usize>> {
    let mut capacity = initial_capacity.max(1);
    let mut bins: Vec<Vec<usize>> = vec![Vec::new(); capacity];
    for (i, &h) in hashes.iter().enumerate() {
        let bin = bucket(h, capacity);
        let crowded = bins[bin].len() >= 8 && capacity < MIN_TREEIFY_CAPACITY;
        bins[bin].push(i);
        if crowded || (i + 1) * 4 > capacity * 3 {
            // Splitting keeps relative order, so re-inserting by old bin order is the same as Java's resize.
            let mut doubled: Vec<Vec<usize>> = vec![Vec::new(); capacity * 2];
            for &k in bins.iter().flatten() {
                doubled[bucket(hashes[k], capacity * 2)].push(k);
            }
            capacity *= 2;
            bins = doubled;
            // Both rules may ask for a doubling at the same insertion.
            if crowded && (i + 1) * 4 > capacity * 3 {
                let mut again: Vec<Vec<usize>> = vec![Vec::new(); capacity * 2];
                for &k in bins.iter().flatten() {
                    again[bucket(hashes[k], capacity * 2)].push(k);
                }
                capacity *= 2;
                bins = again;
            }
        }
    }
    bins
}

/// `keys` in the walk order of `new HashMap(capacity)` filled in the given order.
pub fn hash_map_order(keys: &[TopicPartition], initial_capacity: usize) -> Vec<TopicPartition> {
    let hashes: Vec<i32> = keys.iter().map(topic_partition_hash).collect();
    walk_order(&hashes, initial_capacity)
        .into_iter()
        .map(|i| keys[i].clone())
        .collect()
}

/// `keys` in the walk order of `new HashSet(keys)`.
pub fn hash_set_order(keys: &[TopicPartition]) -> Vec<TopicPartition> {
    hash_map_order(keys, hash_set_capacity(keys.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tps(topic: &str, partitions: impl IntoIterator<Item = i32>) -> Vec<TopicPartition> {
        partitions.into_iter().map(|p| TopicPartition::new(topic, p)).collect()
    }

    fn assign(keys: &[TopicPartition]) -> Vec<TopicPartition> {
        hash_map_order(&hash_set_order(keys), DEFAULT_CAPACITY)
    }

    fn numbers(keys: &[TopicPartition]) -> Vec<i32> {
        keys.iter().map(|tp| tp.partition).collect()
    }

    #[test]
    fn a_large_table_is_walked_by_bucket_then_insertion() {
        let mut state = 1i64;
        for n in [49usize, 96, 97, 1000] {
            let hashes: Vec<i32> = (0..n)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    // Few distinct values: bins with many entries.
                    i32::try_from((state >> 33) % 40).unwrap() * 7919
                })
                .collect();
            let capacity = hash_set_capacity(n);
            assert!(capacity >= MIN_TREEIFY_CAPACITY);
            let mut sorted: Vec<usize> = (0..n).collect();
            sorted.sort_by_key(|&i| bucket(hashes[i], capacity));
            assert_eq!(walk_order(&hashes, capacity), sorted);
        }
    }

    #[test]
    fn hash_of_a_topic_partition_is_javas() {
        assert_eq!(topic_partition_hash(&TopicPartition::new("test", 0)), 3_557_459);
        assert_eq!(topic_partition_hash(&TopicPartition::new("t0", 0)), 4605);
        assert_eq!(string_hash("my-group"), -1_906_497_762);
    }

    #[test]
    fn assignment_orders_of_spec_7_2() {
        assert_eq!(numbers(&assign(&tps("test", 0..6))), [1, 0, 3, 2, 5, 4]);
        assert_eq!(
            numbers(&assign(&tps("test", 0..24))),
            [
                1, 0, 3, 2, 21, 20, 23, 22, 13, 12, 15, 14, 17, 16, 19, 18, 5, 4, 7, 6, 9, 8, 11, 10
            ]
        );
        let four: Vec<_> = (0..4).map(|i| TopicPartition::new(format!("t{i}"), 0)).collect();
        let order: Vec<String> = assign(&four).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["t3-0", "t0-0", "t1-0", "t2-0"]);
        let twenty: Vec<_> = (0..20).map(|i| TopicPartition::new(format!("topic{i}"), 0)).collect();
        let order: Vec<String> = assign(&twenty).iter().map(|tp| tp.topic.replace("topic", "")).collect();
        assert_eq!(order.join(" "), "0 19 1 4 5 2 3 8 11 9 12 6 13 7 14 15 16 17 18 10");
    }

    #[test]
    fn subscribe_tables_of_spec_7_2() {
        let l = tps("test", 0..6);
        let order = hash_map_order(&hash_set_order(&l), table_size_for(6));
        assert_eq!(numbers(&order), [5, 4, 1, 0, 3, 2]);
        let four: Vec<_> = (0..4).map(|i| TopicPartition::new(format!("t{i}"), 0)).collect();
        let order: Vec<String> = hash_map_order(&hash_set_order(&four), 4)
            .iter()
            .map(|t| t.topic.to_string())
            .collect();
        assert_eq!(order, ["t3", "t0", "t1", "t2"]);
    }
}
