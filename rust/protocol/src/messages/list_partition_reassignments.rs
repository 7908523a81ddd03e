//! ListPartitionReassignments, API key 46.

message! {
    ListPartitionReassignmentsRequest, list_partition_reassignments_request: key 46, versions 0 to 0, flexible from 0;
    ListPartitionReassignmentsRequest {
        timeout_ms: i32 = 60000, since(0);
        topics: Option<Vec<ListPartitionReassignmentsTopics>> = None, since(0).nullable(0);
    }
    ListPartitionReassignmentsTopics {
        name: Arc<str>, since(0);
        partition_indexes: Vec<i32>, since(0);
    }
}

message! {
    ListPartitionReassignmentsResponse, list_partition_reassignments_response: key 46, versions 0 to 0, flexible from 0;
    ListPartitionReassignmentsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        topics: Vec<OngoingTopicReassignment>, since(0);
    }
    OngoingTopicReassignment {
        name: Arc<str>, since(0);
        partitions: Vec<OngoingPartitionReassignment>, since(0);
    }
    OngoingPartitionReassignment {
        partition_index: i32, since(0);
        replicas: Vec<i32>, since(0);
        adding_replicas: Vec<i32>, since(0);
        removing_replicas: Vec<i32>, since(0);
    }
}
