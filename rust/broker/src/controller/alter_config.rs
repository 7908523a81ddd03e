//! Changes properties of a topic, a node, a group or a subscription to client metrics. Kafka:
//! `ConfigurationControlManager#incrementalAlterConfigs`, `#legacyAlterConfigs`, `ConfigAdminManager#preprocess`, with the texts of
//! their errors.
//!
//! A change is one atomic write of `fletchlog.metadata`: after a crash it exists as a whole or not at all. It takes effect once it is
//! written.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use fletchlog_api::config_table::{Kind, keys};
use fletchlog_api::{ConfigResource, ErrorCode, Scope};
use fletchlog_log::config::Durability;
use fletchlog_records::planted;

use super::Controller;
use crate::BrokerError;
use crate::directory::ClusterMetadata;
use crate::dynamic_config::{self, Properties};
use crate::error::spread;
use crate::topic_names::validate_name;
use crate::topics::Topic;

/// What to do with a property. Kafka: `AlterConfigOp.OpType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterConfigOp {
    /// The value replaces the current one.
    Set,
    /// The property is no longer set, so the inherited value applies.
    Delete,
    /// The items of the value are added to the list.
    Append,
    /// The items of the value are removed from the list.
    Subtract,
}

impl AlterConfigOp {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Delete => "DELETE",
            Self::Append => "APPEND",
            Self::Subtract => "SUBTRACT",
        }
    }
}

/// A change of one property.
#[derive(Debug, Clone)]
pub struct AlterConfig {
    /// Name of the property.
    pub name: String,
    /// What to do with it.
    pub op: AlterConfigOp,
    /// The operand; ignored by `Delete`.
    pub value: Option<String>,
}

/// A change of the properties of a topic, a node, all nodes, a group or a subscription to client metrics.
#[derive(Debug, Clone)]
pub struct Alteration {
    /// The resource that has the properties.
    pub resource: ConfigResource,
    /// The change.
    pub change: ConfigChange,
}

/// How properties are changed.
#[derive(Debug, Clone)]
pub enum ConfigChange {
    /// Changes these properties; the others stay. Kafka: IncrementalAlterConfigs.
    Some(Vec<AlterConfig>),
    /// These replace everything that is set. Kafka: AlterConfigs.
    All(Vec<(String, Option<String>)>),
}

impl ConfigChange {
    fn check(&self) -> Result<(), BrokerError> {
        match self {
            Self::Some(changes) => check_names(changes.iter().map(|c| {
                let may_be_null = c.op == AlterConfigOp::Delete;
                (c.name.as_str(), may_be_null || c.value.is_some())
            })),
            Self::All(config) => check_names(config.iter().map(|(name, value)| (name.as_str(), value.is_some()))),
        }
    }

    fn apply(&self, resource: &ConfigResource, before: &Properties) -> Result<Properties, BrokerError> {
        match self {
            Self::Some(changes) => {
                let mut config = before.clone();
                for change in changes {
                    alter_one(resource, &mut config, change)?;
                }
                Ok(config)
            }
            Self::All(config) => {
                let set = |(name, value): &(String, Option<String>)| {
                    Some((name.clone(), value.as_deref()?.trim().to_owned()))
                };
                Ok(config.iter().filter_map(set).collect())
            }
        }
    }
}

/// The outcome of several alterations, to be written.
struct Altered {
    changed: ClusterMetadata,
    /// Indexes of the alterations of topics, with the altered topics.
    topics: Vec<(usize, Arc<Topic>)>,
    /// Indexes of the other alterations.
    dynamic: Vec<usize>,
}

