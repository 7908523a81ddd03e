//! OffsetForLeaderEpoch. Kafka: `KafkaApis#handleOffsetForLeaderEpochRequest`, `Partition#lastOffsetForLeaderEpoch`.

use fletchlog_api::{EpochEndOffset, ErrorCode, NodeId, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use fletchlog_records::TopicPartition;

use crate::fetch::check_leader_epoch;
use crate::{Broker, BrokerError};

impl Broker {
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
                let (error, (leader_epoch, end_offset)) = match found {
                    Ok(found) => (ErrorCode::NONE, found),
                    Err(error) => (error, (-1, -1)),
                };
                EpochEndOffset {
                    tp: tp.clone(),
                    error,
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
    ) -> Result<(i32, i64), ErrorCode> {
        let code = |e: BrokerError| {
            log::debug!("OffsetForLeaderEpoch of {tp}: {e}");
            e.code()
        };
        let partition = self.partition(tp).map_err(code)?;
        if partition.leader() != node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let current = partition.leader_epoch(&self.directory).map_err(|e| code(e.into()))?;
        check_leader_epoch(current_leader_epoch, current)?;
        let log = self.log_of(&partition).map_err(code)?;
        Ok(log.end_offset_for_epoch(leader_epoch))
    }
}
