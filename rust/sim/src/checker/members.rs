//! fenced-commit, static-rebalance: promises of a group to members with a group.instance.id.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Joined, Outcome};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let ops = &index.history.ops;
    let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
    // Per group and instance: the operations in which it joined.
    let mut joined: BTreeMap<(u32, u32), Vec<(usize, &Joined)>> = BTreeMap::new();
    for (number, op) in ops.iter().enumerate() {
        begins.entry(op.process).or_insert(op.begin);
        match &op.action {
            Action::Joined(now) => {
                let of_instance = joined.entry((now.group, now.instance)).or_default();
                let before = of_instance.iter().rfind(|(other, _)| ops[*other].process != op.process);
                if let Some(&(earlier, before)) = before.filter(|_| now.in_time)
                    && (before.generation, &before.partitions) != (now.generation, &now.partitions)
                {
                    let what = format!(
                        "instance {} of group {} was back in time, had {before}, and got {now}",
                        now.instance, now.group
                    );
                    found.push(of_ops(Class::StaticRebalance, vec![earlier, number], what));
                }
                of_instance.push((number, now));
            }
            Action::InstanceCommit { group, instance } if op.outcome == Outcome::Ok => {
                let of_instance = joined.get(&(*group, *instance)).map_or(&[][..], Vec::as_slice);
                let own = of_instance.iter().rfind(|(other, _)| ops[*other].process == op.process);
                let Some(&(own, _)) = own else { continue };
                // A process that started after this one had joined has taken over the instance.
                let taken_over = |&&(other, _): &&(usize, &Joined)| {
                    let other = &ops[other];
                    other.process != op.process && begins[&other.process] > ops[own].end && other.end < op.begin
                };
                if let Some(&(other, _)) = of_instance.iter().find(taken_over) {
                    let what = format!(
                        "process {} has committed as instance {instance} of group {group}, which process {} had taken over",
                        op.process, ops[other].process
                    );
                    found.push(of_ops(Class::FencedCommit, vec![own, other, number], what));
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
