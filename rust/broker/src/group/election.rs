//! A partition of `__consumer_offsets` has another leader: its groups continue there as they were last written (spec 8.14). Kafka:
//! `GroupCoordinatorService#onElection`, `#onResignation`, `GroupMetadataManager#onUnloaded`, `#onLoaded`.
//!
//! All nodes share the groups in memory, so only what a new coordinator would not find in the log is undone: joins and syncs that wait,
//! a rebalance in progress, ids that were given and not used yet. The sessions of the members begin anew. If the election has cut the log, its
//! groups are read again: `cut.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::ErrorCode;
use fletchlog_protocol::Value;
use fletchlog_protocol::values::{ConsumerOffsetsKey, GroupMetadataValue};
use fletchlog_records::planted;
use fletchlog_records::{DECOMPRESSION_LIMIT, RecordBatch, RecordCursor, RecordError};

use super::coordinator::GroupCoordinator;
use super::rebalance::{join_error, sync_error};
use super::state::{Group, GroupState};
use crate::partition::Partition;

/// The last record of a group; `None`: a tombstone, or none.
type Written = BTreeMap<Arc<str>, Option<GroupMetadataValue>>;

impl GroupCoordinator {
    /// Called after the leader of a partition of `__consumer_offsets` has changed. The new coordinator loads for `loading_ms`, and
    /// answers COORDINATOR_LOAD_IN_PROGRESS meanwhile.
    pub(crate) fn on_election(&self, partition: &Partition, loading_ms: i64) {
        let number = partition.tp().partition;
        let loaded_ms = self.replicas.clock().monotonic_ms().saturating_add(loading_ms);
        self.loading.begin(number, loaded_ms);
        let of_partition = self.ids().into_iter().filter(|id| self.partition_for(id) == number);
        let mut interrupted = BTreeSet::new();
        for id in of_partition {
            self.in_group(&id, |group| {
                if self.resign(group, loaded_ms) {
                    interrupted.insert(Arc::clone(&id));
                }
            });
        }
        if interrupted.is_empty() || self.replicas.is_read_only() {
            return;
        }
        let mut written = self.last_written(partition, &interrupted);
        for id in interrupted {
            let value = written.remove(&id).flatten();
            self.in_group(&id, |group| group.restore(value, loaded_ms));
        }
    }

    /// Ends what the former coordinator had in memory only. True: a rebalance was in progress.
    fn resign(&self, group: &mut Group, loaded_ms: i64) -> bool {
        for member in group
            .members
            .iter_mut()
            .filter(|_| !planted!("joins-wait-for-the-former-coordinator"))
        {
            let id = Arc::clone(&member.id);
            member.answer_join(join_error(ErrorCode::NOT_COORDINATOR, id), self.changes());
            member.answer_sync(sync_error(ErrorCode::NOT_COORDINATOR), self.changes());
            member.reschedule_heartbeat(loaded_ms);
        }
        group.pending_members.clear();
        let group_id = Arc::clone(&group.id);
        if let Some(consumer) = &mut group.consumer {
            let timeout_ms = || self.group_config(&group_id, "consumer.session.timeout.ms");
            consumer.restart_sessions(loaded_ms, timeout_ms);
        }
        if let Some(share) = &mut group.share {
            share.restart_sessions(loaded_ms, self.share_session_timeout_ms(&group_id));
        }
        !matches!(group.state, GroupState::Empty | GroupState::Stable)
    }

    /// The last records of these groups. What cannot be read is logged and counts as not written.
    pub(super) fn last_written(&self, partition: &Partition, groups: &BTreeSet<Arc<str>>) -> Written {
        let mut written = Written::new();
        let read = self
            .replicas
            .read_records(partition, 0, |batch| note_groups(batch, groups, &mut written));
        if let Err(error) = read {
            log::error!(
                "{} could not be read after its leader has changed: {error}",
                partition.tp()
            );
        }
        written
    }
}

fn note_groups(batch: &RecordBatch, groups: &BTreeSet<Arc<str>>, written: &mut Written) -> Result<(), RecordError> {
    if batch.header().is_control() {
        return Ok(());
    }
    let slice = batch.records(DECOMPRESSION_LIMIT)?;
    let mut cursor = RecordCursor::new();
    while let Some(record) = cursor.next(&slice)? {
        let key = record
            .key
            .map(|key| ConsumerOffsetsKey::decode(Bytes::copy_from_slice(key)));
        let Some(Ok(ConsumerOffsetsKey::Group(key))) = key else {
            continue;
        };
        if groups.contains(&key.group) {
            let value = record
                .value
                .map(|value| GroupMetadataValue::decode(Bytes::copy_from_slice(value)));
            written.insert(key.group, value.and_then(Result::ok));
        }
    }
    Ok(())
}
