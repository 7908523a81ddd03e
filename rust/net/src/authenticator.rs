//! The client's half of SASL on one connection, without I/O: SaslHandshake names the mechanism; SaslAuthenticate carries the tokens of
//! client and node until the exchange is complete. Kafka: `SaslClientAuthenticator`.

use std::sync::Arc;

use fletchlog_api::Failure;
use fletchlog_protocol::messages::{SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse};
use fletchlog_records::ErrorCode;
use fletchlog_sasl::{Credentials, SaslClient, secure_random_string};

use crate::sasl::{Sasl, Token};

/// The next step.
pub(crate) enum Next {
    /// Send these bytes in SaslAuthenticate.
    Send(Vec<u8>),
    /// Get a token and pass it to [`Authenticator::give_token`].
    WantToken,
    /// Done: the node accepts the client for this many ms (0: as long as the connection is open).
    Complete(i64),
}

enum State {
    Handshake,
    Token,
    Exchange(SaslClient),
    Complete,
}

/// The state of the authentication on one connection.
pub(crate) struct Authenticator {
    sasl: Arc<Sasl>,
    state: State,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator")
            .field("sasl", &self.sasl)
            .finish_non_exhaustive()
    }
}

impl Authenticator {
    pub(crate) fn new(sasl: Arc<Sasl>) -> Self {
        Self {
            sasl,
            state: State::Handshake,
        }
    }

    /// Begins an exchange: the first one, or another one before the session ends (KIP-368).
    pub(crate) fn begin(&mut self) -> SaslHandshakeRequest {
        self.state = State::Handshake;
        SaslHandshakeRequest {
            mechanism: self.sasl.mechanism.name().into(),
        }
    }

    /// Whether requests may be sent.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Whether it waits for [`Self::give_token`].
    pub(crate) fn wants_token(&self) -> bool {
        matches!(self.state, State::Token)
    }

    /// Kafka: `SaslClientAuthenticator#handleSaslHandshakeResponse`.
    ///
    /// # Errors
    /// The node has another mechanism, or none.
    pub(crate) fn on_handshake(&mut self, response: &SaslHandshakeResponse) -> Result<Next, Failure> {
        if response.error_code == ErrorCode::UNSUPPORTED_SASL_MECHANISM {
            let enabled: Vec<&str> = response.mechanisms.iter().map(|name| &**name).collect();
            return Err(self.failed(format_args!(
                "the broker has other mechanisms: {}; set sasl.mechanism to one of them",
                enabled.join(", ")
            )));
        }
        if response.error_code == ErrorCode::ILLEGAL_SASL_STATE {
            return Err(
                self.failed("the broker does not use SASL on this port: set security.protocol to PLAINTEXT or SSL")
            );
        }
        if response.error_code != ErrorCode::NONE {
            return Err(self.failed(response.error_code.message()));
        }
        let sasl = Arc::clone(&self.sasl);
        match sasl.credentials() {
            Some(credentials) => self.exchange(credentials),
            None => {
                self.state = State::Token;
                Ok(Next::WantToken)
            }
        }
    }

    /// Takes the token, or the reason why there is none.
    ///
    /// # Errors
    /// The given reason, or the token cannot be sent.
    pub(crate) fn give_token(&mut self, token: Result<Token, String>) -> Result<Next, Failure> {
        let token = token.map_err(|why| self.failed(format_args!("there is no token: {why}")))?;
        self.exchange(&token.credentials)
    }

    fn exchange(&mut self, credentials: &Credentials) -> Result<Next, Failure> {
        let nonce = secure_random_string().map_err(|error| self.failed(error))?;
        let client = SaslClient::new(self.sasl.mechanism, credentials, &nonce).map_err(|error| self.failed(error))?;
        let first = client.first().to_vec();
        self.state = State::Exchange(client);
        Ok(Next::Send(first))
    }

    /// Kafka: `SaslClientAuthenticator#receiveToken`.
    ///
    /// # Errors
    /// The node refuses the client, or does not give the proof that the mechanism requires.
    pub(crate) fn on_authenticate(&mut self, response: &SaslAuthenticateResponse) -> Result<Next, Failure> {
        if response.error_code != ErrorCode::NONE {
            let text = response.error_message.as_deref();
            let text = text.unwrap_or_else(|| response.error_code.message());
            return Err(self.failed(text));
        }
        let State::Exchange(client) = &mut self.state else {
            return Err(self.failed("an answer to nothing"));
        };
        let answer = match client.challenge(&response.auth_bytes) {
            Ok(answer) => answer,
            Err(error) => return Err(self.failed(error)),
        };
        if let Some(bytes) = answer {
            return Ok(Next::Send(bytes));
        }
        if !client.is_complete() {
            return Err(self.failed("the exchange ended too early"));
        }
        self.state = State::Complete;
        Ok(Next::Complete(response.session_lifetime_ms))
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failure {
        Failure::SaslAuthentication(format!("{}: {why}", self.sasl).into())
    }
}
