//! The requests of the leaders of partitions. Kafka: `ShareCoordinatorShard#writeState`, `#readStateAndMaybeUpdateLeaderEpoch`,
//! `#readStateSummary`, `#initializeState`, `#deleteState`, with the texts of their errors.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::{
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse, ReadShareGroupStateRequest, ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, WriteShareGroupStateRequest,
    WriteShareGroupStateResponse, delete_share_group_state_response, initialize_share_group_state_request,
    initialize_share_group_state_response, read_share_group_state_request, read_share_group_state_response,
    read_share_group_state_summary_response, write_share_group_state_request, write_share_group_state_response,
};
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::ShareUpdateValue;
use fletchlog_protocol::values::share_snapshot_value::StateBatch;
use fletchlog_records::planted;

use super::ShareCoordinator;
use super::records::{self, NO_START_OFFSET, ShareGroupOffset, SharePartitionKey};
use crate::BrokerError;
use crate::topic_names::SHARE_GROUP_STATE;

/// The error of a partition, with its text.
struct Failed {
    code: ErrorCode,
    message: Arc<str>,
}

impl Failed {
    fn new(code: ErrorCode, message: &str) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    fn negative_partition() -> Self {
        Self::new(
            ErrorCode::INVALID_REQUEST,
            "The partition id cannot be a negative number.",
        )
    }

    /// INVALID_REQUEST for a negative epoch.
    fn check_epoch(epoch: i32, whose: &str) -> Result<(), Self> {
        if epoch >= 0 {
            return Ok(());
        }
        let text = format!("The {whose} epoch cannot be a negative number.");
        Err(Self::new(ErrorCode::INVALID_REQUEST, &text))
    }

    fn leader_epoch() -> Self {
        let text = "The leader epoch in the request is older than the epoch on the broker.";
        Self::new(ErrorCode::FENCED_LEADER_EPOCH, text)
    }

    fn state_epoch() -> Self {
        let text = "The coordinator rejected the request because the state epoch did not match.";
        Self::new(ErrorCode::FENCED_STATE_EPOCH, text)
    }
}

impl From<BrokerError> for Failed {
    fn from(error: BrokerError) -> Self {
        Self {
            code: ErrorCode::COORDINATOR_NOT_AVAILABLE,
            message: error.to_string().into(),
        }
    }
}

impl From<ErrorCode> for Failed {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }
}

impl From<fletchlog_protocol::WireError> for Failed {
    fn from(error: fletchlog_protocol::WireError) -> Self {
        Self {
            code: ErrorCode::UNKNOWN_SERVER_ERROR,
            message: error.to_string().into(),
        }
    }
}

/// The error fields of a partition.
fn outcome(done: Result<(), Failed>) -> (ErrorCode, Option<Arc<str>>) {
    match done {
        Ok(()) => (ErrorCode::NONE, None),
        Err(failed) => (failed.code, Some(failed.message)),
    }
}

/// The results of a request, in its shape, each partition once. A request without a group has none, nor a topic without partitions.
macro_rules! results {
    ($request:expr, $module:ident, $topic:ident, $answer:expr) => {{
        let group_id = &$request.group_id;
        let topics = $request.topics.iter().filter(|_| !group_id.is_empty());
        let result = |topic_id: [u8; 16], partitions| $module::$topic { topic_id, partitions };
        topics
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    let key = SharePartitionKey {
                        group_id: Arc::clone(group_id),
                        topic_id: topic.topic_id,
                        partition: partition.partition,
                    };
                    (partition.partition, $answer(key, partition))
                });
                let partitions: BTreeMap<i32, _> = partitions.collect();
                result(topic.topic_id, partitions.into_values().collect::<Vec<_>>())
            })
            .filter(|topic| !topic.partitions.is_empty())
            .collect()
    }};
}

impl ShareCoordinator {
    /// InitializeShareGroupState: a first state, or one that replaces what there is (AlterShareGroupOffsets).
    pub(crate) fn initialize_state(
        &self,
        request: &InitializeShareGroupStateRequest,
    ) -> InitializeShareGroupStateResponse {
        use initialize_share_group_state_response as response;
        let answer = |key: SharePartitionKey, asked: &initialize_share_group_state_request::PartitionData| {
            let (error_code, error_message) = outcome(self.initialize(&key, asked.state_epoch, asked.start_offset));
            response::PartitionResult {
                partition: key.partition,
                error_code,
                error_message,
            }
        };
        InitializeShareGroupStateResponse {
            results: results!(request, response, InitializeStateResult, answer),
        }
    }

