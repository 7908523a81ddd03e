//! What the properties of a topic or of the broker are and where each comes from. Kafka: `ConfigHelper`,
//! `KafkaConfigSchema#resolveEffectiveTopicConfigs`, `ServerTopicConfigSynonyms`, `DynamicBrokerConfig`.

use std::collections::BTreeMap;

use fletchlog_api::config_table::{ConfigKey, HIDDEN, Kind, keys};
use fletchlog_api::{Config, ConfigError, Scope};

use crate::topic_config;

/// Where a value comes from. Kafka: `ConfigEntry.ConfigSource`, `DescribeConfigsResponse.ConfigSource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    DynamicTopicConfig = 1,
    /// A default of the whole cluster: min.insync.replicas, which Kafka keeps there since eligible.leader.replicas.
    DynamicDefaultBrokerConfig = 3,
    /// Given when the broker was opened.
    StaticBrokerConfig = 4,
    /// Not set: the default.
    DefaultConfig = 5,
}

impl ConfigSource {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DynamicTopicConfig => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicDefaultBrokerConfig => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBrokerConfig => "STATIC_BROKER_CONFIG",
            Self::DefaultConfig => "DEFAULT_CONFIG",
        }
    }
    /// The number on the wire.
    pub fn id(self) -> i8 {
        self as i8
    }
}

/// Type of a value. Kafka: `ConfigDef.Type` as DescribeConfigs numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
    Password = 9,
}

impl ConfigType {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Boolean => Self::Boolean,
            Kind::Int(..) => Self::Int,
            Kind::Long(..) => Self::Long,
            Kind::Double(..) => Self::Double,
            Kind::Text | Kind::OneOf(_) | Kind::Release => Self::String,
            Kind::ListOf(_) => Self::List,
            Kind::Password => Self::Password,
            Kind::Only(kind) => Self::of(*kind),
        }
    }
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Password => "PASSWORD",
        }
    }
    /// The number on the wire.
    pub fn id(self) -> i8 {
        self as i8
    }
}

/// One place where a value could come from, see [`ConfigEntry::synonyms`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// Name of the property there.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// Where.
    pub source: ConfigSource,
}

/// One property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Name.
    pub name: &'static str,
    /// The value in effect; `None`: unset, and there is no default.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Kafka cannot change it while the broker runs.
    pub read_only: bool,
    /// All places that have a value, the one in effect first.
    pub synonyms: Vec<ConfigSynonym>,
    /// Type.
    pub config_type: ConfigType,
    /// What it does.
    pub documentation: &'static str,
}

impl ConfigEntry {
    /// Whether a Kafka broker would list it. Properties of fletchlog's own, and internal ones of Kafka, are listed only if they are set.
    pub fn is_listed(&self) -> bool {
        let own = self.name.starts_with("fletchlog.") || self.name.starts_with("internal.");
        let hidden = own || self.name == "message.timestamp.difference.max.ms";
        !hidden || self.source != ConfigSource::DefaultConfig
    }
}

/// Name of the broker's property that a topic's inherits from. Kafka: `ServerTopicConfigSynonyms`.
pub(crate) const TOPIC_CONFIG_SYNONYMS: &[(&str, &str)] = &[
    ("cleanup.policy", "log.cleanup.policy"),
    ("compression.gzip.level", "compression.gzip.level"),
    ("compression.lz4.level", "compression.lz4.level"),
    ("compression.type", "compression.type"),
    ("compression.zstd.level", "compression.zstd.level"),
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    ("fletchlog.durability", "fletchlog.durability"),
    ("fletchlog.strict.first.sequence", "fletchlog.strict.first.sequence"),
    ("flush.messages", "log.flush.interval.messages"),
    ("flush.ms", "log.flush.interval.ms"),
    ("index.interval.bytes", "log.index.interval.bytes"),
    ("local.retention.bytes", "log.local.retention.bytes"),
    ("local.retention.ms", "log.local.retention.ms"),
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("max.message.bytes", "message.max.bytes"),
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    (
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
    ),
    ("message.timestamp.type", "log.message.timestamp.type"),
    ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    ("min.insync.replicas", "min.insync.replicas"),
    ("preallocate", "log.preallocate"),
    ("retention.bytes", "log.retention.bytes"),
    ("retention.ms", "log.retention.ms"),
    ("segment.bytes", "log.segment.bytes"),
    ("segment.index.bytes", "log.index.size.max.bytes"),
    ("segment.jitter.ms", "log.roll.jitter.ms"),
    ("segment.ms", "log.roll.ms"),
    ("unclean.leader.election.enable", "unclean.leader.election.enable"),
];

