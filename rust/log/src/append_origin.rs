//! Who appends a batch, and so what is checked. Kafka: `AppendOrigin`.

/// Where a batch comes from; decides which checks apply (spec 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all checks.
    Client,
    /// A producer whose right to open a transaction here was not verified with the transaction coordinator: a batch that
    /// would open one is refused with INVALID_TXN_STATE, so that no marker is missed (KIP-890).
    UnverifiedClient,
    /// A producer whose partition the broker itself adds to the transaction: a partition without a batch of its epoch begins with
    /// sequence 0 (transaction.version 2). Kafka: `VerificationStateEntry#supportsEpochBump`.
    AddedClient,
    /// The group or transaction coordinator: may write control batches, no sequence check.
    Coordinator,
    /// The same for a marker of transaction.version 2: its epoch is above that of the transaction it ends.
    BumpingCoordinator,
    /// A batch that is already in a log: the producer state applies it without checks (recovery, read-only opening).
    Replication,
}

impl AppendOrigin {
    pub(crate) fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::UnverifiedClient | Self::AddedClient)
    }
}
