//! AlterConfigs, API key 33.

message! {
    AlterConfigsRequest, alter_configs_request: key 33, versions 0 to 2, flexible from 2;
    AlterConfigsRequest {
        resources: Vec<AlterConfigsResource>, since(0);
        validate_only: bool, since(0);
    }
    AlterConfigsResource {
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        configs: Vec<AlterableConfig>, since(0);
    }
    AlterableConfig {
        name: Arc<str>, since(0);
        value: Option<Arc<str>>, since(0).nullable(0);
    }
}

message! {
    AlterConfigsResponse, alter_configs_response: key 33, versions 0 to 2, flexible from 2;
    AlterConfigsResponse {
        throttle_time_ms: i32, since(0);
        responses: Vec<AlterConfigsResourceResponse>, since(0);
    }
    AlterConfigsResourceResponse {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
    }
}
