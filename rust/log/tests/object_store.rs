//! A log on an object store: the same answers as from the directory that it is a copy of, by few requests.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fletchlog_log::fs::{Fs, MemoryFs, Object, ObjectFs, ObjectStore, RealFs};
use fletchlog_log::tiered::open_store;
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, LogError, PartitionLog};
use proptest::prelude::*;

use crate::common::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A directory whose files are served as a store serves objects: by ranges, and only as long as they are as they were listed.
#[derive(Debug, Default)]
struct Served {
    root: PathBuf,
    requests: Mutex<Vec<(String, Range<u64>)>>,
    /// No answer before it is false.
    held: AtomicBool,
    waiting: AtomicUsize,
}

impl Served {
    fn of(root: &Path) -> Arc<Self> {
        Arc::new(Self {
            root: root.to_path_buf(),
            ..Self::default()
        })
    }

    fn take(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Object>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        if entry.path().is_dir() {
            walk(root, &entry.path(), found);
        } else {
            found.push(Object {
                key: entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned(),
                len: entry.metadata().unwrap().len(),
                modified_ms: 7,
            });
        }
    }
}

impl ObjectStore for Served {
    fn list(&self) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        walk(&self.root, &self.root, &mut found);
        Ok(found)
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        self.requests.lock().unwrap().push((object.key.clone(), range.clone()));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let bytes = fs::read(self.root.join(&object.key))?;
        if bytes.len() as u64 != object.len {
            return Err(Error::from(ErrorKind::NotFound));
        }
        Ok(Bytes::from(bytes).slice(range.start as usize..range.end as usize))
    }
}

fn mounted(store: &Arc<Served>) -> ObjectFs {
    open_store(store.clone(), Path::new("s3://bucket/prefix")).unwrap()
}

fn at(name: &str) -> PathBuf {
    Path::new("s3://bucket/prefix").join(name)
}

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 13) as u8).collect()
}

fn with_file(len: u64) -> (tempfile::TempDir, Arc<Served>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), content(len)).unwrap();
    let store = Served::of(dir.path());
    (dir, store)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_reads_give_the_bytes_of_the_object(
        len in 0..(6 * MIB),
        reads in proptest::collection::vec((0..(7 * MIB), 0..(2 * MIB) as usize), 1..20),
    ) {
        let (_dir, store) = with_file(len);
        let whole = content(len);
        let file = mounted(&store).open(&at("f"), false, false).unwrap();
        prop_assert_eq!(file.len().unwrap(), len);
        for (position, count) in reads {
            let from = whole.len().min(position as usize);
            let expected = &whole[from..whole.len().min(from + count)];
            prop_assert_eq!(&file.read_at(position, count).unwrap()[..], expected);
            let mut buffer = vec![0; count];
            let read = file.read_into(position, &mut buffer).unwrap();
            prop_assert_eq!(&buffer[..read], expected);
        }
    }
}

#[test]
fn a_stream_is_read_in_pieces_of_four_mib_and_a_lookup_in_one_page() {
    let (_dir, store) = with_file(64 * MIB);
    let file = mounted(&store).open(&at("f"), false, false).unwrap();
    for position in (0..64 * MIB).step_by(100_000) {
        file.read_at(position, 100_027).unwrap();
    }
    let ranges: Vec<_> = store.take().into_iter().map(|(_, range)| range).collect();
    assert_eq!(ranges[0], 0..256 * KIB);
    assert_eq!(ranges[1], 256 * KIB..4 * MIB);
    assert_eq!(
        ranges[2..],
        (1..16).map(|i| 4 * i * MIB..4 * (i + 1) * MIB).collect::<Vec<_>>()
    );

    let file = mounted(&store).open(&at("f"), false, false).unwrap();
    file.read_at(33 * MIB + 5, 61).unwrap();
    file.read_at(33 * MIB + 900, 61).unwrap();
    assert_eq!(store.take().len(), 1);
}

