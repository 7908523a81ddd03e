//! What compaction must not do, put into a history, and what it may.

use fletchlog_api::IsolationLevel;
use fletchlog_sim::checker;
use fletchlog_sim::rng::Rng;

use super::generate::{CLEANER, KEYED, LAST_READERS};
use super::inject::{any, read_late, steps};
use super::{Action, Class, Fetch, History, Keyed, Op, Outcome, Step};

/// (offset, value, what it goes by) of every record of the compacted partition that may be in its log.
fn sends(history: &History) -> Vec<(Option<i64>, u64, Keyed)> {
    let all = history.ops.iter().flat_map(Op::steps).filter_map(|step| match *step {
        Step::Send {
            partition: KEYED,
            value,
            offset,
            keyed: Some(keyed),
            ..
        } => Some((offset, value, keyed)),
        _ => None,
    });
    all.collect()
}

/// The highest bound of a cleaning.
fn bound(history: &History) -> Option<i64> {
    let below = |op: &Op| match op.action {
        Action::Cleaned { below, .. } => Some(below),
        _ => None,
    };
    history.ops.iter().filter_map(below).max()
}

/// (offset, value) of what the readers at the end found.
fn found_last(history: &History) -> Vec<(i64, u64)> {
    let ops = history.ops.iter().filter(|op| op.process == LAST_READERS[0]);
    let polls = ops.flat_map(Op::steps).filter_map(|step| match step {
        Step::Poll { records, .. } => Some(records),
        Step::Send { .. } => None,
    });
    let records = polls.flatten().filter(|r| r.0 == KEYED);
    records.map(|&(_, offset, value)| (offset, value)).collect()
}

/// The newest value of a key, or what no cleaning has reached, is gone at the end.
pub fn take_away(history: &mut History, rng: &mut Rng) -> bool {
    let Some(bound) = bound(history) else { return false };
    let sent = sends(history);
    let must_stay = |&(offset, value): &(i64, u64)| {
        let own = sent.iter().find(|s| s.1 == value).unwrap().2;
        // Values are numbered as they are sent.
        let is_newest = !sent.iter().any(|s| s.2.key == own.key && s.1 > value);
        let maybe_replaced = sent.iter().any(|s| s.2.key == own.key && s.0.is_none());
        !maybe_replaced && (offset >= bound || is_newest && !own.tombstone)
    };
    let candidates = found_last(history).into_iter().filter(must_stay).collect();
    let Some((_, gone)) = any(rng, candidates) else {
        return false;
    };
    for number in 0..history.ops.len() {
        if !LAST_READERS.contains(&history.ops[number].process) || history.ops[number].steps().is_empty() {
            continue;
        }
        for step in steps(history, number) {
            if let Step::Poll { records, .. } = step {
                records.retain(|r| r.2 != gone);
            }
        }
    }
    true
}

/// What the readers at the end have found removed is there again.
pub fn bring_back(history: &mut History, rng: &mut Rng) -> bool {
    let left = found_last(history);
    let gone = sends(history).into_iter().filter_map(|(offset, value, _)| {
        let offset = offset?;
        (!left.iter().any(|&(at, _)| at == offset)).then_some((KEYED, offset, value))
    });
    let Some(record) = any(rng, gone.collect()) else {
        return false;
    };
    read_late(history, rng, record);
    true
}

const PRODUCER: u32 = 1;
const READER: u32 = 2;

fn at(process: u32, begin: u64, outcome: Outcome, action: Action) -> Op {
    Op {
        process,
        begin,
        end: begin + 1,
        outcome,
        action,
    }
}

fn sent(begin: u64, offset: Option<i64>, value: u64, keyed: (u32, bool)) -> Op {
    let (key, tombstone) = keyed;
    let step = Step::Send {
        partition: 0,
        value,
        offset,
        source: None,
        keyed: Some(Keyed { key, tombstone }),
    };
    let outcome = if offset.is_some() {
        Outcome::Ok
    } else {
        Outcome::Unknown
    };
    let steps = vec![step];
    at(
        PRODUCER,
        begin,
        outcome,
        Action::Steps {
            steps,
            transaction: false,
        },
    )
}

