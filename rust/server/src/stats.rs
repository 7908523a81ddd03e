//! The counters of a listener. Kafka: `RequestMetrics`, `Selector`'s metrics.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One API in one version, requested by one kind of client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// Kafka's name of the API.
    pub api: &'static str,
    /// Version of the request.
    pub version: i16,
    /// Name and version of the client's software, from its ApiVersions request; empty if it had none, [`OTHER_CLIENTS`] if there are too
    /// many.
    pub client: Arc<str>,
}

/// The counters of one kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCount {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One of the last requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRequest {
    /// When its handling began, in ms since the epoch.
    pub time_ms: i64,
    /// Its API, its version, and the client's software.
    pub kind: RequestKind,
    /// The beginning of its client id.
    pub client_id: String,
    /// The client's address.
    pub address: SocketAddr,
}

/// How many kinds of client software are counted separately. Clients choose these names themselves, so there has to be a limit. Kafka: `Selector.SelectorMetrics`,
/// whose `connectionsByClient` has 100 entries.
const CLIENTS: usize = 100;
/// The client of the requests of all others. No software can have this name: Kafka's pattern has no brackets.
pub const OTHER_CLIENTS: &str = "(other)";
/// How many of the last requests are kept.
const LAST_REQUESTS: usize = 50;
/// How many characters of a client id are kept.
const CLIENT_ID_CHARS: usize = 100;

/// The connections of a listener, now and since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Open now.
    pub open: u64,
    /// Accepted.
    pub accepted: u64,
    /// Closed right after they were accepted, because of a limit.
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
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    counts: BTreeMap<RequestKind, RequestCount>,
    last: VecDeque<LastRequest>,
    /// Client software that is counted separately.
    clients: HashSet<Arc<str>>,
}

impl Requests {
    /// The counters of a kind of request.
    fn count(&mut self, kind: &RequestKind) -> &mut RequestCount {
        let is_known = kind.client.is_empty() || self.clients.contains(&kind.client);
        if !is_known && self.clients.len() < CLIENTS {
            self.clients.insert(Arc::clone(&kind.client));
        } else if !is_known {
            let client = OTHER_CLIENTS.into();
            return self.counts.entry(RequestKind { client, ..*kind }).or_default();
        }
        self.counts.entry(kind.clone()).or_default()
    }
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

    pub(crate) fn request(&self, mut request: LastRequest, bytes: usize) {
        if let Some((end, _)) = request.client_id.char_indices().nth(CLIENT_ID_CHARS) {
            request.client_id.truncate(end);
        }
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.count(&request.kind);
        count.requests += 1;
        count.bytes += bytes as u64;
        if requests.last.len() == LAST_REQUESTS {
            requests.last.pop_front();
        }
        requests.last.push_back(request);
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
        requests
            .counts
            .iter()
            .map(|(kind, count)| (kind.clone(), *count))
            .collect()
    }

    /// The last requests, the newest one last.
    pub fn last_requests(&self) -> Vec<LastRequest> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.last.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_requests_stay_and_all_are_counted() {
        let stats = Stats::default();
        for time_ms in 0..120 {
            let kind = RequestKind {
                api: "Fetch",
                version: 12,
                client: "".into(),
            };
            let request = LastRequest {
                time_ms,
                kind,
                client_id: "\u{e9}".repeat(300),
                address: ([127, 0, 0, 1], 1).into(),
            };
            stats.request(request, 10);
        }
        let last = stats.last_requests();
        assert_eq!((last.len(), last[0].time_ms, last[49].time_ms), (50, 70, 119));
        assert_eq!(last[0].client_id, "\u{e9}".repeat(100));
        assert_eq!(
            stats.requests()[0].1,
            RequestCount {
                requests: 120,
                bytes: 1200
            }
        );
    }

    #[test]
    fn clients_that_change_their_name_share_a_row() {
        let stats = Stats::default();
        let ask = |client: String| {
            let (api, client) = ("ApiVersions", client.into());
            let request = LastRequest {
                time_ms: 0,
                kind: RequestKind {
                    api,
                    version: 3,
                    client,
                },
                client_id: String::new(),
                address: ([127, 0, 0, 1], 1).into(),
            };
            stats.request(request, 10);
        };
        for number in 0..10_000 {
            ask(format!("name-{number} 1"));
        }
        ask("name-7 1".to_owned());
        let rows = stats.requests();
        assert_eq!(rows.len(), CLIENTS + 1);
        let of = |client: &str| {
            rows.iter()
                .find(|(kind, _)| &*kind.client == client)
                .unwrap()
                .1
                .requests
        };
        assert_eq!((of("name-7 1"), of(OTHER_CLIENTS)), (2, 9_900));
    }
}
