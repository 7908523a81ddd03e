//! Memory of reads that comes back when the last reader lets go of it.
//!
//! A fetch reads some megabytes of each partition. The pages of fresh memory cost many times what reading into them does, so
//! buffers are lent to the readers and taken up again afterwards. All logs of the process share them, as they do descriptors.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;

/// Below this the allocator has memory at hand.
const MIN_LENT: usize = 64 << 10;
/// A buffer beyond this is given back to the allocator: `max.partition.fetch.bytes` is 1 MiB by default.
const MAX_LENT: usize = 16 << 20;
/// Bytes kept for reuse: what a fetch with the default `fetch.max.bytes` (50 MiB) reads, and some more.
const MAX_KEPT: usize = 64 << 20;
/// Sizes are multiples of this, so that slices that differ by a batch use the same buffers.
const STEP: usize = 64 << 10;

/// Free buffers, each full of bytes of earlier reads; the one that was used last is at the end.
struct Free {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// If the lock is taken, or was left locked by a fork, a buffer is freed, or a new one made.
static FREE: Mutex<Free> = Mutex::new(Free {
    buffers: VecDeque::new(),
    bytes: 0,
});

impl Free {
    /// The smallest that has so many bytes and not more than twice as many.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fitting = self.buffers.iter().enumerate();
        let fitting =
            fitting.filter(|(_, buffer)| (len..=len.saturating_mul(2).saturating_add(STEP)).contains(&buffer.len()));
        let (at, _) = fitting.min_by_key(|(_, buffer)| buffer.len())?;
        let found = self.buffers.remove(at)?;
        self.bytes -= found.len();
        Some(found)
    }

    /// Keeps it; those that were not used for the longest make room.
    fn put(&mut self, buffer: Vec<u8>) {
        self.bytes += buffer.len();
        self.buffers.push_back(buffer);
        while self.bytes > MAX_KEPT
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

/// A buffer of which the first `used` bytes are read.
struct Lent {
    buffer: Vec<u8>,
    used: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.used]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Ok(mut free) = FREE.try_lock() {
            free.put(std::mem::take(&mut self.buffer));
        }
    }
}

/// Whether a read of so many bytes is to use [`read_lent`].
pub(super) fn is_lent(len: usize) -> bool {
    (MIN_LENT..=MAX_LENT).contains(&len)
}

/// `len` bytes in a lent buffer, as far as `read` fills them: it returns how many it did.
pub(super) fn read_lent(len: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Bytes> {
    let free = FREE.try_lock().ok().and_then(|mut free| free.take(len));
    let buffer = match free {
        Some(buffer) => buffer,
        None => {
            let mut buffer = Vec::new();
            let size = len.next_multiple_of(STEP);
            buffer
                .try_reserve_exact(size)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            buffer.resize(size, 0);
            buffer
        }
    };
    let mut lent = Lent { buffer, used: 0 };
    lent.used = read(&mut lent.buffer[..len])?.min(len);
    Ok(Bytes::from_owner(lent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Free {
        Free {
            buffers: VecDeque::new(),
            bytes: 0,
        }
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_none_that_is_far_too_large() {
        let mut free = empty();
        for size in [8 << 20, 1 << 20, 2 << 20] {
            free.put(vec![0; size]);
        }
        assert_eq!(free.take((1 << 20) - 5).unwrap().len(), 1 << 20);
        assert_eq!(free.take((1 << 20) - 5).unwrap().len(), 2 << 20);
        assert!(free.take((1 << 20) - 5).is_none());
        assert_eq!(free.take(5 << 20).unwrap().len(), 8 << 20);
        assert_eq!((free.bytes, free.buffers.len()), (0, 0));
    }

    #[test]
    fn what_was_not_used_for_the_longest_makes_room() {
        let mut free = empty();
        free.put(vec![0; 3 << 20]);
        for _ in 0..100 {
            free.put(vec![0; 1 << 20]);
        }
        assert_eq!((free.bytes, free.buffers.len()), (MAX_KEPT, 64));
        assert!(free.take(3 << 20).is_none());
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
