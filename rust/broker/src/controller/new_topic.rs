//! The partitions of a new topic and the nodes of new partitions. Kafka: `ReplicationControlManager#createTopic`,
//! `#validateManualPartitionAssignment`, with the texts of their errors.

use std::collections::BTreeMap;

use fletchlog_api::{Config, ErrorCode, NodeId};

use crate::BrokerError;
use crate::config_description::ConfigEntry;
use crate::node_ids::NodeIds;

/// Kafka's controller creates at most this many partitions at once (`ReplicationControlManager`); each is a directory.
pub(super) const MAX_PARTITIONS: i32 = 10_000;

/// A topic to create.
#[derive(Debug, Clone)]
pub struct NewTopic {
    /// Number of partitions; -1: the broker's num.partitions.
    pub partitions: i32,
    /// Number of replicas; -1: the broker's default.replication.factor. All replicas share one copy of the bytes, the leader's.
    pub replication_factor: i16,
    /// (partition, nodes of its replicas, the leader first); if there are any, the two numbers above are -1.
    pub assignments: Vec<(i32, Vec<NodeId>)>,
    /// Names and values; if a name comes twice, the last value counts. A value of `None` is refused.
    pub config: Vec<(String, Option<String>)>,
    /// Only check whether it could be created.
    pub validate_only: bool,
}

impl Default for NewTopic {
    /// A topic as the broker's properties define it.
    fn default() -> Self {
        Self {
            partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            config: Vec::new(),
            validate_only: false,
        }
    }
}

/// What was created, or would be.
#[derive(Debug, Clone)]
pub struct CreatedTopic {
    /// 16-byte id; for a topic that was only validated, an id that no topic has.
    pub topic_id: [u8; 16],
    /// Number of partitions.
    pub partitions: i32,
    /// Number of replicas.
    pub replication_factor: i16,
    /// Every property, by name.
    pub config: Vec<ConfigEntry>,
}

/// Where the partitions of a new topic are.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) partitions: i32,
    pub(super) replication_factor: u32,
    pub(super) assigned: BTreeMap<i32, Vec<NodeId>>,
}

impl NewTopic {
    /// Chooses the nodes of its partitions.
    ///
    /// # Errors
    /// INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS.
    pub(super) fn place(&self, broker: &Config, nodes: &NodeIds) -> Result<Placement, BrokerError> {
        if !self.assignments.is_empty() {
            return self.place_by_hand(nodes);
        }
        let refuse = |code, text: &str| Err(BrokerError::kafka(code, text));
        let factor = match self.replication_factor {
            -1 => broker.int("default.replication.factor"),
            given if given < 1 => {
                let text = "Replication factor must be larger than 0, or -1 to use the default value.";
                return refuse(ErrorCode::INVALID_REPLICATION_FACTOR, text);
            }
            given => i32::from(given),
        };
        let partitions = match self.partitions {
            -1 => broker.int("num.partitions"),
            given if given < 1 => {
                let text = "Number of partitions was set to an invalid non-positive value.";
                return refuse(ErrorCode::INVALID_PARTITIONS, text);
            }
            given => given,
        };
        let replication_factor = factor.unsigned_abs();
        if replication_factor > nodes.count() {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                format!(
                    "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be reached because only {} broker(s) are registered or some brokers have all their log directories cordoned.",
                    nodes.count()
                ),
            ));
        }
        Placement::new(partitions, replication_factor, BTreeMap::new())
    }

    fn place_by_hand(&self, nodes: &NodeIds) -> Result<Placement, BrokerError> {
        for (given, what) in [
            (i32::from(self.replication_factor), "replication factor"),
            (self.partitions, "numPartitions"),
        ] {
            if given != -1 {
                let text = format!("A manual partition assignment was specified, but {what} was not set to -1.");
                return Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text));
            }
        }
        let mut assigned = BTreeMap::new();
        let mut factor = None;
        for (partition, replicas) in &self.assignments {
            if assigned.contains_key(partition) {
                return Err(invalid(format!(
                    "Found multiple manual partition assignments for partition {partition}"
                )));
            }
            check_assignment(replicas, nodes, factor)?;
            factor = Some(replicas.len());
            assigned.insert(*partition, replicas.clone());
        }
        if !assigned
            .keys()
            .copied()
            .eq(0..i32::try_from(assigned.len()).unwrap_or(i32::MAX))
        {
            return Err(invalid(
                "partitions should be a consecutive 0-based integer sequence".to_owned(),
            ));
        }
        let partitions = i32::try_from(assigned.len()).unwrap_or(i32::MAX);
        Placement::new(partitions, u32::try_from(factor.unwrap_or(1)).unwrap_or(1), assigned)
    }
}

impl Placement {
    fn new(
        partitions: i32,
        replication_factor: u32,
        assigned: BTreeMap<i32, Vec<NodeId>>,
    ) -> Result<Self, BrokerError> {
        if partitions > MAX_PARTITIONS {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_PARTITIONS,
                format!("a topic cannot be created with {partitions} partitions; give 1 to {MAX_PARTITIONS}"),
            ));
        }
        Ok(Self {
            partitions,
            replication_factor,
            assigned,
        })
    }
}

fn invalid(text: String) -> BrokerError {
    BrokerError::kafka(ErrorCode::INVALID_REPLICA_ASSIGNMENT, text)
}

/// Checks that a partition can have these replicas. `factor`: the number of replicas of the partitions before it.
pub(super) fn check_assignment(replicas: &[NodeId], nodes: &NodeIds, factor: Option<usize>) -> Result<(), BrokerError> {
    if replicas.is_empty() {
        return Err(invalid(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        ));
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    for (i, node) in sorted.iter().enumerate() {
        if !nodes.contains(*node) {
            return Err(invalid(format!(
                "The manual partition assignment includes broker {node}, but no such broker is registered."
            )));
        }
        if i > 0 && sorted[i - 1] == *node {
            return Err(invalid(format!(
                "The manual partition assignment includes the broker {node} more than once."
            )));
        }
    }
    match factor {
        Some(factor) if factor != replicas.len() => Err(invalid(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous partitions, which have {factor} replica(s).",
            replicas.len()
        ))),
        _ => Ok(()),
    }
}
