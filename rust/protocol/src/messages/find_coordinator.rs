//! FindCoordinator, API key 10.

message! {
    FindCoordinatorRequest, find_coordinator_request: key 10, versions 0 to 6, flexible from 3;
    FindCoordinatorRequest {
        key: Arc<str>, between(0, 3);
        key_type: CoordinatorType, since(1);
        coordinator_keys: Vec<Arc<str>>, since(4);
    }
}

message! {
    FindCoordinatorResponse, find_coordinator_response: key 10, versions 0 to 6, flexible from 3;
    FindCoordinatorResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, between(0, 3);
        error_message: Option<Arc<str>>, between(1, 3).nullable(1).ignorable();
        node_id: i32, between(0, 3);
        host: Arc<str>, between(0, 3);
        port: i32, between(0, 3);
        coordinators: Vec<Coordinator>, since(4);
    }
    Coordinator {
        key: Arc<str>, since(4);
        node_id: i32, since(4);
        host: Arc<str>, since(4);
        port: i32, since(4);
        error_code: ErrorCode, since(4);
        error_message: Option<Arc<str>>, since(4).nullable(4).ignorable();
    }
}
