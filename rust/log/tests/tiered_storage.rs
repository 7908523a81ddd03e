//! Objects of Aiven's tiered storage plug-in as files. The writer here follows the plug-in's sources; two values are of its own tests.

use std::collections::{BTreeMap, HashMap};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fletchlog_log::fs::{Fs, Object, ObjectFs, ObjectStore};
use fletchlog_log::tiered::{open_local, open_store};
use fletchlog_records::Compression;
use proptest::prelude::*;
use serde_json::{Value, json};

const TOPIC_ID: &str = "lZ6vvmajTWKDBUTV6SQAtQ";
/// Of the plug-in's `ChunkIndexSerializationTest`: sizes 10, 20 and 30.
const ENCODED_CHUNKS: &str = "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe";

#[derive(Debug, Default)]
struct Objects {
    objects: HashMap<String, Bytes>,
    requests: Mutex<Vec<(String, Range<u64>)>>,
}

impl ObjectStore for Objects {
    fn list(&self) -> Result<Vec<Object>> {
        let object = |(key, bytes): (&String, &Bytes)| Object {
            key: key.clone(),
            len: bytes.len() as u64,
            modified_ms: 7,
        };
        Ok(self.objects.iter().map(object).collect())
    }

    fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        self.requests.lock().unwrap().push((object.key.clone(), range.clone()));
        let bytes = self.objects.get(&object.key).ok_or(ErrorKind::NotFound)?;
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }
}

/// Leader epochs and where they begin.
type Epochs = Vec<(i32, i64)>;

/// A segment to upload.
struct Upload {
    name: &'static str,
    base: i64,
    /// Inclusive, as in the manifest.
    last: i64,
    log: Vec<u8>,
    /// Of the segment, and of the log up to its end.
    epochs: (Epochs, Epochs),
    event_ms: i64,
    chunk: usize,
    compressed: bool,
}

impl Upload {
    fn of(log: Vec<u8>, chunk: usize, compressed: bool) -> Self {
        Self {
            name: "a",
            base: 0,
            last: 9,
            log,
            epochs: (vec![(0, 0)], vec![(0, 0)]),
            event_ms: 1,
            chunk,
            compressed,
        }
    }

    fn stem(&self) -> String {
        format!("orders-{TOPIC_ID}/3/{:020}-{}", self.base, self.name)
    }

    fn into_objects(self, objects: &mut Objects) {
        let stem = self.stem();
        let mut lines: Vec<String> = self
            .epochs
            .1
            .iter()
            .map(|(epoch, start)| format!("{epoch} {start}\n"))
            .collect();
        lines.insert(0, format!("0\n{}\n", lines.len()));
        let epochs = lines.concat();
        let parts = [&b"index..."[..], b"timeindex...", b"snapshot", epochs.as_bytes()];
        let ends: Vec<usize> = parts
            .iter()
            .scan(0, |end, part| {
                *end += part.len();
                Some(*end)
            })
            .collect();
        let part = |i: usize| json!({"position": ends[i] - parts[i].len(), "size": parts[i].len()});
        let (index, log) = self.chunks();
        let manifest = json!({
            "version": "1",
            "chunkIndex": index,
            "segmentIndexes": {"offset": part(0), "timestamp": part(1), "producerSnapshot": part(2), "leaderEpoch": part(3), "transaction": null},
            "compression": self.compressed,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {"topicIdPartition": {"topicId": TOPIC_ID, "topicPartition": {"topic": "orders", "partition": 3}}, "id": TOPIC_ID},
                "startOffset": self.base, "endOffset": self.last, "maxTimestampMs": 1, "brokerId": 1, "eventTimestampMs": self.event_ms,
                "segmentLeaderEpochs": self.epochs.0.iter().map(|(e, s)| (e.to_string(), *s)).collect::<BTreeMap<_, _>>(),
                "txnIdxEmpty": true,
            },
        });
        objects.objects.insert(format!("{stem}.log"), log.into());
        objects.objects.insert(format!("{stem}.indexes"), parts.concat().into());
        objects
            .objects
            .insert(format!("{stem}.rsm-manifest"), manifest.to_string().into());
    }

    fn chunks(&self) -> (Value, Vec<u8>) {
        let size = self.log.len();
        if !self.compressed {
            let last = if size == 0 { 0 } else { (size - 1) % self.chunk + 1 };
            let index = json!({"type": "fixed", "originalChunkSize": self.chunk, "originalFileSize": size,
                "transformedChunkSize": self.chunk, "finalTransformedChunkSize": last});
            return (index, self.log.clone());
        }
        let mut object = Vec::new();
        let mut sizes = Vec::new();
        for chunk in self.log.chunks(self.chunk) {
            let before = object.len();
            Compression::Zstd.compress(chunk, None, &mut object);
            sizes.push((object.len() - before) as u32);
        }
        let index = json!({"type": "variable", "originalChunkSize": self.chunk, "originalFileSize": size,
            "transformedChunks": encoded(&sizes)});
        (index, object)
    }
}

