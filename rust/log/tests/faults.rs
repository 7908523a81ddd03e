//! A disk that fills up or fails, and one that must be asked to keep what it was given.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // helpers of tests, too, fail by panicking

mod common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::*;
use fletchlog_log::config::Durability;
use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError, MemoryFs};
use fletchlog_log::{AppendError, AppendOrigin, LogConfig, LogError, PartitionLog};

/// What goes wrong.
#[derive(Debug, Default)]
struct Faults {
    /// Bytes that `.log` files still take; below 0: no limit.
    room: AtomicI64,
    write_error: Mutex<Option<io::ErrorKind>>,
    sync_error: Mutex<Option<io::ErrorKind>>,
    syncs: AtomicU64,
    /// Whoever holds it holds up every fsync of a log.
    disk: Mutex<()>,
    writes: AtomicU64,
    /// Whoever holds it holds up every write to a log.
    write_gate: Mutex<()>,
    synced: Mutex<Vec<PathBuf>>,
    side_files_fail: Mutex<bool>,
    dir_sync_fails: Mutex<bool>,
}

#[derive(Debug)]
struct FaultyFs {
    inner: MemoryFs,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    faults: Arc<Faults>,
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

impl File for FaultyFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        self.inner.read_at(position, len)
    }
    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_into(position, buf)
    }
    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        if !is_log(&self.path) {
            return self.inner.write_at(position, data);
        }
        self.faults.writes.fetch_add(1, Ordering::Relaxed);
        drop(self.faults.write_gate.lock().unwrap());
        if let Some(kind) = *self.faults.write_error.lock().unwrap() {
            return Err(kind.into());
        }
        let room = self.faults.room.load(Ordering::Relaxed);
        if room >= 0 {
            // A short write, as a full disk makes it.
            let fits = usize::try_from(room).unwrap().min(data.len());
            self.inner.write_at(position, &data[..fits])?;
            self.faults
                .room
                .fetch_sub(i64::try_from(fits).unwrap(), Ordering::Relaxed);
            if fits < data.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            return Ok(());
        }
        self.inner.write_at(position, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn sync(&self) -> io::Result<()> {
        self.faults.synced.lock().unwrap().push(self.path.clone());
        if is_log(&self.path) {
            self.faults.syncs.fetch_add(1, Ordering::Relaxed);
            drop(self.faults.disk.lock().unwrap());
        }
        self.faults
            .sync_error
            .lock()
            .unwrap()
            .map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Fs for FaultyFs {
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        if write && !is_log(path) && *self.faults.side_files_fail.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inner = self.inner.open(path, write, create)?;
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_path_buf(),
            faults: Arc::clone(&self.faults),
        }))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.faults.synced.lock().unwrap().push(path.to_path_buf());
        self.inner.replace(path, data)
    }
    fn replace_unsynced(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.inner.replace(path, data)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified_ms(path, modified_ms)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.synced.lock().unwrap().push(path.to_path_buf());
        if *self.faults.dir_sync_fails.lock().unwrap() {
            return Err(io::ErrorKind::Other.into());
        }
        self.inner.sync_dir(path)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_all(dir)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.inner.lock_dir(dir)
    }
}

fn faulty(config: LogConfig) -> (Arc<dyn Fs>, PathBuf, PartitionLog, Arc<Faults>) {
    let faults = Arc::new(Faults {
        room: AtomicI64::new(-1),
        ..Faults::default()
    });
    let fs: Arc<dyn Fs> = Arc::new(FaultyFs {
        inner: MemoryFs::new(),
        faults: Arc::clone(&faults),
    });
    let dir = PathBuf::from("/data/t-0");
    let log = open(&fs, &dir, config, CLEAN);
    (fs, dir, log, faults)
}

fn try_append(log: &PartitionLog, sequence: i32) -> Result<i64, AppendError> {
    log.append_as_leader(idempotent(7, 0, sequence, 1), 0, AppendOrigin::Client, NOW)
        .map(|info| info.first_offset)
}

