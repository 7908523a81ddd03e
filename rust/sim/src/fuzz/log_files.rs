//! The small files beside a log: whatever they contain, reads of the log return the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use fletchlog_log::checkpoint::{
    read_checkpoint, read_meta_properties, read_offset_checkpoint, read_partition_metadata, write_checkpoint,
    write_meta_properties, write_offset_checkpoint, write_partition_metadata,
};
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::scan::ScanOrder;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, OffsetCheckpoints, OpenMode, PartitionLog, verify_partition};
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use super::{Input, NOW_MS, Owned, same, scan};

const DIR: &str = "/data/t-0";
/// Size of the header of a `.snapshot`: version, CRC, number of entries. The CRC covers what follows byte 6.
const SNAPSHOT_CRC: std::ops::Range<usize> = 2..6;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

fn open(fs: &Arc<dyn Fs>, mode: OpenMode) -> Result<PartitionLog, fletchlog_log::LogError> {
    let tp = TopicPartition::new("t", 0);
    PartitionLog::open(Arc::clone(fs), Path::new(DIR), tp, config(), mode, NOW_MS)
}

const fn write(clean_shutdown: bool) -> OpenMode {
    OpenMode::Write {
        clean_shutdown,
        recovery_point: 0,
        log_start_offset: 0,
    }
}

/// Appends the records of a valid log: several segments, two producers, one of them transactional, and timestamps that go up and down.
fn append_all(log: &PartitionLog) {
    let put = |bytes: Bytes, origin| log.append_as_leader(bytes, 0, origin, NOW_MS).unwrap();
    for i in 0..24i64 {
        let mut builder = BatchBuilder::with_capacity(256);
        for j in 0..2 {
            builder.append(NOW_MS + (i * 7 + j) % 50, Some(b"key"), Some(&[b'v'; 20]), &[]);
        }
        let transactional = i % 2 == 1;
        let batch = builder.build(&BatchParams {
            producer_id: 1 + i % 2,
            producer_epoch: 0,
            base_sequence: i32::try_from(i / 2 * 2).unwrap(),
            transactional,
            ..BatchParams::default()
        });
        put(batch, AppendOrigin::Client);
        if i % 6 == 5 {
            let control_type = if i % 4 == 1 {
                ControlType::Commit
            } else {
                ControlType::Abort
            };
            let marker = EndTxnMarker {
                control_type,
                coordinator_epoch: 0,
            };
            put(build_marker(0, 2, 0, 0, NOW_MS, marker), AppendOrigin::Coordinator);
        }
    }
}

/// The files of that log after a clean stop, and the results of reads.
struct Sound {
    files: BTreeMap<PathBuf, Vec<u8>>,
    records: Vec<Owned>,
    /// Bytes and position of a read at every offset.
    reads: Vec<(Bytes, u64)>,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    let log = open(&fs, write(true)).unwrap();
    append_all(&log);
    let records = super::produce::contents(&log);
    let reads = (0..log.log_end_offset()).map(|offset| read(&log, offset)).collect();
    log.close().unwrap();
    let files = files(&*fs);
    assert!(files.len() > 12, "several segments with all their files");
    Sound { files, records, reads }
});

fn read(log: &PartitionLog, offset: i64) -> (Bytes, u64) {
    let fetched = log.read(offset, 300, true, FetchBound::LogEnd).unwrap();
    (fetched.records, fetched.position)
}

pub(super) fn files(fs: &dyn Fs) -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = Path::new(DIR);
    let entries = fs.read_dir(dir).unwrap();
    let paths = entries.iter().map(|entry| dir.join(&entry.name));
    paths.map(|path| (path.clone(), fs.read(&path).unwrap())).collect()
}

fn sound_with(changed: &[(&Path, &[u8])]) -> Arc<dyn Fs> {
    let fs = MemoryFs::with_clock(Arc::new(|| NOW_MS));
    fs.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in &SOUND.files {
        fs.replace(path, bytes).unwrap();
    }
    for (path, bytes) in changed {
        fs.replace(path, bytes).unwrap();
    }
    Arc::new(fs)
}

/// The files whose names have this ending.
fn named(suffix: &str) -> Vec<&'static Path> {
    let paths = SOUND.files.keys().map(PathBuf::as_path);
    paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

/// `[file and mode u8] [contents of that file]`: an index of any segment with arbitrary contents.
pub(super) fn index(data: &[u8]) {
    let mut input = Input(data);
    let choice = usize::from(input.byte());
    let mut indexes = named("index");
    indexes.sort();
    let path = indexes[choice / 3 % indexes.len()];
    let fs = sound_with(&[(path, input.0)]);
    let before = files(&*fs);
    let mode = match choice % 3 {
        0 => write(true),
        1 => write(false),
        _ => OpenMode::ReadOnly {
            recovery_point: 0,
            log_start_offset: 0,
        },
    };
    let log = open(&fs, mode).unwrap();
    assert_eq!(log.log_end_offset(), SOUND.reads.len() as i64);
    for (offset, expected) in (0..).zip(&SOUND.reads) {
        assert_eq!(read(&log, offset), *expected, "offset {offset} with {path:?}");
        let committed = log.read(offset, 300, true, FetchBound::LastStableOffset).unwrap();
        assert_eq!((committed.records, committed.position), *expected);
    }
    for time in NOW_MS - 1..NOW_MS + 52 {
        let found = log.fetch_offset_by_timestamp(time, FetchBound::LogEnd).unwrap();
        let record = usize::try_from(found.offset).ok().map(|offset| &SOUND.records[offset]);
        // A time index can be wrong in undetectable ways, but the result is always a record with a timestamp that is late enough.
        match record {
            Some(record) => assert!(record.timestamp == found.timestamp && found.timestamp >= time),
            None => assert_eq!(found.timestamp, -1),
        }
    }
    log.fetch_offset_by_timestamp(-3, FetchBound::LogEnd).unwrap();
    let log = Arc::new(log);
    let mut scanned = scan::whole(&[Arc::clone(&log)], FetchBound::HighWatermark, ScanOrder::Timestamp);
    scanned.sort_by_key(|record| record.offset);
    let is_data = |record: &&Owned| record.key.as_deref() == Some(&b"key"[..]);
    same(
        &scanned,
        &SOUND.records.iter().filter(is_data).cloned().collect::<Vec<_>>(),
    );
    let log = Arc::into_inner(log).unwrap();
    if matches!(mode, OpenMode::ReadOnly { .. }) {
        assert_eq!(files(&*fs), before, "a read-only log never writes");
        return;
    }
    appends_and_closes(&fs, log);
}

