//! Properties of nodes, groups and client metrics that are altered while the broker runs. Answers: those of a Kafka 4.3.1 that was given
//! the same requests, one after the other.

use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_broker::{Alteration, Broker, ConfigChange, ConfigEntry};
use fletchlog_log::fs::MemoryFs;

use super::*;
use crate::common::*;

const NODE: ConfigResource = ConfigResource::Broker(1);
const ALL: ConfigResource = ConfigResource::AllBrokers;
const RETENTION: &str = "log.retention.ms";

/// Name, value, source, and (name, value, source) of its synonyms, as a Kafka answers them.
type Described = (String, Option<String>, i8, Vec<(String, String, i8)>);

fn described(entry: ConfigEntry) -> Described {
    let synonyms = entry.synonyms.into_iter();
    let synonyms = synonyms
        .map(|s| (s.name.into_owned(), s.value, s.source.id()))
        .collect();
    (entry.name.into_owned(), entry.value, entry.source.id(), synonyms)
}

fn describe(broker: &Broker, of: &ConfigResource, name: &str) -> Option<Described> {
    let entries = broker.describe_config(1, of).unwrap();
    entries.into_iter().find(|entry| entry.name == name).map(described)
}

fn is(name: &str, value: &str, source: i8, synonyms: &[(&str, &str, i8)]) -> Option<Described> {
    let synonyms = synonyms.iter().map(|(n, v, s)| ((*n).to_owned(), (*v).to_owned(), *s));
    Some((name.to_owned(), Some(value.to_owned()), source, synonyms.collect()))
}

fn delete(name: &str) -> AlterConfig {
    change(name, AlterConfigOp::Delete, None)
}

fn group(name: &str) -> ConfigResource {
    ConfigResource::Group(name.to_owned())
}

fn metrics(name: &str) -> ConfigResource {
    ConfigResource::ClientMetrics(name.to_owned())
}

#[track_caller]
fn alter(broker: &Broker, of: &ConfigResource, changes: &[AlterConfig]) {
    broker.alter_config(of, changes, false).unwrap();
}

fn open(fs: &MemoryFs, config: &[(&str, &str)], read_only: bool) -> Arc<Broker> {
    let options = options(None, read_only, config);
    Broker::open_in(
        Arc::new(fs.clone()),
        "/d".as_ref(),
        options,
        Arc::new(SystemClock::default()),
    )
    .unwrap()
}

#[test]
fn a_node_wins_over_all_nodes_and_they_over_the_opening() {
    let broker = open(&MemoryFs::new(), &[(RETENTION, "-1")], false);
    broker.create_topic("dyn", 1, &[]).unwrap();
    let (opened, hours) = ((RETENTION, "-1", 4), ("log.retention.hours", "168", 5));
    alter(&broker, &NODE, &[set(RETENTION, "1234567")]);
    let own = (RETENTION, "1234567", 2);
    let expected = is(RETENTION, "1234567", 2, &[own, opened, hours]);
    assert_eq!(describe(&broker, &NODE, RETENTION), expected);
    assert_eq!(describe(&broker, &ALL, RETENTION), None);
    alter(&broker, &ALL, &[set(RETENTION, "777777")]);
    let all = (RETENTION, "777777", 3);
    let expected = is(RETENTION, "1234567", 2, &[own, all, opened, hours]);
    assert_eq!(describe(&broker, &NODE, RETENTION), expected);
    assert_eq!(describe(&broker, &ALL, RETENTION), is(RETENTION, "777777", 3, &[all]));
    let expected = is("retention.ms", "1234567", 2, &[own, all, opened, hours]);
    assert_eq!(describe(&broker, &topic("dyn"), "retention.ms"), expected);
    alter(&broker, &NODE, &[delete(RETENTION)]);
    let expected = is("retention.ms", "777777", 3, &[all, opened, hours]);
    assert_eq!(describe(&broker, &topic("dyn"), "retention.ms"), expected);
    alter(&broker, &ALL, &[delete(RETENTION)]);
    alter(&broker, &ALL, &[delete(RETENTION)]);
    assert_eq!(
        describe(&broker, &NODE, RETENTION),
        is(RETENTION, "-1", 4, &[opened, hours])
    );
    // What is not set is deleted without an error, whatever it is.
    alter(&broker, &NODE, &[delete("num.partitions"), delete("foo.bar")]);
}

