//! Locks with an order, which survive a panic of another holder, a counter to wait on, and a cell that is filled once with a
//! response.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, PoisonError, TryLockError, Weak};
use std::time::Duration;

use fletchlog_api::Response;
use fletchlog_api::transport::Waker;

/// The order of the broker's locks: a thread that holds one takes only locks further down. The table of locks in
/// `ARCHITECTURE.md` says what each protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    CleanerThread,
    Cleaning,
    TransactionalId,
    TransactionTable,
    ProducerIds,
    GroupLoading,
    Group,
    GroupTable,
    OpenGroups,
    GroupDeadlines,
    LegacyGroups,
    ShareFetch,
    ShareSessions,
    SharePartitions,
    SharePartition,
    ShareLoading,
    ShareState,
    DelayedFetch,
    DelayedFetchOfSession,
    ProducePurgatory,
    Metadata,
    Checkpoints,
    PartitionDirectory,
    TopicTable,
    PartitionConfig,
    PartitionState,
    ReplicaEnds,
    Quorum,
    Nodes,
    WriteCheckpoints,
    ReadCheckpoints,
    Security,
    BrokerConfigs,
    FetchSessions,
    FetchPurgatory,
    ShareFetchPurgatory,
    ShareLocks,
    ShareFetches,
    ClosedConnections,
    Loading,
    Failures,
    Answer,
}

/// A mutex with a place in the order of locks; debug builds panic when the order is not kept.
///
/// After a panic of its holder a lock is taken over: what was being changed may be half done in memory. What this crate keeps
/// in logs and in the metadata file is written before memory changes, and a log fences itself if the panic came out of it; so
/// at worst a group, a session or a table of topics lags behind until the broker is opened again.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    rank: Rank,
    inner: std::sync::Mutex<T>,
}

/// A read-write lock with a place in the order of locks, see [`Mutex`].
#[derive(Debug)]
pub(crate) struct RwLock<T> {
    rank: Rank,
    inner: std::sync::RwLock<T>,
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct Guard<G> {
    // Released before `_held` is dropped.
    inner: G,
    _held: Held,
}

pub(crate) type MutexGuard<'a, T> = Guard<std::sync::MutexGuard<'a, T>>;
pub(crate) type ReadGuard<'a, T> = Guard<std::sync::RwLockReadGuard<'a, T>>;
pub(crate) type WriteGuard<'a, T> = Guard<std::sync::RwLockWriteGuard<'a, T>>;

impl<T> Mutex<T> {
    /// A lock that is not held.
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            inner: std::sync::Mutex::new(value),
        }
    }

    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let _held = Held::new(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _held }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let _held = Held::new(self.rank);
        Some(Guard { inner, _held })
    }
}

impl<T> RwLock<T> {
    /// A lock that is not held.
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            inner: std::sync::RwLock::new(value),
        }
    }

    /// Waits until no thread writes.
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let _held = Held::new(self.rank);
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _held }
    }

    /// Waits until no thread reads or writes.
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let _held = Held::new(self.rank);
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _held }
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

/// A lock that this thread holds, or waits for.
#[derive(Debug)]
struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
thread_local! {
    static RANKS: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(debug_assertions)]
impl Held {
    fn new(rank: Rank) -> Self {
        RANKS.with_borrow_mut(|ranks| {
            let last = ranks.iter().max().copied();
            assert!(
                last.is_none_or(|last| last < rank),
                "lock {rank:?} is taken while {last:?} is held"
            );
            ranks.push(rank);
        });
        Self { rank }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        RANKS.with_borrow_mut(|ranks| {
            if let Some(at) = ranks.iter().rposition(|rank| *rank == self.rank) {
                ranks.remove(at);
            }
        });
    }
}

#[cfg(not(debug_assertions))]
impl Held {
    fn new(_rank: Rank) -> Self {
        Self {}
    }
}

/// Takes a lock that is used with a condition variable. It has no rank: no other lock is taken under it.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that is done at an interval, by the thread that first notices that it is due.
#[derive(Debug)]
pub(crate) struct Periodic {
    /// When it is due next.
    next_ms: AtomicI64,
    /// Threads that do it, or are about to find that another one does.
    running: AtomicUsize,
}

/// The work of a [`Periodic`] is being done until this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Periodic {
    /// [`Periodic::next_ms`] of work that has no time yet.
    pub(crate) const NEVER_BEGUN: i64 = i64::MIN;

    /// First due at this time, or [`Periodic::NEVER_BEGUN`].
    pub(crate) fn new(first_ms: i64) -> Self {
        Self {
            next_ms: AtomicI64::new(first_ms),
            running: AtomicUsize::new(0),
        }
    }

    /// For one caller when the time has come: it is to do the work. Sets the next time.
    pub(crate) fn begin(&self, now_ms: i64, interval_ms: i64) -> Option<Running<'_>> {
        let due_ms = self.next_ms();
        if now_ms < due_ms {
            return None;
        }
        // Counted before the time is changed: a thread that sees the new time sees that the work is being done.
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(&self.running);
        let next_ms = now_ms.saturating_add(interval_ms);
        let claimed = self
            .next_ms
            .compare_exchange(due_ms, next_ms, Ordering::SeqCst, Ordering::Relaxed);
        claimed.is_ok().then_some(running)
    }

    /// Sets the first time of work that has none; true: it had none.
    pub(crate) fn begin_at(&self, first_ms: i64) -> bool {
        self.next_ms() == Self::NEVER_BEGUN
            && self
                .next_ms
                .compare_exchange(Self::NEVER_BEGUN, first_ms, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// When it is due next.
    pub(crate) fn next_ms(&self) -> i64 {
        self.next_ms.load(Ordering::SeqCst)
    }

    /// Whether a thread is doing it.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }
}

/// A counter of changes that threads can wait on.
#[derive(Default)]
pub(crate) struct Changes {
    version: std::sync::Mutex<u64>,
    changed: Condvar,
    /// Called with every change; those whose owner is gone are removed.
    watchers: std::sync::Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
    /// Number of watchers: usually there are none.
    watched: AtomicUsize,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Changes").field(&self.version()).finish()
    }
}

