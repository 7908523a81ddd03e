//! Names of partition directories. Kafka: `LogManager`, `UnifiedLog#logDeleteDirName`, `#parseTopicPartitionName`.

use fletchlog_log::file_name::parse_partition_dir;
use fletchlog_records::TopicPartition;

use crate::topic_names::CLUSTER_METADATA;
use crate::uuid;

/// Longest file name that file systems accept; Kafka cuts the topic to stay within it.
const MAX_NAME: usize = 255;

/// `<topic>-<partition>`.
pub(crate) fn partition_dir_name(tp: &TopicPartition) -> String {
    tp.to_string()
}

/// `<topic>-<partition>.<32 hex digits>-delete`: a log that is being removed.
pub(crate) fn deleted_dir_name(tp: &TopicPartition) -> String {
    suffixed(tp, "delete")
}

/// `<topic>-<partition>.<32 hex digits>-stray`: a log that belongs to no topic.
pub(crate) fn stray_dir_name(tp: &TopicPartition) -> String {
    suffixed(tp, "stray")
}

fn suffixed(tp: &TopicPartition, what: &str) -> String {
    let suffix = format!("-{}.{}-{what}", tp.partition, uuid::random_hex());
    let room = MAX_NAME.saturating_sub(suffix.len()).min(tp.topic.len());
    // Topic names are ASCII, so every byte is a boundary; `get` avoids a panic for any other name.
    format!("{}{suffix}", tp.topic.get(..room).unwrap_or(&tp.topic))
}

/// The meaning of a directory name in a log directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirName {
    /// A partition's log.
    Partition(TopicPartition),
    /// A log whose removal was not finished.
    Deleted,
    /// Anything else (stray and future logs, other people's directories): left alone.
    Other,
}

/// Reads a directory name.
pub(crate) fn parse(name: &str) -> DirName {
    let suffix = |end: &str| {
        name.strip_suffix(end)
            .and_then(|rest| rest.rsplit_once('.'))
            .is_some_and(|(front, hex)| {
                !front.is_empty() && hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
            })
    };
    if suffix("-delete") {
        return DirName::Deleted;
    }
    if suffix("-stray") || suffix("-future") || name.starts_with('.') {
        return DirName::Other;
    }
    match parse_partition_dir(name) {
        // `__cluster_metadata-0` is KRaft's own log, no topic of the data plane.
        Some((topic, partition)) if topic != CLUSTER_METADATA && crate::topic_names::validate_name(topic).is_ok() => {
            DirName::Partition(TopicPartition::new(topic, partition))
        }
        _ => DirName::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_splits_at_its_last_dash() {
        assert_eq!(
            parse("my-topic-12"),
            DirName::Partition(TopicPartition::new("my-topic", 12))
        );
        assert_eq!(
            parse("__consumer_offsets-0"),
            DirName::Partition(TopicPartition::new("__consumer_offsets", 0))
        );
        for other in [
            "node",
            "-1",
            "t-",
            "t-x",
            "t-99999999999",
            "__cluster_metadata-0",
            "..-1",
        ] {
            assert_eq!(parse(other), DirName::Other, "{other}");
        }
    }

    #[test]
    fn names_of_deleted_logs_are_recognised_and_fit_the_file_system() {
        let long = "x".repeat(249);
        for topic in ["t", long.as_str()] {
            let name = deleted_dir_name(&TopicPartition::new(topic, 3));
            assert!(name.len() <= 255, "{}", name.len());
            assert_eq!(parse(&name), DirName::Deleted);
            assert_eq!(parse(&stray_dir_name(&TopicPartition::new(topic, 3))), DirName::Other);
        }
        assert_eq!(parse("t-delete"), DirName::Other);
    }
}