#[test]
fn it_is_there_after_the_next_start_and_a_reader_sees_it() {
    let fs = MemoryFs::new();
    let broker = open(&fs, &[], false);
    broker.create_topic("t", 1, &[]).unwrap();
    let reader = open(&fs, &[], true);
    alter(&broker, &ALL, &[set(RETENTION, "5000000")]);
    alter(
        &broker,
        &NODE,
        &[set("message.max.bytes", "100"), set("background.threads", "7")],
    );
    alter(&broker, &group("g"), &[set("consumer.session.timeout.ms", "50000")]);
    let seen = |broker: &Broker| {
        (
            describe(broker, &topic("t"), "retention.ms").unwrap().1,
            describe(broker, &topic("t"), "max.message.bytes").unwrap().1,
            describe(broker, &NODE, "background.threads").unwrap().1,
            describe(broker, &group("g"), "consumer.session.timeout.ms").unwrap().1,
        )
    };
    let expected = ["5000000", "100", "7", "50000"].map(|v| Some(v.to_owned()));
    let [a, b, c, d] = expected;
    let expected = (a, b, c, d);
    assert_eq!(seen(&broker), expected);
    assert_eq!(seen(&reader), expected);
    let altered = [ALL, NODE, group("g")];
    assert_eq!(reader.altered_resources().unwrap(), altered);
    let refusal = reader.alter_config(&ALL, &[delete(RETENTION)], false).unwrap_err();
    assert!(matches!(refusal, BrokerError::ReadOnly(_)), "{refusal}");
    drop(reader);
    broker.close().unwrap();
    let broker = open(&fs, &[(RETENTION, "9")], false);
    assert_eq!(seen(&broker), expected);
    assert_eq!(broker.config().long(RETENTION), 9);
    assert_eq!(broker.config_of(1).long(RETENTION), 5_000_000);
}

#[test]
fn open_logs_follow_at_once() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    broker
        .create_topic("own", 1, &[("max.message.bytes".to_owned(), "1000".to_owned())])
        .unwrap();
    let big = |topic: &str| broker.append_batches(&tp(topic, 0), batch_of_size(1, 500));
    big("t").unwrap();
    alter(&broker, &NODE, &[set("message.max.bytes", "300")]);
    assert_eq!(big("t").unwrap_err().code(), ErrorCode::MESSAGE_TOO_LARGE);
    big("own").unwrap();
    broker.create_topic("later", 1, &[]).unwrap();
    assert_eq!(big("later").unwrap_err().code(), ErrorCode::MESSAGE_TOO_LARGE);
    alter(&broker, &NODE, &[delete("message.max.bytes")]);
    big("t").unwrap();
    big("later").unwrap();
}

#[test]
fn only_the_logs_of_its_node_follow_a_node() {
    let broker = in_memory(2);
    broker.create_topic("t", 2, &[]).unwrap();
    let node_of = |p: usize| broker.describe_topic("t").unwrap().partitions[p].leader;
    let second = usize::from(node_of(0) != 2);
    alter(&broker, &ConfigResource::Broker(2), &[set("message.max.bytes", "300")]);
    let append =
        |partition: usize| broker.append_batches(&tp("t", i32::try_from(partition).unwrap()), batch_of_size(1, 500));
    assert_eq!(append(second).unwrap_err().code(), ErrorCode::MESSAGE_TOO_LARGE);
    append(1 - second).unwrap();
    let text = "the broker has no node 3; its nodes are 1 to 2".to_owned();
    let of_no_node = broker.alter_config(&ConfigResource::Broker(3), &[], false);
    assert_eq!(refused(of_no_node), (ErrorCode::INVALID_REQUEST, text.clone()));
    assert_eq!(
        refused(broker.describe_config(1, &ConfigResource::Broker(3))),
        (ErrorCode::INVALID_REQUEST, text)
    );
}

