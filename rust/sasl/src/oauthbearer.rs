//! OAUTHBEARER: the client's message (RFC 7628), and tokens without a signature. Kafka: `OAuthBearerClientInitialResponse`,
//! `OAuthBearerUnsecuredJws`, `OAuthBearerUnsecuredValidatorCallbackHandler`.
//!
//! ```text
//! client    n,[a=authorization id],^A auth=Bearer TOKEN ^A (name=value ^A)* ^A       (^A = 0x01, no spaces around it)
//! server    nothing, or on failure {"status":"invalid_token"}, which the client answers with ^A
//! ```

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::jaas::JaasEntry;
use crate::{SaslError, Secret, text};

/// The client's message after its token was refused; also the separator between the parts of its message.
pub(crate) const CONTROL_A: u8 = 1;
const SEPARATOR: char = '\u{1}';

/// With or without `=` at the end.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The beginning of a client's message.
pub(crate) struct InitialResponse<'a> {
    pub(crate) authorization_id: &'a str,
    pub(crate) token: &'a str,
}

/// A client's message; an error if its token or an extension cannot be sent.
pub(crate) fn encode(token: &Secret, extensions: &BTreeMap<String, String>) -> Result<Vec<u8>, SaslError> {
    if !is_token(token.reveal()) {
        return Err(SaslError::invalid(
            "the token is empty or has characters that no token has",
        ));
    }
    let mut message = format!("n,,{SEPARATOR}auth=Bearer {}", token.reveal());
    for (name, value) in extensions {
        if !is_extension(name, value) {
            return Err(SaslError::Invalid(format!(
                "SASL extension `{}` is invalid: a name has letters only and is not `auth`, a value has printable ASCII",
                name.escape_debug()
            )));
        }
        message.extend([SEPARATOR.to_string().as_str(), name, "=", value]);
    }
    message.extend([SEPARATOR, SEPARATOR]);
    Ok(message.into_bytes())
}

/// Kafka: `OAuthBearerClientInitialResponse#validateExtensions`.
fn is_extension(name: &str, value: &str) -> bool {
    let is_name = name != "auth" && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_value = |byte: u8| byte.is_ascii_graphic() || b" \t\r\n".contains(&byte);
    is_name && !value.is_empty() && value.bytes().all(is_value)
}

fn is_token(token: &str) -> bool {
    !token.is_empty()
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/=~".contains(&byte))
}

pub(crate) fn decode(message: &[u8]) -> Result<InitialResponse<'_>, SaslError> {
    let wrong = || SaslError::invalid("Invalid OAUTHBEARER client first message");
    let message = text(message, "OAUTHBEARER message")?;
    let (authorization_id, pairs) = message
        .strip_prefix("n,")
        .and_then(|rest| rest.split_once(",\u{1}"))
        .ok_or_else(wrong)?;
    let authorization_id = match authorization_id {
        "" => "",
        given => given.strip_prefix("a=").filter(|id| !id.is_empty()).ok_or_else(wrong)?,
    };
    let pairs = pairs.strip_suffix("\u{1}\u{1}").ok_or_else(wrong)?;
    let mut auth = None;
    for pair in pairs.split(SEPARATOR) {
        match pair.split_once('=').ok_or_else(wrong)? {
            ("auth", value) => auth = Some(value),
            (name, value) if is_extension(name, value) => {}
            // The error does not name it: what a client puts in the wrong place may be a secret.
            _ => return Err(SaslError::invalid("a SASL extension of the message is invalid")),
        }
    }
    let (scheme, token) = auth.and_then(|auth| auth.split_once(' ')).ok_or_else(wrong)?;
    let token = token.trim_start_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || !is_token(token) {
        return Err(wrong());
    }
    Ok(InitialResponse {
        authorization_id,
        token,
    })
}

/// A token that is accepted. Kafka: `OAuthBearerToken`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The name of its user.
    pub principal_name: String,
    /// When it expires, in ms since the epoch.
    pub lifetime_ms: i64,
}

/// Accepts tokens without a signature, by their claims. Only for tests: anybody can make such a token.
/// Kafka: `OAuthBearerUnsecuredValidatorCallbackHandler`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsecuredValidator {
    principal_claim: String,
    scope_claim: String,
    required_scope: Vec<String>,
    allowable_clock_skew_ms: u32,
}

