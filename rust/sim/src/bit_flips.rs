//! One flipped bit in a file of a partition: `verify` reports it, or all readers get the same as before (reliability C4-C7). A flipped bit
//! of a base offset, which no checksum covers, is also reported to a reader or to a writer at open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{
    AppendOrigin, FetchBound, LogConfig, LogError, OffsetCheckpoints, OpenMode, PartitionLog, inspect_segment,
    verify_partition,
};
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, TopicPartition};

use crate::rng::Rng;

const DIR: &str = "/data/t-0";
const NOW_MS: i64 = 1_700_000_000_000;

/// A closed partition in memory: one segment of about the given size, and a small one after it.
pub struct Partition {
    fs: Arc<dyn Fs>,
    /// Its files and their sizes.
    pub files: Vec<(PathBuf, usize)>,
    answers: Answers,
    /// First offset and timestamp of every batch of records.
    questions: Vec<(i64, i64)>,
    /// The positions of the base offsets of its batches.
    pub base_offsets: BTreeSet<(PathBuf, u64)>,
}

/// The results that readers get.
#[derive(Debug, PartialEq)]
struct Answers {
    bounds: (i64, i64, i64),
    epoch: (Option<i32>, (i32, i64)),
    read: Vec<Vec<u8>>,
    aborted: Vec<Option<Vec<(i64, i64)>>>,
    by_time: Vec<(i64, i64, i32)>,
}

fn config(segment_bytes: usize) -> LogConfig {
    LogConfig {
        segment_bytes: i32::try_from(segment_bytes).unwrap_or(i32::MAX),
        index_interval_bytes: 1024,
        ..LogConfig::default()
    }
}

