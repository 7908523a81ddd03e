//! Memory for large requests while they are read and handled. Kafka: `MemoryPool`, `SimpleMemoryPool`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Limits the bytes of all large requests together.
pub(crate) struct MemoryPool {
    limit: usize,
    used: AtomicUsize,
    /// A request was refused since `on_free` was last called.
    is_short: AtomicBool,
    /// Called when room is free again, by the thread that freed it.
    on_free: Box<dyn Fn() + Send + Sync>,
}

impl MemoryPool {
    /// A pool of `limit` bytes.
    pub(crate) fn new(limit: usize, on_free: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
            on_free: Box::new(on_free),
        })
    }

    /// Room for a request. A request larger than the pool gets it when the pool is empty. Kafka: `SimpleMemoryPool#tryAllocate`.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Memory> {
        self.try_take(bytes).or_else(|| {
            self.is_short.store(true, Ordering::SeqCst);
            // Room freed before the flag was set did not call `on_free`.
            self.try_take(bytes)
        })
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Memory> {
        let fits =
            |used: usize| (used == 0 || used.saturating_add(bytes) <= self.limit).then(|| used.saturating_add(bytes));
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        taken.is_ok().then(|| Memory {
            pool: Arc::clone(self),
            bytes,
        })
    }
}

/// Room in the pool. Dropping it frees the room.
pub(crate) struct Memory {
    pool: Arc<MemoryPool>,
    bytes: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.pool.is_short.swap(false, Ordering::SeqCst) {
            (self.pool.on_free)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_the_pool_and_one_that_was_refused_hears_of_room() {
        let freed = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&freed);
        let pool = MemoryPool::new(100, move || {
            heard.fetch_add(1, Ordering::SeqCst);
        });
        let large = pool.take(1000);
        assert!(large.is_some(), "alone, a request may be larger than the pool");
        drop(large);
        assert_eq!(freed.load(Ordering::SeqCst), 0, "nobody waits");
        let (first, second) = (pool.take(60), pool.take(40));
        assert!(first.is_some() && second.is_some() && pool.take(1).is_none());
        drop(first);
        assert_eq!(freed.load(Ordering::SeqCst), 1);
        assert!(pool.take(60).is_some());
        drop(second);
        assert!(pool.take(1000).is_some(), "all of it was given back");
        assert_eq!(freed.load(Ordering::SeqCst), 1);
    }
}
