//! Produce, API key 0.

message! {
    ProduceRequest, produce_request: key 0, versions 3 to 13, flexible from 9;
    ProduceRequest {
        transactional_id: Option<Arc<str>> = None, since(3).nullable(3);
        acks: i16, since(0);
        timeout_ms: i32, since(0);
        topic_data: Vec<TopicProduceData>, since(0);
    }
    TopicProduceData {
        name: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partition_data: Vec<PartitionProduceData>, since(0);
    }
    PartitionProduceData {
        index: i32, since(0);
        records: Option<Bytes>, since(0).nullable(0);
    }
}

message! {
    ProduceResponse, produce_response: key 0, versions 3 to 13, flexible from 9;
    ProduceResponse {
        responses: Vec<TopicProduceResponse>, since(0);
        throttle_time_ms: i32, since(1).ignorable();
        node_endpoints: Vec<NodeEndpoint>, since(10).tag(0);
    }
    TopicProduceResponse {
        name: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partition_responses: Vec<PartitionProduceResponse>, since(0);
    }
    PartitionProduceResponse {
        index: i32, since(0);
        error_code: ErrorCode, since(0);
        base_offset: i64, since(0);
        log_append_time_ms: i64 = -1, since(2).ignorable();
        log_start_offset: i64 = -1, since(5).ignorable();
        record_errors: Vec<BatchIndexAndErrorMessage>, since(8).ignorable();
        error_message: Option<Arc<str>> = None, since(8).nullable(8).ignorable();
        current_leader: LeaderIdAndEpoch, since(10).tag(0);
    }
    BatchIndexAndErrorMessage {
        batch_index: i32, since(8);
        batch_index_error_message: Option<Arc<str>> = None, since(8).nullable(8);
    }
    LeaderIdAndEpoch {
        leader_id: i32 = -1, since(10);
        leader_epoch: i32 = -1, since(10);
    }
    NodeEndpoint {
        node_id: i32, since(10);
        host: Arc<str>, since(10);
        port: i32, since(10);
        rack: Option<Arc<str>> = None, since(10).nullable(10);
    }
}
