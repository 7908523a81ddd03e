//! The states of a client's authentication, without I/O and without a clock. Kafka: `SaslServerAuthenticator`.
//!
//! ```text
//! Initial --ApiVersions--> Handshake ----SaslHandshake--> Authenticate --tokens--> Complete
//!        \--SaslHandshake---------------------------------^               ^           |
//!                                                                          \----------/ SaslHandshake again, if sessions end
//! ```
//! After SaslHandshake in version 0 each token is a bare frame, from version 1 on it is in a SaslAuthenticate request.

use fletchlog_protocol::ApiKey;
use fletchlog_sasl::{Authorized, CredentialLookup, Mechanism, SaslError, SaslServer, secure_random_string};

use crate::security::Sasl;

/// A client must not re-authenticate sooner than this. Kafka: `KafkaChannel#MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`.
const LEAST_REAUTHENTICATION_MS: i64 = 1000;

/// The state of one connection.
pub(crate) struct Authenticator {
    state: State,
    /// Tokens are bare frames, not requests.
    bare_tokens: bool,
    /// The mechanism and the user of an earlier authentication on this connection.
    before: Option<(Mechanism, String)>,
    /// When the session ends, on the monotonic clock.
    session_ends_ms: Option<i64>,
    reauthenticated_ms: Option<i64>,
}

enum State {
    Initial,
    /// ApiVersions was answered.
    Handshake,
    Authenticate(Mechanism, SaslServer),
    /// The client wants to re-authenticate with another mechanism. Its first token is answered with this error.
    BadMechanism(String),
    Complete,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Serve it.
    Serve,
    /// Handle it as a step of the authentication.
    Authenticate,
    /// Close the connection, for this reason.
    Close(String),
    /// Respond with ILLEGAL_SASL_STATE and close the connection, for this reason.
    Illegal(String),
}

/// The result of a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// For the client.
    pub(crate) token: Vec<u8>,
    /// Once the client is authenticated: the user's name and the lifetime of the session in ms (0: no end).
    pub(crate) session: Option<(String, i64)>,
}

/// An authentication failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// For the client.
    pub(crate) message: String,
    /// For the log.
    pub(crate) reason: String,
}

