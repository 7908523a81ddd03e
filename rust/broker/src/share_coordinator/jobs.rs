//! What the share coordinator does from time to time: it deletes records of `__share_group_state` that no state needs, and writes snapshots of
//! states whose last one is old, so that it can (spec 14.4). Kafka: `ShareCoordinatorService#setupPeriodicJobs`,
//! `ShareCoordinatorShard#snapshotColdPartitions`, `ShareCoordinatorOffsetsManager`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::records::{self, ShareGroupOffset, SharePartitionKey};
use super::{ShareCoordinator, States};
use crate::BrokerError;
use crate::panics::place;
use crate::partition::Partition;
use crate::topic_names::SHARE_GROUP_STATE;

/// The states that a partition of `__share_group_state` keeps.
#[derive(Debug, Default)]
struct Kept {
    /// Where the oldest snapshot is that is needed.
    oldest: Option<i64>,
    states: usize,
    /// States whose snapshot was written because the one before was old.
    cold: usize,
}

impl Kept {
    fn add(&mut self, state: &ShareGroupOffset) {
        self.oldest = Some(
            self.oldest
                .map_or(state.snapshot_at, |oldest| oldest.min(state.snapshot_at)),
        );
        self.states += 1;
        self.cold += usize::from(state.is_cold());
    }
}

impl ShareCoordinator {
    /// Does what is due.
    pub(crate) fn tick(&self, now_ms: i64) {
        if self.replicas.is_read_only() {
            return;
        }
        if let Some(_running) = self.prune_check.begin(now_ms, self.prune_check_ms) {
            place(|| "pruning of the states of share groups");
            if let Err(error) = self.prune() {
                log::warn!("{SHARE_GROUP_STATE}: records that are not needed are not deleted: {error}");
            }
        }
        if let Some(_running) = self.cold_check.begin(now_ms, self.cold_check_ms) {
            place(|| "snapshots of cold share partitions");
            if let Err(error) = self.snapshot_cold_partitions() {
                log::warn!("{SHARE_GROUP_STATE}: snapshots of cold share partitions are not written: {error}");
            }
        }
    }

    /// When one of these is due next (monotonic ms). No waiting client can see the difference.
    pub(crate) fn next_check(&self) -> i64 {
        self.cold_check.next_ms().min(self.prune_check.next_ms())
    }

    /// Whether a thread is doing one of these.
    pub(crate) fn is_checking(&self) -> bool {
        self.cold_check.is_running() || self.prune_check.is_running()
    }

    /// The partitions of `__share_group_state` with a log, and where each ends. What is written later is behind these ends.
    fn state_logs(&self) -> Result<Vec<(Arc<Partition>, i64)>, BrokerError> {
        let Ok(topic) = self.replicas.topic(SHARE_GROUP_STATE) else {
            return Ok(Vec::new());
        };
        let mut logs = Vec::new();
        for partition in &topic.partitions {
            if self.replicas.has_log(partition)? {
                let end = self.replicas.log_of(partition)?.log_end_offset();
                logs.push((Arc::clone(partition), end));
            }
        }
        Ok(logs)
    }

    /// What each partition of `__share_group_state` keeps, by its number.
    fn kept(&self) -> FxHashMap<i32, Kept> {
        let mut kept: FxHashMap<i32, Kept> = FxHashMap::default();
        self.for_each_shard(|states| {
            for (key, state) in states.iter() {
                let number = self.partition_for(&key.coordinator_key());
                kept.entry(number).or_default().add(state);
            }
        });
        kept
    }

    fn for_each_shard(&self, mut work: impl FnMut(&mut States)) {
        for shard in &self.shards {
            work(&mut shard.lock());
        }
    }

    /// Writes a new snapshot of each state whose last one is older than share.coordinator.cold.partition.snapshot.interval.ms. In a partition
    /// of `__share_group_state` in which all last snapshots were written by this, nothing has happened, and nothing is written.
    fn snapshot_cold_partitions(&self) -> Result<(), BrokerError> {
        if self.state_logs()?.is_empty() {
            return Ok(());
        }
        self.ensure_loaded()?;
        let kept = self.kept();
        let is_quiet = |key: &SharePartitionKey| {
            let kept = kept.get(&self.partition_for(&key.coordinator_key()));
            kept.is_none_or(|kept| kept.cold == kept.states)
        };
        let now_ms = self.replicas.clock().now_ms();
        let mut written = Ok(());
        self.for_each_shard(|states| {
            for (key, state) in states.iter_mut() {
                let is_old = now_ms.saturating_sub(state.write_ms) >= self.cold_check_ms;
                if written.is_ok() && is_old && !is_quiet(key) {
                    written = self.snapshot_cold(key, state, now_ms);
                }
            }
        });
        written
    }

    fn snapshot_cold(
        &self,
        key: &SharePartitionKey,
        state: &mut ShareGroupOffset,
        now_ms: i64,
    ) -> Result<(), BrokerError> {
        let mut cold = state.clone().into_cold_snapshot(now_ms);
        let record = records::snapshot(key, Some(&cold)).map_err(|error| {
            let text = format!("the state of share group {} cannot be written: {error}", key.group_id);
            BrokerError::kafka(fletchlog_api::ErrorCode::UNKNOWN_SERVER_ERROR, text)
        })?;
        cold.snapshot_at = self.append_state(key, record)?;
        *state = cold;
        Ok(())
    }

    /// Deletes the records before the oldest snapshot that is needed, in each partition of `__share_group_state`; all but the last record if
    /// there are no states. Kafka: `ShareCoordinatorService#performRecordPruning`.
    fn prune(&self) -> Result<(), BrokerError> {
        let logs = self.state_logs()?;
        if logs.is_empty() {
            return Ok(());
        }
        self.ensure_loaded()?;
        let kept = self.kept();
        for (partition, end) in logs {
            let oldest = kept.get(&partition.tp().partition).and_then(|kept| kept.oldest);
            let before = oldest.map_or(end.saturating_sub(1), |oldest| oldest.min(end));
            if before > 0 {
                self.replicas.delete_coordinator_records(&partition, before)?;
            }
        }
        Ok(())
    }
}
