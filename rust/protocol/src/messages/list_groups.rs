//! ListGroups, API key 16.

message! {
    ListGroupsRequest, list_groups_request: key 16, versions 0 to 5, flexible from 3;
    ListGroupsRequest {
        states_filter: Vec<Arc<str>>, since(4);
        types_filter: Vec<Arc<str>>, since(5);
    }
}

message! {
    ListGroupsResponse, list_groups_response: key 16, versions 0 to 5, flexible from 3;
    ListGroupsResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(0);
        groups: Vec<ListedGroup>, since(0);
    }
    ListedGroup {
        group_id: Arc<str>, since(0);
        protocol_type: Arc<str>, since(0);
        group_state: Arc<str>, since(4).ignorable();
        group_type: Arc<str>, since(5).ignorable();
    }
}
