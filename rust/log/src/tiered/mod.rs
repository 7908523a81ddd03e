//! The objects that Aiven's plug-in for Kafka's tiered storage writes, as a Kafka log directory that is only read.
//!
//! ```text
//! <key.prefix><topic>-<topic id>/<partition>/<base offset>-<segment id>.log            the segment, in compressed chunks or as it is
//!                                                                     .indexes        its indexes, back to back
//!                                                                     .rsm-manifest   which topic, offsets, chunks and indexes
//! ```
//! The manifest is uploaded last: objects without one are no segment. Sources: the plug-in's `ObjectKeyFactory`, `KafkaRemoteStorageManager`
//! and `SegmentManifestV1`.
//!
//! | file that is shown | where it comes from |
//! |---|---|
//! | `<topic>-<partition>/<base>.log` | the `.log` object, up to the segment that follows |
//! | `.index`, `.timeindex`, `.txnindex` | the `.indexes` object; the first two not for a segment that is cut: they would lead behind its end |
//! | `<end>.snapshot` | the `.indexes` object: producers at the end of the segment. Kafka: `RemoteLogManager#copyLogSegment` |
//! | `leader-epoch-checkpoint` | the `.indexes` object of the newest segment |
//! | `partition.metadata`, `meta.properties`, `log-start-offset-checkpoint` | made |

mod chunk_index;
mod lineage;
mod local;
mod manifest;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, scope};

use bytes::{Bytes, BytesMut};
use fletchlog_records::Compression;

use self::chunk_index::ChunkIndex;
use self::local::LocalDirectory;
use self::manifest::{Manifest, Segment};
use crate::batch_walk::offsets_in;
use crate::checkpoint::{checkpoint_text, partition_metadata_text};
use crate::file_name::{
    LEADER_EPOCH_CHECKPOINT, LOG, LOG_START_OFFSET_CHECKPOINT, META_PROPERTIES, OFFSET_INDEX, PARTITION_METADATA,
    SNAPSHOT, TIME_INDEX, TXN_INDEX,
};
use crate::fs::{Object, ObjectFs, ObjectStore};
use crate::leader_epoch::epochs_in;
use crate::sync::lock;
use crate::txn_index;

const MANIFEST: &str = ".rsm-manifest";
const INDEXES: &str = ".indexes";
/// A manifest lists at most some 14 MiB of chunks.
const MAX_MANIFEST: u64 = 16 << 20;
/// Manifests read at a time.
const THREADS: usize = 16;
/// Bytes of recently read chunks that are kept; the latest chunk is kept even if it is larger.
const RECENT: usize = 32 << 20;
/// Bytes of a segment that are searched at a time.
const BLOCK: u64 = 1 << 20;

/// Lists a store and shows its objects as files, those of tiered storage as a log directory. `root` is what paths begin with.
///
/// # Errors
/// Those of the listing and of reading the manifests: which object is missing, damaged or of a kind that is not read, and what to do.
pub fn open_store(store: Arc<dyn ObjectStore>, root: &Path) -> Result<ObjectFs> {
    let objects = store.list()?;
    if !is_tiered(&objects) {
        return Ok(ObjectFs::new(store, objects, root));
    }
    open_listing(store, objects, root)
}

/// The objects in a directory and in the two levels of directories below it, as files of a Kafka log directory; `None` if there is no segment
/// of tiered storage.
///
/// # Errors
/// As [`open_store`].
pub fn open_local(root: &Path) -> Result<Option<ObjectFs>> {
    let store = LocalDirectory::new(root);
    let objects = store.list()?;
    if !is_tiered(&objects) {
        return Ok(None);
    }
    open_listing(Arc::new(store), objects, root).map(Some)
}

fn open_listing(store: Arc<dyn ObjectStore>, objects: Vec<Object>, root: &Path) -> Result<ObjectFs> {
    let tiered = TieredStore::open(store, objects)?;
    let shown = tiered.list()?;
    Ok(ObjectFs::new(Arc::new(tiered), shown, root))
}

/// Whether a listing shows objects of tiered storage and not a log directory.
fn is_tiered(objects: &[Object]) -> bool {
    let is_directory = |object: &Object| object.key.rsplit('/').next() == Some(META_PROPERTIES);
    objects.iter().any(|object| object.key.ends_with(MANIFEST)) && !objects.iter().any(is_directory)
}

/// A file that is shown.
#[derive(Debug)]
struct ShownFile {
    len: u64,
    modified_ms: i64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Made(Bytes),
    /// Bytes of an object, from a position on.
    Part(Object, u64),
    Chunks(Object, ChunkIndex),
}

/// The chunks of objects that were read last.
type Recent = VecDeque<(String, u64, Bytes)>;