fn encoded(sizes: &[u32]) -> String {
    let mut list = (sizes.len() as u32).to_be_bytes().to_vec();
    if let [listed @ .., last] = sizes {
        if let Some(base) = listed.iter().min() {
            let width = listed
                .iter()
                .map(|size| (size - base).max(1).ilog2() as usize / 8 + 1)
                .max()
                .unwrap();
            list.extend(base.to_be_bytes());
            list.push(width as u8);
            listed
                .iter()
                .for_each(|size| list.extend(&(size - base).to_be_bytes()[4 - width..]));
        }
        list.extend(last.to_be_bytes());
    }
    let mut compressed = Vec::new();
    Compression::Zstd.compress(&list, None, &mut compressed);
    STANDARD.encode(compressed)
}

fn mounted(objects: Objects) -> Result<(ObjectFs, Arc<Objects>)> {
    let objects = Arc::new(objects);
    Ok((open_store(objects.clone(), Path::new("/t"))?, objects))
}

fn at(name: &str) -> PathBuf {
    Path::new("/t").join(name)
}

fn mounted_one(upload: Upload) -> (ObjectFs, Arc<Objects>) {
    let mut objects = Objects::default();
    upload.into_objects(&mut objects);
    mounted(objects).unwrap()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 7) as u8).collect()
}

const LOG: &str = "orders-3/00000000000000000000.log";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_reads_give_the_bytes_of_the_segment(
        len in 0..40_000usize,
        chunk in 1..9_000usize,
        compressed: bool,
        reads in proptest::collection::vec((0..45_000u64, 0..20_000usize), 1..12),
    ) {
        let whole = content(len);
        let (fs, _) = mounted_one(Upload::of(whole.clone(), chunk.max(len / 200 + 1), compressed));
        let file = fs.open(&at(LOG), false, false).unwrap();
        prop_assert_eq!(file.len().unwrap(), len as u64);
        for (position, count) in reads {
            let from = whole.len().min(position as usize);
            let expected = &whole[from..whole.len().min(from + count)];
            prop_assert_eq!(&file.read_at(position, count).unwrap()[..], expected);
        }
    }

    /// A list is read back when its sizes are, for each chunk, those that its object needs; so the sizes are made those of the chunks.
    #[test]
    fn a_list_of_any_sizes_leads_to_the_right_chunks(
        kinds in proptest::collection::vec(0..4usize, 1..12),
        noise: u64,
    ) {
        // Incompressible chunks of very different lengths would all have one length: what is left of zeros hardly takes a byte.
        let chunk = 300_000;
        let noisy = [0, 200, 70_000, 299_000];
        let mut state = noise | 1;
        let mut log = Vec::new();
        for kind in &kinds {
            let begin = log.len();
            log.extend((0..noisy[*kind]).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            }));
            log.resize(begin + chunk, 0);
        }
        let (fs, _) = mounted_one(Upload::of(log.clone(), chunk, true));
        let file = fs.open(&at(LOG), false, false).unwrap();
        for i in (0..kinds.len()).rev() {
            prop_assert_eq!(&file.read_at((i * chunk) as u64, chunk).unwrap()[..], &log[i * chunk..(i + 1) * chunk]);
        }
    }
}

#[test]
fn a_list_that_the_plug_in_wrote_is_read() {
    let mut upload = Objects::default();
    Upload::of(Vec::new(), 100, false).into_objects(&mut upload);
    let stem = Upload::of(Vec::new(), 100, false).stem();
    let mut manifest: Value = serde_json::from_slice(&upload.objects[&format!("{stem}.rsm-manifest")]).unwrap();
    manifest["compression"] = json!(true);
    manifest["chunkIndex"] = json!({"type": "variable", "originalChunkSize": 100, "originalFileSize": 250, "transformedChunks": ENCODED_CHUNKS});
    upload
        .objects
        .insert(format!("{stem}.rsm-manifest"), manifest.to_string().into());
    upload.objects.insert(format!("{stem}.log"), vec![0; 60].into());
    let (fs, objects) = mounted(upload).unwrap();
    objects.requests.lock().unwrap().clear();
    let file = fs.open(&at(LOG), false, false).unwrap();
    assert_eq!(file.len().unwrap(), 250);
    let error = file.read_at(0, 250).unwrap_err();
    assert!(error.to_string().contains("chunk 0 does not decompress"), "{error}");
    assert_eq!(objects.requests.lock().unwrap()[0].1, 0..60);
    assert_eq!(encoded(&[10, 20, 30]), ENCODED_CHUNKS);
}

