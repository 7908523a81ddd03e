//! TLS and SASL, which come before the first request of a connection. Kafka: `ChannelBuilders`.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};
use fletchlog_tls::ClientTls;

use crate::sasl::{Sasl, TokenSource};

/// The security settings of one client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Security {
    /// `None`: not encrypted.
    pub(crate) tls: Option<ClientTls>,
    /// `None`: no authentication.
    pub(crate) sasl: Option<Arc<Sasl>>,
}

impl Security {
    /// Reads the files that the properties name. `tokens`: for OAUTHBEARER.
    ///
    /// # Errors
    /// A file cannot be read, or the properties contradict each other.
    pub(crate) fn new(config: &Config, tokens: Option<Arc<dyn TokenSource>>) -> Result<Self, ConfigError> {
        let protocol = config.text("security.protocol");
        let tls = protocol.ends_with("SSL").then(|| ClientTls::new(config)).transpose()?;
        let sasl = protocol
            .starts_with("SASL_")
            .then(|| Sasl::new(config, tokens))
            .transpose()?;
        Ok(Self {
            tls,
            sasl: sasl.map(Arc::new),
        })
    }
}
