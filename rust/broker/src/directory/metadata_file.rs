//! `fletchlog.metadata`: what Kafka keeps in its metadata log, as one JSON file that a Kafka broker ignores.
//!
//! ```json
//! {"version": 1, "cluster.id": "22 characters", "nodes": 3, "next.producer.id": 2000, "topics.created": 1,
//!  "topics": [{"name": "orders", "id": "22 characters", "partitions": 6, "first.leader": 0, "config": {"retention.ms": "-1"},
//!              "replication.factor": 2, "assigned": {"4": [3, 1]}}],
//!  "deleting": ["ids of topics whose directories are being removed"]}
//! ```
//!
//! `replication.factor` is written where it is not 1, `assigned` where partitions were placed by hand; a file with such partitions
//! has version 2, so that a reader that would search for their logs elsewhere refuses it. `scram` and `acls` (`security/json.rs`) are
//! written if SCRAM users or ACLs exist: version 3, so that a writer that does not know them does not lose them. `configs`
//! (`dynamic_config`) is written if properties of nodes, groups or client metrics were altered: version 4, for the same reason.
//! `features` (`features.rs`) is written if a level was ever changed: version 5. `states` of a topic (`partition_state.rs`) is written if
//! leaders or replicas of its partitions have moved since it was created: version 6. `node.ids` is written if the nodes have other ids than 1
//! to `nodes`: version 7.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_log::checkpoint::{decode_uuid, encode_uuid};
use fletchlog_log::fs::Fs;
use serde_json::{Map, Value, json};

use super::{MAX_PARTITIONS, PartitionState};
use crate::dynamic_config::DynamicConfigs;
use crate::features::FinalizedFeatures;
use crate::node_ids::{MAX_NODES, NodeIds};
use crate::security::SecurityRecord;
use crate::{BrokerError, uuid};

/// Name of the file, in the broker's directory.
pub(crate) const METADATA_FILE: &str = "fletchlog.metadata";

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRecord {
    /// 16-byte id, also in each `partition.metadata`.
    pub(crate) id: [u8; 16],
    /// Number of partitions.
    pub(crate) partitions: i32,
    /// Partition p leads on the node at place (first_leader + p) mod the number of nodes, unless it is in `assigned`.
    pub(crate) first_leader: u32,
    /// Replicas of each partition as clients see them; the leader keeps the only copy.
    pub(crate) replication_factor: u32,
    /// Replicas of the partitions that were placed by hand, the leader first.
    pub(crate) assigned: BTreeMap<i32, Vec<NodeId>>,
    /// The state of the partitions whose leader or replicas have changed since they were created. Their logs stay in the directory of
    /// their first leader.
    pub(crate) states: BTreeMap<i32, Arc<PartitionState>>,
    /// What the user set.
    pub(crate) config: BTreeMap<String, String>,
}

impl TopicRecord {
    /// Nodes of a new partition's replicas, the leader first. Without an assignment: the stripe of Kafka's `StripedReplicaPlacer`, which
    /// begins at `first_leader` instead of a random node.
    pub(crate) fn replicas_of(&self, partition: i32, nodes: &NodeIds) -> Vec<NodeId> {
        if let Some(assigned) = self.assigned.get(&partition) {
            return assigned.clone();
        }
        let first = u64::from(self.first_leader) + u64::from(partition.unsigned_abs());
        let node = |i: u32| nodes.at(first + u64::from(i));
        (0..self.replication_factor.max(1)).map(node).collect()
    }

    /// Node of a new partition's leader, whose directory has the log.
    pub(crate) fn leader_of(&self, partition: i32, nodes: &NodeIds) -> NodeId {
        let replicas = self.replicas_of(partition, nodes);
        replicas.first().copied().unwrap_or(nodes.first())
    }
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterMetadata {
    /// Cluster id, as in meta.properties.
    pub(crate) cluster_id: String,
    /// The nodes.
    pub(crate) nodes: NodeIds,
    /// First producer id that is not in an allocated block.
    pub(crate) next_producer_id: i64,
    /// Topics ever created (internal ones not counted): spreads leaders.
    pub(crate) topics_created: u64,
    /// Topics by name.
    pub(crate) topics: BTreeMap<String, TopicRecord>,
    /// Ids of deleted topics whose directories or checkpoint entries may still exist; both are removed before the next topic is
    /// created.
    pub(crate) deleting: Vec<[u8; 16]>,
    /// SCRAM users and ACLs.
    pub(crate) security: SecurityRecord,
    /// Altered properties, except those of topics.
    pub(crate) configs: DynamicConfigs,
    /// Levels of features that were chosen.
    pub(crate) features: FinalizedFeatures,
}

impl ClusterMetadata {
    /// A new cluster.
    pub(crate) fn new(nodes: NodeIds) -> Self {
        Self {
            cluster_id: encode_uuid(&uuid::random()),
            nodes,
            next_producer_id: 0,
            topics_created: 0,
            topics: BTreeMap::new(),
            deleting: Vec::new(),
            security: SecurityRecord::default(),
            configs: DynamicConfigs::default(),
            features: FinalizedFeatures::default(),
        }
    }