/// The objects of a store as files.
#[derive(Debug)]
struct TieredStore {
    store: Arc<dyn ObjectStore>,
    files: BTreeMap<String, ShownFile>,
    recent: Mutex<Recent>,
}

fn wrong(key: &str, reason: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{key}: {reason}"))
}

/// An error of the store, with the object that it is about.
fn of_object(object: &Object, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", object.key))
}

impl TieredStore {
    /// Reads every manifest.
    ///
    /// # Errors
    /// Those of the store. `InvalidData`: which object is missing, damaged or of a kind that is not read, and what to do.
    pub fn open(store: Arc<dyn ObjectStore>, objects: Vec<Object>) -> Result<Self> {
        let manifests: Vec<&Object> = objects.iter().filter(|object| object.key.ends_with(MANIFEST)).collect();
        let read = in_parallel(&manifests, |manifest| read_segment(&*store, manifest))?;
        let mut partitions: BTreeMap<(String, i32), Vec<Segment>> = BTreeMap::new();
        for segment in read.into_iter().flatten() {
            let Manifest { topic, partition, .. } = &segment.manifest;
            partitions.entry((topic.clone(), *partition)).or_default().push(segment);
        }
        check_ids(partitions.values().flatten())?;
        let objects = objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        let mut tiered = Self {
            store,
            files: BTreeMap::new(),
            recent: Mutex::default(),
        };
        tiered.add_made(META_PROPERTIES.to_owned(), "version=1\nnode.id=1\n".to_owned());
        let mut starts = Vec::new();
        for ((topic, partition), segments) in partitions {
            let name = format!("{topic}-{partition}");
            if let Some(start) = tiered.add_partition(&name, segments, &objects)? {
                starts.push(format!("{topic} {partition} {start}"));
            }
        }
        tiered.add_made(LOG_START_OFFSET_CHECKPOINT.to_owned(), checkpoint_text(&starts));
        Ok(tiered)
    }

    fn add_made(&mut self, key: String, text: String) {
        let made = ShownFile {
            len: text.len() as u64,
            modified_ms: 0,
            content: Content::Made(text.into()),
        };
        self.files.insert(key, made);
    }

    fn add_part(&mut self, key: String, object: &Object, range: &Range<u64>) {
        let part = ShownFile {
            len: range.end - range.start,
            modified_ms: object.modified_ms,
            content: Content::Part(object.clone(), range.start),
        };
        self.files.insert(key, part);
    }

    /// Shows the segments of a partition as its directory. Returns where its log starts, as the newest segment knows it.
    fn add_partition(
        &mut self,
        name: &str,
        segments: Vec<Segment>,
        objects: &HashMap<String, Object>,
    ) -> Result<Option<i64>> {
        let Some(newest) = segments
            .iter()
            .max_by_key(|segment| lineage::newness(&segment.manifest))
        else {
            return Ok(None);
        };
        let indexes = indexes_of(newest, objects)?;
        let epochs = &newest.manifest.indexes.epochs;
        let text = self.fetch(indexes, epochs.clone())?;
        let lineage = lineage_in(&text).ok_or_else(|| {
            let reason =
                "segmentIndexes.leaderEpoch of its manifest leads to no leader-epoch-checkpoint; restore the object";
            wrong(&indexes.key, reason)
        })?;
        self.add_part(format!("{name}/{LEADER_EPOCH_CHECKPOINT}"), indexes, epochs);
        let id = partition_metadata_text(&newest.manifest.topic_id);
        self.add_made(format!("{name}/{PARTITION_METADATA}"), id);
        let mut reached = None;
        for (segment, end) in lineage::choose(segments, &lineage) {
            let base = segment.manifest.base_offset;
            if let Some(reached) = reached.filter(|reached| *reached < base) {
                log::warn!("{name}: no object has the offsets {reached} to {}", base - 1);
            }
            reached = Some(end);
            self.add_segment(name, segment, end, objects)?;
        }
        Ok(lineage.values().next().copied().filter(|start| *start > 0))
    }