#[test]
fn a_full_disk_takes_no_offset_and_the_log_goes_on_when_there_is_room() {
    let (fs, dir, log, faults) = faulty(LogConfig::default());
    try_append(&log, 0).unwrap();
    let size = log.size();
    for room in [0, 1, 61, 69] {
        faults.room.store(room, Ordering::Relaxed);
        let error = try_append(&log, 1).unwrap_err();
        assert!(
            matches!(&error, AppendError::Log(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        assert_eq!((log.log_end_offset(), log.size()), (1, size));
        assert_eq!(
            fs.read(&dir.join("00000000000000000000.log")).unwrap().len() as u64,
            size
        );
        assert_eq!(offsets(&log), [0]);
    }
    faults.room.store(-1, Ordering::Relaxed);
    assert_eq!(try_append(&log, 1).unwrap(), 1);
    assert_eq!(offsets(&log), [0, 1]);
    log.close().unwrap();
}

#[test]
fn after_a_failed_write_nothing_is_written_until_the_log_is_reopened() {
    let (fs, dir, log, faults) = faulty(LogConfig::default());
    try_append(&log, 0).unwrap();
    *faults.write_error.lock().unwrap() = Some(io::ErrorKind::Other);
    assert!(matches!(
        try_append(&log, 1).unwrap_err(),
        AppendError::Log(LogError::Io { .. })
    ));
    *faults.write_error.lock().unwrap() = None;
    assert!(matches!(
        try_append(&log, 1).unwrap_err(),
        AppendError::Log(LogError::Fenced { .. })
    ));
    assert!(matches!(log.flush(), Err(LogError::Fenced { .. })));
    // What was there can be read.
    assert_eq!(offsets(&log), [0]);
    assert!(matches!(log.close(), Err(LogError::Fenced { .. })));
    let log = open(&fs, &dir, LogConfig::default(), UNCLEAN);
    assert_eq!(try_append(&log, 1).unwrap(), 1);
}

#[test]
fn under_fsync_an_append_answers_after_the_disk_and_is_not_visible_before() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..small_segments(200)
    });
    let before = faults.syncs.load(Ordering::Relaxed);
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    assert!(log.segments().len() > 2);
    assert!(faults.syncs.load(Ordering::Relaxed) >= before + 6);
    assert_eq!(log.high_watermark(), 6);
    // A repeat of what is on disk needs none.
    let syncs = faults.syncs.load(Ordering::Relaxed);
    try_append(&log, 5).unwrap();
    assert_eq!(faults.syncs.load(Ordering::Relaxed), syncs);

    *faults.sync_error.lock().unwrap() = Some(io::ErrorKind::Other);
    assert!(matches!(
        try_append(&log, 6).unwrap_err(),
        AppendError::Log(LogError::Io { action: "sync", .. })
    ));
    // A second fsync may succeed without the data: it is never asked.
    *faults.sync_error.lock().unwrap() = None;
    assert!(matches!(
        try_append(&log, 7).unwrap_err(),
        AppendError::Log(LogError::Fenced { .. })
    ));
    assert_eq!(log.high_watermark(), 6);
    assert_eq!(offsets(&log), (0..6).collect::<Vec<_>>());
    drop(log);
    let log = open(
        &fs,
        &dir,
        LogConfig {
            durability: Durability::Fsync,
            ..small_segments(200)
        },
        UNCLEAN,
    );
    assert!(log.log_end_offset() >= 6);
}

/// Appends from so many threads that all wait for the disk while it is held, then lets it go. What each was told.
fn append_together(log: &PartitionLog, faults: &Faults, threads: i64) -> Vec<Result<i64, AppendError>> {
    let disk = faults.disk.lock().unwrap();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..threads)
            .map(|producer| {
                scope.spawn(move || {
                    let appended = log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
                    appended.map(|info| info.first_offset)
                })
            })
            .collect();
        while log.log_end_offset() < threads {
            std::thread::yield_now();
        }
        // All are in the log, none is on disk, so nobody sees one.
        assert_eq!(log.high_watermark(), 0);
        assert_eq!(offsets(log), [0; 0]);
        drop(disk);
        producers.into_iter().map(|producer| producer.join().unwrap()).collect()
    })
}