    /// The file's text.
    pub(crate) fn to_json(&self) -> String {
        let topics: Vec<Value> = self.topics.iter().map(|(name, t)| topic_to_json(name, t)).collect();
        let version = match self.topics.values().any(|t| !t.assigned.is_empty()) {
            _ if !self.nodes.is_numbered() => 7,
            _ if self.topics.values().any(|t| !t.states.is_empty()) => 6,
            _ if !self.features.is_default() => 5,
            _ if !self.configs.is_empty() => 4,
            _ if self.security != SecurityRecord::default() => 3,
            is_assigned => 1 + i32::from(is_assigned),
        };
        let deleting: Vec<String> = self.deleting.iter().map(encode_uuid).collect();
        let mut value = json!({"version": version, "cluster.id": self.cluster_id, "nodes": self.nodes.count(),
            "next.producer.id": self.next_producer_id, "topics.created": self.topics_created,
            "topics": topics, "deleting": deleting});
        if !self.nodes.is_numbered() {
            value["node.ids"] = json!(self.nodes.as_slice());
        }
        self.security.write(&mut value);
        self.configs.write(&mut value);
        self.features.write(&mut value);
        format!("{value:#}\n")
    }

    /// Reads the file's text; the error says what is wrong.
    pub(crate) fn from_json(text: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| format!("is not JSON: {e}"))?;
        let top = value.as_object().ok_or("is not a JSON object")?;
        match number(top, "version")? {
            1..=7 => {}
            other => {
                return Err(format!(
                    "has version {other}; this fletchlog reads versions 1 to 7, use a newer one"
                ));
            }
        }
        let nodes = u32::try_from(number(top, "nodes")?)
            .ok()
            .filter(|n| (1..=MAX_NODES).contains(n))
            .ok_or_else(|| format!("has no valid `nodes` (1 to {MAX_NODES})"))?;
        let nodes = node_ids_from_json(top.get("node.ids"), nodes).ok_or("has no valid `node.ids`")?;
        let mut metadata = Self {
            cluster_id: string(top, "cluster.id")?.to_owned(),
            nodes: nodes.clone(),
            next_producer_id: number(top, "next.producer.id")?,
            topics_created: u64::try_from(number(top, "topics.created")?)
                .map_err(|_| "has a negative `topics.created`")?,
            topics: BTreeMap::new(),
            deleting: Vec::new(),
            security: SecurityRecord::read(top)?,
            configs: DynamicConfigs::read(top)?,
            features: FinalizedFeatures::read(top)?,
        };
        for topic in list(top, "topics")? {
            let topic = topic.as_object().ok_or("has a topic that is not an object")?;
            let name = string(topic, "name")?;
            crate::topic_names::validate_name(name).map_err(|reason| format!("names a topic `{name}`: {reason}"))?;
            let record = topic_from_json(name, topic, &nodes)?;
            metadata.topics.insert(name.to_owned(), record);
        }
        for id in list(top, "deleting")? {
            let id = id
                .as_str()
                .and_then(decode_uuid)
                .ok_or("has an invalid id in `deleting`")?;
            metadata.deleting.push(id);
        }
        Ok(metadata)
    }

    /// Reads `dir/fletchlog.metadata`.
    pub(crate) fn load(fs: &dyn Fs, dir: &Path) -> Result<(Self, Vec<u8>), BrokerError> {
        let path = dir.join(METADATA_FILE);
        let bytes = fs
            .read(&path)
            .map_err(|e| BrokerError::directory(fs, &path, format!("cannot be read: {e}")))?;
        let metadata = Self::from_json(&bytes).map_err(|reason| BrokerError::directory(fs, &path, reason))?;
        Ok((metadata, bytes))
    }

    /// Replaces `dir/fletchlog.metadata` atomically.
    pub(crate) fn store(&self, fs: &dyn Fs, dir: &Path) -> Result<(), BrokerError> {
        let path = dir.join(METADATA_FILE);
        fs.replace(&path, self.to_json().as_bytes())
            .map_err(|e| BrokerError::directory(fs, &path, format!("cannot be written: {e}")))
    }
}

