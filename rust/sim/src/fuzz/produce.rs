//! Whatever is sent: records that a log accepts can be read, at once and after it was reopened.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{
    AppendError, AppendOrigin, FetchBound, LogConfig, OffsetCheckpoints, OpenMode, PartitionLog, verify_partition,
};
use fletchlog_records::{BatchIter, Compression, RecordBatch, TimestampType, TopicPartition, next_batch_size};

use super::{Input, NOW_MS, Owned, mended, records_of, same};

const DIR: &str = "/data/t-0";

/// `[choices u8] [batches]`: every batch is one produce request, with a correct checksum.
pub(super) fn produce(data: &[u8]) {
    let mut input = Input(data);
    let choices = input.byte();
    let codecs = Compression::ALL;
    let config = LogConfig {
        compression_type: codecs.get(usize::from(choices & 7)).copied(),
        message_timestamp_type: match choices & 8 {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        },
        segment_bytes: 600,
        index_interval_bytes: 100,
        ..LogConfig::default()
    };
    let origin = if choices & 16 == 0 {
        AppendOrigin::Client
    } else {
        AppendOrigin::Coordinator
    };
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    let log = open(&fs, &config, false);
    let mut expected = Vec::new();
    for request in requests(&mended(input.0)) {
        append(&log, request, origin, &config, &mut expected);
        assert_eq!(next(&expected), log.log_end_offset());
    }
    same(&contents(&log), &expected);
    drop(log);
    // First reopened as after a kill, then as after a clean stop.
    let log = open(&fs, &config, false);
    same(&contents(&log), &expected);
    log.close().unwrap();
    let report = verify_partition(&*fs, Path::new(DIR), NOW_MS, &mut OffsetCheckpoints::default()).unwrap();
    assert!(report.is_ok(), "{report:?}");
    same(&contents(&open(&fs, &config, true)), &expected);
}

fn open(fs: &Arc<dyn Fs>, config: &LogConfig, clean_shutdown: bool) -> PartitionLog {
    let mode = OpenMode::Write {
        clean_shutdown,
        recovery_point: 0,
        log_start_offset: 0,
    };
    let tp = TopicPartition::new("t", 0);
    PartitionLog::open(Arc::clone(fs), Path::new(DIR), tp, config.clone(), mode, NOW_MS).unwrap()
}

/// Cuts the bytes at the ends of batches; the rest is a request too.
fn requests(bytes: &Bytes) -> Vec<Bytes> {
    let mut rest = bytes.clone();
    let mut requests = Vec::new();
    while let Ok(Some(size)) = next_batch_size(&rest)
        && size <= rest.len()
    {
        requests.push(rest.split_to(size));
    }
    requests.push(rest);
    requests
}

fn next(records: &[Owned]) -> i64 {
    records.last().map_or(0, |last| last.offset + 1)
}

fn append(log: &PartitionLog, request: Bytes, origin: AppendOrigin, config: &LogConfig, expected: &mut Vec<Owned>) {
    let end = log.log_end_offset();
    let info = match log.append_as_leader(request.clone(), 0, origin, NOW_MS) {
        Ok(info) => info,
        Err(AppendError::Refused { .. }) => {
            assert_eq!(log.log_end_offset(), end, "a refused batch leaves nothing");
            return;
        }
        Err(error) => panic!("{error:?}"),
    };
    if info.duplicate {
        assert!(info.last_offset < end, "a duplicate was appended before");
        return;
    }
    let sent = RecordBatch::parse(&request)
        .unwrap()
        .expect("a whole batch was accepted");
    let mut slice = sent.records(usize::MAX).unwrap();
    // The timestamp type that a producer sends is ignored: the topic's applies (Kafka: `setMaxTimestamp`).
    slice.timestamp_type = config.message_timestamp_type;
    slice.max_timestamp = NOW_MS;
    let (records, error) = records_of(&slice);
    assert_eq!(error, None, "an accepted batch can be read");
    assert_eq!((info.first_offset, info.last_offset + 1), (end, log.log_end_offset()));
    expected.extend(
        records
            .into_iter()
            .zip(end..)
            .map(|(record, offset)| Owned { offset, ..record }),
    );
}

/// Every record from the start of the log to its end.
pub(super) fn contents(log: &PartitionLog) -> Vec<Owned> {
    let mut found: Vec<Owned> = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let fetched = log.read(offset, 1, true, FetchBound::LogEnd).unwrap();
        let before = offset;
        for batch in BatchIter::new(fetched.records) {
            let batch = batch.unwrap();
            batch.ensure_valid().unwrap();
            let (records, error) = records_of(&batch.records(usize::MAX).unwrap());
            assert_eq!(error, None);
            found.extend(records);
            offset = batch.header().next_offset();
        }
        assert!(offset > before, "a read makes progress");
    }
    found
}
