//! Reads ranges of partitions, as spans in the order of the scan. A consumer without a group reads from all leaders at
//! once.
//!
//! ```text
//! partition   range after range; records of later ones that arrive meanwhile are kept, up to AHEAD bytes each, then it is paused
//! timestamp   as the consumer merges them (fletchlog.fetch.order=timestamp)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fletchlog_api::{Clock, Config, ErrorCode, TopicId, Transport};
use fletchlog_records::{RecordSpan, TopicPartition};

use super::metadata::Wanted;
use super::{Consumer, Interrupt};
use crate::ClientError;

/// Bytes of a partition that are kept before its turn.
const AHEAD: usize = 4 << 20;
/// How long one poll waits.
pub(super) const POLL_MS: i64 = 1_000;
/// A release whose polls return when a position moves past records that users never see, such as markers, and whose
/// fetches use topic ids. The scan decides the order, not the release.
const RELEASE: &str = "3.6";
/// Records of one poll: more than a fetch can return.
const POLL_RECORDS: &str = "1000000";
/// How long a broker may wait for more records. All records of a range are in the log already, so only a fetch after
/// the last record waits; meanwhile its node sends nothing of the next partition.
const FETCH_WAIT_MS: &str = "10";

/// Offsets of a partition, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRange {
    /// Partition.
    pub tp: TopicPartition,
    /// Id of the topic that has these offsets; `NO_TOPIC_ID` from a broker before 2.8, which has no ids.
    pub topic_id: TopicId,
    /// First offset.
    pub start: i64,
    /// End, exclusive.
    pub end: i64,
}

/// Records of a range. The last ones may be beyond its end: they do not belong to it.
#[derive(Debug)]
pub struct ScannedSpan {
    /// Partition.
    pub tp: TopicPartition,
    /// The records, in offset order.
    pub span: RecordSpan,
    /// End of the range, exclusive.
    pub end: i64,
}

/// Reads ranges, one thread at a time.
pub struct RangeScan {
    consumer: Consumer,
    clock: Arc<dyn Clock>,
    by_timestamp: bool,
    limit_ms: i64,
    /// See [`AHEAD`].
    pub(super) keep_ahead: usize,
    /// Ranges not read to their ends, in the order of the scan.
    open: VecDeque<OffsetRange>,
    /// Records that were read before the turn of their range.
    pub(super) ahead: BTreeMap<TopicPartition, VecDeque<RecordSpan>>,
    /// Spans to return next.
    ready: VecDeque<ScannedSpan>,
}

impl RangeScan {
    /// The given properties, changed for a scan.
    ///
    /// # Errors
    /// `Config`.
    pub fn config(given: &Config, isolation_level: &str, by_timestamp: bool) -> Result<Config, ClientError> {
        let own = [
            ("auto.offset.reset", "none"),
            ("enable.auto.commit", "false"),
            ("isolation.level", isolation_level),
            ("allow.auto.create.topics", "false"),
            ("max.poll.records", POLL_RECORDS),
            ("fletchlog.consumer.version", RELEASE),
            ("fetch.max.wait.ms", FETCH_WAIT_MS),
            (
                "fletchlog.fetch.order",
                if by_timestamp { "timestamp" } else { "partition" },
            ),
        ];
        Ok(given.clone().with(own)?)
    }

    /// A scan of the ranges in this order. `config` comes from [`Self::config`]. Connects with the first
    /// [`Self::next`].
    ///
    /// # Errors
    /// `Config`.
    pub fn new(
        config: Config,
        ranges: &[OffsetRange],
        transport: Box<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        let limit_ms = i64::from(config.int("default.api.timeout.ms"));
        let by_timestamp = config.text("fletchlog.fetch.order") == "timestamp";
        let mut consumer = Consumer::new(config, transport, Arc::clone(&clock))?;
        let partitions: Vec<_> = ranges.iter().map(|range| range.tp.clone()).collect();
        consumer.assign(&partitions)?;
        for range in ranges {
            consumer.seek(&range.tp, range.start)?;
            consumer.state.metadata.expect_topic_id(&range.tp.topic, range.topic_id);
        }
        Ok(Self {
            consumer,
            clock,
            by_timestamp,
            limit_ms,
            keep_ahead: AHEAD,
            open: ranges.iter().cloned().collect(),
            ahead: BTreeMap::new(),
            ready: VecDeque::new(),
        })
    }

