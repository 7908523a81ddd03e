//! Appending (spec 2.1). Kafka: `UnifiedLog#append`.

use bytes::Bytes;
use fletchlog_records::TimestampType;
use fletchlog_records::batch::set_offset_and_epoch;

use crate::batch_walk::BatchMeta;
use crate::config::Durability;
use crate::leader_epoch::LeaderEpochCache;
use crate::partition_log::{PartitionLog, Writer};
use crate::producer_state::{Origin, PendingAppend, Refusal};
use crate::segment::LogSegment;
use crate::sync::{read, write};
use crate::validator::{ValidRecords, validate};
use crate::{AppendError, AppendInfo, AppendOrigin, LogConfig, LogError};

const RECORD_LIST_TOO_LARGE: i16 = 18;

impl PartitionLog {
    /// Appends what one produce request carried for this partition: steps 1-8 of spec 2.1 from the batch check on
    /// (magic, one batch, sizes, CRC, validation, producer state, roll, write). Offsets and `leader_epoch` are stamped here.
    pub fn append_as_leader(
        &self,
        records: Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        self.check_writable("append")?;
        let config = self.config();
        let mut valid = validate(records, origin, &config, &self.tp, now_ms)
            .map_err(|e| e.into_refused(self.log_start_offset()))?;
        let mut writer = self.lock_writer();
        self.check_writable("append")?;
        let info = self.append_locked(&mut writer, &mut valid, leader_epoch, origin, &config, now_ms)?;
        drop(writer);
        if config.durability == Durability::Fsync {
            // A repeat, too: the first one may still be waiting.
            self.await_durable(info.last_offset + 1)?;
        }
        Ok(info)
    }

    fn append_locked(
        &self,
        writer: &mut Writer,
        valid: &mut ValidRecords,
        leader_epoch: i32,
        origin: AppendOrigin,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        let view = self.view()?;
        let first_offset = view.log_end_offset;
        let mut next_offset = first_offset;
        let mut max_timestamp = i64::MIN;
        for batch in &mut valid.batches {
            batch.header.base_offset = next_offset;
            batch.header.partition_leader_epoch = leader_epoch;
            max_timestamp = max_timestamp.max(batch.header.max_timestamp);
            let beyond = i64::from(batch.header.last_offset_delta) + 1;
            next_offset = next_offset
                .checked_add(beyond)
                .ok_or_else(|| refused(RECORD_LIST_TOO_LARGE, "no offset is left below 2^63", -1))?;
        }
        let last_offset = next_offset - 1;
        let size = valid.data.len() as u64;
        if usize::try_from(config.segment_bytes).is_ok_and(|max| valid.data.len() > max) {
            let message = format!(
                "{size} bytes do not fit a segment of segment.bytes = {}",
                config.segment_bytes
            );
            return Err(refused(RECORD_LIST_TOO_LARGE, message, -1));
        }

        let mut info = AppendInfo {
            first_offset,
            last_offset,
            log_append_time_ms: -1,
            log_start_offset: view.log_start_offset,
            duplicate: false,
        };
        let mut pending = PendingAppend::default();
        for batch in &valid.batches {
            if origin.is_client()
                && batch.header.has_producer_id()
                && let Some(original) = writer
                    .producers
                    .get(batch.header.producer_id)
                    .and_then(|entry| entry.find_duplicate(&batch.header))
            {
                info.first_offset = original.first_offset();
                info.last_offset = original.last_offset;
                info.log_append_time_ms = original.timestamp;
                info.duplicate = true;
                return Ok(info);
            }
            let origin = match origin {
                AppendOrigin::Client => Origin::Client,
                AppendOrigin::UnverifiedClient => Origin::UnverifiedClient,
                AppendOrigin::Coordinator => Origin::Coordinator,
            };
            let checked = writer.producers.check(
                &mut pending,
                &batch.header,
                batch.marker,
                origin,
                config.strict_first_sequence,
            );
            checked.map_err(|Refusal { code, message }| refused(code, message, view.log_start_offset))?;
        }

        self.assign_epoch(leader_epoch, first_offset)?;
        let view = self.maybe_roll(
            writer,
            view,
            config,
            size,
            max_timestamp,
            first_offset,
            last_offset,
            now_ms,
        )?;
        for batch in &valid.batches {
            set_offset_and_epoch(&mut valid.data[batch.start..], batch.header.base_offset, leader_epoch);
        }
        let segment = view.segments.active();
        let start = segment.size();
        let metas = valid.batches.iter().map(|batch| BatchMeta {
            position: start + batch.start as u64,
            header: batch.header,
        });
        if let Err(e) = segment.append(&valid.data, metas) {
            return Err(self.after_failed_write(segment, start, e).into());
        }

        writer.map_end_offset = next_offset;
        for aborted in writer.producers.commit(pending) {
            segment.append_aborted(aborted);
            if let Err(e) = segment.write_txn_index() {
                log::warn!(
                    "{}: aborted transaction stays in memory for now: {e}",
                    self.dir.display()
                );
            }
        }
        {
            let mut view = write(&self.view);
            view.log_end_offset = next_offset;
            view.active_size = start + size;
            view.first_unstable_offset = writer.producers.first_unstable_offset();
            if config.durability == Durability::PageCache {
                view.high_watermark = next_offset;
            }
        }
        if config.message_timestamp_type == TimestampType::LogAppendTime {
            info.log_append_time_ms = now_ms;
        }
        Ok(info)
    }

