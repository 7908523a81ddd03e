//! The log against the machine, in one run, as one line of JSON.
//!
//! `cargo run --release -p fletchlog-benches --example log_bench -- [DIR]` (default: the system's temporary directory; DIR
//! decides which disk is measured). Ratios are against a baseline of the same run: `write` of the same bytes, a CRC pass
//! over the same bytes, one fsync per record, and bare writes with an fsync each.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fletchlog_log::config::Durability;
use fletchlog_log::fs::{Fs, RealFs};
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, OpenMode, PartitionLog};
use fletchlog_records::crc::crc32c;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

const NOW: i64 = 1_700_000_000_000;
const ROUNDS: usize = 5;
/// Bytes appended and recovered: larger than any processor cache, small enough for the page cache.
const BYTES: usize = 512 * 1024 * 1024;
/// Bytes that the bare CRC goes over again and again: more than a processor cache holds.
const MEMORY: usize = 64 * 1024 * 1024;
const BATCH: usize = 16 * 1024;
const PARTITIONS: usize = 10_000;
const PRODUCER_IDS: i64 = 1_000_000;
/// How long records are written and synced.
const SYNCED: Duration = Duration::from_secs(3);

const fn write(clean_shutdown: bool) -> OpenMode {
    OpenMode::Write {
        clean_shutdown,
        recovery_point: 0,
        log_start_offset: 0,
    }
}

/// A batch that is at most `size` bytes, of records with ten-byte values.
fn batch(size: usize) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(size);
    let records = (size.saturating_sub(61) / 18).max(1);
    for _ in 0..records {
        builder.append(NOW, None, Some(b"0123456789"), &[]);
    }
    builder.build(&BatchParams::default())
}

fn open(fs: &Arc<dyn Fs>, dir: &Path, config: LogConfig, mode: OpenMode) -> PartitionLog {
    PartitionLog::open(Arc::clone(fs), dir, TopicPartition::new("t", 0), config, mode, NOW).unwrap()
}

fn append(log: &PartitionLog, records: &Bytes) {
    log.append_as_leader(records.clone(), 0, AppendOrigin::Client, NOW)
        .unwrap();
}

fn gigabytes(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e9
}

/// Full batches into the page cache, against `write` of the same bytes to a file: (GB/s ours, GB/s write).
fn appending(fs: &Arc<dyn Fs>, root: &Path) -> (f64, f64) {
    let records = batch(BATCH);
    let count = BYTES / records.len();
    let (mut ours, mut floor) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let path = root.join("floor");
        let file = File::create(&path).unwrap();
        let start = Instant::now();
        for i in 0..count {
            file.write_all_at(&records, (i * records.len()) as u64).unwrap();
        }
        floor = floor.max(gigabytes(count * records.len(), start.elapsed()));
        fs::remove_file(path).unwrap();

        let dir = root.join("append");
        let log = open(fs, &dir, LogConfig::default(), write(true));
        let start = Instant::now();
        for _ in 0..count {
            append(&log, &records);
        }
        ours = ours.max(gigabytes(count * records.len(), start.elapsed()));
        drop(log);
        fs::remove_dir_all(dir).unwrap();
    }
    (ours, floor)
}

/// Opening after a kill, which reads and checks everything, against the CRC alone over the same bytes in memory.
fn recovering(fs: &Arc<dyn Fs>, root: &Path) -> (f64, f64) {
    let dir = root.join("recover");
    let log = open(fs, &dir, LogConfig::default(), write(true));
    let records = batch(BATCH);
    while log.size() < BYTES as u64 {
        append(&log, &records);
    }
    drop(log);
    let memory: Vec<u8> = records.iter().copied().cycle().take(MEMORY).collect();
    let (mut ours, mut floor) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let log = open(fs, &dir, LogConfig::default(), write(false));
        ours = ours.max(gigabytes(BYTES, start.elapsed()));
        black_box(log.log_end_offset());
        drop(log);
        let start = Instant::now();
        for _ in 0..BYTES / MEMORY {
            for batch in memory.chunks(records.len()) {
                black_box(crc32c(black_box(batch)));
            }
        }
        floor = floor.max(gigabytes(BYTES, start.elapsed()));
    }
    fs::remove_dir_all(dir).unwrap();
    (ours, floor)
}

/// Seconds to open, append one batch to, read and close 10,000 logs that were closed cleanly.
fn many(fs: &Arc<dyn Fs>, root: &Path) -> [f64; 4] {
    let records = batch(BATCH);
    let dirs: Vec<PathBuf> = (0..PARTITIONS).map(|i| root.join(format!("t-{i}"))).collect();
    let close = |logs: &[PartitionLog]| {
        for log in logs {
            log.prepare_close().unwrap();
        }
        fs.sync_all(root).unwrap();
        for log in logs {
            log.close().unwrap();
        }
    };
    let open_all = || -> Vec<PartitionLog> {
        dirs.iter()
            .map(|dir| open(fs, dir, LogConfig::default(), write(true)))
            .collect()
    };
    let logs = open_all();
    logs.iter().for_each(|log| append(log, &records));
    close(&logs);
    drop(logs);
    let mut laps = [0.0; 4];
    let start = Instant::now();
    let logs = open_all();
    laps[0] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    logs.iter().for_each(|log| append(log, &records));
    laps[1] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for log in &logs {
        black_box(log.read(0, 1 << 20, true, FetchBound::HighWatermark).unwrap());
    }
    laps[2] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    close(&logs);
    laps[3] = start.elapsed().as_secs_f64();
    laps
}

