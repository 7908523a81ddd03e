//! Recovery of segments and of producer state after an unclean stop (spec 1.12). Kafka: `LogSegment#recover`,
//! `LogLoader#recoverLog`, `UnifiedLog#rebuildProducerState`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fletchlog_records::DECOMPRESSION_LIMIT;
use fletchlog_records::control::{EndTxnMarker, marker_in};
use fletchlog_records::planted;

use crate::batch_walk::{BatchMeta, CheckedWalk, HeaderWalk, OffsetOrder, WalkEnd};
use crate::config::Durability;
use crate::fs::{File, Fs};
use crate::producer_snapshot;
use crate::producer_state::{PendingAppend, ProducerStateManager};
use crate::segment::LogSegment;
use crate::segment_indexes::SegmentIndexes;
use crate::{AppendOrigin, LogError};

/// What a complete check of a segment found.
#[derive(Debug)]
pub(crate) struct RecoveredSegment {
    pub indexes: SegmentIndexes,
    /// Bytes of whole, valid batches at the start of the file.
    pub valid_bytes: u64,
    /// Why the rest is not valid.
    pub why: WalkEnd,
    /// Next offset of the batch before the last one.
    pub before_last: i64,
    /// Position of the last batch, if a gap precedes it.
    pub behind_gap: Option<u64>,
    pub next_offset: i64,
    /// Leader epochs and the offsets at which they begin.
    pub epochs: Vec<(i32, i64)>,
}

/// A complete check of a segment.
pub(crate) struct SegmentCheck<'a> {
    pub file: &'a dyn File,
    pub path: &'a Path,
    pub base_offset: i64,
    /// index.interval.bytes.
    pub index_interval: u64,
    pub durability: Durability,
}

impl SegmentCheck<'_> {
    /// Reads a segment batch by batch, checking each completely. Changes nothing.
    ///
    /// | found | result |
    /// |---|---|
    /// | partial, corrupt or invalid batch | valid up to there |
    /// | last offset outside base .. base + 2^31-1 | error: a Kafka broker refuses to start, and so do we |
    /// | base offset below the next one, at or above `recovery_point` | valid up to there |
    /// | base offset below the next one, below `recovery_point` | error |
    ///
    /// The last two rules are fletchlog's; Kafka keeps such batches unless its index refuses one. No checksum covers a base
    /// offset, so a torn write can leave a whole batch with a smaller one. Below the recovery point everything was on disk: a
    /// wrong offset there means that the file was damaged, and it is unknown which of its offsets are right.
    ///
    /// | found at level `fsync` | result |
    /// |---|---|
    /// | last offset outside, base offset below the next one | as any base offset below the next one |
    /// | anything invalid below `recovery_point` | error: what was acknowledged is not cut off |
    pub fn run(&self, size: u64, recovery_point: i64) -> Result<RecoveredSegment, LogError> {
        let mut found = self.walk(size)?;
        let disorder = matches!(found.why, WalkEnd::Disorder(_));
        if disorder && let Some(position) = found.behind_gap {
            // The batch before the contradiction follows a gap: its own offset is assumed to be the wrong one.
            found = RecoveredSegment {
                why: found.why,
                ..self.walk(position)?
            };
        }
        let below = found.next_offset < recovery_point;
        if found.why != WalkEnd::EndOfFile && below && (disorder || self.durability == Durability::Fsync) {
            let instead = if disorder {
                ""
            } else {
                ", or open with fletchlog.durability=page-cache to cut the log here as Kafka does"
            };
            let reason = format!(
                "{}, below offset {recovery_point}, up to which everything was on disk; nothing was changed. Restore the file{instead}",
                found.why.reason()
            );
            return Err(LogError::damaged(self.path, found.valid_bytes, reason));
        }
        found.indexes.finish();
        Ok(found)
    }

    fn walk(&self, size: u64) -> Result<RecoveredSegment, LogError> {
        let base = self.base_offset;
        let mut order = OffsetOrder::of_segment(base);
        let mut walk = CheckedWalk::new(self.file, 0, size);
        let mut found = RecoveredSegment {
            indexes: SegmentIndexes::new(base),
            valid_bytes: 0,
            why: WalkEnd::EndOfFile,
            before_last: base,
            behind_gap: None,
            next_offset: base,
            epochs: Vec::new(),
        };
        found.why = loop {
            let batch = match walk.next().map_err(|e| LogError::io("read", self.path, e))? {
                Ok((batch, _)) => batch,
                Err(why) => break why,
            };
            let goes_back = batch.header.base_offset < found.next_offset;
            let outside = !(base..base.saturating_add(1 << 31)).contains(&batch.last_offset());
            if outside && !(goes_back && self.durability == Durability::Fsync) {
                let reason = format!(
                    "the batch ends at offset {}, which does not belong into a segment that starts at {base}; nothing was changed, restore the file",
                    batch.last_offset()
                );
                return Err(LogError::damaged(self.path, batch.position, reason));
            }
            let accepted = order.accept(batch.header.base_offset, batch.header.last_offset_delta);
            let noted = accepted.and_then(|()| {
                found
                    .indexes
                    .on_batch(&batch, self.index_interval)
                    .map_err(|e| format!("{e:?}"))
            });
            if let Err(reason) = noted
                && !planted!("torn-offset-believed")
            {
                break WalkEnd::Disorder(reason);
            }
            let epoch = batch.header.partition_leader_epoch;
            if epoch >= 0 && found.epochs.last().is_none_or(|last| epoch > last.0) {
                found.epochs.push((epoch, batch.header.base_offset));
            }
            found.behind_gap = (batch.header.base_offset > found.next_offset).then_some(batch.position);
            (found.before_last, found.next_offset) = (found.next_offset, order.next());
            found.valid_bytes = batch.end();
        };
        Ok(found)
    }
}

