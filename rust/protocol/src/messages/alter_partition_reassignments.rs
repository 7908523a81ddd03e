//! AlterPartitionReassignments, API key 45.

message! {
    AlterPartitionReassignmentsRequest, alter_partition_reassignments_request: key 45, versions 0 to 1, flexible from 0;
    AlterPartitionReassignmentsRequest {
        timeout_ms: i32 = 60000, since(0);
        allow_replication_factor_change: bool = true, since(1);
        topics: Vec<ReassignableTopic>, since(0);
    }
    ReassignableTopic {
        name: Arc<str>, since(0);
        partitions: Vec<ReassignablePartition>, since(0);
    }
    ReassignablePartition {
        partition_index: i32, since(0);
        replicas: Option<Vec<i32>> = None, since(0).nullable(0);
    }
}

message! {
    AlterPartitionReassignmentsResponse, alter_partition_reassignments_response: key 45, versions 0 to 1, flexible from 0;
    AlterPartitionReassignmentsResponse {
        throttle_time_ms: i32, since(0);
        allow_replication_factor_change: bool = true, since(1).ignorable();
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        responses: Vec<ReassignableTopicResponse>, since(0);
    }
    ReassignableTopicResponse {
        name: Arc<str>, since(0);
        partitions: Vec<ReassignablePartitionResponse>, since(0);
    }
    ReassignablePartitionResponse {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
    }
}