/// Records a second from `threads` producers of one record at a time over `partitions` logs, each acknowledged when it is
/// on disk.
fn synced_producers(fs: &Arc<dyn Fs>, root: &Path, threads: usize, partitions: usize) -> f64 {
    let config = LogConfig {
        durability: Durability::Fsync,
        ..LogConfig::default()
    };
    let logs: Vec<PartitionLog> = (0..partitions)
        .map(|i| {
            open(
                fs,
                &root.join(format!("fsync-{threads}-{i}")),
                config.clone(),
                write(true),
            )
        })
        .collect();
    let record = batch(80);
    let start = Instant::now();
    let end = start + SYNCED;
    let total: u64 = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..threads)
            .map(|i| {
                let (log, record) = (&logs[i % partitions], &record);
                scope.spawn(move || {
                    let mut count = 0;
                    while Instant::now() < end {
                        append(log, record);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        producers.into_iter().map(|producer| producer.join().unwrap()).sum()
    });
    total as f64 / start.elapsed().as_secs_f64()
}

/// What the disk allows: records a second from `threads` threads, each of which writes the same bytes to a file of its own and syncs it.
fn synced_writes(root: &Path, threads: usize) -> f64 {
    let record = batch(80);
    let files: Vec<File> = (0..threads)
        .map(|i| File::create(root.join(format!("bare-{threads}-{i}"))).unwrap())
        .collect();
    let start = Instant::now();
    let end = start + SYNCED;
    let write = |file: &File| {
        let mut count = 0;
        while Instant::now() < end {
            file.write_all_at(&record, count * record.len() as u64).unwrap();
            file.sync_data().unwrap();
            count += 1;
        }
        count
    };
    let write = &write;
    let total: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(move || write(file))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    total as f64 / start.elapsed().as_secs_f64()
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0
}

/// The first record of a producer.
fn of_producer(builder: &mut BatchBuilder, producer_id: i64) -> Bytes {
    builder.append(NOW, None, Some(b"0123456789"), &[]);
    builder.build(&BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchParams::default()
    })
}

/// One record of each of a million producer ids in one log, closed and opened again: (records/s, bytes of memory for an id, bytes of
/// the snapshot for an id, seconds to close, seconds to open).
fn many_producers(fs: &Arc<dyn Fs>, root: &Path) -> [f64; 5] {
    let dir = root.join("producers-0");
    let log = open(fs, &dir, LogConfig::default(), write(true));
    let before = resident();
    let mut builder = BatchBuilder::with_capacity(BATCH);
    let start = Instant::now();
    for producer_id in 0..PRODUCER_IDS {
        append(&log, &of_producer(&mut builder, producer_id));
    }
    let ids = PRODUCER_IDS as f64;
    let rate = ids / start.elapsed().as_secs_f64();
    let memory = (resident() - before) / ids;
    let start = Instant::now();
    log.close().unwrap();
    let close = start.elapsed().as_secs_f64();
    drop(log);
    let snapshot = fs::metadata(dir.join(format!("{PRODUCER_IDS:020}.snapshot")))
        .unwrap()
        .len();
    let start = Instant::now();
    let log = open(fs, &dir, LogConfig::default(), write(true));
    let laps = [
        rate,
        memory,
        snapshot as f64 / ids,
        close,
        start.elapsed().as_secs_f64(),
    ];
    let repeat = log.append_as_leader(of_producer(&mut builder, 7), 0, AppendOrigin::Client, NOW);
    assert_eq!(repeat.unwrap().first_offset, 7, "known as a repeat");
    laps
}

fn main() {
    let mut args = std::env::args().skip(1);
    let root = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("fletchlog-bench-{}", std::process::id()));
    let only = args.next();
    let wanted = |section: &str| only.as_deref().is_none_or(|only| only == section);
    fs::create_dir_all(&root).unwrap();
    let real: Arc<dyn Fs> = Arc::new(RealFs::new());
    let mut figures: Vec<(&str, f64)> = Vec::new();
    if wanted("append") {
        let (append, write) = appending(&real, &root);
        figures.extend([
            ("append_gb_s", append),
            ("write_gb_s", write),
            ("append_to_write", append / write),
        ]);
    }
    if wanted("recover") {
        let (recover, crc) = recovering(&real, &root);
        figures.extend([("recover_gb_s", recover), ("crc_gb_s", crc)]);
    }
    if wanted("many") {
        let names = ["open_10000_s", "append_10000_s", "read_10000_s", "close_10000_s"];
        figures.extend(names.into_iter().zip(many(&real, &root)));
    }
    if wanted("fsync") {
        let [alone, shared, own] =
            [(1, 1), (64, 1), (64, 64)].map(|(producers, logs)| synced_producers(&real, &root, producers, logs));
        let [bare_alone, bare_own] = [1, 64].map(|threads| synced_writes(&root, threads));
        figures.extend([
            ("fsync_1_producer_records_s", alone),
            ("fsync_1_bare_records_s", bare_alone),
            ("fsync_64_producers_records_s", shared),
            ("fsync_64_producers_64_logs_records_s", own),
            ("fsync_64_bare_64_files_records_s", bare_own),
            ("group_commit", shared / alone),
            ("fsync_64_logs_to_bare", own / bare_own),
        ]);
    }
    if wanted("producers") {
        let names = [
            "producer_ids_records_s",
            "producer_id_bytes",
            "producer_id_snapshot_bytes",
            "producer_ids_close_s",
            "producer_ids_open_s",
        ];
        figures.extend(names.into_iter().zip(many_producers(&real, &root)));
    }
    let figures: Vec<String> = figures
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value:.2}"))
        .collect();
    println!("{{{}}}", figures.join(", "));
    fs::remove_dir_all(root).unwrap();
}
