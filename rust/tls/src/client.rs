//! The client's side: which authorities it trusts, and its own certificate.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::failure::Side;
use crate::session::Session;
use crate::stores::{KeyStore, provider, roots, trust_store, versions};

/// TLS to the brokers of one client.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    shows_certificate: bool,
}

impl ClientTls {
    /// Takes the settings from the properties `ssl.*`. Reads the files that they name.
    ///
    /// # Errors
    /// A file cannot be read, is not PEM, or its parts do not match.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let trusted = match trust_store(config)? {
            Some(given) => given,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let provider = provider();
        let usable = |error: Error| ConfigError::Conflict(format!("TLS cannot be set up: {error}"));
        let webpki = WebPkiServerVerifier::builder_with_provider(roots(&trusted)?, Arc::clone(&provider));
        let verifier = BrokerVerifier {
            webpki: webpki
                .build()
                .map_err(|error| ConfigError::Conflict(format!("TLS cannot be set up: {error}")))?,
            checks_name: config.text("ssl.endpoint.identification.algorithm") == "https",
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(config)?)
            .map_err(usable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let key_store = KeyStore::of(config)?;
        let shows_certificate = key_store.is_some();
        let config = match key_store.map(KeyStore::into_parts) {
            None => builder.with_no_client_auth(),
            Some((chain, key, source)) => {
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| KeyStore::error(&source, &error))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            shows_certificate,
        })
    }

    /// A connection to this host, before its first byte.
    ///
    /// # Errors
    /// The host is neither a DNS name nor an address.
    pub fn session(&self, host: &str) -> Result<Session, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("`{host}` is no name that TLS can check"))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| error.to_string())?;
        let side = Side::Client {
            host: host.into(),
            shows_certificate: self.shows_certificate,
        };
        Ok(Session::new(connection.into(), side))
    }
}

/// Checks the chain of a broker's certificate and, unless ssl.endpoint.identification.algorithm is empty, its names.
#[derive(Debug)]
struct BrokerVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    checks_name: bool,
}

impl ServerCertVerifier for BrokerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self
            .webpki
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The names are checked last, so the chain and the dates are valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
