//! One fetch session, and which of its partitions have to be read (spec 6.6). Kafka: `FetchSession`, `CachedPartition`,
//! `IncrementalFetchContext`.
//!
//! In a large session few partitions change between two fetches. A fetch reads only those:
//!
//! ```text
//! dirty   the client named it, it has changed since it was last read, or the last read gave an error or records, or ended
//!         before the end of the log
//! clean   all others: the last read was at the end of the log, without an error, the client has its bounds, and nothing has
//!         changed since. Reading it now would add nothing to the response
//! ```
//! So the response is the same as if every partition were read.

use std::collections::BTreeMap;

use fletchlog_api::{ErrorCode, IsolationLevel, PartitionStates};
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::read::{PartitionResponse, Position, ReadResult};

/// Partitions to read, in order.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) partitions: Vec<Position>,
    /// The session also has clean partitions, not listed here.
    pub(super) has_clean: bool,
    /// Changes of the session's partitions up to this number are in what is read.
    pub(super) as_of: u64,
}

/// A partition in a session, with what was last sent.
#[derive(Debug)]
pub(super) struct CachedPartition {
    pub(super) at: Position,
    /// -1: never sent, or last sent with an error; either way the next response has it.
    high_watermark: i64,
    log_start_offset: i64,
}

impl CachedPartition {
    fn new(at: Position) -> Self {
        Self {
            at,
            high_watermark: -1,
            log_start_offset: -1,
        }
    }
}

/// A session: its partitions in the order in which they are read.
#[derive(Debug)]
pub(super) struct FetchSession {
    pub(super) epoch: i32,
    /// Kafka: `FetchSession#usesTopicIds`.
    pub(super) uses_topic_ids: bool,
    pub(super) partitions: PartitionStates<CachedPartition>,
    pub(super) created_ms: i64,
    pub(super) last_used_ms: i64,
    /// Places of the dirty partitions, with the number of their latest change.
    dirty: BTreeMap<u64, u64>,
    /// Number of the latest change.
    last_change: u64,
    isolation: Option<IsolationLevel>,
}

pub(super) fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl FetchSession {
    /// The session that a full fetch opens, after its response.
    pub(super) fn new(requested: &[Position], uses_topic_ids: bool, sent: &ReadResult, now_ms: i64) -> Self {
        let mut session = Self {
            epoch: next_epoch(0),
            uses_topic_ids,
            partitions: PartitionStates::default(),
            created_ms: now_ms,
            last_used_ms: now_ms,
            dirty: BTreeMap::new(),
            last_change: 0,
            isolation: None,
        };
        let sent: FxHashMap<&TopicPartition, &PartitionData> = sent.responses.iter().map(|(tp, p)| (tp, p)).collect();
        for at in requested {
            let mut cached = CachedPartition::new(at.clone());
            if let Some(sent) = sent.get(&at.tp) {
                (cached.high_watermark, cached.log_start_offset) = (sent.high_watermark, sent.log_start_offset);
            }
            let place = session.partitions.insert(at.tp.clone(), cached);
            session.mark_dirty(place);
        }
        session
    }

    fn mark_dirty(&mut self, place: u64) {
        self.last_change += 1;
        self.dirty.insert(place, self.last_change);
    }

    /// Updates a listed partition in place, or appends it; true: appended. Kafka: `FetchSession#update`.
    pub(super) fn ask(&mut self, tp: &TopicPartition, request: &FetchPartition) -> bool {
        let known = self.partitions.get_mut(tp);
        let new = known.is_none();
        match known {
            Some(cached) => cached.at.request = request.clone(),
            None => {
                let cached = CachedPartition::new(Position::unread(&tp.topic, request));
                self.partitions.insert(tp.clone(), cached);
            }
        }
        self.note_change(tp);
        new
    }

    /// Removes a partition; true: it was in the session.
    pub(super) fn forget(&mut self, tp: &TopicPartition) -> bool {
        let place = self.partitions.remove(tp);
        if let Some(place) = place {
            self.dirty.remove(&place);
        }
        place.is_some()
    }

    /// Notes that a partition may have something new.
    pub(super) fn note_change(&mut self, tp: &TopicPartition) {
        if let Some(place) = self.partitions.place(tp) {
            self.mark_dirty(place);
        }
    }

    /// Sets the isolation level of the next reads: with another level every partition may end elsewhere, so all are read again.
    pub(super) fn read_with(&mut self, isolation: IsolationLevel) {
        if self.isolation.replace(isolation) != Some(isolation) {
            let places: Vec<u64> = self
                .partitions
                .iter()
                .filter_map(|(tp, _)| self.partitions.place(tp))
                .collect();
            for place in places {
                self.mark_dirty(place);
            }
        }
    }

    /// Dirty partitions, in session order; all of them without `reports_changes`.
    pub(super) fn dirty(&self, reports_changes: bool) -> impl Iterator<Item = &CachedPartition> {
        let all = (!reports_changes).then(|| self.partitions.iter().map(|(_, cached)| cached));
        let some = reports_changes.then(|| self.dirty.keys().filter_map(|place| self.partitions.at(*place)));
        all.into_iter()
            .flatten()
            .chain(some.into_iter().flatten().map(|(_, cached)| cached))
    }

    /// The partitions that have to be read.
    pub(super) fn reading(&self, reports_changes: bool) -> Reading {
        let partitions: Vec<Position> = self.dirty(reports_changes).map(|cached| cached.at.clone()).collect();
        Reading {
            has_clean: partitions.len() < self.partitions.len(),
            partitions,
            as_of: self.last_change,
        }
    }

    /// Remembers where a partition was read.
    pub(super) fn read_at(&mut self, at: &Position) {
        if let Some(cached) = self.partitions.get_mut(&at.tp) {
            (cached.at.segment_base_offset, cached.at.position) = (at.segment_base_offset, at.position);
        }
    }

    /// Selects what is sent of a reading's result; partitions with data go to the end of the session's order, those without changes
    /// are clean. Kafka: `IncrementalFetchContext#updateAndGenerateResponseData`, `CachedPartition#maybeUpdateResponseData`.
    pub(super) fn select(&mut self, read: ReadResult, as_of: u64) -> Vec<PartitionResponse> {
        for position in &read.positions {
            self.read_at(position);
            if position.at_end {
                self.mark_clean(&position.tp, as_of);
            }
        }
        let mut sent = Vec::new();
        for (tp, result) in read.responses {
            let Some(cached) = self.partitions.get_mut(&tp) else {
                continue;
            };
            let has_records = result.size() > 0;
            let changed = has_records
                || result.error_code != ErrorCode::NONE
                || result.diverging_epoch().is_some()
                || result.preferred_read_replica().is_some()
                || cached.high_watermark != result.high_watermark
                || cached.log_start_offset != result.log_start_offset;
            // After an error the partition is sent once more when the error is over.
            cached.high_watermark = if result.error_code == ErrorCode::NONE {
                result.high_watermark
            } else {
                -1
            };
            cached.log_start_offset = result.log_start_offset;
            if has_records
                && let Some((old, new)) = self.partitions.move_to_end(&tp)
                && let Some(change) = self.dirty.remove(&old)
            {
                self.dirty.insert(new, change);
            }
            if changed {
                sent.push((tp, result));
            }
        }
        sent
    }

    fn mark_clean(&mut self, tp: &TopicPartition, as_of: u64) {
        if let Some(place) = self.partitions.place(tp)
            && self.dirty.get(&place).is_some_and(|&change| change <= as_of)
        {
            self.dirty.remove(&place);
        }
    }
}
