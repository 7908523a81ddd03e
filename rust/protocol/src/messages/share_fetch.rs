//! ShareFetch, API key 78 (KIP-932).

message! {
    ShareFetchRequest, share_fetch_request: key 78, versions 1 to 2, flexible from 0;
    ShareFetchRequest {
        group_id: Option<Arc<str>> = None, since(0).nullable(0);
        member_id: Option<Arc<str>>, since(0).nullable(0);
        share_session_epoch: i32, since(0);
        max_wait_ms: i32, since(0);
        min_bytes: i32, since(0);
        max_bytes: i32 = 2147483647, since(0);
        max_records: i32, since(1);
        batch_size: i32, since(1);
        share_acquire_mode: i8, since(2).ignorable();
        is_renew_ack: bool, since(2);
        topics: Vec<FetchTopic>, since(0);
        forgotten_topics_data: Vec<ForgottenTopic>, since(0);
        @local
        /// Who reads. `None`: a client in the broker's process, which may read every topic.
        reader: Option<crate::local::ClientName>;
    }
    FetchTopic {
        topic_id: [u8; 16], since(0);
        partitions: Vec<FetchPartition>, since(0);
    }
    FetchPartition {
        partition_index: i32, since(0);
        partition_max_bytes: i32, between(0, 0);
        acknowledgement_batches: Vec<AcknowledgementBatch>, since(0);
    }
    AcknowledgementBatch {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        acknowledge_types: Vec<i8>, since(0);
    }
    ForgottenTopic {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    ShareFetchResponse, share_fetch_response: key 78, versions 1 to 2, flexible from 0;
    ShareFetchResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        acquisition_lock_timeout_ms: i32, since(1);
        responses: Vec<ShareFetchableTopicResponse>, since(0);
        node_endpoints: Vec<NodeEndpoint>, since(0);
    }
    ShareFetchableTopicResponse {
        topic_id: [u8; 16], since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        acknowledge_error_code: ErrorCode, since(0);
        acknowledge_error_message: Option<Arc<str>> = None, since(0).nullable(0);
        current_leader: LeaderIdAndEpoch, since(0);
        records: Option<Bytes>, since(0).nullable_until(0);
        acquired_records: Vec<AcquiredRecords>, since(0);
    }
    LeaderIdAndEpoch {
        leader_id: i32, since(0);
        leader_epoch: i32, since(0);
    }
    AcquiredRecords {
        first_offset: i64, since(0);
        last_offset: i64, since(0);
        delivery_count: i16, since(0);
    }
    NodeEndpoint {
        node_id: i32, since(0);
        host: Arc<str>, since(0);
        port: i32, since(0);
        rack: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
