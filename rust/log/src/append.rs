//! Appending (spec 2.1). Kafka: `UnifiedLog#append`.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use fletchlog_records::batch::set_offset_and_epoch;
use fletchlog_records::planted;
use fletchlog_records::{ErrorCode, TimestampType};

use crate::batch_walk::BatchMeta;
use crate::config::Durability;
use crate::leader_epoch::LeaderEpochCache;
use crate::partition_log::{PartitionLog, Writer};
use crate::producer_state::{BatchMetadata, PendingAppend, ProducerStateManager, Refusal};
use crate::roll::RollParams;
use crate::segment::LogSegment;
use crate::sync::{read, write};
use crate::validator::{ValidBatch, ValidRecords, validate};
use crate::{AppendError, AppendInfo, AppendOrigin, LogConfig, LogError};

impl PartitionLog {
    /// Appends the records of one produce request for this partition: steps 1-8 of spec 2.1, starting with the batch check
    /// (magic, one batch, sizes, CRC, validation, producer state, roll, write). Assigns offsets and `leader_epoch`.
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
        if config.durability == Durability::Fsync && !planted!("acknowledge-before-fsync") {
            if planted!("repeat-acknowledged-before-fsync") && info.duplicate {
                return Ok(info);
            }
            // Duplicates wait too: the original may still be waiting for its fsync.
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
        let next_offset = assign_offsets(valid, view.log_end_offset, leader_epoch)?;
        check_fits_segment(valid.data.len(), config)?;
        let has_append_time = config.message_timestamp_type == TimestampType::LogAppendTime;
        let info = AppendInfo {
            first_offset: view.log_end_offset,
            last_offset: next_offset - 1,
            log_append_time_ms: if has_append_time { now_ms } else { -1 },
            log_start_offset: view.log_start_offset,
            duplicate: false,
        };
        let pending = match check_producers(&writer.producers, valid, origin, config) {
            Ok(Verdict::Append(pending)) => pending,
            Ok(Verdict::Duplicate(original)) => {
                return Ok(AppendInfo {
                    first_offset: original.first_offset(),
                    last_offset: original.last_offset,
                    log_append_time_ms: original.timestamp,
                    duplicate: true,
                    ..info
                });
            }
            Err(Refusal { code, message }) => {
                for ValidBatch { header, .. } in &valid.batches {
                    writer.producers.note_unverified(header, origin, now_ms);
                }
                return Err(refused(code, message, view.log_start_offset));
            }
        };
        self.assign_epoch(leader_epoch, info.first_offset)?;
        let timestamps = valid.batches.iter().map(|batch| batch.header.max_timestamp);
        let params = RollParams {
            max_timestamp_in_messages: timestamps.max().unwrap_or(-1),
            max_offset_in_messages: info.last_offset,
            messages_size: valid.data.len() as u64,
            now_ms,
        };
        let view = self.maybe_roll(writer, view, config, info.first_offset, &params)?;
        self.write_and_publish(writer, view.segments.active(), valid, pending, next_offset, config)?;
        Ok(info)
    }