impl UnsecuredValidator {
    /// Reads the options `unsecuredValidatorPrincipalClaimName`, `unsecuredValidatorScopeClaimName`, `unsecuredValidatorRequiredScope` and
    /// `unsecuredValidatorAllowableClockSkewMs` of a login module.
    ///
    /// # Errors
    /// The clock skew is negative or not a number.
    pub fn new(entry: &JaasEntry) -> Result<Self, String> {
        let option = |name: &str| {
            let value = entry.options.get(&format!("unsecuredValidator{name}"));
            value
                .map(|value| value.reveal().trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let skew = option("AllowableClockSkewMs").unwrap_or_else(|| "0".to_owned());
        Ok(Self {
            principal_claim: option("PrincipalClaimName").unwrap_or_else(|| "sub".to_owned()),
            scope_claim: option("ScopeClaimName").unwrap_or_else(|| "scope".to_owned()),
            required_scope: option("RequiredScope")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            allowable_clock_skew_ms: skew
                .parse()
                .map_err(|_| "unsecuredValidatorAllowableClockSkewMs is not a number of ms from 0 on".to_owned())?,
        })
    }

    /// The token, if it is valid now.
    ///
    /// # Errors
    /// The response for the client: JSON with a status, and the required scope if that is missing.
    pub fn validate(&self, token: &str, now_ms: i64) -> Result<Token, String> {
        let invalid = || r#"{"status":"invalid_token"}"#.to_owned();
        let claims = claims(token).ok_or_else(invalid)?;
        let seconds = |name: &str| match claims.get(name) {
            None => Some(None),
            Some(value) => value.as_f64().map(Some),
        };
        let principal = claims.get(&self.principal_claim).and_then(Value::as_str);
        let principal = principal.filter(|name| !name.trim().is_empty()).ok_or_else(invalid)?;
        let expires = seconds("exp").flatten().ok_or_else(invalid)?;
        let issued = seconds("iat").ok_or_else(invalid)?;
        let (now_ms, skew_ms) = (float(now_ms), f64::from(self.allowable_clock_skew_ms));
        if issued.is_some_and(|issued| 1000.0 * issued > now_ms + skew_ms || expires <= issued)
            || now_ms - skew_ms >= 1000.0 * expires
        {
            return Err(invalid());
        }
        let scope = self.scope(&claims).ok_or_else(invalid)?;
        if self
            .required_scope
            .iter()
            .any(|required| !scope.contains(&required.as_str()))
        {
            let required = self.required_scope.join(", ");
            return Err(
                serde_json::json!({"status": "insufficient_scope", "scope": format!("[{required}]")}).to_string(),
            );
        }
        Ok(Token {
            principal_name: principal.to_owned(),
            lifetime_ms: whole(expires * 1000.0),
        })
    }

    /// A text is one scope, a list is several. Kafka: `OAuthBearerUnsecuredJws#calculateScope`.
    fn scope<'a>(&self, claims: &'a Map<String, Value>) -> Option<Vec<&'a str>> {
        Some(match claims.get(&self.scope_claim) {
            None => Vec::new(),
            Some(Value::String(scope)) => vec![scope.trim()],
            Some(Value::Array(scopes)) => scopes.iter().filter_map(Value::as_str).map(str::trim).collect(),
            Some(_) => return None,
        })
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "times of tokens are floating-point numbers, as in Kafka"
)]
fn float(ms: i64) -> f64 {
    ms as f64
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a float that is too large becomes the largest number"
)]
fn whole(ms: f64) -> i64 {
    ms.round() as i64
}

