//! One segment: a `.log` file and its side files. Kafka: `LogSegment`.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use fletchlog_records::RecordBatch;
use fletchlog_records::planted;

use crate::batch_walk::{BatchMeta, HeaderWalk, OffsetOrder, WalkEnd};
use crate::fs::{File, Fs, remove_file};
use crate::offset_index::OffsetPosition;
use crate::segment_files::SegmentFiles;
use crate::segment_indexes::{Check, IndexLoader, SegmentIndexes};
use crate::sync::{lock, read, write};
use crate::time_index::TimestampOffset;
use crate::txn_index::{AbortedTxn, TransactionIndex};
use crate::{LogConfig, LogError};

/// How many files a deletion or a cleaning keeps open for readers at a time: a process may have only a few hundred
/// descriptors.
pub(crate) const KEPT_OPEN: usize = 32;

/// Bits of `dirty_side_files`.
const INDEXES: u8 = 0b011;
const TXN_INDEX: u8 = 0b100;

#[derive(Debug)]
pub(crate) struct LogSegment {
    pub base_offset: i64,
    pub files: SegmentFiles,
    /// When the segment was opened; rolling by time counts from here if the first batch has no timestamp.
    pub created_ms: i64,
    fs: Arc<dyn Fs>,
    writable: bool,
    file: Mutex<Option<Arc<dyn File>>>,
    /// The log was written since its last fsync.
    dirty: AtomicBool,
    /// The side files that were written since their last fsync: a bit for each in the order of [`SegmentFiles::all`].
    dirty_side_files: AtomicU8,
    size: AtomicU64,
    index_interval: u64,
    /// Loaded when first needed, so that opening a log of many segments costs nothing per segment.
    indexes: RwLock<Option<SegmentIndexes>>,
    /// The indexes differ from the files, or the files are not usable: the indexes must stay in memory.
    keep_in_memory: AtomicBool,
    max_timestamp: Mutex<Option<TimestampOffset>>,
    first_timestamp: Mutex<Option<i64>>,
    txn: RwLock<TxnFile>,
}

#[derive(Debug, Default)]
struct TxnFile {
    index: TransactionIndex,
    written: usize,
}

/// What `LogSegment::open` needs to know.
pub(crate) struct SegmentParams {
    pub files: SegmentFiles,
    pub base_offset: i64,
    pub size: u64,
    pub writable: bool,
    pub created_ms: i64,
    pub index_interval: u64,
}

impl SegmentParams {
    /// Parameters of a segment that is open for writing.
    pub fn new(config: &LogConfig, base_offset: i64, files: SegmentFiles, size: u64, now_ms: i64) -> Self {
        Self {
            files,
            base_offset,
            size,
            writable: true,
            created_ms: now_ms,
            index_interval: config.index_interval(),
        }
    }
}

impl LogSegment {
    pub fn new(fs: Arc<dyn Fs>, params: SegmentParams) -> Self {
        Self {
            base_offset: params.base_offset,
            files: params.files,
            created_ms: params.created_ms,
            fs,
            writable: params.writable,
            file: Mutex::default(),
            dirty: AtomicBool::new(false),
            dirty_side_files: AtomicU8::new(0),
            size: AtomicU64::new(params.size),
            index_interval: params.index_interval,
            indexes: RwLock::default(),
            keep_in_memory: AtomicBool::new(false),
            max_timestamp: Mutex::default(),
            first_timestamp: Mutex::default(),
            txn: RwLock::default(),
        }
    }

