//! Metadata, API key 3.

message! {
    MetadataRequest, metadata_request: key 3, versions 0 to 13, flexible from 9;
    MetadataRequest {
        topics: Option<Vec<MetadataRequestTopic>>, since(0).nullable(1);
        allow_auto_topic_creation: bool = true, since(4);
        include_cluster_authorized_operations: bool, between(8, 10);
        include_topic_authorized_operations: bool, since(8);
    }
    MetadataRequestTopic {
        topic_id: [u8; 16], since(10).ignorable();
        name: Option<Arc<str>>, since(0).nullable(10);
    }
}

message! {
    MetadataResponse, metadata_response: key 3, versions 0 to 13, flexible from 9;
    MetadataResponse {
        throttle_time_ms: i32, since(3).ignorable();
        brokers: Vec<MetadataResponseBroker>, since(0);
        cluster_id: Option<Arc<str>> = None, since(2).nullable(2).ignorable();
        controller_id: i32 = -1, since(1).ignorable();
        topics: Vec<MetadataResponseTopic>, since(0);
        cluster_authorized_operations: i32 = -2147483648, between(8, 10);
        error_code: ErrorCode, since(13).ignorable();
    }
    MetadataResponseBroker {
        node_id: i32, since(0);
        host: Arc<str>, since(0);
        port: i32, since(0);
        rack: Option<Arc<str>> = None, since(1).nullable(1).ignorable();
    }
    MetadataResponseTopic {
        error_code: ErrorCode, since(0);
        name: Option<Arc<str>>, since(0).nullable(12);
        topic_id: [u8; 16], since(10).ignorable();
        is_internal: bool, since(1).ignorable();
        partitions: Vec<MetadataResponsePartition>, since(0);
        topic_authorized_operations: i32 = -2147483648, since(8);
    }
    MetadataResponsePartition {
        error_code: ErrorCode, since(0);
        partition_index: i32, since(0);
        leader_id: i32, since(0);
        leader_epoch: i32 = -1, since(7).ignorable();
        replica_nodes: Vec<i32>, since(0);
        isr_nodes: Vec<i32>, since(0);
        offline_replicas: Vec<i32>, since(5).ignorable();
    }
}