impl Changes {
    /// The count now.
    pub(crate) fn version(&self) -> u64 {
        *lock(&self.version)
    }

    /// Something changed: wakes every waiting thread.
    pub(crate) fn notify(&self) {
        *lock(&self.version) += 1;
        self.changed.notify_all();
        if self.watched.load(Ordering::SeqCst) > 0 {
            let mut watchers = lock(&self.watchers);
            watchers.retain(|watcher| watcher.upgrade().inspect(|notify| notify()).is_some());
            self.watched.store(watchers.len(), Ordering::SeqCst);
        }
    }

    /// Calls `notify` with every change, under locks of the broker, as long as it has another owner.
    pub(crate) fn watch(&self, notify: &Waker) {
        let mut watchers = lock(&self.watchers);
        watchers.push(Arc::downgrade(notify));
        self.watched.store(watchers.len(), Ordering::SeqCst);
    }

    /// Waits until the count differs from `seen`; false after `timeout`.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) -> bool {
        let guard = lock(&self.version);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, timeout, |version| *version == seen)
            .unwrap_or_else(PoisonError::into_inner);
        *guard != seen
    }
}

/// The place where the response to a waiting request will arrive.
pub(crate) struct Answer {
    /// Number of the waiting fetch in the purgatory; 0 for other requests.
    fetch_id: u64,
    cell: Mutex<Cell>,
    /// Called once the response can be taken.
    notify: std::sync::Mutex<Option<Waker>>,
}

/// What an [`Answer`] holds.
enum Cell {
    /// Neither a response nor a receiver yet.
    Empty,
    /// The response has arrived and is not taken yet.
    Ready(Response),
    /// The receiver of the response.
    Receiver(Receiver),
}

/// Called with the response, under locks of the broker: it must not wait and must not call the broker.
pub(crate) type Receiver = Box<dyn FnOnce(Response) + Send>;

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("fetch_id", &self.fetch_id)
            .finish_non_exhaustive()
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self::of_fetch(0)
    }
}

impl Answer {
    /// For the response to a waiting fetch.
    pub(crate) fn of_fetch(fetch_id: u64) -> Self {
        Self {
            fetch_id,
            cell: Mutex::new(Rank::Answer, Cell::Empty),
            notify: std::sync::Mutex::default(),
        }
    }

    /// See [`Answer::of_fetch`].
    pub(crate) fn fetch_id(&self) -> u64 {
        self.fetch_id
    }

    /// Delivers the response: to its receiver, or to the thread that waits for `changes` and takes it.
    pub(crate) fn complete(&self, response: Response, changes: &Changes) {
        let mut cell = self.cell.lock();
        if let Cell::Receiver(receive) = std::mem::replace(&mut *cell, Cell::Empty) {
            drop(cell);
            receive(response);
        } else {
            *cell = Cell::Ready(response);
            drop(cell);
            changes.notify();
            if let Some(notify) = &*lock(&self.notify) {
                notify();
            }
        }
    }

    /// From now on `notify` is called, under locks of the broker, when the response arrives. One that has arrived before is not reported.
    pub(crate) fn watch(&self, notify: &Waker) {
        *lock(&self.notify) = Some(Arc::clone(notify));
    }

    /// Takes the response if it has arrived.
    pub(crate) fn take(&self) -> Option<Response> {
        let mut cell = self.cell.lock();
        match std::mem::replace(&mut *cell, Cell::Empty) {
            Cell::Ready(response) => Some(response),
            other => {
                *cell = other;
                None
            }
        }
    }

    /// Calls `receive` with the response: at once if it has arrived, else from the thread that delivers it.
    pub(crate) fn on_ready(&self, receive: Receiver) {
        let mut cell = self.cell.lock();
        match std::mem::replace(&mut *cell, Cell::Empty) {
            Cell::Ready(response) => {
                drop(cell);
                receive(response);
            }
            _ => *cell = Cell::Receiver(receive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order() {
        let (group, table) = (Mutex::new(Rank::Group, 1), Mutex::new(Rank::GroupTable, 2));
        let held = group.lock();
        assert_eq!(*held + *table.lock(), 3);
        drop(held);
        drop(table.lock());
        drop(group.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock Group is taken while Some(GroupTable) is held")]
    fn a_lock_that_is_taken_against_the_order_is_a_panic() {
        let (group, table) = (Mutex::new(Rank::Group, ()), Mutex::new(Rank::GroupTable, ()));
        let _held = table.lock();
        let _second = group.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock Group is taken while Some(Group) is held")]
    fn a_second_lock_of_a_kind_is_a_panic() {
        let (group, other) = (Mutex::new(Rank::Group, ()), Mutex::new(Rank::Group, ()));
        let _held = group.lock();
        let _second = other.lock();
    }
}