    fn initialize(&self, key: &SharePartitionKey, state_epoch: i32, start_offset: i64) -> Result<(), Failed> {
        self.check(key)?;
        Failed::check_epoch(state_epoch, "state")?;
        let mut states = self.shard(key).lock();
        let known = states.get(key);
        if known.is_some_and(|known| known.state_epoch > state_epoch) {
            return Err(Failed::state_epoch());
        }
        self.check_topic(key)?;
        let now_ms = self.replicas.clock().now_ms();
        let mut state = ShareGroupOffset::initial(known, state_epoch, start_offset, now_ms);
        state.snapshot_at = self.append_state(key, records::snapshot(key, Some(&state))?)?;
        states.insert(key.clone(), state);
        Ok(())
    }

    /// ReadShareGroupState: what a new leader of a partition starts with. Writes the leader's epoch if it is newer.
    pub(crate) fn read_state(&self, request: &ReadShareGroupStateRequest) -> ReadShareGroupStateResponse {
        use read_share_group_state_response as response;
        let answer = |key: SharePartitionKey, asked: &read_share_group_state_request::PartitionData| {
            let mut result = response::PartitionResult {
                partition: key.partition,
                ..Default::default()
            };
            match self.read(&key, asked.leader_epoch) {
                Ok(state) => {
                    result.state_epoch = state.state_epoch;
                    result.start_offset = state.start_offset;
                    let batch = |batch: StateBatch| response::StateBatch {
                        first_offset: batch.first_offset,
                        last_offset: batch.last_offset,
                        delivery_state: batch.delivery_state,
                        delivery_count: batch.delivery_count,
                    };
                    result.state_batches = state.batches.into_iter().map(batch).collect();
                }
                Err(failed) => (result.error_code, result.error_message) = outcome(Err(failed)),
            }
            result
        };
        ReadShareGroupStateResponse {
            results: results!(request, response, ReadStateResult, answer),
        }
    }

    fn read(&self, key: &SharePartitionKey, leader_epoch: i32) -> Result<ShareGroupOffset, Failed> {
        self.check(key)?;
        Failed::check_epoch(leader_epoch, "leader")?;
        let mut states = self.shard(key).lock();
        let known = states.get(key).ok_or_else(|| {
            let text = "Read operation on uninitialized share partition not allowed.";
            Failed::new(ErrorCode::INVALID_REQUEST, text)
        })?;
        if known.leader_epoch > leader_epoch {
            return Err(Failed::leader_epoch());
        }
        self.check_topic(key)?;
        if known.leader_epoch == leader_epoch {
            return Ok(known.clone());
        }
        let update = ShareUpdateValue {
            snapshot_epoch: known.snapshot_epoch,
            leader_epoch,
            start_offset: known.start_offset,
            delivery_complete_count: known.delivery_complete_count,
            state_batches: Vec::new(),
        };
        let state = self.write_update(key, known, update)?;
        states.insert(key.clone(), state.clone());
        Ok(state)
    }

    /// WriteShareGroupState: states that have changed.
    pub(crate) fn write_state(&self, request: &WriteShareGroupStateRequest) -> WriteShareGroupStateResponse {
        use write_share_group_state_response as response;
        let answer = |key: SharePartitionKey, asked: &write_share_group_state_request::PartitionData| {
            let (error_code, error_message) = outcome(self.write(&key, asked));
            response::PartitionResult {
                partition: key.partition,
                error_code,
                error_message,
            }
        };
        WriteShareGroupStateResponse {
            results: results!(request, response, WriteStateResult, answer),
        }
    }