    /// Shows the records of a segment below an offset.
    fn add_segment(&mut self, name: &str, segment: Segment, end: i64, objects: &HashMap<String, Object>) -> Result<()> {
        let indexes = indexes_of(&segment, objects)?;
        let Segment { stem, manifest } = segment;
        let log = object(objects, &stem, LOG)?;
        if log.len != manifest.object_len {
            let reason = format!(
                "it has {} bytes, and its manifest says {}; restore the object",
                log.len, manifest.object_len
            );
            return Err(wrong(&log.key, &reason));
        }
        let file = |offset: i64, suffix: &str| format!("{name}/{offset:020}{suffix}");
        let base = manifest.base_offset;
        let content = match manifest.chunks {
            None => Content::Part(log.clone(), 0),
            Some(chunks) => Content::Chunks(log.clone(), chunks),
        };
        let mut shown = ShownFile {
            len: manifest.size,
            modified_ms: log.modified_ms,
            content,
        };
        let mut txn = manifest.indexes.txn;
        if end < manifest.end_offset {
            shown.len = self.position_of(&shown, end)?;
            txn = self.txns_below(indexes, txn, end)?;
        } else {
            self.add_part(file(base, OFFSET_INDEX), indexes, &manifest.indexes.offset);
            self.add_part(file(base, TIME_INDEX), indexes, &manifest.indexes.time);
        }
        if !txn.is_empty() {
            self.add_part(file(base, TXN_INDEX), indexes, &txn);
        }
        if !manifest.indexes.snapshot.is_empty() {
            self.add_part(file(manifest.end_offset, SNAPSHOT), indexes, &manifest.indexes.snapshot);
        }
        self.files.insert(file(base, LOG), shown);
        Ok(())
    }

    /// Position of the first batch at or after an offset.
    fn position_of(&self, log: &ShownFile, offset: i64) -> Result<u64> {
        let mut position = 0;
        while position < log.len {
            let block = self.bytes_of(log, position..(position + BLOCK).min(log.len))?;
            let mut at = 0;
            while let Some((base_offset, _, size)) = block.get(at..).and_then(offsets_in) {
                if base_offset >= offset {
                    return Ok(position + at as u64);
                }
                at += size;
            }
            // Bytes that are not a batch are reported when they are read.
            if at == 0 {
                break;
            }
            position += at as u64;
        }
        Ok(log.len)
    }

    /// The entries of a transaction index whose markers are below an offset.
    fn txns_below(&self, indexes: &Object, txn: Range<u64>, offset: i64) -> Result<Range<u64>> {
        if txn.is_empty() {
            return Ok(txn);
        }
        let bytes = self.fetch(indexes, txn.clone())?;
        Ok(txn.start..txn.start + txn_index::bytes_below(&bytes, offset) as u64)
    }

    fn fetch(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        self.store
            .read(object, range)
            .map_err(|error| of_object(object, &error))
    }

    fn bytes_of(&self, file: &ShownFile, range: Range<u64>) -> Result<Bytes> {
        match &file.content {
            Content::Made(bytes) => {
                let at = |position: u64| usize::try_from(position).map_or(bytes.len(), |at| at.min(bytes.len()));
                Ok(bytes.slice(at(range.start)..at(range.end)))
            }
            Content::Part(object, start) => self.fetch(object, start + range.start..start + range.end),
            Content::Chunks(object, chunks) => self.decompressed(object, chunks, &range),
        }
    }

    /// Returns the bytes of a range. Chunks that are not cached are read with one request.
    fn decompressed(&self, object: &Object, chunks: &ChunkIndex, range: &Range<u64>) -> Result<Bytes> {
        let mut wanted = chunks.chunks_of(range);
        let mut out = BytesMut::new();
        let mut add = |chunk: u64, bytes: &Bytes| {
            let start = chunks.in_segment(chunk).start;
            let at = |position: u64| {
                usize::try_from(position.saturating_sub(start)).map_or(bytes.len(), |at| at.min(bytes.len()))
            };
            out.extend_from_slice(&bytes[at(range.start)..at(range.end)]);
        };
        while !wanted.is_empty()
            && let Some(bytes) = self.recent(&object.key, wanted.start)
        {
            add(wanted.start, &bytes);
            wanted.start += 1;
        }
        if let Some(last) = wanted.end.checked_sub(1).filter(|_| !wanted.is_empty()) {
            let begin = chunks.in_object(wanted.start).start;
            let read = self.fetch(object, begin..chunks.in_object(last).end)?;
            for chunk in wanted {
                let place = chunks.in_object(chunk);
                let at = |position: u64| usize::try_from(position - begin).map_or(read.len(), |at| at.min(read.len()));
                let len = usize::try_from(chunks.in_segment(chunk).end - chunks.in_segment(chunk).start).unwrap_or(0);
                let bytes = chunk_of(&read[at(place.start)..at(place.end)], len)
                    .map_err(|reason| wrong(&object.key, &format!("chunk {chunk} {reason}; restore the object")))?;
                add(chunk, &bytes);
                self.keep(&object.key, chunk, bytes);
            }
        }
        Ok(out.freeze())
    }

    fn recent(&self, key: &str, chunk: u64) -> Option<Bytes> {
        let recent = lock(&self.recent);
        let found = recent.iter().find(|(of, number, _)| *number == chunk && of == key);
        found.map(|(_, _, bytes)| bytes.clone())
    }