fn cleaned(begin: u64, below: i64, sent_before: u64, seen_before: u64) -> Op {
    let action = Action::Cleaned {
        partition: 0,
        below,
        sent_before,
        seen_before,
    };
    at(CLEANER, begin, Outcome::Ok, action)
}

/// A reader from the start to the end that finds these (offset, value).
fn read(begin: u64, end: i64, records: &[(i64, u64)]) -> Vec<Op> {
    let isolation = IsolationLevel::ReadUncommitted;
    let step = Step::Poll {
        isolation,
        group: None,
        records: records.iter().map(|&(offset, value)| (0, offset, value)).collect(),
    };
    let steps = vec![step];
    let reached = Action::Reached {
        isolation,
        offsets: vec![(0, end)],
    };
    vec![
        at(READER, begin, Outcome::Ok, Action::Moved(vec![(0, Some(0))])),
        at(
            READER,
            begin + 2,
            Outcome::Ok,
            Action::Steps {
                steps,
                transaction: false,
            },
        ),
        at(READER, begin + 4, Outcome::Ok, reached),
    ]
}

fn classes(ops: impl IntoIterator<Item = Op>, fetches: &[Fetch]) -> Vec<Class> {
    let history = History {
        ops: ops.into_iter().collect(),
        fetches: fetches.to_vec(),
        ..History::default()
    };
    let mut classes: Vec<Class> = checker::check(&history).into_iter().map(|a| a.class).collect();
    classes.dedup();
    classes
}

const GONE: &[Class] = &[Class::CompactedAway];

/// Two values of a key and one of another; the reader finds what is left of them.
fn three(cleaning: Op, left: &[(i64, u64)]) -> Vec<Class> {
    let sends = [
        sent(1, Some(0), 1, (7, false)),
        sent(3, Some(1), 2, (8, false)),
        sent(5, Some(2), 3, (7, false)),
    ];
    let read_before = read(10, 3, &[(0, 1), (1, 2), (2, 3)]);
    let ops = sends
        .into_iter()
        .chain(read_before)
        .chain([cleaning])
        .chain(read(50, 3, left));
    classes(ops, &[])
}

#[test]
fn an_older_value_of_a_key_may_go_and_the_newest_may_not() {
    let all = || cleaned(40, 3, 40, 0);
    assert!(three(all(), &[(1, 2), (2, 3)]).is_empty());
    assert_eq!(three(all(), &[(2, 3)]), GONE, "the only value of key 8");
    assert_eq!(
        three(all(), &[(0, 1), (1, 2)]),
        GONE,
        "the newest of key 7, an older one is left"
    );
}

#[test]
fn what_the_cleaner_had_no_business_with_may_not_go() {
    let rest = &[(1, 2), (2, 3)];
    assert_eq!(
        three(cleaned(40, 2, 40, 0), rest),
        GONE,
        "the later value lies above the bound"
    );
    assert_eq!(
        three(cleaned(40, 3, 5, 0), rest),
        GONE,
        "the later value is younger than the lag"
    );
    let failed = Op {
        outcome: Outcome::Failed,
        ..cleaned(40, 3, 40, 0)
    };
    assert_eq!(three(failed, rest), [Class::PollSkip], "nothing was cleaned");
    let late = cleaned(70, 3, 70, 0);
    assert_eq!(three(late, rest), [Class::PollSkip], "the cleaner came later");
}

#[test]
fn a_tombstone_may_go_when_a_cleaning_has_seen_it_long_enough_ago() {
    let with = |second: Op| {
        let ops = [sent(1, Some(0), 1, (7, true)), sent(3, Some(1), 2, (8, false))];
        let cleanings = [cleaned(40, 2, 40, 0), second];
        classes(ops.into_iter().chain(cleanings).chain(read(50, 2, &[(1, 2)])), &[])
    };
    assert!(with(cleaned(45, 2, 45, 41)).is_empty());
    assert_eq!(with(cleaned(45, 2, 45, 40)).last(), GONE.last(), "not long enough");
    assert_eq!(with(cleaned(45, 0, 45, 41)).last(), GONE.last(), "out of reach");
}

