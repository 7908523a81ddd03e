//! One partition's log: its state and bounds. Kafka: `UnifiedLog`.
//!
//! Each operation is in a file named after it: `loader` (open), `append`, `read`, `timestamps`, `roll`, `flush`, `retention`
//! (delete), `refresh`, `cleaner`, `close`.
//!
//! Thread safety: all methods take `&self`; appends are serialised, reads run concurrently with them and see only offsets
//! below the published bounds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bytes::Bytes;
use fletchlog_records::TopicPartition;

use crate::durable::Durable;
use crate::fs::Fs;
use crate::leader_epoch::LeaderEpochCache;
use crate::producer_state::ProducerStateManager;
use crate::sync::{read, write};
use crate::view::{IndexCache, View};
use crate::{FetchBound, LogBounds, LogConfig, LogError};

/// How to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// One writer; the caller holds the directory lock. Recovers, may cut a torn tail, may rebuild side files.
    Write {
        /// `.kafka_cleanshutdown` was present.
        clean_shutdown: bool,
        /// From recovery-point-offset-checkpoint, 0 if absent.
        recovery_point: i64,
        /// From log-start-offset-checkpoint, 0 if absent.
        log_start_offset: i64,
    },
    /// Never writes, takes no lock, works beside a live writer and on read-only media.
    ReadOnly {
        /// From recovery-point-offset-checkpoint, 0 if absent.
        recovery_point: i64,
        /// From log-start-offset-checkpoint, 0 if absent.
        log_start_offset: i64,
    },
}

/// A successful append (or an acknowledged duplicate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; of the original batch for a duplicate.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Append time under LogAppendTime, for a duplicate the cached timestamp, else -1.
    pub log_append_time_ms: i64,
    /// Log start offset.
    pub log_start_offset: i64,
    /// Nothing was written: the batch is one of the last five of this producer (spec 3.2.1).
    pub duplicate: bool,
}

/// What a log remembers of a producer. Kafka: `DescribeProducersResponse.ProducerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProducerState {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Sequence of its newest record; -1 none.
    pub last_sequence: i32,
    /// Timestamp of its newest batch; -1 none.
    pub last_timestamp: i64,
    /// Of the newest marker; -1 none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; -1 none.
    pub current_txn_start_offset: i64,
}

/// Result of a read (spec 6.4).
#[derive(Debug, Clone)]
pub struct FetchDataInfo {
    /// File bytes, verbatim.
    pub records: Bytes,
    /// Base offset of the segment read, and position in it.
    pub segment_base_offset: i64,
    /// Byte position in the segment of the first byte.
    pub position: u64,
    /// (producer id, first offset), only for `LastStableOffset`.
    pub aborted_transactions: Option<Vec<(i64, i64)>>,
}

/// Result of a lookup by time (spec 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampAndOffset {
    /// Timestamp of the record found, -1 none.
    pub timestamp: i64,
    /// Its offset, -1 none.
    pub offset: i64,
    /// Leader epoch, -1 none.
    pub leader_epoch: i32,
}

/// One partition's log in one directory.
///
/// Lock order: `writer`, then the turn to sync (`durable`), then `epochs`, then `view`, then a segment's own locks. A thread
/// that has the turn never waits for `writer`.
#[derive(Debug)]
pub struct PartitionLog {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) tp: TopicPartition,
    pub(crate) mode: OpenMode,
    pub(crate) config: RwLock<Arc<LogConfig>>,
    pub(crate) view: RwLock<View>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) epochs: RwLock<LeaderEpochCache>,
    /// The file of `epochs` may not be synced yet.
    pub(crate) epochs_unsynced: AtomicBool,
    /// Held while the log is cleaned; taken before `writer`.
    pub(crate) cleaning: Mutex<()>,
    pub(crate) durable: Durable,
    /// Names in the directory changed since its last fsync.
    pub(crate) directory_changed: AtomicBool,
    pub(crate) fenced: Mutex<Option<String>>,
    pub(crate) closed: AtomicBool,
    pub(crate) index_cache: IndexCache,
    /// Beside a writer: the first id seen in `partition.metadata`.
    pub(crate) topic_id: OnceLock<[u8; 16]>,
}

