//! Properties of `Broker(config=...)`. Kafka: `KafkaConfig`, with the parts it collects (`ServerLogConfigs`,
//! `GroupCoordinatorConfig`, ...). The `log.*` rows are defaults that topics inherit.

use super::topic::{CLEANUP_POLICIES, COMPRESSION_TYPES, DURABILITIES, TIMESTAMP_TYPES};
use super::{ConfigKey, Kind, Scope};

const fn row(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::Broker,
        kind,
        default,
        doc,
    }
}

/// Rows by name. Properties of Kafka that are missing here are refused rather than ignored.
pub(super) const KEYS: &[ConfigKey] = &[
    row(
        "auto.create.topics.enable",
        Kind::Boolean,
        Some("false"),
        "Whether a client that asks for an unknown topic creates it (with num.partitions). Kafka's default is true; here a misspelt name should be an error.",
    ),
    row(
        "compression.type",
        Kind::OneOf(COMPRESSION_TYPES),
        Some("producer"),
        "Default of a topic's compression.type.",
    ),
    row(
        "fetch.max.bytes",
        Kind::Int(1024, i32::MAX),
        Some("57671680"),
        "Upper limit of a fetch answer, whatever the client asks for.",
    ),
    row(
        "fletchlog.durability",
        Kind::OneOf(DURABILITIES),
        Some("page-cache"),
        "Default of a topic's fletchlog.durability.",
    ),
    row(
        "fletchlog.strict.first.sequence",
        Kind::Boolean,
        Some("false"),
        "Default of a topic's fletchlog.strict.first.sequence.",
    ),
    row(
        "group.initial.rebalance.delay.ms",
        Kind::Int(0, i32::MAX),
        Some("0"),
        "How long the first rebalance of an empty group waits for more members, in ms. Kafka's default is 3000, for members that start on many machines; here they start in one process, and a wait would only delay the first poll.",
    ),
    row(
        "group.max.session.timeout.ms",
        Kind::Int(0, i32::MAX),
        Some("1800000"),
        "Largest session.timeout.ms a member may ask for.",
    ),
    row(
        "group.max.size",
        Kind::Int(1, i32::MAX),
        Some("2147483647"),
        "Most members a group may have.",
    ),
    row(
        "group.min.session.timeout.ms",
        Kind::Int(0, i32::MAX),
        Some("6000"),
        "Smallest session.timeout.ms a member may ask for.",
    ),
    row(
        "log.cleanup.policy",
        Kind::ListOf(CLEANUP_POLICIES),
        Some("delete"),
        "Default of a topic's cleanup.policy.",
    ),
    row(
        "log.flush.interval.messages",
        Kind::Long(1, i64::MAX),
        Some("9223372036854775807"),
        "Default of a topic's flush.messages.",
    ),
    row(
        "log.flush.interval.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "Default of a topic's flush.ms.",
    ),
    row(
        "log.index.interval.bytes",
        Kind::Int(0, i32::MAX),
        Some("4096"),
        "Default of a topic's index.interval.bytes.",
    ),
    row(
        "log.index.size.max.bytes",
        Kind::Int(4, i32::MAX),
        Some("10485760"),
        "Default of a topic's segment.index.bytes.",
    ),
    row(
        "log.message.timestamp.after.max.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "Default of a topic's message.timestamp.after.max.ms.",
    ),
    row(
        "log.message.timestamp.before.max.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "Default of a topic's message.timestamp.before.max.ms.",
    ),
    row(
        "log.message.timestamp.difference.max.ms",
        Kind::Long(0, i64::MAX),
        Some("9223372036854775807"),
        "Default of a topic's message.timestamp.difference.max.ms.",
    ),
    row(
        "log.message.timestamp.type",
        Kind::OneOf(TIMESTAMP_TYPES),
        Some("CreateTime"),
        "Default of a topic's message.timestamp.type.",
    ),
    row(
        "log.retention.bytes",
        Kind::Long(i64::MIN, i64::MAX),
        Some("-1"),
        "Default of a topic's retention.bytes.",
    ),
    row(
        "log.retention.check.interval.ms",
        Kind::Long(-1, i64::MAX),
        Some("-1"),
        "How often old segments are deleted, in ms, checked when something is produced. -1 (default; Kafka: 300000): only run_retention() deletes, so that reading data with old timestamps is never a race.",
    ),
    row(
        "log.retention.hours",
        Kind::Int(-1, i32::MAX),
        Some("168"),
        "Default of a topic's retention.ms in hours; log.retention.minutes and log.retention.ms win over it. -1 = never.",
    ),
    row(
        "log.retention.minutes",
        Kind::Int(-1, i32::MAX),
        None,
        "Default of a topic's retention.ms in minutes; log.retention.ms wins over it. -1 = never.",
    ),
    row(
        "log.retention.ms",
        Kind::Long(-1, i64::MAX),
        None,
        "Default of a topic's retention.ms. -1 = never.",
    ),
    row(
        "log.roll.hours",
        Kind::Int(1, i32::MAX),
        Some("168"),
        "Default of a topic's segment.ms in hours; log.roll.ms wins over it.",
    ),
    row(
        "log.roll.jitter.ms",
        Kind::Long(0, i64::MAX),
        None,
        "Default of a topic's segment.jitter.ms.",
    ),
    row(
        "log.roll.ms",
        Kind::Long(1, i64::MAX),
        None,
        "Default of a topic's segment.ms.",
    ),
    row(
        "log.segment.bytes",
        Kind::Int(14, i32::MAX),
        Some("1073741824"),
        "Default of a topic's segment.bytes.",
    ),
    row(
        "log.segment.delete.delay.ms",
        Kind::Long(0, i64::MAX),
        Some("60000"),
        "Default of a topic's file.delete.delay.ms.",
    ),
    row(
        "max.incremental.fetch.session.cache.slots",
        Kind::Int(0, i32::MAX),
        Some("1000"),
        "Fetch sessions a node keeps; without a free slot a client stays with full fetches.",
    ),
    row(
        "message.max.bytes",
        Kind::Int(0, i32::MAX),
        Some("1048588"),
        "Default of a topic's max.message.bytes.",
    ),
    row(
        "min.insync.replicas",
        Kind::Int(1, i32::MAX),
        Some("1"),
        "Default of a topic's min.insync.replicas (any value holds with one replica).",
    ),
    row(
        "num.partitions",
        Kind::Int(1, i32::MAX),
        Some("1"),
        "Partitions of an automatically created topic.",
    ),
    row(
        "offset.metadata.max.bytes",
        Kind::Int(0, i32::MAX),
        Some("4096"),
        "Longest metadata text of a committed offset, in bytes.",
    ),
    row(
        "offsets.retention.check.interval.ms",
        Kind::Long(1, i64::MAX),
        Some("600000"),
        "How often expired offsets are looked for, in ms.",
    ),
    row(
        "offsets.retention.minutes",
        Kind::Int(1, i32::MAX),
        Some("10080"),
        "Minutes after which the offsets of an empty group expire.",
    ),
    row(
        "offsets.topic.num.partitions",
        Kind::Int(1, i32::MAX),
        Some("50"),
        "Partitions of __consumer_offsets, fixed when the first group commits or joins.",
    ),
    row(
        "offsets.topic.segment.bytes",
        Kind::Int(14, i32::MAX),
        Some("104857600"),
        "Segment size of __consumer_offsets.",
    ),
    row(
        "producer.id.expiration.ms",
        Kind::Int(1, i32::MAX),
        Some("86400000"),
        "Time in ms after the timestamp of its last batch at which a producer id's sequence state is forgotten.",
    ),
    row(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind::Int(1, i32::MAX),
        Some("10000"),
        "How often open transactions are compared with their transaction.timeout.ms, in ms; looked at by whoever calls the broker next.",
    ),
    row(
        "transaction.max.timeout.ms",
        Kind::Int(1, i32::MAX),
        Some("900000"),
        "Largest transaction.timeout.ms a producer may ask for.",
    ),
    row(
        "transaction.partition.verification.enable",
        Kind::Boolean,
        Some("true"),
        "Whether a partition accepts the first batch of a transaction only when the transaction coordinator knows that the partition belongs to it (KIP-890). False: Kafka's behaviour before 3.6.",
    ),
    row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind::Int(1, i32::MAX),
        Some("3600000"),
        "How often expired transactional ids are looked for, in ms.",
    ),
    row(
        "transaction.state.log.num.partitions",
        Kind::Int(1, i32::MAX),
        Some("50"),
        "Partitions of __transaction_state, fixed when the first transactional producer starts.",
    ),
    row(
        "transaction.state.log.segment.bytes",
        Kind::Int(14, i32::MAX),
        Some("104857600"),
        "Segment size of __transaction_state.",
    ),
    row(
        "transactional.id.expiration.ms",
        Kind::Int(1, i32::MAX),
        Some("604800000"),
        "Time in ms without a transaction after which a transactional.id is forgotten.",
    ),
    row(
        "unclean.leader.election.enable",
        Kind::Boolean,
        Some("false"),
        "Without meaning here: there is one replica and never an election.",
    ),
];
