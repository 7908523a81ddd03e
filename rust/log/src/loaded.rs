//! The state of a log that was read from its directory, and the log that is made of it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use fletchlog_records::TopicPartition;

use crate::durable::Durable;
use crate::fs::Fs;
use crate::leader_epoch::LeaderEpochCache;
use crate::partition_log::{PartitionLog, Writer};
use crate::producer_state::ProducerStateManager;
use crate::view::{IndexCache, Segments, View};
use crate::{LogConfig, OpenMode};

/// The state of a loaded log.
pub(crate) struct Loaded {
    pub segments: Segments,
    pub epochs: LeaderEpochCache,
    pub producers: ProducerStateManager,
    pub last_snapshot_offset: i64,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub active_size: u64,
    pub recovery_point: i64,
    /// Files were created, renamed or removed, by this opening or perhaps by the writer that was killed.
    pub directory_changed: bool,
}

impl Loaded {
    pub fn into_log(
        self,
        fs: Arc<dyn Fs>,
        dir: &Path,
        tp: TopicPartition,
        config: LogConfig,
        mode: OpenMode,
    ) -> PartitionLog {
        let view = View {
            active_size: self.active_size,
            segments: self.segments,
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            high_watermark: self.log_end_offset,
            is_held: false,
            first_unstable_offset: self.producers.first_unstable_offset(),
        };
        PartitionLog {
            fs,
            dir: dir.to_path_buf(),
            tp,
            mode,
            config: RwLock::new(Arc::new(config)),
            view: RwLock::new(view),
            writer: Mutex::new(Writer {
                producers: self.producers,
                map_end_offset: self.log_end_offset,
                last_snapshot_offset: self.last_snapshot_offset,
                // A snapshot written by this opening is named after the log end; a clean stop syncs it.
                snapshot_unsynced: self.directory_changed && self.last_snapshot_offset == self.log_end_offset,
                deleted: Vec::new(),
            }),
            epochs: RwLock::new(self.epochs),
            epochs_unsynced: AtomicBool::new(self.directory_changed),
            cleaning: Mutex::default(),
            durable: Durable::new(self.recovery_point),
            directory_changed: AtomicBool::new(self.directory_changed),
            fenced: Mutex::default(),
            closed: AtomicBool::new(false),
            index_cache: IndexCache::default(),
            topic_id: OnceLock::new(),
        }
    }
}
