//! TxnOffsetCommit, API key 28.

message! {
    TxnOffsetCommitRequest, txn_offset_commit_request: key 28, versions 0 to 5, flexible from 3;
    TxnOffsetCommitRequest {
        transactional_id: Arc<str>, since(0);
        group_id: Arc<str>, since(0);
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        generation_id: i32 = -1, since(3);
        member_id: Arc<str>, since(3);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3);
        topics: Vec<TxnOffsetCommitRequestTopic>, since(0);
    }
    TxnOffsetCommitRequestTopic {
        name: Arc<str>, since(0);
        partitions: Vec<TxnOffsetCommitRequestPartition>, since(0);
    }
    TxnOffsetCommitRequestPartition {
        partition_index: i32, since(0);
        committed_offset: i64, since(0);
        committed_leader_epoch: i32 = -1, since(2).ignorable();
        committed_metadata: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    TxnOffsetCommitResponse, txn_offset_commit_response: key 28, versions 0 to 5, flexible from 3;
    TxnOffsetCommitResponse {
        throttle_time_ms: i32, since(0);
        topics: Vec<TxnOffsetCommitResponseTopic>, since(0);
    }
    TxnOffsetCommitResponseTopic {
        name: Arc<str>, since(0);
        partitions: Vec<TxnOffsetCommitResponsePartition>, since(0);
    }
    TxnOffsetCommitResponsePartition {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}
