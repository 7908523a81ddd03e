//! DescribeCluster, API key 60.

message! {
    DescribeClusterRequest, describe_cluster_request: key 60, versions 0 to 2, flexible from 0;
    DescribeClusterRequest {
        include_cluster_authorized_operations: bool, since(0);
        endpoint_type: i8 = 1, since(1);
        include_fenced_brokers: bool, since(2);
    }
}

message! {
    DescribeClusterResponse, describe_cluster_response: key 60, versions 0 to 2, flexible from 0;
    DescribeClusterResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
        endpoint_type: i8 = 1, since(1);
        cluster_id: Arc<str>, since(0);
        controller_id: i32 = -1, since(0);
        brokers: Vec<DescribeClusterBroker>, since(0);
        cluster_authorized_operations: i32 = -2147483648, since(0);
    }
    DescribeClusterBroker {
        broker_id: i32, since(0);
        host: Arc<str>, since(0);
        port: i32, since(0);
        rack: Option<Arc<str>> = None, since(0).nullable(0);
        is_fenced: bool, since(2);
    }
}
