//! The producer's settings: defaults by release, and the conflicts that Kafka refuses (spec 9.1).

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};
use fletchlog_records::Compression;

use super::release::Release;
use crate::ClientError;
use crate::net::Reconnect;

/// Settings of one producer, checked against each other.
#[derive(Debug, Clone)]
pub(crate) struct ProducerConfig {
    pub release: Release,
    pub client_id: String,
    /// -1 all, 0, 1.
    pub acks: i16,
    pub idempotent: bool,
    /// Implies `idempotent`.
    pub transactional_id: Option<Arc<str>>,
    pub transaction_timeout_ms: i32,
    pub retries: i32,
    pub max_in_flight: usize,
    pub batch_size: usize,
    pub linger_ms: i64,
    pub buffer_memory: usize,
    pub max_request_size: usize,
    pub max_block_ms: i64,
    pub delivery_timeout_ms: i64,
    pub request_timeout_ms: i64,
    pub retry_backoff_ms: i64,
    pub retry_backoff_max_ms: i64,
    pub reconnect: Reconnect,
    pub metadata_max_age_ms: i64,
    pub compression: Compression,
    pub compression_level: Option<i32>,
    pub round_robin: bool,
    pub ignore_keys: bool,
    pub adaptive: bool,
    pub availability_timeout_ms: i64,
    pub trace: bool,
}

/// The log stores the length of the id as an i16.
const MAX_TRANSACTIONAL_ID: usize = i16::MAX as usize;

fn conflict<T>(text: impl Into<String>) -> Result<T, ClientError> {
    Err(ClientError::Config(ConfigError::Conflict(text.into())))
}

impl ProducerConfig {
    /// Kafka: `ProducerConfig#postProcessParsedConfig`, `KafkaProducer#configureDeliveryTimeout`.
    pub(crate) fn new(config: &Config) -> Result<Self, ClientError> {
        let release = Release::of(config.release("fletchlog.producer.version"));
        let transactional_id: Option<Arc<str>> = config.get("transactional.id").map(Arc::from);
        let idempotent = match &transactional_id {
            Some(id) => transactional(config, id)?,
            None => idempotent(config, release)?,
        };
        let acks = match config.text("acks") {
            _ if !config.is_explicit("acks") && (idempotent || release.idempotent_by_default) => -1,
            _ if !config.is_explicit("acks") => 1,
            "0" => 0,
            "1" => 1,
            _ => -1,
        };
        let linger_ms = if !config.is_explicit("linger.ms") && release.lingers_by_default {
            5
        } else {
            config.long("linger.ms")
        };
        let request_timeout_ms = i64::from(config.int("request.timeout.ms"));
        let mut delivery_timeout_ms = i64::from(config.int("delivery.timeout.ms"));
        let least = linger_ms.saturating_add(request_timeout_ms).min(i64::from(i32::MAX));
        if delivery_timeout_ms < least {
            if config.is_explicit("delivery.timeout.ms") {
                return conflict(format!(
                    "delivery.timeout.ms ({delivery_timeout_ms}) must be at least linger.ms + request.timeout.ms ({least}): raise it or lower one of them"
                ));
            }
            log::warn!("delivery.timeout.ms raised to linger.ms + request.timeout.ms = {least}");
            delivery_timeout_ms = least;
        }
        let compression = Compression::from_name(config.text("compression.type")).unwrap_or(Compression::None);
        let compression_level = match compression {
            Compression::Gzip => Some(gzip_level(config.int("compression.gzip.level"))?),
            Compression::Lz4 => Some(config.int("compression.lz4.level")),
            Compression::Zstd => Some(config.int("compression.zstd.level")),
            Compression::None | Compression::Snappy => None,
        };
        let retry_backoff_ms = config.long("retry.backoff.ms");
        Ok(Self {
            release,
            client_id: config.text("client.id").to_owned(),
            acks,
            idempotent,
            transactional_id,
            transaction_timeout_ms: config.int("transaction.timeout.ms"),
            retries: config.int("retries"),
            max_in_flight: size(i64::from(config.int("max.in.flight.requests.per.connection"))),
            batch_size: size(i64::from(config.int("batch.size"))),
            linger_ms,
            buffer_memory: size(config.long("buffer.memory")),
            max_request_size: size(i64::from(config.int("max.request.size"))),
            max_block_ms: config.long("max.block.ms"),
            delivery_timeout_ms,
            request_timeout_ms,
            retry_backoff_ms,
            retry_backoff_max_ms: config.long("retry.backoff.max.ms").max(retry_backoff_ms),
            reconnect: Reconnect::of(config),
            metadata_max_age_ms: config.long("metadata.max.age.ms"),
            compression,
            compression_level,
            round_robin: !config.text("partitioner.class").is_empty(),
            ignore_keys: release.built_in_partitioner && config.boolean("partitioner.ignore.keys"),
            adaptive: config.boolean("partitioner.adaptive.partitioning.enable"),
            availability_timeout_ms: config.long("partitioner.availability.timeout.ms"),
            trace: config.boolean("fletchlog.trace"),
        })
    }
}

