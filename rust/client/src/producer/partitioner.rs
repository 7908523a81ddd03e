//! Which partition a record goes to (spec 9.7).

use super::metadata::{TopicId, TopicInfo};
use crate::random::Random;

/// Kafka: `Utils#murmur2` (seed 0x9747b28c, m 0x5bd1e995, r 24).
pub fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    #[allow(clippy::cast_possible_truncation, reason = "the hash is over a 32-bit length")]
    let mut h = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            h ^= u32::from(byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^= h >> 15;
    h.cast_signed()
}

/// Partition of a key among all partitions, available or not. Kafka: `BuiltInPartitioner#partitionForKey`.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// Where a row goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// To a partition that the row names, or that its key decides.
    Partition(i32),
    /// To the next partition.
    RoundRobin,
    /// To the partition that gets the null keys at the moment.
    Sticky,
}

/// How the rows of a topic are spread over its partitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    pub partitions: i32,
    pub round_robin: bool,
    pub ignore_keys: bool,
}

impl Placement {
    /// Where a row goes that names this partition and has this key.
    #[inline]
    pub(crate) fn target(self, partition: Option<i32>, key: Option<&[u8]>) -> Target {
        match (partition, key) {
            (Some(partition), _) => Target::Partition(partition),
            _ if self.round_robin => Target::RoundRobin,
            (None, Some(key)) if !self.ignore_keys => Target::Partition(partition_for_key(key, self.partitions)),
            _ => Target::Sticky,
        }
    }
}

/// KIP-794: whether the sticky partition is left once so many bytes were appended to it.
#[inline]
pub(crate) fn is_left(produced: usize, batch_size: usize, all_full: impl FnOnce() -> bool) -> bool {
    produced >= batch_size && (produced >= batch_size.saturating_mul(2) || all_full())
}

/// The partitioners of a producer's topics.
#[derive(Debug)]
pub(crate) struct Partitioners {
    topics: Vec<TopicPartitioner>,
    random: Random,
}

impl Partitioners {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            topics: Vec::new(),
            random: Random::new(seed),
        }
    }
    /// How many topics have a partitioner: those with the lowest numbers.
    pub(crate) fn count(&self) -> usize {
        self.topics.len()
    }
    #[inline]
    pub(crate) fn of(&mut self, topic: TopicId) -> (&mut TopicPartitioner, &mut Random) {
        if topic >= self.topics.len() {
            self.topics.resize_with(topic + 1, TopicPartitioner::default);
        }
        (&mut self.topics[topic], &mut self.random)
    }
    /// The partition that gets the null keys of a topic at the moment.
    #[inline]
    pub(crate) fn sticky(&mut self, topic: TopicId, info: &TopicInfo) -> i32 {
        let (partitioner, random) = self.of(topic);
        partitioner.sticky(info.count(), &info.available, random)
    }
}

/// Where null keys of one topic go at the moment. Partitions are indices from 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopicPartitioner {
    /// KIP-480 and KIP-794: the sticky partition.
    current: Option<i32>,
    /// KIP-794: bytes appended to `current`.
    produced: usize,
    /// KIP-794: partitions and the cumulative frequencies of choosing them; empty = all alike.
    load: (Vec<i32>, Vec<u64>),
    /// RoundRobinPartitioner.
    turn: usize,
}

impl TopicPartitioner {
    /// The sticky partition; chooses one if there is none.
    pub(crate) fn sticky(&mut self, all: i32, available: &[i32], random: &mut Random) -> i32 {
        match self.current {
            Some(partition) => partition,
            None => {
                let partition = self.choose(all, available, random);
                self.current = Some(partition);
                self.produced = 0;
                partition
            }
        }
    }

    /// KIP-480: a new batch is about to be created on `previous`. Kafka: `StickyPartitionCache#nextPartition`.
    pub(crate) fn on_new_batch(&mut self, previous: i32, all: i32, available: &[i32], random: &mut Random) {
        if self.current.is_some_and(|current| current != previous) {
            return;
        }
        self.current = Some(match available {
            [] => to_partition(random.below(to_count(all))),
            [only] => *only,
            several => loop {
                let next = several[random.below(several.len())];
                if Some(next) != self.current {
                    break next;
                }
            },
        });
    }

    /// KIP-794: `bytes` were appended to the current partition; it is left once batch.size bytes are reached and its
    /// batches are complete, or at twice that. True if it was left.
    /// Kafka: `BuiltInPartitioner#updatePartitionInfo`.
    #[inline]
    pub(crate) fn appended(&mut self, bytes: usize, batch_size: usize, all_full: bool) -> bool {
        self.produced = self.produced.saturating_add(bytes);
        let leave = is_left(self.produced, batch_size, || all_full);
        if leave {
            self.current = None;
        }
        leave
    }

