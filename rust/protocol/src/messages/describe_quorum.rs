//! DescribeQuorum, API key 55.

message! {
    DescribeQuorumRequest, describe_quorum_request: key 55, versions 0 to 2, flexible from 0;
    DescribeQuorumRequest {
        topics: Vec<TopicData>, since(0);
    }
    TopicData {
        topic_name: Arc<str>, since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
    }
}

message! {
    DescribeQuorumResponse, describe_quorum_response: key 55, versions 0 to 2, flexible from 0;
    DescribeQuorumResponse {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(2).nullable(2).ignorable();
        topics: Vec<TopicData>, since(0);
        nodes: Vec<Node>, since(2);
    }
    TopicData {
        topic_name: Arc<str>, since(0);
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(2).nullable(2).ignorable();
        leader_id: i32, since(0);
        leader_epoch: i32, since(0);
        high_watermark: i64, since(0);
        current_voters: Vec<ReplicaState>, since(0);
        observers: Vec<ReplicaState>, since(0);
    }
    Node {
        node_id: i32, since(2);
        listeners: Vec<Listener>, since(2);
    }
    Listener {
        name: Arc<str>, since(2);
        host: Arc<str>, since(2);
        port: u16, since(2);
    }
    ReplicaState {
        replica_id: i32, since(0);
        replica_directory_id: [u8; 16], since(2);
        log_end_offset: i64, since(0);
        last_fetch_timestamp: i64 = -1, since(1).ignorable();
        last_caught_up_timestamp: i64 = -1, since(1).ignorable();
    }
}