impl Controller {
    /// `alter_configs`: each alteration succeeds or fails separately; those that succeed are in one write of the metadata.
    pub(crate) fn alter_configs(&self, all: &[Alteration], validate_only: bool) -> Vec<Result<(), BrokerError>> {
        let mut metadata = self.metadata.lock();
        let mut altered = Altered {
            changed: metadata.clone(),
            topics: Vec::new(),
            dynamic: Vec::new(),
        };
        let mut results: Vec<_> = (all.iter().enumerate())
            .map(|(place, one)| self.prepare_alteration(&mut altered, place, one, validate_only))
            .collect();
        let of_topics = altered.topics.iter().map(|(place, _)| *place);
        let places: Vec<usize> = of_topics.chain(altered.dynamic.iter().copied()).collect();
        if !places.is_empty()
            && let Err(error) = self.store_alterations(&mut metadata, altered, &mut results)
        {
            spread(error, &places, &mut results);
        }
        results
    }

    fn prepare_alteration(
        &self,
        altered: &mut Altered,
        place: usize,
        Alteration { resource, change }: &Alteration,
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        change.check()?;
        self.logs.for_writing("alter properties")?;
        self.check_node(resource)?;
        let change = |before: &Properties| change.apply(resource, before);
        match resource {
            ConfigResource::Topic(name) => {
                let topic = self.alter_topic(&mut altered.changed, name, validate_only, change)?;
                altered.topics.extend(topic.map(|topic| (place, topic)));
            }
            _ => {
                if self.alter_dynamic(&mut altered.changed, resource, validate_only, change)? {
                    altered.dynamic.push(place);
                }
            }
        }
        Ok(())
    }

    /// Writes alterations, and puts them into effect.
    fn store_alterations(
        &self,
        metadata: &mut ClusterMetadata,
        Altered {
            changed,
            topics,
            dynamic,
        }: Altered,
        results: &mut [Result<(), BrokerError>],
    ) -> Result<(), BrokerError> {
        let configs = (!dynamic.is_empty()).then(|| self.configs().altered_to(&changed.configs));
        if let Some(configs) = &configs {
            self.logs.make_durable(configs)?;
        }
        if !planted!("change-of-properties-not-written-before-its-answer") {
            self.store_or_undo(&changed, metadata)?;
        }
        *metadata = changed;
        for (place, topic) in topics {
            let record = metadata
                .topics
                .get(&*topic.name)
                .cloned()
                .unwrap_or_else(|| topic.record.clone());
            match topic.altered(record, &self.configs(), self.logs.directory()) {
                Ok(altered) => self.logs.insert(Arc::new(altered)),
                Err(error) => results[place] = Err(error),
            }
        }
        if let Some(configs) = configs
            && let Err(error) = self.logs.reconfigure(configs)
        {
            spread(error, &dynamic, results);
        }
        Ok(())
    }

    /// Checks that the broker has the node whose properties are meant.
    pub(crate) fn check_node(&self, resource: &ConfigResource) -> Result<(), BrokerError> {
        match resource {
            ConfigResource::Broker(node) if !self.node_ids().contains(*node) => {
                let text = format!("the broker has no node {node}; its nodes are {}", self.node_ids());
                Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text))
            }
            _ => Ok(()),
        }
    }

    /// The altered topic; `None`: nothing changes.
    fn alter_topic(
        &self,
        metadata: &mut ClusterMetadata,
        name: &str,
        validate_only: bool,
        change: impl FnOnce(&Properties) -> Result<Properties, BrokerError>,
    ) -> Result<Option<Arc<Topic>>, BrokerError> {
        // Kafka checks last whether the topic exists: `ConfigurationControlManager#validateAlterConfig`.
        let record = metadata.topics.get_mut(name);
        let config = change(record.as_ref().map_or(&BTreeMap::new(), |record| &record.config))?;
        check_name(name)?;
        let settings = self.check_config(&config)?;
        let record = record.ok_or_else(|| {
            let text = format!("The topic '{name}' does not exist.");
            BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text)
        })?;
        if validate_only || config == record.config {
            return Ok(None);
        }
        let topic = self.topic(name)?;
        if settings.log.durability == Durability::Fsync {
            self.logs.make_topic_durable(&topic)?;
        }
        record.config = config;
        Ok(Some(topic))
    }

    /// Alters properties of nodes, groups and client metrics. True: something changes.
    fn alter_dynamic(
        &self,
        metadata: &mut ClusterMetadata,
        resource: &ConfigResource,
        validate_only: bool,
        change: impl FnOnce(&Properties) -> Result<Properties, BrokerError>,
    ) -> Result<bool, BrokerError> {
        let now = self.configs();
        let before = dynamic_config::before(resource, &metadata.configs, &now);
        let after = change(&before)?;
        dynamic_config::validate(resource, &after, &now)?;
        if validate_only || after == before {
            return Ok(false);
        }
        let kept = dynamic_config::stored(resource, after, &now);
        metadata.configs.set(resource, kept);
        Ok(true)
    }
}

