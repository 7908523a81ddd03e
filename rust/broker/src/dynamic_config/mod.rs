//! Properties of nodes, groups and client metrics that are altered while a broker runs. They are kept in `fletchlog.metadata` and
//! override those the broker was opened with. Kafka: `DynamicBrokerConfig`, `ConfigurationControlManager`.

mod broker;
mod client_metrics;
mod consumer_group;
mod group;
mod share_group;

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Config, ConfigResource, ErrorCode, NodeId};
use serde_json::{Map, Value, json};

use crate::BrokerError;
use crate::node_ids::NodeIds;

pub(crate) use broker::{is_dynamic, is_of_table, kind_of};
pub(crate) use client_metrics::CLIENT_METRICS;
pub(crate) use consumer_group::ConsumerGroupConfig;
pub(crate) use group::{GROUP, GroupProperty};
pub(crate) use share_group::ShareGroupConfig;

/// Names and values as they were set.
pub(crate) type Properties = BTreeMap<String, String>;

/// Key in `fletchlog.metadata`; below it, each kind of resource has its properties by name.
const JSON: &str = "configs";

/// All altered properties except those of topics, which are kept with the topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DynamicConfigs(BTreeMap<ConfigResource, Properties>);

impl DynamicConfigs {
    /// Nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The properties set for a resource.
    pub(crate) fn of(&self, resource: &ConfigResource) -> &Properties {
        static NONE: Properties = Properties::new();
        self.0.get(resource).unwrap_or(&NONE)
    }

    /// A value that is set for a resource.
    pub(crate) fn get(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.0.get(resource)?.get(name).map(String::as_str)
    }

    /// Replaces the properties set for a resource.
    pub(crate) fn set(&mut self, resource: &ConfigResource, properties: Properties) {
        match properties.is_empty() {
            true => self.0.remove(resource),
            false => self.0.insert(resource.clone(), properties),
        };
    }

    /// The resources for which properties are set, in order.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.0.keys()
    }

    /// Adds itself to the JSON of `fletchlog.metadata`.
    pub(crate) fn write(&self, metadata: &mut Value) {
        for (resource, properties) in &self.0 {
            let (kind, name) = match resource {
                // A topic's properties are kept with the topic.
                ConfigResource::Topic(_) => continue,
                ConfigResource::AllBrokers => ("brokers", String::new()),
                ConfigResource::Broker(node) => ("brokers", node.to_string()),
                ConfigResource::Group(group) => ("groups", group.clone()),
                ConfigResource::ClientMetrics(name) => ("client.metrics", name.clone()),
            };
            metadata[JSON][kind][name] = json!(properties);
        }
    }

    /// Reads what [`DynamicConfigs::write`] wrote; the error says what is wrong with the file.
    pub(crate) fn read(metadata: &Map<String, Value>) -> Result<Self, String> {
        let wrong = || format!("has no valid `{JSON}`");
        let Some(configs) = metadata.get(JSON) else {
            return Ok(Self::default());
        };
        let mut read = Self::default();
        for (kind, resources) in configs.as_object().ok_or_else(wrong)? {
            for (name, properties) in resources.as_object().ok_or_else(wrong)? {
                let resource = match (&**kind, &**name) {
                    ("brokers", "") => ConfigResource::AllBrokers,
                    ("brokers", node) => ConfigResource::Broker(node.parse().map_err(|_| wrong())?),
                    ("groups", group) => ConfigResource::Group(group.to_owned()),
                    ("client.metrics", name) => ConfigResource::ClientMetrics(name.to_owned()),
                    _ => return Err(wrong()),
                };
                let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
                let properties: Option<_> = properties.as_object().ok_or_else(wrong)?.iter().map(text).collect();
                read.set(&resource, properties.ok_or_else(wrong)?);
            }
        }
        Ok(read)
    }
}

/// The properties of a broker's nodes: those it was opened with, those altered since, and the result for each node.
#[derive(Debug)]
pub(crate) struct BrokerConfigs {
    fixed: Config,
    altered: DynamicConfigs,
    nodes: ByNode<Config>,
}

/// A value for each node; nodes with the same properties share it.
#[derive(Debug)]
pub(crate) struct ByNode<T> {
    nodes: NodeIds,
    values: Vec<Arc<T>>,
}

