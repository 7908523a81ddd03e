//! What the tests of the log share.

pub mod compacted;
pub mod faulty;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::fs::{Fs, MemoryFs, RealFs};
use fletchlog_log::{AppendError, AppendInfo, AppendOrigin, FetchBound, LogConfig, OpenMode, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, RecordCursor, TopicPartition};

pub const NOW: i64 = 1_700_000_000_000;

pub const CLEAN: OpenMode = OpenMode::Write {
    clean_shutdown: true,
    recovery_point: 0,
    log_start_offset: 0,
};
pub const UNCLEAN: OpenMode = OpenMode::Write {
    clean_shutdown: false,
    recovery_point: 0,
    log_start_offset: 0,
};
pub const READ_ONLY: OpenMode = OpenMode::ReadOnly {
    recovery_point: 0,
    log_start_offset: 0,
};

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

pub fn golden_json(name: &str) -> serde_json::Value {
    let text = std::fs::read(golden(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    serde_json::from_slice(&text).unwrap()
}

pub fn memory() -> (Arc<dyn Fs>, PathBuf) {
    let fs = MemoryFs::with_clock(Arc::new(|| NOW));
    fs.create_dir_all(Path::new("/data")).unwrap();
    (Arc::new(fs), PathBuf::from("/data/t-0"))
}

pub fn real() -> Arc<dyn Fs> {
    Arc::new(RealFs::new())
}

pub fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

pub fn open(fs: &Arc<dyn Fs>, dir: &Path, config: LogConfig, mode: OpenMode) -> PartitionLog {
    PartitionLog::open(Arc::clone(fs), dir, tp(), config, mode, NOW).unwrap()
}

pub fn small_segments(segment_bytes: i32) -> LogConfig {
    LogConfig {
        segment_bytes,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

/// Plain records with values at given times.
pub fn batch(records: &[(i64, &[u8])]) -> Bytes {
    batch_of(&BatchParams::default(), records)
}

pub fn batch_of(params: &BatchParams, records: &[(i64, &[u8])]) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(1024);
    for (timestamp, value) in records {
        builder.append(*timestamp, Some(b"k"), Some(value), &[]);
    }
    builder.build(params)
}

pub fn idempotent(producer_id: i64, epoch: i16, sequence: i32, count: usize) -> Bytes {
    let params = BatchParams {
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        ..BatchParams::default()
    };
    batch_of(&params, &vec![(NOW, &b"v"[..]); count])
}

pub fn transactional(producer_id: i64, sequence: i32, count: usize) -> Bytes {
    let params = BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        transactional: true,
        ..BatchParams::default()
    };
    batch_of(&params, &vec![(NOW, &b"v"[..]); count])
}

pub fn marker(producer_id: i64, epoch: i16, commit: bool) -> Bytes {
    use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
    let control_type = if commit {
        ControlType::Commit
    } else {
        ControlType::Abort
    };
    build_marker(
        0,
        producer_id,
        epoch,
        -1,
        NOW,
        EndTxnMarker {
            control_type,
            coordinator_epoch: 0,
        },
    )
}

pub fn append(log: &PartitionLog, records: Bytes) -> AppendInfo {
    log.append_as_leader(records, 0, AppendOrigin::Client, NOW).unwrap()
}

pub fn code(result: Result<AppendInfo, AppendError>) -> i16 {
    match result {
        Ok(_) => 0,
        Err(AppendError::Refused { code, .. }) => code.code(),
        Err(AppendError::Log(e)) => panic!("the log failed: {e}"),
    }
}

/// Offset, timestamp and value of every record below the bound, read with slices of at most `max_bytes`.
pub fn read_all(log: &PartitionLog, bound: FetchBound, max_bytes: usize) -> Vec<(i64, i64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let info = log.read(offset, max_bytes, true, bound).unwrap();
        let before = offset;
        for batch in BatchIter::new(info.records) {
            let batch = batch.unwrap();
            batch.ensure_valid().unwrap();
            let slice = batch.records(usize::MAX).unwrap();
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&slice).unwrap() {
                if record.offset >= offset && !batch.header().is_control() {
                    out.push((
                        record.offset,
                        record.timestamp,
                        record.value.unwrap_or_default().to_vec(),
                    ));
                }
            }
            offset = offset.max(batch.header().next_offset());
        }
        if offset == before {
            return out;
        }
    }
}

pub fn offsets(log: &PartitionLog) -> Vec<i64> {
    read_all(log, FetchBound::HighWatermark, 1 << 20)
        .into_iter()
        .map(|(offset, ..)| offset)
        .collect()
}

pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Every file of a directory with its bytes.
pub fn files(dir: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

/// Unpacks an archive of the golden directory.
pub fn untar(name: &str, to: &Path) {
    let status = std::process::Command::new("tar")
        .arg("xzf")
        .arg(golden(name))
        .arg("-C")
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success(), "{name}");
}

pub fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}
