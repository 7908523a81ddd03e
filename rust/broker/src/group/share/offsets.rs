//! Where the records of a share group begin: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets (spec 14.3).
//! Kafka: `GroupCoordinatorService#describeShareGroupOffsets`, `GroupMetadataManager#alterShareGroupOffsets`,
//! `#sharePartitionsEligibleForOffsetDeletion`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition as AlteredPartition, AlterShareGroupOffsetsResponseTopic as AlteredTopic,
};
use fletchlog_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic as DeletedTopic;
use fletchlog_protocol::messages::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponsePartition as DescribedPartition,
    DescribeShareGroupOffsetsResponseTopic as DescribedTopic,
};
use fletchlog_protocol::messages::read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
use fletchlog_protocol::messages::read_share_group_state_summary_response::PartitionResult;
use fletchlog_protocol::messages::{
    AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest, ReadShareGroupStateSummaryRequest,
};
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_records::TopicPartition;

use super::super::admin::{check_empty, not_loaded};
use super::super::coordinator::GroupCoordinator;
use super::admin::not_a_share_group;
use super::state_partitions::{Named, StatePartitions, merge};
use super::step::ToInitialize;
use crate::BrokerError;

/// What Kafka says of a partition that does not exist. Kafka: `Errors#UNKNOWN_TOPIC_OR_PARTITION`.
const UNKNOWN: &str = "This server does not host this topic-partition.";
/// In place of an offset and of a lag that are not known.
const NOT_KNOWN: i64 = -1;

/// Topics with the partitions of each.
type Asked = Vec<(Arc<str>, Vec<i32>)>;

