//! What broker and client exchange within one process and never on the wire: the types of the fields marked `@local`.

use std::sync::Arc;

use crate::topic_ids::TopicId;

/// The reason behind an error code when a broker in the same process could not write its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageFailure {
    /// What could not be done, to which file, and why.
    pub message: Arc<str>,
    /// It fails until the broker is reopened: a retry is useless.
    pub until_reopened: bool,
}

/// The sender of a JoinGroup or ConsumerGroupHeartbeat: what its header and its connection say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinSender {
    /// client.id, the prefix of the member id that JoinGroup generates.
    pub client_id: Arc<str>,
    /// Version of the request. In the same process the newest.
    pub version: i16,
    /// Who the client is, as `User:name`. `None`: a client in the broker's process, which may do everything.
    pub principal: Option<Arc<str>>,
}

impl Default for JoinSender {
    fn default() -> Self {
        Self {
            client_id: Arc::default(),
            version: i16::MAX,
            principal: None,
        }
    }
}

/// A client as the authorizer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName {
    /// `User:name`.
    pub principal: Arc<str>,
    /// The address it comes from.
    pub host: Arc<str>,
}

/// What the broker does about a batch, or about offsets, of a transaction to which their partition does not belong. Kafka:
/// `TransactionSupportedOperation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransactionSupportedOperation {
    /// Refuses them with INVALID_TXN_STATE.
    #[default]
    DefaultError,
    /// Refuses them with TRANSACTION_ABORTABLE, which the client knows.
    GenericErrorSupported,
    /// Adds the partition to the transaction (transaction.version 2).
    AddPartition,
}

impl TransactionSupportedOperation {
    /// Whether the broker adds the partition.
    pub fn adds(self) -> bool {
        self == Self::AddPartition
    }

    /// What a version of a request supports, from the first one that knows TRANSACTION_ABORTABLE; the next one adds. Kafka:
    /// `AddPartitionsToTxnManager#produceRequestVersionToTransactionSupportedOperation`.
    pub(crate) fn of_version(version: i16, abortable: i16) -> Self {
        match version {
            _ if version > abortable => Self::AddPartition,
            _ if version == abortable => Self::GenericErrorSupported,
            _ => Self::DefaultError,
        }
    }

    /// The reverse of [`Self::of_version`]: the oldest and the newest version that name topics and mean the same.
    pub(crate) fn versions(self, min: i16, abortable: i16) -> (i16, i16) {
        match self.adds() {
            true => (abortable + 1, abortable + 1),
            false => (min, abortable),
        }
    }
}

/// How a Fetch names topics, and what else its version says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchTopicIds {
    /// By their ids, if the node serves a version that does: one session uses either names or ids. For a broker their names are then
    /// [`topic_by_id`](crate::topic_ids::topic_by_id).
    pub by_ids: bool,
    /// Partitions of topics that were created again, under the former ids: a version with ids forgets these too.
    pub replaced: Vec<(TopicId, i32)>,
    /// Only leaders may answer: clients of its version do not know that they can fetch from followers.
    pub leader_only: bool,
}
