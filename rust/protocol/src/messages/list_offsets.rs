//! ListOffsets, API key 2.

message! {
    ListOffsetsRequest, list_offsets_request: key 2, versions 1 to 11, flexible from 6;
    ListOffsetsRequest {
        replica_id: i32, since(0);
        isolation_level: IsolationLevel, since(2);
        topics: Vec<ListOffsetsTopic>, since(0);
        timeout_ms: i32, since(10).ignorable();
    }
    ListOffsetsTopic {
        name: Arc<str>, since(0);
        partitions: Vec<ListOffsetsPartition>, since(0);
    }
    ListOffsetsPartition {
        partition_index: i32, since(0);
        current_leader_epoch: i32 = -1, since(4).ignorable();
        timestamp: i64, since(0);
    }
}

message! {
    ListOffsetsResponse, list_offsets_response: key 2, versions 1 to 11, flexible from 6;
    ListOffsetsResponse {
        throttle_time_ms: i32, since(2).ignorable();
        topics: Vec<ListOffsetsTopicResponse>, since(0);
    }
    ListOffsetsTopicResponse {
        name: Arc<str>, since(0);
        partitions: Vec<ListOffsetsPartitionResponse>, since(0);
    }
    ListOffsetsPartitionResponse {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        timestamp: i64 = -1, since(1);
        offset: i64 = -1, since(1);
        leader_epoch: i32 = -1, since(4);
    }
}
