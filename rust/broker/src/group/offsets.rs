//! Committed offsets: commit and fetch (spec 8.7, 8.8). Kafka: `OffsetMetadataManager#commitOffset`, `#fetchOffsets`.

use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api::{
    ErrorCode, NodeId, OffsetAndMetadata, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse,
};
use fletchlog_protocol::WireError;
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use fletchlog_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use fletchlog_protocol::topic_ids::NO_TOPIC_ID;
use fletchlog_records::planted;
use fletchlog_records::{BatchParams, TopicPartition};

use super::consumer_offsets::{Committer, check_consumer_fetch};
use super::coordinator::{GroupCoordinator, check_generation};
use super::join::MAX_TEXT;
use super::member::ClientLiveness;
use super::records;
use super::state::{CommittedOffset, Group, GroupState};
use crate::BrokerError;
use crate::failures::Refused;
use crate::replica_manager::CoordinatorRecord;

/// One for each partition, in request order.
pub(super) type OffsetErrors = Vec<ErrorCode>;
/// Offsets to be written to the log.
pub(super) type Offsets = Vec<(TopicPartition, CommittedOffset)>;

impl GroupCoordinator {
    /// OffsetCommit. Partitions that do not exist are refused before the group is checked. Kafka:
    /// `KafkaApis#handleOffsetCommitRequest`, `OffsetMetadataManager#commitOffset`.
    pub(crate) fn offset_commit(
        &self,
        node: NodeId,
        request: &OffsetCommitRequest,
        client: &ClientLiveness,
    ) -> OffsetCommitResponse {
        if let Err(error) = self.replicas.for_writing("commit offsets") {
            return OffsetCommitResponse {
                error_message: Some(error.to_string().into()),
                ..request.answered(repeat(error.code()))
            };
        }
        self.tick(self.replicas.clock().monotonic_ms());
        let offsets: Vec<_> = request.offsets().collect();
        match self.commit(node, request, client.is_behind_socket(), &offsets) {
            Ok(errors) => request.answered(errors),
            Err(refused) => OffsetCommitResponse {
                error_message: refused.failure.map(|failure| failure.message),
                ..request.answered(self.all_refused(&offsets, refused.code))
            },
        }
    }

