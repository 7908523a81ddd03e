//! The node of the group's coordinator. Kafka: `CoordinatorRequestManager`.

use std::sync::Arc;

use fletchlog_api::transport::coordinator_connection;
use fletchlog_api::{CoordinatorType, ErrorCode, FindCoordinatorRequest, NodeId, Request, Response};

use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::net::RequestId;

/// What is known of the coordinator.
#[derive(Debug)]
pub(super) struct CoordinatorRequestManager {
    group_id: Arc<str>,
    retry_backoff_ms: i64,
    node: Option<NodeId>,
    in_flight: Option<RequestId>,
    retry_at_ms: i64,
}

impl CoordinatorRequestManager {
    pub fn new(group_id: Arc<str>, retry_backoff_ms: i64) -> Self {
        Self {
            group_id,
            retry_backoff_ms,
            node: None,
            in_flight: None,
            retry_at_ms: i64::MIN,
        }
    }

    /// Its connection; asks for it if it is not known.
    pub fn connection(&mut self, net: &mut ConsumerNetworkClient) -> Option<NodeId> {
        if let Some(node) = self.node {
            return Some(coordinator_connection(node));
        }
        let now_ms = net.now_ms();
        if self.in_flight.is_none() && now_ms >= self.retry_at_ms {
            let Some(node) = net.least_loaded_node() else {
                self.retry_at_ms = now_ms.saturating_add(self.retry_backoff_ms);
                return None;
            };
            let request = FindCoordinatorRequest::of(CoordinatorType::Group, Arc::clone(&self.group_id));
            self.in_flight = Some(net.send(node, Request::FindCoordinator(request)));
        }
        None
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        self.node.is_some()
    }

    /// When it is asked for again; `None`: it is known, or a request is in flight.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        (self.node.is_none() && self.in_flight.is_none()).then_some(self.retry_at_ms)
    }

    pub fn owns(&self, id: RequestId) -> bool {
        self.in_flight == Some(id)
    }

    /// Takes the response; `None`: it was lost.
    ///
    /// # Errors
    /// One that a retry cannot help.
    pub fn on_response(&mut self, response: Option<&Response>, now_ms: i64) -> Result<(), ErrorCode> {
        self.in_flight = None;
        let found = match response {
            Some(Response::FindCoordinator(found)) => found.coordinator_node(),
            _ => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
        match found {
            Ok(node) => {
                self.node = Some(node);
                Ok(())
            }
            Err(code) => {
                self.retry_at_ms = now_ms.saturating_add(self.retry_backoff_ms);
                if code.is_retriable() { Ok(()) } else { Err(code) }
            }
        }
    }

    /// It is another node now. Kafka: `markCoordinatorUnknown`.
    pub fn mark_unknown(&mut self) {
        self.node = None;
    }
}