fn synced_log() -> (PartitionLog, Arc<Faults>) {
    let (.., log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..LogConfig::default()
    });
    (log, faults)
}

#[test]
fn appends_that_wait_together_share_an_fsync() {
    let (log, faults) = synced_log();
    let before = faults.syncs.load(Ordering::Relaxed);
    let mut acknowledged: Vec<i64> = append_together(&log, &faults, 16)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, (0..16).collect::<Vec<_>>());
    assert_eq!((log.log_end_offset(), log.high_watermark()), (16, 16));
    // The one that was under way when the others came, and one for all of them.
    assert!(faults.syncs.load(Ordering::Relaxed) <= before + 2);
}

#[test]
fn a_failed_fsync_acknowledges_nobody_who_waited_for_it() {
    let (log, faults) = synced_log();
    *faults.sync_error.lock().unwrap() = Some(io::ErrorKind::Other);
    let syncs = faults.syncs.load(Ordering::Relaxed);
    let told = append_together(&log, &faults, 16);
    assert!(told.iter().all(Result::is_err), "{told:?}");
    let first = |e: &AppendError| matches!(e, AppendError::Log(LogError::Io { action: "sync", .. }));
    let others = |e: &AppendError| matches!(e, AppendError::Log(LogError::Fenced { .. }));
    let errors: Vec<_> = told.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors.iter().filter(|e| first(e)).count(), 1, "{errors:?}");
    assert_eq!(errors.iter().filter(|e| others(e)).count(), 15, "{errors:?}");
    // It is not asked again.
    assert_eq!(faults.syncs.load(Ordering::Relaxed), syncs + 1);
    assert_eq!(log.high_watermark(), 0);
}

/// A start that readers have seen must not go back with a crash, nor the end of a log that loses every segment.
#[test]
fn under_fsync_retention_is_seen_after_the_disk_and_not_before() {
    // Nothing is kept, or one batch of 70 bytes.
    for (retention_bytes, first_stays) in [(0, true), (70, false)] {
        let (fs, dir, log, faults) = faulty(LogConfig {
            durability: Durability::Fsync,
            segment_bytes: 100,
            retention_bytes,
            ..LogConfig::default()
        });
        for sequence in 0..3 {
            try_append(&log, sequence).unwrap();
        }
        *faults.dir_sync_fails.lock().unwrap() = true;
        assert!(matches!(log.delete_old_segments(NOW), Err(LogError::Io { .. })));
        assert_eq!((log.log_start_offset(), offsets(&log)), (0, vec![0, 1, 2]));
        // Without a segment the log would begin at 0 again: first the new one is on disk.
        assert_eq!(fs.exists(&dir.join("00000000000000000000.log")), first_stays);
        assert!(matches!(
            try_append(&log, 3).unwrap_err(),
            AppendError::Log(LogError::Fenced { .. })
        ));
    }
}

#[test]
fn side_files_that_cannot_be_written_fail_no_append() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        index_interval_bytes: 0,
        ..LogConfig::default()
    });
    *faults.side_files_fail.lock().unwrap() = true;
    // More than the entries that are kept back anyway.
    for i in 0..300 {
        try_append(&log, i).unwrap();
    }
    assert!(log.close().is_err());
    *faults.side_files_fail.lock().unwrap() = false;
    log.close().unwrap();
    assert_eq!(fs.read(&dir.join("00000000000000000000.index")).unwrap().len(), 299 * 8);
    let log = open(&fs, &dir, LogConfig::default(), CLEAN);
    assert_eq!(offsets(&log).len(), 300);
}

