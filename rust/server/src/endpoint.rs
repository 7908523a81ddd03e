//! The addresses and the properties of a listener. Kafka: `Endpoint`, `EndPoint`.

use fletchlog_api::{Config, ConfigError, NodeId};

/// One node's address, as Metadata responses give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// The properties that a listener may override.
const OF_LISTENER: &[&str] = &[
    "connection.failed.authentication.delay.ms",
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "fletchlog.request.read.timeout.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.io.threads",
    "oauthbearer.sasl.jaas.config",
    "plain.sasl.jaas.config",
    "queued.max.request.bytes",
    "queued.max.requests",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "security.protocol",
    "socket.request.max.bytes",
    "ssl.certificate.location",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
];

/// The broker's properties, overridden by those of a listener.
pub(crate) fn listener_config(broker: &Config, own: &[(String, String)]) -> Result<Config, ConfigError> {
    let config = Config::parse(broker.scope(), own.iter().map(|(name, value)| (&**name, &**value)))?;
    match config.shown().find(|(name, _)| !OF_LISTENER.contains(name)) {
        Some((name, _)) => Err(ConfigError::Conflict(format!(
            "`{name}` is a property of the broker, not of a listener"
        ))),
        None => broker.clone().with(own.iter().map(|(name, value)| (&**name, &**value))),
    }
}
