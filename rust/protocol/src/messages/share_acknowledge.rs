//! ShareAcknowledge, API key 79 (KIP-932).

message! {
    ShareAcknowledgeRequest, share_acknowledge_request: key 79, versions 1 to 2, flexible from 0;
    ShareAcknowledgeRequest {
        group_id: Option<Arc<str>> = None, since(0).nullable(0);
        member_id: Option<Arc<str>>, since(0).nullable(0);
        share_session_epoch: i32, since(0);
        is_renew_ack: bool, since(2);
        topics: Vec<AcknowledgeTopic>, since(0);
        @local
        /// Who reads. `None`: a client in the broker's process, which may read every topic.
        reader: Option<crate::local::ClientName>;
    }
    AcknowledgeTopic {
        topic_id: [u8; 16], since(0);
        partitions: Vec<AcknowledgePartition>, since(0);
    }
    AcknowledgePartition {
        partition_index: i32, since(0);
        acknowledgement_batches: Vec<AcknowledgementBatch>, since(0);
    }
    AcknowledgementBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        acknowledge_types: Vec<i8>, since(0);
    }
}

message! {
    ShareAcknowledgeResponse, share_acknowledge_response: key 79, versions 1 to 2, flexible from 0;
    ShareAcknowledgeResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        acquisition_lock_timeout_ms: i32, since(2).ignorable();
        responses: Vec<ShareAcknowledgeTopicResponse>, since(0);
        node_endpoints: Vec<NodeEndpoint>, since(0);
    }
    ShareAcknowledgeTopicResponse {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        current_leader: LeaderIdAndEpoch, since(0);
    }
    LeaderIdAndEpoch {
        leader_id: i32, since(0);
        leader_epoch: i32, since(0);
    }
    NodeEndpoint {
        node_id: i32, since(0);
        host: Arc<str>, since(0);
        port: i32, since(0);
        rack: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
