//! The credentials of a client: a user and a password, or a token from a function or a token endpoint. Kafka: `SaslConfigs`, `JaasContext`,
//! `ExpiringCredentialRefreshingLogin`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fletchlog_api::{Clock, Config, ConfigError};
use fletchlog_sasl::jaas::{self, JaasEntry};
use fletchlog_sasl::{Credentials, Mechanism, Secret, UnsecuredLogin};

/// A token is replaced when this percentage of its life is over. Kafka: sasl.login.refresh.window.factor.
const REFRESH_PERCENT: i64 = 80;
/// After a failure, no token is requested for this long, ms.
const AGAIN_MS: i64 = 1000;

/// A token of OAUTHBEARER. `Debug` does not show it.
#[derive(Debug, Clone)]
pub struct Token {
    pub(crate) credentials: Credentials,
    expires_ms: i64,
}

impl Token {
    /// `expires_ms`: since 1970. `extensions`: SASL extensions.
    pub fn new(token: &str, expires_ms: i64, extensions: BTreeMap<String, String>) -> Self {
        let token = Secret::new(token);
        Self {
            credentials: Credentials::Token { token, extensions },
            expires_ms,
        }
    }
}

/// A source of tokens. It is called in a thread of its own, so it may wait.
pub trait TokenSource: Send + Sync {
    /// A new token, or why there is none; the reason is shown to the user. `now_ms`: since 1970.
    ///
    /// # Errors
    /// There is no token.
    fn token(&self, now_ms: i64) -> Result<Token, String>;
}

/// The SASL mechanism of a client, and the source of its credentials.
pub(crate) struct Sasl {
    pub(crate) mechanism: Mechanism,
    source: Source,
}

enum Source {
    Password(Credentials),
    Tokens(Arc<Tokens>),
}

/// The mechanism and the user, for errors.
impl fmt::Display for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SASL {}", self.mechanism.name())?;
        match &self.source {
            Source::Password(Credentials::Password { username, .. }) => write!(f, ", user `{username}`"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Sasl {
    /// Reads the properties `sasl.*`. `tokens`: the source that was given for OAUTHBEARER.
    ///
    /// # Errors
    /// There is no mechanism, or a property that it needs is missing.
    pub(crate) fn new(config: &Config, tokens: Option<Arc<dyn TokenSource>>) -> Result<Self, ConfigError> {
        let wanted = config.get("sasl.mechanism").and_then(Mechanism::from_name);
        let mechanism = wanted.ok_or_else(|| {
            let all: Vec<&str> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
            conflict(format_args!(
                "security.protocol with SASL needs sasl.mechanism: {}",
                all.join(", ")
            ))
        })?;
        let module = config
            .get("sasl.jaas.config")
            .map(|text| login_module(text, mechanism))
            .transpose()?;
        let source = match mechanism {
            Mechanism::OAuthBearer => Source::Tokens(Arc::new(Tokens::new(token_source(module.as_ref(), tokens)?))),
            _ => Source::Password(password(config, module.as_ref(), mechanism)?),
        };
        Ok(Self { mechanism, source })
    }

    /// User and password; `None`: tokens.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        match &self.source {
            Source::Password(credentials) => Some(credentials),
            Source::Tokens(_) => None,
        }
    }

    /// The source of tokens; `None`: a password.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        match &self.source {
            Source::Password(_) => None,
            Source::Tokens(tokens) => Some(tokens),
        }
    }
}

fn conflict(text: impl ToString) -> ConfigError {
    ConfigError::Conflict(text.to_string())
}

/// The login module of sasl.jaas.config, which must belong to the mechanism. Kafka: `JaasContext#loadClientContext`.
fn login_module(text: &str, mechanism: Mechanism) -> Result<JaasEntry, ConfigError> {
    let mut modules = jaas::parse(text).map_err(|error| conflict(format_args!("sasl.jaas.config: {error}")))?;
    let (Some(module), true) = (modules.pop(), modules.is_empty()) else {
        return Err(conflict("sasl.jaas.config: it has more than one login module"));
    };
    let class = match mechanism {
        Mechanism::Plain => "PlainLoginModule",
        Mechanism::Scram(_) => "ScramLoginModule",
        Mechanism::OAuthBearer => "OAuthBearerLoginModule",
    };
    match module.login_module.rsplit('.').next() == Some(class) {
        true => Ok(module),
        false => Err(conflict(format_args!(
            "sasl.jaas.config: the login module of {} is {class}, not {}",
            mechanism.name(),
            module.login_module
        ))),
    }
}

