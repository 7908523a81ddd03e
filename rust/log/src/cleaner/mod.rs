//! Compaction: of each key the newest value is kept; offsets and order never change (spec 4.3, 4.4).
//! Kafka: `LogCleaner`, `Cleaner#doClean`.

mod filter;
mod offset_map;
mod plan;
mod replace;
mod stats;
mod transactions;

use fletchlog_records::planted;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::batch_walk::{BatchMeta, CheckedWalk, OffsetOrder, WalkEnd};
use crate::partition_log::PartitionLog;
use crate::segment::{LogSegment, SegmentParams};
use crate::segment_files::SegmentFiles;
use crate::sync::lock;
use crate::view::{Segments, View};
use crate::{LogConfig, LogError};
use filter::{BatchFilter, LastRecord};
use offset_map::OffsetMap;
pub use plan::Cleanable;
pub use stats::CleanerStats;
use transactions::{CleanedTransactions, collect_aborted};

/// Limits of one round of cleaning.
#[derive(Debug, Clone, Copy)]
pub struct CleanerOptions {
    /// Memory for keys and their newest offsets. A round that needs more ends early, and the next one continues from there.
    /// Kafka: `log.cleaner.dedupe.buffer.size`.
    pub dedupe_buffer_bytes: usize,
}

impl Default for CleanerOptions {
    fn default() -> Self {
        Self {
            dedupe_buffer_bytes: 134_217_728,
        }
    }
}

/// Output is collected up to this size before it is written: one system call for some sixty batches.
const WRITE_BUFFER: usize = 1024 * 1024;

impl PartitionLog {
    /// What can be cleaned: `last_clean_offset` comes from `cleaner-offset-checkpoint`. Kafka:
    /// `LogCleanerManager#cleanableOffsets`, `LogToClean`.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, `Fenced`, errors of reading the segments.
    pub fn cleanable(&self, last_clean_offset: Option<i64>, now_ms: i64) -> Result<Cleanable, LogError> {
        self.check_writable("clean")?;
        plan::cleanable(&self.view()?, &self.config(), last_clean_offset, now_ms)
    }

    /// Cleans the dirty part of the log (or as much of it as the memory for keys allows) and rewrites the clean part before
    /// it. Appends and reads continue meanwhile; readers that hold a replaced segment finish with it. After a crash each
    /// group of segments is either the old one or the new one, whole.
    ///
    /// # Errors
    /// A damaged batch, a segment that retention deleted meanwhile, or `cancelled` (checked about once a mebibyte): nothing
    /// more is replaced. An I/O failure while files are renamed fences the log until it is reopened.
    pub fn clean(
        &self,
        cleanable: &Cleanable,
        options: &CleanerOptions,
        now_ms: i64,
        cancelled: &mut dyn FnMut() -> bool,
    ) -> Result<CleanerStats, LogError> {
        self.check_writable("clean")?;
        let _one_at_a_time = lock(&self.cleaning);
        let mut pace = Pace {
            cancelled,
            unasked_bytes: 0,
        };
        let mut round = Round::prepare(self, cleanable, options, now_ms, &mut pace)?;
        let mut stats = CleanerStats {
            first_dirty_offset: cleanable.first_dirty_offset,
            end_offset: if planted!("clean-offset-ahead-of-the-map") {
                cleanable.first_uncleanable_offset
            } else {
                round.map.latest_offset() + 1
            },
            ..CleanerStats::default()
        };
        let mut transactions = CleanedTransactions::default();
        let segments = round.view.segments.as_slice();
        // The log start may be above the bound, in the middle of a segment that must not be cleaned yet.
        let end = stats.end_offset.min(cleanable.first_uncleanable_offset);
        let end = segments.partition_point(|segment| segment.base_offset < end);
        for group in plan::group_segments(segments, end, &self.config(), cleanable.first_uncleanable_offset)? {
            let cleaned = round.clean_group(group.len(), &mut transactions, &mut stats, &mut pace);
            let cleaned = cleaned.inspect_err(|_| {
                // Also removed by the next cleaning and when the log is opened.
                let base_offset = round.view.segments.first().base_offset;
                let _ = replace::remove_files(self, &cleaned_files(self, base_offset));
            })?;
            stats.segments_read += group.len();
            stats.segments_written += 1;
            stats.bytes_written += cleaned.size();
            // Drop the references, so that their files can be closed.
            let rest = round.view.segments.as_slice()[group.len()..].to_vec();
            let old = std::mem::replace(&mut round.view.segments, Segments::new(rest));
            self.replace_segments(cleaned, &old.as_slice()[..group.len()], now_ms)?;
        }
        Ok(stats)
    }

