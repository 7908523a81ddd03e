//! What a listener counts. Kafka: `RequestMetrics`, `Selector`'s metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One API at one version, as one kind of client asked for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// Kafka's name of the API.
    pub api: &'static str,
    /// Version of the request.
    pub version: i16,
    /// Name and version of the client's software, as its ApiVersions request says; empty when it did not.
    pub client: String,
}

/// What was counted of one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCount {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The connections of a listener, now and since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Open now.
    pub open: u64,
    /// Accepted.
    pub accepted: u64,
    /// Closed as soon as they were accepted, by a limit.
    pub refused: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// Counters of one listener. Thread-safe.
#[derive(Debug, Default)]
pub struct Stats {
    accepted: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    requests: Mutex<BTreeMap<RequestKind, RequestCount>>,
}

impl Stats {
    pub(crate) fn opened(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn request(&self, kind: RequestKind, bytes: usize) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(kind).or_default();
        count.requests += 1;
        count.bytes += bytes as u64;
    }

    /// The connections.
    pub fn connections(&self) -> ConnectionCount {
        let accepted = self.accepted.load(Ordering::Relaxed);
        ConnectionCount {
            open: accepted.saturating_sub(self.closed.load(Ordering::Relaxed)),
            accepted,
            refused: self.refused.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }

    /// The requests, by API, version and client.
    pub fn requests(&self) -> Vec<(RequestKind, RequestCount)> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }
}
