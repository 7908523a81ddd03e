//! Records of all partitions in the order of their timestamps: a k-way merge over the buffered fetches. Kafka's
//! consumer has no such order (Kafka Streams has: `PartitionGroup`, and KIP-695 for the waiting).
//!
//! ```text
//! next       the buffered partition whose first record is least by (timestamp, topic, partition)
//! within     a partition offset order always holds: a record waits for the one before it, however young that is
//! waits for  a partition without buffered records that is not paused and
//!              data   whose end is unknown or beyond its position: always
//!              end    that is at its end as last heard: for max.idle.ms since it was first seen there, unless the record is late,
//!                     or a record that is max.lateness.ms younger has been seen
//! late       older than a record handed out before it (since the assignment or a position was last changed by hand)
//! position   behind the last record handed out: what is only buffered is read again after a restart
//! ```
//! At most one fetch per partition is buffered, so memory is bounded by the fetch limits.

use fletchlog_records::TopicPartition;
use fletchlog_records::timestamp_merge::{MergeTurn, TimestampMerge};
use rustc_hash::FxHashSet;

use super::completed_fetch::TimeTurn;
use super::consumer_state::ConsumerState;
use super::fetch_buffer::TimestampOrder;
use super::fetch_collector::{Collected, Collector, fetch_records};
use super::settings::Settings;
use super::subscription_state::PartitionState;
use super::trace::{TraceEvent, TraceKind};
use crate::ClientError;

/// What blocks the merge.
#[derive(Debug, Default)]
struct Holds {
    /// A partition has data that has not arrived.
    for_data: bool,
    /// Until when the merge waits for partitions at their end.
    at_end_until: Option<i64>,
}

impl Holds {
    fn add(&mut self, hold: Hold) {
        match hold {
            Hold::None => {}
            Hold::ForData => self.for_data = true,
            Hold::AtEnd(until) => self.at_end_until = self.at_end_until.max(Some(until)),
        }
    }
}

/// Whether one partition without buffered records blocks the merge.
enum Hold {
    None,
    ForData,
    AtEnd(i64),
}

