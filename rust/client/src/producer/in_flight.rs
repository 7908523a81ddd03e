//! Connections as the producer sees them, and the requests unanswered on each. Kafka: `InFlightRequests`,
//! `ClusterConnectionStates`.

use std::collections::{BTreeMap, VecDeque};

use fletchlog_api::NodeId;

use super::producer_batch::BatchId;
use super::transaction::TxnRequest;

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
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connections {
    max_in_flight: usize,
    reconnect_backoff_ms: i64,
    nodes: BTreeMap<NodeId, Connection>,
    next_correlation: i32,
}

impl Connections {
    pub(crate) fn new(max_in_flight: usize, reconnect_backoff_ms: i64) -> Self {
        Self {
            max_in_flight,
            reconnect_backoff_ms,
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
    /// The connection was lost: its unanswered requests, oldest first.
    pub(crate) fn close(&mut self, node: NodeId, now: i64) -> Vec<InFlightRequest> {
        let connection = self.nodes.entry(node).or_default();
        connection.closed_until = Some(now.saturating_add(self.reconnect_backoff_ms));
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
