//! SASL: whatever the peer sends, an exchange continues or fails. Nobody authenticates without the password, and no error reveals it.

use std::collections::BTreeMap;

use fletchlog_sasl::jaas;
use fletchlog_sasl::{
    CredentialLookup, Credentials, Mechanism, SaslClient, SaslServer, ScramCredential, ScramMechanism, Secret, Token,
    UnsecuredValidator,
};

use super::{Input, NOW_MS};

const PASSWORD: &str = "pass-word-7f3a";
const USER: &str = "user";

/// `[target u8] [length u8, message]..`: 0 to 3 is a server of that mechanism, 4 to 7 a client, any other a JAAS text.
pub(super) fn sasl(data: &[u8]) {
    let mut input = Input(data);
    let who = usize::from(input.byte());
    match (Mechanism::ALL.get(who % 4), who) {
        (Some(mechanism), 0..4) => server(*mechanism, input),
        (Some(mechanism), 4..8) => client(*mechanism, input),
        _ => jaas_text(input.0),
    }
}

fn messages<'a>(mut input: Input<'a>) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        let length = (!input.is_empty()).then(|| usize::from(input.byte()))?;
        Some(input.take(length))
    })
}

struct Users(UnsecuredValidator);

impl CredentialLookup for Users {
    fn plain(&self, username: &str) -> Option<&str> {
        (username == USER).then_some(PASSWORD)
    }
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        let salted = b"a salted password of some length";
        let credential = ScramCredential::from_salted_password(mechanism, salted, b"salt", 4096);
        (username == USER).then_some(credential)
    }
    fn token(&self, token: &str) -> Result<Token, String> {
        self.0.validate(token, NOW_MS)
    }
}

fn server(mechanism: Mechanism, input: Input<'_>) {
    let module = jaas::parse("OAuthBearerLoginModule required;").unwrap();
    let users = Users(UnsecuredValidator::new(&module[0]).unwrap());
    let mut server = SaslServer::new(mechanism, "servernonce".to_owned());
    for message in messages(input) {
        let result = server.evaluate(message, &users);
        if let Err(error) = &result {
            assert!(!error.to_string().contains(PASSWORD), "{error}");
        }
        let Some(authorized) = server.authorized() else {
            continue;
        };
        match mechanism {
            Mechanism::Plain => assert!(message.ends_with(PASSWORD.as_bytes()) && authorized.name == USER),
            // A valid proof cannot be found by chance.
            Mechanism::Scram(_) => panic!("let in without a proof: {message:?}"),
            Mechanism::OAuthBearer => {
                assert!(!authorized.name.trim().is_empty() && authorized.expires_ms > Some(NOW_MS))
            }
        }
        assert!(server.evaluate(message, &users).is_err(), "it is over");
        return;
    }
}

fn client(mechanism: Mechanism, input: Input<'_>) {
    let credentials = match mechanism {
        Mechanism::OAuthBearer => Credentials::Token {
            token: Secret::new(PASSWORD),
            extensions: BTreeMap::new(),
        },
        _ => Credentials::Password {
            username: USER.to_owned(),
            password: Secret::new(PASSWORD),
            is_token: false,
        },
    };
    let mut client = SaslClient::new(mechanism, &credentials, "clientnonce").unwrap();
    for message in messages(input) {
        if is_much_work(message) {
            return;
        }
        match client.challenge(message) {
            Ok(Some(answer)) => assert!(!String::from_utf8_lossy(&answer).contains(PASSWORD)),
            Ok(None) => {
                assert!(
                    client.is_complete() && !matches!(mechanism, Mechanism::Scram(_)),
                    "no server knows the password"
                );
                return;
            }
            Err(error) => {
                assert!(!error.to_string().contains(PASSWORD), "{error}");
                assert!(client.challenge(b"").is_err(), "it is over");
                return;
            }
        }
    }
}

/// Whether a message asks for many iterations (five digits or more), which would slow down the fuzzer.
fn is_much_work(message: &[u8]) -> bool {
    let digits = message.rsplit(|&byte| byte == b'=').next().unwrap_or_default();
    digits.iter().take_while(|byte| byte.is_ascii_digit()).count() > 4
}

fn jaas_text(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let Ok(modules) = jaas::parse(&text) else { return };
    assert!(!modules.is_empty());
    for value in modules.iter().flat_map(|module| module.options.values()) {
        assert_eq!(format!("{value:?}"), "[hidden]");
    }
}
