//! ListOffsets (spec 5). Kafka: `KafkaApis#handleListOffsetRequest`, `Partition#fetchOffsetForTimestamp`.

use fletchlog_api::list_offsets::{EARLIEST_PENDING_UPLOAD_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP};
use fletchlog_api::{
    ErrorCode, IsolationLevel, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, NodeId,
};
use fletchlog_log::{FetchBound, TimestampAndOffset};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::fetch::check_leader_epoch;
use crate::error::ReadRefusal;
use crate::replica_manager::ReplicaManager;

const NOT_FOUND: TimestampAndOffset = TimestampAndOffset {
    timestamp: -1,
    offset: -1,
    leader_epoch: -1,
};

impl ReplicaManager {
    /// A ListOffsets request to `node`.
    pub(crate) fn list_offsets(&self, node: NodeId, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let mut times: FxHashMap<&TopicPartition, u32> = FxHashMap::default();
        for (tp, ..) in &request.partitions {
            *times.entry(tp).or_default() += 1;
        }
        let partitions = request
            .partitions
            .iter()
            .map(|(tp, leader_epoch, timestamp)| {
                let found = if times.get(tp) > Some(&1) {
                    Err(ErrorCode::INVALID_REQUEST.into())
                } else {
                    self.list_offset(node, tp, *leader_epoch, *timestamp, request.isolation_level)
                };
                let (found, refusal) = match found {
                    Ok(found) => (found, ErrorCode::NONE.into()),
                    Err(refusal) => (NOT_FOUND, refusal),
                };
                ListOffsetsPartitionResponse {
                    tp: tp.clone(),
                    error: refusal.code,
                    error_message: refusal.message,
                    timestamp: found.timestamp,
                    offset: found.offset,
                    leader_epoch: found.leader_epoch,
                }
            })
            .collect();
        ListOffsetsResponse { partitions }
    }

    fn list_offset(
        &self,
        node: NodeId,
        tp: &TopicPartition,
        leader_epoch: i32,
        timestamp: i64,
        isolation: IsolationLevel,
    ) -> Result<TimestampAndOffset, ReadRefusal> {
        let partition = self.partition(tp)?;
        if partition.leader() != node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        let log = self.log_of(&partition)?;
        let current = partition.leader_epoch(self.logs.directory())?;
        check_leader_epoch(leader_epoch, current)?;
        let bound = fetch_bound(isolation);
        match timestamp {
            // Nothing is tiered here.
            LATEST_TIERED_TIMESTAMP | EARLIEST_PENDING_UPLOAD_TIMESTAMP => Ok(NOT_FOUND),
            unknown if unknown < EARLIEST_PENDING_UPLOAD_TIMESTAMP => Err(ErrorCode::UNSUPPORTED_VERSION.into()),
            _ => {
                let mut found = log.fetch_offset_by_timestamp(timestamp, bound)?;
                if timestamp == LATEST_TIMESTAMP {
                    found.leader_epoch = current;
                }
                Ok(found)
            }
        }
    }
}

/// How far a client with this isolation level may read.
pub(crate) fn fetch_bound(isolation: IsolationLevel) -> FetchBound {
    match isolation {
        IsolationLevel::ReadCommitted => FetchBound::LastStableOffset,
        // The listener refuses other levels.
        IsolationLevel::ReadUncommitted | IsolationLevel::Other(_) => FetchBound::HighWatermark,
    }
}
