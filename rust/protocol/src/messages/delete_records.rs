//! DeleteRecords, API key 21.

message! {
    DeleteRecordsRequest, delete_records_request: key 21, versions 0 to 2, flexible from 2;
    DeleteRecordsRequest {
        topics: Vec<DeleteRecordsTopic>, since(0);
        timeout_ms: i32, since(0);
    }
    DeleteRecordsTopic {
        name: Arc<str>, since(0);
        partitions: Vec<DeleteRecordsPartition>, since(0);
    }
    DeleteRecordsPartition {
        partition_index: i32, since(0);
        offset: i64, since(0);
    }
}

message! {
    DeleteRecordsResponse, delete_records_response: key 21, versions 0 to 2, flexible from 2;
    DeleteRecordsResponse {
        throttle_time_ms: i32, since(0);
        topics: Vec<DeleteRecordsTopicResult>, since(0);
    }
    DeleteRecordsTopicResult {
        name: Arc<str>, since(0);
        partitions: Vec<DeleteRecordsPartitionResult>, since(0);
    }
    DeleteRecordsPartitionResult {
        partition_index: i32, since(0);
        low_watermark: i64, since(0);
        error_code: ErrorCode, since(0);
    }
}