    /// Creates the files of a new segment. Leftovers with the same base offset are replaced; a non-empty log is an error.
    pub fn create(fs: Arc<dyn Fs>, params: SegmentParams, preallocate: Option<(u64, u64)>) -> Result<Self, LogError> {
        let segment = Self::new(fs, SegmentParams { size: 0, ..params });
        let path = &segment.files.log;
        let file = segment
            .fs
            .open_segment(path, true, true)
            .map_err(|e| LogError::io("create", path, e))?;
        segment.mark_unsynced();
        let len = file.len().map_err(|e| LogError::io("stat", path, e))?;
        if len > 0 {
            let reason = format!("a new segment cannot start in a log of {len} bytes; reopen the log to recover it");
            return Err(LogError::damaged(path, 0, reason));
        }
        remove_file(&*segment.fs, &segment.files.txn_index)?;
        for (index, capacity) in [
            (&segment.files.offset_index, preallocate.map(|p| p.0)),
            (&segment.files.time_index, preallocate.map(|p| p.1)),
        ] {
            let create = || {
                let file = segment.fs.open(index, true, true)?;
                // Cutting a file is a change to the file system even if there is nothing to cut.
                if file.len()? > 0 {
                    file.set_len(0)?;
                }
                capacity.map_or(Ok(()), |size| file.set_len(size))
            };
            create().map_err(|e| LogError::io("create", index, e))?;
        }
        *lock(&segment.file) = Some(file);
        let mut indexes = SegmentIndexes::new(segment.base_offset);
        // The files are empty or preallocated: entries continue at their start.
        indexes.adopt_empty_files();
        *write(&segment.indexes) = Some(indexes);
        segment.keep_in_memory.store(true, Ordering::Relaxed);
        Ok(segment)
    }

    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The log file, opened when first needed.
    pub fn file(&self) -> Result<Arc<dyn File>, LogError> {
        let mut file = lock(&self.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let open = |path: &Path| self.fs.open_segment(path, self.writable, false);
        let opened = match open(&self.files.log) {
            // The writer has completed its cleaning since the directory was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.files.is_swap() => {
                open(&self.files.log.with_extension(""))
            }
            opened => opened,
        };
        let opened = opened.map_err(|e| self.io("open", e))?;
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    pub fn io(&self, action: &'static str, e: io::Error) -> LogError {
        LogError::io(action, &self.files.log, e)
    }

    pub fn read_at(&self, position: u64, len: usize) -> Result<Bytes, LogError> {
        self.file()?.read_at(position, len).map_err(|e| self.io("read", e))
    }

    /// Installs indexes that were built elsewhere; `keep_in_memory`: they differ from the files.
    pub fn install(&self, indexes: SegmentIndexes, keep_in_memory: bool) {
        *lock(&self.max_timestamp) = None;
        *write(&self.indexes) = Some(indexes);
        self.keep_in_memory.store(keep_in_memory, Ordering::Relaxed);
    }

    pub fn with_indexes<T>(&self, f: impl Fn(&SegmentIndexes) -> T) -> Result<T, LogError> {
        if let Some(indexes) = &*read(&self.indexes) {
            return Ok(f(indexes));
        }
        let file = self.file()?;
        let loader = IndexLoader {
            fs: &*self.fs,
            files: &self.files,
            file: &*file,
            base_offset: self.base_offset,
            size: self.size(),
            interval: self.index_interval,
            check: Check::Headers,
        };
        let loaded = loader.load().map_err(|e| self.io("read the indexes of", e))?;
        loaded.why.unless_disorder(&self.files.log, loaded.end)?;
        if let Some(reason) = &loaded.rebuilt {
            log::warn!("{}: index rebuilt in memory: {reason}", self.files.log.display());
            self.keep_in_memory.store(true, Ordering::Relaxed);
        }
        let mut indexes = write(&self.indexes);
        Ok(f(indexes.insert(loaded.indexes)))
    }

    /// Drops indexes that can be loaded from the files again.
    pub fn evict(&self) {
        if self.keep_in_memory.load(Ordering::Relaxed) {
            return;
        }
        let mut indexes = write(&self.indexes);
        if let Some(loaded) = indexes.take() {
            lock(&self.max_timestamp).get_or_insert(loaded.max_timestamp);
        }
    }

    /// Read-only logs: the writer has rolled, so its index files are complete and are used from now on.
    pub fn forget_indexes(&self) {
        self.keep_in_memory.store(false, Ordering::Relaxed);
        self.evict();
    }

    pub fn has_loaded_indexes(&self) -> bool {
        read(&self.indexes).is_some()
    }

    /// Largest timestamp and the last offset of the earliest batch that has it; (-1, base offset) if there is none.
    pub fn max_timestamp(&self) -> Result<TimestampOffset, LogError> {
        if self.size() == 0 {
            return Ok(TimestampOffset {
                timestamp: -1,
                offset: self.base_offset,
            });
        }
        if let Some(max) = *lock(&self.max_timestamp) {
            return Ok(max);
        }
        self.with_indexes(|indexes| indexes.max_timestamp)
    }

    /// For files that are about to be renamed: readers that hold this segment can continue to read them.
    pub fn keep_for_readers(&self) -> Result<(), LogError> {
        self.with_indexes(|_| ())?;
        self.keep_in_memory.store(true, Ordering::Relaxed);
        self.keep_open(true)
    }

    /// See [`File::keep_open`].
    pub fn keep_open(&self, keep: bool) -> Result<(), LogError> {
        self.file()?.keep_open(keep).map_err(|e| self.io("open", e))
    }

    pub fn modified_ms(&self) -> Result<i64, LogError> {
        self.fs.modified_ms(&self.files.log).map_err(|e| self.io("stat", e))
    }

    pub fn index_interval(&self) -> u64 {
        self.index_interval
    }

    /// Largest record timestamp, else the time the file was modified. Kafka: `LogSegment#largestTimestamp`.
    pub fn largest_timestamp(&self) -> Result<i64, LogError> {
        let max = self.max_timestamp()?.timestamp;
        if max >= 0 {
            return Ok(max);
        }
        self.modified_ms()
    }

    /// Largest timestamp of the first batch, `None` while the segment is empty. Event time drives rolling (spec 1.10).
    pub fn first_batch_timestamp(&self) -> Result<Option<i64>, LogError> {
        let mut first = lock(&self.first_timestamp);
        if first.is_none() && self.size() > 0 {
            let file = self.file()?;
            let batch = HeaderWalk::new(&*file, 0, self.size())
                .next()
                .map_err(|e| self.io("read", e))?;
            *first = batch.ok().map(|batch| batch.header.max_timestamp);
        }
        Ok(*first)
    }

    /// The first batch whose last offset is at or beyond `offset`, below `end`. Kafka: `LogSegment#translateOffset`.
    ///
    /// # Errors
    /// `Damaged` if the offsets of the batches on the way do not follow each other.
    pub fn translate_offset(&self, offset: i64, end: u64) -> Result<Option<BatchMeta>, LogError> {
        Ok(self.find(offset, end)?.map(|found| found.batch))
    }

    /// As [`LogSegment::translate_offset`], and whether there is a gap before the batch.
    pub fn find(&self, offset: i64, end: u64) -> Result<Option<Found>, LogError> {
        // The start of a segment needs no index, so a scan does not read the indexes of many small segments.
        if offset > self.base_offset {
            let (entry, before) = self.with_indexes(|indexes| {
                let entry = indexes.offset.lookup(offset);
                (entry, indexes.offset.lookup(entry.offset.saturating_sub(1)))
            })?;
            // A damaged entry may lead to a wrong batch, and the offset of its own batch may be damaged. Then the search
            // starts at the entry before it, and finally at the start of the log.
            let starts = [(entry.position, Some(entry.offset)), (before.position, None)];
            for (start, last_offset) in starts.into_iter().filter(|_| entry.position > 0) {
                if let Search::Sure(found) = self.search_from(start, last_offset, offset, end)? {
                    return Ok(found);
                }
            }
        }
        match self.search_from(0, None, offset, end)? {
            Search::Sure(found) => Ok(found),
            Search::Unsure => Ok(None),
        }
    }

    /// `last_offset`: what the index says of the batch at `start`.
    fn search_from(&self, start: u64, last_offset: Option<i64>, offset: i64, end: u64) -> Result<Search, LogError> {
        let file = self.file()?;
        let mut walk = HeaderWalk::new(&*file, start, end).in_order(OffsetOrder::of_segment(self.base_offset));
        let mut first = start > 0;
        let mut next_offset = self.base_offset;
        let is_another = |batch: &BatchMeta| {
            batch.header.base_offset > offset || last_offset.is_some_and(|last| batch.last_offset() != last)
        };
        loop {
            match walk.next().map_err(|e| self.io("read", e))? {
                Ok(batch) if first && is_another(&batch) => return Ok(Search::Unsure),
                Ok(batch) if batch.last_offset() >= offset => {
                    let is_behind_gap = !first && batch.header.base_offset > next_offset;
                    return Ok(Search::Sure(Some(Found { batch, is_behind_gap })));
                }
                Ok(batch) => (first, next_offset) = (false, batch.header.next_offset()),
                Err(why) if first || start > 0 && matches!(why, WalkEnd::Disorder(_)) => return Ok(Search::Unsure),
                Err(why) => {
                    why.unless_disorder(&self.files.log, walk.position())?;
                    return Ok(Search::Sure(None));
                }
            }
        }
    }

    pub fn upper_bound(&self, position: u64) -> Result<Option<OffsetPosition>, LogError> {
        self.with_indexes(|indexes| indexes.offset.upper_bound(position))
    }

    /// Reads the batch at a position whole.
    pub fn read_batch(&self, batch: &BatchMeta) -> Result<RecordBatch, LogError> {
        let bytes = self.read_at(batch.position, batch.header.size_in_bytes())?;
        let damaged = |reason: String| LogError::damaged(&self.files.log, batch.position, reason);
        match RecordBatch::parse(&bytes) {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) => Err(damaged(
                "the file was cut while it was read; refresh and read again".to_string(),
            )),
            Err(e) => Err(damaged(e.to_string())),
        }
    }

