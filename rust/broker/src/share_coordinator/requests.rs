//! The requests of the leaders of partitions. Kafka: `ShareCoordinatorShard#writeState`, `#readStateAndMaybeUpdateLeaderEpoch`,
//! `#readStateSummary`, `#initializeState`, `#deleteState`, with the texts of their errors.

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
use fletchlog_protocol::values::ShareUpdateValue;
use fletchlog_protocol::values::share_snapshot_value::StateBatch;
use fletchlog_records::planted;

use super::ShareCoordinator;
use super::records::{self, NO_START_OFFSET, ShareGroupOffset, SharePartitionKey};
use crate::BrokerError;

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

/// The results of a request, in its shape. A request without a group has none.
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
                    $answer(key, partition)
                });
                result(topic.topic_id, partitions.collect())
            })
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
        let update = ShareUpdateValue {
            snapshot_epoch: known.snapshot_epoch,
            leader_epoch: asked.leader_epoch,
            start_offset: asked.start_offset,
            delivery_complete_count: asked.delivery_complete_count,
            state_batches: records::combined(batches, asked.start_offset),
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
        let mut states = self.shard(key).lock();
        if states.contains_key(key) {
            self.append_state(key, records::snapshot(key, None)?)?;
            states.remove(key);
        }
        Ok(())
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
