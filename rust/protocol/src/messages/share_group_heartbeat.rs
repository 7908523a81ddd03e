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

/// The answer of a share group says what that of a consumer group says: members of both are kept by the same code.
impl From<ShareGroupHeartbeatResponse> for super::ConsumerGroupHeartbeatResponse {
    fn from(answer: ShareGroupHeartbeatResponse) -> Self {
        use super::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
        let topic = |topic: share_group_heartbeat_response::TopicPartitions| TopicPartitions {
            topic_id: topic.topic_id,
            partitions: topic.partitions,
        };
        Self {
            throttle_time_ms: answer.throttle_time_ms,
            error_code: answer.error_code,
            error_message: answer.error_message,
            member_id: answer.member_id,
            member_epoch: answer.member_epoch,
            heartbeat_interval_ms: answer.heartbeat_interval_ms,
            assignment: answer.assignment.map(|assignment| Assignment {
                topic_partitions: assignment.topic_partitions.into_iter().map(topic).collect(),
            }),
        }
    }
}
