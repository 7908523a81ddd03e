//! CreatePartitions, API key 37.

message! {
    CreatePartitionsRequest, create_partitions_request: key 37, versions 0 to 3, flexible from 2;
    CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic>, since(0);
        timeout_ms: i32, since(0);
        validate_only: bool, since(0);
    }
    CreatePartitionsTopic {
        name: Arc<str>, since(0);
        count: i32, since(0);
        assignments: Option<Vec<CreatePartitionsAssignment>>, since(0).nullable(0);
    }
    CreatePartitionsAssignment {
        broker_ids: Vec<i32>, since(0);
    }
}

message! {
    CreatePartitionsResponse, create_partitions_response: key 37, versions 0 to 3, flexible from 2;
    CreatePartitionsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<CreatePartitionsTopicResult>, since(0);
    }
    CreatePartitionsTopicResult {
        name: Arc<str>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
