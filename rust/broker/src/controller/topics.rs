//! Creating and deleting topics. Kafka: `ReplicationControlManager`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fletchlog_api::{Config, ErrorCode, NodeId, Scope};
use fletchlog_records::planted;

use super::Controller;
use super::new_topic::{CreatedTopic, NewTopic, Placement};
use crate::config_description::describe_topic_config;
use crate::directory::{ClusterMetadata, NO_LEADER, TopicRecord, deleted_dir_name};
use crate::each_log::EachLog;
use crate::error::spread;
use crate::partition::Partition;
use crate::topic_config::TopicConfig;
use crate::topic_names;
use crate::topic_names::{CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE};
use crate::topics::Topic;
use crate::{BrokerError, uuid};

impl Controller {
    /// `create_topic`. As in Kafka, the coordinators' topics can be created too: they get the partitions and the properties of the
    /// request. Kafka: `ReplicationControlManager#createTopics`, in its order.
    ///
    /// Each topic succeeds or fails separately; those that succeed are in one write of the metadata.
    pub(crate) fn create_topics(&self, all: &[(&str, &NewTopic)]) -> Vec<Result<CreatedTopic, BrokerError>> {
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
            match if planted!("topic-not-written-before-its-answer") {
                Ok(())
            } else {
                self.store_or_undo(&changed, &metadata)
            } {
                Ok(()) => {
                    *metadata = changed;
                    made.into_iter().for_each(|(_, topic)| self.logs.insert(topic));
                }
                Err(error) => {
                    let places: Vec<usize> = made.iter().map(|(place, _)| *place).collect();
                    made.iter()
                        .for_each(|(_, topic)| self.undo_creation(&mut metadata, topic));
                    spread(error, &places, &mut results);
                }
            }
        }
        failed
            .iter()
            .filter(|_| !planted!("directories-of-a-failed-topic-left"))
            .for_each(|topic| self.undo_creation(&mut metadata, topic));
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
        self.logs.for_writing("create topics")?;
        topic_names::validate_name(name)
            .map_err(|reason| BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, reason))?;
        if name == CLUSTER_METADATA {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_REQUEST,
                format!("Creation of internal topic {name} is prohibited."),
            ));
        }
        self.check_name_is_free(name)?;
        check_alike(name, creation.names.get(&topic_names::unified(name)))?;
        let config = self.checked_config(&new.config)?;
        let placement = new.place(self.config(), &creation.changed.nodes)?;
        let mut record = new_record(&creation.changed, placement, config, true);
        self.place_new(&mut record, 0, &creation.changed.nodes)?;
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
        if let Err(error) = self.make_directories(&topic.partitions).or_else(|e| {
            if planted!("topic-made-without-its-directories") {
                Ok(())
            } else {
                Err(e)
            }
        }) {
            creation.failed.push(topic);
            return Err(error);
        }
        creation.changed.topics.insert(name.to_owned(), record);
        creation.changed.topics_created += 1;
        creation
            .names
            .insert(topic_names::unified(name), Arc::clone(&topic.name));
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

    /// `__share_group_state`, created when the first partition of a share group is initialized.
    pub(crate) fn share_state_topic(&self) -> Result<Arc<Topic>, BrokerError> {
        let config = || TopicConfig::share_state_topic(self.config());
        self.internal_topic(
            SHARE_GROUP_STATE,
            "share.coordinator.state.topic.num.partitions",
            config,
        )
    }

    /// The number of replicas of an internal topic: the property, and at most the number of nodes.
    fn internal_replication_factor(&self, name: &str) -> u32 {
        let factor = match name {
            TRANSACTION_STATE => self.config().int("transaction.state.log.replication.factor"),
            SHARE_GROUP_STATE => self.config().int("share.coordinator.state.topic.replication.factor"),
            _ => self.config().int("offsets.topic.replication.factor"),
        };
        factor.unsigned_abs().min(self.num_nodes().unsigned_abs())
    }

    /// The node that will lead a partition of an internal topic when the topic is created; [`NO_LEADER`](crate::directory::NO_LEADER): no node
    /// of its replicas runs.
    pub(crate) fn first_coordinator(&self, name: &str, partition: i32) -> NodeId {
        let factor = u64::from(self.internal_replication_factor(name));
        let first = u64::from(partition.unsigned_abs());
        let mut replicas = (0..factor).map(|i| self.node_ids().at(first + i));
        replicas.find(|node| self.is_active(*node)).unwrap_or(NO_LEADER)
    }

    fn internal_topic<const N: usize>(
        &self,
        name: &str,
        partitions: &str,
        config: impl FnOnce() -> [(String, String); N],
    ) -> Result<Arc<Topic>, BrokerError> {
        if let Ok(topic) = self.topic(name) {
            return Ok(topic);
        }
        self.logs.for_writing("commit offsets or write transactions")?;
        let mut metadata = self.metadata.lock();
        if let Some(topic) = self.logs.table().get(name) {
            // Another thread has created it meanwhile.
            return Ok(topic.clone());
        }
        self.check_name_is_free(name)?;
        let placement = Placement {
            partitions: self.config().int(partitions),
            replication_factor: self.internal_replication_factor(name),
            assigned: BTreeMap::new(),
        };
        let mut record = new_record(&metadata, placement, config().into_iter().collect(), false);
        self.place_new(&mut record, 0, &metadata.nodes)?;
        self.finish_deletions(&mut metadata)?;
        let topic = Topic::new(name, record.clone(), &self.configs(), self.logs.directory())?;
        let topic = Arc::new(topic);
        let mut changed = metadata.clone();
        changed.topics.insert(name.to_owned(), record);
        self.store_or_undo(&changed, &metadata)
            .inspect_err(|_| self.undo_creation(&mut metadata, &topic))?;
        *metadata = changed;
        self.logs.insert(topic.clone());
        Ok(topic)
    }

    /// Kafka: `ReplicationControlManager#validateNewTopicNames`, and the check of `#createTopics` against existing names.
    fn check_name_is_free(&self, name: &str) -> Result<(), BrokerError> {
        check_alike(name, self.logs.table().named_alike(name))
    }

    /// Stores the metadata with a new or changed topic. If that fails, the new file may have its name all the same, and the next
    /// start would find a change that has failed: so the metadata from before is stored again.
    pub(super) fn store_or_undo(&self, changed: &ClusterMetadata, before: &ClusterMetadata) -> Result<(), BrokerError> {
        let (fs, root) = (&**self.logs.directory().fs(), self.logs.directory().root());
        changed.store(fs, root).inspect_err(|_| {
            if !planted!("failed-topic-left-in-metadata")
                && let Err(error) = before.store(fs, root)
            {
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
    fn undo_creation(&self, metadata: &mut ClusterMetadata, topic: &Topic) {
        self.undo_directories(metadata, &topic.name, &topic.partitions, topic.record.id);
    }

    /// Removes the directories of partitions that a topic was to get, as `undo_creation` does.
    pub(super) fn undo_partitions(&self, metadata: &mut ClusterMetadata, name: &str, new: &[Arc<Partition>]) {
        // An id that no topic has: with the topic's own id, the directories of its other partitions would be removed too.
        self.undo_directories(metadata, name, new, uuid::random());
    }

    fn undo_directories(&self, metadata: &mut ClusterMetadata, name: &str, made: &[Arc<Partition>], id: [u8; 16]) {
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
    /// deleted, and those of them that were known.
    ///
    /// Each topic succeeds or fails separately; those that succeed are removed from the metadata in one write.
    pub(crate) fn delete_topics(
        &self,
        names: &[&str],
        on_deleted: impl FnOnce(&[&str], &[Arc<Topic>]),
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
        let stored = if planted!("topic-deleted-before-its-metadata") {
            Ok(())
        } else {
            changed.store(fs, root)
        };
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
        on_deleted(&deleted, &topics.into_iter().flatten().collect::<Vec<_>>());
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
        self.logs.for_writing("delete topics")?;
        if !self.config().boolean("delete.topic.enable") {
            return Err(BrokerError::kafka(
                ErrorCode::TOPIC_DELETION_DISABLED,
                "Topic deletion is disabled.",
            ));
        }
        if topic_names::is_internal(name) {
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

    /// As [`Controller::finish_deletions`], for the first topic of a request that needs it: the others share its result.
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
        if !metadata.deleting.is_empty() && !planted!("deletion-unfinished-when-made-again") {
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

/// The k-th topic starts its stripe of leaders on the node at place k mod the number of nodes; internal topics always on the first, so that the time of the
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
        first_leader: u32::try_from(k % u64::from(metadata.nodes.count())).unwrap_or(0),
        replication_factor: placement.replication_factor,
        assigned: placement.assigned,
        states: BTreeMap::new(),
        config,
    }
}