#[test]
fn what_kafka_refuses_for_a_node_is_refused_with_its_words() {
    let broker = in_memory(1);
    let same = |name: &str, value: &str, text: &str| {
        for of in [&NODE, &ALL] {
            for validate_only in [true, false] {
                let answer = refused(broker.alter_config(of, &[set(name, value)], validate_only));
                assert_eq!(answer, (ErrorCode::INVALID_REQUEST, text.to_owned()), "{name}={value}");
            }
        }
    };
    same(
        RETENTION,
        "abc",
        "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
    );
    same(
        "num.partitions",
        "3",
        "Cannot update these configs dynamically: [num.partitions]",
    );
    same(
        "log.retention.hours",
        "3",
        "Cannot update these configs dynamically: [log.retention.hours]",
    );
    same(
        "num.io.threads",
        "0",
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
    );
    same(
        "num.io.threads",
        "100",
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for \
         num.io.threads=100, value should not be greater than double the current value 8 for configuration Invalid dynamic \
         configuration",
    );
    same(
        "num.io.threads",
        "3",
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for \
         num.io.threads=3, value should be at least half the current value 8 for configuration Invalid dynamic configuration",
    );
    same(
        "compression.type",
        "lzz",
        "Invalid value lzz for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    );
    same(
        "log.cleaner.dedupe.buffer.size",
        "20",
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    );
    same(
        "log.cleaner.min.cleanable.ratio",
        "2",
        "Invalid value 2.0 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
    );
    same(
        "max.connections.per.ip",
        "0",
        "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    );
    same(
        "max.connections.per.ip.overrides",
        "x",
        "Error parsing configuration property 'max.connections.per.ip.overrides': `x` is not an address and a number, as in \
         127.0.0.1:100",
    );
    same(
        "ssl.keystore.location",
        "/x",
        "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]",
    );
    same(
        "leader.replication.throttled.rate",
        "x",
        "Invalid value x for configuration leader.replication.throttled.rate: Not a number of type LONG",
    );
    same(
        "unclean.leader.election.enable",
        "maybe",
        "Invalid value maybe for configuration unclean.leader.election.enable: Expected value to be either true or false",
    );
    let append =
        |name: &str| refused(broker.alter_config(&NODE, &[change(name, AlterConfigOp::Append, Some("5"))], false));
    let text = "Config value append is not allowed for config key: log.retention.ms";
    assert_eq!(append(RETENTION), (ErrorCode::INVALID_CONFIG, text.to_owned()));
    assert_eq!(broker.altered_resources().unwrap(), []);
}

#[test]
fn a_list_begins_as_the_default_and_is_appended_to() {
    let broker = in_memory(1);
    let policy = || describe(&broker, &NODE, "log.cleanup.policy").unwrap().1.unwrap();
    alter(
        &broker,
        &NODE,
        &[change("log.cleanup.policy", AlterConfigOp::Append, Some("compact"))],
    );
    assert_eq!(policy(), "delete,compact");
    alter(
        &broker,
        &NODE,
        &[change("log.cleanup.policy", AlterConfigOp::Subtract, Some("delete"))],
    );
    assert_eq!(policy(), "compact");
}

#[test]
fn replacing_takes_away_what_is_not_named() {
    let broker = in_memory(1);
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, Option<String>)> {
        pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned())))
            .collect()
    };
    let of = |name: &str| describe(&broker, &NODE, name).unwrap().2;
    let both = pairs(&[(RETENTION, "99999"), ("log.retention.bytes", "77777")]);
    broker.replace_config(&NODE, &both, false).unwrap();
    assert_eq!((of(RETENTION), of("log.retention.bytes")), (2, 2));
    broker
        .replace_config(&NODE, &pairs(&[("log.retention.bytes", "66666")]), false)
        .unwrap();
    assert_eq!((of(RETENTION), of("log.retention.bytes")), (5, 2));
    broker.replace_config(&NODE, &[], false).unwrap();
    assert_eq!(of("log.retention.bytes"), 5);
    let text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.";
    let without = refused(broker.replace_config(&ALL, &[], false));
    assert_eq!(without, (ErrorCode::INVALID_CONFIG, text.to_owned()));
    broker
        .replace_config(&ALL, &pairs(&[("min.insync.replicas", "1"), (RETENTION, "5")]), false)
        .unwrap();
    assert_eq!(of(RETENTION), 3);
}

