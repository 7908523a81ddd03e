//! DeleteAcls, API key 31.

message! {
    DeleteAclsRequest, delete_acls_request: key 31, versions 1 to 3, flexible from 2;
    DeleteAclsRequest {
        filters: Vec<DeleteAclsFilter>, since(0);
    }
    DeleteAclsFilter {
        resource_type_filter: i8, since(0);
        resource_name_filter: Option<Arc<str>>, since(0).nullable(0);
        pattern_type_filter: i8 = 3, since(1);
        principal_filter: Option<Arc<str>>, since(0).nullable(0);
        host_filter: Option<Arc<str>>, since(0).nullable(0);
        operation: i8, since(0);
        permission_type: i8, since(0);
    }
}

message! {
    DeleteAclsResponse, delete_acls_response: key 31, versions 1 to 3, flexible from 2;
    DeleteAclsResponse {
        throttle_time_ms: i32, since(0);
        filter_results: Vec<DeleteAclsFilterResult>, since(0);
    }
    DeleteAclsFilterResult {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        matching_acls: Vec<DeleteAclsMatchingAcl>, since(0);
    }
    DeleteAclsMatchingAcl {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        pattern_type: i8 = 3, since(1);
        principal: Arc<str>, since(0);
        host: Arc<str>, since(0);
        operation: i8, since(0);
        permission_type: i8, since(0);
    }
}
