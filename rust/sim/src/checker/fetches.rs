//! The earliest time at which a record that a poll returned was read from the log.

use std::collections::BTreeMap;

use crate::history::{Action, Fetch, History, Op, Partition};

/// A process and a partition that it reads.
type Reader = (u32, Partition);

#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// When the first operation of each process began.
    began: BTreeMap<u32, u64>,
    /// When the reader changed its position, in order: a consumer then discards its fetched records.
    moved: BTreeMap<Reader, Vec<u64>>,
    fetches: BTreeMap<Reader, Vec<Fetch>>,
}

impl Fetched {
    pub fn of(history: &History) -> Self {
        let mut fetched = Self::default();
        for op in &history.ops {
            fetched.began.entry(op.process).or_insert(op.begin);
            if let Action::Moved(to) = &op.action {
                for &(partition, _) in to {
                    fetched.moved.entry((op.process, partition)).or_default().push(op.begin);
                }
            }
        }
        for fetch in &history.fetches {
            let of_reader = fetched.fetches.entry((fetch.process, fetch.partition)).or_default();
            of_reader.push(*fetch);
        }
        fetched
    }

    /// A moment before which the record had not been read. A record in several fetches came with the first one since the process last
    /// changed its position; a fetch that was in progress then may still have been used.
    pub fn at(&self, poll: &Op, partition: Partition, offset: i64) -> u64 {
        let reader = (poll.process, partition);
        let moved = self.moved.get(&reader).map_or(&[][..], Vec::as_slice);
        let since = moved.partition_point(|&moment| moment < poll.begin).checked_sub(1);
        let since = since.map_or(0, |last| moved[last]);
        let holds = |fetch: &&Fetch| (fetch.offsets.0..=fetch.offsets.1).contains(&offset);
        let fetches = self.fetches.get(&reader).into_iter().flatten().filter(holds);
        let arrived = fetches
            .map(|fetch| fetch.arrived)
            .filter(|&arrived| arrived <= poll.end);
        // Fetches before the move come last.
        let first = arrived.min_by_key(|&arrived| (arrived <= since, arrived));
        first.unwrap_or_else(|| self.began[&poll.process])
    }
}
