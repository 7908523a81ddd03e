//! Names of the files in a log directory (spec 1.8). Kafka: `LogFileUtils`, `UnifiedLog`.

use std::path::{Path, PathBuf};

/// `.log`: batches back to back.
pub const LOG: &str = ".log";
/// `.index`: offset to position.
pub(crate) const OFFSET_INDEX: &str = ".index";
/// `.timeindex`: timestamp to offset.
pub(crate) const TIME_INDEX: &str = ".timeindex";
/// `.txnindex`: aborted transactions.
pub(crate) const TXN_INDEX: &str = ".txnindex";
/// `.snapshot`: producer state.
pub(crate) const SNAPSHOT: &str = ".snapshot";
/// A file that will be removed is first renamed to end with this.
pub const DELETED: &str = ".deleted";
/// Output of the cleaner, not yet complete.
pub(crate) const CLEANED: &str = ".cleaned";
/// Complete output of the cleaner, about to replace the originals.
pub(crate) const SWAP: &str = ".swap";
/// The new content of a file, about to replace it.
pub(crate) const TEMPORARY: &str = ".tmp";
/// Bytes that recovery cut off (only fletchlog writes it; Kafka ignores the file).
pub(crate) const TORN: &str = ".torn";

/// `leader-epoch-checkpoint` of a partition.
pub(crate) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// `partition.metadata` of a partition.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Offsets below which everything is on disk, per log directory.
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// Log start offsets that are not the base of the first segment, per log directory.
pub const LOG_START_OFFSET_CHECKPOINT: &str = "log-start-offset-checkpoint";
/// High watermarks, per log directory.
pub const HIGH_WATERMARK_CHECKPOINT: &str = "replication-offset-checkpoint";
/// First dirty offsets of compacted logs, per log directory.
pub const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";
/// Marker of a clean stop, per log directory.
pub(crate) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Identity of a log directory.
pub const META_PROPERTIES: &str = "meta.properties";

/// `<20 digits><suffix>` in `dir`.
pub(crate) fn segment_file(dir: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    dir.join(format!("{base_offset:020}{suffix}"))
}

/// `path` with `suffix` appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// The offset in a name of the form `<digits><suffix>`; `None` if the suffix differs or the rest is not a number.
pub fn offset_of(name: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Topic and partition of a directory `<topic>-<partition>`; the partition is what follows the last '-'. `None` for
/// `-delete`, `-future`, `-stray` and anything else. Kafka: `UnifiedLog#parseTopicPartitionName`.
pub fn parse_partition_dir(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    if topic.is_empty() || partition.is_empty() || !partition.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((topic, partition.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_directory_ends_with_its_number() {
        assert_eq!(parse_partition_dir("a-b-12"), Some(("a-b", 12)));
        for other in [
            "a",
            "-1",
            "a-",
            "a-x",
            "a-0.0123456789abcdef0123456789abcdef-delete",
            "a-99999999999",
        ] {
            assert_eq!(parse_partition_dir(other), None, "{other}");
        }
    }

    #[test]
    fn an_offset_is_all_digits() {
        assert_eq!(offset_of("00000000000000000045.log", LOG), Some(45));
        for other in ["abc.log", ".log", "-1.log", "+1.log", "1.log.swap"] {
            assert_eq!(offset_of(other, LOG), None, "{other}");
        }
    }
}
