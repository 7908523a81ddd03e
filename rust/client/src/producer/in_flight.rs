//! Connections as the producer sees them, and the requests unanswered on each. Kafka: `InFlightRequests`,
//! `ClusterConnectionStates`.

use std::collections::{BTreeMap, VecDeque};

use fletchlog_api::NodeId;

use super::partitioner::Random;
use super::producer_batch::BatchId;
use super::transaction::TxnRequest;
use crate::backoff::ExponentialBackoff;

/// What a request was.
#[derive(Debug)]
pub(crate) enum RequestKind {
    /// Its batches, in request order.
    Produce(Vec<BatchId>),
    /// acks=0: its batches (until they are decided, at once); the empty answer only frees the connection.
    ProduceWithoutAck(Vec<BatchId>),
    Metadata,
    InitProducerId,
    Transactional(Box<TxnRequest>),
}

/// One unanswered request.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    pub correlation_id: i32,
    pub sent_ms: i64,
    pub kind: RequestKind,
}

impl InFlightRequest {
    fn counts(&self) -> bool {
        !matches!(self.kind, RequestKind::ProduceWithoutAck(_))
    }
}

#[derive(Debug, Default)]
struct Connection {
    requests: VecDeque<InFlightRequest>,
    /// Lost: not to be opened before this time.
    closed_until: Option<i64>,
    /// Times it was lost since an answer came.
    failures: i32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connections {
    max_in_flight: usize,
    reconnect_backoff: ExponentialBackoff,
    random: Random,
    nodes: BTreeMap<NodeId, Connection>,
    next_correlation: i32,
}

impl Connections {
    /// `seed`: of the jitter of the waits.
    pub(crate) fn new(max_in_flight: usize, reconnect_backoff: ExponentialBackoff, seed: u64) -> Self {
        Self {
            max_in_flight,
            reconnect_backoff,
            random: Random::new(seed),
            nodes: BTreeMap::new(),
            next_correlation: 0,
        }
    }

    /// Notes a request and gives it its number.
    pub(crate) fn add(&mut self, node: NodeId, kind: RequestKind, now: i64) -> i32 {
        let correlation_id = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1).max(0);
        let connection = self.nodes.entry(node).or_default();
        connection.closed_until = None;
        connection.requests.push_back(InFlightRequest {
            correlation_id,
            sent_ms: now,
            kind,
        });
        correlation_id
    }
    /// The request an answer belongs to; `None` for one that was given up.
    pub(crate) fn take(&mut self, node: NodeId, correlation_id: i32) -> Option<InFlightRequest> {
        let requests = &mut self.nodes.get_mut(&node)?.requests;
        let at = requests.iter().position(|r| r.correlation_id == correlation_id)?;
        requests.remove(at)
    }

    /// Open (or may be opened now) and below max.in.flight.
    pub(crate) fn can_send(&self, node: NodeId, now: i64) -> bool {
        self.nodes.get(&node).is_none_or(|c| {
            c.closed_until.is_none_or(|until| until <= now)
                && c.requests.iter().filter(|r| r.counts()).count() < self.max_in_flight
        })
    }
    /// ms until a lost connection may be opened again; for ever for an open one, which only an answer frees.
    pub(crate) fn delay(&self, node: NodeId, now: i64) -> i64 {
        self.nodes
            .get(&node)
            .and_then(|c| c.closed_until)
            .filter(|&until| until > now)
            .map_or(i64::MAX, |until| until - now)
    }
    /// An answer came: the connection works. (In Java it works once the handshake is over; a transport here has no
    /// handshake.)
    pub(crate) fn answered(&mut self, node: NodeId) {
        self.nodes.entry(node).or_default().failures = 0;
    }
    /// The connection was lost: its unanswered requests, oldest first. Kafka: `ClusterConnectionStates#disconnected`.
    pub(crate) fn close(&mut self, node: NodeId, now: i64) -> Vec<InFlightRequest> {
        let connection = self.nodes.entry(node).or_default();
        let wait_ms = self
            .reconnect_backoff
            .wait_ms(connection.failures, || self.random.fraction());
        connection.failures = connection.failures.saturating_add(1);
        connection.closed_until = Some(now.saturating_add(wait_ms));
        connection.requests.drain(..).collect()
    }

    /// The node that can be sent to with the fewest unanswered requests. Kafka: `leastLoadedNode`.
    pub(crate) fn least_loaded(&self, nodes: &[NodeId], now: i64) -> Option<NodeId> {
        nodes
            .iter()
            .copied()
            .filter(|&node| self.can_send(node, now))
            .min_by_key(|node| self.nodes.get(node).map_or(0, |c| c.requests.len()))
    }
    /// Nodes with requests on the wire.
    pub(crate) fn busy(&self) -> Vec<NodeId> {
        self.nodes
            .iter()
            .filter(|(_, c)| !c.requests.is_empty())
            .map(|(&node, _)| node)
            .collect()
    }
    pub(crate) fn is_idle(&self) -> bool {
        self.nodes.values().all(|c| c.requests.is_empty())
    }
    /// Nodes whose oldest request has waited longer than the limit. Kafka: `nodesWithTimedOutRequests`.
    pub(crate) fn timed_out(&self, request_timeout_ms: i64, now: i64) -> Vec<NodeId> {
        self.nodes
            .iter()
            .filter(|(_, c)| {
                c.requests
                    .iter()
                    .find(|r| r.counts())
                    .is_some_and(|r| now.saturating_sub(r.sent_ms) > request_timeout_ms)
            })
            .map(|(&node, _)| node)
            .collect()
    }
    /// acks=0: the batches sent since the last call.
    pub(crate) fn take_unacknowledged(&mut self) -> Vec<BatchId> {
        let mut sent = Vec::new();
        for request in self.nodes.values_mut().flat_map(|c| &mut c.requests) {
            if let RequestKind::ProduceWithoutAck(batches) = &mut request.kind {
                sent.append(batches);
            }
        }
        sent
    }
    /// Every batch on the wire with its request, oldest request first per node.
    pub(crate) fn batches(&self) -> impl Iterator<Item = BatchId> + '_ {
        self.nodes
            .values()
            .flat_map(|c| &c.requests)
            .flat_map(|r| match &r.kind {
                RequestKind::Produce(batches) => batches.as_slice(),
                _ => &[],
            })
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long node 1 is left alone when it is lost at this time.
    fn wait(connections: &mut Connections, now: i64) -> i64 {
        connections.close(1, now);
        let ms = connections.delay(1, now);
        assert!(!connections.can_send(1, now + ms - 1) && connections.can_send(1, now + ms));
        ms
    }

    #[test]
    fn a_connection_is_left_alone_for_longer_each_time_it_is_lost_until_an_answer_comes() {
        let mut connections = Connections::new(5, ExponentialBackoff::new(50, 1000), 1);
        for round in 0..2 {
            let waits: Vec<i64> = (0..8).map(|at| wait(&mut connections, at * 10_000)).collect();
            for (at, expected) in [50, 100, 200, 400, 800, 1000, 1000, 1000].into_iter().enumerate() {
                let range = expected * 4 / 5..=(expected * 6 / 5).min(1000);
                assert!(range.contains(&waits[at]), "{round}: {waits:?}");
            }
            connections.answered(1);
        }
        // Another node has a count of its own.
        connections.close(2, 0);
        assert!((40..=60).contains(&connections.delay(2, 0)));
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut connections = Connections::new(5, ExponentialBackoff::new(50, 1000), seed);
            (0..6).map(|at| wait(&mut connections, at * 10_000)).collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }
}
