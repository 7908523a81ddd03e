//! Who appends a batch, and so what is checked. Kafka: `AppendOrigin`.

/// Where a batch comes from; decides which checks apply (spec 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all checks.
    Client,
    /// A producer whose right to open a transaction here was not verified with the transaction coordinator: a batch that
    /// would open one is refused with INVALID_TXN_STATE, so that no marker is missed (KIP-890).
    UnverifiedClient,
    /// The group or transaction coordinator: may write control batches, no sequence check.
    Coordinator,
    /// A batch that is already in a log: the producer state applies it without checks (recovery, read-only opening).
    Replication,
}

impl AppendOrigin {
    pub(crate) fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::UnverifiedClient)
    }
}
