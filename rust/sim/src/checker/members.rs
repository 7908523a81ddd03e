//! fenced-commit, static-rebalance: what a group promises to members with a group.instance.id.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Outcome, Partition};

/// A group's instance.
type Instance = (u32, u32);

struct Joined<'h> {
    op: usize,
    process: u32,
    end: u64,
    generation: i32,
    partitions: &'h [Partition],
}

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
    let mut joined: BTreeMap<Instance, Vec<Joined<'_>>> = BTreeMap::new();
    for (number, op) in index.history.ops.iter().enumerate() {
        begins.entry(op.process).or_insert(op.begin);
        match &op.action {
            Action::Joined {
                group,
                instance,
                generation,
                partitions,
                in_time,
            } => {
                let of_instance = joined.entry((*group, *instance)).or_default();
                let now = Joined {
                    op: number,
                    process: op.process,
                    end: op.end,
                    generation: *generation,
                    partitions,
                };
                let before = of_instance.iter().rfind(|j| j.process != op.process);
                if let Some(before) = before.filter(|_| *in_time)
                    && (before.generation, before.partitions) != (now.generation, now.partitions)
                {
                    let what = format!(
                        "instance {instance} of group {group} was back in time, had {:?} in generation {}, and got {:?} in generation {}",
                        before.partitions, before.generation, now.partitions, now.generation
                    );
                    found.push(of_ops(Class::StaticRebalance, vec![before.op, number], what));
                }
                of_instance.push(now);
            }
            Action::InstanceCommit { group, instance } if op.outcome == Outcome::Ok => {
                let of_instance = joined.get(&(*group, *instance)).map_or(&[][..], Vec::as_slice);
                let Some(own) = of_instance.iter().rfind(|j| j.process == op.process) else {
                    continue;
                };
                // Who began after the last join of this process took the instance over.
                let taken_over =
                    |j: &&Joined<'_>| j.process != op.process && begins[&j.process] > own.end && j.end < op.begin;
                if let Some(other) = of_instance.iter().find(taken_over) {
                    let what = format!(
                        "process {} has committed as instance {instance} of group {group}, which process {} had taken over",
                        op.process, other.process
                    );
                    found.push(of_ops(Class::FencedCommit, vec![own.op, other.op, number], what));
                }
            }
            _ => {}
        }
    }
}

fn of_ops(class: Class, ops: Vec<usize>, what: String) -> Anomaly {
    Anomaly {
        class,
        partition: None,
        ops,
        what,
    }
}
