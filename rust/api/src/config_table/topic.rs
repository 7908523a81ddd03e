//! Properties of a topic (spec 1.14). Kafka: `TopicConfig`. A topic inherits what it does not set from the broker's
//! `log.*` properties.

use super::{ConfigKey, Kind, Scope};

const fn row(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::Topic,
        kind,
        default,
        doc,
    }
}

/// Codecs as `compression.type` names them.
pub(super) const COMPRESSION_TYPES: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
/// What `cleanup.policy` may list.
pub(super) const CLEANUP_POLICIES: &[&str] = &["compact", "delete"];
/// `message.timestamp.type`.
pub(super) const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];
/// `fletchlog.durability`.
pub(super) const DURABILITIES: &[&str] = &["page-cache", "fsync"];

/// Rows by name. Tiered storage accepts only its default, as in a Kafka broker that is not set up for it.
pub(super) const KEYS: &[ConfigKey] = &[
    row(
        "cleanup.policy",
        Kind::ListOf(CLEANUP_POLICIES),
        Some("delete"),
        "What happens to old data: `delete` (retention.ms, retention.bytes), `compact` (records need keys; of each key the newest stays, once clean_topic() or the thread of log.cleaner.enable has cleaned), or both.",
    ),
    row(
        "compression.gzip.level",
        Kind::GzipLevel,
        Some("-1"),
        "Level when the broker compresses with gzip, 1 to 9; -1 = the codec's default.",
    ),
    row(
        "compression.lz4.level",
        Kind::Int(1, 17),
        Some("9"),
        "Level when the broker compresses with lz4, 1 to 17.",
    ),
    row(
        "compression.type",
        Kind::OneOf(COMPRESSION_TYPES),
        Some("producer"),
        "Codec of the batches in the log; `producer` keeps each batch as it came, any other name re-compresses.",
    ),
    row(
        "compression.zstd.level",
        Kind::Int(-131_072, 22),
        Some("3"),
        "Level when the broker compresses with zstd.",
    ),
    row(
        "delete.retention.ms",
        Kind::Long(0, i64::MAX),
        Some("86400000"),
        "How long tombstones stay visible in a compacted topic, in ms.",
    ),
    row(
        "errors.deadletterqueue.group.enable",
        Kind::Boolean,
        Some("false"),
        "Whether share groups may write their dead letters to the topic.",
    ),
    row(
        "file.delete.delay.ms",
        Kind::Long(0, i64::MAX),
        Some("60000"),
        "How long a removed segment's files stay on disk for readers that still hold them, in ms.",
    ),
    row(
        "fletchlog.durability",
        Kind::OneOf(DURABILITIES),
        Some("page-cache"),
        "`page-cache`: an acknowledged append survives a killed process (Kafka's promise). `fsync`: it survives a power loss; every append waits for the disk.",
    ),
    row(
        "fletchlog.strict.first.sequence",
        Kind::Boolean,
        Some("false"),
        "true: a producer id without state must start at sequence 0, as brokers before 2.5 demanded; closes the hole in which a first batch is lost and the second accepted.",
    ),
    row(
        "flush.messages",
        Kind::Long(1, i64::MAX),
        Some("9223372036854775807"),
        "fsync after an append once this many messages are unflushed.",
    ),
    row(
        "flush.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "fsync with the first append that finds the last flush older than this many ms (checked at appends; closing flushes the rest).",
    ),
    row(
        "follower.replication.throttled.replicas",
        Kind::ThrottledReplicas,
        Some(""),
        "Replicas whose replication is throttled. Without effect: there is one copy of the bytes, and nothing is replicated.",
    ),
    row(
        "index.interval.bytes",
        Kind::Int(0, i32::MAX),
        Some("4096"),
        "Bytes of the log between two entries of the offset index.",
    ),
    row(
        "internal.segment.bytes",
        Kind::Int(14, i32::MAX),
        None,
        "Segment size for tests on Kafka 4.x, where segment.bytes has a minimum of 1 MiB; wins over segment.bytes.",
    ),
    row(
        "leader.replication.throttled.replicas",
        Kind::ThrottledReplicas,
        Some(""),
        "Replicas whose replication is throttled. Without effect: there is one copy of the bytes, and nothing is replicated.",
    ),
    row(
        "local.retention.bytes",
        Kind::Long(-2, i64::MAX),
        Some("-2"),
        "Local bytes per partition when older segments are in remote storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "local.retention.ms",
        Kind::Long(-2, i64::MAX),
        Some("-2"),
        "Local age in ms when older segments are in remote storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "max.compaction.lag.ms",
        Kind::Long(1, i64::MAX),
        Some("9223372036854775807"),
        "Longest time in ms a record of a compacted topic may stay out of compaction; the active segment rolls by it.",
    ),
    row(
        "max.decompressed.message.bytes",
        Kind::Int(1, 2_147_483_639),
        Some("2147483639"),
        "Largest record of a compressed batch, in bytes when decompressed. Larger ones are refused when they are produced; once there, they fail lookups by time and compaction.",
    ),
    row(
        "max.message.bytes",
        Kind::Int(0, i32::MAX),
        Some("1048588"),
        "Largest batch as stored, header included, after compression.",
    ),
    row(
        "message.timestamp.after.max.ms",
        Kind::Long(0, i64::MAX),
        Some("3600000"),
        "How far in the future a CreateTime may be, in ms (inclusive); farther ones are refused.",
    ),
    row(
        "message.timestamp.before.max.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "How far in the past a CreateTime may be, in ms (inclusive); older ones are refused.",
    ),
    row(
        "message.timestamp.difference.max.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "Older name for both limits: when set alone it supplies message.timestamp.before.max.ms and message.timestamp.after.max.ms.",
    ),
    row(
        "message.timestamp.type",
        Kind::OneOf(TIMESTAMP_TYPES),
        Some("CreateTime"),
        "`CreateTime`: the producer's timestamps. `LogAppendTime`: every record gets the broker's time at append.",
    ),
    row(
        "min.cleanable.dirty.ratio",
        Kind::Double(0.0, 1.0),
        Some("0.5"),
        "Share of uncompacted bytes from which a compacted log is worth cleaning.",
    ),
    row(
        "min.compaction.lag.ms",
        Kind::Long(0, i64::MAX),
        Some("0"),
        "Time in ms a record of a compacted topic stays uncompacted at least.",
    ),
    row(
        "min.insync.replicas",
        Kind::Int(1, i32::MAX),
        Some("1"),
        "Replicas that must be in sync for acks=all, at most as many as there are. Replicas are in sync unless their nodes are stopped.",
    ),
    row(
        "preallocate",
        Kind::Boolean,
        Some("false"),
        "Whether segment files get their full size at once. Without effect: a segment grows as it is written.",
    ),
    row(
        "remote.copy.lag.bytes",
        Kind::Long(-1, i64::MAX),
        Some("-1"),
        "Part of tiered storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "remote.copy.lag.ms",
        Kind::Long(-1, i64::MAX),
        Some("0"),
        "Part of tiered storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "remote.log.copy.disable",
        Kind::Boolean,
        Some("false"),
        "Part of tiered storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "remote.log.delete.on.disable",
        Kind::Boolean,
        Some("false"),
        "Part of tiered storage. Without effect, as in Kafka without remote storage.",
    ),
    row(
        "remote.storage.enable",
        Kind::Only(&Kind::Boolean),
        Some("false"),
        "Tiered storage. There is none: only the default is accepted.",
    ),
    row(
        "retention.bytes",
        Kind::Long(i64::MIN, i64::MAX),
        Some("-1"),
        "Bytes per partition below which old segments are not deleted for size; negative = no limit.",
    ),
    row(
        "retention.ms",
        Kind::Long(-1, i64::MAX),
        Some("604800000"),
        "Age in ms (by the newest record of a segment) beyond which segments are deleted; -1 = never.",
    ),
    row(
        "segment.bytes",
        Kind::Int(14, i32::MAX),
        Some("1073741824"),
        "Bytes after which a new segment begins. Kafka 4.x refuses less than 1048576.",
    ),
    row(
        "segment.index.bytes",
        Kind::Int(4, i32::MAX),
        Some("10485760"),
        "Largest size of an index file; a full index begins a new segment.",
    ),
    row(
        "segment.jitter.ms",
        Kind::Long(0, i64::MAX),
        Some("0"),
        "Largest random time in ms subtracted from segment.ms, so that segments do not all roll together.",
    ),
    row(
        "segment.ms",
        Kind::Long(1, i64::MAX),
        Some("604800000"),
        "Time in ms after which a new segment begins even if the current one is not full.",
    ),
    row(
        "unclean.leader.election.enable",
        Kind::Boolean,
        Some("false"),
        "Whether a replica that is not in sync leads a partition without leader when its node starts.",
    ),
];

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigError, Scope};

    #[test]
    fn every_default_satisfies_its_own_range() {
        for scope in [Scope::Topic, Scope::Broker] {
            for key in crate::config_table::keys(scope) {
                assert_eq!(key.scope, scope, "{}", key.name);
                if let Some(default) = key.default {
                    Config::parse(scope, [(key.name, default)]).unwrap();
                }
            }
        }
    }

    #[test]
    fn rows_are_sorted_and_named_once() {
        for scope in [Scope::Topic, Scope::Broker] {
            let keys = crate::config_table::keys(scope);
            for pair in keys.windows(2) {
                assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
            }
        }
    }

    #[test]
    fn the_misspelt_time_difference_limit_is_refused_with_the_right_name() {
        let Err(ConfigError::Unknown { suggestion, .. }) =
            Config::parse(Scope::Topic, [("max.message.time.difference.ms", "1000")])
        else {
            panic!("accepted");
        };
        assert_eq!(suggestion.as_deref(), Some("message.timestamp.difference.max.ms"));
    }

    #[test]
    fn a_broker_answers_in_kafkas_words() {
        for (name, value, text) in [
            ("no.such", "1", "Unknown topic config name: no.such"),
            (
                "retention.ms",
                "abc",
                "Invalid value abc for configuration retention.ms: Not a number of type LONG",
            ),
            (
                "max.message.bytes",
                "-1",
                "Invalid value -1 for configuration max.message.bytes: Value must be at least 0",
            ),
            (
                "min.cleanable.dirty.ratio",
                "2",
                "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
            ),
            (
                "cleanup.policy",
                "delete,x",
                "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            (
                "preallocate",
                "1",
                "Invalid value 1 for configuration preallocate: Expected value to be either true or false",
            ),
            (
                "leader.replication.throttled.replicas",
                "0:1, 1:x",
                "Invalid value [0:1, 1:x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            ),
            (
                "compression.gzip.level",
                "0",
                "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
            ),
            (
                "remote.storage.enable",
                "true",
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
            ),
        ] {
            let refused = Config::parse(Scope::Topic, [(name, value)]).unwrap_err();
            assert_eq!(refused.kafka_message(), text);
        }
    }

    #[test]
    fn what_kafka_takes_is_taken() {
        for (name, values) in [
            ("preallocate", &["true", "TRUE", " False "][..]),
            ("remote.log.copy.disable", &["true"]),
            ("remote.log.delete.on.disable", &["true"]),
            ("remote.storage.enable", &["False"]),
            (
                "leader.replication.throttled.replicas",
                &["*", "", "0:1", "0:1,1:2", " 0:1 , 1:2 "],
            ),
            ("follower.replication.throttled.replicas", &["*", "10:3"]),
            ("compression.gzip.level", &["-1", "1", "9"]),
        ] {
            for value in values {
                Config::parse(Scope::Topic, [(name, *value)]).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        for value in ["x", "0", ":1", "0:", "*,0:1", "*,*", "-1:1"] {
            Config::parse(Scope::Topic, [("leader.replication.throttled.replicas", value)]).unwrap_err();
        }
    }

    #[test]
    fn a_value_out_of_range_says_what_is_expected() {
        let error = Config::parse(Scope::Topic, [("segment.bytes", "13")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`segment.bytes`") && error.contains("from 14"),
            "{error}"
        );
    }
}
