//! Properties of Java's clients and of librdkafka that a configuration may contain, and that have no effect here. A property
//! that would change what is promised (security, rack, offsets) is not among them: it stays unknown.

use crate::Scope;

const SERIALIZERS: &str = "send() takes bytes: serialize before it";
const DESERIALIZERS: &str = "records have bytes: fletchlog.serde deserializes whole columns";
const BUFFERS: &str = "the system sizes the sockets' buffers";
const METRICS: &str = "there are no metrics to report";
const ADDRESSES: &str = "all addresses of a name are always tried";
const IDLE: &str = "a connection stays open until the broker closes it";
const TOKENS: &str = "tokens come from oauth_cb or from sasl.oauthbearer.token.endpoint.url, whichever is given";
const STORES: &str = "a PEM file has no password; ssl.key.password is that of an encrypted key";
const LOGGING: &str = "Python's logging, logger fletchlog, decides what is logged";

/// Name, and why it has no effect.
type Row = (&'static str, &'static str);

const BOTH: &[Row] = &[
    ("auto.include.jmx.reporter", METRICS),
    ("broker.address.family", ADDRESSES),
    ("client.dns.lookup", ADDRESSES),
    ("connections.max.idle.ms", IDLE),
    ("enable.metrics.push", METRICS),
    ("log_level", LOGGING),
    ("metric.reporters", METRICS),
    ("metrics.num.samples", METRICS),
    ("metrics.recording.level", METRICS),
    ("metrics.sample.window.ms", METRICS),
    ("receive.buffer.bytes", BUFFERS),
    ("sasl.login.callback.handler.class", TOKENS),
    ("sasl.oauthbearer.method", TOKENS),
    ("send.buffer.bytes", BUFFERS),
    ("socket.keepalive.enable", "sockets are always kept alive"),
    ("ssl.keystore.password", STORES),
    (
        "ssl.protocol",
        "ssl.enabled.protocols says which versions of TLS are spoken",
    ),
    ("ssl.provider", "there is one implementation of TLS"),
    ("ssl.truststore.password", STORES),
    ("statistics.interval.ms", METRICS),
];

/// librdkafka's names of properties that Kafka has too.
const SAME: &[Row] = &[
    ("sasl.mechanisms", "sasl.mechanism"),
    (
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
    ),
    (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    ("ssl.ca.location", "ssl.truststore.location"),
    ("ssl.ca.pem", "ssl.truststore.certificates"),
    ("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    ("ssl.key.pem", "ssl.keystore.key"),
];

const CONSUMER: &[Row] = &[
    ("key.deserializer", DESERIALIZERS),
    ("value.deserializer", DESERIALIZERS),
];

const PRODUCER: &[Row] = &[("key.serializer", SERIALIZERS), ("value.serializer", SERIALIZERS)];

/// Why a property of another client has no effect here.
pub(crate) fn instead_of(scope: Scope, name: &str) -> Option<Row> {
    let own = match scope {
        Scope::Consumer => CONSUMER,
        Scope::Producer => PRODUCER,
        Scope::Topic | Scope::Broker | Scope::LegacyConsumer => return None,
    };
    BOTH.iter().chain(own).find(|(known, _)| *known == name).copied()
}

/// The name under which the table has a property that another client calls differently.
pub(crate) fn own_name(scope: Scope, name: &str) -> &str {
    let takes_them = matches!(scope, Scope::Consumer | Scope::Producer);
    let row = SAME.iter().find(|(other, _)| takes_them && *other == name);
    row.map_or(name, |(_, own)| own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::config_table::keys;

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
            (Scope::Consumer, "key.serializer"),
            (Scope::Consumer, "security.protokol"),
            (Scope::Consumer, "enable.ssl.certificate.verification"),
            (Scope::Consumer, "enable.auto.offset.store"),
            (Scope::Topic, "send.buffer.bytes"),
            (Scope::Broker, "metric.reporters"),
        ] {
            assert!(Config::parse(scope, [(name, "x")]).is_err(), "{scope:?} {name}");
        }
    }

    #[test]
    fn a_property_may_be_given_under_the_name_of_another_client() {
        let config = Config::parse(Scope::Consumer, [("ssl.ca.location", "ca.pem")]).unwrap();
        assert_eq!(config.text("ssl.truststore.location"), "ca.pem");
        assert!(config.is_explicit("ssl.truststore.location") && config.ignored().is_empty());
        assert!(Config::parse(Scope::Broker, [("ssl.ca.location", "ca.pem")]).is_err());
        for (other, own) in SAME {
            assert!(keys(Scope::Producer).iter().any(|key| key.name == *own), "{own}");
            assert!(keys(Scope::Producer).iter().all(|key| key.name != *other), "{other}");
        }
    }

    #[test]
    fn no_property_has_both_a_meaning_and_none() {
        for scope in [Scope::Consumer, Scope::Producer] {
            for key in keys(scope) {
                assert_eq!(instead_of(scope, key.name), None);
            }
        }
    }
}
