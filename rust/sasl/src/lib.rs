//! SASL's mechanisms as Kafka uses them: the messages of both sides, without I/O, clock or storage.
//!
//! ```text
//! client                                                      server
//! SaslClient::first                    -> SaslServer::evaluate
//! SaslClient::challenge                <- its response
//! ... until SaslClient::is_complete       SaslServer::authorized
//! ```
//!
//! PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; without channel binding), OAUTHBEARER (RFC 7628). Sending
//! the messages (SaslHandshake, SaslAuthenticate) is up to the caller. Kafka: `org.apache.kafka.common.security`.

mod client;
pub mod jaas;
mod oauthbearer;
mod plain;
mod scram;
mod server;
mod unsecured_login;

use std::fmt;

pub use client::{Credentials, SaslClient};
pub use oauthbearer::{Token, UnsecuredValidator};
pub use scram::{MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism};
pub use server::{Authorized, CredentialLookup, SaslServer};
pub use unsecured_login::UnsecuredLogin;

/// A way to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// The password as it is.
    Plain,
    /// Proofs that the password is known.
    Scram(ScramMechanism),
    /// A token that an authority has issued.
    OAuthBearer,
}

impl Mechanism {
    /// Every mechanism.
    pub const ALL: [Self; 4] = [
        Self::Plain,
        Self::Scram(ScramMechanism::Sha256),
        Self::Scram(ScramMechanism::Sha512),
        Self::OAuthBearer,
    ];

    /// Its name in SaslHandshake and in `sasl.mechanism`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(scram) => scram.name(),
            Self::OAuthBearer => "OAUTHBEARER",
        }
    }

    /// The mechanism of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

/// A password or a token. Its `Debug` hides it. Kafka: `Password`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Why an exchange failed. No text has a secret in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    /// The reason may be sent to the client. Kafka: `SaslAuthenticationException`.
    #[error("{0}")]
    Refused(String),
    /// For the log only: the client only learns that its credentials are invalid. Kafka: `SaslException`.
    #[error("{0}")]
    Invalid(String),
}

impl SaslError {
    fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// A nonce or a salt: 130 random bits as digits and small letters. Kafka: `ScramFormatter#secureRandomString`.
///
/// # Errors
/// The system has no random bytes.
pub fn secure_random_string() -> std::io::Result<String> {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut random = [0_u8; 26];
    getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
    let digit = |byte: u8| char::from(DIGITS[usize::from(byte % 32)]);
    Ok(random.into_iter().map(digit).collect())
}

/// Whether two secrets are the same. The time that it takes does not reveal where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    bool::from(subtle::ConstantTimeEq::ct_eq(one, other))
}

/// The text of a message.
fn text<'a>(message: &'a [u8], what: &str) -> Result<&'a str, SaslError> {
    std::str::from_utf8(message).map_err(|_| SaslError::invalid(format!("the {what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Secret::new("pass"))), "Some([hidden])");
    }

    #[test]
    fn every_mechanism_is_found_by_its_name() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(mechanism.name()), Some(mechanism));
        }
        assert_eq!(Mechanism::from_name("GSSAPI"), None);
        assert_eq!(Mechanism::from_name("plain"), None);
    }

    #[test]
    fn random_strings_have_130_bits_and_differ() {
        let strings: std::collections::HashSet<_> = (0..100).map(|_| secure_random_string().unwrap()).collect();
        assert_eq!(strings.len(), 100);
        assert!(
            strings
                .iter()
                .all(|s| s.len() == 26 && s.chars().all(|c| c.is_ascii_alphanumeric()))
        );
    }
}
