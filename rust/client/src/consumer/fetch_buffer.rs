//! Fetched data that poll has not returned yet. Kafka: `FetchBuffer`.

use std::collections::VecDeque;

use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

use super::completed_fetch::CompletedFetch;
use super::subscription_state::{Changed, SubscriptionState};
use super::trace::Trace;

/// One FIFO for all nodes, and the fetches whose records are being returned.
#[derive(Debug, Clone, Default)]
pub struct FetchBuffer {
    /// `completedFetches`: not yet checked, or of paused partitions.
    pub(super) queue: VecDeque<CompletedFetch>,
    /// `nextInLine` of Kafka's order.
    pub(super) next_in_line: Option<CompletedFetch>,
    /// Checked and not finished: oldest first under KIP-387, sorted by partition under timestamp order.
    pub(super) parsed: Vec<CompletedFetch>,
    /// Index in `parsed` where the next round continues: KIP-387 only.
    pub(super) parsed_index: usize,
    /// `nextInLine` of KIP-387, an index in `parsed`.
    pub(super) turn: Option<usize>,
    /// State of the merge by timestamp.
    pub(super) by_time: TimestampOrder,
    /// Number of unfinished fetches of each partition: mostly one.
    buffered: FxHashMap<TopicPartition, usize>,
    /// Partitions whose fetches may have arrived or finished.
    changed: Changed,
}

impl FetchBuffer {
    /// Appends one partition's part of a response.
    pub fn add(&mut self, fetch: CompletedFetch) {
        *self.buffered.entry(fetch.tp.clone()).or_default() += 1;
        self.changed.insert(&fetch.tp);
        self.queue.push_back(fetch);
    }

    /// Records that a fetch of this partition is finished, or was taken out of the queue and thrown away.
    pub(super) fn finished(&mut self, tp: &TopicPartition) {
        if let Some(left) = self.buffered.get_mut(tp) {
            *left -= 1;
            if *left == 0 {
                self.buffered.remove(tp);
            }
        }
        self.changed.insert(tp);
    }

    /// Takes the head of the queue and throws it away.
    pub(super) fn throw_away_head(&mut self) {
        if let Some(head) = self.queue.pop_front() {
            self.finished(&head.tp);
        }
    }

    /// Takes what may have changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Records a change other than of the set of buffered partitions.
    pub(super) fn changed(&mut self) {
        self.changed.extend(Changed::Partitions(FxHashSet::default()));
    }

    /// Partitions that the next request leaves out (spec 7.3): those of every queue entry, even an empty one, and of
    /// every unfinished fetch. A fetch that ended exactly at max.poll.records is not finished: no read has reached its
    /// end.
    pub fn buffered_partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.buffered.keys()
    }

    /// Whether `tp` is one of [`Self::buffered_partitions`].
    pub fn is_buffered(&self, tp: &TopicPartition) -> bool {
        self.buffered.contains_key(tp)
    }

    /// Whether `buffered` is consistent with the fetches.
    pub(super) fn is_counted_right(&self) -> bool {
        self.counted() == self.buffered
    }

    /// `buffered`, recomputed from all fetches.
    pub(super) fn counted(&self) -> FxHashMap<TopicPartition, usize> {
        let unfinished = self.next_in_line.iter().chain(&self.parsed).filter(|f| !f.consumed);
        let mut counted = FxHashMap::default();
        for fetch in self.queue.iter().chain(unfinished) {
            *counted.entry(fetch.tp.clone()).or_default() += 1;
        }
        counted
    }

    /// Whether a queued fetch may be returned, so that poll must not wait. Kafka: `hasAvailableFetches`.
    pub fn has_available_fetches(&self, subs: &SubscriptionState) -> bool {
        self.queue.iter().any(|f| subs.is_fetchable(&f.tp))
    }

    /// Drops the fetches of all partitions that `keep` refuses. Kafka: `FetchBuffer#retainAll`.
    pub fn retain(&mut self, keep: impl Fn(&TopicPartition) -> bool, subs: &mut SubscriptionState, trace: &mut Trace) {
        const WHY: &str = "no longer assigned";
        self.queue.retain_mut(|f| {
            keep(&f.tp) || {
                f.drain(subs, trace, WHY);
                false
            }
        });
        if let Some(f) = self.next_in_line.as_mut().filter(|f| !keep(&f.tp)) {
            f.drain(subs, trace, WHY);
            self.next_in_line = None;
        }
        let turn = self.turn.take();
        let mut kept = Vec::with_capacity(self.parsed.len());
        for (i, mut f) in std::mem::take(&mut self.parsed).into_iter().enumerate() {
            if keep(&f.tp) {
                if turn == Some(i) {
                    self.turn = Some(kept.len());
                }
                kept.push(f);
            } else {
                f.drain(subs, trace, WHY);
            }
        }
        self.parsed = kept;
        self.buffered = self.counted();
        self.changed = Changed::Everything;
    }
}

/// State of the merge by timestamp between polls.
#[derive(Debug, Clone)]
pub struct TimestampOrder {
    /// Highest timestamp returned, ms.
    pub(super) newest_returned: i64,
    /// Highest timestamp seen in a buffered batch, ms.
    pub(super) newest_seen: i64,
    /// `SubscriptionState::jumps` when the two were last reset.
    jumps: u64,
    /// Since when (monotonic ms) each partition has been at its end with nothing buffered.
    pub(super) at_end_since: FxHashMap<TopicPartition, i64>,
    /// Until when (monotonic ms) buffered records wait for partitions at their end.
    pub(super) held_until: Option<i64>,
    pub(super) late: u64,
}

impl Default for TimestampOrder {
    fn default() -> Self {
        Self {
            newest_returned: i64::MIN,
            newest_seen: i64::MIN,
            jumps: 0,
            at_end_since: FxHashMap::default(),
            held_until: None,
            late: 0,
        }
    }
}

impl TimestampOrder {
    /// Until when (monotonic ms) buffered records wait for partitions at their end; `None` if none do.
    pub fn held_until(&self) -> Option<i64> {
        self.held_until
    }
    /// Number of late records returned so far.
    pub fn late(&self) -> u64 {
        self.late
    }
    /// A seek or another assignment begins a new order.
    pub(super) fn follow(&mut self, jumps: u64) {
        if self.jumps != jumps {
            let late = self.late;
            *self = Self {
                jumps,
                late,
                ..Self::default()
            };
        }
    }
}
