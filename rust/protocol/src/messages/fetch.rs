//! Fetch, API key 1.

message! {
    FetchRequest, fetch_request: key 1, versions 4 to 18, flexible from 12;
    FetchRequest {
        cluster_id: Option<Arc<str>> = None, since(12).nullable(12).tag(0).ignorable();
        replica_id: i32 = -1, between(0, 14);
        replica_state: ReplicaState, since(15).tag(1);
        max_wait_ms: i32, since(0);
        min_bytes: i32, since(0);
        max_bytes: i32 = 2147483647, since(3).ignorable();
        isolation_level: IsolationLevel, since(4).ignorable();
        session_id: i32, since(7).ignorable();
        session_epoch: i32 = -1, since(7).ignorable();
        topics: Vec<FetchTopic>, since(0);
        forgotten_topics_data: Vec<ForgottenTopic>, since(7);
        rack_id: Arc<str>, since(11).ignorable();
    }
    ReplicaState {
        replica_id: i32 = -1, since(15);
        replica_epoch: i64 = -1, since(15);
    }
    FetchTopic {
        topic: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<FetchPartition>, since(0);
    }
    FetchPartition {
        partition: i32, since(0);
        current_leader_epoch: i32 = -1, since(9).ignorable();
        fetch_offset: i64, since(0);
        last_fetched_epoch: i32 = -1, since(12);
        log_start_offset: i64 = -1, since(5).ignorable();
        partition_max_bytes: i32, since(0);
        replica_directory_id: [u8; 16], since(17).tag(0).ignorable();
        high_watermark: i64 = 9223372036854775807, since(18).tag(1).ignorable();
    }
    ForgottenTopic {
        topic: Arc<str>, between(7, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<i32>, since(7);
    }
}

message! {
    FetchResponse, fetch_response: key 1, versions 4 to 18, flexible from 12;
    FetchResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(7).ignorable();
        session_id: i32, since(7);
        responses: Vec<FetchableTopicResponse>, since(0);
        node_endpoints: Vec<NodeEndpoint>, since(16).tag(0);
    }
    FetchableTopicResponse {
        topic: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        high_watermark: i64, since(0);
        last_stable_offset: i64 = -1, since(4).ignorable();
        log_start_offset: i64 = -1, since(5).ignorable();
        diverging_epoch: EpochEndOffset, since(12).tag(0);
        current_leader: LeaderIdAndEpoch, since(12).tag(1);
        snapshot_id: SnapshotId, since(12).tag(2);
        aborted_transactions: Option<Vec<AbortedTransaction>>, since(4).nullable(4).ignorable();
        preferred_read_replica: i32 = -1, since(11);
        records: Option<Bytes>, since(0).nullable(0);
    }
    EpochEndOffset {
        epoch: i32 = -1, since(12);
        end_offset: i64 = -1, since(12);
    }
    LeaderIdAndEpoch {
        leader_id: i32 = -1, since(12);
        leader_epoch: i32 = -1, since(12);
    }
    SnapshotId {
        end_offset: i64 = -1, since(0);
        epoch: i32 = -1, since(0);
    }
    AbortedTransaction {
        producer_id: i64, since(4);
        first_offset: i64, since(4);
    }
    NodeEndpoint {
        node_id: i32, since(16);
        host: Arc<str>, since(16);
        port: i32, since(16);
        rack: Option<Arc<str>> = None, since(16).nullable(16);
    }
}
