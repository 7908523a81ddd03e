//! DeleteShareGroupOffsets, API key 92 (KIP-932).

message! {
    DeleteShareGroupOffsetsRequest, delete_share_group_offsets_request: key 92, versions 0 to 0, flexible from 0;
    DeleteShareGroupOffsetsRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<DeleteShareGroupOffsetsRequestTopic>, since(0);
    }
    DeleteShareGroupOffsetsRequestTopic {
        topic_name: Arc<str>, since(0);
    }
}

message! {
    DeleteShareGroupOffsetsResponse, delete_share_group_offsets_response: key 92, versions 0 to 0, flexible from 0;
    DeleteShareGroupOffsetsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        responses: Vec<DeleteShareGroupOffsetsResponseTopic>, since(0);
    }
    DeleteShareGroupOffsetsResponseTopic {
        topic_name: Arc<str>, since(0);
        topic_id: [u8; 16], since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