/// What the plug-in's `SegmentManifestV1SerdeTest` expects to be written.
#[test]
fn a_manifest_that_the_plug_in_wrote_is_read() {
    let manifest = r#"{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,"transformedChunkSize":110,"finalTransformedChunkSize":110},"segmentIndexes":{"offset":{"position":0,"size":1},"timestamp":{"position":1,"size":1},"producerSnapshot":{"position":2,"size":1},"leaderEpoch":{"position":3,"size":1},"transaction":null},"compression":false,"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ","topicPartition":{"topic":"topic1","partition":42}},"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":0,"endOffset":1000,"maxTimestampMs":1000000000,"brokerId":2,"eventTimestampMs":2000000000,"segmentLeaderEpochs":{"0":100,"1":200,"2":300}}}"#;
    let mut objects = Objects::default();
    // Only the checkpoint has to be whole, so it is longer than the test's one byte.
    let manifest = manifest.replace(r#""position":3,"size":1"#, r#""position":3,"size":22"#);
    for (suffix, bytes) in [
        ("rsm-manifest", Bytes::from(manifest)),
        ("indexes", Bytes::from_static(b"ots0\n3\n0 100\n1 200\n2 300\n")),
        ("log", content(1000).into()),
    ] {
        objects.objects.insert(
            format!("topic1-{TOPIC_ID}/42/00000000000000000000-adh9f8BMS4anaUnD8KWfWg.{suffix}"),
            bytes,
        );
    }
    let (fs, _) = mounted(objects).unwrap();
    assert_eq!(
        fs.read(&at("topic1-42/00000000000000000000.log")).unwrap(),
        content(1000)
    );
    assert_eq!(fs.read(&at("topic1-42/00000000000000001001.snapshot")).unwrap(), b"s");
    assert_eq!(
        fs.read(&at("log-start-offset-checkpoint")).unwrap(),
        b"0\n1\ntopic1 42 100\n"
    );
}

#[test]
fn chunks_of_one_read_are_fetched_by_one_request_and_the_last_are_kept() {
    let (fs, objects) = mounted_one(Upload::of(content(1 << 20), 10_000, true));
    objects.requests.lock().unwrap().clear();
    let file = fs.open(&at(LOG), false, false).unwrap();
    file.read_at(0, 1).unwrap();
    assert_eq!(objects.requests.lock().unwrap().len(), 1);
    // Pages of 256 KiB end within a chunk, which the next one begins with.
    file.read_at(256 << 10, 1).unwrap();
    let requests = objects.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].1.end, requests[1].1.start);
}

#[test]
fn indexes_and_made_files_are_shown() {
    let (fs, _) = mounted_one(Upload::of(content(100), 40, false));
    let read = |name: &str| String::from_utf8(fs.read(&at(name)).unwrap()).unwrap();
    assert_eq!(read("orders-3/00000000000000000000.index"), "index...");
    assert_eq!(read("orders-3/00000000000000000000.timeindex"), "timeindex...");
    assert_eq!(read("orders-3/00000000000000000010.snapshot"), "snapshot");
    assert_eq!(read("orders-3/leader-epoch-checkpoint"), "0\n1\n0 0\n");
    assert_eq!(
        read("orders-3/partition.metadata"),
        format!("version: 0\ntopic_id: {TOPIC_ID}")
    );
    assert_eq!(read("log-start-offset-checkpoint"), "0\n0\n");
    assert!(read("meta.properties").starts_with("version=1\n"));
    assert_eq!(fs.read_dir(&at("orders-3")).unwrap().len(), 6);
}

/// A batch that has one offset. Only what is needed to find the next one is right.
fn batch(offset: i64, epoch: i32) -> [u8; 61] {
    let mut batch = [0; 61];
    batch[..8].copy_from_slice(&offset.to_be_bytes());
    batch[8..12].copy_from_slice(&49i32.to_be_bytes());
    batch[12..16].copy_from_slice(&epoch.to_be_bytes());
    batch[16] = 2;
    batch
}

