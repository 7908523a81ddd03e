//! Anomalies of share groups, each put into the events of a group that has none.

use std::sync::Arc;

use fletchlog_api::IsolationLevel;
use fletchlog_sim::checker::{self, Class};
use fletchlog_sim::share_history::{Acquisition, Offsets, ShareEvent, ShareGroup, ShareHistory, Stored, kind};

use super::{Action, History, Op, Outcome, Step};

const LOCK_MS: i64 = 1_000;
const RECORDS: i64 = 4;

fn offsets(first: i64, last: i64) -> Offsets {
    Offsets {
        partition: 0,
        first,
        last,
    }
}

fn who(name: &str) -> Arc<str> {
    name.into()
}

/// An acquisition right before its place.
fn acquires(name: &str, first: i64, last: i64, deliveries: i16, ms: i64) -> ShareEvent {
    ShareEvent::Acquired(Acquisition {
        member: who(name),
        offsets: offsets(first, last),
        deliveries,
        since: 0,
        between_ms: (ms, ms),
    })
}

fn acknowledges(name: &str, first: i64, last: i64, kind: i8) -> [ShareEvent; 2] {
    [
        ShareEvent::Acknowledging(who(name), offsets(first, last), kind),
        ShareEvent::Acknowledged(who(name), offsets(first, last), kind, 0),
    ]
}

/// Sets the places that depend on the order.
fn placed(mut events: Vec<ShareEvent>) -> Vec<ShareEvent> {
    for (at, event) in events.iter_mut().enumerate() {
        match event {
            ShareEvent::Acquired(acquired) => acquired.since = at,
            ShareEvent::Acknowledged(.., since) => *since = at - 1,
            _ => {}
        }
    }
    events
}

fn sound() -> Vec<ShareEvent> {
    let mut events = vec![acquires("a", 0, 3, 1, 0)];
    events.extend(acknowledges("a", 0, 1, kind::ACCEPT));
    events.extend(acknowledges("a", 2, 2, kind::RELEASE));
    events.push(acquires("b", 2, 2, 2, 100));
    events.push(ShareEvent::Ended(who("a")));
    events.push(acquires("b", 3, 3, 2, 200));
    events.push(ShareEvent::Polled(who("b"), 0, 3, 3, 2));
    events.extend(acknowledges("b", 2, 3, kind::ACCEPT));
    events
}

fn op(process: u32, at: u64, outcome: Outcome, action: Action) -> Op {
    Op {
        process,
        begin: 2 * at,
        end: 2 * at + 1,
        outcome,
        action,
    }
}

/// A log of some records, which a last reader has read, and the group's events.
fn history(events: Vec<ShareEvent>, stored: Stored) -> History {
    let send = |offset: i64| Step::Send {
        partition: 0,
        value: offset.unsigned_abs(),
        offset: Some(offset),
        source: None,
        keyed: None,
    };
    let steps = |step| Action::Steps {
        steps: vec![step],
        transaction: false,
    };
    let isolation = IsolationLevel::ReadUncommitted;
    let read = Step::Poll {
        isolation,
        group: None,
        records: (0..RECORDS).map(|at| (0, at, at.unsigned_abs())).collect(),
    };
    let mut ops: Vec<Op> = (0..RECORDS)
        .map(|at| op(1, at.unsigned_abs(), Outcome::Ok, steps(send(at))))
        .collect();
    ops.push(op(2, 10, Outcome::Ok, Action::Moved(vec![(0, Some(0))])));
    ops.push(op(2, 11, Outcome::Ok, steps(read)));
    let offsets = vec![(0, RECORDS)];
    ops.push(op(2, 12, Outcome::Ok, Action::Reached { isolation, offsets }));
    History {
        ops,
        shares: ShareHistory {
            group: Some(ShareGroup {
                max_deliveries: 3,
                lock_ms: LOCK_MS,
                isolation,
                keeps_counts: true,
            }),
            events: placed(events),
            stored: vec![stored],
            is_drained: true,
        },
        ..History::default()
    }
}

fn done() -> Stored {
    Stored {
        partition: 0,
        start: 2,
        states: vec![(2, 3, 2, 2)],
    }
}

fn found(events: Vec<ShareEvent>, stored: Stored) -> Vec<Class> {
    let found = checker::check(&history(events, stored));
    let mut classes: Vec<Class> = found.into_iter().map(|anomaly| anomaly.class).collect();
    classes.dedup();
    classes
}

fn with(at: usize, events: impl IntoIterator<Item = ShareEvent>) -> Vec<ShareEvent> {
    let mut all = sound();
    all.splice(at..at, events);
    all
}

