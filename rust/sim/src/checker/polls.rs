//! poll-skip, nonmonotonic-poll and their internal variants; compacted-away.

use std::collections::BTreeMap;

use fletchlog_api::IsolationLevel;

use super::compaction::Gone;
use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Partition, Step};

/// The position from which a process continues to read.
#[derive(Clone, Copy)]
struct Position {
    next: i64,
    /// The operation that set it.
    op: usize,
}

/// Returns the records that readers have found removed by compaction.
pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) -> Gone {
    let mut readers = Readers {
        index,
        positions: BTreeMap::new(),
        gone: Gone::new(),
        found,
    };
    for (number, op) in index.history.ops.iter().enumerate() {
        match &op.action {
            Action::Moved(to) => readers.moved(number, to),
            Action::Reached { isolation, offsets } => {
                for &(partition, offset) in offsets {
                    if let Some(before) = readers.positions.get(&(op.process, partition)).copied() {
                        let what = format!("the reader is at offset {offset}");
                        readers.passed(number, *isolation, partition, before, offset, &what);
                    }
                }
            }
            _ => {}
        }
        for step in op.steps() {
            let Step::Poll { isolation, records, .. } = step else {
                continue;
            };
            for &record in records {
                readers.returned(number, *isolation, record);
            }
        }
    }
    readers.gone
}

struct Readers<'a, 'h> {
    index: &'a Index<'h>,
    positions: BTreeMap<(u32, Partition), Position>,
    gone: Gone,
    found: &'a mut Vec<Anomaly>,
}

impl Readers<'_, '_> {
    fn moved(&mut self, op: usize, to: &[(Partition, Option<i64>)]) {
        let process = self.index.history.ops[op].process;
        for &(partition, offset) in to {
            match offset {
                Some(next) => self.positions.insert((process, partition), Position { next, op }),
                None => self.positions.remove(&(process, partition)),
            };
        }
    }

    fn returned(&mut self, op: usize, isolation: IsolationLevel, (partition, offset, value): (Partition, i64, u64)) {
        let here = Position { next: offset + 1, op };
        let reader = (self.index.history.ops[op].process, partition);
        let Some(before) = self.positions.insert(reader, here) else {
            return;
        };
        if offset >= before.next {
            let what = format!("{value} at offset {offset} was returned");
            return self.passed(op, isolation, partition, before, offset, &what);
        }
        let class = if before.op == op {
            Class::IntNonmonotonicPoll
        } else {
            Class::NonmonotonicPoll
        };
        let what = format!(
            "{value} at offset {offset} was returned, due was offset {}",
            before.next
        );
        self.found
            .push(Anomaly::new(class, partition, vec![before.op, op], what));
    }

    /// A reader has moved on to an offset without getting the visible records before it, if any.
    fn passed(
        &mut self,
        op: usize,
        isolation: IsolationLevel,
        partition: Partition,
        before: Position,
        to: i64,
        what: &str,
    ) {
        let end = self.index.history.ops[op].end;
        let from = before.next.max(self.index.may_start_at(partition, end));
        for (at, left_out) in self.index.visible_between(partition, isolation, from, to) {
            if self.index.may_be_compacted(partition, at, end) {
                let first = self.gone.entry((partition, at)).or_insert((end, op));
                *first = (*first).min((end, op));
                continue;
            }
            let class = if self.index.may_be_cleaned(partition, end) {
                Class::CompactedAway
            } else if before.op == op {
                Class::IntPollSkip
            } else {
                Class::PollSkip
            };
            let what = format!("{what}, due was {left_out} at offset {at}");
            let mut ops = self.index.ops_with(partition, left_out);
            ops.extend([before.op, op]);
            self.found.push(Anomaly::new(class, partition, ops, what));
            return;
        }
    }
}
