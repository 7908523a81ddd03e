//! No checksum covers a base offset: one that is changed is found because offsets must follow each other (row C7 of
//! docs/reliability.md).

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{CleanerOptions, FetchBound, LogConfig, LogError, OpenMode, PartitionLog};
use fletchlog_records::{BatchIter, RecordBatch};

const LOG: &str = "/data/t-0/00000000000000000000.log";

/// Each bit of a base offset.
const BITS: usize = 64;

fn config(segment_bytes: i32) -> LogConfig {
    LogConfig {
        cleanup_compact: true,
        ..small_segments(segment_bytes)
    }
}

/// A closed log of batches with so many records each.
struct Written {
    files: Vec<(String, Vec<u8>)>,
    config: LogConfig,
    /// Of each batch: segment, position, first and last offset, bytes.
    batches: Vec<(String, usize, i64, i64, Vec<u8>)>,
    end: i64,
}

impl Written {
    fn new(counts: &[usize], segment_bytes: i32) -> Self {
        let (fs, dir) = memory();
        let config = config(segment_bytes);
        let log = open(&fs, &dir, config.clone(), CLEAN);
        for (i, count) in counts.iter().enumerate() {
            append(&log, batch(&vec![(NOW + i as i64, &b"0123456789"[..]); *count]));
        }
        let end = log.log_end_offset();
        log.close().unwrap();
        let names = fs.read_dir(&dir).unwrap().into_iter().map(|entry| dir.join(entry.name));
        let files: Vec<_> = names
            .map(|path| (path.to_str().unwrap().to_owned(), fs.read(&path).unwrap()))
            .collect();
        let mut batches = Vec::new();
        for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".log")) {
            let mut position = 0;
            while let Some(batch) = RecordBatch::parse(&bytes[position..].to_vec().into()).unwrap() {
                let header = batch.header();
                let bytes = batch.bytes().to_vec();
                let size = bytes.len();
                batches.push((name.clone(), position, header.base_offset, header.last_offset(), bytes));
                position += size;
            }
        }
        Self {
            files,
            config,
            batches,
            end,
        }
    }

    /// The files with one bit of a base offset flipped.
    fn flipped(&self, which: usize, bit: usize) -> Arc<dyn Fs> {
        let (name, position, ..) = &self.batches[which];
        let fs = MemoryFs::with_clock(Arc::new(|| NOW));
        fs.create_dir_all(Path::new("/data/t-0")).unwrap();
        for (path, bytes) in &self.files {
            let mut bytes = bytes.clone();
            if path == name {
                bytes[position + 7 - bit / 8] ^= 1 << (bit % 8);
            }
            fs.replace(Path::new(path), &bytes).unwrap();
        }
        Arc::new(fs)
    }

    fn open(&self, fs: &Arc<dyn Fs>, mode: OpenMode) -> Result<PartitionLog, LogError> {
        PartitionLog::open(
            Arc::clone(fs),
            Path::new("/data/t-0"),
            tp(),
            self.config.clone(),
            mode,
            NOW,
        )
    }

    /// Reads at every offset. What is answered is right; returns whether anything was refused.
    fn some_read_is_refused(&self, log: &PartitionLog, what: &str) -> bool {
        let mut refused = false;
        for max_bytes in [1, 100, 1 << 20] {
            for offset in 0..self.end {
                let read = match log.read(offset, max_bytes, true, FetchBound::HighWatermark) {
                    Ok(read) => read.records,
                    Err(LogError::Damaged { .. }) => {
                        refused = true;
                        continue;
                    }
                    Err(e) => panic!("{what}: {e}"),
                };
                // A reader passes over a part of a batch at the end.
                let mut whole = BatchIter::new(read.clone());
                for batch in whole.by_ref() {
                    batch.unwrap();
                }
                let read = &read[..whole.position()];
                let first = self.batches.iter().position(|batch| batch.3 >= offset).unwrap();
                let rest: Vec<u8> = self.batches[first..].iter().flat_map(|batch| batch.4.clone()).collect();
                assert!(!read.is_empty() && rest.starts_with(read), "{what}: read at {offset}");
            }
        }
        refused
    }
}

fn write_mode(clean_shutdown: bool, recovery_point: i64) -> OpenMode {
    OpenMode::Write {
        clean_shutdown,
        recovery_point,
        log_start_offset: 0,
    }
}

fn is_damaged(opened: &Result<PartitionLog, LogError>) -> bool {
    matches!(opened, Err(LogError::Damaged { .. }))
}

