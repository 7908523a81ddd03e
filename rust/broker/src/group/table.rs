//! The table of groups, and which of them are due. Kafka: the groups of `GroupMetadataManager`, and its timer.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::member::{Member, Session};
use super::state::Group;
use crate::sync::{Mutex, MutexGuard, Rank};

/// A group, its lock, and its deadlines, which can be read while the lock is held. Kafka: `GroupMetadata#inLock`.
#[derive(Debug)]
pub(crate) struct LockedGroup {
    /// Held during appends to `__consumer_offsets`.
    group: Mutex<Group>,
    deadlines: Mutex<Deadlines>,
}

impl LockedGroup {
    /// A group without members.
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            group: Mutex::new(Rank::Group, Group::new(id)),
            deadlines: Mutex::new(Rank::GroupDeadlines, Deadlines::default()),
        }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Group> {
        self.group.lock()
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Group>> {
        self.group.try_lock()
    }

    /// Replaces the group's deadlines; returns the previous ones.
    pub(crate) fn replace_deadlines(&self, new: Deadlines) -> Deadlines {
        std::mem::replace(&mut *self.deadlines.lock(), new)
    }

    /// The group's next deadline. Does not wait for the group's lock.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.deadlines.lock().next_ms()
    }
}

/// The deadlines of a group.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// The earliest of the deadlines that only a request to the group changes.
    fixed_ms: Option<i64>,
    /// The sessions of members in this process, whose deadlines move with everything that their clients do.
    clients: Vec<Session>,
    /// No deadline is due before this: [`Group::not_before_ms`].
    not_before_ms: i64,
}

/// When a group is to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Never,
    /// At this time (monotonic ms).
    At(i64),
    /// It has members in this process: [`Deadlines::next_ms`] has to be read each time.
    Watched,
}

impl Deadlines {
    pub(crate) fn next_ms(&self) -> Option<i64> {
        let clients = self.clients.iter().map(Session::deadline_ms);
        clients.chain(self.fixed_ms).min().map(|ms| ms.max(self.not_before_ms))
    }

    pub(crate) fn due(&self) -> Due {
        match self.fixed_ms {
            _ if !self.clients.is_empty() => Due::Watched,
            Some(ms) => Due::At(ms.max(self.not_before_ms)),
            None => Due::Never,
        }
    }
}

impl Group {
    /// Its current deadlines.
    pub(crate) fn deadlines(&self) -> Deadlines {
        let join = self.pending_join.map(|join| join.deadline_ms);
        let sync = self.pending_sync.as_ref().map(|sync| sync.deadline_ms);
        let assignment = self.pending_assignment.map(|assignment| assignment.deadline_ms);
        let ids = self.pending_members.values().copied();
        let mut deadlines = Deadlines {
            fixed_ms: join.into_iter().chain(sync).chain(assignment).chain(ids).min(),
            clients: Vec::new(),
            not_before_ms: self.not_before_ms,
        };
        if let Some(consumer) = &self.consumer {
            deadlines.fixed_ms = match consumer.resolves.is_some() {
                true => Some(i64::MIN),
                false => consumer.timers.next_ms(),
            };
            deadlines.clients = consumer.sessions.values().cloned().collect();
            return deadlines;
        }
        if let Some(share) = &self.share {
            deadlines.fixed_ms = share.timers.next_ms();
            deadlines.clients = share.sessions.values().cloned().collect();
            return deadlines;
        }
        for session in self.members.iter().filter_map(Member::session) {
            match session {
                Session::Until(ms) => deadlines.fixed_ms = Some(deadlines.fixed_ms.map_or(ms, |fixed| fixed.min(ms))),
                client @ Session::Client { .. } => deadlines.clients.push(client),
            }
        }
        deadlines
    }
}

/// The groups by id and by deadline, so that the cost of a request does not grow with the number of groups.
#[derive(Debug, Default)]
pub(crate) struct GroupTable {
    by_id: FxHashMap<Arc<str>, Arc<LockedGroup>>,
    /// Groups with a known deadline.
    by_time: BTreeSet<(i64, Arc<str>)>,
    /// Groups whose deadline has to be read each time.
    watched: FxHashSet<Arc<str>>,
}

impl GroupTable {
    /// A group.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<LockedGroup>> {
        self.by_id.get(id).cloned()
    }

    /// A group; created if it does not exist.
    pub(crate) fn get_or_new(&mut self, id: &Arc<str>) -> Arc<LockedGroup> {
        let new = || Arc::new(LockedGroup::new(Arc::clone(id)));
        Arc::clone(self.by_id.entry(Arc::clone(id)).or_insert_with(new))
    }

    /// Removes a group.
    pub(crate) fn remove(&mut self, id: &str) {
        self.by_id.remove(id);
    }

    /// Every group.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<LockedGroup>)> {
        self.by_id.iter()
    }

    /// Changes the time at which a group is to be checked.
    pub(crate) fn reindex(&mut self, id: &Arc<str>, before: Due, after: Due) {
        match before {
            Due::Never => {}
            Due::At(ms) => drop(self.by_time.remove(&(ms, Arc::clone(id)))),
            Due::Watched => drop(self.watched.remove(id)),
        }
        match after {
            Due::Never => {}
            Due::At(ms) => drop(self.by_time.insert((ms, Arc::clone(id)))),
            Due::Watched => drop(self.watched.insert(Arc::clone(id))),
        }
    }

    /// The groups with a deadline that has passed.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<Arc<LockedGroup>> {
        let of_time = self.by_time.iter().take_while(|(ms, _)| *ms <= now_ms);
        let of_time = of_time.filter_map(|(_, id)| self.get(id));
        let watched = self
            .watched()
            .filter(|group| group.next_deadline().is_some_and(|ms| ms <= now_ms));
        of_time.chain(watched).collect()
    }

    /// The earliest deadline of all groups.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        let watched = self.watched().filter_map(|group| group.next_deadline());
        watched.chain(self.by_time.first().map(|(ms, _)| *ms)).min()
    }

    fn watched(&self) -> impl Iterator<Item = Arc<LockedGroup>> {
        self.watched.iter().filter_map(|id| self.get(id))
    }
}
