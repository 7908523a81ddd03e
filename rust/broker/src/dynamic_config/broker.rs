//! Which properties of a broker can be altered while it runs, and to what. Kafka: `DynamicBrokerConfig`, `DynamicThreadPool`,
//! `DynamicLogConfig`.

use fletchlog_api::config_table::{Kind, kafka_refusal_of, keys};
use fletchlog_api::{Config, ConfigError, ErrorCode, NodeId, Scope};

use super::consumer_group::ConsumerGroupConfig;
use super::share_group::ShareGroupConfig;
use super::{BrokerConfigs, Properties, refused};
use crate::BrokerError;
use crate::topic_config::{TOPIC_CONFIG_SYNONYMS, TopicConfig};

/// Kept for all nodes together, and always set. Kafka: with `eligible.leader.replicas.version` 1.
pub(super) const MIN_IN_SYNC: &str = "min.insync.replicas";

/// Properties of the table that can be altered, in addition to those that topics inherit.
const DYNAMIC: &[&str] = &[
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.io.threads",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
];

const COUNT: Kind = Kind::Int(1, i32::MAX);
const ANY_INT: Kind = Kind::Int(i32::MIN, i32::MAX);
const SIZE: Kind = Kind::Long(0, i64::MAX);
const POSITIVE: Kind = Kind::Long(1, i64::MAX);
const RATIO: Kind = Kind::Double(0.0, 1.0);

/// Properties that Kafka can alter while a broker runs, for features that this broker does not have. They are kept and described, but
/// have no effect. Name, type, default. Kafka: `DynamicBrokerConfig#ALL_DYNAMIC_CONFIGS`, `QuotaConfig#brokerQuotaConfigs`.
const WITHOUT_EFFECT: &[(&str, Kind, Option<&str>)] = &[
    ("background.threads", COUNT, Some("10")),
    ("follower.fetch.last.tiered.offset.enable", Kind::Boolean, Some("false")),
    ("follower.replication.throttled.rate", SIZE, None),
    ("group.coordinator.cached.buffer.max.bytes", ANY_INT, Some("1048588")),
    (
        "group.streams.assignment.interval.ms",
        Kind::Int(0, i32::MAX),
        Some("1000"),
    ),
    ("leader.replication.throttled.rate", SIZE, None),
    (
        "log.cleaner.io.buffer.load.factor",
        Kind::Double(0.0, f64::MAX),
        Some("0.9"),
    ),
    ("log.cleaner.io.buffer.size", Kind::Int(0, i32::MAX), Some("524288")),
    (
        "log.cleaner.io.max.bytes.per.second",
        Kind::Double(0.0, f64::MAX),
        Some("1.7976931348623157E308"),
    ),
    ("log.cleaner.threads", Kind::Int(0, i32::MAX), Some("1")),
    ("log.local.retention.bytes", Kind::Long(-2, i64::MAX), Some("-2")),
    ("log.local.retention.ms", Kind::Long(-2, i64::MAX), Some("-2")),
    ("log.preallocate", Kind::Boolean, Some("false")),
    ("log.remote.copy.lag.bytes", Kind::Long(-1, i64::MAX), Some("-1")),
    ("log.remote.copy.lag.ms", Kind::Long(-1, i64::MAX), Some("0")),
    ("num.network.threads", COUNT, Some("3")),
    ("num.recovery.threads.per.data.dir", COUNT, Some("2")),
    ("num.replica.fetchers", COUNT, Some("1")),
    ("remote.fetch.max.wait.ms", COUNT, Some("500")),
    ("remote.list.offsets.request.timeout.ms", POSITIVE, Some("30000")),
    (
        "remote.log.index.file.cache.total.size.bytes",
        POSITIVE,
        Some("1073741824"),
    ),
    ("remote.log.manager.copier.thread.pool.size", COUNT, Some("10")),
    (
        "remote.log.manager.copy.max.bytes.per.second",
        POSITIVE,
        Some("9223372036854775807"),
    ),
    ("remote.log.manager.expiration.thread.pool.size", COUNT, Some("10")),
    (
        "remote.log.manager.fetch.max.bytes.per.second",
        POSITIVE,
        Some("9223372036854775807"),
    ),
    ("remote.log.manager.follower.thread.pool.size", COUNT, Some("2")),
    ("remote.log.reader.threads", COUNT, Some("10")),
    ("replica.alter.log.dirs.io.max.bytes.per.second", SIZE, None),
    ("sasl.kerberos.kinit.cmd", Kind::Text, Some("/usr/bin/kinit")),
    (
        "sasl.kerberos.min.time.before.relogin",
        Kind::Long(i64::MIN, i64::MAX),
        Some("60000"),
    ),
    (
        "sasl.kerberos.principal.to.local.rules",
        Kind::ListOf(&[]),
        Some("DEFAULT"),
    ),
    ("sasl.kerberos.service.name", Kind::Text, None),
    ("sasl.kerberos.ticket.renew.jitter", RATIO, Some("0.05")),
    ("sasl.kerberos.ticket.renew.window.factor", RATIO, Some("0.8")),
    ("share.coordinator.cached.buffer.max.bytes", ANY_INT, Some("1048588")),
];

