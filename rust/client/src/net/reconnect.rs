//! How a client continues after connections were lost.

use fletchlog_api::Config;

use crate::backoff::ExponentialBackoff;

/// The back-off after a lost connection, and the return to bootstrap.servers.
#[derive(Debug, Clone, Copy)]
pub struct Reconnect {
    /// How long a node is not used after its connection was lost.
    pub(crate) backoff: ExponentialBackoff,
    /// If metadata was wanted for this many ms and did not arrive, or no known node can be reached, the client restarts
    /// from bootstrap.servers; `None`: never. Kafka: `MetadataRecoveryStrategy` (KIP-899, KIP-1102).
    pub(crate) rebootstrap_after_ms: Option<i64>,
}

impl Reconnect {
    /// From the properties of a consumer or a producer.
    pub(crate) fn of(config: &Config) -> Self {
        let recovers = config.text("metadata.recovery.strategy") == "rebootstrap";
        Self {
            backoff: ExponentialBackoff::new(
                config.long("reconnect.backoff.ms"),
                config.long("reconnect.backoff.max.ms"),
            ),
            rebootstrap_after_ms: recovers.then(|| config.long("metadata.recovery.rebootstrap.trigger.ms")),
        }
    }
}