    /// Writes the batches to the active segment, then moves the log end for readers.
    fn write_and_publish(
        &self,
        writer: &mut Writer,
        segment: &LogSegment,
        valid: &mut ValidRecords,
        pending: PendingAppend,
        next_offset: i64,
        config: &LogConfig,
    ) -> Result<(), LogError> {
        for ValidBatch { start, header, .. } in &valid.batches {
            set_offset_and_epoch(
                &mut valid.data[*start..],
                header.base_offset,
                header.partition_leader_epoch,
            );
        }
        let start = segment.size();
        let metas = valid.batches.iter().map(|batch| BatchMeta {
            position: start + batch.start as u64,
            header: batch.header,
        });
        if let Err(e) = segment.append(&valid.data, metas) {
            if planted!("producer-state-before-write") {
                writer.producers.commit(pending);
            }
            if planted!("offset-used-by-failed-append") {
                write(&self.view).log_end_offset = next_offset;
            }
            return Err(self.after_failed_write(segment, start, e));
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
        let mut view = write(&self.view);
        view.log_end_offset = next_offset;
        view.active_size = segment.size();
        let first_unstable = writer.producers.first_unstable_offset();
        if view.is_held {
            // A marker ends its transaction for readers once it is below the high watermark.
            let earlier = view.first_unstable_offset.into_iter();
            view.first_unstable_offset = earlier.chain(first_unstable).min();
            return Ok(());
        }
        view.first_unstable_offset = first_unstable;
        if config.durability == Durability::PageCache || planted!("visible-before-fsync") {
            view.high_watermark = next_offset;
        }
        Ok(())
    }

    /// If the disk is full, the log is cut back to its last batch and stays usable. The cut is synced at once: if the next append
    /// rolls, a power loss could bring back the bytes of the failed write, and recovery would end the log there. After any
    /// other failure the state of the file is unknown, and nothing is written to it until the log is reopened.
    fn after_failed_write(&self, segment: &LogSegment, size: u64, error: LogError) -> LogError {
        if error.is_out_of_descriptors() {
            // The file could not be opened, so it is unchanged.
            return error;
        }
        let cut = segment.file().and_then(|file| {
            file.set_len(size)
                .and_then(|()| {
                    if planted!("cut-after-failed-append-not-synced") {
                        Ok(())
                    } else {
                        file.sync()
                    }
                })
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
        if epochs.latest_epoch().is_some() {
            changed.write(&*self.fs, &self.dir)?;
        } else {
            changed.write_first(&*self.fs, &self.dir)?;
            self.epochs_unsynced.store(true, Ordering::Release);
        }
        self.mark_directory_changed();
        *epochs = changed;
        Ok(())
    }
}

/// Assigns consecutive offsets to the batches, starting at `first_offset`. Returns the offset after the last one. Kafka:
/// `LogValidator#validateMessagesAndAssignOffsets`.
fn assign_offsets(valid: &mut ValidRecords, first_offset: i64, leader_epoch: i32) -> Result<i64, AppendError> {
    let mut next_offset = first_offset;
    for ValidBatch { header, .. } in &mut valid.batches {
        header.base_offset = next_offset;
        header.partition_leader_epoch = leader_epoch;
        next_offset = next_offset
            .checked_add(i64::from(header.last_offset_delta) + 1)
            .ok_or_else(|| refused(ErrorCode::RECORD_LIST_TOO_LARGE, "no offset is left below 2^63", -1))?;
    }
    Ok(next_offset)
}

fn check_fits_segment(size: usize, config: &LogConfig) -> Result<(), AppendError> {
    if usize::try_from(config.segment_bytes).is_ok_and(|max| size > max) {
        let message = format!(
            "{size} bytes do not fit a segment of segment.bytes = {}",
            config.segment_bytes
        );
        return Err(refused(ErrorCode::RECORD_LIST_TOO_LARGE, message, -1));
    }
    Ok(())
}

/// Result of checking an append against the producer state.
enum Verdict {
    Append(PendingAppend),
    /// The batch is already in the log.
    Duplicate(BatchMetadata),
}

/// Kafka: `UnifiedLog#analyzeAndValidateProducerState`.
fn check_producers(
    producers: &ProducerStateManager,
    valid: &ValidRecords,
    origin: AppendOrigin,
    config: &LogConfig,
) -> Result<Verdict, Refusal> {
    let mut pending = PendingAppend::default();
    for ValidBatch { header, marker, .. } in &valid.batches {
        let entry = producers.get(header.producer_id);
        // A batch resent after the end of its transaction is not a duplicate: it must be verified first, so it is refused.
        if let Some(entry) = entry
            && let Some(original) = entry
                .find_duplicate_batch(header)
                .filter(|_| !planted!("repeat-appended-again"))
            && origin.is_client()
            && !entry.must_be_verified(header, origin)
        {
            return Ok(Verdict::Duplicate(original));
        }
        producers.check(&mut pending, header, *marker, origin, config.strict_first_sequence)?;
    }
    Ok(Verdict::Append(pending))
}

fn refused(code: ErrorCode, message: impl Into<String>, log_start_offset: i64) -> AppendError {
    AppendError::Refused {
        code,
        message: message.into(),
        record_errors: Vec::new(),
        log_start_offset,
    }
}