/// A cleaning of several rounds has seen it itself.
#[test]
fn a_tombstone_may_go_in_the_cleaning_that_sees_it_if_it_is_not_kept_at_all() {
    let with = |seen_before: u64| {
        let ops = [sent(1, Some(0), 1, (7, true)), sent(3, Some(1), 2, (8, false))];
        let cleaning = [cleaned(40, 2, 40, seen_before)];
        classes(ops.into_iter().chain(cleaning).chain(read(50, 2, &[(1, 2)])), &[])
    };
    assert!(with(41).is_empty());
    assert_eq!(with(40).last(), GONE.last());
}

#[test]
fn what_was_aborted_may_go_and_replaces_nothing() {
    let with = |outcome: Outcome, left: &[(i64, u64)]| {
        let mut second = sent(3, Some(1), 2, (7, false));
        second.outcome = outcome;
        if let Action::Steps { transaction, .. } = &mut second.action {
            *transaction = true;
        }
        let ops = [sent(1, Some(0), 1, (7, false)), second, sent(5, Some(2), 3, (8, false))];
        let read_before = read(10, 3, &[(0, 1), (1, 2), (2, 3)]);
        let cleaning = [cleaned(40, 3, 40, 0)];
        classes(
            ops.into_iter()
                .chain(read_before)
                .chain(cleaning)
                .chain(read(50, 3, left)),
            &[],
        )
    };
    assert!(with(Outcome::Failed, &[(0, 1), (2, 3)]).is_empty());
    assert!(with(Outcome::Ok, &[(1, 2), (2, 3)]).is_empty());
    assert_eq!(with(Outcome::Failed, &[(2, 3)]), GONE);
}

/// What was sent and may be anywhere may have replaced others: a tombstone that is gone leaves no other trace.
#[test]
fn a_record_of_unknown_fate_may_have_replaced_others() {
    let with = |unknown: Op| {
        let ops = [
            sent(1, Some(0), 1, (7, false)),
            unknown,
            sent(5, Some(2), 3, (8, false)),
        ];
        let cleaning = [cleaned(40, 3, 40, 0)];
        classes(ops.into_iter().chain(cleaning).chain(read(50, 3, &[(2, 3)])), &[])
    };
    assert!(with(sent(3, None, 2, (7, true))).is_empty());
    assert_eq!(with(sent(3, None, 2, (8, true))).last(), GONE.last(), "of another key");
}

/// A poll may return what was fetched before somebody found it gone, and may not fetch it afterwards.
#[test]
fn what_is_buffered_may_be_returned_and_what_is_gone_may_not_be_fetched() {
    const OTHER: u32 = 3;
    let with = |arrived: u64, deleted: bool| {
        let sends = [sent(1, Some(0), 1, (7, false)), sent(3, Some(1), 2, (7, false))];
        let began = at(OTHER, 20, Outcome::Ok, Action::Moved(vec![(0, Some(0))]));
        let start = Action::LogStart {
            partition: 0,
            offset: 1,
        };
        let removed = if deleted {
            at(CLEANER, 40, Outcome::Ok, start)
        } else {
            cleaned(40, 2, 40, 0)
        };
        let step = Step::Poll {
            isolation: IsolationLevel::ReadUncommitted,
            group: None,
            records: vec![(0, 0, 1), (0, 1, 2)],
        };
        let steps = vec![step];
        let poll = at(
            OTHER,
            90,
            Outcome::Ok,
            Action::Steps {
                steps,
                transaction: false,
            },
        );
        let ops = sends
            .into_iter()
            .chain([began, removed])
            .chain(read(50, 2, &[(1, 2)]))
            .chain([poll]);
        let fetch = Fetch {
            process: OTHER,
            partition: 0,
            arrived,
            offsets: (0, 1),
        };
        classes(ops, &[fetch])
    };
    assert!(with(30, true).is_empty() && with(30, false).is_empty());
    assert_eq!(with(60, true), [Class::DeletedRead]);
    assert_eq!(with(60, false), [Class::CompactedRead]);
}
