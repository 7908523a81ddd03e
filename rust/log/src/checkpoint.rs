//! Small text files of a log directory (spec 1.9). Kafka: `CheckpointFile`, `OffsetCheckpointFile`,
//! `PartitionMetadataFile`, `MetaProperties`.
//!
//! A checkpoint is `0` (version), the number of entries, then one entry per line. Only `log-start-offset-checkpoint` holds
//! the log start offset, so fletchlog's ends with a checksum:
//!
//! | bytes | |
//! |---|---|
//! | ... | the checkpoint without its last line feed |
//! | 32 | CRC-32C of these bytes, the highest bit first: a space is 0, a tab 1 |
//! | 1 | line feed |
//!
//! Kafka ignores blanks after an entry and writes none: a checkpoint that Kafka wrote has no checksum and is not checked.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use fletchlog_records::TopicPartition;
use fletchlog_records::crc::crc32c;
use fletchlog_records::planted;

use crate::LogError;
use crate::file_name::{CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA, TEMPORARY, with_suffix};
use crate::fs::{Fs, remove_file, sync_dir};

fn damaged(path: &Path, reason: impl Into<String>) -> LogError {
    LogError::damaged(path, 0, reason)
}

/// Returns `None` if the file does not exist.
pub(crate) fn read_text(fs: &dyn Fs, path: &Path) -> Result<Option<String>, LogError> {
    let bytes = match fs.read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(LogError::io("read", path, e)),
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| damaged(path, "not UTF-8 text; restore or delete the file"))
}

/// The entry lines of a checkpoint, without trailing blanks. A missing or empty file has none; a wrong version, a wrong
/// count, a malformed head or a wrong checksum is an error.
pub fn read_checkpoint(fs: &dyn Fs, path: &Path) -> Result<Vec<String>, LogError> {
    let text = read_text(fs, path)?.unwrap_or_default();
    let entries = entries_in(&text).map_err(|reason| damaged(path, reason))?;
    Ok(entries.into_iter().map(str::to_string).collect())
}

/// The entry lines in the text of a checkpoint; the error says what is wrong with it.
pub(crate) fn entries_in(text: &str) -> Result<Vec<&str>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if !is_checksum_right(text) {
        return Err(
            "its checksum is wrong, so something has changed it; restore it, or delete it to open without it"
                .to_owned(),
        );
    }
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().trim();
    if version != "0" {
        return Err(format!(
            "checkpoint version is {version:?}, expected 0; delete the file to rebuild it"
        ));
    }
    let count = lines.next().unwrap_or_default().trim();
    let Ok(expected) = count.parse::<usize>() else {
        return Err(format!(
            "entry count is {count:?}, expected a number; delete the file to rebuild it"
        ));
    };
    let entries: Vec<&str> = lines.map(str::trim_end).filter(|line| !line.is_empty()).collect();
    if entries.len() != expected {
        let found = entries.len();
        return Err(format!(
            "{expected} entries announced, {found} found; delete the file to rebuild it"
        ));
    }
    Ok(entries)
}

/// Replaces a checkpoint atomically.
pub fn write_checkpoint(fs: &dyn Fs, path: &Path, entries: &[String]) -> Result<(), LogError> {
    write_text(fs, path, &checkpoint_text(entries))
}

fn write_text(fs: &dyn Fs, path: &Path, text: &str) -> Result<(), LogError> {
    fs.replace(path, text.as_bytes())
        .map_err(|e| LogError::io("write", path, e))
}

/// The text of a checkpoint with these entries.
pub(crate) fn checkpoint_text(entries: &[String]) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for entry in entries {
        text.push_str(entry);
        text.push('\n');
    }
    text
}

/// `<topic> <partition> <offset>` lines (recovery-point-, log-start-, replication-, cleaner-offset-checkpoint).
pub fn read_offset_checkpoint(fs: &dyn Fs, path: &Path) -> Result<BTreeMap<TopicPartition, i64>, LogError> {
    let mut offsets = BTreeMap::new();
    for line in read_checkpoint(fs, path)? {
        let mut fields = line.split_whitespace();
        let entry = (|| {
            let topic = fields.next()?;
            let partition = fields.next()?.parse().ok()?;
            let offset = fields.next()?.parse().ok()?;
            fields
                .next()
                .is_none()
                .then_some((TopicPartition::new(topic, partition), offset))
        })();
        let Some((tp, offset)) = entry else {
            return Err(damaged(
                path,
                format!("malformed line {line:?}, expected `topic partition offset`; delete the file to rebuild it"),
            ));
        };
        offsets.insert(tp, offset);
    }
    Ok(offsets)
}

