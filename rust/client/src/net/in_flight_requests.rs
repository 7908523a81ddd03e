//! The requests of each connection that have no response yet. Kafka: `InFlightRequests`.

use std::collections::{BTreeMap, VecDeque};

use fletchlog_api::{NodeId, Request};

use super::RequestId;

/// A request without a response; `K` says what it is for.
#[derive(Debug)]
pub(crate) struct InFlightRequest<K> {
    pub correlation_id: RequestId,
    pub kind: K,
    /// False for acks=0: the response is empty and decides nothing.
    expects_response: bool,
    timeout_ms: i64,
    pub(super) sent_ms: i64,
    /// `None` once it is written to the wire.
    unwritten: Option<Request>,
}

impl<K> InFlightRequest<K> {
    pub(super) fn new(correlation_id: RequestId, kind: K, request: Request, timeout_ms: i64) -> Self {
        Self {
            correlation_id,
            kind,
            expects_response: !matches!(&request, Request::Produce(produce) if produce.acks == 0),
            timeout_ms,
            sent_ms: 0,
            unwritten: Some(request),
        }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }

    /// ms until it times out, as of `now`.
    fn time_left(&self, now: i64) -> i64 {
        let waited = now.saturating_sub(self.sent_ms);
        self.timeout_ms.saturating_sub(waited).saturating_add(1)
    }

    fn may_time_out(&self) -> bool {
        self.expects_response && self.is_written()
    }
}

/// The requests in flight of each connection, oldest first.
#[derive(Debug)]
pub(super) struct InFlightRequests<K> {
    max_per_connection: usize,
    nodes: BTreeMap<NodeId, VecDeque<InFlightRequest<K>>>,
}

impl<K> InFlightRequests<K> {
    pub(super) fn new(max_per_connection: usize) -> Self {
        Self {
            max_per_connection,
            nodes: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, node: NodeId, request: InFlightRequest<K>) {
        self.nodes.entry(node).or_default().push_back(request);
    }

    /// Removes the request that a response belongs to; `None` if the request was cancelled.
    pub(super) fn complete(&mut self, node: NodeId, id: RequestId) -> Option<InFlightRequest<K>> {
        let requests = self.nodes.get_mut(&node)?;
        let at = requests.iter().position(|r| r.correlation_id == id)?;
        requests.remove(at)
    }

    /// Removes all requests of a lost connection, oldest first.
    pub(super) fn clear_all(&mut self, node: NodeId) -> VecDeque<InFlightRequest<K>> {
        self.nodes.get_mut(&node).map(std::mem::take).unwrap_or_default()
    }

    /// Whether the last request is written, and fewer than max.in.flight.requests.per.connection wait for a response.
    pub(super) fn can_send_more(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_none_or(|requests| {
            requests.back().is_none_or(InFlightRequest::is_written)
                && requests.iter().filter(|r| r.expects_response).count() < self.max_per_connection
        })
    }

    pub(super) fn count(&self, node: NodeId) -> usize {
        self.nodes.get(&node).map_or(0, VecDeque::len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.values().all(VecDeque::is_empty)
    }

    /// Connections whose oldest request fulfils a condition; responses arrive in the order of the requests.
    pub(super) fn nodes_by_oldest(&self, mut condition: impl FnMut(&InFlightRequest<K>) -> bool) -> Vec<NodeId> {
        let mut oldest_is = |requests: &VecDeque<_>| requests.front().is_some_and(&mut condition);
        let nodes = self.nodes.iter().filter(|(_, requests)| oldest_is(requests));
        nodes.map(|(&node, _)| node).collect()
    }

    /// Connections with a request that has timed out. Kafka: `InFlightRequests#nodesWithTimedOutRequests`.
    pub(super) fn nodes_with_timed_out_requests(&self, now: i64) -> Vec<NodeId> {
        let late = |requests: &VecDeque<InFlightRequest<K>>| {
            let mut waiting = requests.iter().filter(|r| r.may_time_out());
            waiting.any(|r| r.time_left(now) <= 0)
        };
        let nodes = self.nodes.iter().filter(|(_, requests)| late(requests));
        nodes.map(|(&node, _)| node).collect()
    }

    /// ms until the first request times out.
    pub(super) fn first_time_out(&self, now: i64) -> Option<i64> {
        let waiting = self.iter().filter(|r| r.may_time_out());
        waiting.map(|r| r.time_left(now)).min()
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.iter().any(|r| !r.is_written())
    }

    /// Writes what is not written yet, nodes ascending.
    pub(super) fn write(&mut self, now: i64, mut wire: impl FnMut(NodeId, RequestId, Request)) {
        for (&node, requests) in &mut self.nodes {
            if let Some(last) = requests.back_mut()
                && let Some(request) = last.unwritten.take()
            {
                last.sent_ms = now;
                wire(node, last.correlation_id, request);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlightRequest<K>> {
        self.nodes.values().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlightRequest<K>> {
        self.nodes.values_mut().flatten()
    }
}
