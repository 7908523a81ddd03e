//! DescribeGroups, API key 15.

message! {
    DescribeGroupsRequest, describe_groups_request: key 15, versions 0 to 6, flexible from 5;
    DescribeGroupsRequest {
        groups: Vec<Arc<str>>, since(0);
        include_authorized_operations: bool, since(3);
    }
}

message! {
    DescribeGroupsResponse, describe_groups_response: key 15, versions 0 to 6, flexible from 5;
    DescribeGroupsResponse {
        throttle_time_ms: i32, since(1).ignorable();
        groups: Vec<DescribedGroup>, since(0);
    }
    DescribedGroup {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(6).nullable(6);
        group_id: Arc<str>, since(0);
        group_state: Arc<str>, since(0);
        protocol_type: Arc<str>, since(0);
        protocol_data: Arc<str>, since(0);
        members: Vec<DescribedGroupMember>, since(0);
        authorized_operations: i32 = -2147483648, since(3);
    }
    DescribedGroupMember {
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(4).nullable(4).ignorable();
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        member_metadata: Bytes, since(0);
        member_assignment: Bytes, since(0);
    }
}
