//! OffsetForLeaderEpoch. Kafka: `KafkaApis#handleOffsetForLeaderEpochRequest`, `Partition#lastOffsetForLeaderEpoch`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use fletchlog_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use fletchlog_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use fletchlog_records::TopicPartition;

use crate::error::ReadRefusal;
use crate::replica_manager::ReplicaManager;

impl ReplicaManager {
    /// An OffsetForLeaderEpoch request to `node`. The response has the shape of the request.
    pub(crate) fn offsets_for_leader_epoch(
        &self,
        node: NodeId,
        request: &OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter();
            OffsetForLeaderTopicResult {
                topic: Arc::clone(&topic.topic),
                partitions: partitions
                    .map(|asked| self.end_of_leader_epoch(node, &topic.topic, asked))
                    .collect(),
            }
        });
        OffsetForLeaderEpochResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn end_of_leader_epoch(&self, node: NodeId, topic: &Arc<str>, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
        let tp = TopicPartition::new(Arc::clone(topic), asked.partition);
        let found = self.last_offset_for_leader_epoch(node, &tp, asked.current_leader_epoch, asked.leader_epoch);
        let ((leader_epoch, end_offset), refusal) = match found {
            Ok(found) => (found, ErrorCode::NONE.into()),
            Err(refusal) => ((-1, -1), refusal),
        };
        EpochEndOffset {
            error_code: refusal.code,
            partition: asked.partition,
            leader_epoch,
            end_offset,
            error_message: refusal.message.map(Into::into),
        }
    }

    fn last_offset_for_leader_epoch(
        &self,
        node: NodeId,
        tp: &TopicPartition,
        current_leader_epoch: i32,
        leader_epoch: i32,
    ) -> Result<(i32, i64), ReadRefusal> {
        let partition = self.partition(tp)?;
        partition.check_replica(self.logs.directory(), node, current_leader_epoch, true)?;
        let log = self.log_of(&partition)?;
        Ok(log.end_offset_for_epoch(leader_epoch))
    }
}
