//! More partitions for a topic that exists. Kafka: `ReplicationControlManager#createPartitions`, with the texts of its errors.
//!
//! It is one write of `fletchlog.metadata`, which is atomic: after a crash the partitions are there all or none. Their directories are
//! made before it.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};

use super::ReplicaManager;
use super::new_topic::{MAX_PARTITIONS, check_assignment};
use crate::BrokerError;
use crate::directory::{self, ClusterMetadata, TopicRecord};

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
        let altered = Arc::new(topic.altered(record.clone(), &self.configs(), self.logs.directory())?);
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
