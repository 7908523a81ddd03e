//! Why TLS failed, and what to do about it. Kafka: `SslAuthenticationException`.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// The side that this process is on.
#[derive(Debug)]
pub(crate) enum Side {
    Client {
        /// The host that it connected to.
        host: Arc<str>,
        /// It has a certificate to present.
        shows_certificate: bool,
    },
    Server,
}

/// TLS failed on a connection. A retry fails in the same way until a setting is changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsFailure(Arc<str>);

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        Self::new(io::ErrorKind::InvalidData, failure)
    }
}

impl TlsFailure {
    /// The TLS failure inside an error of [`crate::Session`]; `None` if the error is the socket's.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(crate) fn new(side: &Side, error: &Error) -> Self {
        Self(
            match side {
                Side::Client {
                    host,
                    shows_certificate,
                } => of_client(host, *shows_certificate, error),
                Side::Server => of_server(error),
            }
            .into(),
        )
    }
}

fn of_client(host: &str, shows_certificate: bool, error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(host, error),
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the broker does not speak TLS on this port: connect to its port for TLS, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT".to_owned()
        }
        Error::AlertReceived(alert) => of_alert(*alert, shows_certificate),
        Error::PeerIncompatible(why) => format!("TLS failed: the broker knows no version or cipher that this client does ({why:?}): see ssl.enabled.protocols"),
        other => format!("TLS failed: {other}"),
    }
}

fn of_certificate(host: &str, error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the broker's certificate has expired: it needs a new one (or this machine's clock is wrong)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the broker's certificate is not valid yet: is this machine's clock right?".to_owned()
        }
        CertificateError::UnknownIssuer => "the broker's certificate was signed by an authority that is not trusted: name the certificate of the authority by ssl.truststore.location (PEM)".to_owned(),
        CertificateError::NotValidForName => of_name(host, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => of_name(host, presented),
        CertificateError::Other(_) => format!("the broker's certificate is refused: {error}. Is it the certificate of an authority (CA:TRUE)? A broker needs one of its own, signed by the authority"),
        other => format!("the broker's certificate is refused: {other}"),
    }
}

fn of_name(host: &str, names: &[String]) -> String {
    let names = match names {
        [] => "other names".to_owned(),
        some => some.join(", "),
    };
    format!(
        "the broker's certificate is for {names} and not for `{host}`, which was connected to: connect to a name that it has, or turn the check off with an empty ssl.endpoint.identification.algorithm"
    )
}

/// The text for an alert with which the broker ended the connection.
fn of_alert(alert: AlertDescription, shows_certificate: bool) -> String {
    match alert {
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::HandshakeFailure
            if !shows_certificate =>
        {
            format!(
                "the broker ended TLS with the alert {alert:?}: it wants a certificate of the client (ssl.client.auth=required): give ssl.keystore.location (PEM)"
            )
        }
        AlertDescription::UnknownCA | AlertDescription::CertificateUnknown | AlertDescription::BadCertificate => {
            format!(
                "the broker does not accept the certificate of this client (alert {alert:?}): it has to be signed by an authority of the broker's trust store, and valid"
            )
        }
        AlertDescription::CertificateExpired => {
            "the certificate of this client (ssl.keystore.*) has expired".to_owned()
        }
        AlertDescription::ProtocolVersion => {
            "the broker speaks no version of TLS that this client does: see ssl.enabled.protocols of both".to_owned()
        }
        other => format!("the broker ended TLS with the alert {other:?}"),
    }
}

fn of_server(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "it does not speak TLS, which this listener does: its security.protocol has to be SSL or SASL_SSL"
                .to_owned()
        }
        Error::NoCertificatesPresented => "it showed no certificate, and ssl.client.auth is required".to_owned(),
        Error::InvalidCertificate(error) => format!("its certificate is refused: {error}"),
        Error::AlertReceived(alert) => {
            format!("it ended TLS with the alert {alert:?}: it may not trust the certificate of this listener")
        }
        Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled) => {
            "it speaks no version of TLS that ssl.enabled.protocols allows".to_owned()
        }
        other => format!("TLS failed: {other}"),
    }
}
