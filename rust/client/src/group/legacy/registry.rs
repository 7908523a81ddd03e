//! One consumer's link to the registry of its group.

use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::{
    Clock, LegacyGroupAction, LegacyGroupRequest, LegacyGroupResponse, MetadataRequest, Request, Response, Transport,
};

use crate::ClientError;

/// The connection that takes the place of the ZooKeeper session.
pub(super) struct Registry {
    transport: Box<dyn Transport>,
    clock: Arc<dyn Clock>,
    group_id: Arc<str>,
    consumer_id: Arc<str>,
    timeout_ms: i64,
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
        }
    }

    /// Runs one action. The caller checks the error code.
    ///
    /// # Errors
    /// `Closed` if the broker is gone or has no such registry.
    pub fn step(&mut self, action: LegacyGroupAction) -> Result<LegacyGroupResponse, ClientError> {
        let request = LegacyGroupRequest {
            group_id: Arc::clone(&self.group_id),
            consumer_id: Arc::clone(&self.consumer_id),
            action,
        };
        let peer = self.transport.in_process();
        peer.and_then(|peer| peer.legacy_group(&request))
            .ok_or_else(|| self.gone())
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// `Timeout` without a response, `Closed` if the broker is gone.
    pub fn cluster_id(&mut self) -> Result<Arc<str>, ClientError> {
        let node = self.transport.bootstrap().first().copied().ok_or_else(|| self.gone())?;
        let request = MetadataRequest::for_topics(Some(Vec::new()), false);
        self.transport.send(node, 1, Request::Metadata(request));
        let deadline = self.clock.monotonic_ms().saturating_add(self.timeout_ms);
        loop {
            if let Some(completion) = self.transport.receive(node) {
                return match completion.result {
                    Ok(Response::Metadata(response)) => Ok(response.cluster_id.unwrap_or_default()),
                    _ => Err(self.gone()),
                };
            }
            let left = deadline - self.clock.monotonic_ms();
            if left <= 0 {
                return Err(ClientError::Timeout(format!(
                    "the broker of the legacy group {} did not answer within {} ms",
                    self.group_id, self.timeout_ms
                )));
            }
            self.transport.wait(Duration::from_millis(left.unsigned_abs()));
        }
    }

    fn gone(&self) -> ClientError {
        ClientError::Closed(format!(
            "the broker that keeps the legacy group {} has gone; open it again",
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
