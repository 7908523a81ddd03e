//! Properties of Java's clients and of librdkafka (and its Python package) that a configuration may contain.
//!
//! ```text
//! SAME      another name of a property of fletchlog
//! ignored   it changes nothing here; one warning says what holds instead
//! ONLY      values that say what holds here anyway; any other is refused, with what to do
//! REFUSED   what it asks for is not done here, and leaving it out would change what the program does, or how safe it is
//! ```
//! Every other name is unknown, and refused.

use crate::Scope;
use crate::config_table::keys;

const ADDRESSES: &str = "all addresses of a name are always tried";
const BUFFERS: &str = "the system sizes the sockets' buffers";
const C_INTERFACE: &str = "it is for programs in C";
const DESERIALIZERS: &str = "records have bytes: fletchlog.serde deserializes whole columns";
const EVENTS: &str = "calls raise their errors, and the log has the others";
const FETCHES: &str =
    "fetches are sent as Java's consumer does; fetch.max.bytes and max.partition.fetch.bytes bound what is read ahead";
const IDLE: &str = "a connection stays open until the broker closes it";
const KERBEROS: &str = "Kerberos is not spoken";
const LOGGING: &str = "Python's logging, logger fletchlog, decides what is logged";
const METADATA: &str = "metadata is asked for after metadata.max.age.ms, and when a broker says that it is old";
const METRICS: &str = "there are no metrics to report";
const OFFSETS: &str = "offsets are committed to the group";
const ONE_TLS: &str =
    "there is one implementation of TLS, which trusts the system's authorities unless others are given";
const QUEUE: &str = "buffer.memory and batch.size bound what a producer keeps";
const RENEWAL: &str = "a token is renewed when four fifths of its life are over";
const RETRIES: &str = "retry.backoff.ms says how long to wait";
const SERIALIZERS: &str = "send() takes bytes: serialize before it";
const SHARE: &str = "there are no share groups";
const STORES: &str = "a PEM file has no password; ssl.key.password is that of an encrypted key";
const TOKENS: &str = "tokens come from oauth_cb or from sasl.oauthbearer.token.endpoint.url, whichever is given";
const VALIDATION: &str = "the broker judges the token";
const VERSIONS: &str = "every broker is asked which versions it serves";

const DELIVERY: &str = "give the function to send(callback=...), or wait for the result of send()";
const ENGINE: &str = "there is one implementation of TLS: give certificates and keys as PEM, in ssl.keystore.location";
const HTTPS: &str = "the token endpoint is trusted as Python trusts it: set SSL_CERT_FILE";
const MEMORY: &str = "give the PEM text: ssl.ca.pem, ssl.certificate.pem, ssl.key.pem";
const OAUTH: &str = "tokens come from the grant client_credentials or from oauth_cb: give a function that gets one";
const PLUGINS: &str = "no code of others runs in the clients: do it before send() and after poll()";
const SUITES: &str =
    "TLS 1.3, and of TLS 1.2 only suites with forward secrecy and AES-GCM or ChaCha20, are spoken: leave it out";
const TOPIC_CONF: &str = "put its properties beside the others";

/// Name and what holds instead, or what to do.
type Row = (&'static str, &'static str);

