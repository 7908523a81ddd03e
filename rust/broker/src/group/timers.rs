//! When the members of a consumer group are due, so that a heartbeat does not look at all of them. Kafka: the timers that
//! `GroupMetadataManager` schedules by key.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Why a member is put out when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// It did not send a heartbeat.
    Session,
    /// It did not give up partitions.
    Rebalance,
    /// A member of the classic protocol did not join again.
    Join,
    /// A member of the classic protocol did not ask for its assignment.
    Sync,
}

/// The times (monotonic ms) of a group's members.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(i64, Arc<str>, Timer)>,
    times: FxHashMap<(Arc<str>, Timer), i64>,
}

impl Timers {
    /// Sets a member's timer, also if it runs.
    pub(crate) fn set(&mut self, member: &Arc<str>, timer: Timer, at_ms: i64) {
        self.cancel(member, timer);
        self.times.insert((Arc::clone(member), timer), at_ms);
        self.by_time.insert((at_ms, Arc::clone(member), timer));
    }

    /// Sets a member's timer unless it runs.
    pub(crate) fn set_if_absent(&mut self, member: &Arc<str>, timer: Timer, at_ms: i64) {
        if !self.times.contains_key(&(Arc::clone(member), timer)) {
            self.set(member, timer, at_ms);
        }
    }

    /// Ends a member's timer.
    pub(crate) fn cancel(&mut self, member: &Arc<str>, timer: Timer) {
        if let Some(at_ms) = self.times.remove(&(Arc::clone(member), timer)) {
            self.by_time.remove(&(at_ms, Arc::clone(member), timer));
        }
    }

    /// Ends all timers of a member.
    pub(crate) fn forget(&mut self, member: &Arc<str>) {
        for timer in [Timer::Session, Timer::Rebalance, Timer::Join, Timer::Sync] {
            self.cancel(member, timer);
        }
    }

    /// The earliest time.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.by_time.first().map(|(at_ms, ..)| *at_ms)
    }

    /// The members whose time has come, each once, with the timer that was due first.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<(Arc<str>, Timer)> {
        let due = self.by_time.iter().take_while(|(at_ms, ..)| *at_ms <= now_ms);
        let mut seen = BTreeSet::new();
        let first = due.filter(|(_, member, _)| seen.insert(Arc::clone(member)));
        first.map(|(_, member, timer)| (Arc::clone(member), *timer)).collect()
    }
}
