//! OffsetForLeaderEpoch, API key 23.

message! {
    OffsetForLeaderEpochRequest, offset_for_leader_epoch_request: key 23, versions 2 to 4, flexible from 4;
    OffsetForLeaderEpochRequest {
        replica_id: i32 = -2, since(3).ignorable();
        topics: Vec<OffsetForLeaderTopic>, since(0);
    }
    OffsetForLeaderTopic {
        topic: Arc<str>, since(0);
        partitions: Vec<OffsetForLeaderPartition>, since(0);
    }
    OffsetForLeaderPartition {
        partition: i32, since(0);
        current_leader_epoch: i32 = -1, since(2).ignorable();
        leader_epoch: i32, since(0);
    }
}

message! {
    OffsetForLeaderEpochResponse, offset_for_leader_epoch_response: key 23, versions 2 to 4, flexible from 4;
    OffsetForLeaderEpochResponse {
        throttle_time_ms: i32, since(2).ignorable();
        topics: Vec<OffsetForLeaderTopicResult>, since(0);
    }
    OffsetForLeaderTopicResult {
        topic: Arc<str>, since(0);
        partitions: Vec<EpochEndOffset>, since(0);
    }
    EpochEndOffset {
        error_code: ErrorCode, since(0);
        partition: i32, since(0);
        leader_epoch: i32 = -1, since(1).ignorable();
        end_offset: i64 = -1, since(0);
    }
}
