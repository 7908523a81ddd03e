//! SASL on a listener without it. Kafka: `KafkaApis#handleSaslHandshakeRequest`, `#handleSaslAuthenticateRequest`.

use fletchlog_records::ErrorCode;
use fletchlog_wire::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{Call, Handled, Unreadable};

pub(super) fn sasl_handshake(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let _: SaslHandshakeRequest = call.message()?;
    call.answer(&SaslHandshakeResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE.code(),
        ..Default::default()
    })
}

pub(super) fn sasl_authenticate(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let _: SaslAuthenticateRequest = call.message()?;
    call.answer(&SaslAuthenticateResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE.code(),
        error_message: Some("SaslAuthenticate request received after successful authentication".into()),
        ..Default::default()
    })
}