impl Authenticator {
    /// The state of a new connection.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Initial,
            bare_tokens: false,
            before: None,
            session_ends_ms: None,
            reauthenticated_ms: None,
        }
    }

    /// Whether the next frame is a token, not a request.
    pub(crate) fn expects_bare_token(&self) -> bool {
        self.bare_tokens && matches!(self.state, State::Authenticate(..) | State::BadMechanism(_))
    }

    /// What to do with a request that arrived at this time. Kafka: `#handleKafkaRequest`, `#handleSaslToken`,
    /// `Processor#processCompletedReceives`.
    pub(crate) fn gate(&mut self, api: ApiKey, now_ms: i64) -> Gate {
        let name = api.name();
        if api == ApiKey::SaslHandshake && matches!(self.state, State::Complete) && self.begins_again(now_ms) {
            return Gate::Authenticate;
        }
        match (&self.state, api) {
            (State::Complete, _) if self.session_ends_ms.is_some_and(|end_ms| now_ms > end_ms) => {
                Gate::Close("its session has ended, and it did not authenticate again".to_owned())
            }
            (State::Complete, _) | (State::Initial, ApiKey::ApiVersions) => Gate::Serve,
            (State::Initial | State::Handshake, ApiKey::SaslHandshake) => Gate::Authenticate,
            (State::Initial, _) => Gate::Close(format!(
                "it sent {name} before it authenticated: it is configured with the wrong security protocol, or it is no client of Kafka"
            )),
            (State::Handshake, _) => Gate::Close(format!("it sent {name} in place of SaslHandshake")),
            (State::Authenticate(..) | State::BadMechanism(_), ApiKey::SaslAuthenticate) => Gate::Authenticate,
            (State::Authenticate(..) | State::BadMechanism(_), _) => Gate::Illegal(format!(
                "Unexpected Kafka request of type {} during SASL authentication.",
                name
            )),
        }
    }

    /// Whether SaslHandshake begins a re-authentication. Kafka: `KafkaChannel#maybeBeginServerReauthentication`.
    fn begins_again(&mut self, now_ms: i64) -> bool {
        let too_soon = |last_ms: i64| now_ms - last_ms < LEAST_REAUTHENTICATION_MS;
        if self.session_ends_ms.is_none() || self.reauthenticated_ms.is_some_and(too_soon) {
            return false;
        }
        self.reauthenticated_ms = Some(now_ms);
        true
    }

    /// Records that ApiVersions was answered.
    pub(crate) fn versions_answered(&mut self) {
        if matches!(self.state, State::Initial) {
            self.state = State::Handshake;
        }
    }

    /// Handles SaslHandshake.
    ///
    /// # Errors
    /// UNSUPPORTED_SASL_MECHANISM: the mechanism is not among those of the listener.
    pub(crate) fn handshake(&mut self, version: i16, mechanism: &str, sasl: &Sasl) -> Result<(), Refused> {
        let unsupported = || refused(format!("Unsupported SASL mechanism {}", mechanism.escape_debug()));
        let known = Mechanism::from_name(mechanism).filter(|mechanism| sasl.mechanisms.contains(mechanism));
        let known = known.ok_or_else(unsupported)?;
        self.bare_tokens = version == 0;
        self.state = match &self.before {
            Some((before, _)) if *before != known => State::BadMechanism(format!(
                "SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism '{}'",
                before.name()
            )),
            _ => {
                let nonce = secure_random_string().map_err(|error| refused(format!("no random bytes: {error}")))?;
                State::Authenticate(known, SaslServer::new(known, nonce))
            }
        };
        Ok(())
    }

    /// Handles a token at this time, on the wall clock and on the monotonic clock.
    ///
    /// # Errors
    /// SASL_AUTHENTICATION_FAILED.
    pub(crate) fn token(
        &mut self,
        token: &[u8],
        sasl: &Sasl,
        users: &dyn CredentialLookup,
        (wall_ms, now_ms): (i64, i64),
    ) -> Result<Step, Refused> {
        let (mechanism, exchange) = match &mut self.state {
            State::Authenticate(mechanism, exchange) => (*mechanism, exchange),
            State::BadMechanism(reason) => return Err(refused(reason.clone())),
            State::Initial | State::Handshake | State::Complete => return Err(refused("Unexpected token".to_owned())),
        };
        let again = if self.before.is_some() {
            "re-authentication"
        } else {
            "authentication"
        };
        let answer = exchange.evaluate(token, users).map_err(|error| match error {
            SaslError::Refused(reason) => refused(reason),
            SaslError::Invalid(reason) => Refused {
                message: format!(
                    "Authentication failed during {again} due to invalid credentials with SASL mechanism {}",
                    mechanism.name()
                ),
                reason,
            },
        })?;
        let authorized = exchange.authorized().cloned();
        let session = authorized
            .map(|client| self.complete(mechanism, client, sasl, (wall_ms, now_ms)))
            .transpose()?;
        Ok(Step { token: answer, session })
    }

    /// Kafka: `ReauthInfo#ensurePrincipalUnchanged`, `#calcCompletionTimesAndReturnSessionLifetimeMs`.
    fn complete(
        &mut self,
        mechanism: Mechanism,
        client: Authorized,
        sasl: &Sasl,
        (wall_ms, now_ms): (i64, i64),
    ) -> Result<(String, i64), Refused> {
        if let Some((_, before)) = self.before.as_ref().filter(|(_, before)| *before != client.name) {
            let now = &client.name;
            return Err(refused(format!(
                "Cannot change principals during re-authentication from User.{before}: User.{now}"
            )));
        }
        let of_config = (sasl.max_reauth_ms > 0).then_some(sasl.max_reauth_ms);
        let of_token = client.expires_ms.map(|end_ms| end_ms.saturating_sub(wall_ms).max(0));
        let lifetime_ms = [of_config, of_token].into_iter().flatten().min();
        self.session_ends_ms = lifetime_ms.map(|lifetime_ms| now_ms.saturating_add(lifetime_ms));
        self.before = Some((mechanism, client.name.clone()));
        self.state = State::Complete;
        Ok((client.name, lifetime_ms.unwrap_or(0)))
    }
}