const BOTH: &[Row] = &[
    ("api.version.fallback.ms", VERSIONS),
    ("api.version.request", VERSIONS),
    ("api.version.request.timeout.ms", VERSIONS),
    ("auto.include.jmx.reporter", METRICS),
    ("background_event_cb", C_INTERFACE),
    ("batch.num.messages", QUEUE),
    ("broker.address.family", ADDRESSES),
    ("broker.address.ttl", ADDRESSES),
    ("broker.version.fallback", VERSIONS),
    ("builtin.features", C_INTERFACE),
    ("client.dns.lookup", ADDRESSES),
    ("closesocket_cb", C_INTERFACE),
    ("connect_cb", C_INTERFACE),
    ("connections.max.idle.ms", IDLE),
    ("consume.callback.max.messages", FETCHES),
    ("coordinator.query.interval.ms", RETRIES),
    ("debug", LOGGING),
    (
        "delivery.report.only.error",
        "the callback of send() is called for every record",
    ),
    ("enable.metrics.push", METRICS),
    ("enable.random.seed", C_INTERFACE),
    ("enabled_events", C_INTERFACE),
    ("error_cb", EVENTS),
    ("fetch.error.backoff.ms", RETRIES),
    ("fetch.queue.backoff.ms", FETCHES),
    (
        "group.remote.assignor",
        "the members of a group assign its partitions: partition.assignment.strategy",
    ),
    ("internal.termination.signal", C_INTERFACE),
    (
        "internal.throw.on.fetch.stable.offset.unsupported",
        "it is for Java's own tests",
    ),
    ("log.connection.close", LOGGING),
    ("log.queue", LOGGING),
    ("log.thread.name", LOGGING),
    ("log_cb", LOGGING),
    ("log_level", LOGGING),
    ("logger", LOGGING),
    ("message.copy.max.bytes", QUEUE),
    ("metadata.max.idle.ms", METADATA),
    ("metric.reporters", METRICS),
    ("metrics.num.samples", METRICS),
    ("metrics.recording.level", METRICS),
    ("metrics.sample.window.ms", METRICS),
    ("offset.store.path", OFFSETS),
    ("offset.store.sync.interval.ms", OFFSETS),
    ("opaque", C_INTERFACE),
    ("open_cb", C_INTERFACE),
    ("produce.offset.report", "send() always gives the offset"),
    ("queue.buffering.backpressure.threshold", QUEUE),
    ("queue.buffering.max.kbytes", QUEUE),
    ("queue.buffering.max.messages", QUEUE),
    ("queued.max.messages.kbytes", FETCHES),
    ("queued.min.messages", FETCHES),
    ("receive.buffer.bytes", BUFFERS),
    (
        "receive.message.max.bytes",
        "an answer may be as large as what was asked for",
    ),
    ("reconnect.backoff.jitter.ms", "reconnect.backoff.ms varies by a fifth"),
    ("resolve_cb", C_INTERFACE),
    ("sasl.kerberos.keytab", KERBEROS),
    ("sasl.kerberos.kinit.cmd", KERBEROS),
    ("sasl.kerberos.min.time.before.relogin", KERBEROS),
    ("sasl.kerberos.principal", KERBEROS),
    ("sasl.kerberos.service.name", KERBEROS),
    ("sasl.kerberos.ticket.renew.jitter", KERBEROS),
    ("sasl.kerberos.ticket.renew.window.factor", KERBEROS),
    ("sasl.login.callback.handler.class", TOKENS),
    ("sasl.login.connect.timeout.ms", RENEWAL),
    ("sasl.login.read.timeout.ms", RENEWAL),
    ("sasl.login.refresh.buffer.seconds", RENEWAL),
    ("sasl.login.refresh.min.period.seconds", RENEWAL),
    ("sasl.login.refresh.window.factor", RENEWAL),
    ("sasl.login.refresh.window.jitter", RENEWAL),
    ("sasl.login.retry.backoff.max.ms", RENEWAL),
    ("sasl.login.retry.backoff.ms", RENEWAL),
    ("sasl.oauthbearer.clock.skew.seconds", VALIDATION),
    ("sasl.oauthbearer.expected.audience", VALIDATION),
    ("sasl.oauthbearer.expected.issuer", VALIDATION),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", VALIDATION),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", VALIDATION),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", VALIDATION),
    ("sasl.oauthbearer.jwks.endpoint.url", VALIDATION),
    ("sasl.oauthbearer.jwt.validator.class", VALIDATION),
    ("sasl.oauthbearer.method", TOKENS),
    ("sasl.oauthbearer.scope.claim.name", VALIDATION),
    ("sasl.oauthbearer.sub.claim.name", VALIDATION),
    ("security.providers", ONE_TLS),
    ("send.buffer.bytes", BUFFERS),
    ("share.acknowledgement.mode", SHARE),
    ("share.acquire.mode", SHARE),
    ("socket.blocking.max.ms", C_INTERFACE),
    ("socket.keepalive.enable", "sockets are always kept alive"),
    ("socket.max.fails", IDLE),
    ("socket.nagle.disable", "sockets never wait for more to send"),
    ("socket.receive.buffer.bytes", BUFFERS),
    ("socket.send.buffer.bytes", BUFFERS),
    ("socket_cb", C_INTERFACE),
    ("ssl.ca.certificate.stores", ONE_TLS),
    ("ssl.keymanager.algorithm", ONE_TLS),
    ("ssl.keystore.password", STORES),
    (
        "ssl.protocol",
        "ssl.enabled.protocols says which versions of TLS are spoken",
    ),
    ("ssl.provider", ONE_TLS),
    ("ssl.secure.random.implementation", ONE_TLS),
    ("ssl.trustmanager.algorithm", ONE_TLS),
    ("ssl.truststore.password", STORES),
    ("statistics.interval.ms", METRICS),
    ("stats_cb", METRICS),
    (
        "sticky.partitioning.linger.ms",
        "records without a key are placed as Java's producer places them",
    ),
    ("throttle_cb", EVENTS),
    ("topic.metadata.propagation.max.ms", METADATA),
    ("topic.metadata.refresh.fast.cnt", METADATA),
    ("topic.metadata.refresh.fast.interval.ms", METADATA),
    ("topic.metadata.refresh.sparse", METADATA),
];

