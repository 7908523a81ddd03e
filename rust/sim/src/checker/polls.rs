//! poll-skip, nonmonotonic-poll and their internal variants.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Partition, Step};

/// Where a process reads on.
#[derive(Clone, Copy)]
struct Position {
    next: i64,
    /// The operation that left it there.
    op: usize,
}

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let mut positions: BTreeMap<(u32, Partition), Position> = BTreeMap::new();
    for (number, op) in index.history.ops.iter().enumerate() {
        if let Action::Moved(to) = &op.action {
            for &(partition, offset) in to {
                match offset {
                    Some(next) => {
                        positions.insert((op.process, partition), Position { next, op: number });
                    }
                    None => {
                        positions.remove(&(op.process, partition));
                    }
                }
            }
        }
        for step in op.steps() {
            let Step::Poll { isolation, records, .. } = step else {
                continue;
            };
            for &(partition, offset, value) in records {
                let here = Position {
                    next: offset + 1,
                    op: number,
                };
                let Some(before) = positions.insert((op.process, partition), here) else {
                    continue;
                };
                let internal = before.op == number;
                if offset < before.next {
                    let class = if internal {
                        Class::IntNonmonotonicPoll
                    } else {
                        Class::NonmonotonicPoll
                    };
                    let what = format!(
                        "{value} at offset {offset} was returned, due was offset {}",
                        before.next
                    );
                    found.push(Anomaly::new(class, partition, vec![before.op, number], what));
                } else if let Some((skipped, left_out)) = index.visible_between(
                    partition,
                    *isolation,
                    before.next.max(index.may_start_at(partition, op.end)),
                    offset,
                ) {
                    let class = if internal { Class::IntPollSkip } else { Class::PollSkip };
                    let what =
                        format!("{value} at offset {offset} was returned, due was {left_out} at offset {skipped}");
                    let mut ops = index.told_by(partition, left_out);
                    ops.extend([before.op, number]);
                    found.push(Anomaly::new(class, partition, ops, what));
                }
            }
        }
    }
}
