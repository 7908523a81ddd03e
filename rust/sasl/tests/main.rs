//! Both sides of every mechanism against each other.

use std::collections::BTreeMap;

use fletchlog_sasl::{
    CredentialLookup, Credentials, Mechanism, SaslClient, SaslError, SaslServer, ScramCredential, ScramMechanism,
    Secret, Token,
};

struct Users;

impl CredentialLookup for Users {
    fn plain(&self, username: &str) -> Option<&str> {
        (username == "a=l,ice").then_some("secret")
    }
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        let salted = mechanism.salted_password(&Secret::new("secret"), b"salt", 4096);
        let credential = ScramCredential::from_salted_password(mechanism, &salted, b"salt", 4096);
        (username == "a=l,ice").then_some(credential)
    }
    fn token(&self, token: &str) -> Result<Token, String> {
        match token {
            "a.b." => Ok(Token {
                principal_name: "a=l,ice".to_owned(),
                lifetime_ms: 5,
            }),
            _ => Err("{\"status\":\"invalid_token\"}".to_owned()),
        }
    }
}

fn password(username: &str, password: &str) -> Credentials {
    Credentials::Password {
        username: username.to_owned(),
        password: Secret::new(password),
        is_token: false,
    }
}

/// Runs an exchange to its end; the server's verdict.
fn exchange(mechanism: Mechanism, credentials: &Credentials) -> Result<String, SaslError> {
    let mut client = SaslClient::new(mechanism, credentials, "client0nonce")?;
    let mut server = SaslServer::new(mechanism, "server0nonce".to_owned());
    let mut message = client.first().to_vec();
    loop {
        let answer = server.evaluate(&message, &Users)?;
        let reply = client.challenge(&answer)?;
        match (reply, server.authorized().cloned()) {
            (None, Some(authorized)) => {
                assert!(client.is_complete());
                assert!(server.evaluate(b"more", &Users).is_err(), "it is over");
                return Ok(authorized.name);
            }
            (Some(reply), None) => message = reply,
            (reply, authorized) => panic!("one side is complete: {reply:?} {authorized:?}"),
        }
    }
}

#[test]
fn the_right_password_is_accepted_and_no_other() {
    for mechanism in [
        Mechanism::Plain,
        Mechanism::Scram(ScramMechanism::Sha256),
        Mechanism::Scram(ScramMechanism::Sha512),
    ] {
        assert_eq!(exchange(mechanism, &password("a=l,ice", "secret")).unwrap(), "a=l,ice");
        for (user, pass) in [("a=l,ice", "Secret"), ("a=l,ice", "secre"), ("bob", "secret")] {
            assert!(
                exchange(mechanism, &password(user, pass)).is_err(),
                "{mechanism:?} {user} {pass}"
            );
        }
    }
}

#[test]
fn a_token_is_accepted_or_refused_with_the_servers_reason() {
    let with = |token: &str| Credentials::Token {
        token: Secret::new(token),
        extensions: BTreeMap::new(),
    };
    assert_eq!(exchange(Mechanism::OAuthBearer, &with("a.b.")).unwrap(), "a=l,ice");
    let refused = exchange(Mechanism::OAuthBearer, &with("a.c.")).unwrap_err();
    assert_eq!(refused, SaslError::Refused("{\"status\":\"invalid_token\"}".to_owned()));
}

#[test]
fn an_authorization_id_must_be_the_user() {
    let mut server = SaslServer::new(Mechanism::Plain, String::new());
    let refused = server.evaluate(b"bob\0a=l,ice\0secret", &Users).unwrap_err();
    assert!(matches!(refused, SaslError::Refused(text) if text.contains("authorization id")));
    let mut server = SaslServer::new(Mechanism::Plain, String::new());
    server.evaluate(b"a=l,ice\0a=l,ice\0secret", &Users).unwrap();
    assert_eq!(server.authorized().unwrap().name, "a=l,ice");
}
