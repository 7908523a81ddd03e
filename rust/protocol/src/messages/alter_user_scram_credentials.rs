//! AlterUserScramCredentials, API key 51.

message! {
    AlterUserScramCredentialsRequest, alter_user_scram_credentials_request: key 51, versions 0 to 0, flexible from 0;
    AlterUserScramCredentialsRequest {
        deletions: Vec<ScramCredentialDeletion>, since(0);
        upsertions: Vec<ScramCredentialUpsertion>, since(0);
    }
    ScramCredentialDeletion {
        name: Arc<str>, since(0);
        mechanism: i8, since(0);
    }
    ScramCredentialUpsertion {
        name: Arc<str>, since(0);
        mechanism: i8, since(0);
        iterations: i32, since(0);
        salt: Bytes, since(0);
        salted_password: Bytes, since(0);
    }
}

message! {
    AlterUserScramCredentialsResponse, alter_user_scram_credentials_response: key 51, versions 0 to 0, flexible from 0;
    AlterUserScramCredentialsResponse {
        throttle_time_ms: i32, since(0);
        results: Vec<AlterUserScramCredentialsResult>, since(0);
    }
    AlterUserScramCredentialsResult {
        user: Arc<str>, since(0);
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
    }
}