    /// Writes batches at the end and notes them in the indexes. On an error the file may hold part of them and the caller
    /// cuts it; the size is unchanged. Kafka: `LogSegment#append`.
    pub fn append(&self, data: &[u8], batches: impl Iterator<Item = BatchMeta>) -> Result<(), LogError> {
        let size = self.size();
        if planted!("noted-for-sync-before-write") {
            self.dirty.store(true, Ordering::Release);
        }
        let written = self.file()?.write_at(size, data);
        // Set after the write: a sync that began earlier may have missed these bytes.
        if !planted!("noted-for-sync-before-write") {
            self.dirty.store(true, Ordering::Release);
        }
        written.map_err(|e| self.io("append to", e))?;
        let mut indexes = write(&self.indexes);
        if let Some(indexes) = &mut *indexes {
            for batch in batches {
                // Offsets only grow on the leader's append path.
                if indexes.on_batch(&batch, self.index_interval).is_err() {
                    log::error!(
                        "{}: offset {} is not above the last index entry",
                        self.files.log.display(),
                        batch.last_offset()
                    );
                }
                if batch.position == 0 {
                    *lock(&self.first_timestamp) = Some(batch.header.max_timestamp);
                }
            }
            if indexes.should_write() {
                self.write_or_warn(indexes);
            }
        }
        self.set_size(size + data.len() as u64);
        Ok(())
    }

