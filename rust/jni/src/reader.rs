//! Reads one range of offsets, batch by batch, and reports which records are gone. The rules are those of
//! `python/fletchlog/spark/scan.py`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ArrayRef;
use fletchlog_api::ErrorCode;
use fletchlog_arrow::RowsBuilder;
use fletchlog_broker::BrokerError;
use fletchlog_log::scan::{Scan, ScanError, ScanOrder, ScanRange};
use fletchlog_log::{FetchBound, LogError, PartitionLog};
use fletchlog_records::{TimeRange, TopicPartition};

use crate::columns::{Asked, write_addresses};
use crate::directories;

/// Most rows of a batch: more are no quicker in Spark.
const BATCH_ROWS: usize = 65_536;
/// Rows to count in one call: between two calls Spark checks whether the task was stopped.
const COUNTED_ROWS: u64 = 1 << 20;

/// What to read.
pub(crate) struct Range {
    path: PathBuf,
    tp: TopicPartition,
    offsets: std::ops::Range<i64>,
    bound: FetchBound,
}

impl Range {
    pub(crate) fn new(
        path: String,
        topic: &str,
        partition: i32,
        offsets: std::ops::Range<i64>,
        committed: bool,
    ) -> Self {
        let bound = if committed {
            FetchBound::LastStableOffset
        } else {
            FetchBound::HighWatermark
        };
        Self {
            path: PathBuf::from(path),
            tp: TopicPartition::new(topic, partition),
            offsets,
            bound,
        }
    }