/// A roll that fails leaves no segment behind: it would stand in front of what the old segment takes afterwards.
#[test]
fn what_follows_a_roll_that_failed_is_found() {
    let (fs, dir, log, faults) = faulty(LogConfig {
        segment_bytes: 250,
        ..LogConfig::default()
    });
    try_append(&log, 0).unwrap();
    try_append(&log, 1).unwrap();
    *faults.side_files_fail.lock().unwrap() = true;
    let large = || log.append_as_leader(idempotent(7, 0, 2, 20), 0, AppendOrigin::Client, NOW);
    assert!(matches!(large(), Err(AppendError::Log(LogError::Io { .. }))));
    *faults.side_files_fail.lock().unwrap() = false;
    assert!(!fs.exists(&dir.join("00000000000000000002.log")));
    // A smaller batch needs no new segment, the next one does.
    for sequence in 2..5 {
        try_append(&log, sequence).unwrap();
    }
    assert_eq!(log.segments().len(), 2);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4]);
    drop(log);
    let log = open(&fs, &dir, LogConfig::default(), UNCLEAN);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4]);
}

/// Files and directories that were synced since the last call, sorted.
fn synced(faults: &Faults) -> Vec<String> {
    let mut names: Vec<String> = std::mem::take(&mut *faults.synced.lock().unwrap())
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn under_page_cache_appends_wait_for_no_disk_and_closing_syncs_each_changed_file_once() {
    let (fs, dir, log, faults) = faulty(small_segments(200));
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    let bases: Vec<i64> = log.segments().iter().map(|(base, _)| *base).collect();
    assert_eq!(bases, [0, 2, 4]);
    assert_eq!(synced(&faults), [""; 0]);
    log.close().unwrap();
    let mut expected: Vec<String> = bases
        .iter()
        .flat_map(|base| ["index", "log", "timeindex"].map(|kind| format!("{base:020}.{kind}")))
        .collect();
    expected.push(format!("{:020}.snapshot", 6));
    expected.extend(["leader-epoch-checkpoint".to_string(), "t-0".to_string()]);
    assert_eq!(synced(&faults), expected);

    // Opened and read, but not written: nothing to sync.
    let log = open(&fs, &dir, small_segments(200), CLEAN);
    assert_eq!(offsets(&log).len(), 6);
    assert_eq!(log.unsynced_files(), 0);
    log.flush().unwrap();
    log.close().unwrap();
    assert_eq!(synced(&faults), [""; 0]);

    // One append: what it touched, nothing of the old segments.
    let log = open(&fs, &dir, small_segments(400), CLEAN);
    try_append(&log, 6).unwrap();
    log.flush().unwrap();
    assert_eq!(synced(&faults), ["00000000000000000004.log"]);
    log.close().unwrap();
    let after = synced(&faults);
    assert!(after.contains(&format!("{:020}.snapshot", 7)), "{after:?}");
    assert!(
        !after.iter().any(|name| name.starts_with("00000000000000000002")),
        "{after:?}"
    );
}

#[test]
fn a_killed_writers_log_is_synced_before_its_recovery_point_moves() {
    let (fs, dir, log, faults) = faulty(small_segments(200));
    for i in 0..6 {
        try_append(&log, i).unwrap();
    }
    drop(log);
    assert_eq!(synced(&faults), [""; 0]);
    let log = open(&fs, &dir, small_segments(200), UNCLEAN);
    assert_eq!(log.recovery_point(), 0);
    assert_eq!(log.flush().unwrap(), 6);
    let after = synced(&faults);
    for base in [0, 2, 4] {
        assert!(after.contains(&format!("{base:020}.log")), "{after:?}");
    }
    assert!(after.contains(&"leader-epoch-checkpoint".to_string()), "{after:?}");
    assert_eq!(log.recovery_point(), 6);
}

/// Row C17 of docs/reliability.md: only who asked for the fsync waits for it.
#[test]
fn a_slow_fsync_holds_up_neither_readers_nor_other_logs() {
    let (fs, _, log, faults) = faulty(LogConfig {
        durability: Durability::Fsync,
        ..LogConfig::default()
    });
    try_append(&log, 0).unwrap();
    let other = open(&fs, Path::new("/data/u-0"), LogConfig::default(), CLEAN);
    let before = faults.syncs.load(Ordering::Relaxed);
    let held = faults.disk.lock().unwrap();
    std::thread::scope(|scope| {
        let append = scope.spawn(|| try_append(&log, 1));
        while faults.syncs.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        assert_eq!(
            offsets(&log),
            [0],
            "what is not on disk is not acknowledged, and not shown"
        );
        assert_eq!(try_append(&other, 0).unwrap(), 0);
        assert_eq!(offsets(&other), [0]);
        assert!(!append.is_finished());
        drop(held);
        assert_eq!(append.join().unwrap().unwrap(), 1);
    });
    assert_eq!(offsets(&log), [0, 1]);
}

/// A client that gave up the connection sends the batch again, while the first one still waits for the disk.
#[test]
fn a_repeat_is_not_acknowledged_before_the_batch_that_it_repeats_is_on_disk() {
    for failure in [None, Some(io::ErrorKind::Other)] {
        let (log, faults) = synced_log();
        let held = faults.disk.lock().unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| try_append(&log, 0));
            while log.log_end_offset() < 1 {
                std::thread::yield_now();
            }
            let repeat = scope.spawn(|| try_append(&log, 0));
            for _ in 0..1_000 {
                assert!(!repeat.is_finished(), "it is not on disk");
                std::thread::yield_now();
            }
            *faults.sync_error.lock().unwrap() = failure;
            drop(held);
            let told = [first, repeat].map(|append| append.join().unwrap().ok());
            assert_eq!(told, if failure.is_some() { [None; 2] } else { [Some(0); 2] });
        });
    }
}