fn topic_to_json(name: &str, topic: &TopicRecord) -> Value {
    let mut value = json!({"name": name, "id": encode_uuid(&topic.id), "partitions": topic.partitions,
        "first.leader": topic.first_leader, "config": topic.config});
    if topic.replication_factor != 1 {
        value["replication.factor"] = json!(topic.replication_factor);
    }
    if !topic.assigned.is_empty() {
        value["assigned"] = topic
            .assigned
            .iter()
            .map(|(p, nodes)| (p.to_string(), json!(nodes)))
            .collect();
    }
    if !topic.states.is_empty() {
        value["states"] = topic
            .states
            .iter()
            .map(|(p, state)| (p.to_string(), state.to_json()))
            .collect();
    }
    value
}

fn topic_from_json(name: &str, topic: &Map<String, Value>, nodes: &NodeIds) -> Result<TopicRecord, String> {
    let no_valid = |what: &str| format!("has no valid {what} for topic {name}");
    let config = topic
        .get("config")
        .and_then(Value::as_object)
        .ok_or_else(|| format!("has no `config` for topic {name}"))?
        .iter()
        .map(|(k, v)| {
            let value = v
                .as_str()
                .ok_or_else(|| format!("has a non-text `{k}` for topic {name}"))?;
            Ok((k.clone(), value.to_owned()))
        })
        .collect::<Result<_, String>>()?;
    let partitions = i32::try_from(number(topic, "partitions")?)
        .ok()
        .filter(|p| (1..=MAX_PARTITIONS).contains(p))
        .ok_or_else(|| no_valid(&format!("partition count (1 to {MAX_PARTITIONS})")))?;
    let factor = match topic.get("replication.factor") {
        None => Some(1),
        Some(factor) => factor.as_u64().and_then(|f| u32::try_from(f).ok()),
    };
    Ok(TopicRecord {
        id: decode_uuid(string(topic, "id")?).ok_or_else(|| no_valid("id"))?,
        partitions,
        first_leader: u32::try_from(number(topic, "first.leader")?).map_err(|_| no_valid("`first.leader`"))?,
        replication_factor: factor
            .filter(|f| (1..=nodes.count()).contains(f))
            .ok_or_else(|| no_valid("`replication.factor`"))?,
        assigned: assigned_from_json(topic.get("assigned"), nodes).ok_or_else(|| no_valid("`assigned`"))?,
        states: states_from_json(topic.get("states"), nodes).ok_or_else(|| no_valid("`states`"))?,
        config,
    })
}

/// `None`: they are not valid, or not as many as `count`.
fn node_ids_from_json(ids: Option<&Value>, count: u32) -> Option<NodeIds> {
    let Some(ids) = ids else {
        return Some(NodeIds::numbered(count));
    };
    let id = |id: &Value| NodeId::try_from(id.as_i64()?).ok();
    let ids = ids.as_array()?.iter().map(id).collect::<Option<_>>()?;
    NodeIds::of(ids).ok().filter(|ids| ids.count() == count)
}

fn assigned_from_json(assigned: Option<&Value>, nodes: &NodeIds) -> Option<BTreeMap<i32, Vec<NodeId>>> {
    let Some(assigned) = assigned else {
        return Some(BTreeMap::new());
    };
    let node = |value: &Value| {
        let node = NodeId::try_from(value.as_i64()?).ok()?;
        nodes.contains(node).then_some(node)
    };
    let replicas = |(partition, replicas): (&String, &Value)| {
        let replicas: Vec<NodeId> = replicas.as_array()?.iter().map(node).collect::<Option<_>>()?;
        (!replicas.is_empty()).then_some((partition.parse().ok()?, replicas))
    };
    assigned.as_object()?.iter().map(replicas).collect()
}

fn states_from_json(states: Option<&Value>, nodes: &NodeIds) -> Option<BTreeMap<i32, Arc<PartitionState>>> {
    let Some(states) = states else {
        return Some(BTreeMap::new());
    };
    let state = |(partition, state): (&String, &Value)| {
        let state = PartitionState::from_json(state.as_object()?, nodes)?;
        Some((partition.parse().ok()?, Arc::new(state)))
    };
    states.as_object()?.iter().map(state).collect()
}

fn number(object: &Map<String, Value>, name: &str) -> Result<i64, String> {
    object
        .get(name)
        .and_then(Value::as_i64)
        .ok_or_else(|| format!("has no valid `{name}`"))
}

fn string<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    object
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("has no valid `{name}`"))
}

