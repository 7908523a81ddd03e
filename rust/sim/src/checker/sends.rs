//! int-send-skip, int-nonmonotonic-send, nonmonotonic-send.

use std::collections::BTreeMap;

use fletchlog_api::IsolationLevel;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Partition, Step, Value};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    // (process, partition) -> the last record sent whose offset is known: operation, offset, value.
    let mut last: BTreeMap<(u32, Partition), (usize, i64, Value)> = BTreeMap::new();
    for (number, op) in index.history.ops.iter().enumerate() {
        for step in op.steps() {
            let &Step::Send {
                partition,
                value,
                offset: Some(offset),
                ..
            } = step
            else {
                continue;
            };
            let Some((before, first, other)) = last.insert((op.process, partition), (number, offset, value)) else {
                continue;
            };
            let internal = before == number;
            if offset < first {
                let class = if internal {
                    Class::IntNonmonotonicSend
                } else {
                    Class::NonmonotonicSend
                };
                let what = format!("{value} was sent after {other}, but is at {offset}, before {first}");
                found.push(Anomaly::new(class, partition, vec![before, number], what));
            } else if internal
                && let Some((at, between)) = index
                    .visible_between(partition, IsolationLevel::ReadUncommitted, first + 1, offset)
                    .next()
            {
                let what = format!("between {other} at {first} and {value} at {offset} is {between} at {at}");
                let mut ops = index.ops_with(partition, between);
                ops.push(number);
                found.push(Anomaly::new(Class::IntSendSkip, partition, ops, what));
            }
        }
    }
}
