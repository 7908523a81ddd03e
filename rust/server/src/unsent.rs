//! Memory of responses that clients have not received. Kafka sends records straight from the file; here they are copied into memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// If more than 1/N of the budget is used, a fetch gets at most this many bytes, but at least one batch (spec 6.3). Pairs of N and bytes.
const SHARES: [(usize, i32); 2] = [(2, 64 * 1024), (4, 1024 * 1024)];

/// Counts the bytes of all responses that are being read or wait for their client.
pub(crate) struct Unsent {
    bytes: Arc<AtomicUsize>,
    /// `queued.max.request.bytes`
    budget: usize,
}

impl Unsent {
    /// An empty account with this budget.
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            bytes: Arc::default(),
            budget,
        }
    }

    /// Grants a fetch at most the bytes that it asks for. They are counted at once, so that concurrent fetches see each other.
    pub(crate) fn reserve(&self, asked: i32) -> (i32, Reserved) {
        let asked_bytes = usize::try_from(asked).unwrap_or(0);
        let before = self.bytes.fetch_add(asked_bytes, Ordering::SeqCst);
        let mut reserved = Reserved {
            all: Arc::clone(&self.bytes),
            bytes: asked_bytes,
        };
        let is_beyond = |(share, _): &&(usize, i32)| before > self.budget / share;
        let granted = SHARES
            .iter()
            .find(is_beyond)
            .map_or(asked, |(_, most)| asked.min(*most));
        reserved.resize(usize::try_from(granted).unwrap_or(0));
        (granted, reserved)
    }

    /// Counts bytes of a response that wait for their client.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Removes bytes that were sent, or whose client is gone.
    pub(crate) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Whether the bytes exceed the budget.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > self.budget
    }
}

/// Bytes counted in [`Unsent`]; dropping it removes them.
pub(crate) struct Reserved {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Reserved {
    /// Resizes the reservation to a response that was read.
    pub(crate) fn of(mut self, answer: &[Bytes]) -> Self {
        self.resize(answer.iter().map(Bytes::len).sum());
        self
    }

    fn resize(&mut self, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::SeqCst);
        self.all.fetch_sub(self.bytes, Ordering::SeqCst);
        self.bytes = bytes;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_read_counts_and_a_crowd_gets_little() {
        let unsent = Unsent::new(100 << 20);
        let (first, reading) = unsent.reserve(30 << 20);
        assert_eq!(first, 30 << 20);
        let (second, other) = unsent.reserve(30 << 20);
        assert_eq!(second, 1 << 20, "the first is still being read");
        let read = reading.of(&[Bytes::from_static(&[0; 10]), Bytes::from_static(&[0; 5])]);
        assert_eq!(unsent.bytes.load(Ordering::SeqCst), (1 << 20) + 15);
        let (third, _) = unsent.reserve(30 << 20);
        assert_eq!(third, 30 << 20);
        assert!(!unsent.is_over());
        unsent.add(60 << 20);
        assert_eq!(unsent.reserve(30 << 20).0, 64 << 10);
        unsent.add(41 << 20);
        assert!(unsent.is_over());
        unsent.remove(101 << 20);
        drop((read, other));
        assert_eq!(unsent.bytes.load(Ordering::SeqCst), 0);
        assert_eq!(unsent.reserve(-1).0, -1, "a negative limit stays one: it is an error");
    }
}