/// Replaces a checkpoint of offsets atomically.
pub fn write_offset_checkpoint(
    fs: &dyn Fs,
    path: &Path,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> Result<(), LogError> {
    write_checkpoint(fs, path, &offset_lines(offsets))
}

fn offset_lines(offsets: &BTreeMap<TopicPartition, i64>) -> Vec<String> {
    let line = |(tp, offset): (&TopicPartition, &i64)| format!("{} {} {offset}", tp.topic, tp.partition);
    offsets.iter().map(line).collect()
}

/// As [`write_offset_checkpoint`], with a checksum if there are entries.
pub fn write_log_start_checkpoint(
    fs: &dyn Fs,
    path: &Path,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> Result<(), LogError> {
    let text = checkpoint_text(&offset_lines(offsets));
    let content = text.trim_end_matches('\n');
    let text = if offsets.is_empty() {
        text
    } else {
        format!("{content}{}\n", checksum(content))
    };
    write_text(fs, path, &text)
}

/// A CRC-32C written as blanks.
fn checksum(content: &str) -> String {
    let crc = crc32c(content.as_bytes());
    let bit = |n: u32| if crc >> n & 1 == 1 { '\t' } else { ' ' };
    (0..u32::BITS).rev().map(bit).collect()
}

/// True also for a checkpoint without a checksum.
fn is_checksum_right(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let content = text.trim_end_matches([' ', '\t']);
    content.len() == text.len() || text[content.len()..] == checksum(content)
}

/// Topic id in `partition.metadata` of a partition directory; `None` if the file does not exist.
pub fn read_partition_metadata(fs: &dyn Fs, partition_dir: &Path) -> Result<Option<[u8; 16]>, LogError> {
    let path = partition_dir.join(PARTITION_METADATA);
    let Some(text) = read_text(fs, &path)? else {
        return Ok(None);
    };
    let mut fields = text.lines().map(|line| line.split_once(": "));
    let id = match (fields.next(), fields.next()) {
        (Some(Some(("version", "0"))), Some(Some(("topic_id", id)))) => decode_uuid(id.trim()),
        _ => None,
    };
    let expected =
        "expected `version: 0` and `topic_id: <22 characters>`; restore the file from the topic's other partitions";
    id.map(Some).ok_or_else(|| damaged(&path, expected))
}

/// The content of `partition.metadata`.
pub fn partition_metadata_text(topic_id: &[u8; 16]) -> String {
    format!("version: 0\ntopic_id: {}", encode_uuid(topic_id))
}

/// Writes `partition.metadata` before the first append: whole or not at all. Unlike Kafka's it is not synced: the caller
/// knows the id and writes the file again if a power loss removed it, and a topic of 1,000 partitions does not wait for 2,000
/// fsyncs.
pub fn write_partition_metadata(fs: &dyn Fs, partition_dir: &Path, topic_id: &[u8; 16]) -> Result<(), LogError> {
    let path = partition_dir.join(PARTITION_METADATA);
    replace_unsynced(fs, &path, &partition_metadata_text(topic_id))
}

/// Replaces a file, whole or not at all, except after a power loss: that may leave it missing, empty or filled with zeros.
pub(crate) fn replace_unsynced(fs: &dyn Fs, path: &Path, text: &str) -> Result<(), LogError> {
    let temporary = with_suffix(path, TEMPORARY);
    let write = || {
        // Left by a failed attempt.
        fs.remove_file(&temporary)?;
        let file = fs.open(&temporary, true, true)?;
        file.write_at(0, text.as_bytes())?;
        fs.rename(&temporary, path)
    };
    write().map_err(|e| LogError::io("write", path, e))
}

/// Identity of a log directory. Kafka: `MetaProperties`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0: ZooKeeper (`broker.id`), 1: KRaft (`node.id`).
    pub version: i32,
    /// The node.
    pub node_id: i32,
    /// The cluster, if known.
    pub cluster_id: Option<String>,
    /// This directory, since Kafka 3.7.
    pub directory_id: Option<String>,
}

/// Reads `meta.properties` of a log directory; `None` if the file does not exist.
pub fn read_meta_properties(fs: &dyn Fs, log_dir: &Path) -> Result<Option<MetaProperties>, LogError> {
    let path = log_dir.join(META_PROPERTIES);
    let Some(text) = read_text(fs, &path)? else {
        return Ok(None);
    };
    let properties: BTreeMap<&str, &str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', '!']))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let number = |key: &str| properties.get(key).map(|value| value.parse::<i32>());
    let version = match number("version") {
        Some(Ok(version @ 0..=1)) => version,
        _ => {
            return Err(damaged(
                &path,
                "`version` must be 0 or 1; this is not a Kafka log directory, or of a newer Kafka",
            ));
        }
    };
    let key = if version == 0 { "broker.id" } else { "node.id" };
    let Some(Ok(node_id)) = number(key) else {
        return Err(damaged(&path, format!("`{key}` must be a number; restore the file")));
    };
    let text = |key: &str| properties.get(key).map(|value| (*value).to_string());
    Ok(Some(MetaProperties {
        version,
        node_id,
        cluster_id: text("cluster.id"),
        directory_id: text("directory.id"),
    }))
}

/// Replaces `meta.properties` atomically.
pub fn write_meta_properties(fs: &dyn Fs, log_dir: &Path, properties: &MetaProperties) -> Result<(), LogError> {
    let path = log_dir.join(META_PROPERTIES);
    let key = if properties.version == 0 {
        "broker.id"
    } else {
        "node.id"
    };
    let mut text = format!("version={}\n{key}={}\n", properties.version, properties.node_id);
    for (key, value) in [
        ("cluster.id", &properties.cluster_id),
        ("directory.id", &properties.directory_id),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("{key}={value}\n"));
        }
    }
    write_text(fs, &path, &text)
}

