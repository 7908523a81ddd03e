//! EndTxn, API key 26.

message! {
    EndTxnRequest, end_txn_request: key 26, versions 0 to 5, flexible from 3;
    EndTxnRequest {
        transactional_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        committed: bool, since(0);
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
