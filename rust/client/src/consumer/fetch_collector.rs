//! Kafka's order of records: a fetch of one partition to its end, then the next in the queue (spec 7.5).
//! Kafka: `Fetcher#fetchedRecords`, later `FetchCollector#collectFetch`.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use super::PartitionRun;
use super::completed_fetch::{CompletedFetch, TimeTurn};
use super::consumer_state::ConsumerState;
use super::metadata::ConsumerMetadata;
use super::settings::{FetchOrder, Settings};
use super::subscription_state::SubscriptionState;
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::ClientError;

/// Result of one [`Collector::collect`].
#[derive(Debug, Default)]
pub struct Collected {
    /// Records, in the order in which they were taken.
    pub runs: Vec<PartitionRun>,
    /// A position moved, with or without records.
    pub position_moved: bool,
}

impl Collected {
    /// Adds a run. If it is of the same partition as the last one, it extends that one.
    pub(super) fn add(&mut self, run: PartitionRun) {
        match self.runs.last_mut().filter(|last| last.tp == run.tp) {
            Some(last) => {
                last.spans.extend(run.spans);
                last.last_offset = run.last_offset;
                last.count += run.count;
            }
            None => self.runs.push(run),
        }
    }
}

/// Takes records out of the buffer.
pub struct Collector<'a> {
    pub(super) state: &'a mut ConsumerState,
    /// Monotonic milliseconds.
    pub(super) now_ms: i64,
}

impl Collector<'_> {
    /// Takes at most `max_records` records.
    ///
    /// # Errors
    /// The first problem, if nothing was collected before it; otherwise the next call returns it.
    pub fn collect(mut self, max_records: usize) -> Result<Collected, ClientError> {
        let mut collected = Collected::default();
        let mut paused = Vec::new();
        let outcome = match self.state.settings.fetch_order {
            FetchOrder::Partition => self.collect_by_partition(max_records, &mut collected, &mut paused),
            FetchOrder::Kip387 => self.collect_fairly(max_records, &mut collected),
            FetchOrder::Timestamp => self.collect_by_timestamp(max_records, &mut collected),
        };
        self.state.buffer.queue.extend(paused);
        match outcome {
            Err(error)
                if collected.runs.is_empty() && !(self.state.settings.row.early_return && collected.position_moved) =>
            {
                self.state
                    .trace
                    .push(|| TraceEvent::new(TraceKind::Error).because(error.to_string()));
                Err(error)
            }
            _ => Ok(collected),
        }
    }

    /// Checks the fetch at the head of the queue; `None`: there is none.
    pub(super) fn initialize_head(&mut self) -> Option<Result<bool, ClientError>> {
        let retry_at_ms = self.now_ms.saturating_add(self.state.settings.retry_backoff_ms);
        let ConsumerState {
            buffer,
            subs,
            metadata,
            trace,
            ..
        } = &mut *self.state;
        let head = buffer.queue.front_mut()?;
        Some(initialize(head, subs, metadata, retry_at_ms, trace))
    }

    /// Whether the fetch at the head of the queue has no bytes.
    pub(super) fn is_head_empty(&self) -> bool {
        self.state.buffer.queue.front().is_some_and(|head| head.size == 0)
    }

    fn collect_by_partition(
        &mut self,
        max_records: usize,
        collected: &mut Collected,
        paused: &mut Vec<CompletedFetch>,
    ) -> Result<(), ClientError> {
        let mut remaining = max_records;
        while remaining > 0 {
            match self.state.buffer.next_in_line.take().filter(|f| !f.consumed) {
                None => {
                    let usable = match self.state.buffer.queue.front() {
                        Some(head) if head.initialized => Ok(true),
                        _ => match self.initialize_head() {
                            Some(outcome) => outcome,
                            None => break,
                        },
                    };
                    if usable.is_err() && collected.runs.is_empty() && self.is_head_empty() {
                        self.state.buffer.throw_away_head();
                    }
                    let usable = usable?;
                    if usable {
                        self.state.buffer.next_in_line = self.state.buffer.queue.pop_front();
                    } else {
                        self.state.buffer.throw_away_head();
                    }
                }
                Some(next) if self.state.subs.is_paused(&next.tp) => {
                    self.state.trace.push(|| TraceEvent::of(TraceKind::Park, &next.tp));
                    paused.push(next);
                }
                Some(mut next) => {
                    let taken = fetch_records(
                        &mut next,
                        remaining,
                        collected,
                        &mut self.state.subs,
                        None,
                        &self.state.settings,
                        &mut self.state.trace,
                    );
                    if next.consumed {
                        self.state.buffer.finished(&next.tp);
                    }
                    self.state.buffer.next_in_line = Some(next);
                    remaining -= taken?;
                }
            }
        }
        Ok(())
    }
}

