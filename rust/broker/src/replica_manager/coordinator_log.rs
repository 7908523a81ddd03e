//! Appending to and reading the logs in which coordinators keep their state: `__consumer_offsets`, `__transaction_state`.

use bytes::Bytes;
use fletchlog_api::ErrorCode;
use fletchlog_log::{AppendError, AppendOrigin, FetchBound, LogError};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordBatch, RecordError};

use crate::BrokerError;
use crate::directory::NO_LEADER;
use crate::partition::Partition;
use crate::replica_manager::ReplicaManager;
use crate::topic_names::{CONSUMER_OFFSETS, SHARE_GROUP_STATE};

/// Bytes per read while loading: one batch of such records is far smaller, and a bigger batch is read whole anyway.
const LOAD_CHUNK: usize = 1 << 20;

/// Key and value; a null value is a tombstone.
pub(crate) type CoordinatorRecord = (Bytes, Option<Bytes>);

impl ReplicaManager {
    /// Appends one batch of records; returns the offset of the first.
    pub(crate) fn append_records(
        &self,
        partition: &Partition,
        records: &[CoordinatorRecord],
        params: &BatchParams,
    ) -> Result<i64, BrokerError> {
        let now_ms = self.clock().now_ms();
        let size = |(key, value): &CoordinatorRecord| key.len() + value.as_ref().map_or(0, Bytes::len) + 32;
        let mut builder = BatchBuilder::with_capacity(records.iter().map(size).sum());
        for (key, value) in records {
            builder.append(now_ms, Some(key), value.as_deref(), &[]);
        }
        self.append_as_coordinator(partition, builder.build(params), AppendOrigin::Coordinator, now_ms)
    }

    /// Appends a batch that the broker itself has made; returns the offset of its first record.
    pub(crate) fn append_as_coordinator(
        &self,
        partition: &Partition,
        batch: Bytes,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<i64, BrokerError> {
        let refuse = |code: ErrorCode| {
            let text = format!("{} cannot be written: {}", partition.tp(), code.message());
            Err(BrokerError::kafka(code, text))
        };
        if partition.leader() == NO_LEADER {
            return refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        // The coordinators of groups write as with acks=1, and their responses wait. Kafka: `CoordinatorPartitionWriter#append`.
        let is_of_groups = matches!(&*partition.tp().topic, CONSUMER_OFFSETS | SHARE_GROUP_STATE);
        if !is_of_groups && self.is_under_min_isr(partition) {
            return refuse(ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        let log = self.log_of(partition)?;
        match partition.append(self.logs.directory(), log, batch, origin, now_ms) {
            Ok(info) => {
                self.partition_changed(partition);
                Ok(info.first_offset)
            }
            Err(AppendError::Log(error)) => Err(error.into()),
            Err(AppendError::Refused { code, message, .. }) => Err(BrokerError::kafka(code, message)),
        }
    }

    /// Calls `apply` with every batch of a log, as [`Self::read_records`] does. A partition without a log has none.
    pub(crate) fn read_log(
        &self,
        partition: &Partition,
        apply: impl FnMut(&RecordBatch) -> Result<(), RecordError>,
    ) -> Result<(), BrokerError> {
        if self.has_log(partition)? {
            self.read_records(partition, 0, apply)?;
        }
        Ok(())
    }

    /// Calls `apply` with every batch from an offset on; returns the offset at which to continue. A batch that cannot be read is
    /// logged and skipped: the records behind it are still needed.
    pub(crate) fn read_records(
        &self,
        partition: &Partition,
        from: i64,
        mut apply: impl FnMut(&RecordBatch) -> Result<(), RecordError>,
    ) -> Result<i64, BrokerError> {
        let log = self.log_of(partition)?;
        // A new coordinator loads also what is not on all replicas in sync.
        let (end, bound) = match partition.is_held() {
            true => (log.log_end_offset(), FetchBound::LogEnd),
            false => (log.high_watermark(), FetchBound::HighWatermark),
        };
        let mut next = from.max(log.log_start_offset());
        while next < end {
            let data = log.read(next, LOAD_CHUNK, true, bound)?;
            let before = next;
            for batch in BatchIter::new(data.records) {
                let batch = batch.map_err(LogError::from)?;
                next = next.max(batch.header().next_offset());
                if let Err(error) = apply(&batch) {
                    log::error!(
                        "{}: the batch at offset {} is skipped: {error}",
                        partition.tp(),
                        batch.header().base_offset
                    );
                }
            }
            if next == before {
                break;
            }
        }
        Ok(next)
    }
}
