//! SaslAuthenticate, API key 36.

message! {
    SaslAuthenticateRequest, sasl_authenticate_request: key 36, versions 0 to 2, flexible from 2;
    SaslAuthenticateRequest {
        auth_bytes: Bytes, since(0);
    }
}

message! {
    SaslAuthenticateResponse, sasl_authenticate_response: key 36, versions 0 to 2, flexible from 2;
    SaslAuthenticateResponse {
        error_code: ErrorCode, since(0);
        error_message: Option<Arc<str>>, since(0).nullable(0);
        auth_bytes: Bytes, since(0);
        session_lifetime_ms: i64, since(1).ignorable();
    }
}
