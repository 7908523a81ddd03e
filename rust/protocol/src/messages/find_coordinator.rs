//! FindCoordinator, API key 10.

use std::sync::Arc;

use fletchlog_records::ErrorCode;

use crate::CoordinatorType;

message! {
    FindCoordinatorRequest, find_coordinator_request: key 10, versions 0 to 6, flexible from 3, with for_version of_version;
    FindCoordinatorRequest {
        key: Arc<str>, between(0, 3);
        key_type: CoordinatorType, since(1);
        coordinator_keys: Vec<Arc<str>>, since(4);
    }
}

message! {
    FindCoordinatorResponse, find_coordinator_response: key 10, versions 0 to 6, flexible from 3, with for_version of_version;
    FindCoordinatorResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, between(0, 3);
        error_message: Option<Arc<str>>, between(1, 3).nullable(1).ignorable();
        node_id: i32, between(0, 3);
        host: Arc<str>, between(0, 3);
        port: i32, between(0, 3);
        coordinators: Vec<Coordinator>, since(4);
    }
    Coordinator {
        key: Arc<str>, since(4);
        node_id: i32, since(4);
        host: Arc<str>, since(4);
        port: i32, since(4);
        error_code: ErrorCode, since(4);
        error_message: Option<Arc<str>>, since(4).nullable(4).ignorable();
    }
}

/// First version with a list of keys and of coordinators. Kafka: `FindCoordinatorRequest#MIN_BATCHED_VERSION`.
const BATCHED: i16 = 4;

impl FindCoordinatorRequest {
    /// Looks up one coordinator.
    #[must_use]
    pub fn of(key_type: CoordinatorType, key: Arc<str>) -> Self {
        Self {
            key_type,
            coordinator_keys: vec![key],
            ..Default::default()
        }
    }

    /// In an older version, moves the only key of the list into the field of that version. Several keys stay, and the encoder refuses
    /// them. Kafka: `FindCoordinatorRequest.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        if version < BATCHED && self.coordinator_keys.len() == 1 {
            self.key = self.coordinator_keys.swap_remove(0);
        }
        self
    }

    /// The reverse of [`Self::for_version`]: the keys are in the list, whatever version was read.
    fn of_version(mut self, version: i16) -> Self {
        if version < BATCHED {
            self.coordinator_keys = vec![std::mem::take(&mut self.key)];
        }
        self
    }
}

impl FindCoordinatorResponse {
    /// In an older version, moves the only coordinator of the list into the fields of that version. Its text is then "NONE" if it was
    /// found. Kafka: `FindCoordinatorResponse#prepareOldResponse`.
    fn for_version(mut self, version: i16) -> Self {
        if version < BATCHED && self.coordinators.len() == 1 {
            let only = self.coordinators.swap_remove(0);
            self.error_code = only.error_code;
            self.error_message = match only.error_code {
                ErrorCode::NONE => Some("NONE".into()),
                _ => only.error_message,
            };
            self.node_id = only.node_id;
            self.host = only.host;
            self.port = only.port;
        }
        self
    }

    /// The reverse of [`Self::for_version`], but for the key, which an older version does not repeat. Kafka:
    /// `FindCoordinatorResponse#coordinators`.
    fn of_version(mut self, version: i16) -> Self {
        if version < BATCHED {
            self.coordinators = vec![find_coordinator_response::Coordinator {
                key: Arc::default(),
                node_id: std::mem::take(&mut self.node_id),
                host: std::mem::take(&mut self.host),
                port: std::mem::take(&mut self.port),
                error_code: std::mem::replace(&mut self.error_code, ErrorCode::NONE),
                error_message: std::mem::take(&mut self.error_message),
            }];
        }
        self
    }

    /// The node of the coordinator that was looked up with [`FindCoordinatorRequest::of`], or why there is none.
    pub fn coordinator_node(&self) -> Result<i32, ErrorCode> {
        match self.coordinators.first() {
            Some(found) if found.error_code == ErrorCode::NONE => Ok(found.node_id),
            Some(refused) => Err(refused.error_code),
            None => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        }
    }
}
