//! ReadShareGroupState, API key 84 (KIP-932).

message! {
    ReadShareGroupStateRequest, read_share_group_state_request: key 84, versions 0 to 0, flexible from 0;
    ReadShareGroupStateRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<ReadStateData>, since(0);
    }
    ReadStateData {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition: i32, since(0);
        leader_epoch: i32, since(0);
    }
}

message! {
    ReadShareGroupStateResponse, read_share_group_state_response: key 84, versions 0 to 0, flexible from 0;
    ReadShareGroupStateResponse {
        results: Vec<ReadStateResult>, since(0);
    }
    ReadStateResult {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        state_epoch: i32, since(0);
        start_offset: i64, since(0);
        state_batches: Vec<StateBatch>, since(0);
    }
    StateBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        delivery_state: i8, since(0);
        delivery_count: i16, since(0);
    }
}
