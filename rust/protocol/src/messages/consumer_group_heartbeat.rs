//! ConsumerGroupHeartbeat, API key 68 (KIP-848).

message! {
    ConsumerGroupHeartbeatRequest, consumer_group_heartbeat_request: key 68, versions 0 to 1, flexible from 0;
    ConsumerGroupHeartbeatRequest {
        group_id: Arc<str>, since(0);
        member_id: Arc<str>, since(0);
        member_epoch: i32, since(0);
        instance_id: Option<Arc<str>> = None, since(0).nullable(0);
        rack_id: Option<Arc<str>> = None, since(0).nullable(0);
        rebalance_timeout_ms: i32 = -1, since(0);
        subscribed_topic_names: Option<Vec<Arc<str>>> = None, since(0).nullable(0);
        subscribed_topic_regex: Option<Arc<str>> = None, since(1).nullable(1);
        server_assignor: Option<Arc<str>> = None, since(0).nullable(0);
        topic_partitions: Option<Vec<TopicPartitions>> = None, since(0).nullable(0);
        @local
        /// The client that sends it.
        sender: crate::local::JoinSender;
    }
    TopicPartitions {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    ConsumerGroupHeartbeatResponse, consumer_group_heartbeat_response: key 68, versions 0 to 1, flexible from 0;
    ConsumerGroupHeartbeatResponse {
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

/// The epoch with which a member joins. Kafka: `ConsumerGroupHeartbeatRequest#JOIN_GROUP_MEMBER_EPOCH`.
pub const JOIN_GROUP_MEMBER_EPOCH: i32 = 0;
/// The epoch with which a member leaves for good. Kafka: `ConsumerGroupHeartbeatRequest#LEAVE_GROUP_MEMBER_EPOCH`.
pub const LEAVE_GROUP_MEMBER_EPOCH: i32 = -1;
/// The epoch with which a static member leaves for some time. Kafka: `ConsumerGroupHeartbeatRequest#LEAVE_GROUP_STATIC_MEMBER_EPOCH`.
pub const LEAVE_GROUP_STATIC_MEMBER_EPOCH: i32 = -2;