/// Checks a fetch when it reaches the head of the queue. Returns false if it cannot be used.
/// Kafka: `FetchCollector#initialize`, table of spec 7.7.
fn initialize(
    fetch: &mut CompletedFetch,
    subs: &mut SubscriptionState,
    metadata: &mut ConsumerMetadata,
    retry_at_ms: i64,
    trace: &mut Trace,
) -> Result<bool, ClientError> {
    let outcome = judge(fetch, subs, metadata, retry_at_ms, trace);
    if fetch.error != ErrorCode::NONE {
        subs.move_partition_to_end(&fetch.tp);
        trace.push(|| TraceEvent::of(TraceKind::Rotate, &fetch.tp).because(fetch.error.name()));
    }
    outcome
}

fn judge(
    fetch: &mut CompletedFetch,
    subs: &mut SubscriptionState,
    metadata: &mut ConsumerMetadata,
    retry_at_ms: i64,
    trace: &mut Trace,
) -> Result<bool, ClientError> {
    let tp = fetch.tp.clone();
    let discard = |trace: &mut Trace, why: &'static str| {
        trace.push(|| TraceEvent::of(TraceKind::Drop, &tp).at(fetch.fetch_offset).because(why))
    };
    let Some(position) = subs.position(&tp) else {
        discard(trace, "not assigned, or waiting for a position");
        return Ok(false);
    };
    let stale = position != fetch.fetch_offset;
    use ErrorCode as E;
    match fetch.error {
        E::NONE if stale => discard(trace, "fetched at another offset than the position"),
        E::NONE => {
            if fetch.has_only_a_fragment() {
                return Err(fragment(fetch));
            }
            subs.fetch_succeeded(&tp);
            subs.update_ends(&tp, fetch.high_watermark, fetch.last_stable_offset);
            if let Some(node) = fetch.preferred_read_replica {
                subs.prefer_replica(&tp, node);
            }
            fetch.initialized = true;
            return Ok(true);
        }
        E::NOT_LEADER_OR_FOLLOWER
        | E::REPLICA_NOT_AVAILABLE
        | E::KAFKA_STORAGE_ERROR
        | E::FENCED_LEADER_EPOCH
        | E::OFFSET_NOT_AVAILABLE => {
            discard(trace, fetch.error.name());
            metadata.request_update();
            subs.clear_preferred_replica(&tp);
            if !subs.log_failed(&tp, fetch.error, fetch.error_message.as_deref()) {
                subs.fetch_failed(&tp, fetch.error, retry_at_ms);
            }
        }
        E::UNKNOWN_TOPIC_OR_PARTITION | E::UNKNOWN_TOPIC_ID | E::INCONSISTENT_TOPIC_ID => {
            // The three say the same, by name and by id.
            refused(fetch, E::UNKNOWN_TOPIC_OR_PARTITION, subs, retry_at_ms);
            discard(trace, fetch.error.name());
            metadata.request_update();
            subs.clear_preferred_replica(&tp);
        }
        E::OFFSET_OUT_OF_RANGE if subs.clear_preferred_replica(&tp).is_some() => {
            discard(trace, "out of range at a follower: the leader is asked");
        }
        E::OFFSET_OUT_OF_RANGE if stale => discard(trace, "out of range, but the position has changed since"),
        E::OFFSET_OUT_OF_RANGE => reset_or_fail(tp, position, subs, trace)?,
        E::TOPIC_AUTHORIZATION_FAILED => return Err(ClientError::kafka(fetch.error, &tp)),
        E::UNKNOWN_LEADER_EPOCH | E::UNKNOWN_SERVER_ERROR => {
            refused(fetch, fetch.error, subs, retry_at_ms);
            discard(trace, fetch.error.name());
        }
        E::CORRUPT_MESSAGE => {
            return Err(ClientError::CorruptRecord {
                tp,
                offset: fetch.fetch_offset,
                reason: fetch
                    .error_message
                    .as_deref()
                    .unwrap_or("the log is damaged there, verify names the file")
                    .to_owned(),
            });
        }
        other => {
            return Err(ClientError::IllegalState(format!(
                "the broker answered {other} to a fetch of {tp} at offset {}",
                fetch.fetch_offset
            )));
        }
    }
    Ok(false)
}

