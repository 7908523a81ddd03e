//! DeleteShareGroupState, API key 86 (KIP-932).

message! {
    DeleteShareGroupStateRequest, delete_share_group_state_request: key 86, versions 0 to 0, flexible from 0;
    DeleteShareGroupStateRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<DeleteStateData>, since(0);
    }
    DeleteStateData {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition: i32, since(0);
    }
}

message! {
    DeleteShareGroupStateResponse, delete_share_group_state_response: key 86, versions 0 to 0, flexible from 0;
    DeleteShareGroupStateResponse {
        results: Vec<DeleteStateResult>, since(0);
    }
    DeleteStateResult {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
