//! CreateAcls, API key 30.

message! {
    CreateAclsRequest, create_acls_request: key 30, versions 1 to 3, flexible from 2;
    CreateAclsRequest {
        creations: Vec<AclCreation>, since(0);
    }
    AclCreation {
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        resource_pattern_type: i8 = 3, since(1);
        principal: Arc<str>, since(0);
        host: Arc<str>, since(0);
        operation: i8, since(0);
        permission_type: i8, since(0);
    }
}

message! {
    CreateAclsResponse, create_acls_response: key 30, versions 1 to 3, flexible from 2;
    CreateAclsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<AclCreationResult>, since(0);
    }
    AclCreationResult {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
    }
}