/// Properties of a topic whose broker property has no default in Kafka, so that it is no synonym until it is set: the default belongs to
/// the same property in another unit.
const WITHOUT_BROKER_DEFAULT: &[&str] = &["flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms"];

/// Properties of a broker that Kafka changes while it runs, beside those that topics inherit. Kafka:
/// `DynamicBrokerConfig#ALL_DYNAMIC_CONFIGS`.
const DYNAMIC: &[&str] = &[
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "num.io.threads",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
];

/// Every property of a topic that has these set.
///
/// # Errors
/// A property that a topic cannot have.
pub(crate) fn describe_topic_config(
    broker: &Config,
    config: &BTreeMap<String, String>,
) -> Result<Vec<ConfigEntry>, ConfigError> {
    let topic = Config::parse(Scope::Topic, config.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let entries = keys(Scope::Topic).iter().map(|key| topic_entry(broker, &topic, key));
    Ok(entries.collect())
}

fn topic_entry(broker: &Config, topic: &Config, key: &'static ConfigKey) -> ConfigEntry {
    let inherited = TOPIC_CONFIG_SYNONYMS.iter().find(|(name, _)| *name == key.name);
    let value = topic_config::effective(broker, topic, key.name, inherited.map_or("", |(_, synonym)| *synonym))
        .map(|value| as_text(key.kind, &value));
    let mut synonyms = Vec::new();
    if topic.is_explicit(key.name) {
        synonyms.push(ConfigSynonym {
            name: key.name,
            value: value.clone().unwrap_or_default(),
            source: ConfigSource::DynamicTopicConfig,
        });
    }
    if let Some((_, name)) = inherited {
        let default = key.default.filter(|_| !WITHOUT_BROKER_DEFAULT.contains(&key.name));
        synonyms.extend(broker_synonyms(broker, name, default));
    }
    ConfigEntry {
        name: key.name,
        value,
        source: synonyms.first().map_or(ConfigSource::DefaultConfig, |s| s.source),
        read_only: false,
        synonyms,
        config_type: ConfigType::of(key.kind),
        documentation: key.doc,
    }
}

/// The places where a property of the broker has a value; `default` is for properties that this broker's table does not have.
fn broker_synonyms(broker: &Config, name: &'static str, default: Option<&str>) -> Vec<ConfigSynonym> {
    let key = keys(Scope::Broker).iter().find(|key| key.name == name);
    let mut synonyms = Vec::new();
    let mut add = |value: &str, source| {
        let value = key.map_or_else(|| value.to_owned(), |key| as_text(key.kind, value));
        synonyms.push(ConfigSynonym { name, value, source });
    };
    let set = key
        .and_then(|key| broker.get(key.name))
        .filter(|_| broker.is_explicit(name));
    let default = key.map_or(default, |key| default.and(key.default));
    if name == "min.insync.replicas"
        && let Some(value) = set.or(default)
    {
        add(value, ConfigSource::DynamicDefaultBrokerConfig);
    }
    if let Some(value) = set {
        add(value, ConfigSource::StaticBrokerConfig);
    }
    if let Some(value) = default {
        add(value, ConfigSource::DefaultConfig);
    }
    synonyms
}

/// Every property of the broker.
pub(crate) fn describe_broker_config(broker: &Config) -> Vec<ConfigEntry> {
    let entry = |key: &'static ConfigKey| {
        let synonyms = broker_synonyms(broker, key.name, key.default);
        ConfigEntry {
            name: key.name,
            value: broker.get(key.name).map(|value| as_text(key.kind, value)),
            source: synonyms.first().map_or(ConfigSource::DefaultConfig, |s| s.source),
            read_only: !is_dynamic(key.name),
            synonyms,
            config_type: ConfigType::of(key.kind),
            documentation: key.doc,
        }
    };
    keys(Scope::Broker).iter().map(entry).collect()
}

fn is_dynamic(name: &str) -> bool {
    DYNAMIC.contains(&name) || TOPIC_CONFIG_SYNONYMS.iter().any(|(_, synonym)| *synonym == name)
}

/// A value as Kafka prints it, in whatever form it was set. Kafka: `ConfigDef#convertToString`.
fn as_text(kind: Kind, value: &str) -> String {
    let number = match kind {
        Kind::Int(..) | Kind::Long(..) => value.parse::<i64>().ok().map(|number| number.to_string()),
        Kind::Double(..) => value.parse::<f64>().ok().map(|number| format!("{number:?}")),
        Kind::ListOf(_) => {
            let items: Vec<&str> = value
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .collect();
            Some(items.join(","))
        }
        Kind::Password => Some(HIDDEN.to_owned()),
        _ => None,
    };
    number.unwrap_or_else(|| value.to_owned())
}
