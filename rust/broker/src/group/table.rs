//! The table of groups, and which of them are due. Kafka: the groups of `GroupMetadataManager`, and its timer.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

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

impl Deadlines {
    pub(crate) fn next_ms(&self) -> Option<i64> {
        let clients = self.clients.iter().map(Session::deadline_ms);
        clients.chain(self.fixed_ms).min().map(|ms| ms.max(self.not_before_ms))
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
    /// When a group is looked at: not after its deadline. A client in this process moves the deadline of its member ahead with everything
    /// it does; the time here follows when it has come.
    times: FxHashMap<Arc<str>, i64>,
    by_time: BTreeSet<(i64, Arc<str>)>,
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
    pub(crate) fn remove(&mut self, id: &Arc<str>) {
        self.by_id.remove(id);
        self.set_time(id, None);
    }

    /// Every group.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<LockedGroup>)> {
        self.by_id.iter()
    }

    /// A group's deadline is now earlier than before.
    pub(crate) fn earlier(&mut self, id: &Arc<str>, at_ms: i64) {
        if self.times.get(id).is_none_or(|known| at_ms < *known) {
            self.set_time(id, Some(at_ms));
        }
    }

    /// The deadlines of any groups are earlier than before.
    pub(crate) fn all_earlier(&mut self) {
        let all: Vec<_> = self.times.keys().cloned().collect();
        for id in all {
            self.look_at(&id);
        }
    }

    /// The groups with a deadline that has passed.
    pub(crate) fn due(&mut self, now_ms: i64) -> Vec<Arc<LockedGroup>> {
        let of_time = self.by_time.iter().take_while(|(ms, _)| *ms <= now_ms);
        let ids: Vec<_> = of_time.map(|(_, id)| Arc::clone(id)).collect();
        let is_due = |id: &Arc<str>| self.look_at(id).is_some_and(|ms| ms <= now_ms);
        let due: Vec<_> = ids.into_iter().filter(is_due).collect();
        due.iter().filter_map(|id| self.get(id)).collect()
    }

    /// The earliest deadline of all groups.
    pub(crate) fn next_deadline(&mut self) -> Option<i64> {
        loop {
            let (known_ms, id) = self.by_time.first().cloned()?;
            if self.look_at(&id) == Some(known_ms) {
                return Some(known_ms);
            }
        }
    }

    /// The deadline of a group, which becomes its time.
    fn look_at(&mut self, id: &Arc<str>) -> Option<i64> {
        let deadline = self.get(id).and_then(|group| group.next_deadline());
        self.set_time(id, deadline);
        deadline
    }

    fn set_time(&mut self, id: &Arc<str>, at_ms: Option<i64>) {
        let before = match at_ms {
            Some(at_ms) => self.times.insert(Arc::clone(id), at_ms),
            None => self.times.remove(id),
        };
        if before == at_ms {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, Arc::clone(id)));
        }
        if let Some(at_ms) = at_ms {
            self.by_time.insert((at_ms, Arc::clone(id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::group::member::Transport;

    /// A table with a group whose only member is a client in this process, seen at 0: it lives for 100 ms, or for 10 ms once it is gone.
    fn one_client() -> (GroupTable, Arc<Transport>) {
        let transport = Arc::new(Transport::new(0));
        let session = Session::Client {
            transport: Arc::clone(&transport),
            session_timeout_ms: 10,
            rebalance_timeout_ms: 100,
        };
        let id: Arc<str> = Arc::from("g");
        let mut table = GroupTable::default();
        table.get_or_new(&id).replace_deadlines(Deadlines {
            clients: vec![session],
            ..Deadlines::default()
        });
        table.earlier(&id, 100);
        (table, transport)
    }

    #[test]
    fn a_deadline_that_has_moved_ahead_is_followed() {
        let (mut table, transport) = one_client();
        assert_eq!(table.next_deadline(), Some(100));
        transport.last_seen_ms.store(50, Ordering::Relaxed);
        assert_eq!(table.due(149).len(), 0);
        assert_eq!(table.next_deadline(), Some(150));
        assert_eq!(table.due(150).len(), 1);
        assert_eq!(table.due(150).len(), 1, "due until its deadlines are replaced");
    }

    #[test]
    fn a_client_that_is_gone_has_an_earlier_deadline() {
        let (mut table, transport) = one_client();
        transport.gone.store(true, Ordering::Relaxed);
        table.all_earlier();
        assert_eq!(table.next_deadline(), Some(10));
        assert_eq!(table.due(10).len(), 1);
    }

    #[test]
    fn a_group_without_deadlines_or_removed_is_never_due() {
        let (mut table, _) = one_client();
        let id: Arc<str> = Arc::from("g");
        table.get_or_new(&id).replace_deadlines(Deadlines::default());
        assert_eq!(table.due(1000).len(), 0);
        assert_eq!(table.next_deadline(), None);
        table.earlier(&id, 5);
        table.remove(&id);
        assert_eq!(table.next_deadline(), None);
        assert!(table.times.is_empty() && table.by_time.is_empty());
    }
}