/// State that only the holder of the lock changes.
#[derive(Debug)]
pub(crate) struct Writer {
    pub producers: ProducerStateManager,
    /// Producer state covers everything below.
    pub map_end_offset: i64,
    /// Offset of the newest snapshot.
    pub last_snapshot_offset: i64,
    /// That snapshot is not synced yet.
    pub snapshot_unsynced: bool,
    /// Renamed files, and when they may be removed.
    pub deleted: Vec<(PathBuf, i64)>,
}

impl PartitionLog {
    pub(crate) fn view(&self) -> Result<View, LogError> {
        if self.is_closed() {
            return Err(LogError::Closed);
        }
        Ok(read(&self.view).clone())
    }

    pub(crate) fn config(&self) -> Arc<LogConfig> {
        Arc::clone(&read(&self.config))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// All bounds at one moment, under one lock. The cost does not depend on the number of segments.
    ///
    /// # Errors
    /// `Closed`.
    pub fn bounds(&self) -> Result<LogBounds, LogError> {
        if self.is_closed() {
            return Err(LogError::Closed);
        }
        Ok(read(&self.view).bounds())
    }
    /// Where a read with this bound ends.
    pub fn end(&self, bound: FetchBound) -> i64 {
        read(&self.view).bound(bound)
    }
    /// First readable offset.
    pub fn log_start_offset(&self) -> i64 {
        read(&self.view).log_start_offset
    }
    /// Next offset to assign.
    pub fn log_end_offset(&self) -> i64 {
        read(&self.view).log_end_offset
    }
    /// End for read_uncommitted: the log end, as there is one copy (spec 6.7); with durability fsync, the end of what is
    /// on disk. While it is held (spec 6.9), it stands still.
    pub fn high_watermark(&self) -> i64 {
        read(&self.view).high_watermark
    }
    /// End for read_committed.
    pub fn last_stable_offset(&self) -> i64 {
        read(&self.view).last_stable_offset()
    }
    /// Leader epoch of the newest entry of leader-epoch-checkpoint, if any.
    pub fn latest_epoch(&self) -> Option<i32> {
        read(&self.epochs).latest_epoch()
    }
    /// (epoch, end offset) of the newest epoch at or below `epoch`, (-1, -1) if unknown (spec 1.9).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        read(&self.epochs).end_offset_for(epoch, self.log_end_offset())
    }
    /// Removes producers that have been idle for producer.id.expiration.ms by the timestamps of their last batches (spec
    /// 3.7), unless they have an open transaction. The next batch of a removed producer may begin with any sequence.
    pub fn remove_expired_producers(&self, now_ms: i64) {
        let expiration_ms = self.config().producer_id_expiration_ms;
        self.lock_writer().producers.remove_expired(now_ms, expiration_ms);
    }
    /// Whether a transaction of the producer is open here, in this epoch. Kafka: `UnifiedLog#hasOngoingTransaction`.
    pub fn has_ongoing_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        let entry = self.lock_writer().producers.get(producer_id);
        entry.is_some_and(|entry| entry.is_in_transaction(producer_epoch))
    }
    /// The remembered producers, by id (spec 3).
    pub fn active_producers(&self) -> Vec<ProducerState> {
        let writer = self.lock_writer();
        let of_entry = |entry: crate::producer_state::ProducerStateEntry| ProducerState {
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_seq(),
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            current_txn_start_offset: entry.current_txn_first_offset.unwrap_or(-1),
        };
        let mut producers: Vec<ProducerState> = writer.producers.entries().map(of_entry).collect();
        producers.sort_unstable_by_key(|producer| producer.producer_id);
        producers
    }
    /// Offsets below are known to be on disk.
    pub fn recovery_point(&self) -> i64 {
        self.durable.recovery_point()
    }
    /// Total bytes of `.log` files.
    pub fn size(&self) -> u64 {
        self.segments().iter().map(|(_, size)| size).sum()
    }
    /// Base offsets and sizes of the segments, ascending.
    pub fn segments(&self) -> Vec<(i64, u64)> {
        let view = read(&self.view).clone();
        view.segments
            .as_slice()
            .iter()
            .map(|segment| (segment.base_offset, view.size_of(segment)))
            .collect()
    }
    /// New settings (retention, timestamps...) for later operations.
    pub fn update_config(&self, config: LogConfig) {
        *write(&self.config) = Arc::new(config);
    }
}