    /// The next records; `None` at the end.
    ///
    /// # Errors
    /// As [`Consumer::poll`]; `Timeout` if nothing arrived for default.api.timeout.ms; INCONSISTENT_TOPIC_ID if a topic
    /// was deleted and recreated since the ranges were found.
    pub fn next(&mut self, interrupt: Interrupt<'_>) -> Result<Option<ScannedSpan>, ClientError> {
        let began_ms = self.clock.monotonic_ms();
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            let Some(head) = self.open.front().map(|range| range.tp.clone()) else {
                self.check_topics_at_the_end(interrupt)?;
                return Ok(None);
            };
            self.poll(&head, &mut *interrupt)?;
            self.close_read_ones(&head)?;
            let is_stuck = self.ready.is_empty() && self.open.front().is_some_and(|range| range.tp == head);
            if is_stuck && self.clock.monotonic_ms().saturating_sub(began_ms) > self.limit_ms {
                return Err(self.timeout(&head));
            }
        }
    }

    /// Requests to a broker before 3.1 have topic names: only afterwards is it known whether the records are of another
    /// topic with that name.
    fn check_topics_at_the_end(&mut self, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        let consumer = &mut self.consumer;
        let topics = consumer.state.metadata.topics_with_expected_ids();
        if topics.is_empty() || !std::mem::take(&mut consumer.fetches.was_answered_by_names) {
            return Ok(());
        }
        consumer.state.metadata.want(Wanted::Topics(topics));
        let deadline = self.clock.monotonic_ms().saturating_add(self.limit_ms);
        while consumer.state.metadata.awaits_new_topics() {
            consumer.wait_for_answers(deadline, &mut *interrupt)?;
            if self.clock.monotonic_ms() >= deadline && consumer.state.metadata.awaits_new_topics() {
                let why = consumer.net.explain_silence("does the cluster answer?");
                return Err(ClientError::Timeout(format!(
                    "whether a topic was made again was not known after {} ms (default.api.timeout.ms): {why}",
                    self.limit_ms
                )));
            }
        }
        self.check_topics()
    }

    fn check_topics(&self) -> Result<(), ClientError> {
        self.consumer.state.metadata.made_again().map_or(Ok(()), |topic| {
            Err(ClientError::Kafka {
                code: ErrorCode::INCONSISTENT_TOPIC_ID,
                message: format!("topic {topic} was deleted and made again while it was read; read it again"),
            })
        })
    }

    fn timeout(&self, tp: &TopicPartition) -> ClientError {
        let refused = || {
            self.consumer
                .state
                .metadata
                .error_of(&tp.topic)
                .map(|code| code.message().to_owned())
        };
        let why = self.consumer.last_connection_failure().or_else(refused);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let limit_ms = self.limit_ms;
        ClientError::Timeout(format!(
            "no records of {tp} within {limit_ms} ms (default.api.timeout.ms){why}"
        ))
    }

    /// Polls once, while it is the turn of `head`.
    fn poll(&mut self, head: &TopicPartition, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        let polled = self.consumer.poll(POLL_MS, interrupt)?;
        // Records requested by topic id are of that topic, even if the metadata is older.
        if polled.runs.is_empty() || self.consumer.fetches.was_answered_by_names {
            self.check_topics()?;
        }
        let order = polled.row_order();
        for run in order.into_iter().filter_map(|index| polled.runs.get(index)) {
            let Some(range) = self.open.iter().find(|range| range.tp == run.tp) else {
                continue;
            };
            let spans = run.spans.iter().filter(|span| span.first_offset < range.end).cloned();
            if self.by_timestamp || *head == run.tp {
                self.ready.extend(spans.map(|span| scanned(range, span)));
            } else {
                self.ahead.entry(run.tp.clone()).or_default().extend(spans);
            }
        }
        self.pause_full_ones()
    }

    /// Pauses later partitions of which enough records are kept.
    fn pause_full_ones(&mut self) -> Result<(), ClientError> {
        let assigned = self.consumer.assignment();
        for (tp, spans) in &self.ahead {
            let kept: usize = spans.iter().map(|span| span.end - span.start).sum();
            if kept >= self.keep_ahead && assigned.contains(tp) {
                self.consumer.pause(std::slice::from_ref(tp))?;
            }
        }
        Ok(())
    }

    /// Unassigns the partitions whose ranges were read to their ends, and continues with the next range in the order.
    fn close_read_ones(&mut self, head: &TopicPartition) -> Result<(), ClientError> {
        let consumer = &mut self.consumer;
        let assigned = consumer.assignment();
        let mut unread = Vec::new();
        // A partition that was read to its end before its turn is no longer assigned, but its range is still open.
        for range in self.open.iter().filter(|range| assigned.contains(&range.tp)) {
            let position = consumer.position(&range.tp, 0, &mut || false);
            if !position.is_ok_and(|position| position >= range.end) {
                unread.push(range.tp.clone());
            }
        }
        if unread.len() < assigned.len() {
            consumer.assign(&unread)?;
        }
        let is_unread = |range: &OffsetRange| unread.contains(&range.tp);
        if self.by_timestamp {
            self.open.retain(is_unread);
            return Ok(());
        }
        while self.open.front().is_some_and(|range| !is_unread(range)) {
            self.open.pop_front();
            let Some(next) = self.open.front() else { break };
            let kept = self.ahead.remove(&next.tp).unwrap_or_default();
            self.ready.extend(kept.into_iter().map(|span| scanned(next, span)));
        }
        if let Some(next) = self.open.front().filter(|next| next.tp != *head) {
            consumer.resume(std::slice::from_ref(&next.tp))?;
        }
        Ok(())
    }
}

fn scanned(range: &OffsetRange, span: RecordSpan) -> ScannedSpan {
    ScannedSpan {
        tp: range.tp.clone(),
        span,
        end: range.end,
    }
}
