//! AddPartitionsToTxn, API key 24.

message! {
    AddPartitionsToTxnRequest, add_partitions_to_txn_request: key 24, versions 0 to 5, flexible from 3;
    AddPartitionsToTxnRequest {
        transactions: Vec<AddPartitionsToTxnTransaction>, since(4);
        v3_and_below_transactional_id: Arc<str>, between(0, 3);
        v3_and_below_producer_id: i64, between(0, 3);
        v3_and_below_producer_epoch: i16, between(0, 3);
        v3_and_below_topics: Vec<AddPartitionsToTxnTopic>, between(0, 3);
    }
    AddPartitionsToTxnTransaction {
        transactional_id: Arc<str>, since(4);
        producer_id: i64, since(4);
        producer_epoch: i16, since(4);
        verify_only: bool, since(4);
        topics: Vec<AddPartitionsToTxnTopic>, since(4);
    }
    AddPartitionsToTxnTopic {
        name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    AddPartitionsToTxnResponse, add_partitions_to_txn_response: key 24, versions 0 to 5, flexible from 3;
    AddPartitionsToTxnResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(4).ignorable();
        results_by_transaction: Vec<AddPartitionsToTxnResult>, since(4);
        results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult>, between(0, 3);
    }
    AddPartitionsToTxnResult {
        transactional_id: Arc<str>, since(4);
        topic_results: Vec<AddPartitionsToTxnTopicResult>, since(4);
    }
    AddPartitionsToTxnTopicResult {
        name: Arc<str>, since(0);
        results_by_partition: Vec<AddPartitionsToTxnPartitionResult>, since(0);
    }
    AddPartitionsToTxnPartitionResult {
        partition_index: i32, since(0);
        partition_error_code: ErrorCode, since(0);
    }
}
