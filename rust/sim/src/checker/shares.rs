//! Promises of a share group (spec 14.5 to 14.9): a record is available, acquired by one member, or done; it is delivered until it is done
//! and not more often than its limit, and what is done does not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::index::{Index, place};
use super::{Anomaly, Class};
use crate::history::{Action, Partition, Step, Value};
use crate::share_history::{Acquisition, ShareEvent, ShareGroup, ShareHistory, kind};

/// What happened to one record, in order.
#[derive(Default)]
struct Life<'h> {
    acquired: Vec<(usize, &'h Acquisition)>,
    acknowledging: Vec<(usize, &'h Arc<str>, i8)>,
    /// When it was answered, by whom and as what, and since when it may have taken effect.
    acknowledged: Vec<(usize, &'h Arc<str>, i8, usize)>,
    confirmed: Vec<(usize, i8)>,
    polled: Vec<(usize, &'h Arc<str>, Value, i16)>,
}

struct Shares<'h> {
    history: &'h ShareHistory,
    group: ShareGroup,
    lives: BTreeMap<(Partition, i64), Life<'h>>,
    restarts: Vec<usize>,
    ended: BTreeMap<&'h Arc<str>, Vec<usize>>,
    /// Fetches whose answers nobody has seen: each may be a delivery of any record.
    unanswered: Vec<usize>,
    /// From here on leaders may change at any time.
    unsettled: usize,
}

/// Whether the record is not delivered again.
fn is_final(kind: i8) -> bool {
    matches!(kind, kind::GAP | kind::ACCEPT | kind::REJECT)
}

/// States of records that are not delivered again: Acknowledged, Archiving, Archived.
const DONE: [i8; 3] = [2, 3, 4];

fn any_between(sorted: &[usize], from: usize, to: usize) -> bool {
    sorted[sorted.partition_point(|&at| at < from)..]
        .first()
        .is_some_and(|&at| at < to)
}

impl<'h> Shares<'h> {
    fn of(history: &'h ShareHistory, group: ShareGroup) -> Self {
        let mut shares = Self {
            history,
            group,
            lives: BTreeMap::new(),
            restarts: Vec::new(),
            ended: BTreeMap::new(),
            unanswered: Vec::new(),
            unsettled: usize::MAX,
        };
        for (at, event) in history.events.iter().enumerate() {
            shares.note(at, event);
        }
        shares
    }

    fn note(&mut self, at: usize, event: &'h ShareEvent) {
        let lives = &mut self.lives;
        let mut each = |of: &crate::share_history::Offsets, note: &mut dyn FnMut(&mut Life<'h>)| {
            for offset in of.first..=of.last {
                note(lives.entry((of.partition, offset)).or_default());
            }
        };
        match event {
            ShareEvent::Acquired(acquired) => each(&acquired.offsets, &mut |life| life.acquired.push((at, acquired))),
            ShareEvent::Acknowledging(member, of, kind) => {
                each(of, &mut |life| life.acknowledging.push((at, member, *kind)));
            }
            ShareEvent::Acknowledged(member, of, kind, since) => {
                each(of, &mut |life| life.acknowledged.push((at, member, *kind, *since)));
            }
            ShareEvent::Confirmed(_, of, kind) => each(of, &mut |life| life.confirmed.push((at, *kind))),
            ShareEvent::Polled(member, partition, offset, value, deliveries) => {
                let life = lives.entry((*partition, *offset)).or_default();
                life.polled.push((at, member, *value, *deliveries));
            }
            ShareEvent::Ended(member) => self.ended.entry(member).or_default().push(at),
            ShareEvent::Unanswered(_) => self.unanswered.push(at),
            ShareEvent::Restarted => self.restarts.push(at),
            ShareEvent::Unsettled => self.unsettled = self.unsettled.min(at),
        }
    }

    /// Whether the broker may have begun anew between two events.
    fn restarts(&self, from: usize, to: usize) -> bool {
        to > self.unsettled || any_between(&self.restarts, from, to)
    }

    /// Whether a record that was acquired was still its member's until event `to`, at a time.
    fn holds(&self, life: &Life<'_>, acquired: &Acquisition, to: usize, now_ms: i64) -> bool {
        let from = acquired.since;
        let ends = self.ended.get(&acquired.member);
        let acknowledges = |(at, member, kind): &(usize, &Arc<str>, i8)| {
            (from..to).contains(at) && **member == acquired.member && *kind != kind::RENEW
        };
        !self.restarts(from, to)
            && now_ms < acquired.between_ms.0 + self.group.lock_ms
            && !ends.is_some_and(|ends| any_between(ends, from, to))
            && !life.acknowledging.iter().any(acknowledges)
    }

    /// Whether an acknowledgement that is answered in event `at` ends the deliveries of the record. After the end of its last lock it may have
    /// no effect: the record is archived then, also if that cannot be persisted, and what is acknowledged below the start offset is accepted.
    /// Kafka: `SharePartition#releaseAcquisitionLockOnTimeout`, `#acknowledge`.
    fn is_done(&self, life: &Life<'_>, at: usize, kind: i8) -> bool {
        let last = life.acquired.iter().rfind(|(acquired_at, _)| *acquired_at < at);
        let may_be_archived =
            |a: &Acquisition| a.deliveries >= self.group.max_deliveries && !is_within_lock(self, a, at);
        is_final(kind) && !last.is_some_and(|(_, acquired)| may_be_archived(acquired))
    }

    fn anomaly(&self, class: Class, (partition, offset): (Partition, i64), what: &str) -> Anomaly {
        let events = self.history.excerpt(partition, offset);
        Anomaly::new(
            class,
            partition,
            Vec::new(),
            format!("offset {offset} {what}\n{events}"),
        )
    }
}

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let history = &index.history.shares;
    let Some(group) = history.group else { return };
    let shares = Shares::of(history, group);
    let starts = last_starts(index);
    for (&at, life) in &shares.lives {
        deliveries(&shares, at, life, found);
        done_once(&shares, at, life, found);
        returned(&shares, index, at, life, found);
        let is_deleted = starts.get(&at.0).is_some_and(|start| at.1 < *start);
        if !is_deleted {
            owners(&shares, at, life, found);
        }
    }
    if history.is_drained {
        nothing_left(&shares, index, found);
    }
    stored(&shares, &starts, found);
}

/// Where the logs start at the end.
fn last_starts(index: &Index<'_>) -> BTreeMap<Partition, i64> {
    let mut starts = BTreeMap::new();
    for op in &index.history.ops {
        if let Action::LogStart { partition, offset } = op.action {
            let start = starts.entry(partition).or_insert(offset);
            *start = offset.max(*start);
        }
    }
    starts
}

/// delivery-limit, delivery-count, acquired-twice: one delivery after the other.
fn deliveries(shares: &Shares<'_>, at: (Partition, i64), life: &Life<'_>, found: &mut Vec<Anomaly>) {
    let limit = shares.group.max_deliveries;
    if life.acquired.iter().any(|(_, a)| !(1..=limit).contains(&a.deliveries)) {
        let what = format!("is delivered more than {limit} times");
        found.push(shares.anomaly(Class::DeliveryLimit, at, &what));
    }
    for (n, (first_at, first)) in life.acquired.iter().enumerate() {
        for (second_at, second) in &life.acquired[n + 1..] {
            // Which one was first is known.
            if second.since <= *first_at {
                continue;
            }
            let goes_on = match shares.restarts(first.since, *second_at) {
                true => !shares.group.keeps_counts || second.deliveries >= first.deliveries,
                false => second.deliveries > first.deliveries,
            };
            if !goes_on {
                let what = "has a delivery count that does not go on";
                return found.push(shares.anomaly(Class::DeliveryCount, at, what));
            }
            if shares.holds(life, first, *second_at, second.between_ms.1) {
                let what = format!("is acquired by {} while {} has it", second.member, first.member);
                return found.push(shares.anomaly(Class::AcquiredTwice, at, &what));
            }
        }
    }
}

/// acknowledged-again: a record that is done is acquired.
fn done_once(shares: &Shares<'_>, at: (Partition, i64), life: &Life<'_>, found: &mut Vec<Anomaly>) {
    let answered = life.acknowledged.iter().map(|(at, _, kind, _)| (*at, *kind));
    let known = answered.chain(life.confirmed.iter().copied());
    let done = known.filter(|(at, kind)| shares.is_done(life, *at, *kind));
    let Some(done) = done.map(|(at, _)| at).min() else {
        return;
    };
    if life.acquired.iter().any(|(_, acquired)| acquired.since > done) {
        let what = format!("is acquired although it was acknowledged in event {done}");
        found.push(shares.anomaly(Class::AcknowledgedAgain, at, &what));
    }
}

/// not-acquired: a client returns, or has acknowledged, what is not its own.
fn owners(shares: &Shares<'_>, at: (Partition, i64), life: &Life<'_>, found: &mut Vec<Anomaly>) {
    for (answered_at, member, _, since) in &life.acknowledged {
        let own = life
            .acquired
            .iter()
            .rfind(|(at, a)| at < answered_at && a.member == **member);
        let own_at = own.map(|(at, _)| *at);
        let other = life.acquired.iter().find(|(at, a)| {
            let later = own_at.is_none_or(|own_at| a.since > own_at) && at < since && a.member != **member;
            let until_ms = a.between_ms.0;
            later && shares.holds(life, a, *answered_at, until_ms) && is_within_lock(shares, a, *answered_at)
        });
        if let Some((_, other)) = other {
            let what = format!("is acknowledged by {member} while {} has it", other.member);
            return found.push(shares.anomaly(Class::NotAcquired, at, &what));
        }
    }
}

/// Whether the lock of an acquisition cannot have ended before an event: another acquisition shows the time.
fn is_within_lock(shares: &Shares<'_>, acquired: &Acquisition, until: usize) -> bool {
    let later = shares.history.events[until..].iter().find_map(|event| match event {
        ShareEvent::Acquired(later) => Some(later.between_ms.1),
        _ => None,
    });
    later.is_some_and(|ms| ms < acquired.between_ms.0 + shares.group.lock_ms)
}

/// not-acquired, inconsistent-offsets: what polls return was acquired, and is what is in the log.
fn returned(shares: &Shares<'_>, index: &Index<'_>, at: (Partition, i64), life: &Life<'_>, found: &mut Vec<Anomaly>) {
    let values = index.logs.get(&at.0).and_then(|log| log.at.get(&at.1));
    for (polled_at, member, value, deliveries) in &life.polled {
        let is_own =
            |(at, a): &(usize, &Acquisition)| at < polled_at && a.member == **member && a.deliveries == *deliveries;
        if !life.acquired.iter().any(is_own) {
            let what = format!("is returned to {member}, which has not acquired it");
            return found.push(shares.anomaly(Class::NotAcquired, at, &what));
        }
        if values.is_some_and(|values| !values.contains(value)) {
            let what = format!("has {values:?}, and {member} got {value}");
            return found.push(shares.anomaly(Class::InconsistentOffsets, at, &what));
        }
    }
}

/// never-delivered: a record is in the log, and the group is done with everything.
fn nothing_left(shares: &Shares<'_>, index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let nothing = Life::default();
    for at in read_at_the_end(shares, index) {
        let life = shares.lives.get(&at).unwrap_or(&nothing);
        let most = life.acquired.iter().map(|(_, a)| a.deliveries).max().unwrap_or(0);
        let last = life.acquired.last().map_or(0, |(at, _)| *at);
        let unseen = shares.unanswered.iter().filter(|at| **at > last).count();
        let is_done = most.saturating_add(i16::try_from(unseen).unwrap_or(i16::MAX)) >= shares.group.max_deliveries
            || life.acknowledging.iter().any(|(.., kind)| is_final(*kind));
        if !is_done {
            let what = format!(
                "is in the log, was delivered {most} times and acknowledged by nobody, and does not come again"
            );
            found.push(shares.anomaly(Class::NeverDelivered, at, &what));
        }
    }
}

/// What the last reader with the group's isolation level has read.
fn read_at_the_end(shares: &Shares<'_>, index: &Index<'_>) -> BTreeSet<(Partition, i64)> {
    let ops = &index.history.ops;
    let is_last = |wanted: &Action| match wanted {
        Action::Reached { isolation, .. } => place(*isolation) == place(shares.group.isolation),
        _ => false,
    };
    let Some(last) = ops.iter().rfind(|op| is_last(&op.action)).map(|op| op.process) else {
        return BTreeSet::new();
    };
    let mut read = BTreeSet::new();
    for step in ops.iter().filter(|op| op.process == last).flat_map(|op| op.steps()) {
        if let Step::Poll { records, .. } = step {
            read.extend(records.iter().map(|&(partition, offset, _)| (partition, offset)));
        }
    }
    let shared: BTreeSet<Partition> = shares.history.stored.iter().map(|stored| stored.partition).collect();
    read.retain(|(partition, _)| shared.contains(partition));
    read
}

/// lost-acknowledgement, delivery-limit: what `__share_group_state` holds. What is said of records that are deleted from the log is accepted,
/// and need not be stored. Kafka: `SharePartition#acknowledge`, its batches before the start offset.
fn stored(shares: &Shares<'_>, log_starts: &BTreeMap<Partition, i64>, found: &mut Vec<Anomaly>) {
    for stored in &shares.history.stored {
        for (first, .., deliveries) in &stored.states {
            if *deliveries > shares.group.max_deliveries {
                let at = (stored.partition, *first);
                found.push(shares.anomaly(
                    Class::DeliveryLimit,
                    at,
                    "is stored with more deliveries than there may be",
                ));
            }
        }
        let log_start = log_starts.get(&stored.partition).copied().unwrap_or(0);
        let start = stored.start.max(log_start);
        let of_partition = shares
            .lives
            .range((stored.partition, start)..(stored.partition, i64::MAX));
        for (at, life) in of_partition {
            let mut acknowledged = life.acknowledged.iter();
            let is_done = acknowledged.any(|(at, _, kind, _)| shares.is_done(life, *at, *kind));
            let state = stored
                .states
                .iter()
                .find(|(first, last, ..)| (*first..=*last).contains(&at.1));
            if is_done && !state.is_some_and(|(_, _, state, _)| DONE.contains(state)) {
                let what = format!(
                    "was acknowledged, and is stored as {state:?}, with the start {}",
                    stored.start
                );
                found.push(shares.anomaly(Class::LostAcknowledgement, *at, &what));
            }
        }
    }
}
