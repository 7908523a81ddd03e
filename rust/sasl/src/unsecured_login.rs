//! Unsigned tokens, made by the client itself: for tests. Kafka: `OAuthBearerUnsecuredLoginCallbackHandler`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::Secret;
use crate::jaas::JaasEntry;

/// How long a token is valid by default, in seconds.
const LIFETIME_SECONDS: i64 = 3600;

/// The claims and the lifetime of a client's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsecuredLogin {
    claims: Map<String, Value>,
    lifetime_ms: i64,
}

impl UnsecuredLogin {
    /// Reads the options `unsecuredLoginStringClaim_NAME`, `unsecuredLoginNumberClaim_NAME`, `unsecuredLoginListClaim_NAME` (its first
    /// character separates the items) and `unsecuredLoginLifetimeSeconds` of a login module.
    ///
    /// # Errors
    /// A number is invalid, or there is no claim `sub`.
    pub fn new(entry: &JaasEntry) -> Result<Self, String> {
        let mut claims = Map::new();
        let mut seconds = LIFETIME_SECONDS;
        for (option, value) in &entry.options {
            let value = value.reveal();
            if let Some(name) = option.strip_prefix("unsecuredLoginStringClaim_") {
                claims.insert(name.to_owned(), value.into());
            } else if let Some(name) = option.strip_prefix("unsecuredLoginNumberClaim_") {
                let number: f64 = value.parse().map_err(|_| format!("{option} is not a number"))?;
                claims.insert(name.to_owned(), number.into());
            } else if let Some(name) = option.strip_prefix("unsecuredLoginListClaim_") {
                let mut characters = value.chars();
                let separator = characters.next().ok_or_else(|| format!("{option} has no separator"))?;
                let items: Vec<&str> = characters.as_str().split(separator).collect();
                claims.insert(name.to_owned(), items.into());
            } else if option == "unsecuredLoginLifetimeSeconds" {
                let positive = value.parse().ok().filter(|seconds| *seconds > 0);
                seconds = positive.ok_or_else(|| format!("{option} is not a number of seconds"))?;
            }
        }
        if !claims.contains_key("sub") {
            return Err("there is no unsecuredLoginStringClaim_sub, which names the user".to_owned());
        }
        Ok(Self {
            claims,
            lifetime_ms: seconds.saturating_mul(1000),
        })
    }

    /// A token that is valid from now on, and when it expires, in ms since the epoch.
    pub fn token(&self, now_ms: i64) -> (Secret, i64) {
        let ends_ms = now_ms.saturating_add(self.lifetime_ms);
        let mut claims = self.claims.clone();
        claims.insert("iat".to_owned(), (now_ms / 1000).into());
        claims.insert("exp".to_owned(), (ends_ms / 1000).into());
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = format!(
            "{}.{}.",
            encode(r#"{"alg":"none"}"#),
            encode(&Value::Object(claims).to_string())
        );
        (Secret::new(token), ends_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{UnsecuredValidator, jaas};

    fn entry(options: &str) -> JaasEntry {
        let mut entries = jaas::parse(&format!("OAuthBearerLoginModule required {options};")).unwrap();
        entries.remove(0)
    }

    #[test]
    fn a_listener_accepts_the_token_until_it_ends() {
        let options = "unsecuredLoginStringClaim_sub=\"alice\" unsecuredLoginListClaim_scope=\",a,b\" unsecuredLoginLifetimeSeconds=10";
        let login = UnsecuredLogin::new(&entry(options)).unwrap();
        let (token, ends_ms) = login.token(5_000_500);
        assert_eq!(ends_ms, 5_010_500);
        let validator = UnsecuredValidator::new(&entry("unsecuredValidatorRequiredScope=\"b a\"")).unwrap();
        let accepted = validator.validate(token.reveal(), 5_000_500).unwrap();
        assert_eq!(
            (accepted.principal_name.as_str(), accepted.lifetime_ms),
            ("alice", 5_010_000)
        );
        assert!(validator.validate(token.reveal(), 5_010_000).is_err());
    }

    #[test]
    fn what_makes_no_token_is_said() {
        for (options, why) in [
            ("unsecuredLoginStringClaim_name=x", "unsecuredLoginStringClaim_sub"),
            ("unsecuredLoginNumberClaim_n=x", "not a number"),
            ("unsecuredLoginListClaim_l=\"\"", "separator"),
            ("unsecuredLoginLifetimeSeconds=0", "number of seconds"),
        ] {
            assert!(
                UnsecuredLogin::new(&entry(options)).unwrap_err().contains(why),
                "{options}"
            );
        }
    }
}
