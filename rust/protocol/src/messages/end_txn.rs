//! EndTxn, API key 26.

use crate::Message;

message! {
    EndTxnRequest, end_txn_request: key 26, versions 0 to 5, flexible from 3, with of_version;
    EndTxnRequest {
        transactional_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        committed: bool, since(0);
        @local
        /// The producer goes on with the next epoch, which the response names (transaction.version 2). Set by [`Self::of_version`].
        bumps_epoch: bool;
    }
}

message! {
    EndTxnResponse, end_txn_response: key 26, versions 0 to 5, flexible from 3;
    EndTxnResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        producer_id: i64 = -1, since(5).ignorable();
        producer_epoch: i16 = -1, since(5).ignorable();
        @local
        /// What a broker in the same process could not write.
        failure: Option<crate::local::StorageFailure>;
    }
}

/// First version whose producer goes on with the next epoch. Kafka: `TransactionVersion#transactionVersionForEndTxn`.
const BUMPING: i16 = 5;

impl EndTxnRequest {
    /// The oldest and the newest version that means the same for the transaction.
    pub(crate) fn versions_of_transaction(&self) -> (i16, i16) {
        match self.bumps_epoch {
            true => (BUMPING, Self::MAX_VERSION),
            false => (Self::MIN_VERSION, BUMPING - 1),
        }
    }

    /// Notes what the version of a request that was read means for it.
    fn of_version(mut self, version: i16) -> Self {
        self.bumps_epoch = version >= BUMPING;
        self
    }
}
