//! Properties of the consumer (spec 7.1), ours behind Kafka's. Kafka: `ConsumerConfig`.

use super::{ConfigKey, Kind, Scope};
use crate::security_texts as texts;

const fn key(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::Consumer,
        kind,
        default,
        doc,
    }
}

const MAX_INT: i32 = i32::MAX;
const MAX_LONG: i64 = i64::MAX;

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "allow.auto.create.topics",
        Kind::Boolean,
        Some("true"),
        "Whether subscribing to or assigning an unknown topic may create it, if the broker's auto.create.topics.enable allows that too.",
    ),
    key(
        "auto.commit.interval.ms",
        Kind::Int(0, MAX_INT),
        Some("5000"),
        "How often positions are committed under enable.auto.commit, in ms. What a poll commits is what earlier polls returned.",
    ),
    key(
        "auto.offset.reset",
        Kind::OneOf(&["earliest", "latest", "none"]),
        Some("latest"),
        "Where to start without a committed offset, and where to go when the position is outside the log: the log start, its end at the time of the lookup, or an error.",
    ),
    key(
        "bootstrap.servers",
        Kind::ListOf(&[]),
        None,
        "HOST:PORT of brokers of a Kafka cluster, separated by commas: the first ones to ask which brokers there are. For a consumer that is given no Broker.",
    ),
    key(
        "check.crcs",
        Kind::Boolean,
        Some("true"),
        "Check the CRC of every batch before its first record is returned. Off saves a little time and lets damage pass unseen.",
    ),
    key(
        "client.id",
        Kind::Text,
        Some(""),
        "A name for this client; the beginning of the member id that the group gives it.",
    ),
    key(
        "default.api.timeout.ms",
        Kind::Int(0, MAX_INT),
        Some("60000"),
        "How long commit(), committed(), position(), beginning_offsets(), end_offsets() and offsets_for_times() may take when they are given no timeout_ms, in ms.",
    ),
    key(
        "enable.auto.commit",
        Kind::Boolean,
        Some("true"),
        "Commit positions in the background of poll() and on close(). Has no effect without group.id.",
    ),
    key(
        "exclude.internal.topics",
        Kind::Boolean,
        Some("true"),
        "Whether a pattern leaves out internal topics such as __consumer_offsets.",
    ),
    key(
        "fetch.max.bytes",
        Kind::Int(0, MAX_INT),
        Some("52428800"),
        "Most bytes of one answer over all partitions. The first batch of the first non-empty partition is returned even if it is larger.",
    ),
    key(
        "fetch.max.wait.ms",
        Kind::Int(0, MAX_INT),
        Some("500"),
        "How long the broker may hold back an answer that has fewer than fetch.min.bytes, in ms.",
    ),
    key(
        "fetch.min.bytes",
        Kind::Int(0, MAX_INT),
        Some("1"),
        "Bytes the broker waits for before it answers. Delays records, does not reorder them.",
    ),
    key(
        "group.id",
        Kind::Text,
        None,
        "The group whose committed offsets this consumer uses; needed for subscribe() and commit().",
    ),
    key(
        "group.instance.id",
        Kind::Text,
        None,
        "Makes this a static member: it may come back within session.timeout.ms and gets its partitions again without a rebalance.",
    ),
    key(
        "heartbeat.interval.ms",
        Kind::Int(1, MAX_INT),
        Some("3000"),
        "How often the member reports to the group that it is alive, in ms; less than session.timeout.ms.",
    ),
    key(
        "isolation.level",
        Kind::OneOf(&["read_uncommitted", "read_committed"]),
        Some("read_uncommitted"),
        "read_committed returns only records of committed transactions and of no transaction, up to the last stable offset.",
    ),
    key(
        "max.partition.fetch.bytes",
        Kind::Int(0, MAX_INT),
        Some("1048576"),
        "Most bytes per partition in one answer: with full batches of ten-byte records 58,240 records, which is the length of the runs of one partition.",
    ),
    key(
        "max.poll.interval.ms",
        Kind::Int(1, MAX_INT),
        Some("300000"),
        "Longest time between two polls before the member leaves its group, in ms; also the time the group waits for members to rejoin.",
    ),
    key(
        "max.poll.records",
        Kind::Int(1, MAX_INT),
        Some("500"),
        "Most records one poll returns. Does not influence what is fetched.",
    ),
    key(
        "metadata.max.age.ms",
        Kind::Long(0, MAX_LONG),
        Some("300000"),
        "How often topics and leaders are asked for again although nothing changed, in ms.",
    ),
    key(
        "partition.assignment.strategy",
        Kind::ListOf(&[
            "range",
            "roundrobin",
            "sticky",
            "cooperative-sticky",
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "org.apache.kafka.clients.consumer.StickyAssignor",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ]),
        Some("range"),
        "Assignors this member supports, the preferred one first, by short name or by Java class. The group uses one that all members support.",
    ),
    key(
        "reconnect.backoff.ms",
        Kind::Long(0, MAX_LONG),
        Some("50"),
        "How long a lost connection is left alone the first time, in ms.",
    ),
    key(
        "reconnect.backoff.max.ms",
        Kind::Long(0, MAX_LONG),
        Some("1000"),
        "Upper bound of that time, which doubles with every loss before an answer has come, a fifth more or less at random. Not above reconnect.backoff.ms: it is constant.",
    ),
    key(
        "request.timeout.ms",
        Kind::Int(0, MAX_INT),
        Some("30000"),
        "How long one request may stay without an answer before its connection counts as lost, in ms.",
    ),
    key(
        "retry.backoff.ms",
        Kind::Long(0, MAX_LONG),
        Some("100"),
        "How long to wait before a failed request is repeated, in ms.",
    ),
    key("sasl.jaas.config", Kind::Password, None, texts::SASL_JAAS),
    key(
        "sasl.mechanism",
        Kind::OneOf(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]),
        None,
        texts::SASL_MECHANISM,
    ),
    key(
        "sasl.oauthbearer.client.credentials.client.id",
        Kind::Text,
        None,
        texts::OAUTH_ID,
    ),
    key(
        "sasl.oauthbearer.client.credentials.client.secret",
        Kind::Password,
        None,
        texts::OAUTH_SECRET,
    ),
    key("sasl.oauthbearer.scope", Kind::Text, None, texts::OAUTH_SCOPE),
    key(
        "sasl.oauthbearer.token.endpoint.url",
        Kind::Text,
        None,
        texts::OAUTH_URL,
    ),
    key("sasl.password", Kind::Password, None, texts::SASL_PASSWORD),
    key("sasl.username", Kind::Text, None, texts::SASL_USERNAME),
    key(
        "security.protocol",
        Kind::OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        Some("PLAINTEXT"),
        texts::SECURITY_PROTOCOL,
    ),
    key(
        "session.timeout.ms",
        Kind::Int(1, MAX_INT),
        Some("10000"),
        "Time without a heartbeat after which the group removes this member, in ms; the broker accepts 6000 to 1800000.",
    ),
    key(
        "socket.connection.setup.timeout.max.ms",
        Kind::Long(1, MAX_LONG),
        Some("30000"),
        "Upper bound of socket.connection.setup.timeout.ms, which doubles with every attempt at a node that fails.",
    ),
    key(
        "socket.connection.setup.timeout.ms",
        Kind::Long(1, MAX_LONG),
        Some("10000"),
        "How long a connection to one address of a broker may take, in ms; then its next address is tried.",
    ),
    key(
        "ssl.certificate.location",
        Kind::Text,
        None,
        texts::CERTIFICATE_LOCATION,
    ),
    key(
        "ssl.enabled.protocols",
        Kind::ListOf(&["TLSv1.2", "TLSv1.3"]),
        Some("TLSv1.2,TLSv1.3"),
        texts::ENABLED_PROTOCOLS,
    ),
    key(
        "ssl.endpoint.identification.algorithm",
        Kind::OneOf(&["https", "none", ""]),
        Some("https"),
        texts::ENDPOINT_IDENTIFICATION,
    ),
    key("ssl.key.location", Kind::Text, None, texts::KEY_LOCATION),
    key("ssl.key.password", Kind::Password, None, texts::KEY_PASSWORD),
    key(
        "ssl.keystore.certificate.chain",
        Kind::Text,
        None,
        texts::CERTIFICATE_CHAIN,
    ),
    key("ssl.keystore.key", Kind::Password, None, texts::KEY),
    key("ssl.keystore.location", Kind::Text, None, texts::KEYSTORE_LOCATION),
    key("ssl.keystore.type", Kind::Text, Some("PEM"), texts::KEYSTORE_TYPE),
    key(
        "ssl.truststore.certificates",
        Kind::Text,
        None,
        texts::TRUSTSTORE_CERTIFICATES,
    ),
    key("ssl.truststore.location", Kind::Text, None, texts::TRUSTSTORE_LOCATION),
    key("ssl.truststore.type", Kind::Text, Some("PEM"), texts::TRUSTSTORE_TYPE),
    key(
        "fletchlog.consumer.version",
        Kind::Release,
        Some("2.6"),
        "The Java client release whose poll order is reproduced, from 2.4 to 4.3; a patch number is accepted and ignored.",
    ),
    key(
        "fletchlog.decompression.limit.bytes",
        Kind::Long(1, MAX_LONG),
        Some("268435456"),
        // 256 MiB: a batch of max.message.bytes (1 MiB) that compresses 256 times; zeros in gzip reach about 1000 times.
        "Largest size in bytes that one compressed batch may expand to; beyond it the batch is an error instead of memory.",
    ),
    key(
        "fletchlog.fetch.order",
        Kind::OneOf(&["partition", "kip-387", "timestamp"]),
        Some("partition"),
        "partition: a fetch of one partition is handed out to its end before the next, as Kafka does. kip-387: another partition after each turn. timestamp: the partitions merged by record timestamp, ties by topic and partition; offset order within a partition always holds.",
    ),
    key(
        "fletchlog.network.read",
        Kind::OneOf(&["auto", "lazy", "eager"]),
        Some("auto"),
        "When answers that have arrived are read. auto: as the release does it (lazy under assign() without group.id, eager under subscribe()). lazy and eager force one rule.",
    ),
    key(
        "fletchlog.timestamp.max.idle.ms",
        Kind::Long(0, MAX_LONG),
        Some("0"),
        "Under fletchlog.fetch.order=timestamp: how long a partition that is at its end holds back the records of others, in ms since it was seen there. Data that is known to be in the log is always waited for. As max.task.idle.ms of Kafka Streams.",
    ),
    key(
        "fletchlog.timestamp.max.lateness.ms",
        Kind::Long(0, MAX_LONG),
        Some("9223372036854775807"),
        "Under fletchlog.fetch.order=timestamp: a partition at its end no longer holds back a record once another one was seen that is this much younger, in ms of record time.",
    ),
    key(
        "fletchlog.trace",
        Kind::Boolean,
        Some("false"),
        "Keep an event for every request, answer and decision of poll(); read them with trace().",
    ),
];
