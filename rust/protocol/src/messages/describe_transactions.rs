//! DescribeTransactions, API key 65.

message! {
    DescribeTransactionsRequest, describe_transactions_request: key 65, versions 0 to 0, flexible from 0;
    DescribeTransactionsRequest {
        transactional_ids: Vec<Arc<str>>, since(0);
    }
}

message! {
    DescribeTransactionsResponse, describe_transactions_response: key 65, versions 0 to 0, flexible from 0;
    DescribeTransactionsResponse {
        throttle_time_ms: i32, since(0);
        transaction_states: Vec<TransactionState>, since(0);
    }
    TransactionState {
        error_code: ErrorCode, since(0);
        transactional_id: Arc<str>, since(0);
        transaction_state: Arc<str>, since(0);
        transaction_timeout_ms: i32, since(0);
        transaction_start_time_ms: i64, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        topics: Vec<TopicData>, since(0);
    }
    TopicData {
        topic: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}