    fn write(
        &self,
        key: &SharePartitionKey,
        asked: &write_share_group_state_request::PartitionData,
    ) -> Result<(), Failed> {
        self.check(key)?;
        Failed::check_epoch(asked.leader_epoch, "leader")?;
        Failed::check_epoch(asked.state_epoch, "state")?;
        let mut states = self.shard(key).lock();
        let known = states.get(key).ok_or_else(|| {
            let text = "Write operation on uninitialized share partition not allowed.";
            Failed::new(ErrorCode::INVALID_REQUEST, text)
        })?;
        if known.leader_epoch > asked.leader_epoch {
            return Err(Failed::leader_epoch());
        }
        if known.state_epoch > asked.state_epoch && !planted!("share-write-of-an-old-state-epoch") {
            return Err(Failed::state_epoch());
        }
        self.check_topic(key)?;
        let batches = asked.state_batches.iter().map(|batch| StateBatch {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        // The start never moves back, and the count belongs to it.
        let start_offset = asked.start_offset.max(known.start_offset);
        let update = ShareUpdateValue {
            snapshot_epoch: known.snapshot_epoch,
            leader_epoch: known.leader_epoch,
            start_offset,
            delivery_complete_count: match asked.start_offset.cmp(&known.start_offset) {
                Ordering::Less => known.delivery_complete_count,
                Ordering::Equal => known.delivery_complete_count.max(asked.delivery_complete_count),
                Ordering::Greater => asked.delivery_complete_count,
            },
            state_batches: records::combined(batches, start_offset),
        };
        let state = self.write_update(key, known, update)?;
        states.insert(key.clone(), state);
        Ok(())
    }

    /// Appends an update, or a snapshot after many of them; returns the state that it leads to.
    fn write_update(
        &self,
        key: &SharePartitionKey,
        known: &ShareGroupOffset,
        update: ShareUpdateValue,
    ) -> Result<ShareGroupOffset, Failed> {
        let state = known.updated(&update);
        if known.updates < self.updates_per_snapshot {
            self.append_state(key, records::update(key, update)?)?;
            return Ok(state);
        }
        let mut state = state.into_snapshot(self.replicas.clock().now_ms());
        if planted!("share-snapshot-without-states") {
            state.batches.clear();
        }
        state.snapshot_at = self.append_state(key, records::snapshot(key, Some(&state))?)?;
        Ok(state)
    }

    /// ReadShareGroupStateSummary: where a share partition begins, for descriptions of offsets.
    pub(crate) fn read_state_summary(
        &self,
        request: &ReadShareGroupStateSummaryRequest,
    ) -> ReadShareGroupStateSummaryResponse {
        use read_share_group_state_summary_response as response;
        let answer = |key: SharePartitionKey, _: &_| {
            let mut result = response::PartitionResult {
                partition: key.partition,
                ..Default::default()
            };
            match self.summary(&key) {
                Ok(Some(state)) => {
                    result.state_epoch = state.state_epoch;
                    result.leader_epoch = state.leader_epoch;
                    result.start_offset = state.start_offset;
                    result.delivery_complete_count = state.delivery_complete_count;
                }
                Ok(None) => result.start_offset = NO_START_OFFSET,
                Err(failed) => (result.error_code, result.error_message) = outcome(Err(failed)),
            }
            result
        };
        ReadShareGroupStateSummaryResponse {
            results: results!(request, response, ReadStateSummaryResult, answer),
        }
    }

    /// The epoch of the last leader of a share partition.
    pub(crate) fn leader_epoch_of(&self, key: &SharePartitionKey) -> Option<i32> {
        self.summary(key).ok().flatten().map(|state| state.leader_epoch)
    }

    fn summary(&self, key: &SharePartitionKey) -> Result<Option<ShareGroupOffset>, Failed> {
        self.check(key)?;
        self.check_topic(key)?;
        let states = self.shard(key).lock();
        Ok(states.get(key).map(|state| ShareGroupOffset {
            batches: Vec::new(),
            ..state.clone()
        }))
    }

    /// DeleteShareGroupState.
    pub(crate) fn delete_state(&self, request: &DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse {
        use delete_share_group_state_response as response;
        let answer = |key: SharePartitionKey, _: &_| {
            let (error_code, error_message) = outcome(self.delete(&key));
            response::PartitionResult {
                partition: key.partition,
                error_code,
                error_message,
            }
        };
        DeleteShareGroupStateResponse {
            results: results!(request, response, DeleteStateResult, answer),
        }
    }

    fn delete(&self, key: &SharePartitionKey) -> Result<(), Failed> {
        self.check(key)?;
        self.check_topic(key)?;
        let mut states = self.shard(key).lock();
        if states.contains_key(key) {
            self.append_state(key, records::snapshot(key, None)?)?;
            states.remove(key);
        }
        Ok(())
    }

    /// Called after topics were deleted: nothing is kept of their share partitions. Kafka:
    /// `ShareCoordinatorShard#maybeCleanupShareState`.
    pub(crate) fn forget_topics(&self, topics: &BTreeSet<TopicId>) {
        if self.replicas.topic_table().get(SHARE_GROUP_STATE).is_none() {
            return;
        }
        if let Err(error) = self.ensure_loaded() {
            log::error!("states of deleted topics are kept: {error}");
            return;
        }
        for shard in &self.shards {
            let mut states = shard.lock();
            let of_topics = states.keys().filter(|key| topics.contains(&key.topic_id));
            for key in of_topics.cloned().collect::<Vec<_>>() {
                let record = records::snapshot(&key, None).map_err(BrokerError::from);
                let deleted = record.and_then(|record| self.append_state(&key, record));
                match deleted {
                    Ok(_) => drop(states.remove(&key)),
                    Err(error) => log::error!("the state of share group {} is kept: {error}", key.group_id),
                }
            }
        }
    }

    /// The checks of every request.
    fn check(&self, key: &SharePartitionKey) -> Result<(), Failed> {
        if key.partition < 0 {
            return Err(Failed::negative_partition());
        }
        self.check_loaded(key)?;
        Ok(self.ensure_loaded()?)
    }

    /// Whether the partition exists.
    fn check_topic(&self, key: &SharePartitionKey) -> Result<(), Failed> {
        let table = self.replicas.topic_table();
        let topic = table.name_of(&key.topic_id).and_then(|name| table.get(name));
        match topic.and_then(|topic| topic.partition(key.partition)) {
            Some(_) => Ok(()),
            None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into()),
        }
    }
}