/// Numbers of threads: one change can at most double or halve them. Kafka: `DynamicThreadPool`.
const THREADS: &[&str] = &[
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
];

/// Kafka can alter these for one listener, under the listener's name. Here a listener keeps the certificates that it started with.
/// Kafka: `SslConfigs#RECONFIGURABLE_CONFIGS`.
const OF_A_LISTENER: &[&str] = &[
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Whether this property has an effect here: it is in the broker's table.
pub(crate) fn is_of_table(name: &str) -> bool {
    keys(Scope::Broker).iter().any(|key| key.name == name)
}

/// Whether a property of a broker can be altered while it runs.
pub(crate) fn is_dynamic(name: &str) -> bool {
    DYNAMIC.contains(&name)
        || TOPIC_CONFIG_SYNONYMS.iter().any(|(_, synonym)| *synonym == name)
        || WITHOUT_EFFECT.iter().any(|(known, ..)| *known == name)
}

/// Type and default of a property that can be altered but has no effect here.
pub(crate) fn kind_of(name: &str) -> Option<(Kind, Option<&'static str>)> {
    let row = WITHOUT_EFFECT.iter().find(|(known, ..)| *known == name)?;
    Some((row.1, row.2))
}

/// Checks that these are valid as all properties set for `node`, or for all nodes.
pub(super) fn validate(properties: &Properties, now: &BrokerConfigs, node: NodeId) -> Result<(), BrokerError> {
    let refuse = |text: String| Err(refused(ErrorCode::INVALID_REQUEST, text));
    let names = |is_wrong: &dyn Fn(&str) -> bool| {
        let wrong: Vec<&str> = properties.keys().map(String::as_str).filter(|n| is_wrong(n)).collect();
        (!wrong.is_empty()).then(|| wrong.join(", "))
    };
    if let Some(names) = names(&|name| !is_dynamic(name) && !OF_A_LISTENER.contains(&name)) {
        return refuse(format!("Cannot update these configs dynamically: [{names}]"));
    }
    if let Some(names) = names(&|name| OF_A_LISTENER.contains(&name)) {
        return refuse(format!(
            "These security configs can be dynamically updated only per-listener using the listener prefix: [{names}]"
        ));
    }
    let mut config = now.fixed().clone();
    for (name, value) in properties {
        let refusal = match kind_of(name) {
            Some((kind, _)) => kafka_refusal_of(name, &kind, value),
            None => match config.clone().with([(&**name, &**value)]) {
                Ok(changed) => {
                    config = changed;
                    None
                }
                Err(error) => Some(error.kafka_message()),
            },
        };
        if let Some(text) = refusal {
            return refuse(text);
        }
    }
    let text = threads_refusal(properties, now.of(node)).or_else(|| refusal_together(&config));
    text.map_or(Ok(()), refuse)
}

fn threads_refusal(properties: &Properties, now: &Config) -> Option<String> {
    properties.iter().find_map(|(name, value)| {
        if !THREADS.contains(&name.as_str()) {
            return None;
        }
        let current = match kind_of(name) {
            Some((_, default)) => default?,
            None => now.get(name)?,
        };
        let (new, current): (i64, i64) = (value.parse().ok()?, current.parse().ok()?);
        let reason = if new > current.saturating_mul(2) {
            format!("value should not be greater than double the current value {current}")
        } else if new < current / 2 {
            format!("value should be at least half the current value {current}")
        } else {
            return None;
        };
        Some(format!(
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for \
             {name}={value}, {reason} for configuration Invalid dynamic configuration"
        ))
    })
}

/// What is wrong with the combination of properties that are each valid. Kafka: `KafkaConfig#validateValues`,
/// `LogCleaner#validateReconfiguration`.
fn refusal_together(config: &Config) -> Option<String> {
    const MEBIBYTE: i64 = 1024 * 1024;
    if config.long("log.cleaner.dedupe.buffer.size") < MEBIBYTE && config.is_explicit("log.cleaner.dedupe.buffer.size")
    {
        return Some(
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.".to_owned(),
        );
    }
    if config.int("max.connections.per.ip") == 0 && config.text("max.connections.per.ip.overrides").is_empty() {
        return Some(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
                .to_owned(),
        );
    }
    let is_override = |item: &&str| {
        let number = item.rsplit_once(':').map(|(_, number)| number.trim().parse::<u32>());
        matches!(number, Some(Ok(_)))
    };
    let overrides = config.list("max.connections.per.ip.overrides");
    if let Some(wrong) = overrides.iter().find(|item| !is_override(item)) {
        return Some(format!(
            "Error parsing configuration property 'max.connections.per.ip.overrides': `{wrong}` is not an address and a number, as in \
             127.0.0.1:100"
        ));
    }
    let log = Config::parse(Scope::Topic, []).map(|topic| TopicConfig::new(config, &topic));
    log.and_then(|log| log.validate())
        .and_then(|()| ConsumerGroupConfig::new(config).validate(config))
        .and_then(|()| ShareGroupConfig::new(config).validate())
        .err()
        .map(|error: ConfigError| error.kafka_message())
}