    /// The log; `None`: the partition does not exist.
    fn log(&self) -> Result<Option<Arc<PartitionLog>>, String> {
        let broker = directories::open(&self.path)?;
        // Checks the directory: a topic may have been deleted or recreated since the broker was opened.
        broker.topics(false).map_err(|error| error.to_string())?;
        match broker.partition_log(&self.tp) {
            Ok(log) => Ok(Some(log)),
            Err(BrokerError::Kafka {
                code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                ..
            }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Offsets that the log has.
    fn span(&self, log: &PartitionLog) -> std::ops::Range<i64> {
        log.log_start_offset()..log.end(self.bound)
    }
}

/// The result of [`Reader::next`].
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Rows(i32),
    /// Records are gone; the caller decides whether to continue.
    Lost(String),
    End,
}

/// The progress of a reader.
enum State {
    New,
    Reading(Scan),
    Done,
}

/// Reads one range. A batch of rows is valid until the next one is asked for.
pub(crate) struct Reader {
    range: Range,
    state: State,
    /// Losses that are not reported yet.
    lost: VecDeque<String>,
    /// Occurred while rows were waiting to be returned.
    failure: Option<ScanError>,
    builder: RowsBuilder,
    asked: Asked,
    /// Without columns the rows are counted.
    counts: bool,
    /// The rows that the caller is reading.
    rows: Vec<ArrayRef>,
}

impl Reader {
    /// A reader at the start of the range. Nothing is opened yet.
    pub(crate) fn new(range: Range, asked: Asked) -> Self {
        Self {
            range,
            state: State::New,
            lost: VecDeque::new(),
            failure: None,
            builder: RowsBuilder::of(&asked.scanned, TimeRange::ALL),
            counts: asked.scanned.is_empty(),
            asked,
            rows: Vec::new(),
        }
    }

    /// The next rows and where their columns are, or what is lost, or the end.
    pub(crate) fn next(&mut self, out: &mut [i64]) -> Result<Step, String> {
        self.rows.clear();
        loop {
            if let Some(lost) = self.lost.pop_front() {
                return Ok(Step::Lost(lost));
            }
            let read = match (self.failure.take(), &mut self.state) {
                (Some(failure), _) => Err(failure),
                (None, State::New) => {
                    self.begin()?;
                    continue;
                }
                (None, State::Done) => return Ok(Step::End),
                (None, State::Reading(scan)) if self.counts => count(scan),
                (None, State::Reading(scan)) => fill(scan, &mut self.builder),
            };
            match read {
                Ok(0) => self.state = State::Done,
                Ok(rows) if self.counts => return Ok(Step::Rows(rows)),
                Err(failure) if self.builder.rows() == 0 => self.go_on_behind(&failure)?,
                read => {
                    self.failure = read.err();
                    let batch = self.builder.finish();
                    self.rows = self.asked.of(&batch, &self.range.tp)?;
                    write_addresses(&self.rows, out)?;
                    return Ok(Step::Rows(i32::try_from(batch.num_rows()).unwrap_or(i32::MAX)));
                }
            }
        }
    }

    /// Opens the log and compares the range with what it has.
    fn begin(&mut self) -> Result<(), String> {
        let (tp, wanted) = (&self.range.tp, self.range.offsets.clone());
        let Some(log) = self.range.log()? else {
            let last = wanted.end - 1;
            let lost = format!("{tp} is gone; offsets {} to {last} were to be read", wanted.start);
            self.lost.push_back(lost);
            self.state = State::Done;
            return Ok(());
        };
        let span = self.range.span(&log);
        if span.start > wanted.start {
            let (start, first) = (span.start, wanted.start);
            let lost = format!("the log of {tp} starts at {start}; offsets from {first} were to be read");
            self.lost.push_back(lost);
        }
        if span.end < wanted.end {
            let (end, last) = (span.end, wanted.end - 1);
            let lost = format!("the log of {tp} ends at {end}; offsets up to {last} were to be read");
            self.lost.push_back(lost);
        }
        self.read_from(log, span.start.max(wanted.start), span.end.min(wanted.end));
        Ok(())
    }

    fn read_from(&mut self, log: Arc<PartitionLog>, start: i64, end: i64) {
        self.state = State::Done;
        if start >= end {
            return;
        }
        match ScanRange::resolve(log, Some(start), Some(end), self.range.bound) {
            Ok(range) => self.state = State::Reading(Scan::new(&[range], self.range.bound, ScanOrder::Offset)),
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Reports records that were deleted while they were read as lost, and continues after them; any other failure is an
    /// error.
    ///
    /// Kafka: `KafkaDataConsumer#getEarliestAvailableOffsetBetween`.
    fn go_on_behind(&mut self, failure: &ScanError) -> Result<(), String> {
        let gone = match failure {
            ScanError::Gone { offset, .. } => *offset,
            ScanError::Unreadable { offset, source, .. }
                if matches!(**source, LogError::OffsetOutOfRange { .. } | LogError::Gone { .. }) =>
            {
                *offset
            }
            other => return Err(other.to_string()),
        };
        let end = self.range.offsets.end;
        let log = self.range.log()?;
        let left = log.as_ref().map(|log| self.range.span(log));
        let left = left.filter(|span| gone < span.end && span.start < end);
        let start = left.map_or(end, |span| span.start.max(gone));
        let tp = &self.range.tp;
        self.lost.push_back(format!(
            "records of {tp} from offset {gone} on were deleted while they were read; what is left of the range begins at {start}"
        ));
        self.state = State::Done;
        if let Some(log) = log {
            self.read_from(log, start, end);
        }
        Ok(())
    }
}

/// Counts rows; 0 at the end. A failure after counted rows is returned by the next call.
fn count(scan: &mut Scan) -> Result<i32, ScanError> {
    let mut rows = 0;
    while rows < COUNTED_ROWS {
        match scan.next_count() {
            Ok(Some(count)) => rows += count,
            Err(failure) if rows == 0 => return Err(failure),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(i32::try_from(rows).unwrap_or(i32::MAX))
}

/// Decodes rows until a batch is full; 0 at the end.
fn fill(scan: &mut Scan, builder: &mut RowsBuilder) -> Result<i32, ScanError> {
    while let Some(batch) = scan.next_batch()? {
        let room = builder.room(BATCH_ROWS, batch.slice);
        if room == 0 {
            break;
        }
        let appended = builder.append_records(batch.tp, batch.slice, batch.cursor, room, batch.start, batch.end);
        appended.map_err(|error| ScanError::Unreadable {
            tp: batch.tp.clone(),
            offset: batch.slice.base_offset,
            source: Arc::new(error.into()),
        })?;
    }
    Ok(i32::try_from(builder.rows()).unwrap_or(i32::MAX))
}