/// librdkafka's names of properties that Kafka has too.
const SAME: &[Row] = &[
    ("auto.commit.enable", "enable.auto.commit"),
    ("compression.codec", "compression.type"),
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    ("fetch.wait.max.ms", "fetch.max.wait.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("message.max.bytes", "max.request.size"),
    ("message.send.max.retries", "retries"),
    ("message.timeout.ms", "delivery.timeout.ms"),
    ("metadata.broker.list", "bootstrap.servers"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("request.required.acks", "acks"),
    ("sasl.mechanisms", "sasl.mechanism"),
    (
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
    ),
    (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    ("socket.timeout.ms", "request.timeout.ms"),
    ("ssl.ca.location", "ssl.truststore.location"),
    ("ssl.ca.pem", "ssl.truststore.certificates"),
    ("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    ("ssl.key.pem", "ssl.keystore.key"),
    ("topic.metadata.refresh.interval.ms", "metadata.max.age.ms"),
];

/// librdkafka's names of values.
const SAME_VALUES: &[(&str, &str, &str)] = &[
    ("auto.offset.reset", "beginning", "earliest"),
    ("auto.offset.reset", "end", "latest"),
    ("auto.offset.reset", "error", "none"),
    ("auto.offset.reset", "largest", "latest"),
    ("auto.offset.reset", "smallest", "earliest"),
    ("security.protocol", "plaintext", "PLAINTEXT"),
    ("security.protocol", "sasl_plaintext", "SASL_PLAINTEXT"),
    ("security.protocol", "sasl_ssl", "SASL_SSL"),
    ("security.protocol", "ssl", "SSL"),
];

/// Name, values, what to do if it has another one.
const ONLY: &[(&str, &[&str], &str)] = &[
    (
        "compression.level",
        &["-1"],
        "give compression.gzip.level, compression.lz4.level or compression.zstd.level",
    ),
    (
        "config.providers",
        &[""],
        "values are taken as they are: resolve ${...} before the client gets them",
    ),
    (
        "enable.auto.offset.store",
        &["true"],
        "with enable.auto.commit=false, commit(offsets) says which offsets are committed",
    ),
    (
        "enable.gapless.guarantee",
        &["false"],
        "leave it out: after a batch that cannot be delivered the next ones are sent, as Java's producer does",
    ),
    (
        "enable.partition.eof",
        &["false"],
        "poll() returns no marks of an end: compare position() with end_offsets()",
    ),
    (
        "enable.sasl.oauthbearer.unsecure.jwt",
        &["false"],
        "sasl.jaas.config makes such tokens: OAuthBearerLoginModule with unsecuredLoginStringClaim_sub",
    ),
    (
        "enable.ssl.certificate.verification",
        &["true"],
        "certificates are always checked: give the authority to trust in ssl.truststore.location",
    ),
    (
        "group.protocol",
        &["classic"],
        "only `classic` is spoken (KIP-848 is not), by which Kafka's brokers serve the same group: leave it out",
    ),
    (
        "group.protocol.type",
        &["consumer"],
        "the members of a group are consumers: leave it out",
    ),
    (
        "interceptor.classes",
        &[""],
        "no code runs between the records and the program: do it before send() and after poll()",
    ),
    (
        "offset.store.method",
        &["broker"],
        "offsets are committed to the group: leave it out",
    ),
    (
        "partitioner",
        &["murmur2_random"],
        "records are placed as Java's producer places them, which librdkafka calls murmur2_random: give that, or choose the partition in send()",
    ),
    (
        "queuing.strategy",
        &["fifo"],
        "records are sent in their order: leave it out",
    ),
    ("sasl.oauthbearer.grant.type", &["client_credentials"], OAUTH),
    (
        "sasl.oauthbearer.header.urlencode",
        &["false"],
        "the client's id and secret are sent as they are: give oauth_cb for an endpoint that wants them encoded",
    ),
    ("sasl.oauthbearer.metadata.authentication.type", &["none"], OAUTH),
    (
        "topic.blacklist",
        &[""],
        "subscribe to a pattern that the topic does not match",
    ),
    (
        "transaction.two.phase.commit.enable",
        &["false"],
        "transactions end by the producer's word alone: leave it out",
    ),
];

const REFUSED: &[Row] = &[
    (
        "bootstrap.controllers",
        "the clients speak to brokers: give bootstrap.servers",
    ),
    ("consume_cb", "poll() returns the records"),
    ("default.topic.config", TOPIC_CONF),
    ("default_topic_conf", TOPIC_CONF),
    ("dr_cb", DELIVERY),
    ("dr_msg_cb", DELIVERY),
    ("https.ca.location", HTTPS),
    ("https.ca.pem", HTTPS),
    ("interceptors", PLUGINS),
    ("msg_order_cmp", "records are sent in their order"),
    (
        "oauthbearer_token_refresh_cb",
        "give oauth_cb, a function that returns a token and its end",
    ),
    (
        "offset_commit_cb",
        "commit() ends when the offsets are committed, or raises why not",
    ),
    (
        "on_commit",
        "commit() ends when the offsets are committed, or raises why not",
    ),
    ("on_delivery", DELIVERY),
    ("partitioner_cb", "choose the partition in send()"),
    ("plugin.library.paths", PLUGINS),
    ("rebalance_cb", "give on_assigned and on_revoked to subscribe()"),
    (
        "sasl.client.callback.handler.class",
        "the properties sasl.username, sasl.password and sasl.jaas.config, or oauth_cb, have the credentials",
    ),
    (
        "sasl.login.class",
        "the properties sasl.username, sasl.password and sasl.jaas.config, or oauth_cb, have the credentials",
    ),
    ("sasl.oauthbearer.assertion.algorithm", OAUTH),
    ("sasl.oauthbearer.assertion.claim.aud", OAUTH),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", OAUTH),
    ("sasl.oauthbearer.assertion.claim.iss", OAUTH),
    ("sasl.oauthbearer.assertion.claim.jti.include", OAUTH),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", OAUTH),
    ("sasl.oauthbearer.assertion.claim.sub", OAUTH),
    ("sasl.oauthbearer.assertion.file", OAUTH),
    ("sasl.oauthbearer.assertion.jwt.template.file", OAUTH),
    ("sasl.oauthbearer.assertion.private.key.file", OAUTH),
    ("sasl.oauthbearer.assertion.private.key.passphrase", OAUTH),
    ("sasl.oauthbearer.assertion.private.key.pem", OAUTH),
    ("sasl.oauthbearer.assertion.template.file", OAUTH),
    (
        "sasl.oauthbearer.config",
        "oauth_cb is called without it: bind it to the function, functools.partial does",
    ),
    (
        "sasl.oauthbearer.extensions",
        "give oauth_cb: it may return extensions beside the token",
    ),
    ("sasl.oauthbearer.jwt.retriever.class", OAUTH),
    (
        "ssl.certificate.verify_cb",
        "certificates are checked as ssl.truststore.location and ssl.endpoint.identification.algorithm say",
    ),
    ("ssl.cipher.suites", SUITES),
    (
        "ssl.crl.location",
        "revocation lists are not read: trust an authority that signs only what is valid",
    ),
    ("ssl.curves.list", SUITES),
    ("ssl.engine.factory.class", ENGINE),
    ("ssl.engine.id", ENGINE),
    ("ssl.engine.location", ENGINE),
    ("ssl.providers", ENGINE),
    ("ssl.sigalgs.list", SUITES),
    ("ssl_ca", MEMORY),
    ("ssl_certificate", MEMORY),
    ("ssl_engine_callback_data", ENGINE),
    ("ssl_key", MEMORY),
];

const CONSUMER: &[Row] = &[
    ("key.deserializer", DESERIALIZERS),
    ("value.deserializer", DESERIALIZERS),
];

const PRODUCER: &[Row] = &[("key.serializer", SERIALIZERS), ("value.serializer", SERIALIZERS)];

/// What happens to a property that the table of the scope does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// It changes nothing: its name, and what holds instead.
    Ignored(Row),
    /// It asks for what holds anyway.
    Holds,
    /// What to do.
    Refused(&'static str),
    /// No client is known to have it.
    Unknown,
}

/// What happens to a property that is no key of the scope. A producer's property given to a consumer is ignored, and vice versa: programs
/// share one configuration between their clients.
pub(crate) fn outcome(scope: Scope, name: &str, value: &str) -> Foreign {
    let (others, of_the_other) = match scope {
        Scope::Consumer => (Scope::Producer, "a producer has it"),
        Scope::Producer => (Scope::Consumer, "a consumer has it"),
        Scope::Topic | Scope::Broker | Scope::LegacyConsumer => return Foreign::Unknown,
    };
    let mut ignored = BOTH.iter().chain(CONSUMER).chain(PRODUCER);
    if let Some(row) = ignored.find(|(known, _)| *known == name) {
        return Foreign::Ignored(*row);
    }
    if let Some((_, values, instead)) = ONLY.iter().find(|(known, ..)| *known == name) {
        let holds = values.iter().any(|holds| holds.eq_ignore_ascii_case(value.trim()));
        return if holds {
            Foreign::Holds
        } else {
            Foreign::Refused(instead)
        };
    }
    if let Some((_, instead)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return Foreign::Refused(instead);
    }
    let key = keys(others).iter().find(|key| key.name == name);
    key.map_or(Foreign::Unknown, |key| Foreign::Ignored((key.name, of_the_other)))
}

/// Whether the value of this property may be a function or a dictionary, which fletchlog's own properties never are.
pub fn takes_objects(name: &str) -> bool {
    let rows = BOTH.iter().chain(CONSUMER).chain(PRODUCER).chain(REFUSED);
    let names = rows
        .map(|(known, _)| *known)
        .chain(ONLY.iter().map(|(known, ..)| *known));
    names.into_iter().any(|known| known == name)
}

/// The table's name of a property that has another name in another client.
pub(crate) fn own_name(scope: Scope, name: &str) -> &str {
    let row = SAME.iter().find(|(other, _)| takes_them(scope) && *other == name);
    row.map_or(name, |(_, own)| own)
}

/// The table's value for a value that has another name in another client.
pub(crate) fn own_value<'a>(scope: Scope, name: &str, value: &'a str) -> &'a str {
    let mut rows = SAME_VALUES.iter().filter(|_| takes_them(scope));
    let row = rows.find(|(key, other, _)| *key == name && *other == value);
    row.map_or(value, |(_, _, own)| own)
}

fn takes_them(scope: Scope) -> bool {
    matches!(scope, Scope::Consumer | Scope::Producer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn what_has_no_meaning_is_kept_apart_and_everything_else_is_still_refused() {
        let given = [
            ("key.serializer", "org.apache.X"),
            ("acks", "all"),
            ("send.buffer.bytes", "1"),
        ];
        let config = Config::parse(Scope::Producer, given).unwrap();
        let names: Vec<_> = config.ignored().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["key.serializer", "send.buffer.bytes"]);
        assert_eq!(config.text("acks"), "all");
        for (scope, name) in [
            (Scope::Consumer, "security.protokol"),
            (Scope::Consumer, "enable.ssl.certificate.verification"),
            (Scope::Consumer, "enable.auto.offset.store"),
            (Scope::Consumer, "group.protocol"),
            (Scope::Topic, "send.buffer.bytes"),
            (Scope::Broker, "metric.reporters"),
        ] {
            assert!(Config::parse(scope, [(name, "x")]).is_err(), "{scope:?} {name}");
        }
    }

    #[test]
    fn a_configuration_may_be_shared_by_consumers_and_producers() {
        let shared = [("linger.ms", "5"), ("group.id", "g"), ("key.serializer", "X")];
        let consumer = Config::parse(Scope::Consumer, shared).unwrap();
        assert_eq!(consumer.text("group.id"), "g");
        assert_eq!(
            consumer.ignored(),
            [("linger.ms", "a producer has it"), ("key.serializer", SERIALIZERS)]
        );
        let producer = Config::parse(Scope::Producer, shared).unwrap();
        assert_eq!(producer.text("linger.ms"), "5");
        assert_eq!(
            producer.ignored(),
            [("group.id", "a consumer has it"), ("key.serializer", SERIALIZERS)]
        );
    }

    #[test]
    fn a_property_may_be_given_under_the_name_of_another_client() {
        let config = Config::parse(Scope::Consumer, [("ssl.ca.location", "ca.pem")]).unwrap();
        assert_eq!(config.text("ssl.truststore.location"), "ca.pem");
        assert!(config.is_explicit("ssl.truststore.location") && config.ignored().is_empty());
        assert!(Config::parse(Scope::Broker, [("ssl.ca.location", "ca.pem")]).is_err());
        for (other, own) in SAME {
            let has = |name: &str| {
                [Scope::Consumer, Scope::Producer]
                    .iter()
                    .any(|&scope| keys(scope).iter().any(|key| key.name == name))
            };
            assert!(has(own) && !has(other), "{own} {other}");
        }
    }

    #[test]
    fn a_property_has_one_meaning() {
        let names = |rows: &[Row]| rows.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let mut all = [BOTH, CONSUMER, PRODUCER, SAME, REFUSED].map(names).concat();
        all.extend(ONLY.iter().map(|(name, ..)| *name));
        for scope in [Scope::Consumer, Scope::Producer] {
            assert!(keys(scope).iter().all(|key| !all.contains(&key.name)));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    /// Names of every property that another client has: see the file.
    #[test]
    fn every_property_of_another_client_is_taken_ignored_or_refused_with_what_to_do() {
        for line in include_str!("other_clients/names.txt").lines() {
            let Some((clients, name)) = line.split_once(' ').filter(|(first, _)| *first != "#") else {
                continue;
            };
            for (scope, letter) in [(Scope::Consumer, 'C'), (Scope::Producer, 'P')] {
                // An administrator's are those of a Cluster, which has a consumer's.
                let is_its = clients.contains(letter) || scope == Scope::Consumer && clients.contains('A');
                let own = own_name(scope, name);
                if keys(scope).iter().any(|key| key.name == own) {
                    continue;
                }
                match outcome(scope, own, "x") {
                    Foreign::Ignored((_, instead)) if is_its => {
                        let other_s = ["a producer has it", "a consumer has it"].contains(&instead);
                        // librdkafka has these of both kinds of clients, Java of one.
                        assert!(!other_s || OF_ONE_KIND.contains(&own), "{scope:?} {name}");
                    }
                    Foreign::Ignored((_, instead)) | Foreign::Refused(instead) => assert!(instead.len() > 10),
                    Foreign::Holds | Foreign::Unknown => panic!("{scope:?} {name}"),
                }
            }
        }
    }

    const OF_ONE_KIND: &[&str] = &[
        "allow.auto.create.topics",
        "client.rack",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "retries",
    ];

    #[test]
    fn a_property_that_is_refused_says_what_to_do() {
        let refused = |name, value| Config::parse(Scope::Consumer, [(name, value)]).unwrap_err().to_string();
        assert_eq!(
            refused("enable.partition.eof", "true"),
            "configuration `enable.partition.eof` of another client cannot be followed: poll() returns no marks of an end: compare position() with end_offsets()"
        );
        assert!(refused("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256").contains("leave it out"));
        let config = Config::parse(
            Scope::Consumer,
            [("group.protocol", "CLASSIC"), ("enable.partition.eof", "false")],
        );
        assert!(config.unwrap().ignored().is_empty(), "it holds: nothing to warn of");
    }

    #[test]
    fn names_and_values_of_librdkafka_that_mean_the_same_are_taken() {
        let given = [
            ("message.timeout.ms", "7"),
            ("request.required.acks", "-1"),
            ("queue.buffering.max.ms", "8"),
            ("security.protocol", "sasl_ssl"),
        ];
        let producer = Config::parse(Scope::Producer, given).unwrap();
        let of = |name| producer.text(name);
        assert_eq!(
            (of("delivery.timeout.ms"), of("acks"), of("linger.ms")),
            ("7", "-1", "8")
        );
        assert_eq!(of("security.protocol"), "SASL_SSL");
        let given = [
            ("fetch.wait.max.ms", "7"),
            ("auto.offset.reset", "smallest"),
            ("socket.timeout.ms", "9"),
        ];
        let consumer = Config::parse(Scope::Consumer, given).unwrap();
        let of = |name| consumer.text(name);
        assert_eq!(
            (
                of("fetch.max.wait.ms"),
                of("auto.offset.reset"),
                of("request.timeout.ms")
            ),
            ("7", "earliest", "9")
        );
    }
}