/// The one comes to write when the other one's fsync is already under way.
#[test]
fn an_fsync_does_not_count_for_what_is_written_while_it_runs() {
    let (log, faults) = synced_log();
    let append = |producer| {
        let appended = log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
        appended.unwrap().first_offset
    };
    let until = |count: &AtomicU64, least| {
        while count.load(Ordering::Relaxed) < least {
            std::thread::yield_now();
        }
    };
    let (syncs, writes) = (&faults.syncs, &faults.writes);
    let before = syncs.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let disk = faults.disk.lock().unwrap();
        let first = scope.spawn(|| append(1));
        until(syncs, before + 1);
        // Waits for its turn to sync.
        let second = scope.spawn(|| append(2));
        while log.log_end_offset() < 2 {
            std::thread::yield_now();
        }
        let gate = faults.write_gate.lock().unwrap();
        let third = scope.spawn(|| append(3));
        until(writes, 3);
        drop(disk);
        assert_eq!([first.join().unwrap(), second.join().unwrap()], [0, 1]);
        let synced = syncs.load(Ordering::Relaxed);
        drop(gate);
        assert_eq!(third.join().unwrap(), 2);
        assert_eq!(
            syncs.load(Ordering::Relaxed),
            synced + 1,
            "the third batch is not on disk"
        );
    });
}

/// Recovery would keep the new segment, and go on behind the gap.
#[test]
fn a_segment_is_not_begun_before_the_one_before_it_is_on_disk() {
    let config = LogConfig {
        durability: Durability::Fsync,
        ..small_segments(100)
    };
    let (fs, dir, log, faults) = faulty(config);
    let new = dir.join("00000000000000000001.log");
    let append = |producer| log.append_as_leader(idempotent(producer, 0, 0, 1), 0, AppendOrigin::Client, NOW);
    std::thread::scope(|scope| {
        let disk = faults.disk.lock().unwrap();
        let first = scope.spawn(|| append(1).unwrap());
        while log.log_end_offset() < 1 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| append(2).unwrap());
        for _ in 0..1_000 {
            assert!(!fs.exists(&new));
            std::thread::yield_now();
        }
        drop(disk);
        assert_eq!([first, second].map(|a| a.join().unwrap().first_offset), [0, 1]);
    });
    assert!(fs.exists(&new));
}