/// Bytes copied at once.
const COPY_CHUNK: usize = 1024 * 1024;

/// Copies what recovery is about to cut off into a file that Kafka ignores. Zeros are no data and are not kept.
pub(crate) fn keep_torn(fs: &dyn Fs, file: &dyn File, from: u64, size: u64, target: &Path) -> std::io::Result<bool> {
    let mut position = from;
    let mut kept = None;
    while position < size {
        if kept.is_none() {
            // A segment may be preallocated to its full size.
            position = file.next_data(position)?.unwrap_or(size).min(size);
        }
        let want = usize::try_from(size - position).unwrap_or(COPY_CHUNK).min(COPY_CHUNK);
        let bytes = file.read_at(position, want)?;
        if bytes.is_empty() {
            break;
        }
        if kept.is_none() && bytes.iter().any(|b| *b != 0) {
            let out = fs.open(target, true, true)?;
            out.set_len(0)?;
            kept = Some(out);
        }
        if let Some(out) = &kept {
            out.write_at(position - from, &bytes)?;
        }
        position += bytes.len() as u64;
    }
    Ok(kept.is_some())
}

/// The marker of a control batch, `None` if it holds none or is malformed.
fn marker_of(segment: &LogSegment, batch: &BatchMeta) -> Result<Option<EndTxnMarker>, LogError> {
    if !batch.header.is_control() || batch.header.magic != 2 {
        return Ok(None);
    }
    let Ok(slice) = segment.read_batch(batch)?.records(DECOMPRESSION_LIMIT) else {
        return Ok(None);
    };
    Ok(marker_in(&slice).ok().flatten())
}

/// How producer state is restored.
pub(crate) struct Restore<'a> {
    pub fs: &'a dyn Fs,
    pub segments: &'a [Arc<LogSegment>],
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub snapshots: &'a BTreeMap<i64, PathBuf>,
    /// Segments whose transaction index must be rebuilt from the log.
    pub rebuild_txn_index: &'a BTreeSet<i64>,
    pub now_ms: i64,
    pub expiration_ms: i64,
    /// Called when the state is complete up to the base of a segment, while transaction indexes are rebuilt.
    pub at_base: &'a mut dyn FnMut(i64, &ProducerStateManager),
}

