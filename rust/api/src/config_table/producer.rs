//! Properties of the producer (spec 9.1, 9.7). Where the release decides, `default` is that of Kafka 2.6 and the doc
//! names the later ones; `ProducerConfig` (client) applies them.

use super::{ConfigKey, Kind, Scope};
use crate::security_texts as texts;

const fn key(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::Producer,
        kind,
        default,
        doc,
    }
}

const MAX: i64 = i64::MAX;

pub(super) const KEYS: &[ConfigKey] = &[
    key(
        "acks",
        Kind::OneOf(&["all", "-1", "0", "1"]),
        Some("1"),
        "Acknowledgements asked for: all (or -1), 1, or 0 for none (the offset is then unknown). Default 1; all from release 3.0 on, and always all under idempotence.",
    ),
    key(
        "batch.size",
        Kind::Int(0, i32::MAX),
        Some("16384"),
        "Bytes of a batch's buffer; a batch is closed when the next record does not fit. A larger record gets a batch of its own size.",
    ),
    key(
        "bootstrap.servers",
        Kind::ListOf(&[]),
        None,
        "HOST:PORT of brokers of a Kafka cluster, separated by commas: the first ones to ask which brokers there are. For a producer that is given no Broker.",
    ),
    key(
        "buffer.memory",
        Kind::Long(0, MAX),
        Some("33554432"),
        "Bytes of all batches not yet decided. When used up, send waits for at most max.block.ms.",
    ),
    key(
        "client.id",
        Kind::Text,
        Some(""),
        "A name for this client, in each of its requests and in the name of its thread. Empty: producer-N, where N counts the producers of the process, or transactional.id in place of N.",
    ),
    key(
        "compression.type",
        Kind::OneOf(&["none", "gzip", "snappy", "lz4", "zstd"]),
        Some("none"),
        "Codec of the batches.",
    ),
    key(
        "compression.gzip.level",
        Kind::Int(-1, 9),
        Some("-1"),
        "Level of gzip, 1 to 9; -1 = the codec's default.",
    ),
    key("compression.lz4.level", Kind::Int(1, 17), Some("9"), "Level of lz4."),
    key(
        "compression.zstd.level",
        Kind::Int(-131_072, 22),
        Some("3"),
        "Level of zstd.",
    ),
    key(
        "delivery.timeout.ms",
        Kind::Int(0, i32::MAX),
        Some("120000"),
        "Milliseconds from the creation of a batch until its records fail, retries included. At least linger.ms + request.timeout.ms.",
    ),
    key(
        "enable.idempotence",
        Kind::Boolean,
        Some("false"),
        "Producer id and sequence numbers: each record once and in order, up to 5 requests in flight. Default false; true from release 3.0 on unless acks, retries or in-flight contradict it.",
    ),
    key(
        "linger.ms",
        Kind::Long(0, MAX),
        Some("0"),
        "Milliseconds that a batch waits for more records before it may be sent. Default 0; 5 from release 4.0 on.",
    ),
    key(
        "max.block.ms",
        Kind::Long(0, MAX),
        Some("60000"),
        "Milliseconds that send waits for metadata or for buffer memory.",
    ),
    key(
        "max.in.flight.requests.per.connection",
        Kind::Int(1, i32::MAX),
        Some("5"),
        "Unanswered requests per node. 1 keeps order under retries without idempotence; at most 5 with idempotence.",
    ),
    key(
        "max.request.size",
        Kind::Int(0, i32::MAX),
        Some("1048576"),
        "Bytes of one request, and the most that one record may need before compression.",
    ),
    key(
        "metadata.cluster.check.enable",
        Kind::Boolean,
        Some("true"),
        texts::CLUSTER_CHECK,
    ),
    key(
        "metadata.max.age.ms",
        Kind::Long(0, MAX),
        Some("300000"),
        "Milliseconds after which metadata is asked for again.",
    ),
    key(
        "metadata.recovery.rebootstrap.trigger.ms",
        Kind::Long(0, MAX),
        Some("300000"),
        texts::REBOOTSTRAP_TRIGGER,
    ),
    key(
        "metadata.recovery.strategy",
        Kind::OneOf(&["rebootstrap", "none"]),
        Some("rebootstrap"),
        texts::RECOVERY_STRATEGY,
    ),
    key(
        "partitioner.adaptive.partitioning.enable",
        Kind::Boolean,
        Some("true"),
        "Null keys, release 3.3 on: prefer partitions with shorter queues.",
    ),
    key(
        "partitioner.availability.timeout.ms",
        Kind::Long(0, MAX),
        Some("0"),
        "Null keys, release 3.3 on: leave out partitions whose node has not taken ready data for this many milliseconds; 0 = never.",
    ),
    key(
        "partitioner.class",
        Kind::OneOf(&[
            "",
            "RoundRobinPartitioner",
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        ]),
        Some(""),
        "Empty: by key (murmur2), sticky for null keys. RoundRobinPartitioner: available partitions in turn; the key does not matter.",
    ),
    key(
        "partitioner.ignore.keys",
        Kind::Boolean,
        Some("false"),
        "Release 3.3 on: place records with a key as if it were null.",
    ),
    key(
        "reconnect.backoff.ms",
        Kind::Long(0, MAX),
        Some("50"),
        "Milliseconds before a lost connection is opened again, the first time.",
    ),
    key(
        "reconnect.backoff.max.ms",
        Kind::Long(0, MAX),
        Some("1000"),
        "Upper bound of that wait, which doubles with every loss before an answer has come, a fifth more or less at random. Not above reconnect.backoff.ms: the wait is constant.",
    ),
    key(
        "request.timeout.ms",
        Kind::Int(0, i32::MAX),
        Some("30000"),
        "Milliseconds that a request may stay unanswered before its connection is given up.",
    ),
    key(
        "retries",
        Kind::Int(0, i32::MAX),
        Some("2147483647"),
        "Attempts after the first one, within delivery.timeout.ms.",
    ),
    key(
        "retry.backoff.ms",
        Kind::Long(0, MAX),
        Some("100"),
        "Milliseconds before a batch is sent again, and between metadata requests.",
    ),
    key(
        "retry.backoff.max.ms",
        Kind::Long(0, MAX),
        Some("1000"),
        "Upper bound of retry.backoff.ms, which doubles per attempt from release 3.7 on.",
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
        "socket.connection.setup.timeout.max.ms",
        Kind::Long(1, MAX),
        Some("30000"),
        "Upper bound of socket.connection.setup.timeout.ms, which doubles with every attempt at a node that fails.",
    ),
    key(
        "socket.connection.setup.timeout.ms",
        Kind::Long(1, MAX),
        Some("10000"),
        "Milliseconds that a connection to one address of a broker may take; then its next address is tried.",
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
        "transaction.timeout.ms",
        Kind::Int(0, i32::MAX),
        Some("60000"),
        "Milliseconds that a transaction may stay open before the broker aborts it and fences the producer. At most transaction.max.timeout.ms of the broker.",
    ),
    key(
        "transactional.id",
        Kind::Text,
        None,
        "Name under which transactions survive a restart of the application; a newer producer with the same name fences the older one. Implies enable.idempotence. Call init_transactions() before the first transaction.",
    ),
    key(
        "fletchlog.producer.version",
        Kind::Release,
        Some("2.6"),
        "The Java client release whose producer behaviour is reproduced, 2.4 to 4.4: defaults, what happens under faults, and from 4.0 on transactions of version 2 (KIP-890) where the cluster has them.",
    ),
    key(
        "fletchlog.trace",
        Kind::Boolean,
        Some("false"),
        "Keep a trace of what the producer did.",
    ),
];