#[test]
fn many_streams_do_not_push_out_what_the_others_have_yet_to_read() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..100 {
        fs::write(dir.path().join(i.to_string()), content(4 * MIB)).unwrap();
    }
    let store = Served::of(dir.path());
    let mounted = mounted(&store);
    let files: Vec<_> = (0..100)
        .map(|i| mounted.open(&at(&i.to_string()), false, false).unwrap())
        .collect();
    for position in (0..4 * MIB).step_by(64 << 10) {
        for file in &files {
            file.read_at(position, 64 << 10).unwrap();
        }
    }
    let fetched: u64 = store.take().iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!(fetched, 400 * MIB);
}

#[test]
fn two_readers_of_the_same_bytes_cause_one_request() {
    let (dir, _) = with_file(MIB);
    let store = Arc::new(Served {
        root: dir.path().to_path_buf(),
        held: AtomicBool::new(true),
        ..Served::default()
    });
    let file = mounted(&store).open(&at("f"), false, false).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| file.read_at(10, 100).unwrap())).collect();
        while store.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Time for the others to come, too: what they must not do is to ask the store.
        (0..10_000).for_each(|_| std::thread::yield_now());
        store.held.store(false, Ordering::SeqCst);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), content(MIB)[10..110]);
        }
    });
    assert_eq!(store.take().len(), 1);
}

#[test]
fn a_failed_request_is_reported_and_the_next_read_tries_again() {
    let (dir, store) = with_file(MIB);
    let file = mounted(&store).open(&at("f"), false, false).unwrap();
    fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
    // Not `NotFound`, which a log takes for a file that its writer has removed.
    let kind = |result: Result<Bytes>| result.unwrap_err().kind();
    assert_eq!(kind(file.read_at(0, 10)), ErrorKind::StaleNetworkFileHandle);
    fs::rename(dir.path().join("g"), dir.path().join("f")).unwrap();
    assert_eq!(file.read_at(0, 10).unwrap(), content(10));
}

