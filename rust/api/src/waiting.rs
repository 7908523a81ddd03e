//! How a call waits: its thread sleeps, or the call is suspended and its thread does other work meanwhile.
//!
//! A call of the engine that waits is a loop: look, wait, ask the interrupt callback. In a suspended call the wait only looks and notes how
//! long it may take; the callback then suspends the call for that long, or until somebody wakes it. So the loop is the same for both.

use std::cell::Cell;
use std::time::Duration;

/// How long a thread sleeps before the interrupt callback is asked: Ctrl-C must be seen within 100 ms.
const SLICE: Duration = Duration::from_millis(50);

thread_local! {
    static SUSPENDS: Cell<bool> = const { Cell::new(false) };
    static WANTED: Cell<Option<Duration>> = const { Cell::new(None) };
    static MOST: Cell<Duration> = const { Cell::new(Duration::MAX) };
}

/// Waits at most `limit` with `wait`, which gets the time that it may take and returns whether something has come. Returns false at the
/// latest after 50 ms; then the caller asks its interrupt callback.
pub fn wait(limit: Duration, wait: impl FnOnce(Duration) -> bool) -> bool {
    if !SUSPENDS.get() {
        return wait(limit.min(SLICE));
    }
    MOST.set(Duration::MAX);
    let came = wait(Duration::ZERO);
    WANTED.set((!came).then_some(limit.min(MOST.get())));
    came
}

/// Inside the function that [`wait`] calls: something is due after this time, so a suspended call looks again then.
pub fn at_most(time: Duration) {
    MOST.set(MOST.get().min(time));
}

/// Whether the call in this thread is suspended where others sleep.
pub fn suspends() -> bool {
    SUSPENDS.get()
}

/// Runs a part of a call that is suspended where others sleep.
pub fn suspending<R>(part: impl FnOnce() -> R) -> R {
    let before = SUSPENDS.replace(true);
    let result = part();
    SUSPENDS.set(before);
    result
}

/// How long the call wants to be suspended, at most. `None`: it does not wait.
pub fn take_wanted() -> Option<Duration> {
    WANTED.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_and_a_suspended_call_only_looks() {
        let long = Duration::from_secs(9);
        assert!(!wait(long, |time| {
            assert_eq!(time, SLICE);
            false
        }));
        assert_eq!(take_wanted(), None);
        suspending(|| {
            assert!(!wait(long, |time| {
                assert_eq!(time, Duration::ZERO);
                false
            }));
            assert_eq!(take_wanted(), Some(long));
            assert_eq!(take_wanted(), None);
            let short = Duration::from_millis(7);
            assert!(!wait(long, |_| {
                at_most(short);
                false
            }));
            assert_eq!(take_wanted(), Some(short));
            assert!(!wait(long, |_| false));
            assert_eq!(take_wanted(), Some(long));
            assert!(wait(long, |_| true));
            assert_eq!(take_wanted(), None, "something has come");
        });
        assert!(!suspends());
    }
}
