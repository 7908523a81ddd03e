//! Properties of Java's clients and of librdkafka (and its Python package) that a configuration may contain: `properties.txt` says what
//! becomes of each.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::Scope;
use crate::config_table::keys;

/// What `properties.txt` says of one property.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Ignored(&'static str),
    Only {
        value: &'static str,
        otherwise: &'static str,
    },
    Refused(&'static str),
    Same(&'static str),
}

/// `properties.txt`.
#[derive(Debug, Default)]
struct Table {
    rules: FxHashMap<&'static str, (&'static str, Rule)>,
    /// Own names of values, by property and other name.
    values: FxHashMap<(&'static str, &'static str), &'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    let (mut kind, mut text) = ("", "");
    let lines = include_str!("other_clients/properties.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(entry) = line.strip_prefix("    ") else {
            (kind, text) = line.split_once(": ").unwrap_or_default();
            continue;
        };
        let (name, value) = entry.split_once(" =").unwrap_or((entry, ""));
        let value = value.trim();
        let rule = match kind {
            "ignored" => Rule::Ignored(text),
            "only" => Rule::Only { value, otherwise: text },
            "refused" => Rule::Refused(text),
            "same" => Rule::Same(text),
            _ => {
                debug_assert_eq!(kind, "same value", "{line}");
                table.values.insert((name, value), text);
                continue;
            }
        };
        let former = table.rules.insert(name, (name, rule));
        debug_assert!(former.is_none(), "{name} has two rules");
    }
    table
});

/// What happens to a property that the table of the scope does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// It changes nothing: its name, and what holds instead.
    Ignored((&'static str, &'static str)),
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
    match TABLE.rules.get(name) {
        Some((name, Rule::Ignored(instead))) => return Foreign::Ignored((name, instead)),
        Some((_, Rule::Only { value: holds, .. })) if holds.eq_ignore_ascii_case(value.trim()) => {
            return Foreign::Holds;
        }
        Some((_, Rule::Only { otherwise: instead, .. } | Rule::Refused(instead))) => return Foreign::Refused(instead),
        Some((_, Rule::Same(_))) | None => {}
    }
    let key = keys(others).iter().find(|key| key.name == name);
    key.map_or(Foreign::Unknown, |key| Foreign::Ignored((key.name, of_the_other)))
}

/// Whether the value of this property may be a function or a dictionary, which fletchlog's own properties never are.
pub fn takes_objects(name: &str) -> bool {
    let rule = TABLE.rules.get(name);
    rule.is_some_and(|(_, rule)| !matches!(rule, Rule::Same(_)))
}

/// The table's name of a property that has another name in another client.
pub(crate) fn own_name(scope: Scope, name: &str) -> &str {
    match TABLE.rules.get(name) {
        Some((_, Rule::Same(own))) if takes_them(scope) => own,
        _ => name,
    }
}

/// The table's value for a value that has another name in another client.
pub(crate) fn own_value<'a>(scope: Scope, name: &'a str, value: &'a str) -> &'a str {
    let own = TABLE.values.get(&(name, value)).filter(|_| takes_them(scope));
    own.copied().unwrap_or(value)
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
            [
                ("linger.ms", "a producer has it"),
                ("key.serializer", "send() takes bytes: serialize before it")
            ]
        );
        let producer = Config::parse(Scope::Producer, shared).unwrap();
        assert_eq!(producer.text("linger.ms"), "5");
        assert_eq!(
            producer.ignored(),
            [
                ("group.id", "a consumer has it"),
                ("key.serializer", "send() takes bytes: serialize before it")
            ]
        );
    }

    #[test]
    fn a_property_may_be_given_under_the_name_of_another_client() {
        let config = Config::parse(Scope::Consumer, [("ssl.ca.location", "ca.pem")]).unwrap();
        assert_eq!(config.text("ssl.truststore.location"), "ca.pem");
        assert!(config.is_explicit("ssl.truststore.location") && config.ignored().is_empty());
        assert!(Config::parse(Scope::Broker, [("ssl.ca.location", "ca.pem")]).is_err());
        for (other, (_, rule)) in &TABLE.rules {
            let Rule::Same(own) = rule else {
                continue;
            };
            let has = |name: &str| {
                [Scope::Consumer, Scope::Producer]
                    .iter()
                    .any(|&scope| keys(scope).iter().any(|key| key.name == name))
            };
            assert!(has(own) && !has(other), "{own} {other}");
        }
    }

    #[test]
    fn every_line_is_understood_and_a_property_has_one_meaning() {
        let text = include_str!("other_clients/properties.txt");
        let lines = text.lines().filter(|line| line.starts_with(' ')).count();
        // A second rule of a name would replace the first.
        assert_eq!(lines, TABLE.rules.len() + TABLE.values.len());
        let mut headings = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with([' ', '#']));
        let kinds = ["ignored: ", "only: ", "refused: ", "same: ", "same value: "];
        assert!(headings.all(|line| kinds.iter().any(|kind| line.starts_with(kind))));
        for scope in [Scope::Consumer, Scope::Producer] {
            assert!(keys(scope).iter().all(|key| !TABLE.rules.contains_key(key.name)));
        }
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
            [("group.protocol.type", "consumer"), ("enable.partition.eof", "false")],
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
