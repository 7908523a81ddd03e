//! Key store and trust store: which certificates are trusted, and which one is presented. Kafka: `DefaultSslEngineFactory#createKeystore`,
//! `#createTruststore`.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};
use rustls::RootCertStore;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::pem::Pem;

/// This side's certificate, the authorities that signed it, and its key.
pub(crate) struct KeyStore {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Where they came from, for errors.
    source: Pem,
}

impl KeyStore {
    /// The key store of ssl.keystore.*; `None`: none is set.
    ///
    /// # Errors
    /// A file cannot be read, is not PEM, or its key cannot be read.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, ConfigError> {
        let kind = config.text("ssl.keystore.type");
        let whole = file("ssl.keystore.location", config.get("ssl.keystore.location"), kind)?;
        let of_chain = match (
            inline(
                "ssl.keystore.certificate.chain",
                config.get("ssl.keystore.certificate.chain"),
            ),
            file("ssl.certificate.location", config.get("ssl.certificate.location"), kind)?,
        ) {
            (Some(text), _) => Some(text),
            (None, file) => file,
        };
        let of_key = match (
            inline("ssl.keystore.key", config.get("ssl.keystore.key")),
            file("ssl.key.location", config.get("ssl.key.location"), kind)?,
        ) {
            (Some(text), _) => Some(text),
            (None, file) => file,
        };
        let password = config.get("ssl.key.password");
        let (chain, key, source) = match (whole, of_chain, of_key) {
            (None, None, None) => return Ok(None),
            (Some(store), None, None) => (store.certificates()?, store.key(password)?, store),
            (None, Some(chain), Some(key)) => (chain.certificates()?, key.key(password)?, chain),
            (None, Some(one), None) | (None, None, Some(one)) => {
                return Err(one.error("a certificate needs its key and a key its certificate: give both, ssl.keystore.certificate.chain with ssl.keystore.key or ssl.certificate.location with ssl.key.location"));
            }
            (Some(store), ..) => {
                return Err(store.error("the certificate is given twice: in this file and in another property"));
            }
        };
        Ok(Some(Self { chain, key, source }))
    }

    /// Converts an error of rustls about a certificate and its key.
    pub(crate) fn error(source: &Pem, error: &rustls::Error) -> ConfigError {
        source.error(match error {
            rustls::Error::InconsistentKeys(_) => "the private key is not that of the certificate".to_owned(),
            other => format!("certificate and key cannot be used: {other}"),
        })
    }

    /// Certificate, key, and where they came from.
    pub(crate) fn into_parts(self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, Pem) {
        (self.chain, self.key, self.source)
    }
}

/// The authorities of ssl.truststore.*; `None`: none is set.
///
/// # Errors
/// A file cannot be read or has no certificates.
pub(crate) fn trust_store(config: &Config) -> Result<Option<Vec<CertificateDer<'static>>>, ConfigError> {
    let kind = config.text("ssl.truststore.type");
    let text = inline("ssl.truststore.certificates", config.get("ssl.truststore.certificates"));
    let file = file("ssl.truststore.location", config.get("ssl.truststore.location"), kind)?;
    match (text, file) {
        (Some(_), Some(file)) => {
            Err(file.error("the trusted certificates are given twice: in this file and in ssl.truststore.certificates"))
        }
        (None, None) => Ok(None),
        (Some(pem), None) | (None, Some(pem)) => pem.certificates().map(Some),
    }
}

/// The authorities in the form that rustls needs.
///
/// # Errors
/// None of them is a certificate.
pub(crate) fn roots(certificates: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, ConfigError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(ConfigError::Conflict(
            "none of the trusted certificates can be read; without ssl.truststore.location the system has to have some"
                .to_owned(),
        ));
    }
    Ok(Arc::new(roots))
}

/// ssl.enabled.protocols.
///
/// # Errors
/// It is empty.
pub(crate) fn versions(config: &Config) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
    let enabled = config.list("ssl.enabled.protocols");
    let known = [
        ("TLSv1.3", &rustls::version::TLS13),
        ("TLSv1.2", &rustls::version::TLS12),
    ];
    let versions: Vec<_> = known.into_iter().filter(|(name, _)| enabled.contains(name)).collect();
    match versions.is_empty() {
        true => Err(ConfigError::Conflict(
            "ssl.enabled.protocols names no version of TLS".to_owned(),
        )),
        false => Ok(versions.into_iter().map(|(_, version)| version).collect()),
    }
}

/// The implementation of the cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn inline(property: &'static str, text: Option<&str>) -> Option<Pem> {
    let text = text.filter(|text| !text.is_empty())?.to_owned();
    Some(Pem {
        property,
        file: None,
        text,
    })
}

/// The file that a property names.
///
/// # Errors
/// It cannot be read, or is a Java key store.
fn file(property: &'static str, path: Option<&str>, kind: &str) -> Result<Option<Pem>, ConfigError> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let mut pem = Pem {
        property,
        file: Some(path.to_owned()),
        text: String::new(),
    };
    let bytes = std::fs::read(path).map_err(|error| pem.error(format!("it cannot be read: {error}")))?;
    // The first bytes of a JKS store, and of the ASN.1 of a PKCS12 store.
    let is_java = bytes.starts_with(&[0xFE, 0xED, 0xFE, 0xED]) || bytes.starts_with(&[0x30]);
    if is_java || kind != "PEM" {
        return Err(pem.error(conversion(property)));
    }
    pem.text = String::from_utf8(bytes).map_err(|_| pem.error("it is no PEM text"))?;
    Ok(Some(pem))
}

/// The command that converts a Java key store to PEM.
fn conversion(property: &str) -> &'static str {
    if property.contains("truststore") {
        "only PEM is read. Convert a JKS or PKCS12 store: `keytool -list -rfc -keystore STORE > ca.pem`, then ssl.truststore.type=PEM and ssl.truststore.location=ca.pem"
    } else {
        "only PEM is read. Convert a JKS store to PKCS12: `keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12`, that to PEM: `openssl pkcs12 -in store.p12 -out keystore.pem`, then ssl.keystore.type=PEM, ssl.keystore.location=keystore.pem and ssl.key.password"
    }
}
