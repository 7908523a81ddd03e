//! One consumer's link to the registry of its group: one step, one answer.

use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::{
    Clock, Completion, LegacyGroupAction, LegacyGroupRequest, LegacyGroupResponse, MetadataRequest, Request, Response,
    Transport,
};

use crate::ClientError;
use crate::consumer::network_client::BOOTSTRAP_NODE;

/// The connection that stands for the ZooKeeper session.
pub(super) struct Registry {
    transport: Box<dyn Transport>,
    clock: Arc<dyn Clock>,
    group_id: Arc<str>,
    consumer_id: Arc<str>,
    timeout_ms: i64,
    last_id: i32,
}

impl Registry {
    pub fn new(
        transport: Box<dyn Transport>,
        clock: Arc<dyn Clock>,
        group_id: Arc<str>,
        consumer_id: Arc<str>,
        timeout_ms: i64,
    ) -> Self {
        Self {
            transport,
            clock,
            group_id,
            consumer_id,
            timeout_ms,
            last_id: 0,
        }
    }

    /// Does one step. Its error code is left to the caller.
    ///
    /// # Errors
    /// `Timeout` without an answer, `Closed` when the broker has gone.
    pub fn step(&mut self, action: LegacyGroupAction) -> Result<LegacyGroupResponse, ClientError> {
        let request = LegacyGroupRequest {
            group_id: Arc::clone(&self.group_id),
            consumer_id: Arc::clone(&self.consumer_id),
            action,
        };
        match self.ask(Request::LegacyGroup(request))? {
            Response::LegacyGroup(response) => Ok(response),
            other => Err(self.misunderstood(&other)),
        }
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// As `step`.
    pub fn cluster_id(&mut self) -> Result<Arc<str>, ClientError> {
        match self.ask(Request::Metadata(MetadataRequest {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: false,
        }))? {
            Response::Metadata(response) => Ok(response.cluster_id),
            other => Err(self.misunderstood(&other)),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Response, ClientError> {
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.transport.send(BOOTSTRAP_NODE, id, request);
        let deadline = self.clock.monotonic_ms().saturating_add(self.timeout_ms);
        loop {
            match self.transport.receive(BOOTSTRAP_NODE) {
                Some(Completion {
                    correlation_id, result, ..
                }) if correlation_id == id => {
                    return result.map_err(|_| {
                        ClientError::Closed(format!(
                            "the broker that keeps the legacy group {} has gone; open it again",
                            self.group_id
                        ))
                    });
                }
                Some(_) => continue, // The answer to a step that was given up.
                None => {}
            }
            let left = deadline - self.clock.monotonic_ms();
            if left <= 0 {
                return Err(ClientError::Timeout(format!(
                    "the registry of the legacy group {} did not answer within {} ms",
                    self.group_id, self.timeout_ms
                )));
            }
            self.transport.wait(Duration::from_millis(left.unsigned_abs()));
        }
    }

    fn misunderstood(&self, response: &Response) -> ClientError {
        ClientError::IllegalState(format!(
            "the registry of the legacy group {} answered {response:?}",
            self.group_id
        ))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("group_id", &self.group_id)
            .field("consumer_id", &self.consumer_id)
            .finish_non_exhaustive()
    }
}
