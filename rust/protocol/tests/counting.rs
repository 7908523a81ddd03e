//! Counts what the calling thread allocates.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn grow(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_add(bytes));
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call is passed on as it is; only sizes are noted. The default `realloc` comes here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's pointer and layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread has allocated at most during `work`, beyond what it had before.
pub fn peak<R>(work: impl FnOnce() -> R) -> (usize, R) {
    // what is freed elsewhere makes the count wrap: begin well above zero
    let before = 1 << 40;
    LIVE.set(before);
    PEAK.set(before);
    let result = work();
    (PEAK.get() - before, result)
}