impl Collector<'_> {
    /// Takes at most `max_records` records by timestamp.
    pub(super) fn collect_by_timestamp(
        &mut self,
        max_records: usize,
        collected: &mut Collected,
    ) -> Result<(), ClientError> {
        self.state.buffer.by_time.follow(self.state.subs.jumps());
        self.take_in_answers()?;
        let mut holds = Holds::default();
        let merged = self
            .heads(collected, &mut holds)
            .and_then(|heads| self.merge(heads, max_records, &mut holds, collected));
        for finished in self
            .state
            .buffer
            .parsed
            .extract_if(.., |fetch| fetch.consumed)
            .collect::<Vec<_>>()
        {
            self.state.buffer.finished(&finished.tp);
        }
        let held_until = merged.as_ref().ok().copied().flatten();
        if self.state.buffer.by_time.held_until != held_until {
            self.state.buffer.changed();
        }
        self.state.buffer.by_time.held_until = held_until;
        merged.map(|_| ())
    }

    /// Checks every queued fetch and moves the usable ones to `parsed`, which stays ordered by partition, so that
    /// indices order ties.
    fn take_in_answers(&mut self) -> Result<(), ClientError> {
        while let Some(outcome) = self.initialize_head() {
            if outcome.is_err() && !self.is_head_empty() {
                return outcome.map(|_| ());
            }
            if !matches!(outcome, Ok(true)) {
                self.state.buffer.throw_away_head();
            } else if let Some(fetch) = self.state.buffer.queue.pop_front() {
                if let Some(newest) = fetch.newest_timestamp() {
                    self.state.buffer.by_time.newest_seen = self.state.buffer.by_time.newest_seen.max(newest);
                }
                let place = self.state.buffer.parsed.partition_point(|other| other.tp < fetch.tp);
                self.state.buffer.parsed.insert(place, fetch);
            }
            outcome?;
        }
        Ok(())
    }

    /// Returns the first record of every buffered partition, by its index in `parsed`; adds to `holds` how the other
    /// partitions block the merge.
    fn heads(&mut self, collected: &mut Collected, holds: &mut Holds) -> Result<TimestampMerge, ClientError> {
        let mut heads = TimestampMerge::default();
        let mut shown: FxHashSet<TopicPartition> = FxHashSet::default();
        for place in 0..self.state.buffer.parsed.len() {
            if let Some(timestamp) = self.peek(place, collected)? {
                let tp = self.state.buffer.parsed[place].tp.clone();
                if !self.state.subs.is_paused(&tp) {
                    heads.push(timestamp, place);
                }
                self.state.buffer.by_time.at_end_since.remove(&tp);
                shown.insert(tp);
            }
        }
        let (
            now_ms,
            ConsumerState {
                subs, buffer, settings, ..
            },
        ) = (self.now_ms, &mut *self.state);
        for (tp, state) in subs.iter().filter(|(tp, _)| !shown.contains(*tp)) {
            holds.add(hold(tp, state, &mut buffer.by_time, settings, now_ms));
        }
        Ok(heads)
    }

    /// Timestamp of the next record of a fetch. Moves the position past records that users never see; ends a fetch
    /// without records.
    fn peek(&mut self, place: usize, collected: &mut Collected) -> Result<Option<i64>, ClientError> {
        let fetch = &mut self.state.buffer.parsed[place];
        let position = self.state.subs.position(&fetch.tp);
        let why = if position != Some(fetch.next_fetch_offset) {
            "the position was changed by a seek"
        } else {
            let peeked = fetch.peek_timestamp(&self.state.settings)?;
            if position.is_some_and(|position| fetch.next_fetch_offset > position) {
                self.state
                    .subs
                    .advance(&fetch.tp, fetch.next_fetch_offset, fetch.last_epoch);
                collected.position_moved = true;
            }
            if peeked.is_some() {
                return Ok(peeked);
            }
            "nothing is left in it"
        };
        fetch.drain(&mut self.state.subs, &mut self.state.trace, why);
        Ok(None)
    }

    /// Takes turns until nothing is ready or `remaining` records are taken. Returns until when records wait for
    /// partitions at their end, if any do.
    fn merge(
        &mut self,
        mut heads: TimestampMerge,
        mut remaining: usize,
        holds: &mut Holds,
        collected: &mut Collected,
    ) -> Result<Option<i64>, ClientError> {
        while remaining > 0 && !holds.for_data {
            let Some(MergeTurn {
                timestamp,
                place,
                until,
            }) = heads.pop()
            else {
                break;
            };
            let ready = self.ready_until(holds);
            if timestamp > ready {
                return Ok(holds.at_end_until);
            }
            remaining -= self.turn(place, remaining, ready.min(until), collected)?;
            match self.peek(place, collected)? {
                Some(timestamp) => heads.push(timestamp, place),
                None => {
                    let (
                        now_ms,
                        ConsumerState {
                            subs, buffer, settings, ..
                        },
                    ) = (self.now_ms, &mut *self.state);
                    let tp = &buffer.parsed[place].tp;
                    if let Some(state) = subs.state(tp) {
                        holds.add(hold(tp, state, &mut buffer.by_time, settings, now_ms));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Highest timestamp that partitions at their end do not block.
    fn ready_until(&self, holds: &Holds) -> i64 {
        if holds.at_end_until.is_none() {
            return i64::MAX;
        }
        let order = &self.state.buffer.by_time;
        let late = order.newest_returned.saturating_sub(1);
        late.max(order.newest_seen.saturating_sub(self.state.settings.max_lateness_ms))
    }

    /// Takes records of one partition up to a timestamp. Returns their number.
    fn turn(&mut self, place: usize, max: usize, until: i64, collected: &mut Collected) -> Result<usize, ClientError> {
        let order = &mut self.state.buffer.by_time;
        let mut turn = TimeTurn {
            until,
            newest: order.newest_returned,
            late: 0,
        };
        let fetch = &mut self.state.buffer.parsed[place];
        let position = fetch.next_fetch_offset;
        let taken = fetch_records(
            fetch,
            max,
            collected,
            &mut self.state.subs,
            Some(&mut turn),
            &self.state.settings,
            &mut self.state.trace,
        );
        order.newest_returned = turn.newest;
        if turn.late > 0 {
            order.late += u64::try_from(turn.late).unwrap_or(u64::MAX);
            self.state.trace.push(|| {
                TraceEvent::of(TraceKind::Late, &fetch.tp)
                    .at(position)
                    .records(turn.late)
            });
        }
        taken
    }
}

/// Whether a partition without buffered records blocks the merge.
fn hold(
    tp: &TopicPartition,
    state: &PartitionState,
    order: &mut TimestampOrder,
    settings: &Settings,
    now_ms: i64,
) -> Hold {
    if state.is_paused() {
        return Hold::None;
    }
    if !is_at_end(state, settings) {
        order.at_end_since.remove(tp);
        return Hold::ForData;
    }
    let since = match order.at_end_since.get(tp) {
        Some(&since) => since,
        None => {
            order.at_end_since.insert(tp.clone(), now_ms);
            now_ms
        }
    };
    let until = since.saturating_add(settings.max_idle_ms);
    if until > now_ms { Hold::AtEnd(until) } else { Hold::None }
}

/// Whether there is nothing to read at the position, as of the last response.
pub(super) fn is_at_end(state: &PartitionState, settings: &Settings) -> bool {
    let end = state.end_offset(settings.isolation_level);
    matches!((state.position(), end), (Some(position), Some(end)) if position >= end)
}