/// The claims of a token whose header says that it has no signature, and which has none. Kafka: `OAuthBearerUnsecuredJws`.
fn claims(token: &str) -> Option<Map<String, Value>> {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, ""] = parts[..] else {
        return None;
    };
    let object = |part: &str| {
        let part = part.replace('+', "-").replace('/', "_");
        match serde_json::from_slice(&BASE64_URL.decode(part).ok()?).ok()? {
            Value::Object(object) => Some(object),
            _ => None,
        }
    };
    let (header, claims) = (object(header)?, object(claims)?);
    (header.get("alg")?.as_str()? == "none").then_some(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jaas;

    fn jwt(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64_URL.encode(text).trim_end_matches('=').to_owned();
        format!("{}.{}.", encode(header), encode(claims))
    }

    fn validator(options: &str) -> UnsecuredValidator {
        let entries = jaas::parse(&format!("OAuthBearerLoginModule required {options};")).unwrap();
        UnsecuredValidator::new(&entries[0]).unwrap()
    }

    #[test]
    fn a_message_comes_back() {
        let extensions = BTreeMap::from([("traceId".to_owned(), "12 3".to_owned())]);
        let bytes = encode(&Secret::new("a.b-c_d."), &extensions).unwrap();
        assert_eq!(bytes, b"n,,\x01auth=Bearer a.b-c_d.\x01traceId=12 3\x01\x01");
        assert_eq!(decode(&bytes).unwrap().token, "a.b-c_d.");
        assert_eq!(
            decode(b"n,a=me,\x01auth=bearer  x\x01\x01").unwrap().authorization_id,
            "me"
        );
        for name in ["auth", "", "a1"] {
            let extensions = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            assert!(encode(&Secret::new("a"), &extensions).is_err(), "{name}");
        }
        assert!(encode(&Secret::new("a\u{1}b"), &BTreeMap::new()).is_err());
    }

    #[test]
    fn messages_that_are_not_of_the_form_are_refused() {
        for message in [
            "",
            "n,,",
            "n,,\u{1}\u{1}",
            "n,,\u{1}auth=Bearer x",
            "n,,\u{1}auth=Basic x\u{1}\u{1}",
            "n,,\u{1}auth=Bearer \u{1}\u{1}",
            "n,,\u{1}a=b\u{1}\u{1}",
            "n,,\u{1}auth=Bearer x\u{1}1=b\u{1}\u{1}",
            "n,,auth=Bearer x",
            "n,b,\u{1}auth=Bearer x\u{1}\u{1}",
        ] {
            assert!(decode(message.as_bytes()).is_err(), "{message:?}");
        }
    }

    #[test]
    fn claims_decide_whether_a_token_is_valid() {
        let valid =
            |claims: &str, options: &str| validator(options).validate(&jwt(r#"{"alg":"none"}"#, claims), 1_000_000);
        let token = valid(r#"{"sub":"me","exp":1000.5,"iat":999}"#, "").unwrap();
        assert_eq!(
            token,
            Token {
                principal_name: "me".to_owned(),
                lifetime_ms: 1_000_500
            }
        );
        for claims in [
            r#"{"exp":2000}"#,
            r#"{"sub":" ","exp":2000}"#,
            r#"{"sub":1,"exp":2000}"#,
            r#"{"sub":"me"}"#,
            r#"{"sub":"me","exp":"2000"}"#,
            r#"{"sub":"me","exp":1000}"#,
            r#"{"sub":"me","exp":2000,"iat":1001}"#,
            r#"{"sub":"me","exp":2000,"iat":"x"}"#,
            r#"{"sub":"me","exp":2000,"scope":5}"#,
            "[]",
        ] {
            assert_eq!(
                valid(claims, "").unwrap_err(),
                r#"{"status":"invalid_token"}"#,
                "{claims}"
            );
        }
        let skew = "unsecuredValidatorAllowableClockSkewMs=\"1500\"";
        assert!(valid(r#"{"sub":"me","exp":1000}"#, skew).is_ok());
        assert!(valid(r#"{"sub":"me","exp":2000,"iat":1001}"#, skew).is_ok());
        let options = "unsecuredValidatorPrincipalClaimName=who unsecuredValidatorScopeClaimName=can unsecuredValidatorRequiredScope=\"a b\"";
        assert_eq!(
            valid(r#"{"who":"x","exp":2000,"can":["b","a","c"]}"#, options)
                .unwrap()
                .principal_name,
            "x"
        );
        let refused = valid(r#"{"who":"x","exp":2000,"can":"a"}"#, options).unwrap_err();
        assert_eq!(refused, r#"{"scope":"[a, b]","status":"insufficient_scope"}"#);
    }

    #[test]
    fn a_token_is_unsigned_and_says_so() {
        let claims = r#"{"sub":"me","exp":2000}"#;
        let ours = validator("");
        for token in [
            String::new(),
            "..".to_owned(),
            "a.b".to_owned(),
            format!("{}x", jwt(r#"{"alg":"none"}"#, claims)),
            jwt(r#"{"alg":"HS256"}"#, claims),
            jwt("{}", claims),
            jwt("none", claims),
        ] {
            assert!(ours.validate(&token, 0).is_err(), "{token}");
        }
    }
}
