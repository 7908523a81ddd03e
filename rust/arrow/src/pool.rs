//! Reusable memory for columns: it comes back when the last reader of an Arrow batch drops it.
//!
//! A decoder writes some megabytes per batch. Fresh memory of that size costs more in page faults than decoding into it, so a
//! builder lends its vectors to its batches and reuses them afterwards.

use std::sync::{Arc, Mutex, Weak};

use arrow_buffer::{ArrowNativeType, Buffer, ToByteSlice};
use bytes::Bytes;

/// Vectors kept for reuse: two columns of a kind, for the batch being read, the one before it and those that a scan thread
/// has prepared.
const MAX_KEPT: usize = 12;
/// A larger vector is returned to the allocator: about 2 MiB are expected per batch.
const MAX_KEPT_BYTES: usize = 32 << 20;
/// Below this a copy of the exact size is cheaper than lending.
const MIN_LENT_BYTES: usize = 64 << 10;

/// The free vectors of one element type. The lock is never waited for: if it is taken, or a fork left it locked, a vector is
/// freed instead of kept, or created instead of reused.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    free: Mutex<Vec<Vec<T>>>,
}

impl<T> Pool<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(Vec::new()),
        })
    }

    /// An empty vector of at least `capacity`: the one that came back last, if any, which is mostly in a cache.
    pub(crate) fn take(&self, capacity: usize) -> Vec<T> {
        let found = self.free.try_lock().ok().and_then(|mut free| {
            let at = free.iter().rposition(|vec| vec.capacity() >= capacity)?;
            Some(free.swap_remove(at))
        });
        found.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Bytes of the free vectors.
    pub(crate) fn free_bytes(&self) -> usize {
        let free = self.free.try_lock();
        free.map_or(0, |free| free.iter().map(Vec::capacity).sum::<usize>() * size_of::<T>())
    }

    fn put(&self, mut vec: Vec<T>) {
        if vec.capacity().saturating_mul(size_of::<T>()) > MAX_KEPT_BYTES {
            return;
        }
        vec.clear();
        if let Ok(mut free) = self.free.try_lock()
            && free.len() < MAX_KEPT
        {
            free.push(vec);
        }
    }
}

/// A vector inside an Arrow buffer.
struct Lent<T> {
    vec: Vec<T>,
    home: Weak<Pool<T>>,
}

impl<T: ArrowNativeType> AsRef<[u8]> for Lent<T> {
    fn as_ref(&self) -> &[u8] {
        self.vec.as_slice().to_byte_slice()
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.put(std::mem::take(&mut self.vec));
        }
    }
}

/// Takes what `vec` holds as a buffer and leaves it empty. A vector that is a third full or more is lent (room is made
/// for encoded records, of which a ten-byte value is little more than half); a small or sparse one is copied and keeps
/// its memory, so that a batch of few rows never holds the memory of many.
pub(crate) fn into_buffer<T: ArrowNativeType>(pool: &Arc<Pool<T>>, vec: &mut Vec<T>) -> Buffer {
    let used = vec.len();
    if used < vec.capacity() / 3 || used * size_of::<T>() < MIN_LENT_BYTES {
        let buffer = Buffer::from_slice_ref(vec.as_slice());
        vec.clear();
        return buffer;
    }
    let lent = Lent {
        vec: std::mem::take(vec),
        home: Arc::downgrade(pool),
    };
    Buffer::from(Bytes::from_owner(lent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_when_the_last_reader_lets_go() {
        let pool = Pool::<i64>::new();
        let mut vec = Vec::with_capacity(16 << 10);
        vec.extend(0..16 << 10);
        let memory = vec.as_ptr();
        let buffer = into_buffer(&pool, &mut vec);
        assert_eq!(vec.capacity(), 0);
        let second = buffer.slice(8);
        drop(buffer);
        let fresh = pool.take(1);
        assert_ne!(fresh.as_ptr(), memory, "still read");
        drop(second);
        let again = pool.take(1);
        assert_eq!(again.as_ptr(), memory);
    }

    #[test]
    fn the_vector_that_came_back_last_is_taken_first() {
        let pool = Pool::<i64>::new();
        let mut vecs: Vec<Vec<i64>> = (0..3).map(|_| Vec::with_capacity(100)).collect();
        vecs.push(Vec::with_capacity(10));
        let memory: Vec<_> = vecs.iter().map(|vec| vec.as_ptr()).collect();
        vecs.into_iter().for_each(|vec| pool.put(vec));
        assert_eq!(pool.free_bytes(), 310 * 8);
        let taken: Vec<_> = (0..3).map(|_| pool.take(50)).collect();
        let taken: Vec<_> = taken.iter().map(|vec| vec.as_ptr()).collect();
        assert_eq!(taken[0], memory[2]);
        assert!(memory[..2].contains(&taken[1]) && memory[..2].contains(&taken[2]));
    }

    #[test]
    fn small_and_sparse_vectors_are_copied_in_their_exact_size() {
        let pool = Pool::<i64>::new();
        let mut vec = Vec::with_capacity(1 << 20);
        vec.extend(0..100_000);
        let buffer = into_buffer(&pool, &mut vec);
        assert!(buffer.capacity() < 801_000, "{}", buffer.capacity());
        assert_eq!((vec.len(), vec.capacity()), (0, 1 << 20));
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = Pool::<i64>::new();
        let mut vec: Vec<i64> = (0..20_000).collect();
        vec.shrink_to_fit();
        let buffer = into_buffer(&pool, &mut vec);
        drop(pool);
        assert_eq!(buffer.typed_data::<i64>()[19_999], 19_999);
    }
}
