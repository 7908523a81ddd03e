//! DescribeShareGroupOffsets, API key 90 (KIP-932).

message! {
    DescribeShareGroupOffsetsRequest, describe_share_group_offsets_request: key 90, versions 0 to 1, flexible from 0;
    DescribeShareGroupOffsetsRequest {
        groups: Vec<DescribeShareGroupOffsetsRequestGroup>, since(0);
    }
    DescribeShareGroupOffsetsRequestGroup {
        group_id: Arc<str>, since(0);
        topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>, since(0).nullable(0);
    }
    DescribeShareGroupOffsetsRequestTopic {
        topic_name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    DescribeShareGroupOffsetsResponse, describe_share_group_offsets_response: key 90, versions 0 to 1, flexible from 0;
    DescribeShareGroupOffsetsResponse {
        throttle_time_ms: i32, since(0);
        groups: Vec<DescribeShareGroupOffsetsResponseGroup>, since(0);
    }
    DescribeShareGroupOffsetsResponseGroup {
        group_id: Arc<str>, since(0);
        topics: Vec<DescribeShareGroupOffsetsResponseTopic>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
    DescribeShareGroupOffsetsResponseTopic {
        topic_name: Arc<str>, since(0);
        topic_id: [u8; 16], since(0);
        partitions: Vec<DescribeShareGroupOffsetsResponsePartition>, since(0);
    }
    DescribeShareGroupOffsetsResponsePartition {
        partition_index: i32, since(0);
        start_offset: i64, since(0);
        leader_epoch: i32, since(0);
        lag: i64 = -1, since(1).ignorable();
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(0).nullable(0);
    }
}
