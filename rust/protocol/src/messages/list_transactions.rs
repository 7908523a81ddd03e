//! ListTransactions, API key 66.

message! {
    ListTransactionsRequest, list_transactions_request: key 66, versions 0 to 2, flexible from 0;
    ListTransactionsRequest {
        state_filters: Vec<Arc<str>>, since(0);
        producer_id_filters: Vec<i64>, since(0);
        duration_filter: i64 = -1, since(1);
        transactional_id_pattern: Option<Arc<str>> = None, since(2).nullable(2);
    }
}

message! {
    ListTransactionsResponse, list_transactions_response: key 66, versions 0 to 2, flexible from 0;
    ListTransactionsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        unknown_state_filters: Vec<Arc<str>>, since(0);
        transaction_states: Vec<TransactionState>, since(0);
    }
    TransactionState {
        transactional_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        transaction_state: Arc<str>, since(0);
    }
}
