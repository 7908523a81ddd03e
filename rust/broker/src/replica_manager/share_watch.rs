//! Which share fetches wait for which partitions. The fetches themselves are in `share`; they are tried again once no lock is held. Kafka:
//! the keys of `delayedShareFetchPurgatory`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use crate::sync::{Mutex, Rank};

/// What a share fetch waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ShareWatchKey {
    /// New records. Kafka: `DelayedShareFetchPartitionKey`.
    Partition(TopicPartition),
    /// Records of the group that are available again. Kafka: `DelayedShareFetchGroupKey`.
    Group(Arc<str>, TopicPartition),
}

/// The waiting share fetches by number.
#[derive(Debug)]
pub(crate) struct ShareWatch {
    waiting: Mutex<Waiting>,
    /// Number of keys, so that an append without waiting share fetches takes no lock.
    count: AtomicUsize,
    /// Number of fetches to be tried.
    ready: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    by_key: FxHashMap<ShareWatchKey, BTreeSet<u64>>,
    ready: BTreeSet<u64>,
}

impl Default for ShareWatch {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Rank::ShareFetchPurgatory, Waiting::default()),
            count: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
        }
    }
}

impl ShareWatch {
    /// From now on the fetch is to be tried after each change of these.
    pub(crate) fn watch(&self, id: u64, keys: &[ShareWatchKey]) {
        let mut waiting = self.waiting.lock();
        for key in keys {
            waiting.by_key.entry(key.clone()).or_default().insert(id);
        }
        self.count.store(waiting.by_key.len(), Ordering::SeqCst);
    }

    /// The fetch waits no longer.
    pub(crate) fn forget(&self, id: u64, keys: &[ShareWatchKey]) {
        let mut waiting = self.waiting.lock();
        for key in keys {
            if let Some(ids) = waiting.by_key.get_mut(key) {
                ids.remove(&id);
                if ids.is_empty() {
                    waiting.by_key.remove(key);
                }
            }
        }
        waiting.ready.remove(&id);
        self.ready.store(waiting.ready.len(), Ordering::SeqCst);
        self.count.store(waiting.by_key.len(), Ordering::SeqCst);
    }

    /// Called after a change, under any locks; true: fetches are to be tried that were not before.
    pub(crate) fn changed(&self, key: impl FnOnce() -> ShareWatchKey) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut guard = self.waiting.lock();
        let waiting = &mut *guard;
        let before = waiting.ready.len();
        if let Some(ids) = waiting.by_key.get(&key()) {
            waiting.ready.extend(ids);
        }
        self.ready.store(waiting.ready.len(), Ordering::SeqCst);
        waiting.ready.len() > before
    }

    /// Whether a fetch is to be tried.
    pub(crate) fn is_any_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst) > 0
    }

    /// The next fetch to be tried, in the order in which they began to wait.
    pub(crate) fn take_ready(&self) -> Option<u64> {
        if !self.is_any_ready() {
            return None;
        }
        let mut waiting = self.waiting.lock();
        let id = waiting.ready.pop_first();
        self.ready.store(waiting.ready.len(), Ordering::SeqCst);
        id
    }
}
