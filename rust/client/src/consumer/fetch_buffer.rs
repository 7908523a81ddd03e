//! Answers that wait to be handed out. Kafka: `FetchBuffer`.

use std::collections::VecDeque;

use fletchlog_records::TopicPartition;
use rustc_hash::FxHashMap;

use super::changed::Changed;
use super::completed_fetch::CompletedFetch;
use super::subscription_state::SubscriptionState;
use super::timestamp_collector::TimestampOrder;
use super::trace::Trace;

/// One FIFO for all nodes, and what is being handed out.
#[derive(Debug, Default)]
pub struct FetchBuffer {
    /// `completedFetches`: not yet looked at, or of paused partitions.
    pub(super) queue: VecDeque<CompletedFetch>,
    /// `nextInLine` of Kafka's order.
    pub(super) next_in_line: Option<CompletedFetch>,
    /// Looked at and not finished: under KIP-387 the oldest first, by timestamp in the order of partitions.
    pub(super) parsed: Vec<CompletedFetch>,
    /// Place in `parsed` where the next round continues: KIP-387 only.
    pub(super) parsed_index: usize,
    /// `nextInLine` of KIP-387, a place in `parsed`.
    pub(super) turn: Option<usize>,
    /// What the merge by timestamp remembers.
    pub(super) by_time: TimestampOrder,
    /// How many unfinished fetches there are of each partition: mostly one.
    buffered: FxHashMap<TopicPartition, usize>,
    changed: Changed,
    version: u64,
}

impl FetchBuffer {
    /// Appends an answer for one partition.
    pub fn add(&mut self, fetch: CompletedFetch) {
        *self.buffered.entry(fetch.tp.clone()).or_default() += 1;
        self.changed.insert(&fetch.tp);
        self.queue.push_back(fetch);
        self.changed();
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
        self.changed();
    }

    /// Takes the head of the queue and throws it away.
    pub(super) fn throw_away_head(&mut self) {
        if let Some(head) = self.queue.pop_front() {
            self.finished(&head.tp);
        }
    }

    /// Takes the partitions of which a fetch may have come or been finished since the last call.
    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// Grows whenever the buffered data, or how long it is held back, may have changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Records a change other than of the set of buffered partitions.
    pub(super) fn changed(&mut self) {
        self.version += 1;
    }

    /// Partitions that are left out of the next request (spec 7.3): every queue entry, empty ones too, and what is not
    /// finished. A fetch that ended exactly at max.poll.records is not finished: its end has not been reached by a
    /// read.
    pub fn buffered_partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.buffered.keys()
    }

    /// Whether a partition is among them.
    pub fn is_buffered(&self, tp: &TopicPartition) -> bool {
        self.buffered.contains_key(tp)
    }

    /// Whether every fetch that came or was finished was counted.
    pub(super) fn is_counted_right(&self) -> bool {
        self.counted() == self.buffered
    }

    /// `buffered`, found by looking at every fetch.
    pub(super) fn counted(&self) -> FxHashMap<TopicPartition, usize> {
        let unfinished = self.next_in_line.iter().chain(&self.parsed).filter(|f| !f.consumed);
        let mut counted = FxHashMap::default();
        for fetch in self.queue.iter().chain(unfinished) {
            *counted.entry(fetch.tp.clone()).or_default() += 1;
        }
        counted
    }

    /// Whether a queued fetch may be handed out, so that poll must not wait. Kafka: `hasAvailableFetches`.
    pub fn has_available_fetches(&self, subs: &SubscriptionState) -> bool {
        self.queue.iter().any(|f| subs.is_fetchable(&f.tp))
    }

    /// Drops what belongs to other partitions. Kafka: `FetchBuffer#retainAll`.
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
        self.changed();
    }
}