#[test]
fn min_insync_replicas_is_held_for_all_nodes_together() {
    const NAME: &str = "min.insync.replicas";
    let broker = in_memory(1);
    let with_default = |value| is(NAME, value, 3, &[(NAME, value, 3), (NAME, "1", 5)]);
    assert_eq!(describe(&broker, &NODE, NAME), with_default("1"));
    assert_eq!(describe(&broker, &ALL, NAME), is(NAME, "1", 3, &[(NAME, "1", 3)]));
    alter(&broker, &ALL, &[set(NAME, "2")]);
    assert_eq!(describe(&broker, &NODE, NAME), with_default("2"));
    alter(&broker, &ALL, &[set(NAME, "1")]);
    assert_eq!(broker.altered_resources().unwrap(), []);
    for (of, change, text) in [
        (
            &NODE,
            set(NAME, "1"),
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            &ALL,
            delete(NAME),
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ] {
        let answer = refused(broker.alter_config(of, &[change], false));
        assert_eq!(answer, (ErrorCode::INVALID_CONFIG, text.to_owned()));
    }
}

#[test]
fn properties_of_a_group_are_kept_within_kafkas_bounds() {
    let broker = in_memory(1);
    let of = group("g");
    let (name, synonym) = ("consumer.session.timeout.ms", "group.consumer.session.timeout.ms");
    assert_eq!(
        describe(&broker, &of, name),
        is(name, "45000", 5, &[(synonym, "45000", 5)])
    );
    alter(&broker, &of, &[set(name, "50000")]);
    let expected = is(name, "50000", 8, &[(name, "50000", 8), (synonym, "45000", 5)]);
    assert_eq!(describe(&broker, &of, name), expected);
    for (name, value, text) in [
        (
            name,
            "1",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            name,
            "60001",
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            name,
            "0",
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            "share.partition.max.record.locks",
            "99",
            "Invalid value 99 for configuration share.partition.max.record.locks: Value must be at least 100",
        ),
        (
            "share.partition.max.record.locks",
            "10001",
            "share.partition.max.record.locks must be in the range 100 to 4000 inclusive.",
        ),
        (
            "share.isolation.level",
            "x",
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
        ),
        (
            "share.auto.offset.reset",
            "by_duration:x",
            "Invalid value by_duration:x for configuration share.auto.offset.reset: Invalid value `by_duration:x` for configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        ("foo", "x", "Unknown group config name: foo"),
    ] {
        let answer = refused(broker.alter_config(&of, &[set(name, value)], false));
        assert_eq!(answer, (ErrorCode::INVALID_CONFIG, text.to_owned()));
    }
    for value in ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"] {
        alter(&broker, &of, &[set("share.auto.offset.reset", value)]);
    }
    let text = "Default group resources are not allowed.".to_owned();
    assert_eq!(
        refused(broker.alter_config(&group(""), &[], false)),
        (ErrorCode::INVALID_REQUEST, text)
    );
    broker.replace_config(&of, &[], false).unwrap();
    assert_eq!(broker.altered_resources().unwrap(), []);
}

#[test]
fn a_group_without_a_value_has_the_brokers_and_its_bounds() {
    let given = [
        ("group.consumer.session.timeout.ms", "7000"),
        ("group.consumer.min.session.timeout.ms", "6000"),
        ("group.consumer.max.heartbeat.interval.ms", "9000"),
    ];
    let broker = open(&MemoryFs::new(), &given, false);
    let of = group("g");
    let (name, synonym) = ("consumer.session.timeout.ms", "group.consumer.session.timeout.ms");
    let inherited = [(synonym, "7000", 4), (synonym, "45000", 5)];
    assert_eq!(describe(&broker, &of, name), is(name, "7000", 4, &inherited));
    alter(&broker, &of, &[set(name, "6000")]);
    let own = [(name, "6000", 8), inherited[0], inherited[1]];
    assert_eq!(describe(&broker, &of, name), is(name, "6000", 8, &own));
    let heartbeat = "consumer.heartbeat.interval.ms";
    for (name, value, text) in [
        (
            name,
            "5999",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            heartbeat,
            "9001",
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            heartbeat,
            "6000",
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        ),
    ] {
        let answer = refused(broker.alter_config(&of, &[set(name, value)], false));
        assert_eq!(answer, (ErrorCode::INVALID_CONFIG, text.to_owned()));
    }
    let (name, synonym) = (
        "consumer.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
    );
    alter(&broker, &NODE, &[set(synonym, "0")]);
    let inherited = [(synonym, "0", 2), (synonym, "1000", 5)];
    assert_eq!(describe(&broker, &of, name), is(name, "0", 2, &inherited));
    let text = "Cannot update these configs dynamically: [group.consumer.session.timeout.ms]".to_owned();
    let changes = [set("group.consumer.session.timeout.ms", "50000")];
    let answer = refused(broker.alter_config(&NODE, &changes, false));
    assert_eq!(answer, (ErrorCode::INVALID_REQUEST, text));
}

#[test]
fn properties_of_consumer_groups_that_contradict_each_other_are_refused() {
    for (name, value, text) in [
        (
            "group.consumer.session.timeout.ms",
            "44999",
            "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            "15001",
            "group.consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            "group.consumer.min.assignment.interval.ms",
            "15001",
            "group.consumer.max.assignment.interval.ms must be greater than or equal to group.consumer.min.assignment.interval.ms",
        ),
        (
            "group.consumer.assignors",
            "",
            "group.consumer.assignors must contain at least one assignor",
        ),
        (
            "group.share.record.lock.duration.ms",
            "60001",
            "group.share.record.lock.duration.ms must be less than or equal to group.share.max.record.lock.duration.ms",
        ),
        (
            "group.share.session.timeout.ms",
            "44999",
            "group.share.session.timeout.ms must be greater than or equal to group.share.min.session.timeout.ms",
        ),
        (
            "group.coordinator.rebalance.protocols",
            "consumer",
            "Disabling the 'classic' protocol is not supported.",
        ),
    ] {
        let opened = Broker::in_memory(options(None, false, &[(name, value)]), Arc::new(SystemClock::default()));
        assert_eq!(opened.unwrap_err().to_string(), text);
    }
    let text =
        "group.consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms";
    let broker = in_memory(1);
    let changes = [set("group.consumer.assignment.interval.ms", "15001")];
    let answer = refused(broker.alter_config(&NODE, &changes, false));
    assert_eq!(answer, (ErrorCode::INVALID_REQUEST, text.to_owned()));
}

#[test]
fn subscriptions_to_client_metrics_are_kept() {
    let broker = in_memory(1);
    let of = metrics("m");
    assert_eq!(
        describe(&broker, &of, "interval.ms"),
        is("interval.ms", "300000", 5, &[])
    );
    alter(
        &broker,
        &of,
        &[
            set("interval.ms", "1000"),
            set("match", "client_id=a.*,client_software_name = b"),
        ],
    );
    assert_eq!(
        describe(&broker, &of, "interval.ms"),
        is("interval.ms", "1000", 7, &[("interval.ms", "1000", 7)])
    );
    for (name, value, code, text) in [
        (
            "interval.ms",
            "10",
            ErrorCode::INVALID_REQUEST,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            "interval.ms",
            "x",
            ErrorCode::INVALID_CONFIG,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        (
            "match",
            "foo=a",
            ErrorCode::INVALID_CONFIG,
            "Illegal client matching pattern: foo=a",
        ),
        (
            "match",
            "client_id=[",
            ErrorCode::INVALID_CONFIG,
            "Illegal client matching pattern: client_id=[",
        ),
        (
            "foo",
            "x",
            ErrorCode::INVALID_REQUEST,
            "Unknown client metrics configuration: foo",
        ),
    ] {
        let answer = refused(broker.alter_config(&of, &[set(name, value)], false));
        assert_eq!(answer, (code, text.to_owned()));
    }
    let text = "Subscription name can't be empty".to_owned();
    assert_eq!(
        refused(broker.alter_config(&metrics(""), &[], false)),
        (ErrorCode::INVALID_REQUEST, text)
    );
}

#[test]
fn alterations_of_one_resource_in_one_request_are_all_in_effect() {
    let broker = open(&MemoryFs::new(), &[], false);
    for resource in [NODE, ALL, group("g"), ConfigResource::Topic("t".to_owned())] {
        let (one, other) = match &resource {
            ConfigResource::Group(_) => (
                ("consumer.session.timeout.ms", "50000"),
                ("consumer.heartbeat.interval.ms", "6000"),
            ),
            ConfigResource::Topic(name) => {
                broker.create_topic(name, 1, &[]).unwrap();
                (("retention.ms", "50000"), ("retention.bytes", "60000"))
            }
            _ => ((RETENTION, "50000"), ("message.max.bytes", "60000")),
        };
        let alteration = |(name, value)| Alteration {
            resource: resource.clone(),
            change: ConfigChange::Some(vec![set(name, value)]),
        };
        let altered = broker
            .alter_configs(&[alteration(one), alteration(other)], false)
            .unwrap();
        assert!(altered.iter().all(Result::is_ok), "{altered:?}");
        for (name, value) in [one, other] {
            let entries = broker.describe_config(1, &resource).unwrap();
            let entry = entries.into_iter().find(|entry| entry.name == name).unwrap();
            assert_eq!(entry.value.as_deref(), Some(value), "{resource:?} {name}");
        }
    }
}
