//! What members of a group must not do, put into a history.

use fletchlog_sim::rng::Rng;

use super::generate::{COPIER, LOOKER, MEMBER};
use super::inject::{NEW, add, any, end_of, polls, steps, transaction};
use super::{Action, History, Joined, Op, Outcome, Step};

/// A record that the group has gone past was returned to nobody of it.
pub fn forget(history: &mut History, rng: &mut Rng) -> bool {
    let mut polls = polls(history, 1, false);
    polls.retain(|&(op, _)| history.ops[op].process == MEMBER);
    let Some((op, first)) = any(rng, polls) else {
        return false;
    };
    if let [Step::Poll { records, .. }] = steps(history, op).as_mut_slice() {
        records.remove(first);
    }
    true
}

pub fn go_back_in_commits(history: &mut History) -> bool {
    let looked = history.ops.iter().filter_map(|op| match &op.action {
        Action::Committed { group: 0, offsets } => Some(offsets.clone()),
        _ => None,
    });
    let all: Vec<_> = looked.collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        return false;
    };
    if first == last {
        return false;
    }
    let offsets = first.clone();
    add(history, LOOKER, Action::Committed { group: 0, offsets });
    true
}

/// Operations of the copier that copied something and were committed.
fn copying(history: &History) -> Vec<usize> {
    let copied = |op: &Op| op.process == COPIER && op.outcome == Outcome::Ok && op.steps().len() > 1;
    (0..history.ops.len()).filter(|&n| copied(&history.ops[n])).collect()
}

pub fn copy_again(history: &mut History) -> bool {
    let Some(&number) = copying(history).first() else {
        return false;
    };
    let copied = history.ops[number].steps().to_vec();
    let Step::Send { partition, source, .. } = copied[1] else {
        return false;
    };
    let offset = Some(end_of(history, partition));
    let again = Step::Send {
        partition,
        value: NEW,
        offset,
        source,
        keyed: None,
    };
    add(history, COPIER, transaction(vec![copied[0].clone(), again]));
    true
}

pub fn lose_copy(history: &mut History) -> bool {
    let Some(&number) = copying(history).first() else {
        return false;
    };
    steps(history, number).remove(1);
    true
}

/// A refused commit of a member that was taken over counts.
pub fn let_fenced_commit(history: &mut History) -> bool {
    let refused = |op: &&mut Op| matches!(op.action, Action::InstanceCommit { .. }) && op.outcome == Outcome::Unknown;
    let Some(op) = history.ops.iter_mut().find(refused) else {
        return false;
    };
    (op.outcome, op.end) = (Outcome::Ok, op.begin + 1);
    true
}

/// The member that was back in time is in the next generation, or has other partitions.
pub fn rebalance(history: &mut History, rng: &mut Rng) -> bool {
    let back = history.ops.iter_mut().find_map(|op| match &mut op.action {
        Action::Joined(joined) if joined.in_time => Some(joined),
        _ => None,
    });
    let Some(Joined {
        generation, partitions, ..
    }) = back
    else {
        return false;
    };
    if rng.chance(500) {
        *generation += 1;
    } else {
        partitions.push(9);
    }
    true
}
