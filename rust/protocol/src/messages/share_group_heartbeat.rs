//! ShareGroupHeartbeat, API key 76 (KIP-932).

message! {
    ShareGroupHeartbeatRequest, share_group_heartbeat_request: key 76, versions 1 to 1, flexible from 0;
    ShareGroupHeartbeatRequest {
        group_id: Arc<str>, since(0);
        member_id: Arc<str>, since(0);
        member_epoch: i32, since(0);
        rack_id: Option<Arc<str>> = None, since(0).nullable(0);
        subscribed_topic_names: Option<Vec<Arc<str>>> = None, since(0).nullable(0);
        @local
        /// The client that sends it.
        sender: crate::local::JoinSender;
    }
}

message! {
    ShareGroupHeartbeatResponse, share_group_heartbeat_response: key 76, versions 1 to 1, flexible from 0;
    ShareGroupHeartbeatResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        member_id: Option<Arc<str>> = None, since(0).nullable(0);
        member_epoch: i32, since(0);
        heartbeat_interval_ms: i32, since(0);
        assignment: Option<Assignment> = None, since(0).nullable(0);
    }
    Assignment {
        topic_partitions: Vec<TopicPartitions>, since(0);
    }
    TopicPartitions {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}
