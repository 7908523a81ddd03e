//! AlterShareGroupOffsets, API key 91 (KIP-932).

message! {
    AlterShareGroupOffsetsRequest, alter_share_group_offsets_request: key 91, versions 0 to 0, flexible from 0;
    AlterShareGroupOffsetsRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<AlterShareGroupOffsetsRequestTopic>, since(0);
    }
    AlterShareGroupOffsetsRequestTopic {
        topic_name: Arc<str>, since(0);
        partitions: Vec<AlterShareGroupOffsetsRequestPartition>, since(0);
    }
    AlterShareGroupOffsetsRequestPartition {
        partition_index: i32, since(0);
        start_offset: i64, since(0);
    }
}

message! {
    AlterShareGroupOffsetsResponse, alter_share_group_offsets_response: key 91, versions 0 to 0, flexible from 0;
    AlterShareGroupOffsetsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        responses: Vec<AlterShareGroupOffsetsResponseTopic>, since(0);
    }
    AlterShareGroupOffsetsResponseTopic {
        topic_name: Arc<str>, since(0);
        topic_id: [u8; 16], since(0);
        partitions: Vec<AlterShareGroupOffsetsResponsePartition>, since(0);
    }
    AlterShareGroupOffsetsResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
