//! The server's side of an exchange. Kafka: `SaslServer`, as `PlainSaslServer`, `ScramSaslServer`, `OAuthBearerSaslServer`.

use crate::oauthbearer::CONTROL_A;
use crate::scram::{ServerExchange, client_first};
use crate::{Mechanism, SaslError, ScramCredential, ScramMechanism, Token, is_same, oauthbearer, plain};

/// What a server knows of its users. Kafka: the callback handlers of its mechanisms.
pub trait CredentialLookup {
    /// The password of a user of PLAIN.
    fn plain(&self, username: &str) -> Option<&str>;
    /// What is stored of the password of a user of SCRAM.
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential>;
    /// The token, if it is valid.
    ///
    /// # Errors
    /// The response for the client: JSON with a status.
    fn token(&self, token: &str) -> Result<Token, String>;
}

/// A client that has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorized {
    /// Name of the user.
    pub name: String,
    /// When its credentials expire, in ms since the epoch.
    pub expires_ms: Option<i64>,
}

enum State {
    First,
    ClientFinal(ServerExchange, String),
    /// The token was refused with this text, and the client is to acknowledge it.
    TokenRefused(String),
    Complete(Authorized),
    Failed,
}

/// The server's side of one exchange.
pub struct SaslServer {
    mechanism: Mechanism,
    nonce: String,
    state: State,
}

impl SaslServer {
    /// An exchange with `nonce` ([`crate::secure_random_string`]), which SCRAM needs.
    pub fn new(mechanism: Mechanism, nonce: String) -> Self {
        let state = State::First;
        Self {
            mechanism,
            nonce,
            state,
        }
    }

    /// Returns the server's next message for a message of the client. Kafka: `SaslServer#evaluateResponse`.
    ///
    /// # Errors
    /// The exchange has failed.
    pub fn evaluate(&mut self, response: &[u8], users: &dyn CredentialLookup) -> Result<Vec<u8>, SaslError> {
        let (answer, next) = match (std::mem::replace(&mut self.state, State::Failed), self.mechanism) {
            (State::First, Mechanism::Plain) => (Vec::new(), plain_user(response, users)?),
            (State::First, Mechanism::Scram(mechanism)) => self.scram(mechanism, response, users)?,
            (State::First, Mechanism::OAuthBearer) => token_user(response, users)?,
            (State::ClientFinal(exchange, name), _) => {
                let answer = exchange.finish(response)?;
                (answer, State::Complete(Authorized { name, expires_ms: None }))
            }
            (State::TokenRefused(reason), _) if response == [CONTROL_A] => return Err(SaslError::Refused(reason)),
            // The client may try again with another token, as in Kafka.
            (State::TokenRefused(_), _) => token_user(response, users)?,
            (State::Complete(_) | State::Failed, _) => {
                return Err(SaslError::invalid("the client goes on with an exchange that is over"));
            }
        };
        self.state = next;
        Ok(answer)
    }

    fn scram(
        &self,
        mechanism: ScramMechanism,
        response: &[u8],
        users: &dyn CredentialLookup,
    ) -> Result<(Vec<u8>, State), SaslError> {
        let first = client_first(response)?;
        // There are no delegation tokens.
        let credential = users.scram(mechanism, &first.username).filter(|_| !first.is_token);
        let credential =
            credential.ok_or_else(|| SaslError::invalid("Authentication failed: Invalid user credentials"))?;
        check_authorization_id(&first.authorization_id, &first.username)?;
        let exchange = ServerExchange::begin(mechanism, &first, &self.nonce, credential)?;
        Ok((exchange.first(), State::ClientFinal(exchange, first.username)))
    }

    /// The client, once the exchange is complete.
    pub fn authorized(&self) -> Option<&Authorized> {
        match &self.state {
            State::Complete(authorized) => Some(authorized),
            _ => None,
        }
    }
}

fn check_authorization_id(id: &str, username: &str) -> Result<(), SaslError> {
    match id.is_empty() || id == username {
        true => Ok(()),
        false => Err(SaslError::Refused(
            "Authentication failed: Client requested an authorization id that is different from username".to_owned(),
        )),
    }
}

fn plain_user(response: &[u8], users: &dyn CredentialLookup) -> Result<State, SaslError> {
    let message = plain::decode(response)?;
    let expected = users.plain(message.username);
    if !expected.is_some_and(|expected| is_same(expected.as_bytes(), message.password.as_bytes())) {
        return Err(SaslError::Refused(
            "Authentication failed: Invalid username or password".to_owned(),
        ));
    }
    check_authorization_id(message.authorization_id, message.username)?;
    let name = message.username.to_owned();
    Ok(State::Complete(Authorized { name, expires_ms: None }))
}

fn token_user(response: &[u8], users: &dyn CredentialLookup) -> Result<(Vec<u8>, State), SaslError> {
    let message = oauthbearer::decode(response)?;
    let token = match users.token(message.token) {
        Ok(token) => token,
        Err(reason) => return Ok((reason.clone().into_bytes(), State::TokenRefused(reason))),
    };
    if !message.authorization_id.is_empty() && message.authorization_id != token.principal_name {
        return Err(SaslError::Refused(
            "Authentication failed: Client requested an authorization id that is different from the token's principal name"
                .to_owned(),
        ));
    }
    let authorized = Authorized {
        name: token.principal_name,
        expires_ms: Some(token.lifetime_ms),
    };
    Ok((Vec::new(), State::Complete(authorized)))
}
