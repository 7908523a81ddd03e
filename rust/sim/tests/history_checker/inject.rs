//! One anomaly of a class, put into a history that has none.

use fletchlog_api::IsolationLevel;
use fletchlog_sim::rng::Rng;

use super::generate::{ADMIN, KEYED, READERS};
use super::{Action, Class, Fetch, History, Op, Outcome, Step};
use super::{compacted, groups};

/// Puts it in; false if the history has no place for it.
pub fn inject(class: Class, history: &mut History, seed: u64) -> bool {
    let rng = &mut Rng::new(seed ^ 0x1A7E);
    match class {
        Class::InconsistentOffsets => move_send(history, rng, |_, other| other),
        Class::Duplicate => move_send(history, rng, |own, _| own + 100_000),
        Class::LostWrite => hide(history, rng, false),
        Class::Unseen => hide(history, rng, true),
        Class::G1a => fail(history, rng),
        Class::PrecommittedRead => read_own(history, rng),
        Class::PollSkip => edit_poll(history, rng, 2, true, |records, first| {
            records.remove(first);
        }),
        Class::NonmonotonicPoll => go_back(history, rng),
        Class::IntPollSkip => edit_poll(history, rng, 3, false, |records, first| {
            records.remove(first + 1);
        }),
        Class::IntNonmonotonicPoll => edit_poll(history, rng, 3, false, |records, first| {
            records.swap(first + 1, first + 2)
        }),
        Class::IntSendSkip => send_between(history, rng),
        Class::IntNonmonotonicSend => swap_steps(history, rng),
        Class::NonmonotonicSend => swap_ops(history, rng),
        Class::G0 => with_new(history, |v, end, ends| {
            vec![
                op(50, v, transaction(vec![send(0, 1, end), send(1, 2, ends + 1)])),
                op(51, v, transaction(vec![send(0, 3, end + 1), send(1, 4, ends)])),
            ]
        }),
        Class::G0Process => one_after_the_other(history, 50, 50, |end| (send(0, 1, end + 1), send(0, 2, end))),
        Class::G0Realtime => one_after_the_other(history, 50, 51, |end| (send(0, 1, end + 1), send(0, 2, end))),
        Class::G1c => with_new(history, |v, end, ends| {
            vec![
                op(50, v, transaction(vec![send(0, 1, end), poll(1, 2, ends)])),
                op(51, v, transaction(vec![send(1, 2, ends), poll(0, 1, end)])),
            ]
        }),
        Class::G1cProcess => one_after_the_other(history, 50, 50, |end| (poll(0, 1, end), send(0, 1, end))),
        Class::G1cRealtime => one_after_the_other(history, 50, 51, |end| (poll(0, 1, end), send(0, 1, end))),
        Class::CommitSkip => groups::forget(history, rng),
        Class::CommitRegress => groups::go_back_in_commits(history),
        Class::CopiedTwice => groups::copy_again(history),
        Class::NotCopied => groups::lose_copy(history),
        Class::StartRegress => take_back_start(history),
        Class::DeletedRead => read_deleted(history, rng),
        Class::CompactedAway => compacted::take_away(history, rng),
        Class::CompactedRead => compacted::bring_back(history, rng),
        Class::FencedCommit => groups::let_fenced_commit(history),
        Class::StaticRebalance => groups::rebalance(history, rng),
        of_share_group => panic!("{of_share_group} has no operations"),
    }
}

/// Numbers of new values, so that they are no others'.
pub const NEW: u64 = 1_000_000;

fn send(partition: u32, value: u64, offset: i64) -> Step {
    Step::Send {
        partition,
        value: NEW + value,
        offset: Some(offset),
        source: None,
        keyed: None,
    }
}

fn poll(partition: u32, value: u64, offset: i64) -> Step {
    Step::Poll {
        isolation: IsolationLevel::ReadUncommitted,
        group: None,
        records: vec![(partition, offset, NEW + value)],
    }
}

fn op(process: u32, (begin, end): (u64, u64), action: Action) -> Op {
    Op {
        process,
        begin,
        end,
        outcome: Outcome::Ok,
        action,
    }
}

fn plain(steps: Vec<Step>) -> Action {
    let transaction = false;
    Action::Steps { steps, transaction }
}

pub fn transaction(steps: Vec<Step>) -> Action {
    let transaction = true;
    Action::Steps { steps, transaction }
}

