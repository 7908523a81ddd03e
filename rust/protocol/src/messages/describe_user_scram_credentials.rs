//! DescribeUserScramCredentials, API key 50.

message! {
    DescribeUserScramCredentialsRequest, describe_user_scram_credentials_request: key 50, versions 0 to 0, flexible from 0;
    DescribeUserScramCredentialsRequest {
        users: Option<Vec<UserName>>, since(0).nullable(0);
    }
    UserName {
        name: Arc<str>, since(0);
    }
}

message! {
    DescribeUserScramCredentialsResponse, describe_user_scram_credentials_response: key 50, versions 0 to 0, flexible from 0;
    DescribeUserScramCredentialsResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        results: Vec<DescribeUserScramCredentialsResult>, since(0);
    }
    DescribeUserScramCredentialsResult {
        user: Arc<str>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        credential_infos: Vec<CredentialInfo>, since(0);
    }
    CredentialInfo {
        mechanism: i8, since(0);
        iterations: i32, since(0);
    }
}
