//! OffsetDelete, API key 47.

message! {
    OffsetDeleteRequest, offset_delete_request: key 47, versions 0 to 0, flexible from i16::MAX;
    OffsetDeleteRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<OffsetDeleteRequestTopic>, since(0);
    }
    OffsetDeleteRequestTopic {
        name: Arc<str>, since(0);
        partitions: Vec<OffsetDeleteRequestPartition>, since(0);
    }
    OffsetDeleteRequestPartition {
        partition_index: i32, since(0);
    }
}

message! {
    OffsetDeleteResponse, offset_delete_response: key 47, versions 0 to 0, flexible from i16::MAX;
    OffsetDeleteResponse {
        error_code: ErrorCode, since(0);
        throttle_time_ms: i32, since(0).ignorable();
        topics: Vec<OffsetDeleteResponseTopic>, since(0);
    }
    OffsetDeleteResponseTopic {
        name: Arc<str>, since(0);
        partitions: Vec<OffsetDeleteResponsePartition>, since(0);
    }
    OffsetDeleteResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}