#[test]
fn names_are_those_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a/b/c", "a/b/d", "a/e", "f", "a.b/c"] {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), name).unwrap();
    }
    let objects = mounted(&Served::of(dir.path()));
    for name in ["", "a", "a/b", "a.b", "a/b/c", "f", "g", "a/x", ".."] {
        let real = dir.path().join(name);
        let listed = |fs: &dyn Fs, path: &Path| {
            let mut entries = fs.read_dir(path).map_err(|_| ())?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok::<_, ()>(entries)
        };
        let is_below = name != "..";
        assert_eq!(
            listed(&objects, &at(name)).ok(),
            listed(&RealFs::new(), &real).ok().filter(|_| is_below),
            "{name}"
        );
        assert_eq!(objects.exists(&at(name)), real.exists() && is_below, "{name}");
        if real.is_file() {
            assert_eq!(objects.read(&at(name)).unwrap(), fs::read(&real).unwrap());
            assert_eq!(objects.modified_ms(&at(name)).unwrap(), 7);
        }
    }
    for refused in [
        objects.replace(&at("f"), b"x"),
        objects.remove_file(&at("f")),
        objects.open(&at("f"), true, true).map(drop),
        objects.create_dir_all(&at("n")),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn opening_a_log_reads_its_end_and_an_object_that_changed_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = small_segments(4 << 20);
    let writer = open(&real(), &dir.path().join("t-0"), config.clone(), CLEAN);
    for i in 0..600 {
        append(&writer, batch(&[(NOW + i, &[b'x'; 20_000])]));
    }
    writer.close().unwrap();
    let store = Served::of(dir.path());
    let listed = store.list().unwrap();
    let objects: Arc<dyn Fs> = Arc::new(mounted(&store));
    let reader = open(&objects, &at("t-0"), config.clone(), READ_ONLY);
    assert_eq!(reader.segments().len(), 3);
    let opening = store.take();
    let logs: u64 = opening
        .iter()
        .filter(|(key, _)| key.ends_with(".log"))
        .map(|(_, range)| range.end - range.start)
        .sum();
    assert!(logs <= 512 * KIB && opening.len() <= 8, "{opening:?}");
    let direct = open(&real(), &dir.path().join("t-0"), config, READ_ONLY);
    let all = |log: &fletchlog_log::PartitionLog| read_all(log, FetchBound::HighWatermark, 100_000);
    assert_eq!(all(&reader), all(&direct));

    // Longer than it was listed.
    let last = reader.segments()[2].0;
    let path = dir.path().join(format!("t-0/{last:020}.log"));
    let mut changed = fs::read(&path).unwrap();
    changed.push(0);
    fs::write(&path, changed).unwrap();
    let stale: Arc<dyn Fs> =
        Arc::new(open_store(Arc::new(Frozen(store.clone(), listed)), Path::new("s3://bucket/prefix")).unwrap());
    store.take();
    let refused = PartitionLog::open(stale, &at("t-0"), tp(), LogConfig::default(), READ_ONLY, NOW);
    let Err(LogError::Io { source, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(source.kind(), ErrorKind::StaleNetworkFileHandle);
    let of_log = store
        .take()
        .into_iter()
        .filter(|(key, _)| key.ends_with(".log"))
        .count();
    assert_eq!(of_log, 1, "it is not asked for again and again");
}

/// A listing of some time ago.
#[derive(Debug)]
struct Frozen(Arc<Served>, Vec<Object>);

impl ObjectStore for Frozen {
    fn list(&self) -> Result<Vec<Object>> {
        Ok(self.1.clone())
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        self.0.read(object, range)
    }
}

#[test]
fn a_sealed_log_reads_as_the_log_beside_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let config = small_segments(2_000);
    let writer = open(&real(), &path, config.clone(), CLEAN);
    for i in 0..60 {
        let epoch = i / 30 * 5;
        let sent = writer.append_as_leader(transactional(7, i * 2, 2), epoch, AppendOrigin::Client, NOW);
        sent.unwrap();
        if i % 5 == 4 {
            let outcome = marker(7, 0, i % 2 == 0);
            writer
                .append_as_leader(outcome, epoch, AppendOrigin::Coordinator, NOW)
                .unwrap();
        }
    }
    let left = writer.append_as_leader(transactional(8, 0, 2), 5, AppendOrigin::Client, NOW);
    left.unwrap();
    let reader = open(&real(), &path, config.clone(), READ_ONLY);
    let out = MemoryFs::new();
    let files = reader.seal(&out).unwrap();
    // What the writer does from here on is not in the copy.
    append(&writer, batch(&[(NOW, b"later")]));
    for file in files {
        let bytes = fs::read(&file.source).unwrap();
        let len = file.len.map_or(bytes.len(), |len| len as usize);
        out.replace(&file.path, &bytes[..len]).unwrap();
    }
    let copy: Arc<dyn Fs> = Arc::new(out);
    let copied = open(&copy, &path, config, READ_ONLY);
    for bound in [FetchBound::LogEnd, FetchBound::LastStableOffset] {
        assert_eq!(read_all(&copied, bound, 1_000), read_all(&reader, bound, 1_000));
    }
    assert_eq!(copied.last_stable_offset(), reader.last_stable_offset());
    assert!(copied.last_stable_offset() < copied.log_end_offset());
    assert_eq!(copied.active_producers(), reader.active_producers());
    assert_eq!(copied.segments(), reader.segments());
    assert!(copied.segments().len() > 2);
    for epoch in 0..7 {
        assert_eq!(copied.end_offset_for_epoch(epoch), reader.end_offset_for_epoch(epoch));
    }
    assert_eq!((copied.latest_epoch(), copied.end_offset_for_epoch(0).0), (Some(5), 0));
}
