//! ReadShareGroupStateSummary, API key 87 (KIP-932).

message! {
    ReadShareGroupStateSummaryRequest, read_share_group_state_summary_request: key 87, versions 0 to 1, flexible from 0;
    ReadShareGroupStateSummaryRequest {
        group_id: Arc<str>, since(0);
        topics: Vec<ReadStateSummaryData>, since(0);
    }
    ReadStateSummaryData {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition: i32, since(0);
        leader_epoch: i32, since(0);
    }
}

message! {
    ReadShareGroupStateSummaryResponse, read_share_group_state_summary_response: key 87, versions 0 to 1, flexible from 0;
    ReadShareGroupStateSummaryResponse {
        results: Vec<ReadStateSummaryResult>, since(0);
    }
    ReadStateSummaryResult {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionResult>, since(0);
    }
    PartitionResult {
        partition: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        state_epoch: i32, since(0);
        leader_epoch: i32, since(0);
        start_offset: i64, since(0);
        delivery_complete_count: i32 = -1, since(1).ignorable();
    }
}
