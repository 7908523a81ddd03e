//! WriteShareGroupState, API key 85 (KIP-932).

message! {
    WriteShareGroupStateRequest, write_share_group_state_request: key 85, versions 0 to 1, flexible from 0;
    WriteShareGroupStateRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<WriteStateData>, since(0);
    }
    WriteStateData {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition: i32, since(0);
        state_epoch: i32, since(0);
        leader_epoch: i32, since(0);
        start_offset: i64, since(0);
        delivery_complete_count: i32 = -1, since(1).ignorable();
        state_batches: Vec<StateBatch>, since(0);
    }
    StateBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        delivery_state: i8, since(0);
        delivery_count: i16, since(0);
    }
}

message! {
    WriteShareGroupStateResponse, write_share_group_state_response: key 85, versions 0 to 1, flexible from 0;
    WriteShareGroupStateResponse {
        results: Vec<WriteStateResult>, since(0);
    }
    WriteStateResult {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