/// Checks that after an append and a clean stop the directory is valid, or `verify` reports the damaged file beside the log.
fn appends_and_closes(fs: &Arc<dyn Fs>, log: PartitionLog) {
    let end = log.log_end_offset();
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(NOW_MS, None, Some(b"one more"), &[]);
    let batch = builder.build(&BatchParams::default());
    log.append_as_leader(batch, 0, AppendOrigin::Client, NOW_MS).unwrap();
    log.close().unwrap();
    drop(log);
    let report = verify_partition(&**fs, Path::new(DIR), NOW_MS, &mut OffsetCheckpoints::default()).unwrap();
    assert_eq!(report.damaged, []);
    let log = open(fs, write(true)).unwrap();
    assert_eq!(log.log_end_offset(), end + 1);
    same(&super::produce::contents(&log)[..SOUND.records.len()], &SOUND.records);
}

/// `[choices u8] [contents]` of a producer snapshot; bit 7 of the first byte leaves its checksum as it is.
pub(super) fn snapshot(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let mut bytes = input.0.to_vec();
    if choice & 0x80 == 0 && bytes.len() >= SNAPSHOT_CRC.end {
        let crc = crc32c(&bytes[SNAPSHOT_CRC.end..]);
        bytes[SNAPSHOT_CRC].copy_from_slice(&crc.to_be_bytes());
    }
    let snapshots = named(".snapshot");
    let path = snapshots[usize::from(choice >> 1 & 63) % snapshots.len()];
    let fs = sound_with(&[(path, &bytes)]);
    let log = open(&fs, write(choice & 1 == 0)).unwrap();
    same(&super::produce::contents(&log), &SOUND.records);
    log.close().unwrap();
    drop(log);
    // The next start and stop write the same snapshot.
    let first = newest_snapshot(&*fs);
    let log = open(&fs, write(true)).unwrap();
    log.close().unwrap();
    drop(log);
    assert_eq!(newest_snapshot(&*fs), first);
    appends_and_closes(&fs, open(&fs, write(true)).unwrap());
}

fn newest_snapshot(fs: &dyn Fs) -> Option<(PathBuf, Vec<u8>)> {
    let is_snapshot = |path: &Path| path.extension().is_some_and(|extension| extension == "snapshot");
    files(fs).into_iter().rfind(|(path, _)| is_snapshot(path))
}

/// `[contents]` of any text file of a log directory: contents that can be read are the same after writing them.
pub(super) fn checkpoint(data: &[u8]) {
    let fs = MemoryFs::with_clock(Arc::new(|| NOW_MS));
    let dir = Path::new("/d");
    fs.create_dir_all(dir).unwrap();
    for name in ["checkpoint", "meta.properties", "partition.metadata"] {
        fs.replace(&dir.join(name), data).unwrap();
    }
    let path = &dir.join("checkpoint");
    if let Ok(lines) = read_checkpoint(&fs, path) {
        write_checkpoint(&fs, path, &lines).unwrap();
        assert_eq!(read_checkpoint(&fs, path).unwrap(), lines);
    }
    if let Ok(offsets) = read_offset_checkpoint(&fs, path) {
        write_offset_checkpoint(&fs, path, &offsets).unwrap();
        assert_eq!(read_offset_checkpoint(&fs, path).unwrap(), offsets);
    }
    if let Ok(Some(properties)) = read_meta_properties(&fs, dir) {
        write_meta_properties(&fs, dir, &properties).unwrap();
        assert_eq!(read_meta_properties(&fs, dir).unwrap(), Some(properties));
    }
    if let Ok(Some(id)) = read_partition_metadata(&fs, dir) {
        write_partition_metadata(&fs, dir, &id).unwrap();
        assert_eq!(read_partition_metadata(&fs, dir).unwrap(), Some(id));
    }
    leader_epochs(data);
}

/// Checks that a log with any leader epochs opens, or that the error names the file.
fn leader_epochs(data: &[u8]) {
    let path = Path::new(DIR).join("leader-epoch-checkpoint");
    let fs = sound_with(&[(&path, data)]);
    for mode in [
        OpenMode::ReadOnly {
            recovery_point: 0,
            log_start_offset: 0,
        },
        write(false),
        write(true),
    ] {
        match open(&fs, mode) {
            Ok(log) => {
                assert_eq!(log.log_end_offset(), SOUND.reads.len() as i64);
                for epoch in [-1, 0, 1, i32::MAX] {
                    let (found, end) = log.end_offset_for_epoch(epoch);
                    assert!(found <= epoch.max(-1) || epoch == -1, "{found} for {epoch}");
                    assert!(end <= log.log_end_offset());
                }
            }
            Err(error) => assert!(error.to_string().contains("leader-epoch-checkpoint"), "{error}"),
        }
    }
}