    /// A side file that cannot be written never fails an append: its entries stay in memory and are written later.
    fn write_or_warn(&self, indexes: &mut SegmentIndexes) {
        if let Err(e) = self.write_indexes(indexes, false) {
            log::warn!(
                "{}: index entries stay in memory for now: {e}",
                self.files.log.display()
            );
        }
    }

    fn write_indexes(&self, indexes: &mut SegmentIndexes, trim: bool) -> io::Result<()> {
        let changed = indexes.write(&*self.fs, &self.files, trim);
        // Also after a failure: part of the files may have changed.
        if !matches!(changed, Ok(false)) {
            self.dirty_side_files.fetch_or(INDEXES, Ordering::AcqRel);
        }
        changed.map(drop)
    }

    /// Notes a batch that another process has appended (read-only logs).
    pub fn observe(&self, batch: &BatchMeta) {
        if let Some(indexes) = &mut *write(&self.indexes) {
            // An index that lacks an entry is still right.
            let _ = indexes.on_batch(batch, self.index_interval);
        }
        self.set_size(batch.end());
    }

    /// Makes sure that indexes are in memory for appending; the interval counts from 0 (spec 1.8).
    pub fn prepare_for_append(&self) -> Result<(), LogError> {
        self.with_indexes(|_| ())?;
        self.keep_in_memory.store(true, Ordering::Relaxed);
        if let Some(indexes) = &mut *write(&self.indexes) {
            indexes.restart_interval();
        }
        Ok(())
    }

    /// Sets the index files to Kafka's size while a segment is active.
    pub fn preallocate(&self, (offset, time): (u64, u64)) -> io::Result<()> {
        self.fs.open(&self.files.offset_index, true, true)?.set_len(offset)?;
        self.fs.open(&self.files.time_index, true, true)?.set_len(time)
    }

    /// On roll and clean close: final time entry, everything written, files trimmed.
    pub fn seal(&self) -> Result<(), LogError> {
        if let Some(indexes) = &mut *write(&self.indexes) {
            indexes.finish();
        }
        self.write_side_files(true)
    }

    /// Writes index entries that are only in memory.
    pub fn write_side_files(&self, trim: bool) -> Result<(), LogError> {
        if let Some(indexes) = &mut *write(&self.indexes) {
            self.write_indexes(indexes, trim)
                .map_err(|e| LogError::io("write", &self.files.offset_index, e))?;
            if trim {
                // Sealed: from now on the files are complete.
                self.keep_in_memory.store(false, Ordering::Relaxed);
            }
        }
        self.write_txn_index()
    }

    /// On close: writes what an earlier failure left in memory.
    pub fn write_pending_side_files(&self) -> Result<(), LogError> {
        let pending = self.keep_in_memory.load(Ordering::Relaxed)
            && read(&self.indexes)
                .as_ref()
                .is_some_and(|indexes| !indexes.is_written());
        if pending {
            self.write_side_files(true)
        } else {
            self.write_txn_index()
        }
    }

    /// Marks the files as unsynced: they may have bytes that were never synced.
    pub fn mark_unsynced(&self) {
        self.dirty.store(true, Ordering::Release);
        self.dirty_side_files.store(INDEXES | TXN_INDEX, Ordering::Release);
    }

