//! CreateTopics, API key 19.

message! {
    CreateTopicsRequest, create_topics_request: key 19, versions 2 to 7, flexible from 5;
    CreateTopicsRequest {
        topics: Vec<CreatableTopic>, since(0);
        timeout_ms: i32 = 60000, since(0);
        validate_only: bool, since(1);
    }
    CreatableTopic {
        name: Arc<str>, since(0);
        num_partitions: i32, since(0);
        replication_factor: i16, since(0);
        assignments: Vec<CreatableReplicaAssignment>, since(0);
        configs: Vec<CreatableTopicConfig>, since(0);
    }
    CreatableReplicaAssignment {
        partition_index: i32, since(0);
        broker_ids: Vec<i32>, since(0);
    }
    CreatableTopicConfig {
        name: Arc<str>, since(0);
        value: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    CreateTopicsResponse, create_topics_response: key 19, versions 2 to 7, flexible from 5;
    CreateTopicsResponse {
        throttle_time_ms: i32, since(2).ignorable();
        topics: Vec<CreatableTopicResult>, since(0);
    }
    CreatableTopicResult {
        name: Arc<str>, since(0);
        topic_id: [u8; 16], since(7).ignorable();
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(1).nullable(0).ignorable();
        topic_config_error_code: ErrorCode, since(5).tag(0).ignorable();
        num_partitions: i32 = -1, since(5).ignorable();
        replication_factor: i16 = -1, since(5).ignorable();
        configs: Option<Vec<CreatableTopicConfigs>>, since(5).nullable(5).ignorable();
    }
    CreatableTopicConfigs {
        name: Arc<str>, since(5);
        value: Option<Arc<str>>, since(5).nullable(5);
        read_only: bool, since(5);
        config_source: i8 = -1, since(5).ignorable();
        is_sensitive: bool, since(5);
    }
}
