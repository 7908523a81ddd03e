//! `Cluster.scan`: ranges of partitions, read from all their leaders at once, as spans in the order of the scan.
//!
//! ```text
//! order=offset      partition after partition; what comes of later ones meanwhile is kept, AHEAD bytes of each, then it is paused
//! order=timestamp   as the consumer merges them (fletchlog.fetch.order=timestamp)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Clock, Config, ErrorCode};
use fletchlog_client::Consumer;
use fletchlog_net::TopicOffsets;
use fletchlog_records::{RecordSpan, TopicPartition};
use pyo3::prelude::*;

use crate::capsule::Gil;
use crate::errors::Failure;
use crate::peer::Peer;
use crate::scan::Wanted;

/// Bytes of a partition that are kept before its turn comes.
const AHEAD: usize = 4 << 20;
/// How long one poll waits.
const POLL_MS: i64 = 1_000;
/// Records of one poll: more than a fetch can bring.
const POLL_RECORDS: &str = "1000000";

/// What to read, fixed when `scan` was called.
pub struct Plan {
    peer: Arc<Peer>,
    config: Config,
    by_timestamp: bool,
    /// In the order of the scan; none is empty.
    pub ranges: Vec<Range>,
}

/// Offsets of a partition.
#[derive(Clone)]
pub struct Range {
    /// Partition.
    pub tp: TopicPartition,
    /// First offset.
    pub start: i64,
    /// End, exclusive.
    pub end: i64,
}

impl Plan {
    /// Resolves the arguments against the topic as it is now.
    ///
    /// # Errors
    /// As `Broker.scan`.
    pub fn new(peer: Arc<Peer>, given: &Config, topic: &TopicOffsets, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let committed = wanted.isolation_level == "read_committed";
        if let Some(number) = wanted.partition
            && !topic.partitions.iter().any(|p| p.partition == number)
        {
            let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let text = format!("{}-{number}: {}", topic.topic.name, code.message());
            return Err(Failure::kafka(code, text));
        }
        let mut ranges = Vec::new();
        for p in topic
            .partitions
            .iter()
            .filter(|p| wanted.partition.is_none_or(|number| number == p.partition))
        {
            let tp = TopicPartition::new(Arc::clone(&topic.topic.name), p.partition);
            let log_end = if committed {
                p.last_stable_offset
            } else {
                p.high_watermark
            };
            let start = wanted.start_offset.unwrap_or(p.log_start_offset);
            if start < p.log_start_offset {
                let text = format!(
                    "offset {start} of {tp} is gone: the log starts at {}; scan from there",
                    p.log_start_offset
                );
                return Err(Failure::kafka(ErrorCode::OFFSET_OUT_OF_RANGE, text));
            }
            let end = wanted.end_offset.map_or(log_end, |end| end.min(log_end));
            if start < end {
                ranges.push(Range { tp, start, end });
            }
        }
        Ok(Self {
            peer,
            config: reader_config(given, wanted)?,
            by_timestamp: wanted.order == "timestamp",
            ranges,
        })
    }
}

/// The cluster's properties, and those that make a scan of a consumer.
fn reader_config(given: &Config, wanted: &Wanted<'_>) -> Result<Config, Failure> {
    let fetch_order = if wanted.order == "timestamp" {
        "timestamp"
    } else {
        "partition"
    };
    let own = [
        ("auto.offset.reset", "none"),
        ("enable.auto.commit", "false"),
        ("isolation.level", wanted.isolation_level),
        ("max.poll.records", POLL_RECORDS),
        ("fletchlog.fetch.order", fetch_order),
    ];
    given.clone().with(own).map_err(Failure::from)
}

/// Reads a plan.
pub struct Rows {
    consumer: Consumer,
    by_timestamp: bool,
    limit: Duration,
    /// Not read to their ends, in the order of the scan.
    open: VecDeque<Range>,
    /// What was read before its turn.
    ahead: BTreeMap<TopicPartition, VecDeque<RecordSpan>>,
    /// What comes next.
    ready: VecDeque<(TopicPartition, RecordSpan, i64)>,
}

