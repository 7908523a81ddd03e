//! Describes properties with the source of each value. Kafka: `ConfigHelper`, `KafkaConfigSchema#resolveEffectiveTopicConfigs`,
//! `ServerTopicConfigSynonyms`, `DynamicBrokerConfig`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::config_table::{ConfigKey, HIDDEN, Kind, keys};
use fletchlog_api::{Config, ConfigError, ConfigResource, NodeId, Scope};

use crate::dynamic_config::{
    self, BrokerConfigs, CLIENT_METRICS, GROUP, GroupProperty, is_dynamic, is_of_table, kind_of,
};
use crate::topic_config;

/// Where a value comes from. Kafka: `ConfigEntry.ConfigSource`, `DescribeConfigsResponse.ConfigSource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    DynamicTopicConfig = 1,
    /// Set for one node while the broker runs.
    DynamicBrokerConfig = 2,
    /// Set for all nodes while the broker runs; min.insync.replicas always, since eligible.leader.replicas.
    DynamicDefaultBrokerConfig = 3,
    /// Given when the broker was opened.
    StaticBrokerConfig = 4,
    /// Not set: the default.
    DefaultConfig = 5,
    /// Set for a subscription to the metrics of clients.
    ClientMetricsConfig = 7,
    /// Set for a group.
    GroupConfig = 8,
}

impl ConfigSource {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DynamicTopicConfig => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicBrokerConfig => "DYNAMIC_BROKER_CONFIG",
            Self::ClientMetricsConfig => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::GroupConfig => "DYNAMIC_GROUP_CONFIG",
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
            Kind::Int(..) | Kind::GzipLevel => Self::Int,
            Kind::Long(..) => Self::Long,
            Kind::Double(..) => Self::Double,
            Kind::Text | Kind::OneOf(_) | Kind::OffsetReset | Kind::Release => Self::String,
            Kind::ListOf(_) | Kind::ThrottledReplicas => Self::List,
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

/// One source of a value, see [`ConfigEntry::synonyms`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// Name of the property there.
    pub name: Cow<'static, str>,
    /// Its value there.
    pub value: String,
    /// Where that value comes from.
    pub source: ConfigSource,
}

/// One property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Name.
    pub name: Cow<'static, str>,
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
    /// Whether a Kafka broker would list it. fletchlog's own properties and Kafka's internal ones are listed only if they are set.
    pub fn is_listed(&self) -> bool {
        let own = self.name.starts_with("fletchlog.") || self.name.starts_with("internal.");
        let hidden = own || self.name == "message.timestamp.difference.max.ms";
        !hidden || self.source != ConfigSource::DefaultConfig
    }
}

/// Kafka has no default for this property; its default in the table is the one that follows from [`UNITS`].
const WITHOUT_DEFAULT: &str = "log.flush.interval.ms";

/// Properties of one setting in different units, the finest first, with defaults for those that are not in the broker's table. Kafka:
/// `DynamicBrokerConfig#brokerConfigSynonyms`.
const UNITS: &[&[(&str, Option<&str>)]] = &[
    &[("log.roll.ms", None), ("log.roll.hours", None)],
    &[("log.roll.jitter.ms", None), ("log.roll.jitter.hours", Some("0"))],
    &[
        ("log.flush.interval.ms", None),
        ("log.flush.scheduler.interval.ms", Some("9223372036854775807")),
    ],
    &[
        ("log.retention.ms", None),
        ("log.retention.minutes", None),
        ("log.retention.hours", None),
    ],
];