    fn keep(&self, key: &str, chunk: u64, bytes: Bytes) {
        let mut recent = lock(&self.recent);
        recent.push_back((key.to_owned(), chunk, bytes));
        while recent.len() > 1 && recent.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>() > RECENT {
            recent.pop_front();
        }
    }
}

/// A chunk, decompressed.
fn chunk_of(compressed: &[u8], len: usize) -> std::result::Result<Bytes, String> {
    let bytes = Compression::Zstd
        .decompress(compressed, 2, len, 0)
        .map_err(|error| format!("does not decompress ({error})"))?;
    if bytes.len() == len {
        Ok(bytes.into())
    } else {
        Err(format!("has {} bytes in place of {len}", bytes.len()))
    }
}

/// `None`: the segment was deleted since the listing.
fn read_segment(store: &dyn ObjectStore, object: &Object) -> Result<Option<Segment>> {
    if object.len > MAX_MANIFEST {
        let reason = format!(
            "it has {} bytes, more than any segment manifest; move it away",
            object.len
        );
        return Err(wrong(&object.key, &reason));
    }
    let text = match store.read(object, 0..object.len) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| of_object(object, &error))?,
    };
    let manifest = Manifest::parse(&text).map_err(|reason| wrong(&object.key, &reason))?;
    let stem = object.key.trim_end_matches(MANIFEST).to_owned();
    Ok(Some(Segment { stem, manifest }))
}

/// Calls `read` for each object, [`THREADS`] at a time.
fn in_parallel<T: Send>(objects: &[&Object], read: impl Fn(&Object) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<T>> {
        let turn = || objects.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(turn).map(|object| read(object)).collect()
    };
    scope(|scope| {
        let threads = (0..THREADS.min(objects.len()))
            .map(|_| {
                Builder::new()
                    .name("fletchlog-store".to_owned())
                    .spawn_scoped(scope, work)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| Error::other("a request panicked"))??);
        }
        Ok(all)
    })
}

fn object<'a>(objects: &'a HashMap<String, Object>, stem: &str, suffix: &str) -> Result<&'a Object> {
    let key = format!("{stem}{suffix}");
    objects.get(&key).ok_or_else(|| {
        let reason = format!("it is missing, and {stem}{MANIFEST} is there; restore it, or open the store again if the segment is being deleted");
        wrong(&key, &reason)
    })
}

fn indexes_of<'a>(segment: &Segment, objects: &'a HashMap<String, Object>) -> Result<&'a Object> {
    let found = object(objects, &segment.stem, INDEXES)?;
    let len = segment.manifest.indexes.object_len();
    if found.len == len {
        return Ok(found);
    }
    let reason = format!(
        "it has {} bytes, and its manifest says {len}; restore the object",
        found.len
    );
    Err(wrong(&found.key, &reason))
}

/// The entries of a `leader-epoch-checkpoint` that has some: epoch -> first offset.
fn lineage_in(text: &[u8]) -> Option<BTreeMap<i32, i64>> {
    let entries = epochs_in(std::str::from_utf8(text).ok()?).ok()?.into_iter();
    let lineage: BTreeMap<i32, i64> = entries.map(|entry| (entry.epoch, entry.start_offset)).collect();
    (!lineage.is_empty()).then_some(lineage)
}

/// Checks that each topic name has only one topic id.
fn check_ids<'a>(segments: impl Iterator<Item = &'a Segment>) -> Result<()> {
    let mut ids: HashMap<&str, (&[u8; 16], &str)> = HashMap::new();
    let folder = |stem: &'a str| {
        Path::new(stem)
            .ancestors()
            .nth(2)
            .and_then(Path::to_str)
            .unwrap_or(stem)
    };
    for Segment { stem, manifest } in segments {
        let (id, other) = *ids.entry(&manifest.topic).or_insert((&manifest.topic_id, stem));
        if *id != manifest.topic_id {
            let reason = format!(
                "it has topic {} with another id than {}: it was deleted and made again, or there are several clusters; open one of the two",
                manifest.topic,
                folder(other)
            );
            return Err(wrong(folder(stem), &reason));
        }
    }
    Ok(())
}

impl ObjectStore for TieredStore {
    fn list(&self) -> Result<Vec<Object>> {
        let object = |(key, file): (&String, &ShownFile)| Object {
            key: key.clone(),
            len: file.len,
            modified_ms: file.modified_ms,
        };
        Ok(self.files.iter().map(object).collect())
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        let file = self.files.get(&object.key).ok_or(ErrorKind::NotFound)?;
        self.bytes_of(file, range)
    }
}
