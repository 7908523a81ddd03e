//! What becomes of a batch after its request: another attempt, a split, expiry, the end (spec 9.5).

use std::mem::take;
use std::sync::Arc;

use fletchlog_records::batch_builder::estimate_size_upper_bound;
use fletchlog_records::{BatchBuilder, Compression, TopicPartition};

use super::{RecordAccumulator, past_delivery};
use crate::ClientError;
use crate::backoff::ExponentialBackoff;
use crate::producer::idempotence::Idempotence;
use crate::producer::memory_records_builder::MemoryRecordsBuilder;
use crate::producer::producer_batch::{BatchId, ProducerBatch, runs_of};

impl RecordAccumulator {
    /// Queues a batch for another attempt (spec 9.5): at the front, or in sequence order under idempotence.
    pub(crate) fn reenqueue(&mut self, id: BatchId, idempotence: Option<&Idempotence>, now: i64) {
        let backoff = self.backoff(self.batches[id].attempts);
        let batch = &mut self.batches[id];
        batch.attempts = batch.attempts.saturating_add(1);
        batch.last_attempt_ms = now.max(batch.created_ms);
        batch.in_retry = true;
        batch.ready_traced = false;
        batch.backoff_ms = backoff;
        self.insert(id, idempotence);
    }

    /// Constant up to 3.6, then doubling with jitter 0.2 (KIP-580).
    pub(super) fn backoff(&mut self, failures: i32) -> i64 {
        let (first, most) = (self.config.retry_backoff_ms, self.config.retry_backoff_max_ms);
        if !self.config.release.exponential_backoff {
            return first;
        }
        ExponentialBackoff::new(first, most).wait_ms(failures, || self.random.fraction())
    }

    fn insert(&mut self, id: BatchId, idempotence: Option<&Idempotence>) {
        let partition = self.batches[id].partition;
        self.batches[id].queued = true;
        let own = idempotence.and_then(|i| i.position(partition, id));
        let before = |other: &BatchId| match (own, idempotence.and_then(|i| i.position(partition, *other))) {
            (Some(own), Some(other)) => other < own,
            _ => false,
        };
        let queue = self.queue(partition);
        let at = queue.batches.iter().take_while(|other| before(other)).count();
        queue.batches.insert(at, id);
    }

    /// Cuts a batch that was too large and queues the pieces in its place (spec 9.5). Returns them in record order.
    /// Kafka: `splitAndReenqueue`, `ProducerBatch#split`.
    pub(crate) fn split_and_reenqueue(
        &mut self,
        id: BatchId,
        topic: &Arc<str>,
        idempotence: Option<&mut Idempotence>,
    ) -> Vec<BatchId> {
        let parent = &self.batches[id];
        let target = if self.config.release.split_halves && parent.from_split {
            parent.records.max_record_size.max(parent.records.estimated_size() / 2)
        } else {
            self.config.batch_size
        };
        let (partition, serial, created) = (parent.partition, parent.serial, parent.created_ms);
        let ratio = (self.config.compression != Compression::None).then(|| parent.records.actual_ratio.max(1.0));
        let mut pieces: Vec<ProducerBatch> = Vec::new();
        parent.for_each_record(|timestamp, key, value, headers| {
            if let Some(last) = pieces.last_mut()
                && last.try_append(timestamp, key, value, headers).is_some()
            {
                return;
            }
            let limit = target.max(estimate_size_upper_bound(
                key.map(<[u8]>::len),
                value.map(<[u8]>::len),
                headers,
            ));
            let mut piece = ProducerBatch::new(
                partition,
                serial,
                created,
                MemoryRecordsBuilder::new(limit, ratio, BatchBuilder::with_capacity(0)),
            );
            piece.try_append(timestamp, key, value, headers);
            pieces.push(piece);
        });
        let (runs, result) = (take(&mut self.batches[id].runs), self.batches[id].result.take());
        let firsts = first_records(&pieces);
        let mut results = result.map(|result| result.split(&firsts).into_iter());
        let mut ids = Vec::with_capacity(pieces.len());
        for (mut piece, first) in pieces.into_iter().zip(firsts) {
            piece.close_for_appends();
            piece.from_split = true;
            piece.memory = piece.records.estimated_size();
            piece.runs = runs_of(&runs, first, piece.count());
            piece.result = results.as_mut().and_then(Iterator::next);
            self.memory_used = self.memory_used.saturating_add(piece.memory);
            *self.incomplete.entry(serial).or_default() += 1;
            ids.push(self.batches.insert(piece));
        }
        if let Some(ratio) = ratio {
            self.ratios.insert(topic.clone(), ratio);
        }
        let idempotence = idempotence.map(|i| {
            i.replace_by_split(id, &ids, &mut self.batches);
            &*i
        });
        for &piece in ids.iter().rev() {
            self.insert(piece, idempotence);
        }
        self.decided(id);
        ids
    }

