//! OffsetCommit, API key 8.

message! {
    OffsetCommitRequest, offset_commit_request: key 8, versions 2 to 10, flexible from 8;
    OffsetCommitRequest {
        group_id: Arc<str>, since(0);
        generation_id_or_member_epoch: i32 = -1, since(1).ignorable();
        member_id: Arc<str>, since(1).ignorable();
        group_instance_id: Option<Arc<str>> = None, since(7).nullable(7);
        retention_time_ms: i64 = -1, between(2, 4).ignorable();
        topics: Vec<OffsetCommitRequestTopic>, since(0);
    }
    OffsetCommitRequestTopic {
        name: Arc<str>, between(0, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetCommitRequestPartition>, since(0);
    }
    OffsetCommitRequestPartition {
        partition_index: i32, since(0);
        committed_offset: i64, since(0);
        committed_leader_epoch: i32 = -1, since(6).ignorable();
        committed_metadata: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    OffsetCommitResponse, offset_commit_response: key 8, versions 2 to 10, flexible from 8;
    OffsetCommitResponse {
        throttle_time_ms: i32, since(3).ignorable();
        topics: Vec<OffsetCommitResponseTopic>, since(0);
    }
    OffsetCommitResponseTopic {
        name: Arc<str>, between(0, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetCommitResponsePartition>, since(0);
    }
    OffsetCommitResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}
