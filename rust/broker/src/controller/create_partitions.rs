//! Adds partitions to existing topics. Kafka: `ReplicationControlManager#createPartitions`, with the texts of its errors.
//!
//! The change is one atomic write of `fletchlog.metadata`: after a crash either all new partitions exist or none. Their directories
//! are created before it.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};

use super::Controller;
use super::new_topic::{MAX_PARTITIONS, check_assignment};
use super::topics::FinishedDeletions;
use crate::BrokerError;
use crate::directory::{self, ClusterMetadata, TopicRecord};
use crate::error::spread;
use crate::topics::Topic;

/// More partitions for a topic.
#[derive(Debug, Clone)]
pub struct MorePartitions {
    /// The topic.
    pub topic: Arc<str>,
    /// Its total number of partitions after the change.
    pub count: i32,
    /// Replica nodes of each new partition, the leader first.
    pub assignments: Option<Vec<Vec<NodeId>>>,
}

/// Topics that get more partitions.
struct Growth {
    /// Topics whose new directories exist, with their indexes in the request.
    grown: Vec<(usize, Grown)>,
    /// Topics without some of their new directories.
    failed: Vec<Grown>,
    finished: FinishedDeletions,
    /// The metadata to be written.
    changed: ClusterMetadata,
}

/// A topic, and how many partitions it had.
struct Grown {
    topic: Arc<Topic>,
    before: usize,
}

impl Controller {
    /// `create_partitions`: each topic succeeds or fails separately; those that succeed are in one write of the metadata.
    pub(crate) fn create_partitions(
        &self,
        all: &[MorePartitions],
        validate_only: bool,
    ) -> Vec<Result<(), BrokerError>> {
        let mut metadata = self.metadata.lock();
        let mut growth = Growth {
            grown: Vec::new(),
            failed: Vec::new(),
            finished: FinishedDeletions::default(),
            changed: metadata.clone(),
        };
        let mut results: Vec<_> = (all.iter().enumerate())
            .map(|(place, more)| self.prepare_partitions(&mut metadata, &mut growth, place, more, validate_only))
            .collect();
        let Growth {
            grown, failed, changed, ..
        } = growth;
        if !grown.is_empty() {
            match self.store_or_undo(&changed, &metadata) {
                Ok(()) => {
                    *metadata = changed;
                    grown.into_iter().for_each(|(_, grown)| self.logs.insert(grown.topic));
                }
                Err(error) => {
                    let places: Vec<usize> = grown.iter().map(|(place, _)| *place).collect();
                    grown
                        .iter()
                        .for_each(|(_, grown)| self.undo_growth(&mut metadata, grown));
                    spread(error, &places, &mut results);
                }
            }
        }
        failed.iter().for_each(|grown| self.undo_growth(&mut metadata, grown));
        results
    }

    fn undo_growth(&self, metadata: &mut ClusterMetadata, Grown { topic, before }: &Grown) {
        self.undo_partitions(metadata, &topic.name, &topic.partitions[*before..]);
    }

    /// Creates the directories of a topic's new partitions, if it can have them.
    fn prepare_partitions(
        &self,
        metadata: &mut ClusterMetadata,
        growth: &mut Growth,
        place: usize,
        more: &MorePartitions,
        validate_only: bool,
    ) -> Result<(), BrokerError> {
        self.logs.for_writing("create partitions")?;
        let name = &*more.topic;
        let mut record = record_of(&growth.changed, name)?.clone();
        let additional = additional_partitions(name, record.partitions, more.count)?;
        if let Some(assignments) = &more.assignments {
            if assignments.len() != additional {
                return Err(BrokerError::kafka(
                    ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                    format!(
                        "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                        assignments.len()
                    ),
                ));
            }
            let factor = record.replicas_of(0, &metadata.nodes).len();
            for (partition, replicas) in (record.partitions..).zip(assignments) {
                check_assignment(replicas, &metadata.nodes, Some(factor))?;
                record.assigned.insert(partition, replicas.clone());
            }
        }
        let before = record.partitions;
        record.partitions = more.count;
        self.place_new(&mut record, before, &metadata.nodes)?;
        if validate_only {
            return Ok(());
        }
        self.finish_deletions_once(metadata, &mut growth.changed, &mut growth.finished)?;
        let topic = self.topic(name)?;
        let grown = Grown {
            topic: Arc::new(topic.altered(record.clone(), &self.configs(), self.logs.directory())?),
            before: topic.partitions.len(),
        };
        // The metadata is written last, as for a new topic.
        if let Err(error) = self.make_directories(&grown.topic.partitions[grown.before..]) {
            growth.failed.push(grown);
            return Err(error);
        }
        growth.changed.topics.insert(name.to_owned(), record);
        growth.grown.push((place, grown));
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
