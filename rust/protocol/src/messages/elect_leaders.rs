//! ElectLeaders, API key 43.

message! {
    ElectLeadersRequest, elect_leaders_request: key 43, versions 0 to 2, flexible from 2;
    ElectLeadersRequest {
        election_type: i8, since(1);
        topic_partitions: Option<Vec<TopicPartitions>>, since(0).nullable(0);
        timeout_ms: i32 = 60000, since(0);
    }
    TopicPartitions {
        topic: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    ElectLeadersResponse, elect_leaders_response: key 43, versions 0 to 2, flexible from 2;
    ElectLeadersResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(1);
        replica_election_results: Vec<ReplicaElectionResult>, since(0);
    }
    ReplicaElectionResult {
        topic: Arc<str>, since(0);
        partition_result: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition_id: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
    }
}