/// Every property of a topic with these properties set, as `node` sees it.
///
/// # Errors
/// A property that a topic cannot have.
pub(crate) fn describe_topic_config(
    broker: &BrokerConfigs,
    node: NodeId,
    config: &BTreeMap<String, String>,
) -> Result<Vec<ConfigEntry>, ConfigError> {
    let topic = Config::parse(Scope::Topic, config.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let entries = keys(Scope::Topic)
        .iter()
        .map(|key| topic_entry(broker, node, &topic, key));
    Ok(entries.collect())
}

fn topic_entry(broker: &BrokerConfigs, node: NodeId, topic: &Config, key: &'static ConfigKey) -> ConfigEntry {
    let inherited = topic_config::TOPIC_CONFIG_SYNONYMS
        .iter()
        .find(|(name, _)| *name == key.name);
    let of_broker = inherited.map_or("", |(_, synonym)| *synonym);
    let value = topic_config::effective(broker.of(node), topic, key.name, of_broker);
    let value = value.map(|value| as_text(key.kind, &value));
    let mut synonyms = Vec::new();
    if topic.is_explicit(key.name) {
        synonyms.push(ConfigSynonym {
            name: key.name.into(),
            value: value.clone().unwrap_or_default(),
            source: ConfigSource::DynamicTopicConfig,
        });
    }
    if let Some((_, name)) = inherited {
        synonyms.extend(broker_synonyms(broker, node, name, key.default));
    }
    ConfigEntry {
        name: key.name.into(),
        value,
        source: source_of(&synonyms),
        read_only: false,
        synonyms,
        config_type: ConfigType::of(key.kind),
        documentation: key.doc,
    }
}

fn source_of(synonyms: &[ConfigSynonym]) -> ConfigSource {
    synonyms.first().map_or(ConfigSource::DefaultConfig, |s| s.source)
}

/// The sources that have a value for a broker property; `default` is for properties that are not in the broker's table. Kafka:
/// `DynamicBrokerConfig`, `ConfigHelper#configSynonyms`.
fn broker_synonyms(broker: &BrokerConfigs, node: NodeId, name: &str, default: Option<&str>) -> Vec<ConfigSynonym> {
    let alone: [(&str, Option<&str>); 1] = [(name, default)];
    let units = UNITS.iter().find(|units| units.iter().any(|(unit, _)| *unit == name));
    let names = units.map_or(&alone[..], |units| *units);
    let fixed = broker.fixed();
    let mut synonyms = Vec::new();
    for source in [
        ConfigSource::DynamicBrokerConfig,
        ConfigSource::DynamicDefaultBrokerConfig,
        ConfigSource::StaticBrokerConfig,
        ConfigSource::DefaultConfig,
    ] {
        for (name, default) in names {
            let key = keys(Scope::Broker).iter().find(|key| key.name == *name);
            let given = key.and_then(|key| fixed.get(key.name).filter(|_| fixed.is_explicit(key.name)));
            let default = key.map_or(*default, |key| key.default.filter(|_| key.name != WITHOUT_DEFAULT));
            let value = match source {
                ConfigSource::DynamicBrokerConfig => broker.altered().get(&ConfigResource::Broker(node), name),
                ConfigSource::DynamicDefaultBrokerConfig => broker.of_all(name),
                ConfigSource::StaticBrokerConfig => given,
                _ => default,
            };
            let kind = key.map(|key| key.kind).or_else(|| Some(kind_of(name)?.0));
            synonyms.extend(value.map(|value| ConfigSynonym {
                name: Cow::Owned((*name).to_owned()),
                value: kind.map_or_else(|| value.to_owned(), |kind| as_text(kind, value)),
                source,
            }));
        }
    }
    // Values in other units count only after the first value of this property.
    synonyms
        .into_iter()
        .skip_while(|synonym| synonym.name != name)
        .collect()
}

/// Every property of a node, also those set while it runs that have no effect here.
pub(crate) fn describe_broker_config(broker: &BrokerConfigs, node: NodeId) -> Vec<ConfigEntry> {
    let config = broker.of(node);
    let entry = |key: &'static ConfigKey| ConfigEntry {
        value: config.get(key.name).map(|value| as_text(key.kind, value)),
        documentation: key.doc,
        ..altered_entry(key.name, key.kind, broker_synonyms(broker, node, key.name, key.default))
    };
    let altered = |resource| broker.altered().of(&resource).keys();
    let names: BTreeSet<&String> = altered(ConfigResource::AllBrokers)
        .chain(altered(ConfigResource::Broker(node)))
        .collect();
    let others = names.into_iter().filter_map(|name| {
        let (kind, default) = kind_of(name)?;
        Some(altered_entry(name, kind, broker_synonyms(broker, node, name, default)))
    });
    keys(Scope::Broker).iter().map(entry).chain(others).collect()
}

