//! InitializeShareGroupState, API key 83 (KIP-932).

message! {
    InitializeShareGroupStateRequest, initialize_share_group_state_request: key 83, versions 0 to 0, flexible from 0;
    InitializeShareGroupStateRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<InitializeStateData>, since(0);
    }
    InitializeStateData {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition: i32, since(0);
        state_epoch: i32, since(0);
        start_offset: i64, since(0);
    }
}

message! {
    InitializeShareGroupStateResponse, initialize_share_group_state_response: key 83, versions 0 to 0, flexible from 0;
    InitializeShareGroupStateResponse {
        results: Vec<InitializeStateResult>, since(0);
    }
    InitializeStateResult {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
