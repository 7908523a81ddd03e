//! Committed offsets: commit, fetch, expiry (spec 8.7, 8.8). Kafka: `GroupCoordinator#handleCommitOffsets`,
//! `#handleFetchOffsets`, `GroupMetadata#removeExpiredOffsets`.

use std::sync::Arc;

use fletchlog_api::{
    ErrorCode, NodeId, OffsetAndMetadata, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse,
};
use fletchlog_records::{BatchParams, TopicPartition};

use super::coordinator::{GroupCoordinator, check_member};
use super::join::MAX_TEXT;
use super::records;
use super::state::{CommittedOffset, Group, GroupState, LockedGroup};
use crate::failures::Refused;
use crate::replica_manager::CoordinatorRecord;
use crate::sync::is_due;

/// Per partition, in request order.
pub(super) type OffsetResults = Vec<(TopicPartition, ErrorCode)>;
/// Offsets on their way into the log.
pub(super) type Offsets = Vec<(TopicPartition, CommittedOffset)>;

impl GroupCoordinator {
    /// OffsetCommit.
    pub(crate) fn offset_commit(&self, node: NodeId, request: &OffsetCommitRequest) -> OffsetCommitResponse {
        let all = |error: ErrorCode| request.offsets.iter().map(|(tp, _)| (tp.clone(), error)).collect();
        if let Err(error) = self.replicas.for_writing("commit offsets") {
            return OffsetCommitResponse {
                partitions: all(error.code()),
                error_message: Some(error.to_string()),
            };
        }
        self.tick(self.replicas.clock().monotonic_ms());
        match self.commit(node, request) {
            Ok(partitions) => OffsetCommitResponse {
                partitions,
                error_message: None,
            },
            Err(refused) => OffsetCommitResponse {
                partitions: all(refused.code),
                error_message: refused.failure.map(|failure| failure.message.to_string()),
            },
        }
    }

    fn commit(&self, node: NodeId, request: &OffsetCommitRequest) -> Result<OffsetResults, Refused> {
        self.check_coordinator(node, &request.group_id)?;
        if request.group_id.is_empty() || request.group_id.len() > MAX_TEXT {
            return Err(ErrorCode::INVALID_GROUP_ID.into());
        }
        self.load_group(&request.group_id)?;
        let simple = request.generation_id < 0;
        self.in_committing_group(&request.group_id, simple, |group| {
            self.commit_to(group, simple, request)
        })
    }

    fn commit_to(
        &self,
        group: &mut Group,
        simple: bool,
        request: &OffsetCommitRequest,
    ) -> Result<OffsetResults, Refused> {
        // Consumers that manage their partitions themselves commit to a group without members.
        if !(simple && group.state == GroupState::Empty) {
            check_member(group, &request.member_id, request.group_instance_id.as_deref())?;
            if request.generation_id != group.generation {
                return Err(ErrorCode::ILLEGAL_GENERATION.into());
            }
            if group.state == GroupState::CompletingRebalance {
                return Err(ErrorCode::REBALANCE_IN_PROGRESS.into());
            }
        }
        let (results, accepted) = self.accept_offsets(&request.offsets);
        let accepted = self.write_offsets(group, accepted, &BatchParams::default())?;
        group.offsets.extend(accepted);
        Ok(results)
    }

    /// The group that offsets are committed to; consumers that manage their partitions themselves make it.
    pub(super) fn in_committing_group<T>(
        &self,
        group_id: &Arc<str>,
        simple: bool,
        commit: impl FnOnce(&mut Group) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if simple {
            return self.in_new_group(group_id, commit);
        }
        let committed = self.in_group(group_id, commit);
        committed.unwrap_or(Err(ErrorCode::ILLEGAL_GENERATION.into()))
    }

