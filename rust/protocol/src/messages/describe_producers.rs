//! DescribeProducers, API key 61.

message! {
    DescribeProducersRequest, describe_producers_request: key 61, versions 0 to 0, flexible from 0;
    DescribeProducersRequest {
        topics: Vec<TopicRequest>, since(0);
    }
    TopicRequest {
        name: Arc<str>, since(0);
        partition_indexes: Vec<i32>, since(0);
    }
}

message! {
    DescribeProducersResponse, describe_producers_response: key 61, versions 0 to 0, flexible from 0;
    DescribeProducersResponse {
        throttle_time_ms: i32, since(0);
        topics: Vec<TopicResponse>, since(0);
    }
    TopicResponse {
        name: Arc<str>, since(0);
        partitions: Vec<PartitionResponse>, since(0);
    }
    PartitionResponse {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        active_producers: Vec<ProducerState>, since(0);
    }
    ProducerState {
        producer_id: i64, since(0);
        producer_epoch: i32, since(0);
        last_sequence: i32 = -1, since(0);
        last_timestamp: i64 = -1, since(0);
        coordinator_epoch: i32, since(0);
        current_txn_start_offset: i64 = -1, since(0);
    }
}
