//! SyncGroup, API key 14.

message! {
    SyncGroupRequest, sync_group_request: key 14, versions 0 to 5, flexible from 4;
    SyncGroupRequest {
        group_id: Arc<str>, since(0);
        generation_id: i32, since(0);
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3);
        protocol_type: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        protocol_name: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        assignments: Vec<SyncGroupRequestAssignment>, since(0);
    }
    SyncGroupRequestAssignment {
        member_id: Arc<str>, since(0);
        assignment: Bytes, since(0);
    }
}

message! {
    SyncGroupResponse, sync_group_response: key 14, versions 0 to 5, flexible from 4;
    SyncGroupResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(0);
        protocol_type: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        protocol_name: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        assignment: Bytes, since(0);
    }
}
