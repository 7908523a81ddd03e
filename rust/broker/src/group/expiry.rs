//! Removes offsets that have expired, or that belong to a deleted topic. Kafka: `OffsetMetadataManager#cleanupExpiredOffsets`,
//! `#onPartitionsDeleted`.

use fletchlog_protocol::WireError;
use fletchlog_records::{BatchParams, TopicPartition};
use rustc_hash::FxHashSet;

use super::coordinator::GroupCoordinator;
use super::state::{CommittedOffset, Group, GroupState};
use super::{consumer_records, records, share};
use crate::BrokerError;
use crate::panics::place;
use crate::replica_manager::CoordinatorRecord;

impl GroupCoordinator {
    /// Removes offsets offsets.retention.minutes after their group became empty, or after their commit if the group's members do not
    /// subscribe to the topic. Also removes empty groups without offsets. Checks every offsets.retention.check.interval.ms.
    pub(super) fn maybe_expire_offsets(&self, now_ms: i64) {
        if self.replicas.is_read_only() {
            return;
        }
        let Some(_running) = self.expiry_check.begin(now_ms, self.expiry_check_ms) else {
            return;
        };
        let minutes = self.replicas.config().int("offsets.retention.minutes");
        let retention_ms = i64::from(minutes).saturating_mul(60_000);
        let wall_ms = self.replicas.clock().now_ms();
        self.in_idle_groups(|group| {
            place(|| format!("expiry of offsets of group {}", group.id));
            let pending = group.pending_partitions();
            let is_expired = |(tp, offset): &(&TopicPartition, &CommittedOffset)| {
                !pending.contains(tp) && expires_at(group, tp, offset, retention_ms).is_some_and(|at| wall_ms >= at)
            };
            let expired = group.offsets.iter().filter(is_expired);
            let expired: Vec<TopicPartition> = expired.map(|(tp, _)| tp.clone()).collect();
            // Kafka: `ShareGroup#shouldExpire`.
            let unused = group.share.is_none()
                && group.is_empty()
                && expired.len() == group.offsets.len()
                && group.pending_txn_offsets.is_empty()
                && group.pending_members.is_empty();
            let dropped = if unused {
                self.drop_group(group)
            } else {
                self.drop_offsets(group, &expired)
            };
            if let Err(error) = dropped {
                log::error!("offsets of group {} could not be dropped: {error}", group.id);
            }
        });
    }

    /// Removes the offsets of deleted topics: later topics with their names must not use them.
    pub(crate) fn forget_offsets_of(&self, topics: &[&str]) {
        if self.load_all_groups().is_err() {
            let topics = topics.join(", ");
            log::warn!("commits for the deleted topics {topics} may remain: not all groups could be loaded");
        }
        let topics: FxHashSet<&str> = topics.iter().copied().collect();
        for id in self.ids() {
            self.in_group(&id, |group| {
                let gone = group.with_offsets().filter(|tp| topics.contains(&*tp.topic));
                let gone: Vec<TopicPartition> = gone.cloned().collect();
                if let Err(error) = self.drop_offsets(group, &gone) {
                    log::error!("offsets of group {id} could not be dropped: {error}");
                }
            });
        }
    }

    /// Writes tombstones for offsets, committed ones and those in open transactions, and removes them.
    pub(super) fn drop_offsets(&self, group: &mut Group, tps: &[TopicPartition]) -> Result<(), BrokerError> {
        self.write_tombstones(group, offset_tombstones(group, tps)?)?;
        group.forget_offsets(tps);
        Ok(())
    }

    /// Writes tombstones for a group and all of its offsets, and removes it.
    pub(super) fn drop_group(&self, group: &mut Group) -> Result<(), BrokerError> {
        let tps: Vec<TopicPartition> = group.with_offsets().cloned().collect();
        let mut tombstones = offset_tombstones(group, &tps)?;
        if let Some(share) = &group.share {
            tombstones.extend(share::tombstones(&group.id, share)?);
        }
        match &group.consumer {
            Some(consumer) => {
                let records = consumer_records::tombstones(consumer);
                let records = records.iter().map(|record| record.encode(&group.id));
                tombstones.extend(records.collect::<Result<Vec<_>, _>>()?);
            }
            None if group.is_stored && group.share.is_none() => tombstones.push(records::group_tombstone(&group.id)?),
            None => {}
        }
        self.write_tombstones(group, tombstones)?;
        self.remove_group(group);
        Ok(())
    }

    fn write_tombstones(&self, group: &Group, tombstones: Vec<CoordinatorRecord>) -> Result<(), BrokerError> {
        if tombstones.is_empty() {
            return Ok(());
        }
        self.store_records(&group.id, &tombstones, &BatchParams::default())
            .map(drop)
    }
}

fn offset_tombstones(group: &Group, tps: &[TopicPartition]) -> Result<Vec<CoordinatorRecord>, WireError> {
    tps.iter()
        .map(|tp| records::offset_record(&group.id, tp, None))
        .collect()
}

/// When an offset expires: at its own expiry time if it has one; else counted from when its group became empty, or from its commit
/// (of a simple consumer, or for a topic that no member of a stable group subscribes to). `None`: it does not expire now. Kafka:
/// `ClassicGroup#offsetExpirationCondition`.
fn expires_at(group: &Group, tp: &TopicPartition, offset: &CommittedOffset, retention_ms: i64) -> Option<i64> {
    if group.consumer.is_some() {
        let subscribed = group.is_subscribed_to(&tp.topic);
        let at = offset.commit_timestamp_ms.saturating_add(retention_ms);
        return (!subscribed).then_some(offset.expire_timestamp_ms.unwrap_or(at));
    }
    let since = match (&group.protocol_type, group.state) {
        (None, _) => offset.commit_timestamp_ms,
        (Some(_), GroupState::Empty) => group.state_timestamp_ms.unwrap_or(offset.commit_timestamp_ms),
        (Some(_), GroupState::Stable) if group.subscribed_topics.is_some() && !group.is_subscribed_to(&tp.topic) => {
            offset.commit_timestamp_ms
        }
        _ => return None,
    };
    let at = offset.expire_timestamp_ms;
    Some(at.unwrap_or(since.saturating_add(retention_ms)))
}
