//! Checks of index entries against the batches that they lead to.

use std::path::Path;

use super::report::Problem;
use crate::batch_walk::BatchMeta;
use crate::offset_index::{self, OffsetIndex, OffsetPosition};
use crate::time_index::{self, TimeIndex};

fn problem(path: &Path, entry: usize, entry_size: usize, reason: impl Into<String>) -> Problem {
    Problem {
        path: path.to_path_buf(),
        position: (entry * entry_size) as u64,
        reason: reason.into(),
    }
}

/// An offset entry leads to the batch that ends with its offset.
pub(super) struct OffsetCheck<'p> {
    pub path: &'p Path,
    pub index: OffsetIndex,
    pub next: usize,
}

impl OffsetCheck<'_> {
    pub fn on_batch(&mut self, batch: &BatchMeta, problems: &mut Vec<Problem>) {
        let expected = OffsetPosition {
            offset: batch.last_offset(),
            position: batch.position,
        };
        while let Some(entry) = self
            .index
            .entry(self.next)
            .filter(|entry| entry.position <= batch.position)
        {
            if entry != expected {
                let OffsetPosition { offset, position } = entry;
                let reason = format!("entry ({offset}, {position}) does not lead to the batch that ends with {offset}");
                problems.push(problem(self.path, self.next, offset_index::ENTRY_SIZE, reason));
            }
            self.next += 1;
        }
    }

    pub fn rest(&self, problems: &mut Vec<Problem>) {
        let reason = "entry leads behind the last batch";
        let rest = self.next..self.index.len();
        problems.extend(rest.map(|i| problem(self.path, i, offset_index::ENTRY_SIZE, reason)));
    }
}

/// A time entry has the largest timestamp up to its offset, and its offset ends the first batch with that timestamp.
pub(super) struct TimeCheck<'p> {
    pub path: &'p Path,
    pub index: TimeIndex,
    pub next: usize,
}

impl TimeCheck<'_> {
    pub fn on_batch(&mut self, last_offset: i64, max_timestamp: i64, is_newest: bool, problems: &mut Vec<Problem>) {
        while let Some(entry) = self.index.entry(self.next).filter(|entry| entry.offset <= last_offset) {
            if entry.offset != last_offset || entry.timestamp != max_timestamp || !is_newest {
                let reason = format!(
                    "entry ({}, {}) is not the largest timestamp up to the first batch that has it",
                    entry.timestamp, entry.offset
                );
                problems.push(problem(self.path, self.next, time_index::ENTRY_SIZE, reason));
            }
            self.next += 1;
        }
    }

    pub fn rest(&self, problems: &mut Vec<Problem>) {
        let reason = "entry has an offset behind the last batch";
        let rest = self.next..self.index.len();
        problems.extend(rest.map(|i| problem(self.path, i, time_index::ENTRY_SIZE, reason)));
    }
}
