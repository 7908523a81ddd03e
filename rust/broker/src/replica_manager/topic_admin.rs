//! Creating, deleting, describing topics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fletchlog_api::{Config, ErrorCode, NodeId, Scope};
use fletchlog_log::ProducerState;
use fletchlog_records::TopicPartition;

use super::ReplicaManager;
use super::new_topic::{CreatedTopic, NewTopic, Placement};
use crate::config_description::describe_topic_config;
use crate::directory::{ClusterMetadata, TopicRecord, deleted_dir_name};
use crate::log_manager::EachLog;
use crate::partition::Partition;
use crate::topic_config::TopicConfig;
use crate::topics::{self, CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE, Topic};
use crate::{BrokerError, uuid};

/// The result of `describe_topic`.
#[derive(Debug, Clone)]
pub struct TopicDescription {
    /// Name.
    pub name: Arc<str>,
    /// 16-byte id.
    pub topic_id: [u8; 16],
    /// Explicit configuration.
    pub config: BTreeMap<String, String>,
    /// Per partition: (partition, leader node, start, end (high watermark), last stable offset, bytes, segments).
    pub partitions: Vec<PartitionDescription>,
}

/// One partition of a [`TopicDescription`]. Offsets, bytes and segments are -1 if its log cannot be read.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PartitionDescription {
    pub partition: i32,
    pub leader: NodeId,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub size_bytes: i64,
    pub segments: i64,
}

impl PartitionDescription {
    /// A partition with this value for everything that its log would show. 0: nothing was written to it; -1: its log cannot be read.
    fn of_length(partition: &Partition, length: i64) -> Self {
        Self {
            partition: partition.tp().partition,
            leader: partition.leader(),
            log_start_offset: length,
            high_watermark: length,
            last_stable_offset: length,
            size_bytes: length,
            segments: length,
        }
    }
}

impl ReplicaManager {
    /// `create_topic`. As in Kafka, the coordinators' topics can be created too: they get the partitions and the properties of the
    /// request. Kafka: `ReplicationControlManager#createTopics`, in its order.
    ///
    /// Each topic succeeds or fails separately; those that succeed are in one write of the metadata.
    pub(crate) fn create_user_topics(&self, all: &[(&str, &NewTopic)]) -> Vec<Result<CreatedTopic, BrokerError>> {
        let mut metadata = self.metadata.lock();
        let mut creation = Creation::new(&metadata);
        let mut results: Vec<_> = all
            .iter()
            .map(|(name, new)| self.prepare_topic(&mut metadata, &mut creation, name, new))
            .collect();
        let Creation {
            made, failed, changed, ..
        } = creation;
        if !made.is_empty() {
            match self.store_or_undo(&changed, &metadata) {
                Ok(()) => {
                    *metadata = changed;
                    made.into_iter().for_each(|(_, topic)| self.logs.insert(topic));
                }
                Err(error) => {
                    let places: Vec<usize> = made.iter().map(|(place, _)| *place).collect();
                    made.iter().for_each(|(_, topic)| self.take_back(&mut metadata, topic));
                    spread(error, &places, &mut results);
                }
            }
        }
        failed.iter().for_each(|topic| self.take_back(&mut metadata, topic));
        results
    }

