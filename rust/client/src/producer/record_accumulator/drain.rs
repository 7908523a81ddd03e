//! Which nodes can be sent to, and which batches go into a request (spec 9.3, 9.4).

use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_records::{BatchBuilder, Compression};

use super::{Loan, RATIO_DETERIORATION, RATIO_IMPROVEMENT, ReadyCheck, RecordAccumulator, SPARE_BUILDERS};
use crate::producer::idempotence::Idempotence;
use crate::producer::metadata::{PartitionId, ProducerMetadata};
use crate::producer::producer_batch::{BatchId, ProducerBatch};

impl RecordAccumulator {
    fn is_backing_off(&self, batch: &ProducerBatch, now: i64) -> bool {
        let leader_changed = self.config.release.exponential_backoff
            && batch.attempts > 0
            && batch.attempts == batch.attempts_at_leader_change;
        batch.attempts > 0 && !leader_changed && now.saturating_sub(batch.last_attempt_ms) < batch.backoff_ms
    }

    /// ms until the first back-off of a queue's head ends.
    pub(crate) fn next_back_off_end_ms(&self, now: i64) -> i64 {
        let heads = self.queues.iter().filter_map(|queue| queue.batches.front());
        let waiting = heads
            .map(|&head| &self.batches[head])
            .filter(|batch| self.is_backing_off(batch, now));
        let left = waiting.map(|batch| {
            batch
                .backoff_ms
                .saturating_sub(now.saturating_sub(batch.last_attempt_ms))
        });
        left.min().unwrap_or(i64::MAX)
    }

    /// Which nodes have something to send (spec 9.3).
    pub(crate) fn ready(&mut self, metadata: &ProducerMetadata, now: i64) -> ReadyCheck {
        let mut check = ReadyCheck {
            nodes: Vec::new(),
            heads: Vec::new(),
            next_check_ms: i64::MAX,
            unknown_leaders: false,
        };
        let everything = self.memory_waiters > 0 || self.closed || self.flushes > 0 || self.completing;
        for (partition, queue) in self.queues.iter().enumerate() {
            let Some(&head) = queue.batches.front() else { continue };
            let info = metadata.partition(partition);
            let Some(leader) = info.leader else {
                check.unknown_leaders = true;
                continue;
            };
            if self.config.release.exponential_backoff && self.batches[head].leader_epoch < info.leader_epoch {
                let batch = &mut self.batches[head];
                if batch.leader_epoch >= 0 {
                    batch.attempts_at_leader_change = batch.attempts;
                }
                batch.leader_epoch = info.leader_epoch;
            }
            // A lent batch wakes the sender when it is returned.
            if queue.muted || self.batches[head].records.is_lent() || check.nodes.contains(&leader) {
                continue;
            }
            let batch = &self.batches[head];
            let backing_off = self.is_backing_off(batch, now);
            let full = queue.batches.len() > 1 || batch.is_full();
            let waited = now.saturating_sub(batch.last_attempt_ms).max(0);
            let limit = if backing_off {
                batch.backoff_ms
            } else {
                self.config.linger_ms
            };
            if (full || waited >= limit || everything) && !backing_off {
                check.heads.push(head);
                check.nodes.push(leader);
            } else {
                check.next_check_ms = check.next_check_ms.min(limit.saturating_sub(waited).max(0));
            }
        }
        check.nodes.sort_unstable();
        if self.config.release.built_in_partitioner && self.config.adaptive {
            for (topic, info) in metadata.topics().take(self.partitioners.count()) {
                let (queues, complete) = self.load(metadata, &info.partitions);
                self.partitioners.of(topic).0.update_load(&queues, complete);
            }
        }
        check
    }

    /// KIP-794: queue lengths of a topic's usable partitions, for the partitioner; true = no partition left out.
    fn load(&self, metadata: &ProducerMetadata, partitions: &[PartitionId]) -> (Vec<(i32, usize)>, bool) {
        let timeout = self.config.availability_timeout_ms;
        let mut queues = Vec::with_capacity(partitions.len());
        for &id in partitions {
            let info = metadata.partition(id);
            let Some(leader) = info.leader else { continue };
            let slow = timeout > 0
                && self
                    .latency
                    .get(&leader)
                    .is_some_and(|(ready, drained)| ready.saturating_sub(*drained) > timeout);
            if !slow {
                queues.push((info.tp.partition, self.queues.get(id).map_or(0, |q| q.batches.len())));
            }
        }
        let complete = queues.len() == partitions.len();
        (queues, complete)
    }