    #[inline]
    pub(crate) fn produced(&self) -> usize {
        self.produced
    }

    /// KIP-794: the queue of each usable partition; `complete` = no partition of the topic was left out.
    /// Kafka: `BuiltInPartitioner#updatePartitionLoadStats`.
    pub(crate) fn update_load(&mut self, queues: &[(i32, usize)], complete: bool) {
        self.load.0.clear();
        self.load.1.clear();
        let Some(&(_, first)) = queues.first() else { return };
        let all_equal = queues.iter().all(|&(_, size)| size == first);
        if complete && (queues.len() < 2 || all_equal) {
            return;
        }
        let largest = queues.iter().map(|&(_, size)| size).max().unwrap_or(0);
        let mut total = 0u64;
        for &(partition, size) in queues {
            total += (largest + 1 - size) as u64;
            self.load.0.push(partition);
            self.load.1.push(total);
        }
    }

    fn choose(&self, all: i32, available: &[i32], random: &mut Random) -> i32 {
        if let Some(&total) = self.load.1.last() {
            let pick = (random.next() >> 33) % total.max(1);
            let at = self.load.1.partition_point(|&sum| sum <= pick);
            return self.load.0[at.min(self.load.0.len() - 1)];
        }
        match available {
            [] => to_partition(random.below(to_count(all))),
            some => some[random.below(some.len())],
        }
    }

    /// Kafka: `RoundRobinPartitioner` (without the skipping of 2.4+, a known defect).
    pub(crate) fn round_robin(&mut self, all: i32, available: &[i32]) -> i32 {
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        match available {
            [] => to_partition(turn % to_count(all).max(1)),
            some => some[turn % some.len()],
        }
    }
}

fn to_count(all: i32) -> usize {
    usize::try_from(all).unwrap_or(0)
}

fn to_partition(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_is_javas() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("abc", 479_470_107),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(murmur2(text.as_bytes()), hash, "{text}");
        }
        assert_eq!(partition_for_key(b"21", 7), (-973_932_308 & 0x7fff_ffff) % 7);
    }

    #[test]
    fn a_new_batch_moves_the_sticky_partition_only_if_it_was_on_it() {
        let mut random = Random::new(3);
        let mut topic = TopicPartitioner::default();
        let first = topic.sticky(3, &[0, 1, 2], &mut random);
        assert_eq!(topic.sticky(3, &[0, 1, 2], &mut random), first);
        let other = (first + 1) % 3;
        topic.on_new_batch(other, 3, &[0, 1, 2], &mut random);
        assert_eq!(topic.sticky(3, &[0, 1, 2], &mut random), first);
        topic.on_new_batch(first, 3, &[0, 1, 2], &mut random);
        assert_ne!(topic.sticky(3, &[0, 1, 2], &mut random), first);
        topic.on_new_batch(topic.current.unwrap(), 3, &[1], &mut random);
        assert_eq!(topic.sticky(3, &[1], &mut random), 1);
    }

    #[test]
    fn the_built_in_partitioner_leaves_after_batch_size_bytes_of_complete_batches() {
        let mut random = Random::new(5);
        let mut topic = TopicPartitioner::default();
        topic.sticky(2, &[0, 1], &mut random);
        assert!(!topic.appended(99, 100, true));
        assert!(!topic.appended(1, 100, false));
        assert!(topic.appended(0, 100, true));
        topic.sticky(2, &[0, 1], &mut random);
        assert!(!topic.appended(199, 100, false));
        assert!(topic.appended(1, 100, false));
    }

    #[test]
    fn queues_of_1_7_2_are_chosen_7_1_6() {
        let mut random = Random::new(11);
        let mut topic = TopicPartitioner::default();
        topic.update_load(&[(0, 1), (1, 7), (2, 2)], true);
        let mut counts = [0u32; 3];
        for _ in 0..14_000 {
            let partition = topic.choose(3, &[0, 1, 2], &mut random);
            counts[usize::try_from(partition).unwrap()] += 1;
        }
        for (count, weight) in counts.into_iter().zip([7, 1, 6]) {
            assert!(count.abs_diff(weight * 1000) < 200, "{counts:?}");
        }
        topic.update_load(&[(0, 4), (1, 4)], true);
        assert!(topic.load.0.is_empty());
        topic.update_load(&[(1, 4)], false);
        assert_eq!(topic.choose(3, &[0, 1, 2], &mut random), 1);
    }

    #[test]
    fn round_robin_takes_available_partitions_in_turn() {
        let mut topic = TopicPartitioner::default();
        let got: Vec<i32> = (0..5).map(|_| topic.round_robin(4, &[1, 3])).collect();
        assert_eq!(got, [1, 3, 1, 3, 1]);
    }
}
