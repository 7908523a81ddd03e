//! start-regress, deleted-read.

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Outcome, Partition, Step};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    for (number, op) in index.history.ops.iter().enumerate() {
        if let Action::LogStart { partition, offset } = op.action
            && op.outcome == Outcome::Ok
        {
            let before = index.starts_at(partition, op.begin);
            if offset < before {
                let what = format!("the log starts at {offset}, and had started at {before}");
                found.push(Anomaly::new(
                    Class::StartRegress,
                    partition,
                    deletions(index, partition, number),
                    what,
                ));
            }
        }
        for step in op.steps() {
            let Step::Poll { records, .. } = step else { continue };
            for &(partition, offset, value) in records {
                // Records fetched before a deletion may be returned after it.
                let fetched = index.fetched_at(number, partition, offset);
                let start = index.starts_at(partition, fetched);
                if offset < start {
                    let what = format!(
                        "{value} at offset {offset} was returned from a fetch made at [{fetched}], when the log started at {start}"
                    );
                    let ops = deletions(index, partition, number);
                    found.push(Anomaly::new(Class::DeletedRead, partition, ops, what));
                }
            }
        }
    }
}

/// An operation and the deletions before it.
fn deletions(index: &Index<'_>, partition: Partition, op: usize) -> Vec<usize> {
    let deletes = |&other: &usize| matches!(index.history.ops[other].action, Action::LogStart { partition: p, .. } if p == partition);
    (0..op).filter(deletes).chain([op]).collect()
}
