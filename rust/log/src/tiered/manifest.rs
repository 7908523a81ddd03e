//! `<base offset>-<segment id>.rsm-manifest`: what the plug-in knows of a segment, as JSON. The plug-in: `SegmentManifestV1`.
//!
//! ```json
//! {"version": "1",
//!  "chunkIndex": {"type": "fixed", "originalChunkSize": 4194304, "originalFileSize": 9000000,
//!                 "transformedChunkSize": 4194304, "finalTransformedChunkSize": 611392},
//!  "segmentIndexes": {"offset": {"position": 0, "size": 8}, "timestamp": {"position": 8, "size": 24},
//!                     "producerSnapshot": {"position": 32, "size": 10}, "leaderEpoch": {"position": 42, "size": 10}, "transaction": null},
//!  "compression": false,
//!  "remoteLogSegmentMetadata": {
//!    "remoteLogSegmentId": {"topicIdPartition": {"topicId": "22 characters", "topicPartition": {"topic": "orders", "partition": 0}},
//!                           "id": "22 characters"},
//!    "startOffset": 0, "endOffset": 999, "maxTimestampMs": 1, "brokerId": 1, "eventTimestampMs": 1, "segmentLeaderEpochs": {"0": 0}}}
//! ```
//!
//! `encryption` is present if the segment is encrypted. A compressed segment has a chunk index of type `variable`, whose
//! `transformedChunks` replaces the two sizes ([`ChunkIndex`]).

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::chunk_index::ChunkIndex;
use crate::checkpoint::decode_uuid;

/// An uploaded segment and the key of its objects without their suffixes.
pub(super) struct Segment {
    pub stem: String,
    pub manifest: Manifest,
}

/// A segment.
#[derive(Debug)]
pub(super) struct Manifest {
    pub topic: String,
    pub topic_id: [u8; 16],
    pub partition: i32,
    pub base_offset: i64,
    /// Offset after its last record.
    pub end_offset: i64,
    /// When its upload began, ms since the epoch.
    pub event_ms: i64,
    /// Leader epoch -> its first offset in the segment.
    pub epochs: BTreeMap<i32, i64>,
    /// Bytes of the segment.
    pub size: u64,
    /// Bytes of its object.
    pub object_len: u64,
    /// `None`: the object is the segment.
    pub chunks: Option<ChunkIndex>,
    pub indexes: Indexes,
}

/// Where each index is in the object that has them all.
#[derive(Debug)]
pub(super) struct Indexes {
    pub offset: Range<u64>,
    pub time: Range<u64>,
    pub snapshot: Range<u64>,
    pub epochs: Range<u64>,
    pub txn: Range<u64>,
}

impl Indexes {
    /// The bytes that the object must have.
    pub fn object_len(&self) -> u64 {
        let all = [&self.offset, &self.time, &self.snapshot, &self.epochs, &self.txn];
        all.map(|range| range.end).into_iter().max().unwrap_or(0)
    }
}

/// The value at a path such as `/chunkIndex/type`.
fn field<'a, T>(json: &'a Value, path: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<T, String> {
    let found = json.pointer(path).and_then(read);
    found.ok_or_else(|| format!("{} is missing or wrong", path.trim_start_matches('/').replace('/', ".")))
}

/// A number of bytes or a position: Kafka's segments and their indexes have at most 2^31-1 bytes.
fn size(value: &Value) -> Option<u64> {
    value.as_u64().filter(|size| i32::try_from(*size).is_ok())
}

fn offset(value: &Value) -> Option<i64> {
    value.as_i64().filter(|offset| (0..i64::MAX).contains(offset))
}