/// Puts an operation at the end, behind all others.
pub fn add(history: &mut History, process: u32, action: Action) {
    let begin = after(history);
    history.ops.push(op(process, (begin, begin + 1), action));
}

/// A moment after all others.
fn after(history: &History) -> u64 {
    let ends = history
        .ops
        .iter()
        .map(|op| if op.end == u64::MAX { op.begin } else { op.end });
    ends.max().unwrap() + 1
}

/// The first free offset of a partition.
pub fn end_of(history: &History, partition: u32) -> i64 {
    let all = history.ops.iter().flat_map(Op::steps).flat_map(|step| match step {
        Step::Send { partition, offset, .. } => offset.map(|o| (*partition, o)).into_iter().collect::<Vec<_>>(),
        Step::Poll { records, .. } => records.iter().map(|&(p, o, _)| (p, o)).collect(),
    });
    all.filter(|&(p, _)| p == partition)
        .map(|(_, o)| o + 1)
        .max()
        .unwrap_or(0)
}

/// Overlapping operations at the end, on partitions 0 and 1.
fn with_new(history: &mut History, make: impl Fn((u64, u64), i64, i64) -> Vec<Op>) -> bool {
    let from = after(history);
    let ends = (end_of(history, 0), end_of(history, 1));
    let mut made = make((from, from + 10), ends.0, ends.1);
    made[1].begin += 1;
    history.ops.extend(made);
    true
}

/// Two operations at the end, the second begins after the first has ended.
fn one_after_the_other(history: &mut History, first: u32, second: u32, make: impl Fn(i64) -> (Step, Step)) -> bool {
    let (one, other) = make(end_of(history, 0));
    add(history, first, plain(vec![one]));
    add(history, second, plain(vec![other]));
    true
}

pub fn any<T>(rng: &mut Rng, of: Vec<T>) -> Option<T> {
    let n = of.len();
    (n > 0).then(|| of.into_iter().nth(rng.below(n)).unwrap())
}

pub fn steps(history: &mut History, op: usize) -> &mut Vec<Step> {
    match &mut history.ops[op].action {
        Action::Steps { steps, .. } => steps,
        _ => unreachable!(),
    }
}

/// What lies at or above where its log starts in the end must be there, whatever was deleted. Compaction is another matter.
fn stays(history: &History, partition: u32, offset: i64) -> bool {
    partition != KEYED && history.ops.iter().all(
        |op| !matches!(op.action, Action::LogStart { partition: p, offset: start } if p == partition && start > offset),
    )
}

/// (operation, step, partition, offset, value) of the acknowledged sends of operations that succeeded, of what was not deleted.
fn sends(history: &History) -> Vec<(usize, usize, u32, i64, u64)> {
    let ok = history
        .ops
        .iter()
        .enumerate()
        .filter(|(_, op)| op.outcome == Outcome::Ok);
    ok.flat_map(|(number, op)| {
        op.steps().iter().enumerate().filter_map(move |(step, s)| match *s {
            Step::Send {
                partition,
                value,
                offset: Some(offset),
                ..
            } if stays(history, partition, offset) => Some((number, step, partition, offset, value)),
            _ => None,
        })
    })
    .collect()
}

/// An acknowledgement names another offset: (own, that of another value) -> wrong.
fn move_send(history: &mut History, rng: &mut Rng, wrong: impl Fn(i64, i64) -> i64) -> bool {
    let all = sends(history);
    let Some((op, step, partition, own, _)) = any(rng, all.clone()) else {
        return false;
    };
    let others: Vec<i64> = all
        .iter()
        .filter(|s| s.2 == partition && s.3 != own)
        .map(|s| s.3)
        .collect();
    let Some(other) = any(rng, others) else { return false };
    if let Step::Send { offset, .. } = &mut steps(history, op)[step] {
        *offset = Some(wrong(own, other));
    }
    true
}

