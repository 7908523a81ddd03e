//! Heartbeat, API key 12.

message! {
    HeartbeatRequest, heartbeat_request: key 12, versions 0 to 4, flexible from 4;
    HeartbeatRequest {
        group_id: Arc<str>, since(0);
        generation_id: i32, since(0);
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3);
    }
}

message! {
    HeartbeatResponse, heartbeat_response: key 12, versions 0 to 4, flexible from 4;
    HeartbeatResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(0);
    }
}
