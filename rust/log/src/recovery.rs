//! Recovery of segments and of producer state after an unclean stop (spec 1.12). Kafka: `LogSegment#recover`,
//! `LogLoader#recoverLog`, `UnifiedLog#rebuildProducerState`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fletchlog_records::DECOMPRESSION_LIMIT;
use fletchlog_records::control::{EndTxnMarker, marker_in};

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
pub(crate) fn check_segment(
    file: &dyn File,
    path: &Path,
    base: i64,
    size: u64,
    interval: u64,
    recovery_point: i64,
    durability: Durability,
) -> Result<RecoveredSegment, LogError> {
    let mut found = walk_segment(file, path, base, size, interval, durability)?;
    let disorder = matches!(found.why, WalkEnd::Disorder(_));
    if disorder && let Some(position) = found.behind_gap {
        // The batch before the contradiction follows a gap: its own offset is assumed to be the wrong one.
        found = RecoveredSegment {
            why: found.why,
            ..walk_segment(file, path, base, position, interval, durability)?
        };
    }
    let below = found.next_offset < recovery_point;
    if found.why != WalkEnd::EndOfFile && below && (disorder || durability == Durability::Fsync) {
        let instead = if disorder {
            ""
        } else {
            ", or open with fletchlog.durability=page-cache to cut the log here as Kafka does"
        };
        let reason = format!(
            "{}, below offset {recovery_point}, up to which everything was on disk; nothing was changed. Restore the file{instead}",
            found.why.reason()
        );
        return Err(LogError::damaged(path, found.valid_bytes, reason));
    }
    found.indexes.finish();
    Ok(found)
}

fn walk_segment(
    file: &dyn File,
    path: &Path,
    base: i64,
    size: u64,
    interval: u64,
    durability: Durability,
) -> Result<RecoveredSegment, LogError> {
    let mut order = OffsetOrder::of_segment(base);
    let mut walk = CheckedWalk::new(file, 0, size);
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
        let batch = match walk.next().map_err(|e| LogError::io("read", path, e))? {
            Ok((batch, _)) => batch,
            Err(why) => break why,
        };
        let goes_back = batch.header.base_offset < found.next_offset;
        let outside = !(base..base.saturating_add(1 << 31)).contains(&batch.last_offset());
        if outside && !(goes_back && durability == Durability::Fsync) {
            let reason = format!(
                "the batch ends at offset {}, which does not belong into a segment that starts at {base}; nothing was changed, restore the file",
                batch.last_offset()
            );
            return Err(LogError::damaged(path, batch.position, reason));
        }
        let accepted = order.accept(batch.header.base_offset, batch.header.last_offset_delta);
        let noted = accepted.and_then(|()| found.indexes.on_batch(&batch, interval).map_err(|e| format!("{e:?}")));
        if let Err(reason) = noted {
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
pub(crate) fn marker_of(segment: &LogSegment, batch: &BatchMeta) -> Result<Option<EndTxnMarker>, LogError> {
    if !batch.header.is_control() || batch.header.magic != 2 {
        return Ok(None);
    }
    let Ok(slice) = segment.read_batch(batch)?.records(DECOMPRESSION_LIMIT) else {
        return Ok(None);
    };
    Ok(marker_in(&slice).ok().flatten())
}

/// Input of [`restore_producers`].
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
    /// Called when the state is complete up to the base of a rebuilt segment.
    pub at_base: &'a mut dyn FnMut(i64, &ProducerStateManager),
}

/// Producer state as of the log end, and the offset of the snapshot it started from (the log start if there was none).
pub(crate) fn restore_producers(restore: Restore<'_>) -> Result<(ProducerStateManager, i64), LogError> {
    if let Some(first) = restore.rebuild_txn_index.first() {
        return restore.with_rebuilt_indexes(*first);
    }
    let (start, end) = (restore.log_start_offset, restore.log_end_offset);
    let (mut producers, from) = restore
        .newest_snapshot(start, end)
        .unwrap_or((ProducerStateManager::default(), start));
    replay(restore.segments, &mut producers, from, end, None, &mut |_, _| {})?;
    Ok((producers, from))
}

impl Restore<'_> {
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
    fn with_rebuilt_indexes(self, first: i64) -> Result<(ProducerStateManager, i64), LogError> {
        let (segments, start, end) = (self.segments, self.log_start_offset, self.log_end_offset);
        let floor = segments.first().map_or(0, |segment| segment.base_offset);
        let found = self.newest_snapshot(-1, first);
        let from = found.as_ref().map_or(floor, |(_, offset)| *offset);
        let whole = if found.is_some() { from > start } else { start <= floor };
        let mut producers = found.map(|(producers, _)| producers).unwrap_or_default();
        let mut visit =
            |segment: &LogSegment, producers: &ProducerStateManager| (self.at_base)(segment.base_offset, producers);
        replay(
            segments,
            &mut producers,
            from,
            end,
            Some(self.rebuild_txn_index),
            &mut visit,
        )?;
        if whole {
            return Ok((producers, from.max(start)));
        }
        // The result must not include producers from below the log start.
        let mut producers = ProducerStateManager::default();
        replay(segments, &mut producers, start, end, None, &mut |_, _| {})?;
        Ok((producers, start))
    }
}

/// Applies the batches of [from, to) to the state. `visit` is called before the first batch of each segment whose base
/// is in that range.
pub(crate) fn replay(
    segments: &[Arc<LogSegment>],
    producers: &mut ProducerStateManager,
    from: i64,
    to: i64,
    rebuild_txn_index: Option<&BTreeSet<i64>>,
    visit: &mut dyn FnMut(&LogSegment, &ProducerStateManager),
) -> Result<(), LogError> {
    let count = segments.partition_point(|segment| segment.base_offset <= from);
    for segment in &segments[count.saturating_sub(1)..] {
        if from >= to {
            break;
        }
        if segment.base_offset >= from {
            visit(segment, producers);
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
        let file = segment.file()?;
        let mut walk =
            HeaderWalk::new(&*file, start, segment.size()).in_order(OffsetOrder::of_segment(segment.base_offset));
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
                    break;
                }
            };
            if batch.header.base_offset >= to {
                break;
            }
            let rebuild = rebuild_txn_index.is_some_and(|rebuild| rebuild.contains(&segment.base_offset));
            apply(segment, producers, &batch, rebuild)?;
        }
    }
    Ok(())
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
