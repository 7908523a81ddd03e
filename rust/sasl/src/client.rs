//! The client's side of an exchange. Kafka: `SaslClient`, as `PlainSaslClient`, `ScramSaslClient`, `OAuthBearerSaslClient`.

use std::collections::BTreeMap;

use crate::oauthbearer::CONTROL_A;
use crate::scram::{ClientExchange, ServerSignature};
use crate::{Mechanism, SaslError, Secret, oauthbearer, plain};

/// The credentials of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// For PLAIN and SCRAM.
    Password {
        /// User name, or the id of a delegation token.
        username: String,
        /// Password, or the HMAC of a delegation token.
        password: Secret,
        /// They are those of a delegation token (SCRAM only).
        is_token: bool,
    },
    /// For OAUTHBEARER.
    Token {
        /// Token.
        token: Secret,
        /// SASL extensions.
        extensions: BTreeMap<String, String>,
    },
}

enum State {
    /// The server's next message must be empty.
    ExpectEmpty,
    /// OAUTHBEARER: empty, or the reason of a failure.
    ExpectVerdict,
    ServerFirst(ClientExchange),
    ServerFinal(ServerSignature),
    Complete,
    Failed,
}

/// The client's side of one exchange.
pub struct SaslClient {
    first: Vec<u8>,
    state: State,
}

impl SaslClient {
    /// An exchange with `nonce` ([`crate::secure_random_string`]), which SCRAM needs.
    ///
    /// # Errors
    /// The credentials do not fit the mechanism, or cannot be sent.
    pub fn new(mechanism: Mechanism, credentials: &Credentials, nonce: &str) -> Result<Self, SaslError> {
        let (first, state) = match (mechanism, credentials) {
            (Mechanism::Plain, Credentials::Password { username, password, .. }) => {
                (plain::encode(username, password), State::ExpectEmpty)
            }
            (
                Mechanism::Scram(scram),
                Credentials::Password {
                    username,
                    password,
                    is_token,
                },
            ) => {
                let exchange = ClientExchange::begin(scram, username, password.clone(), nonce, *is_token);
                (exchange.first(), State::ServerFirst(exchange))
            }
            (Mechanism::OAuthBearer, Credentials::Token { token, extensions }) => {
                (oauthbearer::encode(token, extensions)?, State::ExpectVerdict)
            }
            _ => {
                return Err(SaslError::invalid(format!(
                    "{} needs another kind of credentials",
                    mechanism.name()
                )));
            }
        };
        Ok(Self { first, state })
    }

    /// The client's first message.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// The client's response to a message of the server, if it has to send one.
    ///
    /// # Errors
    /// The server's message is not valid, or the server does not know the password.
    pub fn challenge(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, SaslError> {
        let (answer, next) = match std::mem::replace(&mut self.state, State::Failed) {
            State::ExpectEmpty | State::ExpectVerdict if bytes.is_empty() => (None, State::Complete),
            State::ExpectVerdict => (Some(vec![CONTROL_A]), State::Failed),
            State::ServerFirst(exchange) => {
                let (answer, signature) = exchange.prove(bytes)?;
                (Some(answer), State::ServerFinal(signature))
            }
            State::ServerFinal(signature) => {
                signature.check(bytes)?;
                (None, State::Complete)
            }
            State::ExpectEmpty | State::Complete | State::Failed => {
                return Err(SaslError::invalid("the server goes on with an exchange that is over"));
            }
        };
        self.state = next;
        Ok(answer)
    }

    /// True once the server has accepted the client and, if the mechanism requires it, has proved that it knows the password.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }
}
