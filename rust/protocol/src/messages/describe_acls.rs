//! DescribeAcls, API key 29.

message! {
    DescribeAclsRequest, describe_acls_request: key 29, versions 1 to 3, flexible from 2;
    DescribeAclsRequest {
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
    DescribeAclsResponse, describe_acls_response: key 29, versions 1 to 3, flexible from 2;
    DescribeAclsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        resources: Vec<DescribeAclsResource>, since(0);
    }
    DescribeAclsResource {
        resource_type: i8, since(0);
        resource_name: Arc<str>, since(0);
        pattern_type: i8 = 3, since(1);
        acls: Vec<AclDescription>, since(0);
    }
    AclDescription {
        principal: Arc<str>, since(0);
        host: Arc<str>, since(0);
        operation: i8, since(0);
        permission_type: i8, since(0);
    }
}
