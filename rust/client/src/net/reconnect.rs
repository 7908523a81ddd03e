//! How a client goes on after connections were lost.

use fletchlog_api::Config;

use crate::backoff::ExponentialBackoff;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Reconnect {
    /// How long a node is left alone whose connection was lost.
    pub(crate) backoff: ExponentialBackoff,
    /// Without metadata for so many ms although it was wanted, or when no known node can be reached, the client begins anew with
    /// bootstrap.servers; `None`: never. Kafka: `MetadataRecoveryStrategy` (KIP-899, KIP-1102).
    pub(crate) rebootstrap_after_ms: Option<i64>,
}

impl Reconnect {
    /// As the properties of a consumer or a producer say.
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