    /// Creates the directories of a new topic, if it can be created. The topic exists once the metadata is written.
    fn prepare_topic(
        &self,
        metadata: &mut ClusterMetadata,
        creation: &mut Creation,
        name: &str,
        new: &NewTopic,
    ) -> Result<CreatedTopic, BrokerError> {
        let place = creation.seen;
        creation.seen += 1;
        self.for_writing("create topics")?;
        topics::validate_name(name).map_err(|reason| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, reason))?;
        if name == CLUSTER_METADATA {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_REQUEST,
                format!("Creation of internal topic {name} is prohibited."),
            ));
        }
        self.check_name_is_free(name)?;
        check_alike(name, creation.names.get(&topics::unified(name)))?;
        let config = self.checked_config(&new.config)?;
        let placement = new.place(self.config(), creation.changed.nodes)?;
        let record = new_record(&creation.changed, placement, config, true);
        let created = CreatedTopic {
            topic_id: record.id,
            partitions: record.partitions,
            replication_factor: i16::try_from(record.replication_factor).unwrap_or(i16::MAX),
            config: describe_topic_config(&self.configs(), 1, &record.config)?,
        };
        if new.validate_only {
            return Ok(created);
        }
        self.finish_deletions_once(metadata, &mut creation.changed, &mut creation.finished)?;
        let topic = Topic::new(name, record.clone(), &self.configs(), self.logs.directory())?;
        let topic = Arc::new(topic);
        if let Err(error) = self.make_directories(&topic.partitions) {
            creation.failed.push(topic);
            return Err(error);
        }
        creation.changed.topics.insert(name.to_owned(), record);
        creation.changed.topics_created += 1;
        creation.names.insert(topics::unified(name), Arc::clone(&topic.name));
        creation.made.push((place, topic));
        Ok(created)
    }

    /// The properties of a new topic. Kafka: `ReplicationControlManager#computeConfigChanges`.
    fn checked_config(&self, given: &[(String, Option<String>)]) -> Result<BTreeMap<String, String>, BrokerError> {
        let mut config = BTreeMap::new();
        for (name, value) in given {
            let Some(value) = value else {
                return Err(BrokerError::kafka(
                    ErrorCode::INVALID_CONFIG,
                    format!("Null value not supported for topic configs: {name}"),
                ));
            };
            config.insert(name.clone(), value.trim().to_owned());
        }
        self.check_config(&config)?;
        Ok(config)
    }

    /// Whether a topic can have these properties.
    pub(super) fn check_config(&self, config: &BTreeMap<String, String>) -> Result<TopicConfig, BrokerError> {
        let given = Config::parse(Scope::Topic, config.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
        let config = TopicConfig::new(self.configs().of(1), &given);
        config.validate()?;
        Ok(config)
    }

    /// `__consumer_offsets`, created when the first group needs it; its directories are created one by one, as they are used.
    pub(crate) fn offsets_topic(&self) -> Result<Arc<Topic>, BrokerError> {
        let config = || TopicConfig::offsets_topic(self.config());
        self.internal_topic(CONSUMER_OFFSETS, "offsets.topic.num.partitions", config)
    }

    /// `__transaction_state`, created when the first transactional producer needs it.
    pub(crate) fn transaction_topic(&self) -> Result<Arc<Topic>, BrokerError> {
        let config = || TopicConfig::transaction_topic(self.config());
        self.internal_topic(TRANSACTION_STATE, "transaction.state.log.num.partitions", config)
    }

    fn internal_topic(
        &self,
        name: &str,
        partitions: &str,
        config: impl FnOnce() -> [(String, String); 3],
    ) -> Result<Arc<Topic>, BrokerError> {
        if let Ok(topic) = self.topic(name) {
            return Ok(topic);
        }
        self.for_writing("commit offsets or write transactions")?;
        let mut metadata = self.metadata.lock();
        if let Some(topic) = self.topic_table().get(name) {
            // Another thread has created it meanwhile.
            return Ok(topic.clone());
        }
        self.check_name_is_free(name)?;
        let placement = Placement {
            partitions: self.config().int(partitions),
            replication_factor: 1,
            assigned: BTreeMap::new(),
        };
        let record = new_record(&metadata, placement, config().into_iter().collect(), false);
        self.finish_deletions(&mut metadata)?;
        let topic = Topic::new(name, record.clone(), &self.configs(), self.logs.directory())?;
        let topic = Arc::new(topic);
        let mut changed = metadata.clone();
        changed.topics.insert(name.to_owned(), record);
        self.store_or_undo(&changed, &metadata)
            .inspect_err(|_| self.take_back(&mut metadata, &topic))?;
        *metadata = changed;
        self.logs.insert(topic.clone());
        Ok(topic)
    }

    /// Kafka: `ReplicationControlManager#validateNewTopicNames`, and the check of `#createTopics` against existing names.
    fn check_name_is_free(&self, name: &str) -> Result<(), BrokerError> {
        check_alike(name, self.topic_table().named_alike(name))
    }

    /// Stores the metadata with a new or changed topic. If that fails, the new file may have its name all the same, and the next
    /// start would find a change that has failed: so the metadata from before is stored again.
    pub(super) fn store_or_undo(&self, changed: &ClusterMetadata, before: &ClusterMetadata) -> Result<(), BrokerError> {
        let (fs, root) = (&**self.logs.directory().fs(), self.logs.directory().root());
        changed.store(fs, root).inspect_err(|_| {
            if let Err(error) = before.store(fs, root) {
                log::warn!("the next start may find a change of a topic that has failed: {error}");
            }
        })
    }

    /// Creates the directories of these partitions, with their `partition.metadata`. Those of an internal topic are created as they
    /// are used.
    pub(super) fn make_directories(&self, partitions: &[Arc<Partition>]) -> Result<(), BrokerError> {
        let mut partitions = partitions.iter();
        partitions.try_for_each(|p| p.stamp_topic_id(self.logs.directory()))
    }

    /// Removes the directories of a topic whose creation has failed. What remains is removed before the next topic is created or
    /// deleted, or at the next start, which finds directories without a log that belong to no topic.
    fn take_back(&self, metadata: &mut ClusterMetadata, topic: &Topic) {
        self.take_back_directories(metadata, &topic.name, &topic.partitions, topic.record.id);
    }

    /// Removes the directories of partitions that a topic was to get, as `take_back` does.
    pub(super) fn take_back_partitions(&self, metadata: &mut ClusterMetadata, name: &str, new: &[Arc<Partition>]) {
        // An id that no topic has: with the topic's own id, the directories of its other partitions would be removed too.
        self.take_back_directories(metadata, name, new, uuid::random());
    }

    fn take_back_directories(&self, metadata: &mut ClusterMetadata, name: &str, made: &[Arc<Partition>], id: [u8; 16]) {
        // A directory of another topic, which stays, may be why the creation has failed.
        let made = made.iter().filter(|p| !p.is_foreign(self.logs.directory()));
        if let Err(error) = self.remove_logs(made) {
            log::warn!("directories of topic `{name}`, whose creation has failed, remain: {error}");
            metadata.deleting.push(id);
        }
    }

    /// `delete_topic`: removes the topic from the metadata first (with a note that its directories are to be removed), then renames
    /// the directories out of the way and removes them. If that fails half-way, the topic is deleted all the same; the next creation
    /// or deletion of a topic, or the next start, removes the rest. `on_deleted` is called with the names of the topics that were
    /// deleted.
    ///
    /// Each topic succeeds or fails separately; those that succeed are removed from the metadata in one write.
    pub(crate) fn remove_topics(
        &self,
        names: &[&str],
        on_deleted: impl FnOnce(&[&str]),
    ) -> Vec<Result<(), BrokerError>> {
        let mut metadata = self.metadata.lock();
        let mut changed = metadata.clone();
        let mut gone: Vec<(usize, TopicRecord)> = Vec::new();
        let mut finished = FinishedDeletions::default();
        let mut results: Vec<_> = (names.iter().enumerate())
            .map(|(place, name)| {
                let record = self.take_out(&mut metadata, &mut changed, &mut finished, name)?;
                gone.push((place, record));
                Ok(())
            })
            .collect();
        if gone.is_empty() {
            return results;
        }
        let places: Vec<usize> = gone.iter().map(|(place, _)| *place).collect();
        let (fs, root) = (&**self.logs.directory().fs(), self.logs.directory().root());
        let stored = changed.store(fs, root);
        if stored.is_err() && ClusterMetadata::load(fs, root).is_ok_and(|(found, _)| found.topics == metadata.topics) {
            stored
                .err()
                .into_iter()
                .for_each(|error| spread(error, &places, &mut results));
            return results;
        }
        // Even after a failed write the new file may have its name, though perhaps not durably. From now on no record is accepted,
        // because the topics may not exist at the next start.
        *metadata = changed;
        let deleted: Vec<&str> = places.iter().map(|place| names[*place]).collect();
        let topics: Vec<Option<Arc<Topic>>> = deleted.iter().map(|name| self.logs.remove(name)).collect();
        self.logs.directory().forget_deleted(&metadata);
        let partitions = || topics.iter().flatten().flat_map(|topic| &topic.partitions);
        partitions().for_each(|p| p.set_deleted());
        match stored {
            Err(error) => spread(error, &places, &mut results),
            Ok(()) => self.remove_directories(&mut metadata, &gone, &topics, &mut results),
        }
        drop(metadata);
        on_deleted(&deleted);
        // Waiting fetches of the topics end with their error.
        self.partitions_changed(partitions().map(|p| &**p));
        results
    }

    /// Removes a topic from the metadata to be written, with a note that its directories are to be removed.
    fn take_out(
        &self,
        metadata: &mut ClusterMetadata,
        changed: &mut ClusterMetadata,
        finished: &mut FinishedDeletions,
        name: &str,
    ) -> Result<TopicRecord, BrokerError> {
        self.for_writing("delete topics")?;
        if !self.config().boolean("delete.topic.enable") {
            return Err(BrokerError::kafka(
                ErrorCode::TOPIC_DELETION_DISABLED,
                "Topic deletion is disabled.",
            ));
        }
        if topics::is_internal(name) {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                format!("`{name}` is the broker's own topic and cannot be deleted"),
            ));
        }
        // A caller that gets UNKNOWN_TOPIC_OR_PARTITION relies on the topic being gone.
        self.finish_deletions_once(metadata, changed, finished)?;
        let record = changed
            .topics
            .remove(name)
            .ok_or_else(|| BrokerError::unknown_topic(name))?;
        changed.deleting.push(record.id);
        Ok(record)
    }

    /// Removes the directories of deleted topics, then the notes of the topics whose directories were removed.
    fn remove_directories(
        &self,
        metadata: &mut ClusterMetadata,
        gone: &[(usize, TopicRecord)],
        topics: &[Option<Arc<Topic>>],
        results: &mut [Result<(), BrokerError>],
    ) {
        let (mut places, mut ids) = (Vec::new(), BTreeSet::new());
        for ((place, record), topic) in gone.iter().zip(topics) {
            match self.remove_logs(topic.iter().flat_map(|topic| &topic.partitions)) {
                Ok(()) => {
                    places.push(*place);
                    ids.insert(record.id);
                }
                Err(error) => results[*place] = Err(error),
            }
        }
        if !places.is_empty()
            && let Err(error) = self.forget_deletions(metadata, &ids)
        {
            spread(error, &places, results);
        }
    }

    /// Removes the notes of deletions once the directories are removed. The checkpoints are written first, so that no checkpoint
    /// names them and their removal is durable.
    fn forget_deletions(&self, metadata: &mut ClusterMetadata, ids: &BTreeSet<[u8; 16]>) -> Result<(), BrokerError> {
        self.logs.write_checkpoints()?;
        let mut changed = metadata.clone();
        changed.deleting.retain(|id| !ids.contains(id));
        changed.store(&**self.logs.directory().fs(), self.logs.directory().root())?;
        *metadata = changed;
        Ok(())
    }

    /// As [`ReplicaManager::finish_deletions`], for the first topic of a request that needs it: the others share its result.
    /// `changed` is the metadata to be written.
    pub(super) fn finish_deletions_once(
        &self,
        metadata: &mut ClusterMetadata,
        changed: &mut ClusterMetadata,
        finished: &mut FinishedDeletions,
    ) -> Result<(), BrokerError> {
        let finish = || {
            self.finish_deletions(metadata)
                .map_err(|error| (error.code(), error.to_string()))?;
            changed.deleting.clone_from(&metadata.deleting);
            Ok(())
        };
        let finished = finished.0.get_or_insert_with(finish);
        finished.clone().map_err(|(code, text)| BrokerError::kafka(code, text))
    }

    /// Removes what interrupted deletions have left, directories or offsets in checkpoints: a new topic would use it as its own. The
    /// metadata is written first, as it may not have been durable.
    fn finish_deletions(&self, metadata: &mut ClusterMetadata) -> Result<(), BrokerError> {
        if !metadata.deleting.is_empty() {
            metadata.store(&**self.logs.directory().fs(), self.logs.directory().root())?;
            self.logs.directory().clear_leftovers(metadata)?;
            self.logs.write_checkpoints()?;
            metadata.deleting.clear();
        }
        Ok(())
    }

    fn remove_logs<'a>(&self, partitions: impl Iterator<Item = &'a Arc<Partition>>) -> Result<(), BrokerError> {
        let mut removing = EachLog::new("cannot be removed");
        for partition in partitions {
            removing.note(partition, self.remove_log(partition));
        }
        removing.outcome()
    }

    fn remove_log(&self, partition: &Partition) -> Result<(), BrokerError> {
        if let Some(log) = partition.opened_log() {
            // A failure does not matter: the data is removed anyway, and later calls of the log return Closed.
            let _ = log.close();
        }
        let (fs, dir) = (&**self.logs.directory().fs(), partition.dir());
        if !fs.exists(dir) {
            return Ok(());
        }
        let target = dir.with_file_name(deleted_dir_name(partition.tp()));
        fs.rename(dir, &target)
            .and_then(|()| fs.remove_dir_all(&target))
            .map_err(|e| BrokerError::directory(fs, dir, format!("cannot be removed: {e}")))
    }

    /// `describe_topic`. A partition whose log cannot be read has -1 for what is unknown, and the failure is logged.
    pub(crate) fn describe(&self, name: &str) -> Result<TopicDescription, BrokerError> {
        let topic = self.topic(name)?;
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        let mut describing = EachLog::new("cannot be described");
        for partition in &topic.partitions {
            // One broker of a cluster has only some partitions of a topic.
            if self.logs.directory().is_kafkas() && !self.logs.directory().fs().exists(partition.dir()) {
                continue;
            }
            let described = self.describe_partition(partition);
            let Some(described) = self.logs.unless_deleted(partition, described).transpose() else {
                return Err(BrokerError::unknown_topic(name));
            };
            let described = describing.note(partition, described);
            partitions.push(described.unwrap_or_else(|| PartitionDescription::of_length(partition, -1)));
        }
        describing.report();
        Ok(TopicDescription {
            name: topic.name.clone(),
            topic_id: topic.record.id,
            config: topic.record.config.clone(),
            partitions,
        })
    }

    fn describe_partition(&self, partition: &Partition) -> Result<PartitionDescription, BrokerError> {
        // Describing a partition that was never used does not create its log.
        if partition.opened_log().is_none() && !self.has_log(partition)? {
            return Ok(PartitionDescription::of_length(partition, 0));
        }
        let log = self.log_of(partition)?;
        Ok(PartitionDescription {
            log_start_offset: log.log_start_offset(),
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            size_bytes: i64::try_from(log.size()).unwrap_or(i64::MAX),
            segments: i64::try_from(log.segments().len()).unwrap_or(i64::MAX),
            ..PartitionDescription::of_length(partition, 0)
        })
    }

    /// `describe_producers`. Kafka: `ReplicaManager#activeProducerState`.
    pub(crate) fn describe_producers(
        &self,
        node: NodeId,
        tp: &TopicPartition,
    ) -> Result<Vec<ProducerState>, BrokerError> {
        let partition = self.partition(tp)?;
        if !partition.replicas().contains(&node) {
            let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            return Err(BrokerError::kafka(code, format!("node {node} has no replica of {tp}")));
        }
        // Describing a partition that was never used does not create its log.
        if partition.opened_log().is_none() && !self.has_log(&partition)? {
            return Ok(Vec::new());
        }
        Ok(self.log_of(&partition)?.active_producers())
    }

    /// DeleteRecords (spec 4.2), for each partition separately. Kafka: `ReplicaManager#deleteRecords`,
    /// `Partition#deleteRecordsOnLeader`.
    pub(crate) fn delete_records_of(&self, all: &[(&TopicPartition, Option<i64>)]) -> Vec<Result<i64, BrokerError>> {
        let (mut starts, mut places) = (Vec::new(), Vec::new());
        let mut results: Vec<_> = (all.iter().enumerate())
            .map(|(place, (tp, before_offset))| {
                let (partition, start) = self.log_start_after_deleting(tp, *before_offset)?;
                starts.push((partition, start));
                places.push(place);
                Ok(start)
            })
            .collect();
        if starts.is_empty() {
            return results;
        }
        // Kafka writes log starts once a minute; but if a crash reverted a log start that clients have seen, deleted records would
        // exist again.
        let delete = |partition: &Partition, start| Ok(self.log_of(partition)?.delete_records(Some(start))?);
        match self.logs.write_checkpoints_for(&starts, delete) {
            Ok(deleted) => places
                .iter()
                .zip(deleted)
                .for_each(|(place, deleted)| results[*place] = deleted),
            Err(error) => spread(error, &places, &mut results),
        }
        let deleted = places.iter().zip(&starts).filter(|(place, _)| results[**place].is_ok());
        self.partitions_changed(deleted.map(|(_, (partition, _))| &**partition));
        results
    }

    /// A partition, and where its log would start after the deletion.
    fn log_start_after_deleting(
        &self,
        tp: &TopicPartition,
        before_offset: Option<i64>,
    ) -> Result<(Arc<Partition>, i64), BrokerError> {
        self.for_writing("delete records")?;
        let partition = self.partition(tp)?;
        if topics::is_internal(&tp.topic) {
            let text = format!(
                "`{}` is the broker's own topic; its records cannot be deleted",
                tp.topic
            );
            return Err(BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text));
        }
        if !partition.config().log.cleanup_delete {
            return Err(BrokerError::kafka(
                ErrorCode::POLICY_VIOLATION,
                format!("records of {tp} cannot be deleted: the topic's cleanup.policy lacks `delete`"),
            ));
        }
        let start = self.log_of(&partition)?.log_start_after_deleting(before_offset)?;
        Ok((partition, start))
    }
}