impl GroupCoordinator {
    /// Where the records of a share group begin, as persisted, and how many are behind that and not done. `topics`: of all partitions
    /// that have a state, if it is `None`. A group, a topic or a state that does not exist has no start.
    ///
    /// # Errors
    /// UNKNOWN_SERVER_ERROR, as in Kafka: no group id, a topic without partitions, a negative partition.
    pub(crate) fn share_group_offsets(
        &self,
        group_id: &Arc<str>,
        topics: Option<Asked>,
    ) -> Result<Vec<DescribedTopic>, BrokerError> {
        self.tick(self.replicas.clock().monotonic_ms());
        self.load_group(group_id).map_err(|code| not_loaded(code, group_id))?;
        let of_group = topics.is_none();
        let topics = topics.unwrap_or_else(|| self.share_partitions_of(group_id));
        let is_wrong =
            |(_, partitions): &(Arc<str>, Vec<i32>)| partitions.is_empty() || partitions.iter().any(|p| *p < 0);
        if !of_group && !topics.is_empty() && (group_id.is_empty() || topics.iter().any(is_wrong)) {
            let text = "The server experienced an unexpected error when processing the request.";
            return Err(BrokerError::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, text));
        }
        Ok(topics
            .into_iter()
            .map(|(name, partitions)| self.describe_share_topic(group_id, name, partitions))
            .collect())
    }

    /// The partitions of a share group that have a state, of topics that exist.
    fn share_partitions_of(&self, group_id: &str) -> Asked {
        let all = self.in_group(group_id, |group| {
            let share = group.share.as_deref()?;
            Some(share.partitions.initialized.clone())
        });
        let table = self.replicas.topic_table();
        let exists = |(id, (_, partitions)): (TopicId, (Arc<str>, BTreeSet<i32>))| {
            Some((Arc::clone(table.name_of(&id)?), partitions.into_iter().collect()))
        };
        all.flatten()
            .unwrap_or_default()
            .into_iter()
            .filter_map(exists)
            .collect()
    }

    fn describe_share_topic(&self, group_id: &Arc<str>, topic_name: Arc<str>, partitions: Vec<i32>) -> DescribedTopic {
        let known = self.replicas.topic_table().get(&topic_name).cloned();
        let partitions: BTreeSet<i32> = partitions.into_iter().collect();
        let not_known = |partition_index: i32| DescribedPartition {
            partition_index,
            start_offset: NOT_KNOWN,
            lag: NOT_KNOWN,
            ..Default::default()
        };
        let Some(topic) = known else {
            return DescribedTopic {
                topic_name,
                partitions: partitions.into_iter().map(not_known).collect(),
                ..Default::default()
            };
        };
        let topic_id = topic.record.id;
        let exists = |p: &i32| topic.partition(*p).is_some();
        let summaries = self.share_summaries(group_id, topic_id, partitions.iter().copied().filter(exists).collect());
        // A real Kafka never responds if a partition of a topic that exists does not exist.
        let describe = |partition: i32| match summaries.get(&partition) {
            None => DescribedPartition {
                error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                error_message: Some(UNKNOWN.into()),
                ..not_known(partition)
            },
            Some(failed) if failed.error_code != ErrorCode::NONE => DescribedPartition {
                error_code: failed.error_code,
                error_message: failed.error_message.clone(),
                ..not_known(partition)
            },
            Some(summary) => DescribedPartition {
                start_offset: summary.start_offset,
                leader_epoch: summary.leader_epoch,
                lag: self.share_lag(&TopicPartition::new(Arc::clone(&topic_name), partition), summary),
                ..not_known(partition)
            },
        };
        let partitions = partitions.into_iter().map(describe).collect();
        DescribedTopic {
            partitions,
            topic_name,
            topic_id,
        }
    }

    fn share_summaries(
        &self,
        group_id: &Arc<str>,
        topic_id: TopicId,
        partitions: Vec<i32>,
    ) -> BTreeMap<i32, PartitionResult> {
        let asked = partitions.into_iter().map(|partition| PartitionData {
            partition,
            leader_epoch: 0,
        });
        let response = self
            .share_states
            .read_state_summary(&ReadShareGroupStateSummaryRequest {
                group_id: Arc::clone(group_id),
                topics: vec![ReadStateSummaryData {
                    topic_id,
                    partitions: asked.collect(),
                }],
            });
        let results = response.results.into_iter().flat_map(|topic| topic.partitions);
        results.map(|result| (result.partition, result)).collect()
    }

    /// The records between the start and the end of the log that are not done; negative if the start was set beyond the end. Kafka:
    /// `GroupCoordinatorService#readShareGroupStateSummary`.
    fn share_lag(&self, tp: &TopicPartition, summary: &PartitionResult) -> i64 {
        if summary.start_offset == NOT_KNOWN || summary.delivery_complete_count < 0 {
            return NOT_KNOWN;
        }
        let partition = self.replicas.partition(tp);
        let end = partition.and_then(|p| self.replicas.log_of(&p).map(|log| log.high_watermark()));
        end.map_or(NOT_KNOWN, |end| {
            let done = i64::from(summary.delivery_complete_count);
            end.saturating_sub(summary.start_offset).saturating_sub(done)
        })
    }

    /// Sets where the records of a share group without members begin; makes the group if it does not exist.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND: it is a group of another kind. The error of each partition is in its result.
    pub(crate) fn alter_share_group_offsets(
        &self,
        request: &AlterShareGroupOffsetsRequest,
    ) -> Result<Vec<AlteredTopic>, BrokerError> {
        self.replicas.for_writing("alter offsets")?;
        let group_id = &request.group_id;
        self.tick(self.replicas.clock().monotonic_ms());
        self.load_group(group_id).map_err(|code| not_loaded(code, group_id))?;
        let (mut altered, topics, starts) = self.starts_of(request);
        let wanted = self.in_new_group(group_id, |group| {
            if group.share.is_none() && group.is_in_use() {
                return Err(not_a_share_group(group_id));
            }
            check_empty(group)?;
            if topics.is_empty() {
                if !group.is_in_use() {
                    self.remove_group(group);
                }
                return Ok(None);
            }
            let share = group.share.get_or_insert_default();
            let state_epoch = share.epoch;
            let mut partitions = StatePartitions::clone(&share.partitions);
            merge(&mut partitions.initializing, &topics);
            let stored = self.store_share_partitions(group_id, share, partitions);
            group.is_stored = true;
            stored?;
            Ok(Some(ToInitialize {
                state_epoch,
                topics,
                starts,
            }))
        })?;
        let Some(wanted) = wanted.filter(|wanted| wanted.partitions().next().is_some()) else {
            return Ok(altered);
        };
        let errors = self.initialize_share_states(group_id, &wanted);
        for topic in &mut altered {
            for partition in &mut topic.partitions {
                if let Some(error) = errors.get(&(topic.topic_id, partition.partition_index)) {
                    partition.error_code = *error;
                    partition.error_message = Some(error.message().into());
                }
            }
        }
        Ok(altered)
    }

    /// The results of a request for partitions that exist, and for others; what is to be initialized.
    fn starts_of(
        &self,
        request: &AlterShareGroupOffsetsRequest,
    ) -> (Vec<AlteredTopic>, Named, BTreeMap<(TopicId, i32), i64>) {
        let table = self.replicas.topic_table();
        let (mut topics, mut starts) = (Named::new(), BTreeMap::new());
        let altered = request.topics.iter().map(|asked| {
            let topic = table.get(&asked.topic_name);
            if let Some(topic) = topic {
                topics
                    .entry(topic.record.id)
                    .or_insert_with(|| (topic.name.clone(), BTreeSet::new()));
            }
            let mut altered = |asked: &fletchlog_protocol::messages::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestPartition| {
                let partition_index = asked.partition_index;
                let known = topic.filter(|topic| topic.partition(partition_index).is_some());
                let Some(topic) = known else {
                    return AlteredPartition {
                        partition_index,
                        error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        error_message: Some(UNKNOWN.into()),
                    };
                };
                let id = topic.record.id;
                if let Some((_, partitions)) = topics.get_mut(&id) {
                    partitions.insert(partition_index);
                }
                starts.insert((id, partition_index), asked.start_offset);
                AlteredPartition {
                    partition_index,
                    ..Default::default()
                }
            };
            AlteredTopic {
                topic_name: Arc::clone(&asked.topic_name),
                topic_id: topic.map_or([0; 16], |topic| topic.record.id),
                partitions: asked.partitions.iter().map(&mut altered).collect(),
            }
        });
        // A topic that is named twice has one entry, at its first place.
        let mut merged: Vec<AlteredTopic> = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        for topic in altered {
            match places.entry(Arc::clone(&topic.topic_name)) {
                Entry::Occupied(place) => merged[*place.get()].partitions.extend(topic.partitions),
                Entry::Vacant(place) => {
                    place.insert(merged.len());
                    merged.push(topic);
                }
            }
        }
        (merged, topics, starts)
    }

    /// Deletes the states of topics for a share group without members.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. The error of each topic is in its result.
    pub(crate) fn delete_share_group_offsets(
        &self,
        request: &DeleteShareGroupOffsetsRequest,
    ) -> Result<Vec<DeletedTopic>, BrokerError> {
        self.replicas.for_writing("delete offsets")?;
        let group_id = &request.group_id;
        let names: Vec<Arc<str>> = request
            .topics
            .iter()
            .map(|topic| Arc::clone(&topic.topic_name))
            .collect();
        let (mut deleted, states) = self.in_known_group(group_id, |group| {
            if group.share.is_some() {
                check_empty(group)?;
            }
            let Some(share) = group.share.as_deref_mut() else {
                return Err(not_a_share_group(group_id));
            };
            let mut partitions = StatePartitions::clone(&share.partitions);
            let (deleted, states) = self.take_states(&mut partitions, &names);
            // As in Kafka also if nothing is to be deleted.
            if share.has_partitions_record {
                self.store_share_partitions(group_id, share, partitions)?;
            }
            Ok((deleted, states))
        })?;
        if states.is_empty() {
            return Ok(deleted);
        }
        let failed = self.delete_share_states(group_id, &states);
        for topic in &mut deleted {
            if let Some((code, text)) = failed.get(&topic.topic_id) {
                topic.error_code = *code;
                topic.error_message = Some(text.as_str().into());
            }
        }
        self.states_deleted(group_id, states.keys().filter(|id| !failed.contains_key(*id)));
        Ok(deleted)
    }

    /// Moves topics to those whose states are being deleted; returns the result of each topic and the states.
    fn take_states(&self, partitions: &mut StatePartitions, names: &[Arc<str>]) -> (Vec<DeletedTopic>, Named) {
        let table = self.replicas.topic_table();
        let mut states = Named::new();
        let refused = |topic_name: &Arc<str>, text: &str| DeletedTopic {
            topic_name: Arc::clone(topic_name),
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            error_message: Some(text.into()),
            ..Default::default()
        };
        let take = |name: &Arc<str>| {
            let Some(topic) = table.get(name) else {
                return refused(name, UNKNOWN);
            };
            let id = topic.record.id;
            if let Some(initialized) = partitions.initialized.remove(&id) {
                states.insert(id, initialized);
                partitions.deleting.insert(id, Arc::clone(name));
            } else if partitions.deleting.contains_key(&id) {
                // An earlier deletion did not end.
                let all = (0..topic.record.partitions).collect();
                states.entry(id).or_insert_with(|| (Arc::clone(name), all));
            } else {
                return refused(name, "There is no offset information to delete.");
            }
            DeletedTopic {
                topic_name: Arc::clone(name),
                topic_id: id,
                ..Default::default()
            }
        };
        let deleted = names.iter().map(take).collect();
        (deleted, states)
    }

    /// The states of topics were deleted. Kafka: `GroupMetadataManager#completeDeleteShareGroupOffsets`.
    fn states_deleted<'a>(&self, group_id: &Arc<str>, topics: impl Iterator<Item = &'a TopicId>) {
        self.in_group(group_id, |group| {
            let Some(share) = group.share.as_deref_mut() else {
                return;
            };
            let mut partitions = StatePartitions::clone(&share.partitions);
            topics.for_each(|topic| {
                partitions.deleting.remove(topic);
            });
            if partitions == *share.partitions {
                return;
            }
            if let Err(error) = self.store_share_partitions(group_id, share, partitions) {
                log::warn!("{error}; deleting the offsets of the topics again ends it");
            }
        });
    }
}
