//! Which of the uploaded segments make up the log. Every leader uploads its own segments, which begin where it rolled them,
//! and an upload may have been repeated or come from a leader whose records were truncated. So several objects may hold the
//! same offset.
//!
//! An offset belongs to the leader epoch that the newest segment's `leader-epoch-checkpoint` (the lineage) has for it, and is read from a
//! segment that has it in that epoch. Kafka: `RemoteLogManager#isRemoteSegmentWithinLeaderEpochs`, `RemoteLogMetadataCache`. There the
//! newest is known from the log of metadata, here it is the one with the highest epoch, and among those the one that reaches furthest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::manifest::{Manifest, Segment};

/// Sort key: the segment that says most about the lineage comes last.
pub(super) fn newness(segment: &Manifest) -> impl Ord + use<> {
    let epoch = segment.epochs.last_key_value().map(|(epoch, _)| *epoch);
    (epoch, segment.end_offset, segment.event_ms)
}

/// Where a segment leaves the lineage, or its end.
fn valid_end(segment: &Manifest, lineage: &BTreeMap<i32, i64>) -> i64 {
    let starts: Vec<(i32, i64)> = segment.epochs.iter().map(|(epoch, start)| (*epoch, *start)).collect();
    let first = lineage.first_key_value().map(|(epoch, _)| *epoch);
    for (i, &(epoch, start)) in starts.iter().enumerate() {
        let end = starts.get(i + 1).map_or(segment.end_offset, |next| next.1);
        // An epoch without records is in no lineage.
        if start == end {
            continue;
        }
        match lineage.get(&epoch) {
            Some(&begins) if start >= begins || Some(epoch) == first => {}
            // Such an epoch must lie wholly below the log start.
            None if Some(epoch) < first => {}
            _ => return start,
        }
        let next = lineage.range((Bound::Excluded(epoch), Bound::Unbounded)).next();
        if let Some((_, &next)) = next
            && end > next
        {
            return next;
        }
    }
    segment.end_offset
}

/// The segments of the log in order, each with the offset up to which it is used: its end, or where the next one begins or the lineage is
/// left. What is wholly below the start of the lineage was deleted.
pub(super) fn choose(segments: Vec<Segment>, lineage: &BTreeMap<i32, i64>) -> Vec<(Segment, i64)> {
    let with_end = |segment: Segment| {
        let end = valid_end(&segment.manifest, lineage);
        (segment, end)
    };
    let mut candidates: Vec<(Segment, i64)> = segments.into_iter().map(with_end).collect();
    candidates.sort_by_key(|(segment, end)| {
        let Manifest {
            base_offset, event_ms, ..
        } = segment.manifest;
        (base_offset, Reverse((*end, event_ms)))
    });
    let mut chosen: Vec<(Segment, i64)> = Vec::new();
    let mut reached = lineage.values().next().copied().unwrap_or(0);
    for (segment, end) in candidates {
        let base = segment.manifest.base_offset;
        if end <= reached.max(base) {
            continue;
        }
        if let Some((_, before)) = chosen.last_mut() {
            *before = base.min(*before);
        }
        reached = end;
        chosen.push((segment, end));
    }
    chosen
}
