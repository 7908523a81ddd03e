//! OffsetForLeaderEpoch. Kafka: `KafkaApis#handleOffsetForLeaderEpochRequest`, `Partition#lastOffsetForLeaderEpoch`.

use fletchlog_api::{EpochEndOffset, ErrorCode, NodeId, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use fletchlog_records::TopicPartition;

use super::fetch::check_leader_epoch;
use crate::error::ReadRefusal;
use crate::replica_manager::ReplicaManager;

impl ReplicaManager {
    /// An OffsetForLeaderEpoch request to `node`.
    pub(crate) fn offsets_for_leader_epoch(
        &self,
        node: NodeId,
        request: &OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let partitions = request
            .partitions
            .iter()
            .map(|(tp, current_leader_epoch, leader_epoch)| {
                let found = self.end_of_leader_epoch(node, tp, *current_leader_epoch, *leader_epoch);
                let ((leader_epoch, end_offset), refusal) = match found {
                    Ok(found) => (found, ErrorCode::NONE.into()),
                    Err(refusal) => ((-1, -1), refusal),
                };
                EpochEndOffset {
                    tp: tp.clone(),
                    error: refusal.code,
                    error_message: refusal.message,
                    leader_epoch,
                    end_offset,
                }
            })
            .collect();
        OffsetForLeaderEpochResponse { partitions }
    }

    fn end_of_leader_epoch(
        &self,
        node: NodeId,
        tp: &TopicPartition,
        current_leader_epoch: i32,
        leader_epoch: i32,
    ) -> Result<(i32, i64), ReadRefusal> {
        let partition = self.partition(tp)?;
        if partition.leader() != node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        let current = partition.leader_epoch(self.logs.directory())?;
        check_leader_epoch(current_leader_epoch, current)?;
        let log = self.log_of(&partition)?;
        Ok(log.end_offset_for_epoch(leader_epoch))
    }
}
