//! TLS and SASL of a listener. Kafka: `BrokerSecurityConfigs`, `ChannelBuilders`.

use std::collections::HashMap;

use fletchlog_api::{Config, ConfigError, java_hash};
use fletchlog_broker::Broker;
use fletchlog_sasl::jaas::{self, JaasEntry};
use fletchlog_sasl::{CredentialLookup, Mechanism, ScramCredential, ScramMechanism, Secret, Token, UnsecuredValidator};
use fletchlog_tls::ServerTls;

/// The security settings of a listener.
pub(crate) struct Security {
    protocol: String,
    tls: Option<ServerTls>,
    sasl: Option<Sasl>,
}

impl Security {
    /// Reads the settings from the configuration.
    ///
    /// # Errors
    /// TLS without a certificate, SASL without a mechanism, or a mechanism without what it needs.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let protocol = config.text("security.protocol").to_owned();
        let sasl = protocol.starts_with("SASL_").then(|| Sasl::new(config)).transpose()?;
        let tls = protocol.ends_with("SSL").then(|| ServerTls::new(config)).transpose()?;
        Ok(Self { protocol, tls, sasl })
    }

    /// Name of the security protocol. Kafka: `SecurityProtocol`.
    pub(crate) fn protocol(&self) -> &str {
        &self.protocol
    }

    /// TLS of the connections, if they are encrypted.
    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// How clients authenticate, if they must.
    pub(crate) fn sasl(&self) -> Option<&Sasl> {
        self.sasl.as_ref()
    }
}

/// The mechanisms of a listener, and their users.
pub(crate) struct Sasl {
    /// In the order of the response to SaslHandshake.
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Passwords of PLAIN by user.
    plain: HashMap<String, Secret>,
    tokens: Option<UnsecuredValidator>,
    /// Longest lifetime of a session; 0: unlimited.
    pub(crate) max_reauth_ms: i64,
}

impl Sasl {
    fn new(config: &Config) -> Result<Self, ConfigError> {
        let names = config.list("sasl.enabled.mechanisms");
        let mechanisms = in_java_order(names.iter().filter_map(|name| Mechanism::from_name(name)).collect());
        if mechanisms.is_empty() {
            let text = "a listener with SASL wants a mechanism in sasl.enabled.mechanisms";
            return Err(ConfigError::Conflict(text.to_owned()));
        }
        let mut sasl = Self {
            plain: HashMap::new(),
            tokens: None,
            max_reauth_ms: config.long("connections.max.reauth.ms"),
            mechanisms,
        };
        if sasl.mechanisms.contains(&Mechanism::Plain) {
            let module = login_module(config.get("plain.sasl.jaas.config"), "plain.sasl.jaas.config")?;
            let users = module.options.into_iter();
            sasl.plain = users
                .filter_map(|(name, password)| Some((name.strip_prefix("user_")?.to_owned(), password)))
                .collect();
        }
        if sasl.mechanisms.contains(&Mechanism::OAuthBearer) {
            let name = "oauthbearer.sasl.jaas.config";
            let module = login_module(config.get("oauthbearer.sasl.jaas.config"), name)?;
            sasl.tokens = Some(UnsecuredValidator::new(&module).map_err(|reason| bad(name, &reason))?);
        }
        Ok(sasl)
    }

    /// The users' credentials, at this time.
    pub(crate) fn users<'a>(&'a self, broker: &'a Broker, now_ms: i64) -> impl CredentialLookup + 'a {
        Users {
            sasl: self,
            broker,
            now_ms,
        }
    }
}

fn bad(name: &str, reason: &str) -> ConfigError {
    ConfigError::Conflict(format!("{name}: {reason}"))
}

/// The one login module of a property.
fn login_module(config: Option<&str>, name: &str) -> Result<JaasEntry, ConfigError> {
    let config = config.ok_or_else(|| bad(name, "its mechanism is enabled, and it is not set"))?;
    let mut modules = jaas::parse(config).map_err(|error| bad(name, &error.to_string()))?;
    match (modules.pop(), modules.is_empty()) {
        (Some(module), true) => Ok(module),
        _ => Err(bad(name, "it has more than one login module")),
    }
}

/// Sorts the mechanisms as Kafka lists them: in the order of a `HashSet`. Kafka: `SaslServerAuthenticator`'s constructor.
fn in_java_order(mut mechanisms: Vec<Mechanism>) -> Vec<Mechanism> {
    let mut seen = Vec::new();
    mechanisms.retain(|mechanism| {
        !seen.contains(mechanism) && {
            seen.push(*mechanism);
            true
        }
    });
    let hashes: Vec<i32> = mechanisms
        .iter()
        .map(|mechanism| java_hash::string_hash(mechanism.name()))
        .collect();
    let order = java_hash::walk_order(&hashes, java_hash::hash_set_capacity(hashes.len()));
    order.into_iter().map(|index| mechanisms[index]).collect()
}

struct Users<'a> {
    sasl: &'a Sasl,
    broker: &'a Broker,
    now_ms: i64,
}

impl CredentialLookup for Users<'_> {
    fn plain(&self, username: &str) -> Option<&str> {
        self.sasl.plain.get(username).map(Secret::reveal)
    }

    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        self.broker.scram_credential(mechanism, username)
    }

    fn token(&self, token: &str) -> Result<Token, String> {
        let tokens = self.sasl.tokens.as_ref().ok_or_else(String::new)?;
        tokens.validate(token, self.now_ms)
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::Scope;

    use super::*;

    fn security(given: &[(&str, &str)]) -> Result<Security, String> {
        let config = Config::parse(Scope::Broker, given.iter().copied()).unwrap();
        Security::new(&config).map_err(|error| error.to_string())
    }

    const SASL: (&str, &str) = ("security.protocol", "SASL_PLAINTEXT");

    #[test]
    fn users_of_plain_are_those_of_the_login_module() {
        let jaas = (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            "PlainLoginModule required password=own user_alice=\"a;b\" user_bob='c';",
        );
        let security = security(&[SASL, ("sasl.enabled.mechanisms", "PLAIN"), jaas]).unwrap();
        let mut users: Vec<_> = security
            .sasl()
            .unwrap()
            .plain
            .iter()
            .map(|(n, p)| (n.as_str(), p.reveal()))
            .collect();
        users.sort_unstable();
        assert_eq!(users, [("alice", "a;b"), ("bob", "c")]);
    }

    #[test]
    fn what_a_mechanism_needs_must_be_there() {
        assert!(security(&[SASL]).err().unwrap().contains("sasl.enabled.mechanisms"));
        for mechanism in ["PLAIN", "OAUTHBEARER"] {
            let error = security(&[SASL, ("sasl.enabled.mechanisms", mechanism)]).err().unwrap();
            assert!(error.contains("sasl.jaas.config"), "{error}");
        }
        let broken = ("plain.sasl.jaas.config", "PlainLoginModule required user_a=secret");
        let error = security(&[SASL, ("sasl.enabled.mechanisms", "PLAIN"), broken])
            .err()
            .unwrap();
        assert!(error.contains("semi-colon") && !error.contains("secret"), "{error}");
        assert!(security(&[]).unwrap().sasl().is_none());
    }
}
