//! What broker and client exchange within one process and never on the wire: the types of the fields marked `@local`.

use std::sync::Arc;

/// The reason behind an error code when a broker in the same process could not write its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageFailure {
    /// What could not be done, to which file, and why.
    pub message: Arc<str>,
    /// It fails until the broker is reopened: a retry is useless.
    pub until_reopened: bool,
}

/// The sender of a JoinGroup: what its header contains on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinSender {
    /// client.id, the prefix of the generated member id.
    pub client_id: Arc<str>,
    /// Version of the request. In the same process the newest.
    pub version: i16,
}

impl Default for JoinSender {
    fn default() -> Self {
        Self {
            client_id: Arc::default(),
            version: i16::MAX,
        }
    }
}
