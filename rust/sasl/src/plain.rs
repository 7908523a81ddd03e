//! PLAIN. Kafka: `PlainSaslServer`, `PlainSaslClient`.
//!
//! ```text
//! message    [authorization id] NUL user name NUL password
//! ```

use crate::{SaslError, Secret, text};

/// The message of a client.
pub(crate) struct PlainMessage<'a> {
    pub(crate) authorization_id: &'a str,
    pub(crate) username: &'a str,
    pub(crate) password: &'a str,
}

pub(crate) fn encode(username: &str, password: &Secret) -> Vec<u8> {
    [b"\0", username.as_bytes(), b"\0", password.reveal().as_bytes()].concat()
}

pub(crate) fn decode(message: &[u8]) -> Result<PlainMessage<'_>, SaslError> {
    let mut tokens = text(message, "PLAIN message")?.split('\0');
    let mut next = || tokens.next().unwrap_or_default();
    let (authorization_id, username, password) = (next(), next(), next());
    for (what, value) in [("username", username), ("password", password)] {
        if value.is_empty() {
            return Err(SaslError::invalid(format!(
                "Authentication failed: {what} not specified"
            )));
        }
    }
    Ok(PlainMessage {
        authorization_id,
        username,
        password,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back() {
        let bytes = encode("alice", &Secret::new("pä,ss"));
        assert_eq!(bytes, "\0alice\0pä,ss".as_bytes());
        let message = decode(&bytes).unwrap();
        assert_eq!(
            (message.authorization_id, message.username, message.password),
            ("", "alice", "pä,ss")
        );
        let message = decode(b"bob\0alice\0secret").unwrap();
        assert_eq!(message.authorization_id, "bob");
    }

    #[test]
    fn a_message_without_name_or_password_is_refused() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\0",
            b"\0alice\0",
            b"\0\0secret",
            b"alice secret",
            b"\xff\0a\0b",
        ] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