/// The result of the deletions that a request had to finish first; `None`: it has not needed to yet.
#[derive(Default)]
pub(super) struct FinishedDeletions(Option<Result<(), (ErrorCode, String)>>);

/// Topics that are being created.
struct Creation {
    /// Number of topics of the request that were examined.
    seen: usize,
    /// Topics whose directories exist, with their indexes in the request.
    made: Vec<(usize, Arc<Topic>)>,
    /// The names of these topics, by their unified names.
    names: HashMap<String, Arc<str>>,
    /// Topics without some of their directories.
    failed: Vec<Arc<Topic>>,
    finished: FinishedDeletions,
    /// The metadata to be written.
    changed: ClusterMetadata,
}

impl Creation {
    fn new(metadata: &ClusterMetadata) -> Self {
        Self {
            seen: 0,
            made: Vec::new(),
            names: HashMap::new(),
            failed: Vec::new(),
            finished: FinishedDeletions::default(),
            changed: metadata.clone(),
        }
    }
}

/// Makes the error of a write the result of each change that was part of it.
pub(super) fn spread<T>(error: BrokerError, places: &[usize], results: &mut [Result<T, BrokerError>]) {
    let (code, text) = (error.code(), error.to_string());
    for place in places.iter().skip(1) {
        results[*place] = Err(BrokerError::kafka(code, text.clone()));
    }
    if let Some(first) = places.first() {
        results[*first] = Err(error);
    }
}

