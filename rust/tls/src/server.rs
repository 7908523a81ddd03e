//! The listener's side: its certificate, and whether clients must have one.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, ServerConfig, ServerConnection};

use crate::failure::Side;
use crate::session::Session;
use crate::stores::{KeyStore, provider, roots, trust_store, versions};

/// TLS of one listener.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Takes the settings from the properties `ssl.*` of a broker. Reads the files that they name.
    ///
    /// # Errors
    /// There is no certificate, a file cannot be read, or its parts do not match.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let Some(key_store) = KeyStore::of(config)? else {
            return Err(ConfigError::Conflict(
                "a listener that speaks TLS needs a certificate: give ssl.keystore.location (a PEM file with certificate and private key), or ssl.keystore.certificate.chain with ssl.keystore.key".to_owned(),
            ));
        };
        let (chain, key, source) = key_store.into_parts();
        let provider = provider();
        let usable = |error: Error| ConfigError::Conflict(format!("TLS cannot be set up: {error}"));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(config)?)
            .map_err(usable)?;
        let wanted = config.text("ssl.client.auth");
        let builder = if wanted == "none" {
            builder.with_no_client_auth()
        } else {
            let Some(trusted) = trust_store(config)? else {
                return Err(ConfigError::Conflict(format!(
                    "ssl.client.auth={wanted} needs the authorities whose certificates are accepted: give ssl.truststore.location"
                )));
            };
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(&trusted)?, provider);
            let verifier = match wanted {
                "requested" => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| ConfigError::Conflict(format!("TLS cannot be set up: {error}")))?,
            )
        };
        let config = builder.with_single_cert(chain, key);
        Ok(Self {
            config: Arc::new(config.map_err(|error| KeyStore::error(&source, &error))?),
        })
    }

    /// A connection that was accepted, before its first byte.
    ///
    /// # Errors
    /// There is no memory for its state.
    pub fn session(&self) -> Result<Session, String> {
        let connection = ServerConnection::new(Arc::clone(&self.config)).map_err(|error| error.to_string())?;
        Ok(Session::new(connection.into(), Side::Server))
    }
}
