//! UpdateFeatures, API key 57.

message! {
    UpdateFeaturesRequest, update_features_request: key 57, versions 0 to 2, flexible from 0;
    UpdateFeaturesRequest {
        timeout_ms: i32 = 60000, since(0);
        feature_updates: Vec<FeatureUpdateKey>, since(0);
        validate_only: bool, since(1);
    }
    FeatureUpdateKey {
        feature: Arc<str>, since(0);
        max_version_level: i16, since(0);
        allow_downgrade: bool, between(0, 0);
        upgrade_type: i8 = 1, since(1);
    }
}

message! {
    UpdateFeaturesResponse, update_features_response: key 57, versions 0 to 2, flexible from 0;
    UpdateFeaturesResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        results: Vec<UpdatableFeatureResult>, between(0, 1).ignorable();
    }
    UpdatableFeatureResult {
        feature: Arc<str>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
    }
}
