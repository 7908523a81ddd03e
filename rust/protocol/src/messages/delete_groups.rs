//! DeleteGroups, API key 42.

message! {
    DeleteGroupsRequest, delete_groups_request: key 42, versions 0 to 3, flexible from 2;
    DeleteGroupsRequest {
        groups_names: Vec<Arc<str>>, since(0);
    }
}

message! {
    DeleteGroupsResponse, delete_groups_response: key 42, versions 0 to 3, flexible from 2;
    DeleteGroupsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<DeletableGroupResult>, since(0);
    }
    DeletableGroupResult {
        group_id: Arc<str>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>> = None, since(3).nullable(3).ignorable();
    }
}