    /// The newest record of each producer that is still known: its batch stays, perhaps empty, so that its sequence can
    /// be rebuilt from the log. Kafka: `UnifiedLog#lastRecordsOfActiveProducers`.
    fn last_records(&self) -> HashMap<i64, LastRecord> {
        let writer = self.lock_writer();
        let entries = writer.producers.entries();
        entries
            .map(|entry| {
                let last = LastRecord {
                    last_data_offset: entry.last_batch().map(|batch| batch.last_offset),
                    producer_epoch: entry.producer_epoch,
                };
                (entry.producer_id, last)
            })
            .collect()
    }
}

/// Checks from time to time whether to stop.
struct Pace<'a> {
    cancelled: &'a mut dyn FnMut() -> bool,
    unasked_bytes: u64,
}

impl Pace<'_> {
    fn read(&mut self, segment: &LogSegment, bytes: u64) -> Result<(), LogError> {
        self.unasked_bytes += bytes;
        if self.unasked_bytes < WRITE_BUFFER as u64 {
            return Ok(());
        }
        self.unasked_bytes = 0;
        if !(self.cancelled)() {
            return Ok(());
        }
        Err(LogError::Cancelled {
            path: segment.files.log.clone(),
        })
    }
}

/// One round of cleaning one log.
struct Round<'a> {
    log: &'a PartitionLog,
    cleanable: &'a Cleanable,
    view: View,
    map: OffsetMap,
    now_ms: i64,
    /// Tombstones of batches before v2 are removed when their segment is older than this.
    legacy_horizon_ms: i64,
}

impl<'a> Round<'a> {
    /// Reads the dirty part and notes the newest offset of each key. Kafka: `Cleaner#buildOffsetMap`.
    fn prepare(
        log: &'a PartitionLog,
        cleanable: &'a Cleanable,
        options: &CleanerOptions,
        now_ms: i64,
        pace: &mut Pace<'_>,
    ) -> Result<Self, LogError> {
        let view = log.view()?;
        let segments = view.segments.as_slice();
        let clean = segments.partition_point(|segment| segment.base_offset < cleanable.first_dirty_offset);
        let legacy_horizon_ms = match clean.checked_sub(1) {
            Some(last) => segments[last]
                .modified_ms()?
                .saturating_sub(log.config().delete_retention_ms),
            None => 0,
        };
        let (start, end) = (cleanable.first_dirty_offset, cleanable.first_uncleanable_offset);
        let mut map = OffsetMap::new(options.dedupe_buffer_bytes, start);
        let mut transactions = CleanedTransactions::default();
        transactions.add_aborted(collect_aborted(view.segments.floor_and_after(start), start, end));
        let dirty: Vec<_> = view
            .segments
            .floor_and_after(start)
            .iter()
            .take_while(|s| s.base_offset < end)
            .collect();
        let config = log.config();
        for (i, segment) in dirty.iter().enumerate() {
            let next_start = dirty.get(i + 1).map_or(end, |next| next.base_offset);
            let position = segment
                .translate_offset(start, segment.size())?
                .map_or(segment.size(), |b| b.position);
            let offsets = start..next_start;
            if !map_segment(segment, position, offsets, &mut map, &mut transactions, pace, &config)? {
                break;
            }
            // Gaps at the end of a segment belong to it.
            map.update_latest_offset(next_start - 1);
        }
        Ok(Self {
            log,
            cleanable,
            view,
            map,
            now_ms,
            legacy_horizon_ms,
        })
    }