/// A refusal with the same text for the client and the log.
fn refused(reason: String) -> Refused {
    Refused {
        message: reason.clone(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::{Config, Scope};
    use fletchlog_sasl::{ScramCredential, ScramMechanism, Token};

    use super::*;
    use crate::security::Security;

    struct Users;

    impl CredentialLookup for Users {
        fn plain(&self, username: &str) -> Option<&str> {
            ["alice", "bob"].contains(&username).then_some("secret")
        }
        fn scram(&self, _: ScramMechanism, _: &str) -> Option<ScramCredential> {
            None
        }
        fn token(&self, token: &str) -> Result<Token, String> {
            let lifetime_ms = token.parse().map_err(|_| "{}".to_owned())?;
            Ok(Token {
                principal_name: "alice".to_owned(),
                lifetime_ms,
            })
        }
    }

    fn security(max_reauth_ms: &str) -> Security {
        let given = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER"),
            ("plain.sasl.jaas.config", "P required;"),
            ("oauthbearer.sasl.jaas.config", "O required;"),
            ("connections.max.reauth.ms", max_reauth_ms),
        ];
        Security::new(&Config::parse(Scope::Broker, given).unwrap()).unwrap()
    }

    fn authenticate(
        of: &mut Authenticator,
        security: &Security,
        now_ms: i64,
        mechanism: &str,
        token: &[u8],
    ) -> Result<Step, Refused> {
        let sasl = security.sasl().unwrap();
        assert_eq!(of.gate(ApiKey::SaslHandshake, now_ms), Gate::Authenticate);
        of.handshake(1, mechanism, sasl)?;
        assert_eq!(of.gate(ApiKey::SaslAuthenticate, now_ms), Gate::Authenticate);
        of.token(token, sasl, &Users, (now_ms, now_ms))
    }

    #[test]
    fn nothing_is_served_before_a_client_has_authenticated() {
        let security = security("0");
        let mut client = Authenticator::new();
        assert!(matches!(client.gate(ApiKey::Metadata, 0), Gate::Close(_)));
        assert!(matches!(client.gate(ApiKey::SaslAuthenticate, 0), Gate::Close(_)));
        assert_eq!(client.gate(ApiKey::ApiVersions, 0), Gate::Serve);
        client.versions_answered();
        assert!(
            matches!(client.gate(ApiKey::ApiVersions, 0), Gate::Close(_)),
            "only once"
        );
        assert!(matches!(client.gate(ApiKey::Fetch, 0), Gate::Close(_)));
        client.handshake(1, "PLAIN", security.sasl().unwrap()).unwrap();
        for api in [ApiKey::Fetch, ApiKey::ApiVersions, ApiKey::SaslHandshake] {
            assert!(matches!(client.gate(api, 0), Gate::Illegal(_)), "{api:?}");
        }
        let step = client
            .token(b"\0alice\0secret", security.sasl().unwrap(), &Users, (0, 0))
            .unwrap();
        assert_eq!(step.session, Some(("alice".to_owned(), 0)));
        assert_eq!(client.gate(ApiKey::Fetch, i64::MAX), Gate::Serve, "for ever");
        assert_eq!(
            client.gate(ApiKey::SaslHandshake, 5000),
            Gate::Serve,
            "which refuses it"
        );
    }

    #[test]
    fn a_wrong_password_is_reported_and_a_malformed_one_is_not_explained() {
        let security = security("0");
        let failure = |mechanism: &str, token: &[u8]| {
            authenticate(&mut Authenticator::new(), &security, 0, mechanism, token)
                .unwrap_err()
                .message
        };
        assert_eq!(
            failure("PLAIN", b"\0alice\0wrong"),
            "Authentication failed: Invalid username or password"
        );
        let hidden = "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN";
        assert_eq!(failure("PLAIN", b"nonsense"), hidden);
        assert_eq!(
            failure("SCRAM-SHA-256", b""),
            "Unsupported SASL mechanism SCRAM-SHA-256"
        );
    }

    #[test]
    fn a_session_ends_unless_its_client_authenticates_again() {
        let security = security("1000");
        let mut client = Authenticator::new();
        let step = authenticate(&mut client, &security, 0, "PLAIN", b"\0alice\0secret").unwrap();
        assert_eq!(step.session, Some(("alice".to_owned(), 1000)));
        assert_eq!(client.gate(ApiKey::Fetch, 1000), Gate::Serve);
        assert!(matches!(client.gate(ApiKey::Fetch, 1001), Gate::Close(_)));
        authenticate(&mut client, &security, 1500, "PLAIN", b"\0alice\0secret").unwrap();
        assert_eq!(client.gate(ApiKey::Fetch, 2500), Gate::Serve);
        assert_eq!(
            client.gate(ApiKey::SaslHandshake, 2499),
            Gate::Serve,
            "too soon: refused as any other"
        );
        let other = authenticate(&mut client, &security, 2500, "PLAIN", b"\0bob\0secret").unwrap_err();
        assert_eq!(
            other.message,
            "Cannot change principals during re-authentication from User.alice: User.bob"
        );
    }

    #[test]
    fn a_session_keeps_its_mechanism_and_ends_with_its_token() {
        let security = security("1000");
        let mut client = Authenticator::new();
        let step = authenticate(
            &mut client,
            &security,
            100,
            "OAUTHBEARER",
            b"n,,\x01auth=Bearer 400\x01\x01",
        )
        .unwrap();
        assert_eq!(step.session, Some(("alice".to_owned(), 300)));
        let other = authenticate(&mut client, &security, 1200, "PLAIN", b"\0alice\0secret").unwrap_err();
        assert!(
            other
                .message
                .contains("is not supported for re-authentication of mechanism 'OAUTHBEARER'"),
            "{}",
            other.message
        );
    }

    #[test]
    fn tokens_are_bare_frames_after_the_first_version_of_the_handshake() {
        let security = security("0");
        let mut client = Authenticator::new();
        assert!(!client.expects_bare_token());
        client.handshake(0, "PLAIN", security.sasl().unwrap()).unwrap();
        assert!(client.expects_bare_token());
        client
            .token(b"\0alice\0secret", security.sasl().unwrap(), &Users, (0, 0))
            .unwrap();
        assert!(!client.expects_bare_token());
    }
}
