//! DescribeTopicPartitions, API key 75.

message! {
    DescribeTopicPartitionsRequest, describe_topic_partitions_request: key 75, versions 0 to 0, flexible from 0;
    DescribeTopicPartitionsRequest {
        topics: Vec<TopicRequest>, since(0);
        response_partition_limit: i32 = 2000, since(0);
        cursor: Option<Cursor> = None, since(0).nullable(0);
    }
    TopicRequest {
        name: Arc<str>, since(0);
    }
    Cursor {
        topic_name: Arc<str>, since(0);
        partition_index: i32, since(0);
    }
}

message! {
    DescribeTopicPartitionsResponse, describe_topic_partitions_response: key 75, versions 0 to 0, flexible from 0;
    DescribeTopicPartitionsResponse {
        throttle_time_ms: i32, since(0).ignorable();
        topics: Vec<DescribeTopicPartitionsResponseTopic>, since(0);
        next_cursor: Option<Cursor> = None, since(0).nullable(0);
    }
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode, since(0);
        name: Option<Arc<str>>, since(0).nullable(0);
        topic_id: [u8; 16], since(0).ignorable();
        is_internal: bool, since(0).ignorable();
        partitions: Vec<DescribeTopicPartitionsResponsePartition>, since(0);
        topic_authorized_operations: i32 = -2147483648, since(0);
    }
    DescribeTopicPartitionsResponsePartition {
        error_code: ErrorCode, since(0);
        partition_index: i32, since(0);
        leader_id: i32, since(0);
        leader_epoch: i32 = -1, since(0).ignorable();
        replica_nodes: Vec<i32>, since(0);
        isr_nodes: Vec<i32>, since(0);
        eligible_leader_replicas: Option<Vec<i32>> = None, since(0).nullable(0);
        last_known_elr: Option<Vec<i32>> = None, since(0).nullable(0);
        offline_replicas: Vec<i32>, since(0).ignorable();
    }
    Cursor {
        topic_name: Arc<str>, since(0);
        partition_index: i32, since(0);
    }
}