    /// Writes what is kept of the first segments into one. Kafka: `Cleaner#cleanSegments`.
    fn clean_group(
        &self,
        count: usize,
        transactions: &mut CleanedTransactions,
        stats: &mut CleanerStats,
        pace: &mut Pace<'_>,
    ) -> Result<LogSegment, LogError> {
        let config = self.log.config();
        let segments = self.view.segments.as_slice();
        let base_offset = segments[0].base_offset;
        let files = cleaned_files(self.log, base_offset);
        replace::remove_files(self.log, &files)?;
        let params = SegmentParams::new(&config, base_offset, files, 0, self.now_ms);
        let cleaned = LogSegment::create(Arc::clone(&self.log.fs), params, None)?;
        let active = self.log.last_records();
        let mut modified_ms = 0;
        for i in 0..count {
            let segment = &segments[i];
            modified_ms = segment.modified_ms()?;
            let upper = segments
                .get(i + 1)
                .map_or(self.view.log_end_offset, |next| next.base_offset);
            transactions.add_aborted(collect_aborted(&segments[i..], segment.base_offset, upper));
            let mut filter = BatchFilter {
                map: &self.map,
                now_ms: self.now_ms,
                config: &config,
                retain_legacy_deletes: modified_ms > self.legacy_horizon_ms,
                active: &active,
                round_end: self.cleanable.first_uncleanable_offset,
                transactions,
                stats,
            };
            clean_into(segment, upper, &cleaned, &mut filter, pace)?;
        }
        for txn in transactions.take_retained() {
            cleaned.append_aborted(txn);
        }
        cleaned.seal()?;
        if !planted!("cleaned-segment-not-synced") {
            cleaned.sync(true)?;
        }
        let log = &cleaned.files.log;
        self.log
            .fs
            .set_modified_ms(log, modified_ms)
            .map_err(|e| LogError::io("set the time of", log, e))?;
        Ok(cleaned)
    }
}

/// Where the output of the cleaner is written.
fn cleaned_files(log: &PartitionLog, base_offset: i64) -> SegmentFiles {
    SegmentFiles::with_suffix(&log.dir, base_offset, crate::file_name::CLEANED)
}

/// False: the map is full. Kafka: `Cleaner#buildOffsetMapForSegment`.
fn map_segment(
    segment: &LogSegment,
    position: u64,
    dirty: Range<i64>,
    map: &mut OffsetMap,
    transactions: &mut CleanedTransactions,
    pace: &mut Pace<'_>,
    config: &LogConfig,
) -> Result<bool, LogError> {
    let file = segment.file()?;
    let order = OffsetOrder::of_segment(segment.base_offset).below(dirty.end);
    let mut walk = CheckedWalk::new(&*file, position, segment.size()).in_order(order);
    while let Some((meta, bytes)) = next_batch(segment, &mut walk)? {
        pace.read(segment, meta.size())?;
        let (batch, slice) = filter::decode(segment, &meta, &bytes, config)?;
        if batch.header().is_control() {
            transactions.on_control_batch(batch.header(), &slice);
        } else if (!transactions.on_data_batch(batch.header()) || planted!("aborted-value-replaces"))
            && !filter::map_records(&slice, dirty.start, map)?
        {
            return Ok(false);
        }
        if meta.last_offset() >= dirty.start {
            map.update_latest_offset(meta.last_offset());
        }
    }
    Ok(true)
}

/// Kafka: `Cleaner#cleanInto`.
fn clean_into(
    segment: &LogSegment,
    next_start: i64,
    cleaned: &LogSegment,
    filter: &mut BatchFilter<'_>,
    pace: &mut Pace<'_>,
) -> Result<(), LogError> {
    let file = segment.file()?;
    let order = OffsetOrder::of_segment(segment.base_offset).below(next_start);
    let mut walk = CheckedWalk::new(&*file, 0, segment.size()).in_order(order);
    let mut out: Vec<u8> = Vec::new();
    let mut metas: Vec<BatchMeta> = Vec::new();
    loop {
        let next = next_batch(segment, &mut walk)?;
        if !out.is_empty() && (next.is_none() || out.len() >= WRITE_BUFFER) {
            cleaned.append(&out, metas.drain(..))?;
            out.clear();
        }
        let Some((meta, bytes)) = next else { return Ok(()) };
        filter.stats.bytes_read += meta.size();
        pace.read(segment, meta.size())?;
        if let Some((header, kept)) = filter.apply(segment, &meta, &bytes)? {
            metas.push(BatchMeta {
                position: cleaned.size() + out.len() as u64,
                header,
            });
            if planted!("newest-value-at-end-of-segment-compacted") && header.next_offset() == next_start {
                metas.pop();
                continue;
            }
            out.extend_from_slice(&kept);
        }
    }
}

/// The next batch. A damaged one stops the cleaning: what cannot be read must not be dropped.
fn next_batch(segment: &LogSegment, walk: &mut CheckedWalk<'_>) -> Result<Option<(BatchMeta, bytes::Bytes)>, LogError> {
    match walk.next().map_err(|e| segment.io("read", e))? {
        Ok(batch) => Ok(Some(batch)),
        Err(WalkEnd::EndOfFile) => Ok(None),
        Err(end) => {
            let reason = format!(
                "{}; the log is not cleaned: run verify, or restore the file",
                end.reason()
            );
            Err(LogError::damaged(&segment.files.log, walk.position(), reason))
        }
    }
}