    /// A full disk takes nothing: the log is cut back to its last batch and goes on. The cut is on disk before anything else: if the
    /// next append rolls, a power loss would bring back what the failed write left, and recovery would end the log there. After any
    /// other failure nothing is known about the file, and nothing is written to it until it is reopened.
    fn after_failed_write(&self, segment: &LogSegment, size: u64, error: LogError) -> LogError {
        if error.is_out_of_descriptors() {
            // The file could not be opened, so it is as it was.
            return error;
        }
        let cut = segment.file().and_then(|file| {
            file.set_len(size)
                .and_then(|()| file.sync())
                .map_err(|e| segment.io("cut", e))
        });
        if !error.is_full() || cut.is_err() {
            self.fence(&error);
        }
        error
    }

    /// Notes that this node leads with `epoch` from the log end on, as a broker does before the first append of an epoch.
    /// An epoch that is already known changes nothing. Kafka: `UnifiedLog#maybeAssignEpochStartOffset`.
    pub fn assign_leader_epoch(&self, epoch: i32) -> Result<(), LogError> {
        self.check_writable("lead")?;
        let _writer = self.lock_writer();
        self.assign_epoch(epoch, self.log_end_offset())
    }

    /// Kafka: `LeaderEpochFileCache#assign` for each appended batch.
    fn assign_epoch(&self, epoch: i32, start_offset: i64) -> Result<(), LogError> {
        if epoch < 0 || read(&self.epochs).latest_epoch() == Some(epoch) {
            return Ok(());
        }
        let mut epochs = write(&self.epochs);
        let mut changed = epochs.clone();
        if changed.assign(epoch, start_offset) {
            self.store_epochs(&mut epochs, changed)?;
        }
        Ok(())
    }

    pub(crate) fn store_epochs(
        &self,
        epochs: &mut LeaderEpochCache,
        changed: LeaderEpochCache,
    ) -> Result<(), LogError> {
        changed.write(&*self.fs, &self.dir)?;
        self.mark_directory_changed();
        *epochs = changed;
        Ok(())
    }
}

fn refused(code: i16, message: impl Into<String>, log_start_offset: i64) -> AppendError {
    AppendError::Refused {
        code,
        message: message.into(),
        record_errors: Vec::new(),
        log_start_offset,
    }
}
