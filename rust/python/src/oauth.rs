//! Tokens of OAUTHBEARER from Python: `oauth_cb`, or the token endpoint that the properties name.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::Config;
use fletchlog_net::{Token, TokenSource};
use fletchlog_sasl::jaas;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::as_dict;
use crate::engine_threads::call_python;
use crate::errors::Failure;

/// confluent-kafka's name of the function that returns a token.
pub const CALLBACK: &str = "oauth_cb";

/// A Python function. As in confluent-kafka, it is called in its own thread with sasl.oauthbearer.config, which is always empty here.
struct Callback(Py<PyAny>);

impl TokenSource for Callback {
    fn token(&self, _: i64) -> Result<Token, String> {
        let token = call_python(|py| {
            let answer = self.0.call1(py, ("",)).map_err(|error| describe(py, &error))?;
            token_of(answer.bind(py)).map_err(|error| describe(py, &error))
        });
        token.unwrap_or_else(|| Err(format!("{CALLBACK} is not called while the interpreter ends")))
    }
}

fn describe(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).to_string();
    format!("{CALLBACK} raised {name}: {}", error.value(py))
}

/// Converts `(token, end)`, `(token, end, principal)` or `(token, end, principal, extensions)`, with the end in seconds since 1970.
fn token_of(answer: &Bound<'_, PyAny>) -> PyResult<Token> {
    let wrong = || {
        pyo3::exceptions::PyTypeError::new_err(
            "it has to return (token, end in seconds since 1970), principal and extensions may follow",
        )
    };
    let answer = answer.cast::<PyTuple>().map_err(|_| wrong())?;
    let (token, end): (String, f64) = answer.get_slice(0, 2).extract().map_err(|_| wrong())?;
    let extensions: BTreeMap<String, String> = match answer.get_item(3) {
        Ok(given) if !given.is_none() => given.extract().map_err(|_| wrong())?,
        _ => BTreeMap::new(),
    };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "an end that is too far away is the last one"
    )]
    let ends_ms = (end * 1000.0) as i64;
    Ok(Token::new(&token, ends_ms, extensions))
}

/// A configuration without the function, and the function.
type Split<'py> = (Option<Bound<'py, PyAny>>, Option<Py<PyAny>>);

/// Removes `oauth_cb` from a configuration. Returns the rest, and the function.
pub fn split_callback<'py>(config: Option<&Bound<'py, PyAny>>) -> PyResult<Split<'py>> {
    let Some(config) = config else {
        return Ok((None, None));
    };
    let unchanged = || Ok((Some(config.clone()), None));
    let Some(dict) = as_dict(config)? else {
        return unchanged();
    };
    let Some(callback) = dict.get_item(CALLBACK)? else {
        return unchanged();
    };
    if !callback.is_callable() {
        return Err(Failure::argument(format!(
            "{CALLBACK} is a function that returns (token, end in seconds since 1970)"
        ))
        .into());
    }
    let rest = dict.copy()?;
    rest.del_item(CALLBACK)?;
    Ok((Some(rest.into_any()), Some(callback.unbind())))
}

/// The source of a client's tokens, if the configuration names one.
pub fn token_source(
    py: Python<'_>,
    config: &Config,
    callback: Option<Py<PyAny>>,
) -> PyResult<Option<Arc<dyn TokenSource>>> {
    let callback = match callback {
        Some(callback) => Some(callback),
        None => endpoint(py, config)?,
    };
    Ok(callback.map(|function| Arc::new(Callback(function)) as Arc<dyn TokenSource>))
}

/// A function that asks the token endpoint. Kafka: `OAuthBearerLoginCallbackHandler`.
fn endpoint(py: Python<'_>, config: &Config) -> PyResult<Option<Py<PyAny>>> {
    let Some(url) = config.get("sasl.oauthbearer.token.endpoint.url") else {
        return Ok(None);
    };
    let modules = config.get("sasl.jaas.config").map(jaas::parse).transpose();
    let modules = modules.map_err(|error| Failure::argument(format!("sasl.jaas.config: {error}")))?;
    let option = |name: &str| {
        let module = modules.as_ref()?.first()?;
        Some(module.options.get(name)?.reveal().to_owned())
    };
    let id = config
        .get("sasl.oauthbearer.client.credentials.client.id")
        .map(str::to_owned)
        .or_else(|| option("clientId"));
    let secret = config
        .get("sasl.oauthbearer.client.credentials.client.secret")
        .map(str::to_owned)
        .or_else(|| option("clientSecret"));
    let scope = config
        .get("sasl.oauthbearer.scope")
        .map(str::to_owned)
        .or_else(|| option("scope"));
    let (Some(id), Some(secret)) = (id, secret) else {
        return Err(Failure::argument(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id and .client.secret",
        )
        .into());
    };
    let module = py.import("fletchlog.oauth")?;
    let function = module.call_method1("client_credentials", (url, id, secret, scope))?;
    Ok(Some(function.unbind()))
}