fn list<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a Vec<Value>, String> {
    object
        .get(name)
        .and_then(Value::as_array)
        .ok_or_else(|| format!("has no valid `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_written_is_read_back() {
        let mut metadata = ClusterMetadata::new(NodeIds::numbered(3));
        metadata.next_producer_id = 5000;
        metadata.topics_created = 7;
        metadata.deleting.push([9; 16]);
        let config = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
        metadata.topics.insert(
            "t".to_owned(),
            TopicRecord {
                id: [1; 16],
                partitions: 6,
                first_leader: 2,
                replication_factor: 1,
                assigned: BTreeMap::new(),
                states: BTreeMap::new(),
                config,
            },
        );
        assert!(metadata.to_json().contains("\"version\": 1"));
        let read = |m: &ClusterMetadata| ClusterMetadata::from_json(m.to_json().as_bytes()).unwrap();
        assert_eq!(read(&metadata), metadata);
        let topic = metadata.topics.get_mut("t").unwrap();
        topic.replication_factor = 2;
        topic.assigned.insert(4, vec![3, 1]);
        assert!(metadata.to_json().contains("\"version\": 2"));
        assert_eq!(read(&metadata), metadata);
        let topic = metadata.topics.get_mut("t").unwrap();
        let moved = PartitionState::new(vec![3, 1]).moved_to(1);
        topic.states.insert(4, Arc::new(moved));
        assert!(metadata.to_json().contains("\"version\": 6"));
        let found = read(&metadata).topics["t"].states[&4].clone();
        assert_eq!(
            (found.leader, found.leader_epoch, &*found.replicas),
            (1, 1, &[1, 3][..])
        );
        metadata.nodes = NodeIds::of(vec![0, 1, 3]).unwrap();
        assert!(metadata.to_json().contains("\"version\": 7"));
        assert_eq!(read(&metadata).nodes, metadata.nodes);
        let text = metadata.to_json().replace("\"nodes\": 3", "\"nodes\": 2");
        let error = ClusterMetadata::from_json(text.as_bytes()).unwrap_err();
        assert_eq!(error, "has no valid `node.ids`");
    }

    #[test]
    fn users_and_rules_are_read_back_and_only_a_newer_reader_takes_their_file() {
        use fletchlog_sasl::{ScramCredential, ScramMechanism};
        let mut metadata = ClusterMetadata::new(NodeIds::numbered(1));
        let credential = ScramCredential::from_salted_password(ScramMechanism::Sha512, b"salted", b"salt", 4096);
        let of = ("alice".to_owned(), ScramMechanism::Sha512);
        metadata.security.scram.insert(of, credential);
        let acl = r#"{"resource.type": "GROUP", "resource.name": "g", "pattern.type": "PREFIXED", "principal": "User:a",
            "host": "*", "operation": "READ", "permission.type": "DENY"}"#;
        let text = metadata.to_json();
        assert!(text.contains("\"version\": 3") && !text.contains("salted"), "{text}");
        let with_acl = text.replacen("\"scram\"", &format!("\"acls\": [{acl}], \"scram\""), 1);
        let read = ClusterMetadata::from_json(with_acl.as_bytes()).unwrap();
        assert_eq!((read.security.scram.len(), read.security.acls.len()), (1, 1));
        assert_eq!(ClusterMetadata::from_json(read.to_json().as_bytes()), Ok(read));
        for (from, to) in [
            ("SCRAM-SHA-512", "PLAIN"),
            ("GROUP", "GROUPS"),
            ("\"g\"", "\"\""),
            ("4096", "-1"),
        ] {
            assert!(
                ClusterMetadata::from_json(with_acl.replacen(from, to, 1).as_bytes()).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn replicas_follow_the_leader_unless_they_were_placed_by_hand() {
        let mut topic = TopicRecord {
            id: [1; 16],
            partitions: 6,
            first_leader: 1,
            replication_factor: 2,
            assigned: BTreeMap::new(),
            states: BTreeMap::new(),
            config: BTreeMap::new(),
        };
        let three = NodeIds::numbered(3);
        assert_eq!(topic.replicas_of(0, &three), [2, 3]);
        assert_eq!(topic.replicas_of(4, &three), [3, 1]);
        topic.assigned.insert(4, vec![1, 2]);
        assert_eq!(
            (topic.replicas_of(4, &three), topic.leader_of(4, &three)),
            (vec![1, 2], 1)
        );
    }

    #[test]
    fn a_file_of_another_version_or_shape_is_refused_with_the_reason() {
        let good = ClusterMetadata::new(NodeIds::numbered(1)).to_json();
        for (bad, reason) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "`version`"),
            (&good.replace("\"version\": 1", "\"version\": 8"), "version 8"),
            (&good.replace("\"nodes\": 1", "\"nodes\": 0"), "`nodes`"),
            (
                &good.replace("\"topics\": []", "\"topics\": [{\"name\": \"a b\"}]"),
                "a b",
            ),
        ] {
            let error = ClusterMetadata::from_json(bad.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
