//! Reusable memory for reads: a buffer comes back when its last reader drops it.
//!
//! A fetch reads some megabytes of each partition. Fresh pages cost many times what reading into them does, so buffers are
//! lent to the readers and reused afterwards. All logs of the process share them, like descriptors. They come from the system
//! and not from the allocator, which would keep the memory that a crowd of slow readers once used.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use memmap2::MmapMut;

/// Below this the allocator has memory at hand.
const MIN_LENT: usize = 64 << 10;
/// Larger reads use memory of the allocator: `max.partition.fetch.bytes` is 1 MiB by default.
const MAX_LENT: usize = 16 << 20;
/// Bytes kept for reuse: what a fetch with the default `fetch.max.bytes` (50 MiB) reads, and some more.
const MAX_KEPT: usize = 64 << 20;
/// Sizes are multiples of this, so that slices that differ by a batch use the same buffers.
const STEP: usize = 64 << 10;

/// Buffers of at least this size are made of pages of this size where the system has them: a fresh one then costs a tenth,
/// and reading it misses fewer translations.
const HUGE_PAGE: usize = 2 << 20;

/// Free buffers, most recently used last. Each still holds bytes of an earlier read.
struct Free {
    /// Each with the round in which it came back.
    buffers: VecDeque<(u64, MmapMut)>,
    bytes: usize,
    /// Number of the calls of [`Self::free_unused`].
    round: u64,
}

/// Never waited for: if the lock is taken, or a fork left it locked, a buffer is freed instead of kept, or created instead of
/// reused.
static FREE: Mutex<Free> = Mutex::new(Free {
    buffers: VecDeque::new(),
    bytes: 0,
    round: 0,
});

impl Free {
    /// The smallest buffer of at least `len` bytes and about twice as many at most; among equals the most recently used,
    /// which is mostly in a cache.
    fn take(&mut self, len: usize) -> Option<MmapMut> {
        let lens = self.buffers.iter().map(|(_, buffer)| buffer.len()).enumerate().rev();
        let fitting = lens.filter(|(_, size)| (len..=len.saturating_mul(2).saturating_add(STEP)).contains(size));
        let (at, _) = fitting.min_by_key(|(_, size)| *size)?;
        let (_, found) = self.buffers.remove(at)?;
        self.bytes -= found.len();
        Some(found)
    }

    /// Keeps a buffer; the least recently used ones make room.
    fn put(&mut self, buffer: MmapMut) {
        self.bytes += buffer.len();
        self.buffers.push_back((self.round, buffer));
        while self.bytes > MAX_KEPT {
            self.free_oldest();
        }
    }

    fn free_oldest(&mut self) {
        if let Some((_, oldest)) = self.buffers.pop_front() {
            self.bytes -= oldest.len();
        }
    }

    /// Frees the buffers that have not come back since the last call.
    fn free_unused(&mut self) {
        while self.buffers.front().is_some_and(|(round, _)| *round < self.round) {
            self.free_oldest();
        }
        self.round += 1;
    }
}

/// A buffer of which the first `used` bytes are read.
struct Lent {
    /// `Some` until this is dropped.
    buffer: Option<MmapMut>,
    used: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().map_or(&[], |buffer| &buffer[..self.used])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Ok(mut free) = FREE.try_lock()
            && let Some(buffer) = self.buffer.take()
        {
            free.put(buffer);
        }
    }
}

/// Frees the buffers that no read has used since the last call. Returns whether some are left; if so, call it again after
/// some time.
pub fn free_unused_buffers() -> bool {
    FREE.try_lock().is_ok_and(|mut free| {
        free.free_unused();
        free.bytes > 0
    })
}

/// Whether a read of `len` bytes uses [`read_lent`].
pub(super) fn is_lent(len: usize) -> bool {
    (MIN_LENT..=MAX_LENT).contains(&len)
}

/// A fresh buffer of at least `len` bytes.
fn map(len: usize) -> io::Result<MmapMut> {
    if len < HUGE_PAGE {
        return MmapMut::map_anon(len.next_multiple_of(STEP));
    }
    let buffer = MmapMut::map_anon(len.next_multiple_of(HUGE_PAGE))?;
    #[cfg(target_os = "linux")]
    let _ = buffer.advise(memmap2::Advice::HugePage); // A system without such pages uses its own.
    Ok(buffer)
}

/// Reads up to `len` bytes into a lent buffer: `read` fills it and returns how many bytes it read.
pub(super) fn read_lent(len: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Bytes> {
    let free = FREE.try_lock().ok().and_then(|mut free| free.take(len));
    let mut buffer = match free {
        Some(buffer) => buffer,
        None => map(len)?,
    };
    let read = read(&mut buffer[..len]);
    // A failed read releases its buffer too.
    let mut lent = Lent {
        buffer: Some(buffer),
        used: 0,
    };
    lent.used = read?.min(len);
    Ok(Bytes::from_owner(lent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Free {
        Free {
            buffers: VecDeque::new(),
            bytes: 0,
            round: 0,
        }
    }

    fn of_size(size: usize) -> MmapMut {
        MmapMut::map_anon(size).unwrap()
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_none_that_is_far_too_large() {
        let mut free = empty();
        for size in [8 << 20, 1 << 20, 2 << 20] {
            free.put(of_size(size));
        }
        assert_eq!(free.take((1 << 20) - 5).unwrap().len(), 1 << 20);
        assert_eq!(free.take((1 << 20) - 5).unwrap().len(), 2 << 20);
        assert!(free.take((1 << 20) - 5).is_none());
        assert_eq!(free.take(5 << 20).unwrap().len(), 8 << 20);
        assert_eq!((free.bytes, free.buffers.len()), (0, 0));
    }

    #[test]
    fn of_equals_the_one_used_last_is_taken() {
        let mut free = empty();
        let buffers: Vec<_> = (0..3).map(|_| of_size(1 << 20)).collect();
        let memory: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        buffers.into_iter().for_each(|buffer| free.put(buffer));
        for last in memory.into_iter().rev() {
            assert_eq!(free.take(1 << 20).unwrap().as_ptr(), last);
        }
    }

    #[test]
    fn what_was_not_used_for_the_longest_makes_room() {
        let mut free = empty();
        free.put(of_size(3 << 20));
        for _ in 0..100 {
            free.put(of_size(1 << 20));
        }
        assert_eq!((free.bytes, free.buffers.len()), (MAX_KEPT, 64));
        assert!(free.take(3 << 20).is_none());
    }

    #[test]
    fn what_no_read_has_used_for_a_round_is_freed() {
        let mut free = empty();
        free.put(of_size(1 << 20));
        free.put(of_size(2 << 20));
        free.free_unused();
        let used = free.take(1 << 20).unwrap();
        free.put(used);
        free.free_unused();
        assert_eq!((free.bytes, free.buffers.len()), (1 << 20, 1));
        free.free_unused();
        assert_eq!((free.bytes, free.buffers.len()), (0, 0));
    }

    #[test]
    fn a_short_read_and_a_failed_one_show_no_bytes_of_earlier_reads() {
        for (filled, shown) in [(Ok(3), Some(3)), (Err(io::ErrorKind::Other.into()), None)] {
            let first = read_lent(MIN_LENT, |buffer| {
                buffer.fill(7);
                Ok(buffer.len())
            });
            assert_eq!(first.unwrap(), vec![7; MIN_LENT]);
            let second = read_lent(MIN_LENT, |buffer| {
                buffer[..3].fill(8);
                filled
            });
            assert_eq!(second.ok(), shown.map(|len| Bytes::from(vec![8; len])));
        }
    }
}