/// The properties set for all nodes while the broker runs.
pub(crate) fn describe_all_brokers(broker: &BrokerConfigs) -> Vec<ConfigEntry> {
    let set = dynamic_config::before(&ConfigResource::AllBrokers, broker.altered(), broker);
    let entry = |(name, value): (&String, &String)| {
        let key = keys(Scope::Broker).iter().find(|key| key.name == name);
        let kind = key.map_or_else(|| kind_of(name).map_or(Kind::Text, |(kind, _)| kind), |key| key.kind);
        let synonym = ConfigSynonym {
            name: name.clone().into(),
            value: as_text(kind, value),
            source: ConfigSource::DynamicDefaultBrokerConfig,
        };
        ConfigEntry {
            documentation: key.map_or(NOT_SERVED, |key| key.doc),
            ..altered_entry(name, kind, vec![synonym])
        }
    };
    set.iter().map(entry).collect()
}

/// Every property of a group, as `node` sees it: the group's value, or else the broker's. Kafka: `ConfigHelper#createGroupConfigEntry`.
pub(crate) fn describe_group_config(broker: &BrokerConfigs, node: NodeId, group: &ConfigResource) -> Vec<ConfigEntry> {
    let entry = |property: &GroupProperty| {
        let set = broker.altered().get(group, property.name).map(|value| ConfigSynonym {
            name: property.name.into(),
            value: as_text(property.kind, value),
            source: ConfigSource::GroupConfig,
        });
        let inherited = broker_synonyms(broker, node, property.synonym, Some(property.default));
        altered_entry(property.name, property.kind, set.into_iter().chain(inherited).collect())
    };
    GROUP.iter().map(entry).collect()
}

/// Every property of a subscription to the metrics of clients.
pub(crate) fn describe_client_metrics(broker: &BrokerConfigs, subscription: &ConfigResource) -> Vec<ConfigEntry> {
    let entry = |(name, kind, default): &(&'static str, Kind, &'static str)| {
        let set = broker.altered().get(subscription, name).map(|value| ConfigSynonym {
            name: (*name).into(),
            value: value.to_owned(),
            source: ConfigSource::ClientMetricsConfig,
        });
        let entry = altered_entry(name, *kind, set.into_iter().collect());
        ConfigEntry {
            value: entry.value.or_else(|| Some((*default).to_owned())),
            ..entry
        }
    };
    CLIENT_METRICS.iter().map(entry).collect()
}

const NOT_SERVED: &str = "Of something that this broker does not have.";

fn altered_entry(name: &str, kind: Kind, synonyms: Vec<ConfigSynonym>) -> ConfigEntry {
    ConfigEntry {
        name: name.to_owned().into(),
        value: synonyms.first().map(|synonym| synonym.value.clone()),
        source: source_of(&synonyms),
        read_only: is_of_table(name) && !is_dynamic(name),
        synonyms,
        config_type: ConfigType::of(kind),
        documentation: NOT_SERVED,
    }
}

/// A value as Kafka prints it, whatever form it was set in. Kafka: `ConfigDef#convertToString`.
fn as_text(kind: Kind, value: &str) -> String {
    let number = match kind {
        Kind::Int(..) | Kind::GzipLevel | Kind::Long(..) => value.parse::<i64>().ok().map(|number| number.to_string()),
        Kind::Double(..) => value.parse::<f64>().ok().map(|number| format!("{number:?}")),
        Kind::ListOf(_) | Kind::ThrottledReplicas => {
            let items: Vec<&str> = value
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .collect();
            Some(items.join(","))
        }
        Kind::Password => Some(HIDDEN.to_owned()),
        Kind::Boolean => Some(value.trim().to_ascii_lowercase()),
        _ => None,
    };
    number.unwrap_or_else(|| value.to_owned())
}