fn fail(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Partition {
    /// Writes the partition, with three producers. One sends transactions, some of which are aborted.
    ///
    /// # Errors
    /// Those of the log.
    pub fn new(seed: u64, segment_bytes: usize) -> Result<Self, String> {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let mut rng = Rng::new(seed);
        let mode = OpenMode::Write {
            clean_shutdown: true,
            recovery_point: 0,
            log_start_offset: 0,
        };
        let tp = TopicPartition::new("t", 0);
        let dir = Path::new(DIR);
        let log = PartitionLog::open(Arc::clone(&fs), dir, tp, config(segment_bytes), mode, NOW_MS).map_err(fail)?;
        let mut sequences = [0i32; 3];
        let mut questions = Vec::new();
        while log.segments().len() < 2 || log.segments()[1].1 < 2000 {
            let producer = rng.below(3);
            let records = 1 + rng.below(6);
            let timestamp =
                NOW_MS + i64::try_from(questions.len()).unwrap_or(0) * 10 - i64::from(rng.below(3) == 0) * 25;
            let mut builder = BatchBuilder::with_capacity(1024);
            for _ in 0..records {
                let value: Vec<u8> = (0..rng.below(120)).map(|_| rng.bits().to_be_bytes()[0]).collect();
                builder.append(timestamp, None, Some(&value), &[]);
            }
            let producer_id = 1000 + i64::try_from(producer).unwrap_or(0);
            let params = BatchParams {
                producer_id,
                producer_epoch: 0,
                base_sequence: sequences[producer],
                transactional: producer == 2,
                ..BatchParams::default()
            };
            sequences[producer] += i32::try_from(records).unwrap_or(0);
            let info = log
                .append_as_leader(builder.build(&params), 3, AppendOrigin::Client, NOW_MS)
                .map_err(fail)?;
            questions.push((info.first_offset, timestamp));
            if producer == 2 {
                let marker = EndTxnMarker {
                    control_type: if rng.below(2) == 0 {
                        ControlType::Abort
                    } else {
                        ControlType::Commit
                    },
                    coordinator_epoch: 0,
                };
                let marker = build_marker(0, producer_id, 0, 3, timestamp, marker);
                log.append_as_leader(marker, 3, AppendOrigin::Coordinator, NOW_MS)
                    .map_err(fail)?;
            }
        }
        log.close().map_err(fail)?;
        let files = fs.read_dir(dir).map_err(fail)?;
        let files = files
            .into_iter()
            .map(|entry| (dir.join(entry.name), usize::try_from(entry.len).unwrap_or(0)))
            .collect();
        let report = verify_partition(&*fs, dir, NOW_MS, &mut OffsetCheckpoints::default()).map_err(fail)?;
        if !report.is_ok() || !report.holes.is_empty() {
            return Err(format!("an undamaged partition is called damaged: {report:?}"));
        }
        let answers = answers(&fs, &questions).map_err(fail)?;
        let mut base_offsets = BTreeSet::new();
        for segment in &report.segments {
            for batch in inspect_segment(&*fs, &segment.path).map_err(fail)? {
                base_offsets.insert((segment.path.clone(), batch.map_err(fail)?.position));
            }
        }
        Ok(Self {
            fs,
            files,
            answers,
            questions,
            base_offsets,
        })
    }

    /// Flips one bit, checks, and flips it back. Returns true if `verify` reported it, false if it makes no difference.
    ///
    /// # Errors
    /// The bit is not reported, and readers get something else.
    pub fn flip(&self, path: &Path, bit: usize) -> Result<bool, String> {
        let file = self.fs.open(path, true, false).map_err(fail)?;
        let position = (bit / 8) as u64;
        let byte = file.read_at(position, 1).map_err(fail)?[0];
        file.write_at(position, &[byte ^ 1 << (bit % 8)]).map_err(fail)?;
        let in_base_offset = (0..8).any(|i| {
            let start = position.checked_sub(i);
            start.is_some_and(|start| self.base_offsets.contains(&(path.to_path_buf(), start)))
        });
        let verdict = self.verdict().and_then(|reported| {
            if in_base_offset {
                self.is_reported_in_use().map(|()| reported)
            } else {
                Ok(reported)
            }
        });
        file.write_at(position, &[byte]).map_err(fail)?;
        verdict.map_err(|what| format!("{}: bit {bit} flipped: {what}", path.display()))
    }

    /// Checks that it is reported to a reader that reads everything, or to a writer that opens a copy.
    fn is_reported_in_use(&self) -> Result<(), String> {
        if read_through(&self.fs).is_err() {
            return Ok(());
        }
        let copy = MemoryFs::new();
        copy.create_dir_all(Path::new(DIR)).map_err(fail)?;
        for (path, _) in &self.files {
            copy.replace(path, &self.fs.read(path).map_err(fail)?).map_err(fail)?;
        }
        let mode = OpenMode::Write {
            clean_shutdown: true,
            recovery_point: self.answers.bounds.1,
            log_start_offset: 0,
        };
        let tp = TopicPartition::new("t", 0);
        match PartitionLog::open(Arc::new(copy), Path::new(DIR), tp, config(1 << 20), mode, NOW_MS) {
            Ok(log) => Err(format!(
                "only verify reports it; readers do not see it, and a writer would continue at offset {}",
                log.log_end_offset()
            )),
            Err(_) => Ok(()),
        }
    }

    fn verdict(&self) -> Result<bool, String> {
        match verify_partition(&*self.fs, Path::new(DIR), NOW_MS, &mut OffsetCheckpoints::default()) {
            // The error counts as a report.
            Err(_) => return Ok(true),
            Ok(report) if !report.is_ok() || !report.holes.is_empty() => return Ok(true),
            Ok(_) => {}
        }
        match answers(&self.fs, &self.questions) {
            Ok(found) if found == self.answers => Ok(false),
            Ok(_) => Err("verify reports nothing, and readers get something else".to_owned()),
            Err(error) => Err(format!("verify says nothing, and reading fails: {error}")),
        }
    }
}

fn open_for_reading(fs: &Arc<dyn Fs>) -> Result<PartitionLog, LogError> {
    let mode = OpenMode::ReadOnly {
        recovery_point: 0,
        log_start_offset: 0,
    };
    let tp = TopicPartition::new("t", 0);
    PartitionLog::open(Arc::clone(fs), Path::new(DIR), tp, config(1 << 20), mode, NOW_MS)
}

/// Reads from the start of the log to its end, as a scan does.
fn read_through(fs: &Arc<dyn Fs>) -> Result<(), LogError> {
    let log = open_for_reading(fs)?;
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let data = log.read(offset, 1 << 14, true, FetchBound::LogEnd)?;
        for batch in BatchIter::new(data.records) {
            offset = batch?.header().next_offset();
        }
    }
    Ok(())
}

fn answers(fs: &Arc<dyn Fs>, questions: &[(i64, i64)]) -> Result<Answers, LogError> {
    let log = open_for_reading(fs)?;
    let mut answers = Answers {
        bounds: (log.log_start_offset(), log.log_end_offset(), log.last_stable_offset()),
        epoch: (log.latest_epoch(), log.end_offset_for_epoch(3)),
        read: Vec::new(),
        aborted: Vec::new(),
        by_time: Vec::new(),
    };
    for (offset, timestamp) in questions {
        let data = log.read(*offset, 1, true, FetchBound::LastStableOffset)?;
        answers.read.push(data.records.to_vec());
        answers.aborted.push(data.aborted_transactions);
        let found = log.fetch_offset_by_timestamp(*timestamp, FetchBound::LogEnd)?;
        answers
            .by_time
            .push((found.timestamp, found.offset, found.leader_epoch));
    }
    Ok(answers)
}