impl Manifest {
    /// # Errors
    /// Why the segment cannot be read, and what to do.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let damaged = |reason: String| format!("it is no whole segment manifest ({reason}); restore the object");
        let json: Value = serde_json::from_slice(text).map_err(|e| damaged(e.to_string()))?;
        let version = field(&json, "/version", Value::as_str).map_err(damaged)?;
        if version != "1" {
            return Err(format!(
                "its version is {version:?}, and only \"1\" is known; a newer fletchlog may read it"
            ));
        }
        if json.get("encryption").is_some_and(|encryption| !encryption.is_null()) {
            return Err(
                "the segment is encrypted, and only the plug-in has the keys; read it through Kafka".to_owned(),
            );
        }
        if json.get("segmentIndexes").is_none() {
            let reason = "it has no segmentIndexes: an early release of the plug-in wrote it, with an object for each index; read it through Kafka";
            return Err(reason.to_owned());
        }
        Self::of(&json).map_err(damaged)
    }

    fn of(json: &Value) -> Result<Self, String> {
        let metadata = field(json, "/remoteLogSegmentMetadata", Some)?;
        let id = field(metadata, "/remoteLogSegmentId/topicIdPartition", Some)?;
        let number = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok());
        let epochs = field(metadata, "/segmentLeaderEpochs", Value::as_object)?
            .iter()
            .map(|(epoch, start)| Some((epoch.parse().ok()?, offset(start)?)))
            .collect::<Option<BTreeMap<i32, i64>>>()
            .filter(|epochs| !epochs.is_empty())
            .ok_or("segmentLeaderEpochs is wrong")?;
        let (base_offset, last) = (
            field(metadata, "/startOffset", offset)?,
            field(metadata, "/endOffset", offset)?,
        );
        if last < base_offset {
            return Err(format!("endOffset {last} is before startOffset {base_offset}"));
        }
        let (size, object_len, chunks) = log_of(json)?;
        let topic = field(id, "/topicPartition/topic", Value::as_str)?;
        if !topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            return Err(format!("{topic:?} is no name of a topic"));
        }
        Ok(Self {
            topic: topic.to_owned(),
            topic_id: field(id, "/topicId", |id| decode_uuid(id.as_str()?))?,
            partition: field(id, "/topicPartition/partition", number)?,
            base_offset,
            end_offset: last + 1,
            event_ms: field(metadata, "/eventTimestampMs", Value::as_i64)?,
            epochs,
            size,
            object_len,
            chunks,
            indexes: indexes_of(field(json, "/segmentIndexes", Some)?)?,
        })
    }
}

/// Bytes of the segment, bytes of its object, and the chunks that the object consists of.
fn log_of(json: &Value) -> Result<(u64, u64, Option<ChunkIndex>), String> {
    let index = field(json, "/chunkIndex", Some)?;
    let chunk = field(index, "/originalChunkSize", size)?;
    let whole = field(index, "/originalFileSize", size)?;
    let kind = field(index, "/type", Value::as_str)?;
    match (kind, field(json, "/compression", Value::as_bool)?) {
        ("fixed", false) => Ok((whole, whole, None)),
        ("variable", true) => {
            let list = field(index, "/transformedChunks", Value::as_str)?;
            let chunks =
                ChunkIndex::new(chunk, whole, list).map_err(|e| format!("chunkIndex.transformedChunks: {e}"))?;
            Ok((whole, chunks.object_len(), Some(chunks)))
        }
        (kind, compression) => Err(format!(
            "chunkIndex.type {kind:?} with compression {compression} is not known"
        )),
    }
}

fn indexes_of(json: &Value) -> Result<Indexes, String> {
    let range = |name: &str| {
        let start = field(json, &format!("/{name}/position"), size)?;
        Ok::<_, String>(start..start + field(json, &format!("/{name}/size"), size)?)
    };
    let has_txn = json.get("transaction").is_some_and(|found| !found.is_null());
    Ok(Indexes {
        offset: range("offset")?,
        time: range("timestamp")?,
        snapshot: range("producerSnapshot")?,
        epochs: range("leaderEpoch")?,
        txn: if has_txn { range("transaction")? } else { 0..0 },
    })
}
