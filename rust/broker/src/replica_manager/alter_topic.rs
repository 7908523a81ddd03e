//! More partitions and other properties for a topic that exists. Kafka: `ReplicationControlManager#createPartitions`,
//! `ConfigurationControlManager#incrementalAlterConfigs`, `#legacyAlterConfigs`, `ConfigAdminManager#preprocess`, with the texts of their errors.
//!
//! Both are one write of `fletchlog.metadata`, which is atomic: after a crash the change is there as a whole or not at all. The
//! change takes effect once it is written. The directories of new partitions are made before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::config_table::{Kind, keys};
use fletchlog_api::{ErrorCode, NodeId, Scope};
use fletchlog_log::config::Durability;

use super::ReplicaManager;
use super::new_topic::{MAX_PARTITIONS, check_assignment};
use crate::BrokerError;
use crate::directory::{self, ClusterMetadata, TopicRecord};
use crate::topics::validate_name;

/// What to do with a property. Kafka: `AlterConfigOp.OpType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterConfigOp {
    /// The value replaces what there is.
    Set,
    /// Back to what the broker gives.
    Delete,
    /// The items of the value join the list.
    Append,
    /// The items of the value leave the list.
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
    /// With what; ignored by `Delete`.
    pub value: Option<String>,
}

impl ReplicaManager {
    /// `create_partitions`: `count` in all.
    pub(crate) fn create_partitions(
        &self,
        name: &str,
        count: i32,
        assignments: Option<&[Vec<NodeId>]>,
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        self.for_writing("create partitions")?;
        let mut metadata = self.metadata.lock();
        let mut record = record_of(&metadata, name)?.clone();
        let additional = additional_partitions(name, record.partitions, count)?;
        if let Some(assignments) = assignments {
            if assignments.len() != additional {
                return Err(BrokerError::kafka(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    format!(
                        "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                        assignments.len()
                    ),
                ));
            }
            let factor = record.replicas_of(0, metadata.nodes).len();
            for (partition, replicas) in (record.partitions..).zip(assignments) {
                check_assignment(replicas, metadata.nodes, Some(factor))?;
                record.assigned.insert(partition, replicas.clone());
            }
        }
        record.partitions = count;
        if validate_only {
            return Ok(());
        }
        self.finish_deletions(&mut metadata)?;
        let topic = self.topic(name)?;
        let altered = Arc::new(topic.altered(record.clone(), self.config(), self.logs.directory())?);
        let new = &altered.partitions[topic.partitions.len()..];
        let mut changed = metadata.clone();
        changed.topics.insert(name.to_owned(), record);
        // The metadata last, as for a new topic.
        self.make_directories(new)
            .and_then(|()| self.store_or_undo(&changed, &metadata))
            .inspect_err(|_| self.take_back_partitions(&mut metadata, name, new))?;
        *metadata = changed;
        self.logs.insert(altered);
        Ok(())
    }

    /// `alter_topic_config`.
    pub(crate) fn alter_topic_config(
        &self,
        name: &str,
        changes: &[AlterConfig],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let given = changes.iter().map(|c| {
            let may_be_null = c.op == AlterConfigOp::Delete;
            (c.name.as_str(), may_be_null || c.value.is_some())
        });
        self.alter(name, given, validate_only, |before| {
            let mut config = before.clone();
            for change in changes {
                alter_one(&mut config, change)?;
            }
            Ok(config)
        })
    }

    /// `replace_topic_config`.
    pub(crate) fn replace_topic_config(
        &self,
        name: &str,
        config: &[(String, Option<String>)],
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        let given = config.iter().map(|(name, value)| (name.as_str(), value.is_some()));
        self.alter(name, given, validate_only, |_| {
            let set =
                |(name, value): &(String, Option<String>)| Some((name.clone(), value.as_deref()?.trim().to_owned()));
            Ok(config.iter().filter_map(set).collect())
        })
    }

    fn alter<'a>(
        &self,
        name: &str,
        given: impl Iterator<Item = (&'a str, bool)>,
        validate_only: bool,
        change: impl FnOnce(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, BrokerError>,
    ) -> Result<(), BrokerError> {
        self.for_writing("alter topics")?;
        check_names(given)?;
        let mut metadata = self.metadata.lock();
        // Kafka looks whether there is such a topic last: `ConfigurationControlManager#validateAlterConfig`.
        let record = metadata.topics.get(name).cloned();
        let config = change(record.as_ref().map_or(&BTreeMap::new(), |record| &record.config))?;
        check_name(name)?;
        let settings = self.check_config(&config)?;
        let mut record = record.ok_or_else(|| {
            let text = format!("The topic '{name}' does not exist.");
            BrokerError::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text)
        })?;
        if validate_only || config == record.config {
            return Ok(());
        }
        record.config = config;
        if settings.log.durability == Durability::Fsync
            && let Ok(topic) = self.topic(name)
        {
            let fs = &**self.logs.directory().fs();
            topic.partitions.iter().try_for_each(|p| p.make_durable(fs))?;
        }
        let topic = self.topic(name)?;
        let mut changed = metadata.clone();
        changed.topics.insert(name.to_owned(), record.clone());
        self.store_or_undo(&changed, &metadata)?;
        *metadata = changed;
        let altered = topic.altered(record, self.config(), self.logs.directory())?;
        self.logs.insert(Arc::new(altered));
        Ok(())
    }
}

fn record_of<'a>(metadata: &'a ClusterMetadata, name: &str) -> Result<&'a TopicRecord, BrokerError> {
    metadata
        .topics
        .get(name)
        .ok_or_else(|| BrokerError::unknown_topic(name))
}

fn additional_partitions(name: &str, have: i32, count: i32) -> Result<usize, BrokerError> {
    let refuse = |text| Err(BrokerError::kafka(ErrorCode::INVALID_PARTITIONS, text));
    if count == have {
        return refuse(format!("Topic already has {have} partition(s)."));
    }
    if count < have {
        return refuse(format!(
            "The topic {name} currently has {have} partition(s); {count} would not be an increase."
        ));
    }
    if count > directory::MAX_PARTITIONS || count - have > MAX_PARTITIONS {
        return refuse(format!(
            "topic `{name}` cannot get {} more partitions: at most {MAX_PARTITIONS} at once, and {} in all",
            count - have,
            directory::MAX_PARTITIONS
        ));
    }
    Ok(usize::try_from(count - have).unwrap_or(0))
}

/// What a broker asks of a request before the controller sees it: (name, whether it has a value or needs none).
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

/// Kafka: `ConfigurationControlManager#incrementalAlterConfigResource`. A list that is not set begins as the default of the table,
/// not as the broker's value.
fn alter_one(config: &mut BTreeMap<String, String>, change: &AlterConfig) -> Result<(), BrokerError> {
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
            let key = keys(Scope::Topic).iter().find(|key| key.name == name);
            let Some(key) = key.filter(|key| matches!(key.kind, Kind::ListOf(_))) else {
                return Err(BrokerError::kafka(
                    ErrorCode::INVALID_CONFIG,
                    format!("Can't {} to key {name} because its type is not LIST.", change.op.name()),
                ));
            };
            let before = config.get(name).map_or(key.default.unwrap_or(""), String::as_str);
            let mut items: Vec<&str> = before
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .collect();
            for item in value.split(',').map(str::trim) {
                if change.op == AlterConfigOp::Subtract {
                    items.retain(|known| *known != item);
                } else if !items.contains(&item) {
                    items.push(item);
                }
            }
            let items = items.join(",");
            config.insert(name.clone(), items);
        }
    }
    Ok(())
}
