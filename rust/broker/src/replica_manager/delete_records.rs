//! DeleteRecords. Kafka: `ReplicaManager#deleteRecords`, `Partition#deleteRecordsOnLeader`.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;
use fletchlog_records::planted;

use super::ReplicaManager;
use crate::BrokerError;
use crate::error::spread;
use crate::partition::Partition;
use crate::topic_names;

impl ReplicaManager {
    /// DeleteRecords (spec 4.2), for each partition separately. Kafka: `ReplicaManager#deleteRecords`,
    /// `Partition#deleteRecordsOnLeader`.
    pub(crate) fn delete_records_of(&self, all: &[(&TopicPartition, Option<i64>)]) -> Vec<Result<i64, BrokerError>> {
        let (mut starts, mut places) = (Vec::new(), Vec::new());
        let mut results: Vec<_> = (all.iter().enumerate())
            .map(|(place, (tp, before_offset))| {
                let (partition, start) = self.log_start_after_deleting(tp, *before_offset)?;
                starts.push((partition, start));
                places.push(place);
                Ok(start)
            })
            .collect();
        if starts.is_empty() {
            return results;
        }
        match self.move_log_starts(&starts) {
            Ok(deleted) => places
                .iter()
                .zip(deleted)
                .for_each(|(place, deleted)| results[*place] = deleted),
            Err(error) => spread(error, &places, &mut results),
        }
        let deleted = places.iter().zip(&starts).filter(|(place, _)| results[**place].is_ok());
        self.partitions_changed(deleted.map(|(_, (partition, _))| &**partition));
        results
    }

    /// Moves the starts of logs. Kafka writes them once a minute; but if a crash reverted a log start that clients have seen, deleted records
    /// would exist again.
    fn move_log_starts(&self, starts: &[(Arc<Partition>, i64)]) -> Result<Vec<Result<i64, BrokerError>>, BrokerError> {
        let delete = |partition: &Partition, start| Ok(self.log_of(partition)?.delete_records(Some(start))?);
        if planted!("log-start-not-checkpointed") {
            let moved = starts.iter().map(|(partition, start)| delete(partition, *start));
            return Ok(moved.collect());
        }
        self.logs.write_checkpoints_for(starts, delete)
    }

    /// Deletes records of a coordinator's log before an offset, as far as they are on all replicas. What is left is made durable first: it is
    /// all that the coordinator can begin with.
    pub(crate) fn delete_coordinator_records(
        &self,
        partition: &Arc<Partition>,
        before: i64,
    ) -> Result<(), BrokerError> {
        let log = self.log_of(partition)?;
        let before = before.min(log.high_watermark());
        if before <= log.log_start_offset() {
            return Ok(());
        }
        log.flush()?;
        let moved = self.move_log_starts(&[(Arc::clone(partition), before)])?;
        moved.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.partitions_changed([&**partition]);
        Ok(())
    }

    /// A partition, and where its log would start after the deletion.
    fn log_start_after_deleting(
        &self,
        tp: &TopicPartition,
        before_offset: Option<i64>,
    ) -> Result<(Arc<Partition>, i64), BrokerError> {
        self.for_writing("delete records")?;
        let partition = self.partition(tp)?;
        if topic_names::is_internal(&tp.topic) {
            let text = format!(
                "`{}` is the broker's own topic; its records cannot be deleted",
                tp.topic
            );
            return Err(BrokerError::kafka(ErrorCode::INVALID_TOPIC_EXCEPTION, text));
        }
        if !partition.config().log.cleanup_delete {
            return Err(BrokerError::kafka(
                ErrorCode::POLICY_VIOLATION,
                format!("records of {tp} cannot be deleted: the topic's cleanup.policy lacks `delete`"),
            ));
        }
        let start = self.log_of(&partition)?.log_start_after_deleting(before_offset)?;
        Ok((partition, start))
    }
}