/// Many batches between two index entries, an entry for each batch, several segments.
fn logs() -> [Written; 3] {
    [
        Written::new(&[3; 10], 1 << 20),
        Written::new(&[1; 24], 1 << 20),
        Written::new(&[2, 1, 3, 1, 1, 2, 1, 4, 1, 1, 2, 2, 1, 3], 400),
    ]
}

#[test]
fn a_flipped_bit_of_a_base_offset_gives_no_reader_another_record_and_no_writer_an_offset_twice() {
    for log in &logs() {
        for which in 0..log.batches.len() {
            for bit in 0..BITS {
                let what = format!("bit {bit} of batch {which} of {}", log.batches.len());
                let fs = log.flipped(which, bit);
                let last = which == log.batches.len() - 1;
                match log.open(&fs, READ_ONLY) {
                    // What would contradict a greater offset of the very last batch is in no file that a reader beside a writer
                    // could trust.
                    Ok(reader) if last && reader.log_end_offset() > log.end => {}
                    Ok(reader) => assert!(log.some_read_is_refused(&reader, &what), "{what}: no read is refused"),
                    other => assert!(is_damaged(&other), "{what}: {other:?}"),
                }
                for clean_shutdown in [true, false] {
                    match log.open(&log.flipped(which, bit), write_mode(clean_shutdown, log.end)) {
                        Ok(writer) => {
                            assert_eq!(writer.log_end_offset(), log.end, "{what}, clean {clean_shutdown}");
                            assert!(
                                log.some_read_is_refused(&writer, &what),
                                "{what}: opened, and no read is refused"
                            );
                            assert_eq!(append(&writer, batch(&[(NOW, b"new")])).first_offset, log.end, "{what}");
                        }
                        other => assert!(is_damaged(&other), "{what}, clean {clean_shutdown}: {other:?}"),
                    }
                }
            }
        }
    }
}

/// Behind the recovery point a torn write can have left such a batch: the log is cut there, as at any batch that is not whole.
#[test]
fn behind_the_recovery_point_a_log_is_cut_at_a_batch_that_goes_back() {
    let log = &logs()[0];
    let fs = log.flipped(5, 0);
    let (base, size) = (log.batches[5].2, log.batches[5].1);
    let opened = log.open(&fs, write_mode(false, base)).unwrap();
    assert_eq!((opened.log_end_offset(), opened.size()), (base, size as u64));
    assert!(fs.exists(Path::new(&format!("{LOG}.torn-{base}"))));
    assert!(is_damaged(&log.open(&log.flipped(5, 0), write_mode(false, base + 1))));
}

#[test]
fn the_cleaner_leaves_a_log_alone_whose_offsets_do_not_follow_each_other() {
    let log = &logs()[2];
    for which in 0..3 {
        let fs = log.flipped(which, 1);
        let before: Vec<_> = log
            .files
            .iter()
            .map(|(path, _)| fs.read(Path::new(path)).unwrap())
            .collect();
        let opened = log.open(&fs, write_mode(true, log.end)).unwrap();
        let cleanable = opened.cleanable(Some(0), NOW).unwrap();
        let refused = opened.clean(&cleanable, &CleanerOptions::default(), NOW, &mut || false);
        assert!(matches!(refused, Err(LogError::Damaged { .. })), "{which}: {refused:?}");
        let after: Vec<_> = log
            .files
            .iter()
            .map(|(path, _)| fs.read(Path::new(path)).unwrap())
            .collect();
        assert_eq!(before, after, "{which}");
    }
}

/// A segment whose only batch has an offset at the end of the numbers, or below them.
#[test]
fn no_log_ends_at_a_negative_offset() {
    let whole = batch(&[(NOW, b"a")]);
    for (segment, base) in [(0, -5), (i64::MAX, i64::MAX), (0, i64::MAX), (0, i64::MIN)] {
        let (fs, dir) = memory();
        fs.create_dir_all(&dir).unwrap();
        let mut bytes = whole.to_vec();
        bytes[..8].copy_from_slice(&i64::to_be_bytes(base));
        fs.replace(&dir.join(format!("{segment:020}.log")), &bytes).unwrap();
        for mode in [READ_ONLY, CLEAN, UNCLEAN] {
            let opened = PartitionLog::open(Arc::clone(&fs), &dir, tp(), LogConfig::default(), mode, NOW);
            assert!(is_damaged(&opened), "{base} in {segment}, {mode:?}: {opened:?}");
        }
    }
}