impl Restore<'_> {
    /// Producer state as of the log end, and the offset of the snapshot it started from (the log start if there was none).
    pub fn run(mut self) -> Result<(ProducerStateManager, i64), LogError> {
        if let Some(first) = self.rebuild_txn_index.first() {
            return self.with_rebuilt_indexes(*first);
        }
        let start = self.log_start_offset;
        let newest = self.newest_snapshot(start, self.log_end_offset);
        let (mut producers, from) = newest.unwrap_or((ProducerStateManager::default(), start));
        self.replay(&mut producers, from, false)?;
        Ok((producers, from))
    }

    /// The state of the newest usable snapshot in (above, upto], and its offset.
    fn newest_snapshot(&self, above: i64, upto: i64) -> Option<(ProducerStateManager, i64)> {
        let snapshots = self.snapshots.iter().rev();
        snapshots
            .filter(|(offset, _)| **offset > above && **offset <= upto)
            .find_map(|(offset, path)| {
                let entries = producer_snapshot::read(self.fs, path)
                    .inspect_err(|reason| log::warn!("{}: not used: {reason}", path.display()))
                    .ok()?;
                let producers = ProducerStateManager::from_snapshot(&entries, self.now_ms, self.expiration_ms);
                Some((producers, *offset))
            })
    }

    /// Rebuilding an index needs the state at the start of its segment, even below the log start. `first`: the base of the
    /// first such segment.
    fn with_rebuilt_indexes(mut self, first: i64) -> Result<(ProducerStateManager, i64), LogError> {
        let start = self.log_start_offset;
        let floor = self.segments.first().map_or(0, |segment| segment.base_offset);
        let found = self.newest_snapshot(-1, first);
        let from = found.as_ref().map_or(floor, |(_, offset)| *offset);
        let whole = if found.is_some() { from > start } else { start <= floor };
        let mut producers = found.map(|(producers, _)| producers).unwrap_or_default();
        if !planted!("producer-state-not-rebuilt") {
            self.replay(&mut producers, from, true)?;
        }
        if whole {
            return Ok((producers, from.max(start)));
        }
        // The result must not include producers from below the log start.
        let mut producers = ProducerStateManager::default();
        self.replay(&mut producers, start, false)?;
        Ok((producers, start))
    }

    /// Applies the batches from `from` up to the log end to the state. `rebuild`: also rebuilds the transaction indexes, and
    /// calls `at_base` before the first batch of each segment whose base is in that range.
    pub fn replay(&mut self, producers: &mut ProducerStateManager, from: i64, rebuild: bool) -> Result<(), LogError> {
        let count = self.segments.partition_point(|segment| segment.base_offset <= from);
        for segment in &self.segments[count.saturating_sub(1)..] {
            if from >= self.log_end_offset {
                break;
            }
            if rebuild && segment.base_offset >= from {
                (self.at_base)(segment.base_offset, producers);
            }
            if segment.size() == 0 {
                continue;
            }
            let start = if segment.base_offset >= from {
                0
            } else {
                match segment.translate_offset(from, segment.size())? {
                    Some(batch) => batch.position,
                    None => continue,
                }
            };
            let index_aborted = rebuild && self.rebuild_txn_index.contains(&segment.base_offset);
            replay_segment(segment, producers, start, self.log_end_offset, index_aborted)?;
        }
        Ok(())
    }
}

/// Applies the batches from a position up to offset `to`.
fn replay_segment(
    segment: &LogSegment,
    producers: &mut ProducerStateManager,
    position: u64,
    to: i64,
    index_aborted: bool,
) -> Result<(), LogError> {
    let file = segment.file()?;
    let order = OffsetOrder::of_segment(segment.base_offset);
    let mut walk = HeaderWalk::new(&*file, position, segment.size()).in_order(order);
    loop {
        let batch = match walk.next().map_err(|e| segment.io("read", e))? {
            Ok(batch) => batch,
            Err(why) => {
                if let WalkEnd::Disorder(reason) = why {
                    let (path, position) = (segment.files.log.display(), walk.position());
                    log::warn!(
                        "{path}: producers are restored up to position {position}: {reason}; run verify, or restore the file"
                    );
                }
                return Ok(());
            }
        };
        if batch.header.base_offset >= to {
            return Ok(());
        }
        apply(segment, producers, &batch, index_aborted)?;
    }
}

/// Applies one batch that is already in the log.
pub(crate) fn apply(
    segment: &LogSegment,
    producers: &mut ProducerStateManager,
    batch: &BatchMeta,
    index_aborted: bool,
) -> Result<(), LogError> {
    if !batch.header.has_producer_id() {
        return Ok(());
    }
    let marker = marker_of(segment, batch)?;
    let mut pending = PendingAppend::default();
    // Nothing is refused on replay.
    if producers
        .check(&mut pending, &batch.header, marker, AppendOrigin::Replication, false)
        .is_ok()
    {
        for aborted in producers.commit(pending) {
            if index_aborted {
                segment.append_aborted(aborted);
            }
        }
    }
    Ok(())
}
