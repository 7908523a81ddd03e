//! OffsetFetch, API key 9.

message! {
    OffsetFetchRequest, offset_fetch_request: key 9, versions 1 to 10, flexible from 6;
    OffsetFetchRequest {
        group_id: Arc<str>, between(0, 7);
        topics: Option<Vec<OffsetFetchRequestTopic>>, between(0, 7).nullable(2);
        groups: Vec<OffsetFetchRequestGroup>, since(8);
        require_stable: bool, since(7);
    }
    OffsetFetchRequestTopic {
        name: Arc<str>, between(0, 7);
        partition_indexes: Vec<i32>, between(0, 7);
    }
    OffsetFetchRequestGroup {
        group_id: Arc<str>, since(8);
        member_id: Option<Arc<str>> = None, since(9).nullable(9).ignorable();
        member_epoch: i32 = -1, since(9).ignorable();
        topics: Option<Vec<OffsetFetchRequestTopics>>, since(8).nullable(8);
    }
    OffsetFetchRequestTopics {
        name: Arc<str>, between(8, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partition_indexes: Vec<i32>, since(8);
    }
}

message! {
    OffsetFetchResponse, offset_fetch_response: key 9, versions 1 to 10, flexible from 6;
    OffsetFetchResponse {
        throttle_time_ms: i32, since(3).ignorable();
        topics: Vec<OffsetFetchResponseTopic>, between(0, 7);
        error_code: ErrorCode, between(2, 7).ignorable();
        groups: Vec<OffsetFetchResponseGroup>, since(8);
    }
    OffsetFetchResponseTopic {
        name: Arc<str>, between(0, 7);
        partitions: Vec<OffsetFetchResponsePartition>, between(0, 7);
    }
    OffsetFetchResponsePartition {
        partition_index: i32, between(0, 7);
        committed_offset: i64, between(0, 7);
        committed_leader_epoch: i32 = -1, between(5, 7).ignorable();
        metadata: Option<Arc<str>>, between(0, 7).nullable(0);
        error_code: ErrorCode, between(0, 7);
    }
    OffsetFetchResponseGroup {
        group_id: Arc<str>, since(8);
        topics: Vec<OffsetFetchResponseTopics>, since(8);
        error_code: ErrorCode, since(8);
    }
    OffsetFetchResponseTopics {
        name: Arc<str>, between(8, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetFetchResponsePartitions>, since(8);
    }
    OffsetFetchResponsePartitions {
        partition_index: i32, since(8);
        committed_offset: i64, since(8);
        committed_leader_epoch: i32 = -1, since(8).ignorable();
        metadata: Option<Arc<str>>, since(8).nullable(8);
        error_code: ErrorCode, since(8);
    }
}