/// Marks the partition to be fetched again, and logs the first such error.
fn refused(fetch: &CompletedFetch, error: ErrorCode, subs: &mut SubscriptionState, retry_at_ms: i64) {
    let (tp, offset) = (&fetch.tp, fetch.fetch_offset);
    if subs.fetch_failed(tp, error, retry_at_ms) {
        log::warn!("{tp} at offset {offset}: {}; it is fetched again", fetch.error);
    }
}

/// The position is outside the log: resets it as `auto.offset.reset` says, or returns an error if that is none.
fn reset_or_fail(
    tp: TopicPartition,
    position: i64,
    subs: &mut SubscriptionState,
    trace: &mut Trace,
) -> Result<(), ClientError> {
    let Some(strategy) = subs.default_reset() else {
        return Err(ClientError::OffsetOutOfRange(BTreeMap::from([(tp, position)])));
    };
    log::info!("position {position} of {tp} is out of range; looking up the {strategy:?} offset");
    trace.push(|| {
        TraceEvent::of(TraceKind::Place, &tp)
            .at(position)
            .because("the position is out of range")
    });
    subs.request_offset_reset(&tp, strategy)
}

fn fragment(fetch: &CompletedFetch) -> ClientError {
    let (tp, offset, size) = (&fetch.tp, fetch.fetch_offset, fetch.size);
    ClientError::Kafka {
        code: ErrorCode::UNKNOWN_SERVER_ERROR,
        message: format!(
            "the answer for {tp} at offset {offset} holds {size} bytes but not one whole batch; the broker must send at least one"
        ),
    }
}

/// Takes records of one fetch and moves the position. Returns their number. Kafka: `fetchRecords`.
pub(super) fn fetch_records(
    fetch: &mut CompletedFetch,
    max: usize,
    collected: &mut Collected,
    subs: &mut SubscriptionState,
    turn: Option<&mut TimeTurn>,
    settings: &Settings,
    trace: &mut Trace,
) -> Result<usize, ClientError> {
    let tp: TopicPartition = fetch.tp.clone();
    let why = match subs.position(&tp) {
        None => "not assigned, or waiting for a position",
        Some(position) if position != fetch.next_fetch_offset => "the position was changed by a seek",
        Some(position) => {
            let mut spans = Vec::new();
            let taken = fetch.take(max, turn, settings, &mut spans)?;
            let ends = spans.first().zip(spans.last());
            let ends = ends.map(|(first, last)| (first.first_offset, last.last_offset));
            if let Some((first_offset, last_offset)) = ends {
                trace.push(|| {
                    let event = TraceEvent::of(TraceKind::Take, &tp);
                    TraceEvent {
                        last_offset,
                        ..event.at(first_offset).records(taken.records)
                    }
                });
            }
            if taken.exhausted {
                fetch.drain(subs, trace, "nothing is left in it");
            }
            if fetch.next_fetch_offset > position {
                subs.advance(&tp, fetch.next_fetch_offset, fetch.last_epoch);
                collected.position_moved = true;
            }
            if let Some((first_offset, last_offset)) = ends {
                collected.add(PartitionRun {
                    tp,
                    spans,
                    first_offset,
                    last_offset,
                    count: taken.records,
                    delivery_count: None,
                });
            }
            return Ok(taken.records);
        }
    };
    fetch.drain(subs, trace, why);
    Ok(0)
}