    /// A ready node could (or could not) be sent to. Kafka: `updateNodeLatencyStats`.
    pub(crate) fn note_node(&mut self, node: NodeId, now: i64, can_drain: bool) {
        if self.config.availability_timeout_ms > 0 {
            let times = self.latency.entry(node).or_insert((now, now));
            times.0 = now;
            if can_drain {
                times.1 = now;
            }
        }
    }

    // ------------------------------------------------------------ drain

    /// Takes at most one batch per partition of a node, in the order of spec 9.4, closed and numbered.
    pub(crate) fn drain(
        &mut self,
        metadata: &ProducerMetadata,
        node: NodeId,
        mut idempotence: Option<&mut Idempotence>,
        now: i64,
    ) -> Vec<BatchId> {
        let led = metadata.led_by(node);
        let mut taken = Vec::new();
        if led.is_empty() {
            return taken;
        }
        let per_node = self.config.release.drain_index_per_node;
        let start = if per_node {
            self.node_drain_index.get(&node).copied().unwrap_or(0)
        } else {
            self.drain_index
        } % led.len();
        let mut size = 0usize;
        let mut at = start;
        loop {
            let partition = led[at];
            if per_node {
                self.node_drain_index.insert(node, at);
            }
            at = (at + 1) % led.len();
            if !per_node {
                self.drain_index = at;
            }
            if let Some(head) = self.drainable(partition, now) {
                let estimate = self.batches[head].records.estimated_size();
                if size.saturating_add(estimate) > self.config.max_request_size && !taken.is_empty() {
                    break;
                }
                if let Some(idempotence) = idempotence.as_deref_mut() {
                    if idempotence.stops_drain(head, &self.batches) {
                        break;
                    }
                    idempotence.assign(head, &mut self.batches);
                }
                self.queues[partition].batches.pop_front();
                self.close(head, &metadata.partition(partition).tp.topic);
                let batch = &mut self.batches[head];
                batch.queued = false;
                size = size.saturating_add(batch.records.estimated_size());
                taken.push(head);
            }
            if at == start {
                break;
            }
        }
        taken
    }

    /// The head of a queue that is neither muted nor backing off.
    fn drainable(&self, partition: PartitionId, now: i64) -> Option<BatchId> {
        let queue = self.queues.get(partition)?;
        let &head = queue.batches.front()?;
        let batch = &self.batches[head];
        (!queue.muted && !batch.records.is_lent() && !self.is_backing_off(batch, now)).then_some(head)
    }

    /// The full batches at the heads of queues, to be compressed without the lock.
    pub(crate) fn take_unpacked_heads(&mut self) -> Vec<Loan> {
        let heads = self.queues.iter().filter(|queue| !queue.muted);
        let heads = heads.filter_map(|queue| queue.batches.front().copied());
        let heads: Vec<_> = heads.filter(|&id| self.batches[id].is_unpacked()).collect();
        heads.into_iter().filter_map(|id| self.lend(id)).collect()
    }

    /// The oldest uncompressed full batch of some queue, except its head, which the sender compresses. In a queue, compressed batches are
    /// in front of uncompressed ones.
    pub(crate) fn take_unpacked_behind(&mut self) -> Option<Loan> {
        for _ in 0..self.queues.len() {
            self.pack_index = (self.pack_index + 1) % self.queues.len();
            let newest_first = self.queues[self.pack_index].batches.iter().skip(1).rev().copied();
            let behind = newest_first.skip_while(|&id| !self.batches[id].is_full());
            if let Some(id) = behind.take_while(|&id| self.batches[id].is_unpacked()).last() {
                return self.lend(id);
            }
        }
        None
    }

    /// Keeps the memory of a batch for later ones, unless a record larger than `batch.size` made it large.
    pub(super) fn keep_spare(&mut self, write_limit: usize, spare: Option<BatchBuilder>) {
        if write_limit <= self.config.batch_size && self.spare.len() < SPARE_BUILDERS {
            self.spare.extend(spare);
        }
    }

    fn close(&mut self, id: BatchId, topic: &Arc<str>) {
        let batch = &mut self.batches[id];
        let spare = batch.close(&self.config);
        let (write_limit, observed) = (batch.records.write_limit, batch.records.actual_ratio);
        self.keep_spare(write_limit, spare);
        if self.config.compression != Compression::None {
            let estimate = self.ratios.entry(topic.clone()).or_insert(1.0);
            *estimate = if observed > *estimate {
                (*estimate + RATIO_DETERIORATION).max(observed)
            } else {
                (*estimate - RATIO_IMPROVEMENT).max(observed)
            };
        }
    }
}
