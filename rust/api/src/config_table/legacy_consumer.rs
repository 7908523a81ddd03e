//! Properties of the 0.8 high-level consumer (spec 8.1, 8.2). Kafka: `ConsumerConfig`, 0.8.2.

use super::{ConfigKey, Kind, Scope};

const fn key(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::LegacyConsumer,
        kind,
        default,
        doc,
    }
}

const MAX_INT: i32 = i32::MAX;

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "auto.commit.enable",
        Kind::Boolean,
        Some("true"),
        "Commit the positions of all streams every auto.commit.interval.ms, before a rebalance and on shutdown.",
    ),
    key(
        "auto.commit.interval.ms",
        Kind::Int(1, MAX_INT),
        Some("60000"),
        "How often positions are committed, in ms.",
    ),
    key(
        "auto.offset.reset",
        Kind::OneOf(&["largest", "smallest", "latest", "earliest"]),
        Some("largest"),
        "Where to start without a committed offset or outside the log: smallest (earliest) is the log start, largest (latest) its end.",
    ),
    key(
        "client.id",
        Kind::Text,
        Some(""),
        "A name for this client; the group id when empty.",
    ),
    key(
        "consumer.id",
        Kind::Text,
        None,
        "Names this consumer `<group>_<consumer.id>`. Unset: `<group>_<host>-<ms>-<8 hex digits>`. Consumers sort by this text, and the first in order get the partitions.",
    ),
    key(
        "consumer.timeout.ms",
        Kind::Int(-1, MAX_INT),
        Some("-1"),
        "How long iterating a stream waits for a record before it ends with a timeout error, in ms; -1 waits for ever.",
    ),
    key(
        "fetch.message.max.bytes",
        Kind::Int(1, MAX_INT),
        Some("1048576"),
        "Most bytes per partition in one fetch.",
    ),
    key(
        "fetch.min.bytes",
        Kind::Int(1, MAX_INT),
        Some("1"),
        "Bytes the broker waits for before it answers a fetch.",
    ),
    key(
        "fetch.wait.max.ms",
        Kind::Int(0, MAX_INT),
        Some("100"),
        "How long the broker may hold back a fetch with fewer than fetch.min.bytes, in ms.",
    ),
    key(
        "group.id",
        Kind::Text,
        None,
        "The group whose consumers share the partitions. Required.",
    ),
    key(
        "max.poll.records",
        Kind::Int(1, MAX_INT),
        Some("500"),
        "Most records one poll of a stream returns. Not a property of 0.8, whose streams handed out single records.",
    ),
    key(
        "partition.assignment.strategy",
        Kind::Text,
        Some("range"),
        "range, or roundrobin (every consumer needs the same topics with the same number of streams). As in Kafka, anything else means range.",
    ),
    key(
        "rebalance.backoff.ms",
        Kind::Int(0, MAX_INT),
        None,
        "Time between two attempts of a rebalance, in ms. Unset: zookeeper.sync.time.ms.",
    ),
    key(
        "rebalance.max.retries",
        Kind::Int(1, MAX_INT),
        Some("4"),
        "Attempts of a rebalance (other consumers have to release partitions first) before poll reports that it failed; later polls try again.",
    ),
    key(
        "socket.timeout.ms",
        Kind::Int(1, MAX_INT),
        Some("30000"),
        "How long one request may stay without an answer, in ms.",
    ),
    key(
        "zookeeper.connect",
        Kind::Text,
        None,
        "Accepted so that an old configuration can be used as it is, and not used: the broker keeps the registry of legacy groups.",
    ),
    key(
        "zookeeper.session.timeout.ms",
        Kind::Int(1, MAX_INT),
        Some("6000"),
        "How long after the last sign of life a consumer that did not shut down keeps its partitions, in ms.",
    ),
    key(
        "zookeeper.sync.time.ms",
        Kind::Int(0, MAX_INT),
        Some("2000"),
        "Default of rebalance.backoff.ms.",
    ),
];
