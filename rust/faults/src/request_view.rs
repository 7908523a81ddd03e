//! What rules and the record of requests see of a request.

use std::sync::Arc;

use fletchlog_protocol::FieldType;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::tree::{Node, Tree};

use crate::faults::TopicNames;

/// A topic's partitions; none: the request names the topic alone.
pub(crate) type TopicPartitions = (Arc<str>, Vec<i32>);

/// A request, as rules see it.
#[derive(Debug, Clone, Default)]
pub struct RequestView {
    /// Kafka's name of the API; empty: Kafka has no such code.
    pub api: &'static str,
    /// The API's version.
    pub version: i16,
    /// client.id; empty: none.
    pub client_id: Arc<str>,
    /// The client's number of the request.
    pub correlation_id: i32,
    /// Number of the connection, from 1.
    pub connection: u64,
    /// The node that was asked.
    pub node: i32,
    /// Topics with their partitions, in the order of the request; those of a fetch session too.
    pub topics: Vec<TopicPartitions>,
    /// Groups.
    pub groups: Vec<Arc<str>>,
    /// Transactional ids.
    pub transactional_ids: Vec<Arc<str>>,
    /// Bytes of the request with its header, without its size.
    pub bytes: usize,
}

/// Kafka's code of a resource that is a topic. Kafka: `ConfigResource.Type`.
const TOPIC: i64 = 2;
/// The same of a group.
const GROUP: i64 = 32;

impl RequestView {
    /// What a request's header says.
    pub(crate) fn new(header: &RequestHeader, connection: u64, node: i32, bytes: usize) -> Self {
        Self {
            api: fletchlog_protocol::api_name(header.api_key).unwrap_or_default(),
            version: header.api_version,
            client_id: header.client_id.clone().unwrap_or_default(),
            correlation_id: header.correlation_id,
            connection,
            node,
            bytes,
            ..Self::default()
        }
    }

    /// Adds what the fields of a request or of a struct in it name.
    pub(crate) fn add(&mut self, tree: &Tree, version: i16, names: &TopicNames) {
        for (spec, node) in tree.fields(version) {
            match (spec.name, node) {
                ("group_id", Node::String(group)) => self.groups.push(Arc::clone(group)),
                ("groups" | "group_ids" | "groups_names", Node::Array(groups)) => {
                    self.groups.extend(groups.iter().filter_map(Node::text).cloned());
                }
                ("transactional_id" | "v3_and_below_transactional_id", Node::String(id)) => {
                    self.transactional_ids.push(Arc::clone(id));
                }
                ("transactional_ids", Node::Array(ids)) => {
                    self.transactional_ids
                        .extend(ids.iter().filter_map(Node::text).cloned());
                }
                ("key", Node::String(key)) => self.add_coordinator(tree, key),
                ("coordinator_keys", Node::Array(keys)) => {
                    keys.iter()
                        .filter_map(Node::text)
                        .for_each(|key| self.add_coordinator(tree, key));
                }
                ("resource_name", Node::String(name)) => match tree.get("resource_type").and_then(Node::int) {
                    Some(TOPIC) => self.topics.push((Arc::clone(name), Vec::new())),
                    Some(GROUP) => self.groups.push(Arc::clone(name)),
                    _ => {}
                },
                _ => {}
            }
            let is_topics = is_topics(spec.name);
            for element in node.elements() {
                match element {
                    Node::Struct(inner) if is_topics => {
                        self.topics
                            .extend(topic_of(inner, version, names).map(|t| (t, partitions_of(inner, version))));
                    }
                    Node::Struct(inner) => self.add(inner, version, names),
                    Node::String(topic) if is_topics => self.topics.push((Arc::clone(topic), Vec::new())),
                    _ => {}
                }
            }
        }
    }

    /// The key of FindCoordinator: a group's or a transactional id.
    fn add_coordinator(&mut self, tree: &Tree, key: &Arc<str>) {
        match tree.get("key_type").and_then(Node::int) {
            Some(0) => self.groups.push(Arc::clone(key)),
            Some(1) => self.transactional_ids.push(Arc::clone(key)),
            _ => {}
        }
    }
}

/// Whether a field is the array of the topics that a message is about.
pub(crate) fn is_topics(field: &str) -> bool {
    field.contains("topic") && !field.contains("forgotten") || field == "responses" || field == "results"
}

/// The name of a struct's topic.
pub(crate) fn topic_of(tree: &Tree, version: i16, names: &TopicNames) -> Option<Arc<str>> {
    tree.fields(version).find_map(|(spec, node)| match (spec.name, node) {
        ("name" | "topic" | "topic_name", Node::String(name)) => Some(Arc::clone(name)),
        ("topic_id", Node::Uuid(id)) if *id != [0; 16] => {
            // A topic that is not known has its id as its name.
            Some(names(id).unwrap_or_else(|| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()))
        }
        _ => None,
    })
}

/// Whether a field is an array of partitions, as structs or as numbers.
pub(crate) fn is_partitions(field: &str) -> bool {
    field.contains("partition")
}

/// The number of a partition that an element of such an array is about.
pub(crate) fn partition_of(element: &Node) -> Option<i32> {
    let number = match element {
        Node::Int(number) => Some(*number),
        Node::Struct(tree) => ["partition_index", "index", "partition", "partition_id"]
            .iter()
            .find_map(|name| tree.get(name).and_then(Node::int)),
        _ => None,
    };
    number.and_then(|number| i32::try_from(number).ok())
}

fn partitions_of(tree: &Tree, version: i16) -> Vec<i32> {
    tree.fields(version)
        .filter(|(spec, _)| is_partitions(spec.name) && matches!(spec.field_type, FieldType::Array(_)))
        .flat_map(|(_, node)| node.elements().iter().filter_map(partition_of))
        .collect()
}
