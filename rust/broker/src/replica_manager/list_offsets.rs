//! ListOffsets (spec 5). Kafka: `KafkaApis#handleListOffsetRequest`, `Partition#fetchOffsetForTimestamp`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, IsolationLevel, ListOffsetsRequest, ListOffsetsResponse, NodeId};
use fletchlog_log::TimestampAndOffset;
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::fetch::fetch_bound;
use crate::error::ReadRefusal;
use crate::replica_manager::ReplicaManager;

const NOT_FOUND: TimestampAndOffset = TimestampAndOffset {
    timestamp: -1,
    offset: -1,
    leader_epoch: -1,
};

impl ReplicaManager {
    /// A ListOffsets request to `node`. The response has the shape of the request.
    pub(crate) fn list_offsets(&self, node: NodeId, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let mut times: FxHashMap<(&str, i32), u32> = FxHashMap::default();
        for (topic, asked) in request.partitions() {
            *times.entry((topic, asked.partition_index)).or_default() += 1;
        }
        let partition = |topic: &Arc<str>, asked: &ListOffsetsPartition| {
            let found = if times.get(&(&**topic, asked.partition_index)) > Some(&1) {
                Err(ErrorCode::INVALID_REQUEST.into())
            } else {
                self.list_offset(node, topic, asked, request.isolation_level)
            };
            let (found, refusal) = match found {
                Ok(found) => (found, ErrorCode::NONE.into()),
                Err(refusal) => (NOT_FOUND, refusal),
            };
            ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                error_code: refusal.code,
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: found.leader_epoch,
                error_message: refusal.message.map(Into::into),
            }
        };
        let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
            name: Arc::clone(&topic.name),
            partitions: topic.partitions.iter().map(|p| partition(&topic.name, p)).collect(),
        });
        ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn list_offset(
        &self,
        node: NodeId,
        topic: &Arc<str>,
        asked: &ListOffsetsPartition,
        isolation: IsolationLevel,
    ) -> Result<TimestampAndOffset, ReadRefusal> {
        let partition = self.partition(&TopicPartition::new(Arc::clone(topic), asked.partition_index))?;
        let log = self.log_as_replica(&partition, node)?;
        let current = partition.check_replica(self.logs.directory(), node, asked.current_leader_epoch, true)?;
        let bound = fetch_bound(isolation);
        match asked.timestamp {
            // Nothing is tiered here.
            ListOffsetsRequest::LATEST_TIERED_TIMESTAMP | ListOffsetsRequest::EARLIEST_PENDING_UPLOAD_TIMESTAMP => {
                Ok(NOT_FOUND)
            }
            unknown if ListOffsetsRequest::first_version_of(unknown).is_none() => {
                Err(ErrorCode::UNSUPPORTED_VERSION.into())
            }
            ListOffsetsRequest::LATEST_TIMESTAMP if partition.is_offset_unknown() => {
                Err(ErrorCode::OFFSET_NOT_AVAILABLE.into())
            }
            timestamp => {
                let mut found = log.fetch_offset_by_timestamp(timestamp, bound)?;
                if timestamp == ListOffsetsRequest::LATEST_TIMESTAMP {
                    found.leader_epoch = current;
                }
                Ok(found)
            }
        }
    }
}
