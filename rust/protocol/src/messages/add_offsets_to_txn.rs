//! AddOffsetsToTxn, API key 25.

message! {
    AddOffsetsToTxnRequest, add_offsets_to_txn_request: key 25, versions 0 to 4, flexible from 3;
    AddOffsetsToTxnRequest {
        transactional_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        group_id: Arc<str>, since(0);
    }
}

message! {
    AddOffsetsToTxnResponse, add_offsets_to_txn_response: key 25, versions 0 to 4, flexible from 3;
    AddOffsetsToTxnResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        @local
        /// What a broker in the same process could not write.
        failure: Option<crate::local::StorageFailure>;
    }
}
