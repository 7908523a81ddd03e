//! Memory of columns that nobody reads any more, for the next ones.
//!
//! Fresh memory of the size of a column costs page faults: more than half of what decoding into it does, and with several threads all of them wait for
//! each other in the kernel. So some of the buffers that were handed out are remembered, and taken back when all who read them have let go.

use std::collections::VecDeque;
use std::sync::Mutex;

use arrow_buffer::{ArrowNativeType, Buffer};

/// Smaller ones come from the allocator at once.
const LEAST: usize = 64 << 10;
/// Larger ones are not remembered.
const MOST: usize = 32 << 20;
/// Bytes that are remembered at most.
const ALL: usize = 64 << 20;

/// Buffers, those handed out last at the end. The lock is never waited for: a vector is made anew, or a buffer forgotten.
static HANDED_OUT: Mutex<VecDeque<Buffer>> = Mutex::new(VecDeque::new());

/// An empty vector with room for `capacity`: one that was handed out, if nobody reads it.
pub(crate) fn vec<T: ArrowNativeType>(capacity: usize) -> Vec<T> {
    let wanted = capacity.saturating_mul(size_of::<T>());
    if wanted < LEAST {
        return Vec::with_capacity(capacity);
    }
    found(wanted).unwrap_or_else(|| Vec::with_capacity(capacity))
}

fn found<T: ArrowNativeType>(wanted: usize) -> Option<Vec<T>> {
    let mut buffers = HANDED_OUT.try_lock().ok()?;
    for _ in 0..buffers.len() {
        let buffer = buffers.pop_front()?;
        if (wanted..=wanted.saturating_mul(4)).contains(&buffer.capacity()) {
            match buffer.into_vec::<T>() {
                Ok(mut vec) => {
                    vec.clear();
                    return Some(vec);
                }
                Err(read) => buffers.push_back(read),
            }
        } else {
            buffers.push_back(buffer);
        }
    }
    None
}

/// What a vector holds. One that is less than a third full is copied, so that few rows never hold the memory of many.
pub(crate) fn buffer<T: ArrowNativeType>(vec: Vec<T>) -> Buffer {
    let bytes = vec.capacity().saturating_mul(size_of::<T>());
    if !(LEAST..=MOST).contains(&bytes) {
        return Buffer::from_vec(vec);
    }
    let is_sparse = vec.len() < vec.capacity() / 3;
    let copy = is_sparse.then(|| Buffer::from_slice_ref(vec.as_slice()));
    let made = Buffer::from_vec(vec);
    if let Ok(mut buffers) = HANDED_OUT.try_lock() {
        buffers.push_back(made.clone());
        let mut sum: usize = buffers.iter().map(Buffer::capacity).sum();
        while sum > ALL {
            sum -= buffers.pop_front().map_or(sum, |oldest| oldest.capacity());
        }
    }
    copy.unwrap_or(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_again_when_nobody_reads_it() {
        // a size that no other test uses
        let size = 3_333_333;
        let mut first = vec::<i64>(size);
        first.extend(0..3_333_333);
        let memory = first.as_ptr();
        let read = buffer(first);
        let second = read.slice(8);
        drop(read);
        let other = vec::<i64>(size);
        assert_ne!(other.as_ptr(), memory, "still read");
        assert_eq!(second.typed_data::<i64>()[0], 1);
        drop(second);
        let again = vec::<f64>(size);
        assert_eq!((again.as_ptr().cast(), again.len()), (memory, 0));
    }

    #[test]
    fn few_rows_do_not_hold_the_memory_of_many() {
        let mut sparse = vec::<u16>(2_222_222);
        sparse.extend(0..1000);
        let made = buffer(sparse);
        assert!(made.capacity() < 4000, "{}", made.capacity());
        assert_eq!(made.typed_data::<u16>()[999], 999);
    }
}
