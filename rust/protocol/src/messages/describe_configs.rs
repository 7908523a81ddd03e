//! DescribeConfigs, API key 32.

message! {
    DescribeConfigsRequest, describe_configs_request: key 32, versions 1 to 4, flexible from 4, with for_version;
    DescribeConfigsRequest {
        resources: Vec<DescribeConfigsResource>, since(0);
        include_synonyms: bool, since(1);
        include_documentation: bool, since(3);
    }
    DescribeConfigsResource {
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        configuration_keys: Option<Vec<Arc<str>>>, since(0).nullable(0);
    }
}

message! {
    DescribeConfigsResponse, describe_configs_response: key 32, versions 1 to 4, flexible from 4;
    DescribeConfigsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<DescribeConfigsResult>, since(0);
    }
    DescribeConfigsResult {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        configs: Vec<DescribeConfigsResourceResult>, since(0);
    }
    DescribeConfigsResourceResult {
        name: Arc<str>, since(0);
        value: Option<Arc<str>>, since(0).nullable(0);
        read_only: bool, since(0);
        config_source: i8 = -1, since(1).ignorable();
        is_sensitive: bool, since(0);
        synonyms: Vec<DescribeConfigsSynonym>, since(1).ignorable();
        config_type: i8, since(3).ignorable();
        documentation: Option<Arc<str>>, since(3).nullable(0).ignorable();
    }
    DescribeConfigsSynonym {
        name: Arc<str>, since(1);
        value: Option<Arc<str>>, since(1).nullable(0);
        source: i8, since(1);
    }
}

/// First version with the texts of properties.
const DOCUMENTATION: i16 = 3;

impl DescribeConfigsRequest {
    /// An older version is asked without the texts.
    fn for_version(mut self, version: i16) -> Self {
        self.include_documentation &= version >= DOCUMENTATION;
        self
    }
}