fn size(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The range in the config table includes 0, which is not a gzip level in Kafka.
fn gzip_level(level: i32) -> Result<i32, ClientError> {
    if level == 0 {
        return Err(ClientError::Config(ConfigError::Invalid {
            name: "compression.gzip.level".to_owned(),
            value: "0".to_owned(),
            reason: "expected 1 to 9, or -1 for the codec's default".to_owned(),
        }));
    }
    Ok(level)
}

/// Whether idempotence is on. A conflict with an explicit `enable.idempotence=true` is an error; with the default it switches idempotence
/// off.
fn idempotent(config: &Config, release: Release) -> Result<bool, ClientError> {
    let explicit = config.is_explicit("enable.idempotence");
    let wanted = if explicit {
        config.boolean("enable.idempotence")
    } else {
        release.idempotent_by_default
    };
    if !wanted {
        return Ok(false);
    }
    match contradiction(config) {
        None => Ok(true),
        Some(text) if explicit => conflict(text),
        Some(text) => {
            log::warn!("idempotence is switched off: {text}");
            Ok(false)
        }
    }
}

/// A transactional.id switches idempotence on; properties that contradict it are refused.
/// Kafka: `ProducerConfig#idempotenceEnabled`.
fn transactional(config: &Config, id: &str) -> Result<bool, ClientError> {
    if id.is_empty() || id.len() > MAX_TRANSACTIONAL_ID {
        return Err(ClientError::Config(ConfigError::Invalid {
            name: "transactional.id".to_owned(),
            value: id.chars().take(40).collect(),
            reason: format!(
                "expected 1 to {MAX_TRANSACTIONAL_ID} bytes of text; leave it out for a producer without transactions"
            ),
        }));
    }
    if config.is_explicit("enable.idempotence") && !config.boolean("enable.idempotence") {
        return conflict(
            "transactional.id needs enable.idempotence=true: leave enable.idempotence out, or remove transactional.id",
        );
    }
    contradiction(config).map_or(Ok(true), conflict)
}

/// The error text for a property that contradicts idempotence, if there is one.
fn contradiction(config: &Config) -> Option<String> {
    let in_flight = config.int("max.in.flight.requests.per.connection");
    if config.is_explicit("retries") && config.int("retries") == 0 {
        Some(
            "retries must not be 0 with enable.idempotence=true: raise retries, or set enable.idempotence=false"
                .to_owned(),
        )
    } else if in_flight > 5 {
        Some(format!(
            "max.in.flight.requests.per.connection ({in_flight}) must be at most 5 with enable.idempotence=true: the broker remembers 5 batches"
        ))
    } else if config.is_explicit("acks") && !matches!(config.text("acks"), "all" | "-1") {
        Some(format!(
            "acks must be all with enable.idempotence=true, not {}: set acks=all, or enable.idempotence=false",
            config.text("acks")
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::Scope;

    use super::*;

    fn parse(given: &[(&str, &str)]) -> Result<ProducerConfig, ClientError> {
        ProducerConfig::new(&Config::parse(Scope::Producer, given.iter().copied()).unwrap())
    }

    #[test]
    fn defaults_follow_the_selected_release() {
        let old = parse(&[]).unwrap();
        assert_eq!((old.acks, old.idempotent, old.linger_ms), (1, false, 0));
        let three = parse(&[("fletchlog.producer.version", "3.0")]).unwrap();
        assert_eq!((three.acks, three.idempotent, three.linger_ms), (-1, true, 0));
        let four = parse(&[("fletchlog.producer.version", "4.3.1")]).unwrap();
        assert_eq!((four.acks, four.idempotent, four.linger_ms), (-1, true, 5));
        let explicit = parse(&[("enable.idempotence", "true")]).unwrap();
        assert_eq!((explicit.acks, explicit.idempotent), (-1, true));
    }

    #[test]
    fn a_conflict_with_explicit_idempotence_is_refused_and_with_the_default_switches_it_off() {
        for (name, value) in [
            ("retries", "0"),
            ("max.in.flight.requests.per.connection", "6"),
            ("acks", "1"),
            ("acks", "0"),
        ] {
            let refused = parse(&[("enable.idempotence", "true"), (name, value)]);
            assert!(
                matches!(refused, Err(ClientError::Config(ConfigError::Conflict(_)))),
                "{name}={value}"
            );
            let off = parse(&[("fletchlog.producer.version", "3.9"), (name, value)]).unwrap();
            assert!(!off.idempotent, "{name}={value}");
        }
    }

    #[test]
    fn delivery_timeout_covers_linger_and_request_timeout() {
        assert!(parse(&[("delivery.timeout.ms", "29999")]).is_err());
        assert_eq!(
            parse(&[("delivery.timeout.ms", "30000")]).unwrap().delivery_timeout_ms,
            30_000
        );
        assert_eq!(parse(&[("linger.ms", "100000")]).unwrap().delivery_timeout_ms, 130_000);
    }

    #[test]
    fn a_transactional_id_implies_idempotence_and_refuses_what_contradicts_it() {
        let config = parse(&[("transactional.id", "t")]).unwrap();
        assert_eq!((config.acks, config.idempotent), (-1, true));
        assert_eq!(config.transactional_id.as_deref(), Some("t"));
        for (name, value) in [
            ("enable.idempotence", "false"),
            ("retries", "0"),
            ("max.in.flight.requests.per.connection", "6"),
            ("acks", "1"),
        ] {
            let refused = parse(&[("transactional.id", "t"), (name, value)]);
            assert!(
                matches!(refused, Err(ClientError::Config(ConfigError::Conflict(_)))),
                "{name}={value}"
            );
        }
        for id in ["", &"x".repeat(32_768)] {
            let refused = parse(&[("transactional.id", id)]);
            assert!(matches!(refused, Err(ClientError::Config(ConfigError::Invalid { .. }))));
        }
    }
}