    /// What is known about each partition before anything is written, and the offsets to write.
    pub(super) fn accept_offsets(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> (OffsetResults, Offsets) {
        let max_metadata = usize::try_from(self.replicas.config().int("offset.metadata.max.bytes"))
            .unwrap_or(0)
            .min(MAX_TEXT);
        let commit_timestamp_ms = self.replicas.clock().now_ms();
        let mut accepted = Vec::new();
        let results = offsets
            .iter()
            .map(|(tp, value)| {
                let error = if self.replicas.partition(tp).is_err() {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else if value.metadata.len() > max_metadata {
                    ErrorCode::OFFSET_METADATA_TOO_LARGE
                } else {
                    let offset = CommittedOffset {
                        value: value.clone(),
                        commit_timestamp_ms,
                        record_offset: -1,
                        expire_timestamp_ms: None,
                    };
                    accepted.push((tp.clone(), offset));
                    ErrorCode::NONE
                };
                (tp.clone(), error)
            })
            .collect();
        (results, accepted)
    }

    /// Writes offsets to the group's partition; they come back with the places of their records. They count only once
    /// they are written.
    pub(super) fn write_offsets(
        &self,
        group: &Group,
        mut offsets: Offsets,
        params: &BatchParams,
    ) -> Result<Offsets, Refused> {
        if offsets.is_empty() {
            return Ok(offsets);
        }
        let batch: Vec<CoordinatorRecord> = offsets
            .iter()
            .map(|(tp, offset)| (records::offset_key(&group.id, tp), Some(records::offset_value(offset))))
            .collect();
        let what = || format!("committing offsets of group {}", group.id);
        let first = self.store_records(&group.id, &batch, params).map_err(|error| {
            self.replicas.failures().failed(what(), &error);
            Refused::by(ErrorCode::COORDINATOR_NOT_AVAILABLE, &error)
        })?;
        self.replicas.failures().succeeded(what);
        for (at, (_, offset)) in (first..).zip(&mut offsets) {
            offset.record_offset = at;
        }
        Ok(offsets)
    }

    /// OffsetFetch.
    pub(crate) fn offset_fetch(&self, node: NodeId, request: &OffsetFetchRequest) -> OffsetFetchResponse {
        self.tick(self.replicas.clock().monotonic_ms());
        let ready = self.check_coordinator(node, &request.group_id);
        if let Err(error) = ready.and_then(|()| self.load_group(&request.group_id)) {
            return OffsetFetchResponse {
                error,
                partitions: Vec::new(),
            };
        }
        let fetched = self.in_group(&request.group_id, |group| committed_offsets(group, request));
        fetched.unwrap_or_else(|| committed_offsets(&Group::new(request.group_id.clone()), request))
    }

    /// Offsets of groups that have been empty for offsets.retention.minutes are dropped, and the group with them; looked
    /// for every offsets.retention.check.interval.ms.
    pub(super) fn maybe_expire_offsets(&self, now_ms: i64) {
        if self.replicas.is_read_only() || !is_due(&self.next_expiry_check_ms, now_ms, self.expiry_check_ms) {
            return;
        }
        let minutes = self.replicas.config().int("offsets.retention.minutes");
        let retention_ms = i64::from(minutes).saturating_mul(60_000);
        let wall_ms = self.replicas.clock().now_ms();
        let any = |_: &LockedGroup| true;
        self.in_idle_groups(any, |group| {
            if group.state != GroupState::Empty || group.offsets.is_empty() {
                return;
            }
            let expired: Vec<TopicPartition> = group
                .offsets
                .iter()
                .filter(|(_, offset)| wall_ms >= expires_at(group, offset, retention_ms))
                .map(|(tp, _)| tp.clone())
                .collect();
            self.drop_offsets(group, &expired);
            let unused = group.offsets.is_empty() && group.pending_members.is_empty();
            if unused && group.pending_txn_offsets.is_empty() && !expired.is_empty() {
                self.remove_group(group);
            }
        });
    }

    /// A deleted topic's offsets mean nothing to a later topic of its name. Kafka: `handleDeletedPartitions`.
    pub(crate) fn forget_offsets_of(&self, topic: &str) {
        if self.load_all_groups().is_err() {
            log::warn!("commits for the deleted topic {topic} may remain: not all groups could be loaded");
        }
        for id in self.ids_of(|_| true) {
            self.in_group(&id, |group| {
                let offsets = group.offsets.keys();
                let gone: Vec<TopicPartition> = offsets.filter(|tp| &*tp.topic == topic).cloned().collect();
                self.drop_offsets(group, &gone);
            });
        }
    }

    fn drop_offsets(&self, group: &mut Group, tps: &[TopicPartition]) {
        if tps.is_empty() {
            return;
        }
        let mut tombstones: Vec<CoordinatorRecord> = tps
            .iter()
            .map(|tp| (records::offset_key(&group.id, tp), None))
            .collect();
        if tps.len() == group.offsets.len() && group.members.is_empty() && group.generation > 0 {
            tombstones.push((records::group_key(&group.id), None));
        }
        match self.store_records(&group.id, &tombstones, &BatchParams::default()) {
            Ok(_) => group.offsets.retain(|tp, _| !tps.contains(tp)),
            Err(error) => log::error!("offsets of group {} could not be dropped: {error}", group.id),
        }
    }
}

fn committed_offsets(group: &Group, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let committed = |tp: &TopicPartition| group.offsets.get(tp).map(|o| o.value.clone());
    let partitions: Vec<_> = match &request.partitions {
        Some(tps) => tps.iter().map(|tp| (tp.clone(), committed(tp))).collect(),
        None => group.offsets.keys().map(|tp| (tp.clone(), committed(tp))).collect(),
    };
    let mut pending = group.pending_txn_offsets.values().flatten();
    let unstable = request.require_stable && pending.any(|(tp, _)| partitions.iter().any(|(asked, _)| asked == tp));
    let error = if unstable {
        ErrorCode::UNSTABLE_OFFSET_COMMIT
    } else {
        ErrorCode::NONE
    };
    OffsetFetchResponse { error, partitions }
}

/// When an offset of an empty group expires: by its own time, else counted from when the group became empty, else (a
/// simple consumer's) from its commit. Kafka: `GroupMetadata#removeExpiredOffsets`.
fn expires_at(group: &Group, offset: &CommittedOffset, retention_ms: i64) -> i64 {
    if let Some(at) = offset.expire_timestamp_ms {
        return at;
    }
    let since = match (&group.protocol_type, group.state_timestamp_ms) {
        (Some(_), Some(empty_since)) => empty_since,
        _ => offset.commit_timestamp_ms,
    };
    since.saturating_add(retention_ms)
}
