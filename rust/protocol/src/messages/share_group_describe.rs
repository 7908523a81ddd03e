//! ShareGroupDescribe, API key 77 (KIP-932).

message! {
    ShareGroupDescribeRequest, share_group_describe_request: key 77, versions 1 to 1, flexible from 0;
    ShareGroupDescribeRequest {
        group_ids: Vec<Arc<str>>, since(0);
        include_authorized_operations: bool, since(0);
    }
}

message! {
    ShareGroupDescribeResponse, share_group_describe_response: key 77, versions 1 to 1, flexible from 0;
    ShareGroupDescribeResponse {
        throttle_time_ms: i32, since(0);
        groups: Vec<DescribedGroup>, since(0);
    }
    DescribedGroup {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        group_id: Arc<str>, since(0);
        group_state: Arc<str>, since(0);
        group_epoch: i32, since(0);
        assignment_epoch: i32, since(0);
        assignor_name: Arc<str>, since(0);
        members: Vec<Member>, since(0);
        authorized_operations: i32 = -2147483648, since(0);
    }
    Member {
        member_id: Arc<str>, since(0);
        rack_id: Option<Arc<str>> = None, since(0).nullable(0);
        member_epoch: i32, since(0);
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        subscribed_topic_names: Vec<Arc<str>>, since(0);
        assignment: Assignment, since(0);
    }
    Assignment {
        topic_partitions: Vec<TopicPartitions>, since(0);
    }
    TopicPartitions {
        topic_id: [u8; 16], since(0);
        topic_name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}
