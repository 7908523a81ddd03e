//! DescribeLogDirs, API key 35.

message! {
    DescribeLogDirsRequest, describe_log_dirs_request: key 35, versions 1 to 5, flexible from 2;
    DescribeLogDirsRequest {
        topics: Option<Vec<DescribableLogDirTopic>>, since(0).nullable(0);
    }
    DescribableLogDirTopic {
        topic: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    DescribeLogDirsResponse, describe_log_dirs_response: key 35, versions 1 to 5, flexible from 2;
    DescribeLogDirsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(3).ignorable();
        results: Vec<DescribeLogDirsResult>, since(0);
    }
    DescribeLogDirsResult {
        error_code: ErrorCode, since(0);
        log_dir: Arc<str>, since(0);
        topics: Vec<DescribeLogDirsTopic>, since(0);
        total_bytes: i64 = -1, since(4).ignorable();
        usable_bytes: i64 = -1, since(4).ignorable();
        is_cordoned: bool, since(5).ignorable();
    }
    DescribeLogDirsTopic {
        name: Arc<str>, since(0);
        partitions: Vec<DescribeLogDirsPartition>, since(0);
    }
    DescribeLogDirsPartition {
        partition_index: i32, since(0);
        partition_size: i64, since(0);
        offset_lag: i64, since(0);
        is_future_key: bool, since(0);
    }
}
