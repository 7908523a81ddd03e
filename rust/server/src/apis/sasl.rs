//! SaslHandshake and SaslAuthenticate. Kafka: `SaslServerAuthenticator`; once a client has authenticated, and on a listener without
//! SASL, `KafkaApis#handleSaslHandshakeRequest`, `#handleSaslAuthenticateRequest`.

use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use fletchlog_protocol::messages::{
    ApiVersionsResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use fletchlog_protocol::{ApiKey, Message};
use fletchlog_records::ErrorCode;

use super::{Apis, Call, Handled, Handler, Peer, Unreadable, encode};
use crate::authenticator::{Authenticator, Gate, Refused, Step};
use crate::security::Sasl;

pub(super) fn sasl_handshake(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let _: SaslHandshakeRequest = call.message()?;
    call.answer(SaslHandshakeResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE,
        ..Default::default()
    })
}

pub(super) fn sasl_authenticate(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let _: SaslAuthenticateRequest = call.message()?;
    call.answer(SaslAuthenticateResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE,
        error_message: Some("SaslAuthenticate request received after successful authentication".into()),
        ..Default::default()
    })
}

impl Peer {
    /// The state of the client's authentication, on a listener with SASL.
    fn authenticator(&self) -> Option<MutexGuard<'_, Authenticator>> {
        let authenticator = self.authenticator.as_ref()?;
        Some(authenticator.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether its next frame is a token without a request around it.
    pub(crate) fn expects_bare_token(&self) -> bool {
        self.authenticator()
            .is_some_and(|authenticator| authenticator.expects_bare_token())
    }

    /// Records that the client has authenticated.
    fn authenticated(&self, name: String) {
        log::info!("authenticated: {} as User:{}", self.name(), name.escape_debug());
        // A client that re-authenticates keeps its name.
        let _ = self.user.set(name);
    }
}

impl Apis {
    /// Handles a token that is not in a request, which a client sends after SaslHandshake in version 0.
    pub(super) fn handle_bare_token(&self, peer: &Peer, frame: &Bytes) -> Option<Handled> {
        let sasl = self.security.sasl()?;
        let mut authenticator = peer
            .authenticator()
            .filter(|authenticator| authenticator.expects_bare_token())?;
        let step = self.token(&mut authenticator, frame, sasl);
        Some(match step {
            Ok(Step { token, session }) => {
                session.into_iter().for_each(|(name, _)| peer.authenticated(name));
                let size = u32::try_from(token.len()).unwrap_or(0).to_be_bytes();
                Handled::Answer(vec![Bytes::copy_from_slice(&size), token.into()])
            }
            // No message of the protocol can report it.
            Err(refused) => Handled::Refuse(Vec::new(), failed(&refused)),
        })
    }

    fn token(&self, authenticator: &mut Authenticator, token: &[u8], sasl: &Sasl) -> Result<Step, Refused> {
        let (wall_ms, now_ms) = (self.clock.now_ms(), self.clock.monotonic_ms());
        authenticator.token(token, sasl, &sasl.users(&self.broker, wall_ms), (wall_ms, now_ms))
    }
}

fn failed(refused: &Refused) -> String {
    format!("its authentication failed: {}", refused.reason)
}

impl Call<'_> {
    /// Handles a request as the client's authentication state allows.
    pub(super) fn pass(&mut self, api: ApiKey, handler: Handler) -> Result<Handled, Unreadable> {
        let (Some(mut authenticator), Some(sasl)) = (self.peer.authenticator(), self.apis.security.sasl()) else {
            return handler(self);
        };
        match authenticator.gate(api, self.apis.clock.monotonic_ms()) {
            Gate::Serve => {
                drop(authenticator);
                handler(self)
            }
            Gate::Close(reason) => Ok(Handled::Close(reason)),
            Gate::Illegal(reason) => self.illegal(api, reason),
            Gate::Authenticate if api == ApiKey::SaslHandshake => self.handshake(&mut authenticator, sasl),
            Gate::Authenticate => self.authenticate(&mut authenticator, sasl),
        }
    }

    /// Records that ApiVersions was answered.
    pub(super) fn versions_answered(&self) {
        if let Some(mut authenticator) = self.peer.authenticator() {
            authenticator.versions_answered();
        }
    }

    fn refuse<M: Message>(&self, message: M, reason: String) -> Result<Handled, Unreadable> {
        Ok(Handled::Refuse(encode(&self.header, message)?, reason))
    }

    fn handshake(&mut self, authenticator: &mut Authenticator, sasl: &Sasl) -> Result<Handled, Unreadable> {
        let request: SaslHandshakeRequest = self.message()?;
        let mechanisms = sasl
            .mechanisms
            .iter()
            .map(|mechanism| mechanism.name().into())
            .collect();
        let answer = |error: ErrorCode| SaslHandshakeResponse {
            error_code: error,
            mechanisms,
        };
        match authenticator.handshake(self.version(), &request.mechanism, sasl) {
            Ok(()) => self.answer(answer(ErrorCode::NONE)),
            Err(refused) => self.refuse(answer(ErrorCode::UNSUPPORTED_SASL_MECHANISM), failed(&refused)),
        }
    }

    fn authenticate(&mut self, authenticator: &mut Authenticator, sasl: &Sasl) -> Result<Handled, Unreadable> {
        let request: SaslAuthenticateRequest = self.message()?;
        match self.apis.token(authenticator, &request.auth_bytes, sasl) {
            Ok(Step { token, session }) => {
                let session_lifetime_ms = session.as_ref().map_or(0, |(_, lifetime_ms)| *lifetime_ms);
                session.into_iter().for_each(|(name, _)| self.peer.authenticated(name));
                self.answer(SaslAuthenticateResponse {
                    auth_bytes: token.into(),
                    session_lifetime_ms,
                    ..Default::default()
                })
            }
            Err(refused) => {
                let answer = SaslAuthenticateResponse {
                    error_code: ErrorCode::SASL_AUTHENTICATION_FAILED,
                    error_message: Some(refused.message.as_str().into()),
                    ..Default::default()
                };
                self.refuse(answer, failed(&refused))
            }
        }
    }

    /// A request where a token is expected. The requests that clients may send here by mistake get a response; in Kafka every API does.
    fn illegal(&self, api: ApiKey, reason: String) -> Result<Handled, Unreadable> {
        let error_code = ErrorCode::ILLEGAL_SASL_STATE;
        match api {
            ApiKey::SaslHandshake => self.refuse(
                SaslHandshakeResponse {
                    error_code,
                    ..Default::default()
                },
                reason,
            ),
            ApiKey::ApiVersions => self.refuse(
                ApiVersionsResponse {
                    error_code,
                    ..Default::default()
                },
                reason,
            ),
            _ => Ok(Handled::Close(reason)),
        }
    }
}