    /// Acknowledges a batch, unless it is decided.
    pub(crate) fn complete(&mut self, id: BatchId, tp: &TopicPartition, base_offset: i64, log_append_time: i64) {
        if let Some(result) = self.batches[id].result.take() {
            result.written(tp, base_offset, log_append_time);
        }
        self.decided(id);
    }

    /// Fails a batch, unless it is decided.
    pub(crate) fn fail(&mut self, id: BatchId, error: &ClientError) {
        let batch = &mut self.batches[id];
        if batch.done {
            return;
        }
        if let Some(result) = batch.result.take() {
            let callbacks = result.failed(error);
            // The only owner: no future was kept. The failure of a transaction is that of its end.
            if callbacks == 0 && Arc::strong_count(&result) == 1 && self.config.transactional_id.is_none() {
                let in_runs: i32 = batch.runs.iter().map(|run| run.count()).sum();
                self.unseen
                    .add(i64::from(batch.count() - in_runs), error, self.clock.monotonic_ms());
            }
        }
        if !batch.runs.is_empty() {
            self.run_failure.get_or_insert_with(|| error.clone());
        }
        self.failed_records += i64::from(batch.count());
        self.decided(id);
    }

    /// Bookkeeping when a batch is decided: memory, the set that flush waits for, its bytes.
    pub(crate) fn decided(&mut self, id: BatchId) {
        let batch = &mut self.batches[id];
        if batch.done {
            return;
        }
        batch.done = true;
        batch.records.release();
        self.memory_used = self.memory_used.saturating_sub(batch.memory);
        let serial = batch.serial;
        if let Some(open) = self.incomplete.get_mut(&serial) {
            *open -= 1;
            if *open == 0 {
                self.incomplete.remove(&serial);
            }
        }
    }

    /// Removes the heads of queues that are past delivery.timeout.ms, and returns them.
    pub(crate) fn take_expired(&mut self, now: i64) -> Vec<BatchId> {
        let mut expired = Vec::new();
        for queue in &mut self.queues {
            while let Some(&head) = queue.batches.front() {
                if !past_delivery(&self.batches[head], self.config.delivery_timeout_ms, now) {
                    break;
                }
                queue.batches.pop_front();
                let batch = &mut self.batches[head];
                batch.queued = false;
                batch.close_for_appends();
                expired.push(head);
            }
        }
        expired
    }

    /// When the first queued batch will expire.
    pub(crate) fn next_expiry_ms(&self) -> i64 {
        self.queues
            .iter()
            .filter_map(|q| q.batches.front())
            .map(|&id| {
                self.batches[id]
                    .created_ms
                    .saturating_add(self.config.delivery_timeout_ms)
            })
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Fails queued batches that were never on the wire, in the order of creation. Kafka: `RecordAccumulator#abortUndrainedBatches`.
    pub(crate) fn abort_undrained(&mut self, error: &ClientError) {
        let mut undrained = self.batches.undecided();
        undrained.retain(|&id| self.batches[id].queued && !self.batches[id].has_sequence());
        for &id in &undrained {
            let batch = &mut self.batches[id];
            batch.queued = false;
            batch.close_for_appends();
            let partition = batch.partition;
            self.queue(partition).batches.retain(|&queued| queued != id);
        }
        self.abort(undrained, error);
    }

    /// Fails everything undecided (fatal state, forced close), in the order of creation. Kafka: `RecordAccumulator#abortBatches`.
    pub(crate) fn abort_all(&mut self, error: &ClientError) {
        for queue in &mut self.queues {
            for id in queue.batches.drain(..) {
                self.batches[id].queued = false;
            }
        }
        self.abort(self.batches.undecided(), error);
    }

    fn abort(&mut self, batches: Vec<BatchId>, error: &ClientError) {
        for id in batches {
            self.fail(id, error);
            self.batches.remove_if_unused(id);
        }
        self.signal.notify();
    }
}

/// For each piece of a batch, the index of its first record in that batch.
fn first_records(pieces: &[ProducerBatch]) -> Vec<i32> {
    let ends = pieces.iter().scan(0, |end, piece| {
        *end += piece.count();
        Some(*end - piece.count())
    });
    ends.collect()
}