/// One member after the other has the records, and something between.
fn one_after_the_other(between: impl IntoIterator<Item = ShareEvent>, deliveries: i16, ms: i64) -> Vec<Class> {
    let mut events = vec![acquires("a", 0, 3, 1, 0)];
    events.extend(between);
    events.push(acquires("b", 0, 3, deliveries, ms));
    events.extend(acknowledges("b", 0, 3, kind::ACCEPT));
    found(events, Stored { start: 4, ..done() })
}

#[test]
fn a_share_group_as_it_should_be_has_no_anomaly() {
    assert_eq!(found(sound(), done()), []);
    assert_eq!(one_after_the_other([], 2, LOCK_MS), [], "the lock has ended");
    assert_eq!(one_after_the_other([ShareEvent::Ended(who("a"))], 2, 10), []);
    assert_eq!(one_after_the_other([ShareEvent::Restarted], 1, 10), []);
}

#[test]
fn each_anomaly_of_a_share_group_is_found_where_it_was_put() {
    assert_eq!(one_after_the_other([], 2, LOCK_MS - 1), [Class::AcquiredTwice]);
    let again = with(3, [acquires("b", 0, 0, 2, 10)]);
    assert_eq!(found(again, done()), [Class::AcknowledgedAgain]);
    let [acknowledging, _] = acknowledges("a", 0, 0, kind::ACCEPT);
    let confirmed = ShareEvent::Confirmed(who("a"), offsets(0, 0), kind::ACCEPT);
    assert_eq!(
        one_after_the_other([acknowledging, confirmed], 2, LOCK_MS),
        [Class::AcknowledgedAgain]
    );
    let end = sound().len();
    let too_often = with(end, [ShareEvent::Restarted, acquires("b", 9, 9, 4, 10)]);
    assert_eq!(found(too_often, done()), [Class::DeliveryLimit]);
    let same_count = with(6, [acquires("c", 2, 2, 1, LOCK_MS)]);
    assert_eq!(found(same_count, done()), [Class::DeliveryCount]);
    let lower_count = with(6, [ShareEvent::Restarted, acquires("c", 2, 2, 1, LOCK_MS)]);
    assert_eq!(found(lower_count, done()), [Class::DeliveryCount]);
    let not_own = with(1, [ShareEvent::Polled(who("b"), 0, 0, 0, 1)]);
    assert_eq!(found(not_own, done()), [Class::NotAcquired]);
    let of_another = with(
        1,
        acknowledges("b", 0, 0, kind::RELEASE)
            .into_iter()
            .chain([acquires("b", 8, 8, 1, 10)]),
    );
    assert_eq!(found(of_another, done()), [Class::NotAcquired]);
    let another_value = with(8, [ShareEvent::Polled(who("b"), 0, 3, 77, 2)]);
    assert_eq!(found(another_value, done()), [Class::InconsistentOffsets]);
    let skipped: Vec<ShareEvent> = sound().into_iter().take(6).collect();
    assert_eq!(found(skipped, Stored { start: 4, ..done() }), [Class::NeverDelivered]);
    let lost = Stored {
        states: vec![(2, 2, 2, 2)],
        ..done()
    };
    assert_eq!(found(sound(), lost), [Class::LostAcknowledgement]);
    let available = Stored {
        states: vec![(2, 3, 0, 2)],
        ..done()
    };
    assert_eq!(found(sound(), available), [Class::LostAcknowledgement]);
    let stored_too_often = Stored {
        states: vec![(2, 3, 2, 4)],
        ..done()
    };
    assert_eq!(found(sound(), stored_too_often), [Class::DeliveryLimit]);
}

#[test]
fn an_acknowledgement_after_the_end_of_the_last_lock_may_have_no_effect() {
    let again = |acknowledged: [ShareEvent; 2], ms| {
        let mut events = vec![acquires("a", 0, 3, 3, 0)];
        events.extend(acknowledged);
        events.push(ShareEvent::Restarted);
        events.push(acquires("b", 0, 3, 3, ms));
        events.extend(acknowledges("b", 0, 3, kind::ACCEPT));
        found(events, Stored { start: 4, ..done() })
    };
    let accepted = || acknowledges("a", 0, 3, kind::ACCEPT);
    assert_eq!(again(accepted(), LOCK_MS), []);
    assert_eq!(again(accepted(), LOCK_MS - 1), [Class::AcknowledgedAgain]);
    let [acknowledging, _] = accepted();
    let confirmed = || ShareEvent::Confirmed(who("a"), offsets(0, 3), kind::ACCEPT);
    assert_eq!(again([acknowledging.clone(), confirmed()], LOCK_MS), []);
    assert_eq!(
        again([acknowledging, confirmed()], LOCK_MS - 1),
        [Class::AcknowledgedAgain]
    );
}
