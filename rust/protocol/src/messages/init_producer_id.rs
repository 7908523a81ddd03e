//! InitProducerId, API key 22.

message! {
    InitProducerIdRequest, init_producer_id_request: key 22, versions 0 to 6, flexible from 2;
    InitProducerIdRequest {
        transactional_id: Option<Arc<str>>, since(0).nullable(0);
        transaction_timeout_ms: i32, since(0);
        producer_id: i64 = -1, since(3);
        producer_epoch: i16 = -1, since(3);
        enable2_pc: bool, since(6);
        keep_prepared_txn: bool, since(6);
    }
}

message! {
    InitProducerIdResponse, init_producer_id_response: key 22, versions 0 to 6, flexible from 2;
    InitProducerIdResponse {
        throttle_time_ms: i32, since(0).ignorable();
        error_code: ErrorCode, since(0);
        producer_id: i64 = -1, since(0);
        producer_epoch: i16, since(0);
        ongoing_txn_producer_id: i64 = -1, since(6);
        ongoing_txn_producer_epoch: i16 = -1, since(6);
        @local
        /// What a broker in the same process could not write.
        failure: Option<crate::local::StorageFailure>;
    }
}