    /// Syncs the log and, if `side_files`, the side files, as far as they were written since the last sync.
    pub fn sync(&self, side_files: bool) -> Result<(), LogError> {
        // Cleared first: a write that ends meanwhile sets it again.
        if self.dirty.swap(false, Ordering::AcqRel) {
            let synced = self.file().and_then(|file| file.sync().map_err(|e| self.io("sync", e)));
            synced.inspect_err(|_| self.dirty.store(true, Ordering::Release))?;
        }
        if !side_files {
            return Ok(());
        }
        let dirty = self.dirty_side_files.swap(0, Ordering::AcqRel);
        for (i, path) in self.files.all()[1..].iter().enumerate() {
            if dirty & 1 << i == 0 {
                continue;
            }
            let synced = match self.fs.open(path, true, false) {
                Ok(file) => file.sync().map_err(|e| LogError::io("sync", path, e)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(e) => Err(LogError::io("open", path, e)),
            };
            // On failure this file and those after it stay unsynced.
            let left = dirty >> i << i;
            synced.inspect_err(|_| {
                self.dirty_side_files.fetch_or(left, Ordering::AcqRel);
            })?;
        }
        Ok(())
    }

    /// Files that [`LogSegment::sync`] would sync.
    pub fn unsynced_files(&self) -> usize {
        let side_files = self.dirty_side_files.load(Ordering::Acquire).count_ones();
        usize::from(self.dirty.load(Ordering::Acquire)) + side_files as usize
    }

    /// Index entries so far: (offset index, time index). Full indexes roll the segment.
    pub fn index_entries(&self) -> (usize, usize) {
        read(&self.indexes)
            .as_ref()
            .map_or((0, 0), |indexes| (indexes.offset.len(), indexes.time.len()))
    }

    /// Reads the transaction index from its file. The inner error says why the file cannot be used.
    pub fn read_txn_index(&self) -> Result<Result<(), String>, LogError> {
        let path = &self.files.txn_index;
        let bytes = self.fs.read(path).map_err(|e| LogError::io("read", path, e))?;
        Ok(TransactionIndex::parse(self.base_offset, &bytes).map(|index| {
            let written = index.entries().len();
            self.install_txn_index(index, written);
        }))
    }

    /// `written`: how many of the entries are in the file already.
    pub fn install_txn_index(&self, index: TransactionIndex, written: usize) {
        *write(&self.txn) = TxnFile { index, written };
    }

    /// Adopts the transaction index of a segment that was written under another name.
    pub fn adopt_txn_index(&self, from: &Self) {
        let (index, written) = {
            let state = read(&from.txn);
            (state.index.clone(), state.written)
        };
        self.install_txn_index(index, written);
    }

    pub fn append_aborted(&self, txn: AbortedTxn) {
        let mut state = write(&self.txn);
        if state.index.append(txn).is_err() {
            log::error!(
                "{}: marker at offset {} is not above the last entry of the transaction index",
                self.files.log.display(),
                txn.last_offset
            );
        }
    }

    pub fn write_txn_index(&self) -> Result<(), LogError> {
        let mut state = write(&self.txn);
        let len = state.index.entries().len();
        if state.written >= len {
            return Ok(());
        }
        let bytes = state.index.encode(state.written);
        let position = (state.written * crate::txn_index::ENTRY_SIZE) as u64;
        let path = &self.files.txn_index;
        let file = self.fs.open(path, true, true);
        let result = file.and_then(|file| file.write_at(position, &bytes));
        // Also after a failure, as for the indexes.
        self.dirty_side_files.fetch_or(TXN_INDEX, Ordering::AcqRel);
        result.map_err(|e| LogError::io("write", path, e))?;
        state.written = len;
        Ok(())
    }

    pub fn collect_aborted(&self, fetch_offset: i64, upper_bound: i64, found: &mut Vec<AbortedTxn>) -> bool {
        read(&self.txn).index.collect(fetch_offset, upper_bound, found)
    }

    /// The whole transaction index as its file has it; empty if there is no entry.
    pub fn encoded_txn_index(&self) -> Vec<u8> {
        read(&self.txn).index.encode(0)
    }

    pub fn aborted(&self) -> Vec<AbortedTxn> {
        read(&self.txn).index.entries().to_vec()
    }
}

/// A batch that was searched for.
pub(crate) struct Found {
    pub batch: BatchMeta,
    /// There is a gap between the batch before it and this one.
    pub is_behind_gap: bool,
}

enum Search {
    Sure(Option<Found>),
    /// The walk did not begin at a batch that fits, or later batches were out of order.
    Unsure,
}
