//! ListConfigResources, API key 74.

message! {
    ListConfigResourcesRequest, list_config_resources_request: key 74, versions 0 to 1, flexible from 0;
    ListConfigResourcesRequest {
        resource_types: Vec<i8>, since(1);
    }
}

message! {
    ListConfigResourcesResponse, list_config_resources_response: key 74, versions 0 to 1, flexible from 0;
    ListConfigResourcesResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        config_resources: Vec<ConfigResource>, since(0);
    }
    ConfigResource {
        resource_name: Arc<str>, since(0);
        resource_type: i8 = 16, since(1).ignorable();
    }
}