fn password(config: &Config, module: Option<&JaasEntry>, mechanism: Mechanism) -> Result<Credentials, ConfigError> {
    let option = |name: &str| module.and_then(|module| module.options.get(name)).map(Secret::reveal);
    let username = option("username").or(config.get("sasl.username"));
    let password = option("password").or(config.get("sasl.password"));
    let (Some(username), Some(password)) = (username, password) else {
        return Err(conflict(format_args!(
            "{} needs a user and a password: give sasl.username and sasl.password, or sasl.jaas.config",
            mechanism.name()
        )));
    };
    Ok(Credentials::Password {
        username: username.to_owned(),
        password: Secret::new(password),
        is_token: option("tokenauth").is_some_and(|value| value.eq_ignore_ascii_case("true")),
    })
}

fn token_source(
    module: Option<&JaasEntry>,
    given: Option<Arc<dyn TokenSource>>,
) -> Result<Arc<dyn TokenSource>, ConfigError> {
    if let Some(given) = given {
        return Ok(given);
    }
    let unsecured = module.filter(|module| module.options.keys().any(|name| name.starts_with("unsecuredLogin")));
    let Some(module) = unsecured else {
        return Err(conflict(
            "OAUTHBEARER needs tokens: give oauth_cb (a function that returns one), or sasl.oauthbearer.token.endpoint.url with the client's id and secret",
        ));
    };
    let login = UnsecuredLogin::new(module).map_err(|why| conflict(format_args!("sasl.jaas.config: {why}")))?;
    Ok(Arc::new(login))
}

impl TokenSource for UnsecuredLogin {
    fn token(&self, now_ms: i64) -> Result<Token, String> {
        let (token, expires_ms) = Self::token(self, now_ms);
        Ok(Token::new(token.reveal(), expires_ms, BTreeMap::new()))
    }
}

#[derive(Default)]
struct State {
    /// The token, and until when it is used.
    current: Option<(Token, i64)>,
    /// Why there was none, and until when no token is requested.
    failure: Option<(String, i64)>,
    is_asking: bool,
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

/// The token that all connections of a client share. Kafka: `ExpiringCredentialRefreshingLogin`.
pub(crate) struct Tokens {
    source: Arc<dyn TokenSource>,
    state: Mutex<State>,
}

impl Tokens {
    fn new(source: Arc<dyn TokenSource>) -> Self {
        Self {
            source,
            state: Mutex::default(),
        }
    }

    /// The token, or why there is none. `None`: a thread is requesting it, and will call `wake` when it is done.
    pub(crate) fn get(
        self: &Arc<Self>,
        clock: &Arc<dyn Clock>,
        wake: impl FnOnce() + Send + 'static,
    ) -> Option<Result<Token, String>> {
        let now_ms = clock.now_ms();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, _)) = state.current.as_ref().filter(|(_, until_ms)| now_ms < *until_ms) {
            return Some(Ok(token.clone()));
        }
        if let Some((why, _)) = state.failure.as_ref().filter(|(_, until_ms)| now_ms < *until_ms) {
            return Some(Err(why.clone()));
        }
        state.waiting.push(Box::new(wake));
        if !std::mem::replace(&mut state.is_asking, true) {
            let (tokens, clock) = (Arc::clone(self), Arc::clone(clock));
            let thread = std::thread::Builder::new().name("fletchlog-token".to_owned());
            if let Err(error) = thread.spawn(move || tokens.ask(&*clock)) {
                state.is_asking = false;
                return Some(Err(format!("no thread can ask for it: {error}")));
            }
        }
        None
    }

    fn ask(&self, clock: &dyn Clock) {
        let answer = self.source.token(clock.now_ms());
        let now_ms = clock.now_ms();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_asking = false;
        match answer {
            Ok(token) if token.expires_ms <= now_ms => {
                state.failure = Some(("the one that was given has expired".to_owned(), now_ms + AGAIN_MS));
            }
            Ok(token) => {
                let life_ms = token.expires_ms.saturating_sub(now_ms);
                let used_ms = i64::try_from(i128::from(life_ms) * i128::from(REFRESH_PERCENT) / 100).unwrap_or(life_ms);
                state.current = Some((token, now_ms.saturating_add(used_ms)));
            }
            Err(why) => state.failure = Some((why, now_ms + AGAIN_MS)),
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|wake| wake());
    }
}