/// A value that nobody gets: the last of its partition, or one before it.
fn hide(history: &mut History, rng: &mut Rng, last: bool) -> bool {
    let all = sends(history);
    let read: Vec<(u32, i64)> = history
        .ops
        .iter()
        .flat_map(Op::steps)
        .flat_map(|step| match step {
            Step::Poll {
                isolation: IsolationLevel::ReadCommitted,
                records,
                ..
            } => records.clone(),
            _ => Vec::new(),
        })
        .map(|(partition, offset, _)| (partition, offset))
        .collect();
    // A reader of uncommitted records may have read aborted ones behind it: partitions 0 and 1 have none.
    let is_last = |s: &(usize, usize, u32, i64, u64)| !read.iter().any(|&(p, o)| p == s.2 && o > s.3);
    let places = all.into_iter().filter(|s| s.2 < 2 && is_last(s) == last).collect();
    let Some((.., value)) = any(rng, places) else {
        return false;
    };
    for op in 0..history.ops.len() {
        if let Action::Steps { steps, .. } = &mut history.ops[op].action {
            for step in steps {
                if let Step::Poll { records, .. } = step {
                    records.retain(|r| r.2 != value);
                }
            }
        }
    }
    true
}

/// What was read has failed, or was aborted.
fn fail(history: &mut History, rng: &mut Rng) -> bool {
    let Some((op, ..)) = any(rng, sends(history)) else {
        return false;
    };
    history.ops[op].outcome = Outcome::Failed;
    true
}

fn read_own(history: &mut History, rng: &mut Rng) -> bool {
    let all = sends(history);
    let in_transactions = all.into_iter().filter(|s| history.ops[s.0].is_transaction()).collect();
    let Some((op, step, partition, offset, value)) = any(rng, in_transactions) else {
        return false;
    };
    let own = Step::Poll {
        isolation: IsolationLevel::ReadCommitted,
        group: None,
        records: vec![(partition, offset, value)],
    };
    steps(history, op).insert(step + 1, own);
    true
}

/// Places (operation, index) of a reader's first record of a partition in a poll that returned at least `least` of it.
pub fn polls(history: &History, least: usize, goes_on: bool) -> Vec<(usize, usize)> {
    let mut read_before = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    for (number, op) in history.ops.iter().enumerate() {
        if let Action::Moved(to) = &op.action {
            for &(partition, _) in to {
                read_before.remove(&(op.process, partition));
            }
        }
        let [Step::Poll { records, .. }] = op.steps() else {
            continue;
        };
        for (i, &(partition, offset, _)) in records.iter().enumerate() {
            if !stays(history, partition, offset) {
                continue;
            }
            let first = i == 0 || records[i - 1].0 != partition;
            let count = records.iter().filter(|r| r.0 == partition).count();
            if first && count >= least && (!goes_on || read_before.contains(&(op.process, partition))) {
                found.push((number, i));
            }
        }
        read_before.extend(records.iter().map(|r| (op.process, r.0)));
    }
    found
}

fn edit_poll(
    history: &mut History,
    rng: &mut Rng,
    least: usize,
    goes_on: bool,
    edit: impl Fn(&mut Vec<(u32, i64, u64)>, usize),
) -> bool {
    let Some((op, first)) = any(rng, polls(history, least, goes_on)) else {
        return false;
    };
    if let [Step::Poll { records, .. }] = steps(history, op).as_mut_slice() {
        edit(records, first);
    }
    true
}

/// A poll begins with what the poll before ended with.
fn go_back(history: &mut History, rng: &mut Rng) -> bool {
    let Some((op, first)) = any(rng, polls(history, 1, true)) else {
        return false;
    };
    let process = history.ops[op].process;
    let [Step::Poll { records, .. }] = history.ops[op].steps() else {
        return false;
    };
    let partition = records[first].0;
    let before = history.ops[..op]
        .iter()
        .filter(|o| o.process == process)
        .flat_map(Op::steps);
    let last = before
        .filter_map(|step| match step {
            Step::Poll { records, .. } => records.iter().rev().find(|r| r.0 == partition).copied(),
            Step::Send { .. } => None,
        })
        .next_back();
    let Some(last) = last else { return false };
    if let [Step::Poll { records, .. }] = steps(history, op).as_mut_slice() {
        records.insert(first, last);
    }
    true
}

/// Two sends of one transaction to one partition: (operation, step, step, partition, offset).
fn pairs(history: &History) -> Vec<(usize, usize, usize, u32, i64)> {
    let all = sends(history);
    let next = |a: &(usize, usize, u32, i64, u64)| {
        let behind = all.iter().find(|b| b.0 == a.0 && b.1 > a.1 && b.2 == a.2)?;
        Some((a.0, a.1, behind.1, a.2, a.3))
    };
    all.iter().filter_map(next).collect()
}

