//! Promises of a group's commits: each record is returned to some member before the group commits beyond it (at least once), and a copy
//! made in a transaction exists once (exactly once).

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::IsolationLevel;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Partition, Step, Value};

#[derive(Default)]
struct Group {
    /// Values that polls of the group have returned so far.
    returned: BTreeSet<Value>,
    /// The isolation level of its members.
    isolation: Option<IsolationLevel>,
    /// The last committed offset found, and the operation that found it.
    committed: BTreeMap<Partition, (i64, usize)>,
    /// Values with a committed copy.
    copies: BTreeMap<Value, usize>,
    /// Whether its members copy the records that they read.
    copying: bool,
}

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for (number, op) in index.history.ops.iter().enumerate() {
        let mut of = None;
        for step in op.steps() {
            match step {
                Step::Poll {
                    isolation,
                    group: Some(group),
                    records,
                } => {
                    of = Some(*group);
                    let group = groups.entry(*group).or_default();
                    group.returned.extend(records.iter().map(|&(_, _, value)| value));
                    group.isolation = Some(*isolation);
                }
                Step::Send {
                    partition,
                    value,
                    source: Some(source),
                    ..
                } => {
                    let Some(group) = of.and_then(|of| groups.get_mut(&of)) else {
                        continue;
                    };
                    group.copying = true;
                    if index.committed[number]
                        && let Some(before) = group.copies.insert(*source, number)
                    {
                        let what = format!("{value} is a second copy of {source}");
                        found.push(Anomaly::new(Class::CopiedTwice, *partition, vec![before, number], what));
                    }
                }
                _ => {}
            }
        }
        if let Action::Committed { group, offsets } = &op.action {
            let group = groups.entry(*group).or_default();
            for &(partition, offset) in offsets {
                committed(index, group, partition, offset, number, found);
            }
        }
    }
    for group in groups.values().filter(|group| group.copying) {
        not_copied(index, group, found);
    }
}

fn committed(
    index: &Index<'_>,
    group: &mut Group,
    partition: Partition,
    offset: i64,
    op: usize,
    found: &mut Vec<Anomaly>,
) {
    if let Some((before, earlier)) = group.committed.insert(partition, (offset, op))
        && before > offset
    {
        let what = format!("the group had committed {before} and then {offset}");
        found.push(Anomaly::new(Class::CommitRegress, partition, vec![earlier, op], what));
    }
    // Before its first poll, the group may have passed aborted records.
    let isolation = group.isolation.unwrap_or(IsolationLevel::ReadCommitted);
    let Some(log) = index.logs.get(&partition) else { return };
    let start = start_when(index, partition, op);
    let end = index.history.ops[op].end;
    let mut passed = log.visible[super::index::place(isolation)].range(start..offset.max(start));
    let left_out =
        |&(at, value): &(&i64, &Value)| !group.returned.contains(value) && !index.may_be_compacted(partition, *at, end);
    if let Some((at, value)) = passed.find(left_out) {
        let what = format!("the group has committed {offset}, but no poll of it has returned {value} at offset {at}");
        let mut ops = index.ops_with(partition, *value);
        ops.push(op);
        found.push(Anomaly::new(Class::CommitSkip, partition, ops, what));
    }
}

/// The offset below which records may have been deleted before an operation ended: a group continues after them.
fn start_when(index: &Index<'_>, partition: Partition, op: usize) -> i64 {
    index.may_start_at(partition, index.history.ops[op].end)
}

/// Finds records below the group's last committed offset that have no committed copy.
fn not_copied(index: &Index<'_>, group: &Group, found: &mut Vec<Anomaly>) {
    for (&partition, &(offset, op)) in &group.committed {
        let Some(log) = index.logs.get(&partition) else {
            continue;
        };
        let start = start_when(index, partition, op);
        for (at, value) in log.visible[1].range(start..offset.max(start)) {
            if !group.copies.contains_key(value) && !index.may_be_compacted(partition, *at, index.history.ops[op].end) {
                let what =
                    format!("the group has committed {offset}, but {value} at offset {at} has no committed copy");
                let mut ops = index.ops_with(partition, *value);
                ops.push(op);
                found.push(Anomaly::new(Class::NotCopied, partition, ops, what));
            }
        }
    }
}
