//! SaslHandshake, API key 17.

message! {
    SaslHandshakeRequest, sasl_handshake_request: key 17, versions 0 to 1, flexible from i16::MAX;
    SaslHandshakeRequest {
        mechanism: Arc<str>, since(0);
    }
}

message! {
    SaslHandshakeResponse, sasl_handshake_response: key 17, versions 0 to 1, flexible from i16::MAX;
    SaslHandshakeResponse {
        error_code: ErrorCode, since(0);
        mechanisms: Vec<Arc<str>>, since(0);
    }
}