/// `alike`: a topic whose name is the same, or differs from it only in `.` and `_`.
fn check_alike(name: &str, alike: Option<&Arc<str>>) -> Result<(), BrokerError> {
    match alike {
        None => Ok(()),
        Some(other) if **other == *name => Err(BrokerError::kafka(
            ErrorCode::TOPIC_ALREADY_EXISTS,
            format!("Topic '{name}' already exists."),
        )),
        Some(other) => Err(BrokerError::kafka(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("Topic '{name}' collides with existing topic: {other}"),
        )),
    }
}

/// The k-th topic starts its stripe of leaders on node 1 + k mod nodes; internal topics always on node 1, so that the time of the
/// first commit does not move the leaders of later topics.
fn new_record(
    metadata: &ClusterMetadata,
    placement: Placement,
    config: BTreeMap<String, String>,
    counted: bool,
) -> TopicRecord {
    let k = if counted { metadata.topics_created } else { 0 };
    TopicRecord {
        id: uuid::random(),
        partitions: placement.partitions,
        first_leader: u32::try_from(k % u64::from(metadata.nodes)).unwrap_or(0),
        replication_factor: placement.replication_factor,
        assigned: placement.assigned,
        config,
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::transport::SystemClock;
    use fletchlog_log::checkpoint::read_offset_checkpoint;
    use fletchlog_log::file_name::LOG_START_OFFSET_CHECKPOINT;

    use super::*;
    use crate::broker::only;
    use crate::{Broker, OpenOptions};

    fn broker() -> Arc<Broker> {
        let options = OpenOptions {
            nodes: None,
            read_only: false,
            config: Config::parse(Scope::Broker, []).unwrap(),
        };
        let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        broker
    }

    #[test]
    fn a_call_that_still_holds_a_partition_of_a_deleted_topic_makes_nothing_that_a_new_one_would_find() {
        let broker = broker();
        // Like an append or a creation that runs at the same time.
        let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
        broker.delete_topic("t").unwrap();
        for refused in [
            held.stamp_topic_id(broker.replicas().logs.directory()),
            broker.replicas().log_of(&held).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        assert!(!broker.replicas().logs.directory().fs().exists(held.dir()));
        broker.create_topic("t", 1, &[]).unwrap();
        broker.partition_log(held.tp()).unwrap();
    }

    #[test]
    fn a_call_that_still_deletes_records_of_a_deleted_topic_does_not_move_the_start_of_a_new_one() {
        let broker = broker();
        let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
        broker.delete_topic("t").unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        broker.partition_log(held.tp()).unwrap();
        let nothing = |_: &Partition, _| -> Result<(), BrokerError> { panic!("nothing is to hold") };
        let starts = [(Arc::clone(&held), 7)];
        let refused = only(broker.replicas().logs.write_checkpoints_for(&starts, nothing).unwrap());
        assert_eq!(refused.unwrap_err().code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let path = held.dir().with_file_name(LOG_START_OFFSET_CHECKPOINT);
        let starts = read_offset_checkpoint(&**broker.replicas().logs.directory().fs(), &path).unwrap();
        assert_eq!(starts.get(held.tp()), None);
    }

    #[test]
    fn what_goes_over_all_topics_passes_by_one_that_is_deleted_meanwhile() {
        let broker = broker();
        let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
        let log = broker.partition_log(held.tp()).unwrap();
        broker.delete_topic("t").unwrap();
        let closed = log.flush().map_err(BrokerError::from);
        assert_eq!(
            closed.as_ref().unwrap_err().code(),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        );
        assert!(broker.replicas().logs.unless_deleted(&held, closed).unwrap().is_none());
        broker.create_topic("t", 1, &[]).unwrap();
        let another = broker.replicas().partition(held.tp()).unwrap();
        let failed = || Err::<(), _>(BrokerError::unknown_partition(held.tp()));
        assert!(
            broker
                .replicas()
                .logs
                .unless_deleted(&held, failed())
                .unwrap()
                .is_none()
        );
        broker.replicas().logs.unless_deleted(&another, failed()).unwrap_err();
    }
}
