//! ApiVersions, API key 18.

message! {
    ApiVersionsRequest, api_versions_request: key 18, versions 0 to 5, flexible from 3;
    ApiVersionsRequest {
        client_software_name: Arc<str>, since(3).ignorable();
        client_software_version: Arc<str>, since(3).ignorable();
        cluster_id: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        node_id: i32 = -1, since(5).ignorable();
    }
}

message! {
    ApiVersionsResponse, api_versions_response: key 18, versions 0 to 5, flexible from 3;
    ApiVersionsResponse {
        error_code: ErrorCode, since(0);
        api_keys: Vec<ApiVersion>, since(0);
        throttle_time_ms: i32, since(1).ignorable();
        supported_features: Vec<SupportedFeatureKey>, since(3).tag(0).ignorable();
        finalized_features_epoch: i64 = -1, since(3).tag(1).ignorable();
        finalized_features: Vec<FinalizedFeatureKey>, since(3).tag(2).ignorable();
        zk_migration_ready: bool, since(3).tag(3).ignorable();
    }
    ApiVersion {
        api_key: i16, since(0);
        min_version: i16, since(0);
        max_version: i16, since(0);
    }
    SupportedFeatureKey {
        name: Arc<str>, since(3);
        min_version: i16, since(3);
        max_version: i16, since(3);
    }
    FinalizedFeatureKey {
        name: Arc<str>, since(3);
        max_version_level: i16, since(3);
        min_version_level: i16, since(3);
    }
}