impl<T> ByNode<T> {
    /// The value of a node; for an unknown node id, that of the first node.
    pub(crate) fn of(&self, node: NodeId) -> &Arc<T> {
        &self.values[self.nodes.index_of(node).unwrap_or(0)]
    }
}

impl BrokerConfigs {
    /// The value of a group's property: its own, that of the broker's property with the same meaning, or the default.
    pub(crate) fn group_value(&self, group_id: &str, name: &str) -> String {
        let own = self.altered.get(&ConfigResource::Group(group_id.to_owned()), name);
        if let Some(own) = own {
            return own.to_owned();
        }
        let Some(property) = group::GROUP.iter().find(|property| property.name == name) else {
            return String::new();
        };
        let of_broker = fletchlog_api::config_table::keys(fletchlog_api::Scope::Broker);
        match of_broker.iter().any(|key| key.name == property.synonym) {
            true => self.of(1).get(property.synonym).unwrap_or(property.default).to_owned(),
            false => property.default.to_owned(),
        }
    }

    /// The properties of these nodes. A stored value that this release does not accept is skipped, as in Kafka, and logged.
    pub(crate) fn new(fixed: &Config, altered: &DynamicConfigs, nodes: &NodeIds) -> Self {
        let all = Arc::new(effective(fixed.clone(), altered.of(&ConfigResource::AllBrokers)));
        let of_node = |node: &NodeId| match altered.of(&ConfigResource::Broker(*node)) {
            own if own.is_empty() => Arc::clone(&all),
            own => Arc::new(effective(Config::clone(&all), own)),
        };
        Self {
            nodes: ByNode {
                values: nodes.as_slice().iter().map(of_node).collect(),
                nodes: nodes.clone(),
            },
            fixed: fixed.clone(),
            altered: altered.clone(),
        }
    }

    /// The same broker after another change.
    pub(crate) fn altered_to(&self, altered: &DynamicConfigs) -> Self {
        Self::new(&self.fixed, altered, &self.nodes.nodes)
    }

    /// The properties that the broker was opened with.
    pub(crate) fn fixed(&self) -> &Config {
        &self.fixed
    }

    /// The properties altered since.
    pub(crate) fn altered(&self) -> &DynamicConfigs {
        &self.altered
    }

    /// A property set for all nodes. min.insync.replicas always is: Kafka keeps it there from the start. Kafka:
    /// `ConfigurationControlManager#maybeGenerateElrSafetyRecords`.
    pub(crate) fn of_all(&self, name: &str) -> Option<&str> {
        let always = || (name == broker::MIN_IN_SYNC).then(|| self.fixed.text(name));
        self.altered.get(&ConfigResource::AllBrokers, name).or_else(always)
    }

    /// The properties in effect on a node; for an unknown node id, those of the first node.
    pub(crate) fn of(&self, node: NodeId) -> &Arc<Config> {
        self.nodes.of(node)
    }

    /// Computes a value for each node from its properties.
    pub(crate) fn by_node<T>(&self, of: impl Fn(&Config) -> T) -> ByNode<T> {
        let mut made: Vec<Arc<T>> = Vec::with_capacity(self.nodes.values.len());
        for (index, config) in self.nodes.values.iter().enumerate() {
            let same = self.nodes.values[..index]
                .iter()
                .position(|known| Arc::ptr_eq(known, config));
            made.push(same.map_or_else(|| Arc::new(of(config)), |same| Arc::clone(&made[same])));
        }
        ByNode {
            nodes: self.nodes.nodes.clone(),
            values: made,
        }
    }
}

fn effective(config: Config, altered: &Properties) -> Config {
    let mut config = config;
    for (name, value) in altered.iter().filter(|(name, _)| is_of_table(name)) {
        match config.clone().with([(&**name, &**value)]) {
            Ok(changed) => config = changed,
            Err(error) => log::error!("a property that was set while the broker ran is left out: {error}"),
        }
    }
    config
}