/// Whether the log directory was stopped cleanly. Read-only callers use this; writers use [`take_clean_shutdown`].
pub(crate) fn has_clean_shutdown(fs: &dyn Fs, log_dir: &Path) -> bool {
    fs.exists(&log_dir.join(CLEAN_SHUTDOWN))
}

/// Removes the marker of a clean stop, durably, before any log of the directory is loaded: a crash during loading must not
/// look clean. Returns whether it existed.
pub fn take_clean_shutdown(fs: &dyn Fs, log_dir: &Path) -> Result<bool, LogError> {
    let path = log_dir.join(CLEAN_SHUTDOWN);
    if !fs.exists(&path) {
        return Ok(false);
    }
    if planted!("clean-marker-left-while-open") {
        return Ok(true);
    }
    remove_file(fs, &path)?;
    sync_dir(fs, log_dir)?;
    Ok(true)
}

/// Writes the marker of a clean stop, last, after every log has been closed.
pub fn write_clean_shutdown(fs: &dyn Fs, log_dir: &Path) -> Result<(), LogError> {
    let path = log_dir.join(CLEAN_SHUTDOWN);
    fs.replace(&path, br#"{"version":0,"brokerEpoch":-1}"#)
        .map_err(|e| LogError::io("write", &path, e))
}

/// As Java's decoder: the bits beyond the last byte are ignored.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Kafka's text form of a 16-byte id: url-safe base64 without padding, 22 characters. Kafka: `Uuid#toString`.
pub fn encode_uuid(id: &[u8; 16]) -> String {
    BASE64_URL.encode(id)
}

/// Parses the text form of an id; `None` if it is malformed.
pub fn decode_uuid(text: &str) -> Option<[u8; 16]> {
    BASE64_URL.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    fn fs_with(text: &str) -> (MemoryFs, &'static Path) {
        let fs = MemoryFs::new();
        fs.create_dir_all(Path::new("/d")).unwrap();
        let path = Path::new("/d/checkpoint");
        fs.replace(path, text.as_bytes()).unwrap();
        (fs, path)
    }

    #[test]
    fn offsets_survive_a_round_trip_through_a_checkpoint() {
        let (fs, path) = fs_with("");
        assert!(read_offset_checkpoint(&fs, path).unwrap().is_empty());
        let offsets = BTreeMap::from([
            (TopicPartition::new("a", 0), 5),
            (TopicPartition::new("b-c", 11), i64::MAX),
        ]);
        write_offset_checkpoint(&fs, path, &offsets).unwrap();
        assert_eq!(fs.read(path).unwrap(), b"0\n2\na 0 5\nb-c 11 9223372036854775807\n");
        assert_eq!(read_offset_checkpoint(&fs, path).unwrap(), offsets);
    }

    #[test]
    fn every_flipped_bit_of_a_log_start_checkpoint_is_reported_or_changes_no_offset() {
        let offsets = BTreeMap::from([
            (TopicPartition::new("t", 0), 230),
            (TopicPartition::new("t", 1), 1),
            (TopicPartition::new("u", 0), 10),
        ]);
        for offsets in [BTreeMap::new(), offsets] {
            let (fs, path) = fs_with("");
            write_log_start_checkpoint(&fs, path, &offsets).unwrap();
            assert_eq!(read_offset_checkpoint(&fs, path).unwrap(), offsets);
            let written = fs.read(path).unwrap();
            for bit in 0..written.len() * 8 {
                let mut flipped = written.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                fs.replace(path, &flipped).unwrap();
                if let Ok(read) = read_offset_checkpoint(&fs, path) {
                    assert_eq!(read, offsets, "{:?}", String::from_utf8_lossy(&flipped));
                }
            }
        }
    }

    /// As Kafka reads a line: split at blanks, those at the end are ignored.
    #[test]
    fn the_checksum_of_a_checkpoint_is_behind_its_last_entry_in_blanks() {
        let (fs, path) = fs_with("");
        let write = |offsets: &[(TopicPartition, i64)]| {
            write_log_start_checkpoint(&fs, path, &offsets.iter().cloned().collect()).unwrap();
            String::from_utf8(fs.read(path).unwrap()).unwrap()
        };
        let text = write(&[(TopicPartition::new("t", 0), 5), (TopicPartition::new("t", 1), 7)]);
        let blanks = text
            .strip_prefix("0\n2\nt 0 5\nt 1 7")
            .unwrap()
            .strip_suffix('\n')
            .unwrap();
        let bit = |sum: u32, blank| sum << 1 | u32::from(blank == '\t');
        assert_eq!(
            (blanks.len(), blanks.chars().fold(0, bit)),
            (32, crc32c(b"0\n2\nt 0 5\nt 1 7"))
        );
        assert!(blanks.chars().all(|c| c == ' ' || c == '\t'));
        assert_eq!(read_checkpoint(&fs, path).unwrap(), ["t 0 5", "t 1 7"]);
        assert_eq!(write(&[]), "0\n0\n");
    }

    #[test]
    fn a_malformed_checkpoint_is_an_error_that_names_the_file() {
        for text in [
            "1\n0\n",
            "0\n",
            "0\nx\n",
            "0\n2\na 0 5\n",
            "0\n1\na 0\n",
            "0\n1\na 0 5 6\n",
            "foo",
        ] {
            let (fs, path) = fs_with(text);
            let error = read_offset_checkpoint(&fs, path).unwrap_err().to_string();
            assert!(error.contains("/d/checkpoint"), "{text:?}: {error}");
        }
    }

    #[test]
    fn topic_ids_are_written_as_kafka_writes_them() {
        let text = "XjFL1IecRtid65QF5T-I8g";
        assert_eq!(encode_uuid(&decode_uuid(text).unwrap()), text);
        assert_eq!(decode_uuid("short"), None);
        assert_eq!(decode_uuid("XjFL1IecRtid65QF5T+I8g"), None);
        let (fs, _) = fs_with("");
        let dir = Path::new("/d");
        assert_eq!(read_partition_metadata(&fs, dir).unwrap(), None);
        write_partition_metadata(&fs, dir, &decode_uuid(text).unwrap()).unwrap();
        assert_eq!(
            fs.read(&dir.join(PARTITION_METADATA)).unwrap(),
            format!("version: 0\ntopic_id: {text}").as_bytes()
        );
        assert_eq!(read_partition_metadata(&fs, dir).unwrap(), decode_uuid(text));
        fs.replace(&dir.join(PARTITION_METADATA), b"foo").unwrap();
        assert!(read_partition_metadata(&fs, dir).is_err());
    }

    #[test]
    fn meta_properties_of_a_real_broker_are_read() {
        let (fs, _) = fs_with("");
        let dir = Path::new("/d");
        assert_eq!(read_meta_properties(&fs, dir).unwrap(), None);
        let text = "#\n#Sat Nov 21 07:55:32 UTC 2026\nnode.id=1\ndirectory.id=hLJzC41GyrBGECn102VvAg\nversion=1\ncluster.id=M1abcdefQ0iRkY0aVnM8rg\n";
        fs.replace(&dir.join(META_PROPERTIES), text.as_bytes()).unwrap();
        let properties = read_meta_properties(&fs, dir).unwrap().unwrap();
        assert_eq!((properties.version, properties.node_id), (1, 1));
        assert_eq!(properties.cluster_id.as_deref(), Some("M1abcdefQ0iRkY0aVnM8rg"));
        write_meta_properties(&fs, dir, &properties).unwrap();
        assert_eq!(read_meta_properties(&fs, dir).unwrap(), Some(properties));
    }

    #[test]
    fn the_clean_marker_can_be_taken_once() {
        let (fs, _) = fs_with("");
        let dir = Path::new("/d");
        write_clean_shutdown(&fs, dir).unwrap();
        assert!(has_clean_shutdown(&fs, dir));
        assert!(take_clean_shutdown(&fs, dir).unwrap());
        assert!(!take_clean_shutdown(&fs, dir).unwrap());
    }
}
