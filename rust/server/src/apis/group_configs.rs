//! The properties of groups and of client metrics. They belong to protocols that are not served, so they always have Kafka's
//! defaults. Kafka: `GroupConfig`, `ClientMetricsConfigs`.

use fletchlog_broker::{ConfigEntry, ConfigSource, ConfigSynonym, ConfigType};

/// Name, the broker's property with the same meaning, default. Kafka: `GroupConfig#ALL_GROUP_CONFIG_SYNONYMS`.
const GROUP: &[(&str, &str, &str)] = &[
    (
        "consumer.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
        "1000",
    ),
    (
        "consumer.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "5000",
    ),
    (
        "consumer.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "45000",
    ),
    (
        "share.assignment.interval.ms",
        "group.share.assignment.interval.ms",
        "1000",
    ),
    ("share.auto.offset.reset", "share.auto.offset.reset", "latest"),
    ("share.delivery.count.limit", "group.share.delivery.count.limit", "5"),
    (
        "share.heartbeat.interval.ms",
        "group.share.heartbeat.interval.ms",
        "5000",
    ),
    ("share.isolation.level", "share.isolation.level", "read_uncommitted"),
    (
        "share.partition.max.record.locks",
        "group.share.partition.max.record.locks",
        "2000",
    ),
    (
        "share.record.lock.duration.ms",
        "group.share.record.lock.duration.ms",
        "30000",
    ),
    (
        "share.renew.acknowledge.enable",
        "share.renew.acknowledge.enable",
        "true",
    ),
    ("share.session.timeout.ms", "group.share.session.timeout.ms", "45000"),
    (
        "streams.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "1000",
    ),
    (
        "streams.heartbeat.interval.ms",
        "group.streams.heartbeat.interval.ms",
        "5000",
    ),
    (
        "streams.initial.rebalance.delay.ms",
        "group.streams.initial.rebalance.delay.ms",
        "3000",
    ),
    (
        "streams.num.standby.replicas",
        "group.streams.num.standby.replicas",
        "0",
    ),
    (
        "streams.session.timeout.ms",
        "group.streams.session.timeout.ms",
        "45000",
    ),
];

/// Name, type, default. Kafka: `ClientMetricsConfigs`.
const CLIENT_METRICS: &[(&str, ConfigType, &str)] = &[
    ("interval.ms", ConfigType::Int, "300000"),
    ("match", ConfigType::List, ""),
    ("metrics", ConfigType::List, ""),
];

pub(super) fn group() -> Vec<ConfigEntry> {
    let described = |(name, synonym, value): &(&'static str, &'static str, &str)| {
        let config_type = match *value {
            "true" => ConfigType::Boolean,
            number if number.parse::<i32>().is_ok() => ConfigType::Int,
            _ => ConfigType::String,
        };
        let synonym = ConfigSynonym {
            name: synonym,
            value: (*value).to_owned(),
            source: ConfigSource::DefaultConfig,
        };
        entry(name, value, config_type, vec![synonym])
    };
    GROUP.iter().map(described).collect()
}

pub(super) fn client_metrics() -> Vec<ConfigEntry> {
    let described =
        |(name, config_type, value): &(&'static str, ConfigType, &str)| entry(name, value, *config_type, Vec::new());
    CLIENT_METRICS.iter().map(described).collect()
}

fn entry(name: &'static str, value: &str, config_type: ConfigType, synonyms: Vec<ConfigSynonym>) -> ConfigEntry {
    ConfigEntry {
        name,
        value: Some(value.to_owned()),
        source: ConfigSource::DefaultConfig,
        read_only: false,
        synonyms,
        config_type,
        documentation: "Of a protocol that this broker does not serve.",
    }
}