/// Checks that these are valid as all properties set for `resource`; `now`: the properties in effect. Not for topics.
///
/// # Errors
/// INVALID_REQUEST, INVALID_CONFIG, with Kafka's text.
pub(crate) fn validate(
    resource: &ConfigResource,
    properties: &Properties,
    now: &BrokerConfigs,
) -> Result<(), BrokerError> {
    match resource {
        ConfigResource::Topic(_) => Ok(()),
        ConfigResource::AllBrokers => {
            broker::validate(properties, now, 1)?;
            match properties.contains_key(broker::MIN_IN_SYNC) {
                true => Ok(()),
                false => Err(in_sync(
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                )),
            }
        }
        ConfigResource::Broker(node) => {
            broker::validate(properties, now, *node)?;
            match properties.contains_key(broker::MIN_IN_SYNC) {
                true => Err(in_sync(
                    "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
                )),
                false => Ok(()),
            }
        }
        ConfigResource::Group(group) => group::validate(group, properties, now.of(1)),
        ConfigResource::ClientMetrics(name) => client_metrics::validate(name, properties),
    }
}

/// Those of all properties set for `resource` that have to be stored, see [`before`].
pub(crate) fn stored(resource: &ConfigResource, mut after: Properties, now: &BrokerConfigs) -> Properties {
    if *resource == ConfigResource::AllBrokers {
        let fixed = now.fixed().text(broker::MIN_IN_SYNC);
        after.retain(|name, value| name != broker::MIN_IN_SYNC || value != fixed);
    }
    after
}

/// The properties set for a resource before it is altered, see [`BrokerConfigs::of_all`]. `altered` includes earlier alterations of
/// the same request, which are not in effect yet.
pub(crate) fn before(resource: &ConfigResource, altered: &DynamicConfigs, now: &BrokerConfigs) -> Properties {
    let mut properties = altered.of(resource).clone();
    if *resource == ConfigResource::AllBrokers {
        let always = || now.fixed().text(broker::MIN_IN_SYNC).to_owned();
        properties.entry(broker::MIN_IN_SYNC.to_owned()).or_insert_with(always);
    }
    properties
}

/// Kafka: `ConfigurationControlManager#validateAlterConfig`, with eligible.leader.replicas.version 1.
fn in_sync(text: &str) -> BrokerError {
    refused(ErrorCode::INVALID_CONFIG, text)
}

fn refused(code: ErrorCode, text: impl Into<String>) -> BrokerError {
    BrokerError::kafka(code, text)
}

#[cfg(test)]
mod tests {
    use fletchlog_api::Scope;

    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn what_is_written_is_read_back_and_a_wrong_text_is_refused() {
        let mut configs = DynamicConfigs::default();
        configs.set(&ConfigResource::AllBrokers, properties(&[("log.retention.ms", "5")]));
        configs.set(&ConfigResource::Broker(2), properties(&[("max.connections", "7")]));
        configs.set(&ConfigResource::Group("g".to_owned()), properties(&[("a", "b")]));
        configs.set(
            &ConfigResource::ClientMetrics("m".to_owned()),
            properties(&[("c", "d")]),
        );
        configs.set(&ConfigResource::Broker(3), Properties::new());
        let mut value = json!({});
        configs.write(&mut value);
        assert_eq!(DynamicConfigs::read(value.as_object().unwrap()), Ok(configs));
        for wrong in [
            json!({"configs": []}),
            json!({"configs": {"brokers": {"x": {}}}}),
            json!({"configs": {"brokers": {"1": {"a": 1}}}}),
            json!({"configs": {"nodes": {"1": {}}}}),
        ] {
            let error = DynamicConfigs::read(wrong.as_object().unwrap()).unwrap_err();
            assert_eq!(error, "has no valid `configs`", "{wrong}");
        }
    }

    #[test]
    fn a_nodes_own_value_wins_over_all_nodes_and_that_over_the_opening() {
        let fixed = Config::parse(Scope::Broker, [("log.retention.ms", "1"), ("num.partitions", "4")]).unwrap();
        let mut altered = DynamicConfigs::default();
        altered.set(
            &ConfigResource::AllBrokers,
            properties(&[("log.retention.ms", "2"), ("message.max.bytes", "not a number")]),
        );
        altered.set(&ConfigResource::Broker(2), properties(&[("log.retention.ms", "3")]));
        let configs = BrokerConfigs::new(&fixed, &altered, &NodeIds::numbered(2));
        let values = [1, 2].map(|node| configs.of(node).long("log.retention.ms"));
        assert_eq!(values, [2, 3]);
        assert_eq!(configs.of(1).int("num.partitions"), 4);
        assert_eq!(configs.of(1).int("message.max.bytes"), 1_048_588);
        assert_eq!(configs.fixed().long("log.retention.ms"), 1);
    }
}