/// Somebody else's record, put behind the first of two: everything behind moves on by one.
fn send_between(history: &mut History, rng: &mut Rng) -> bool {
    let Some((.., partition, at)) = any(rng, pairs(history)) else {
        return false;
    };
    for op in &mut history.ops {
        match &mut op.action {
            Action::Steps { steps, .. } => {
                for step in steps {
                    match step {
                        Step::Send {
                            partition: p,
                            offset: Some(offset),
                            ..
                        } if *p == partition && *offset > at => *offset += 1,
                        Step::Poll { records, .. } => {
                            records
                                .iter_mut()
                                .filter(|r| r.0 == partition && r.1 > at)
                                .for_each(|r| r.1 += 1);
                        }
                        Step::Send { .. } => {}
                    }
                }
            }
            Action::Moved(to) => {
                for (_, offset) in to.iter_mut().filter(|t| t.0 == partition) {
                    *offset = offset.map(|o| if o > at { o + 1 } else { o });
                }
            }
            Action::Reached { offsets, .. } => offsets.iter_mut().filter(|t| t.0 == partition).for_each(|t| t.1 += 1),
            Action::Committed { .. }
            | Action::Cleaned { .. }
            | Action::LogStart { .. }
            | Action::Cut { .. }
            | Action::Joined(_)
            | Action::InstanceCommit { .. }
            | Action::Note(_) => {}
        }
    }
    add(history, 50, plain(vec![send(partition, 1, at + 1)]));
    true
}

fn swap_steps(history: &mut History, rng: &mut Rng) -> bool {
    let Some((op, one, other, ..)) = any(rng, pairs(history)) else {
        return false;
    };
    steps(history, op).swap(one, other);
    true
}

/// Two sends of one process to one partition change their places.
fn swap_ops(history: &mut History, rng: &mut Rng) -> bool {
    let all = sends(history);
    let plain = |s: &&(usize, usize, u32, i64, u64)| !history.ops[s.0].is_transaction();
    let next = |a: &(usize, usize, u32, i64, u64)| {
        let process = history.ops[a.0].process;
        let mut behind = all.iter().filter(plain).filter(|b| b.0 > a.0 && b.2 == a.2);
        Some((a.0, behind.find(|b| history.ops[b.0].process == process)?.0))
    };
    let Some((one, other)) = any(rng, all.iter().filter(plain).filter_map(next).collect()) else {
        return false;
    };
    let action = history.ops[one].action.clone();
    history.ops[one].action = std::mem::replace(&mut history.ops[other].action, action);
    true
}

/// (partition, offset) of the deletions that are known to have happened and that deleted something.
fn deletions(history: &History) -> Vec<(u32, i64)> {
    let deletes = |op: &Op| match op.action {
        Action::LogStart { partition, offset } if op.outcome == Outcome::Ok && offset > 0 => Some((partition, offset)),
        _ => None,
    };
    history.ops.iter().filter_map(deletes).collect()
}

fn take_back_start(history: &mut History) -> bool {
    let Some(&(partition, offset)) = deletions(history).last() else {
        return false;
    };
    let offset = offset - 1;
    add(history, ADMIN, Action::LogStart { partition, offset });
    true
}

/// A reader fetches, after everything else, what it should not find any more: a new one, or one that goes back to it.
pub fn read_late(history: &mut History, rng: &mut Rng, record: (u32, i64, u64)) {
    let (partition, offset, _) = record;
    let process = if rng.chance(500) {
        60
    } else {
        let process = READERS[0].0;
        add(history, process, Action::Moved(vec![(partition, Some(offset))]));
        history.fetches.push(Fetch {
            process,
            partition,
            arrived: after(history),
            offsets: (offset, offset),
        });
        process
    };
    let poll = Step::Poll {
        isolation: IsolationLevel::ReadUncommitted,
        group: None,
        records: vec![record],
    };
    add(history, process, plain(vec![poll]));
}

/// The last record that a deletion took, and that was acknowledged or read.
fn read_deleted(history: &mut History, rng: &mut Rng) -> bool {
    let known = |partition: u32, below: i64| {
        let sent = history.ops.iter().flat_map(Op::steps).filter_map(|step| match *step {
            Step::Send {
                partition: p,
                value,
                offset: Some(offset),
                ..
            } if p == partition && offset < below => Some((offset, value)),
            _ => None,
        });
        sent.max()
    };
    let Some((partition, (offset, value))) = deletions(history)
        .into_iter()
        .find_map(|(partition, below)| Some((partition, known(partition, below)?)))
    else {
        return false;
    };
    read_late(history, rng, (partition, offset, value));
    true
}