/// The checks of a broker before the controller gets the request; `given`: (name, whether it has a value or needs none).
fn check_names<'a>(given: impl Iterator<Item = (&'a str, bool)>) -> Result<(), BrokerError> {
    let refuse = |text: String| Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text));
    let mut names = BTreeSet::new();
    let mut nulls = Vec::new();
    let mut twice = false;
    for (name, has_value) in given {
        twice |= !names.insert(name);
        if !has_value {
            nulls.push(name);
        }
    }
    if twice {
        return refuse("Error due to duplicate config keys".to_owned());
    }
    if !nulls.is_empty() {
        return refuse(format!("Null value not supported for : {}", nulls.join(", ")));
    }
    Ok(())
}

/// Kafka: `ControllerConfigurationValidator#validate`.
fn check_name(topic: &str) -> Result<(), BrokerError> {
    if topic.is_empty() {
        let text = "Default topic resources are not allowed.".to_owned();
        return Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text));
    }
    validate_name(topic).map_err(|text| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text))
}

/// Kafka: `ConfigurationControlManager#incrementalAlterConfigResource`, `ConfigAdminManager#prepareIncrementalConfigs`. A list that is
/// not set begins as the default of the table, not as what the broker was opened with.
fn alter_one(resource: &ConfigResource, config: &mut Properties, change: &AlterConfig) -> Result<(), BrokerError> {
    let name = &change.name;
    let value = change.value.as_deref().unwrap_or("").trim();
    match change.op {
        AlterConfigOp::Delete => {
            config.remove(name);
        }
        AlterConfigOp::Set => {
            config.insert(name.clone(), value.to_owned());
        }
        AlterConfigOp::Append | AlterConfigOp::Subtract => {
            let Some(default) = default_of_list(resource, name) else {
                return Err(BrokerError::kafka(ErrorCode::INVALID_CONFIG, no_list(resource, change)));
            };
            let before = config.get(name).map_or(default, String::as_str);
            let mut items: Vec<&str> = before
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .collect();
            let given = value.split(',').map(str::trim);
            if change.op == AlterConfigOp::Subtract {
                let gone: HashSet<&str> = given.collect();
                items.retain(|item| !gone.contains(item));
            } else {
                let mut known: HashSet<&str> = items.iter().copied().collect();
                items.extend(given.filter(|item| known.insert(item)));
            }
            let items = items.join(",");
            config.insert(name.clone(), items);
        }
    }
    Ok(())
}

/// The default of a property that is a list; `None`: it is not a list.
fn default_of_list(resource: &ConfigResource, name: &str) -> Option<&'static str> {
    let scope = match resource {
        ConfigResource::Topic(_) => Scope::Topic,
        ConfigResource::AllBrokers | ConfigResource::Broker(_) => Scope::Broker,
        ConfigResource::Group(_) | ConfigResource::ClientMetrics(_) => return None,
    };
    let key = keys(scope).iter().find(|key| key.name == name)?;
    matches!(key.kind, Kind::ListOf(_) | Kind::ThrottledReplicas).then(|| key.default.unwrap_or(""))
}

fn no_list(resource: &ConfigResource, AlterConfig { name, op, .. }: &AlterConfig) -> String {
    match resource {
        ConfigResource::AllBrokers | ConfigResource::Broker(_) => {
            let op = op.name().to_ascii_lowercase();
            format!("Config value {op} is not allowed for config key: {name}")
        }
        _ => format!("Can't {} to key {name} because its type is not LIST.", op.name()),
    }
}