impl Rows {
    /// Connects with the first records.
    ///
    /// # Errors
    /// The system gives no selector.
    pub fn open(plan: &Plan) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let transport = plan.peer.connect(&plan.config, &clock)?;
        let mut consumer = Consumer::new(plan.config.clone(), transport, clock)?;
        let partitions: Vec<_> = plan.ranges.iter().map(|range| range.tp.clone()).collect();
        consumer.assign(&partitions)?;
        for range in &plan.ranges {
            consumer.seek(&range.tp, range.start)?;
        }
        let limit_ms = u64::try_from(plan.config.int("default.api.timeout.ms")).unwrap_or(0);
        Ok(Self {
            consumer,
            by_timestamp: plan.by_timestamp,
            limit: Duration::from_millis(limit_ms),
            open: plan.ranges.iter().cloned().collect(),
            ahead: BTreeMap::new(),
            ready: VecDeque::new(),
        })
    }

    /// The next records and the end of their range; `None` at the end.
    ///
    /// # Errors
    /// What a poll fails with; nothing came for default.api.timeout.ms; interrupted.
    pub fn next(&mut self) -> Result<Option<(TopicPartition, RecordSpan, i64)>, Failure> {
        let began = Instant::now();
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            let Some(head) = self.open.front().cloned() else {
                return Ok(None);
            };
            self.poll()?;
            self.close_read_ones(&head)?;
            if self.ready.is_empty()
                && self.open.front().is_some_and(|range| range.tp == head.tp)
                && began.elapsed() > self.limit
            {
                let why = self
                    .consumer
                    .last_connection_failure()
                    .map_or_else(String::new, |why| format!(": {why}"));
                let text = format!(
                    "no records of {} within {} ms (default.api.timeout.ms){why}",
                    head.tp,
                    self.limit.as_millis()
                );
                return Err(Failure::timeout(text));
            }
        }
    }

    fn poll(&mut self) -> Result<(), Failure> {
        let polled = self.consumer.poll(POLL_MS, &mut wants_to_stop)?;
        let first = self.open.front().map(|range| range.tp.clone());
        for run in polled
            .row_order()
            .into_iter()
            .filter_map(|index| polled.runs.get(index))
        {
            let Some(range) = self.open.iter().find(|range| range.tp == run.tp) else {
                continue;
            };
            let spans = run.spans.iter().filter(|span| span.first_offset < range.end).cloned();
            if self.by_timestamp || first.as_ref() == Some(&run.tp) {
                self.ready.extend(spans.map(|span| (run.tp.clone(), span, range.end)));
            } else {
                self.ahead.entry(run.tp.clone()).or_default().extend(spans);
            }
        }
        self.pause_full_ones()?;
        Ok(())
    }

    /// Later partitions of which enough is kept are not asked for more.
    fn pause_full_ones(&mut self) -> Result<(), Failure> {
        let assigned = self.consumer.assignment();
        for (tp, spans) in &self.ahead {
            let kept: usize = spans.iter().map(|span| span.end - span.start).sum();
            if kept >= AHEAD && assigned.contains(tp) {
                self.consumer.pause(std::slice::from_ref(tp))?;
            }
        }
        Ok(())
    }

    /// Gives ranges up that were read to their ends, and goes on with the next one in the order.
    fn close_read_ones(&mut self, head: &Range) -> Result<(), Failure> {
        let consumer = &mut self.consumer;
        let assigned = consumer.assignment();
        let mut unread = Vec::new();
        // Of a partition that was read to its end before its turn the range is still open.
        for range in self.open.iter().filter(|range| assigned.contains(&range.tp)) {
            let position = consumer.position(&range.tp, 0, &mut || false);
            if position.is_ok_and(|position| position >= range.end) {
                continue;
            }
            unread.push(range.tp.clone());
        }
        if unread.len() < assigned.len() {
            consumer.assign(&unread)?;
        }
        let is_open = |range: &Range| unread.contains(&range.tp);
        if self.by_timestamp {
            self.open.retain(is_open);
            return Ok(());
        }
        while self.open.front().is_some_and(|range| !is_open(range)) {
            self.open.pop_front();
            let Some(next) = self.open.front() else { break };
            let kept = self.ahead.remove(&next.tp).unwrap_or_default();
            self.ready
                .extend(kept.into_iter().map(|span| (next.tp.clone(), span, next.end)));
        }
        if let Some(next) = self.open.front().filter(|next| next.tp != head.tp) {
            consumer.resume(std::slice::from_ref(&next.tp))?;
        }
        Ok(())
    }
}

/// Whether Ctrl-C was pressed. The reader of a stream of Arrow gets an error then, and the interpreter the signal again, after it.
fn wants_to_stop() -> bool {
    let _gil = Gil::hold();
    let stops = Python::try_attach(|py| {
        let stops = py.check_signals().is_err();
        if stops && let Ok(threads) = py.import("_thread") {
            drop(threads.call_method0("interrupt_main"));
        }
        stops
    });
    stops.unwrap_or(false)
}