    /// The group's error for every partition that exists.
    pub(super) fn all_refused(&self, offsets: &[(TopicPartition, OffsetAndMetadata)], code: ErrorCode) -> OffsetErrors {
        let code_of = |tp: &TopicPartition| match self.replicas.partition(tp) {
            Ok(_) => code,
            Err(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        };
        offsets.iter().map(|(tp, _)| code_of(tp)).collect()
    }

    /// Whether any of the partitions exists.
    pub(super) fn any_known(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> bool {
        offsets.iter().any(|(tp, _)| self.replicas.partition(tp).is_ok())
    }

    fn commit(
        &self,
        node: NodeId,
        request: &OffsetCommitRequest,
        with_ids: bool,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<OffsetErrors, Refused> {
        if !self.any_known(offsets) {
            return Ok(self.all_refused(offsets, ErrorCode::NONE));
        }
        self.check_coordinator(node, &request.group_id)?;
        // A consumer that manages its partitions itself may have no group id.
        if request.group_id.len() > MAX_TEXT {
            return Err(ErrorCode::INVALID_GROUP_ID.into());
        }
        self.load_group(&request.group_id)?;
        let unknown = if request.knows_group_id_not_found {
            ErrorCode::GROUP_ID_NOT_FOUND
        } else {
            ErrorCode::ILLEGAL_GENERATION
        };
        let simple = request.generation_id_or_member_epoch < 0;
        self.in_committing_group(&request.group_id, simple, unknown, |group| {
            self.commit_to(group, simple, request, offsets, with_ids)
        })
    }

    /// Kafka: `ClassicGroup#validateOffsetCommit`.
    fn commit_to(
        &self,
        group: &mut Group,
        simple: bool,
        request: &OffsetCommitRequest,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        with_ids: bool,
    ) -> Result<OffsetErrors, Refused> {
        if let Some(consumer) = &group.consumer {
            let committer = Committer {
                member_id: &request.member_id,
                epoch: request.generation_id_or_member_epoch,
                knows_member_epochs: request.knows_group_id_not_found,
            };
            self.check_consumer_commit(consumer, &committer, offsets)?;
            return self.commit_accepted(group, offsets, request.retention_ms(), with_ids);
        }
        if group.share.is_some() {
            return Err(ErrorCode::GROUP_ID_NOT_FOUND.into());
        }
        // Consumers that manage their partitions themselves commit to a group without members.
        if !(simple && group.state == GroupState::Empty) {
            let (instance_id, generation_id) = (&request.group_instance_id, request.generation_id_or_member_epoch);
            check_generation(group, &request.member_id, instance_id.as_deref(), generation_id)?;
            if group.state == GroupState::CompletingRebalance {
                return Err(ErrorCode::REBALANCE_IN_PROGRESS.into());
            }
        }
        if let Some(member) = group.member_mut(&request.member_id) {
            member.reschedule_heartbeat(self.replicas.clock().monotonic_ms());
        }
        self.commit_accepted(group, offsets, request.retention_ms(), with_ids)
    }

    /// Adds the ids of the topics to offsets that are to be written, as Kafka 4.1 and later do. Not for what clients in this process commit
    /// to classic groups: any release since 2.3 can take over their directory.
    pub(super) fn add_topic_ids(&self, offsets: &mut Offsets) {
        let table = self.replicas.topic_table();
        for (tp, offset) in offsets {
            let topic = table.get(&tp.topic);
            offset.topic_id = topic.map(|topic| topic.record.id).filter(|id| *id != NO_TOPIC_ID);
        }
    }

    /// Writes the offsets that can be committed. `with_ids`: with the ids of their topics.
    pub(super) fn commit_accepted(
        &self,
        group: &mut Group,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        retention_ms: Option<i64>,
        with_ids: bool,
    ) -> Result<OffsetErrors, Refused> {
        let (errors, mut accepted) = self.accept_offsets(offsets, retention_ms);
        if with_ids || group.consumer.is_some() {
            self.add_topic_ids(&mut accepted);
        }
        let accepted = self.write_offsets(group, accepted, &BatchParams::default())?;
        group.offsets.extend(accepted);
        Ok(errors)
    }

    /// Runs `commit` on the group that offsets are committed to; created for consumers that manage their partitions themselves
    /// (`simple`).
    pub(super) fn in_committing_group<T>(
        &self,
        group_id: &Arc<str>,
        simple: bool,
        unknown: ErrorCode,
        commit: impl FnOnce(&mut Group) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if simple {
            return self.in_new_group(group_id, |group| {
                let committed = commit(group);
                // A commit that wrote nothing does not create a group.
                if !group.is_in_use() {
                    self.remove_group(group);
                }
                committed
            });
        }
        let committed = self.in_group(group_id, commit);
        committed.unwrap_or(Err(unknown.into()))
    }

    /// The error of each partition, decided before anything is written, and the offsets to write.
    pub(super) fn accept_offsets(
        &self,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        retention_ms: Option<i64>,
    ) -> (OffsetErrors, Offsets) {
        let max_metadata = usize::try_from(self.replicas.config().int("offset.metadata.max.bytes")).unwrap_or(0);
        // Java counts UTF-16 units.
        let too_large = |text: &str| text.len() > MAX_TEXT || text.encode_utf16().count() > max_metadata;
        let commit_timestamp_ms = self.replicas.clock().now_ms();
        let mut accepted = Vec::new();
        let errors = offsets
            .iter()
            .map(|(tp, value)| {
                if self.replicas.partition(tp).is_err() {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else if too_large(&value.metadata) {
                    ErrorCode::OFFSET_METADATA_TOO_LARGE
                } else {
                    let offset = CommittedOffset {
                        value: value.clone(),
                        commit_timestamp_ms,
                        record_offset: -1,
                        topic_id: None,
                        expire_timestamp_ms: retention_ms.map(|ms| commit_timestamp_ms.saturating_add(ms)),
                    };
                    accepted.push((tp.clone(), offset));
                    ErrorCode::NONE
                }
            })
            .collect();
        (errors, accepted)
    }

    /// Writes offsets to the group's partition; returns them with the offsets of their records. They take effect only once they are
    /// written.
    pub(super) fn write_offsets(
        &self,
        group: &mut Group,
        mut offsets: Offsets,
        params: &BatchParams,
    ) -> Result<Offsets, Refused> {
        if offsets.is_empty() || planted!("commit-kept-in-memory") {
            return Ok(offsets);
        }
        let batch: Result<Vec<CoordinatorRecord>, WireError> = offsets
            .iter()
            .map(|(tp, offset)| records::offset_record(&group.id, tp, Some(offset)))
            .collect();
        let what = || format!("committing offsets of group {}", group.id);
        let stored = batch
            .map_err(BrokerError::from)
            .and_then(|batch| self.store_records(&group.id, &batch, params));
        let first = stored.map_err(|error| {
            self.replicas.failures().failed(what(), &error);
            let code = match error.code() {
                ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => {
                    ErrorCode::INVALID_COMMIT_OFFSET_SIZE
                }
                _ => ErrorCode::COORDINATOR_NOT_AVAILABLE,
            };
            Refused::by(code, &error)
        })?;
        self.replicas.failures().succeeded(what);
        group.is_stored = true;
        for (at, (_, offset)) in (first..).zip(&mut offsets) {
            offset.record_offset = at;
        }
        Ok(offsets)
    }

    /// OffsetFetch.
    pub(crate) fn offset_fetch(&self, node: NodeId, request: &OffsetFetchRequest) -> OffsetFetchResponse {
        self.tick(self.replicas.clock().monotonic_ms());
        // The transaction of a pending offset never ends in a broker that is open for reading only.
        let require_stable = request.require_stable && !self.replicas.is_read_only();
        let groups = request.groups.iter();
        OffsetFetchResponse {
            groups: groups
                .map(|asked| self.fetch_offsets(node, asked, require_stable))
                .collect(),
            ..Default::default()
        }
    }

    fn fetch_offsets(
        &self,
        node: NodeId,
        asked: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup {
        let group_id = &asked.group_id;
        let ready = self.check_coordinator(node, group_id);
        let fetched = ready.and_then(|()| self.load_group(group_id)).and_then(|()| {
            let committed = |group: &Group| committed_offsets(group, asked.topics.as_deref(), require_stable);
            let fetched = self.in_group(group_id, |group| {
                if let Some(consumer) = &group.consumer {
                    check_consumer_fetch(consumer, asked.member_id.as_deref(), asked.member_epoch)?;
                }
                Ok(committed(group))
            });
            fetched.unwrap_or_else(|| Ok(committed(&Group::new(group_id.clone()))))
        });
        OffsetFetchResponseGroup {
            group_id: Arc::clone(group_id),
            error_code: fetched.as_ref().err().copied().unwrap_or(ErrorCode::NONE),
            topics: fetched.unwrap_or_default(),
        }
    }
}

fn committed_offsets(
    group: &Group,
    topics: Option<&[OffsetFetchRequestTopics]>,
    require_stable: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let pending = if require_stable {
        group.pending_partitions()
    } else {
        Default::default()
    };
    let committed = |tp: &TopicPartition| match pending.contains(tp) {
        true => Err(ErrorCode::UNSTABLE_OFFSET_COMMIT),
        false => Ok(group.offsets.get(tp).map(|o| &o.value)),
    };
    let Some(topics) = topics else {
        let offsets = group.offsets.keys();
        let all = offsets.map(|tp| {
            let partition = OffsetFetchResponsePartitions::of(tp.partition, committed(tp));
            (Arc::clone(&tp.topic), partition)
        });
        let topic = |(name, partitions)| OffsetFetchResponseTopics {
            name,
            partitions,
            ..Default::default()
        };
        return grouped(all).into_iter().map(topic).collect();
    };
    let answered = |topic: &OffsetFetchRequestTopics| {
        topic.answered(|partition| committed(&TopicPartition::new(Arc::clone(&topic.name), partition)))
    };
    topics.iter().map(answered).collect()
}