/// Epochs of a log that begins at offset 0: `lens[e]` offsets of epoch e.
fn starts_of(epoch_of: &[i32], range: Range<usize>) -> Epochs {
    let mut starts = Epochs::new();
    for offset in range {
        if starts.last().is_none_or(|last| last.0 != epoch_of[offset]) {
            starts.push((epoch_of[offset], offset as i64));
        }
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Leaders upload what they have; one that lost an unclean election had other records behind some offset. An offset is read if an object
    /// has it, and all before it in that object, in the epoch of the lineage.
    #[test]
    fn each_offset_is_read_in_the_epoch_of_the_lineage(
        lens in proptest::collection::vec(1..12usize, 2..6),
        uploads in proptest::collection::vec((0..5usize, 0..40usize, 1..30usize, any::<bool>()), 0..8),
        forks in proptest::collection::vec((0..40usize, 0..20usize), 5),
        log_start in 0..4usize,
    ) {
        let lineage: Vec<i32> = lens.iter().zip(0..).flat_map(|(len, epoch)| vec![2 * epoch; *len]).collect();
        let end = lineage.len();
        let mut objects = Objects::default();
        let mut covered = vec![false; end];
        let mut upload = |i: usize, log: &[i32], range: Range<usize>, start: usize, compressed: bool| {
            let bytes = range.clone().flat_map(|offset| batch(offset as i64, log[offset])).collect();
            let mut epochs = starts_of(log, start.min(range.end - 1)..range.end);
            epochs[0].1 = start.min(range.end - 1) as i64;
            Upload {
                name: ["a", "b", "c", "d", "e", "f", "g", "h", "z"][i],
                base: range.start as i64,
                last: range.end as i64 - 1,
                epochs: (starts_of(log, range.clone()), epochs),
                event_ms: i as i64,
                compressed,
                ..Upload::of(bytes, 100, compressed)
            }
            .into_objects(&mut objects);
            for offset in range {
                if lineage.get(offset) != Some(&log[offset]) {
                    break;
                }
                covered[offset] |= offset >= log_start.min(end - 1);
            }
        };
        for (i, (branch, base, len, compressed)) in uploads.into_iter().enumerate() {
            // A leader of an odd epoch whose records behind `fork` nobody else has.
            let (fork, more) = forks[branch];
            let fork = fork.min(end);
            let mut log = lineage[..fork].to_vec();
            let odd = log.last().copied().unwrap_or(-2) + 1;
            log.extend(vec![odd.max(0); more]);
            if odd < lineage[end - 1] && base < log.len() {
                upload(i, &log, base..(base + len).min(log.len()), 0, compressed);
            }
        }
        // The newest: the last epoch, up to the end.
        upload(8, &lineage, end - 1..end, log_start, false);
        let (fs, _) = mounted(objects).unwrap();
        let mut read = Vec::new();
        for entry in fs.read_dir(&at("orders-3")).unwrap() {
            if entry.name.ends_with(".log") {
                let bytes = fs.read(&at(&format!("orders-3/{}", entry.name))).unwrap();
                prop_assert_eq!(bytes.len() % 61, 0);
                prop_assert_eq!(&bytes[..8], &entry.name[..20].parse::<i64>().unwrap().to_be_bytes());
                read.extend_from_slice(&bytes);
            }
        }
        let expected = |offset: &usize| batch(*offset as i64, lineage[*offset]).to_vec();
        let from = log_start.min(end - 1) as i64;
        // Below the log start a first segment may have more.
        let read: Vec<Vec<u8>> = read.chunks(61).map(<[u8]>::to_vec).filter(|batch| batch[..8] >= from.to_be_bytes()[..]).collect();
        prop_assert_eq!(read, (0..end).filter(|offset| covered[*offset]).map(|offset| expected(&offset)).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_no_segment_and_what_was_deleted_is_not_shown() {
    let mut objects = Objects::default();
    Upload::of(content(100), 40, false).into_objects(&mut objects);
    let failed = Upload {
        base: 10,
        last: 19,
        ..Upload::of(content(50), 40, false)
    };
    let stem = failed.stem();
    failed.into_objects(&mut objects);
    objects.objects.remove(&format!("{stem}.rsm-manifest"));
    objects.objects.insert("other/file".to_owned(), Bytes::new());
    let (fs, _) = mounted(objects).unwrap();
    assert_eq!(fs.read_dir(&at("")).unwrap().len(), 3);
    assert_eq!(fs.read_dir(&at("orders-3")).unwrap().len(), 6);
}

/// Why a store with one segment does not open after a change of one object.
fn refused(suffix: &str, change: impl FnOnce(&mut HashMap<String, Bytes>, String)) -> String {
    let mut objects = Objects::default();
    let upload = Upload::of(content(1_000), 40, true);
    let key = format!("{}{suffix}", upload.stem());
    upload.into_objects(&mut objects);
    change(&mut objects.objects, key.clone());
    let error: Error = mounted(objects).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let text = error.to_string();
    assert!(text.starts_with(&key), "{text}");
    text
}

fn refused_manifest(path: &str, value: Value) -> String {
    refused(".rsm-manifest", |objects, key| {
        let mut manifest: Value = serde_json::from_slice(&objects[&key]).unwrap();
        match manifest.pointer_mut(path) {
            Some(found) => *found = value,
            None => manifest[path.trim_start_matches('/')] = value,
        }
        objects.insert(key, manifest.to_string().into());
    })
}

#[test]
fn damage_is_named_with_its_object_and_what_to_do() {
    for suffix in [".log", ".indexes"] {
        assert!(refused(suffix, |objects, key| drop(objects.remove(&key))).contains("it is missing"));
        let cut = refused(suffix, |objects, key| {
            let bytes = objects[&key].clone();
            objects.insert(key, bytes.slice(..bytes.len() - 1));
        });
        assert!(cut.contains("and its manifest says"), "{cut}");
    }
    let encrypted = refused_manifest("/encryption", json!({"dataKey": "key:AAAA", "aad": "AAAA"}));
    assert!(encrypted.contains("the segment is encrypted"), "{encrypted}");
    assert!(refused_manifest("/version", json!("2")).contains("only \"1\" is known"));
    for (path, value) in [
        ("/chunkIndex/type", json!("other")),
        ("/compression", json!(false)),
        ("/chunkIndex/transformedChunks", json!("KLUv")),
        ("/chunkIndex/originalChunkSize", json!(0)),
        ("/chunkIndex/originalFileSize", json!(5_000_000_000i64)),
        ("/segmentIndexes/timestamp", json!(null)),
        ("/remoteLogSegmentMetadata/endOffset", json!(-1)),
        ("/remoteLogSegmentMetadata/segmentLeaderEpochs", json!({})),
        (
            "/remoteLogSegmentMetadata/remoteLogSegmentId/topicIdPartition/topicPartition/topic",
            json!("a/b"),
        ),
    ] {
        let text = refused_manifest(path, value);
        assert!(text.contains("no whole segment manifest"), "{path}: {text}");
    }
    let old = refused_manifest("/segmentIndexes", Value::Null);
    assert!(old.contains("no whole segment manifest"), "{old}");
    // Every cut of a manifest is found.
    let mut objects = Objects::default();
    let upload = Upload::of(content(1_000), 40, true);
    let key = format!("{}.rsm-manifest", upload.stem());
    upload.into_objects(&mut objects);
    for len in 0..objects.objects[&key].len() {
        let text = refused(".rsm-manifest", |objects, key| {
            let cut = objects[&key].slice(..len);
            objects.insert(key, cut);
        });
        assert!(text.contains("restore the object"), "{text}");
    }
}

#[test]
fn a_directory_of_this_machine_is_read_three_levels_deep() {
    let dir = tempfile::tempdir().unwrap();
    assert!(open_local(dir.path()).unwrap().is_none());
    let mut objects = Objects::default();
    Upload::of(content(100), 40, true).into_objects(&mut objects);
    for (key, bytes) in &objects.objects {
        let path = dir.path().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    for root in [
        dir.path().to_owned(),
        dir.path().join(format!("orders-{TOPIC_ID}")),
        dir.path().join(format!("orders-{TOPIC_ID}/3")),
    ] {
        let fs = open_local(&root).unwrap().unwrap();
        assert_eq!(fs.read(&root.join(LOG)).unwrap(), content(100));
    }
    let fs = open_local(dir.path()).unwrap().unwrap();
    std::fs::write(
        dir.path().join(Upload::of(Vec::new(), 1, true).stem() + ".log"),
        b"other",
    )
    .unwrap();
    let error = fs.read(&dir.path().join(LOG)).unwrap_err();
    assert!(error.to_string().contains("open it again"), "{error}");
}
