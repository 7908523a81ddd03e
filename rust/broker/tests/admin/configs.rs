use fletchlog_api::{ConfigResource, ErrorCode};
use fletchlog_broker::{ConfigEntry, ConfigSource};

use super::*;
use crate::common::*;

/// The properties of a topic that a Kafka 4.4.0 lists.
const LISTED: [&str; 37] = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
];

fn entry(broker: &Broker, topic: Option<&str>, name: &str) -> ConfigEntry {
    let entries = broker
        .describe_config(1, &topic.map_or(ConfigResource::Broker(1), self::topic))
        .unwrap();
    entries.into_iter().find(|entry| entry.name == name).unwrap()
}

fn synonyms(entry: &ConfigEntry) -> Vec<(&str, &str, i8)> {
    entry
        .synonyms
        .iter()
        .map(|s| (&*s.name, s.value.as_str(), s.source.id()))
        .collect()
}

#[test]
fn a_topic_lists_what_kafka_lists_and_its_own_when_set() {
    let broker = in_memory(1);
    let created = broker
        .create_topic_with("t", &with_config(&[("fletchlog.durability", Some("fsync"))]))
        .unwrap();
    fn listed(entries: &[ConfigEntry]) -> Vec<&str> {
        entries.iter().filter(|e| e.is_listed()).map(|e| &*e.name).collect()
    }
    let mut expected: Vec<&str> = LISTED.to_vec();
    expected.push("fletchlog.durability");
    expected.sort_unstable();
    assert_eq!(listed(&created.config), expected);
    assert_eq!(listed(&broker.describe_config(1, &topic("t")).unwrap()), expected);
    broker.create_topic("u", 1, &[]).unwrap();
    assert_eq!(listed(&broker.describe_config(1, &topic("u")).unwrap()), LISTED);
    let (code, _) = refused(broker.describe_config(1, &topic("nope")));
    assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let invalid = "Topic name is invalid: the empty string is not allowed";
    let answer = refused(broker.describe_config(1, &topic("")));
    assert_eq!(answer, (ErrorCode::INVALID_TOPIC_EXCEPTION, invalid.to_owned()));
}

#[test]
fn every_place_that_has_a_value_is_named_the_one_that_holds_first() {
    let config = [
        ("log.retention.hours", "2"),
        ("message.max.bytes", "05000"),
        ("log.segment.bytes", "100000"),
    ];
    let broker = Broker::in_memory(options(None, false, &config), VirtualClock::new()).unwrap();
    let topic = [
        ("cleanup.policy", Some("delete, compact")),
        ("segment.bytes", Some("2000")),
    ];
    broker.create_topic_with("t", &with_config(&topic)).unwrap();
    let of = |name| entry(&broker, Some("t"), name);
    let policy = of("cleanup.policy");
    assert_eq!(policy.source, ConfigSource::DynamicTopicConfig);
    assert_eq!(
        synonyms(&policy),
        [
            ("cleanup.policy", "delete,compact", 1),
            ("log.cleanup.policy", "delete", 5)
        ]
    );
    assert_eq!(
        synonyms(&of("segment.bytes")),
        [
            ("segment.bytes", "2000", 1),
            ("log.segment.bytes", "100000", 4),
            ("log.segment.bytes", "1073741824", 5)
        ]
    );
    let bytes = of("max.message.bytes");
    assert_eq!(
        (bytes.value.as_deref(), bytes.source),
        (Some("5000"), ConfigSource::StaticBrokerConfig)
    );
    // Recorded: what comes from a coarser unit has no synonym and counts as a default.
    let retention = of("retention.ms");
    assert_eq!(
        (retention.value.as_deref(), retention.source, synonyms(&retention)),
        (Some("7200000"), ConfigSource::DefaultConfig, vec![])
    );
    // Recorded: with eligible.leader.replicas the cluster gives it.
    assert_eq!(
        synonyms(&of("min.insync.replicas")),
        [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)]
    );
    assert_eq!(synonyms(&of("preallocate")), [("log.preallocate", "false", 5)]);
    let types: Vec<i8> = [
        "cleanup.policy",
        "preallocate",
        "segment.bytes",
        "retention.ms",
        "min.cleanable.dirty.ratio",
        "compression.type",
    ]
    .map(|name| of(name).config_type.id())
    .to_vec();
    assert_eq!(types, [7, 1, 3, 5, 6, 2]);
}

#[test]
fn the_broker_reports_what_it_was_given_and_what_can_change() {
    let broker = Broker::in_memory(options(None, false, &[("num.partitions", "4")]), VirtualClock::new()).unwrap();
    let partitions = entry(&broker, None, "num.partitions");
    assert!(partitions.read_only);
    assert_eq!(
        synonyms(&partitions),
        [("num.partitions", "4", 4), ("num.partitions", "1", 5)]
    );
    assert!(!entry(&broker, None, "message.max.bytes").read_only);
    assert!(entry(&broker, None, "log.retention.hours").read_only);
    assert_eq!(entry(&broker, None, "log.retention.ms").value, None);
}

#[test]
fn a_change_holds_at_once_and_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker
        .create_topic("t", 2, &[("segment.ms".to_owned(), "7".to_owned())])
        .unwrap();
    broker.append_batches(&tp("t", 0), batch(1, 500)).unwrap();
    broker
        .alter_config(
            &topic("t"),
            &[
                set("max.message.bytes", "300"),
                change("segment.ms", AlterConfigOp::Delete, None),
            ],
            false,
        )
        .unwrap();
    let check = |broker: &Broker| {
        for partition in 0..2 {
            let (code, _) = refused(broker.append_batches(&tp("t", partition), batch(1, 500)));
            assert_eq!(code, ErrorCode::MESSAGE_TOO_LARGE, "{partition}");
        }
        let config = broker.describe_topic("t").unwrap().config;
        assert_eq!(
            config.into_iter().collect::<Vec<_>>(),
            [("max.message.bytes".to_owned(), "300".to_owned())]
        );
        assert_eq!(value(broker, Some("t"), "segment.ms").as_deref(), Some("604800000"));
    };
    check(&broker);
    drop(broker);
    check(&open(dir.path()).unwrap());
}

#[test]
fn retention_and_segments_follow_a_change() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    broker
        .create_topic("t", 1, &[("retention.ms".to_owned(), "-1".to_owned())])
        .unwrap();
    let segments = || broker.describe_topic("t").unwrap().partitions[0].segments;
    for _ in 0..2 {
        broker.append_batches(&tp("t", 0), batch(1, 20)).unwrap();
    }
    assert_eq!(segments(), 1);
    broker
        .alter_config(&topic("t"), &[set("segment.bytes", "100")], false)
        .unwrap();
    for _ in 0..2 {
        broker.append_batches(&tp("t", 0), batch(1, 20)).unwrap();
    }
    assert!(segments() > 1);
    clock.advance(1_000_000);
    assert_eq!(broker.run_retention().unwrap(), 0);
    broker
        .alter_config(&topic("t"), &[set("retention.ms", "1000")], false)
        .unwrap();
    assert!(broker.run_retention().unwrap() > 0);
    let deleted = |broker: &Broker| refused(broker.delete_records(&tp("t", 0), None)).0;
    broker
        .alter_config(&topic("t"), &[set("cleanup.policy", "compact")], false)
        .unwrap();
    assert_eq!(deleted(&broker), ErrorCode::POLICY_VIOLATION);
    broker.clean_topic("t", true, &mut || false).unwrap();
}

#[test]
fn what_was_acknowledged_before_a_topic_became_durable_is_durable_too() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(3, 20)).unwrap();
    let log = broker.partition_log(&tp("t", 0)).unwrap();
    assert_eq!(log.recovery_point(), 0);
    broker
        .alter_config(&topic("t"), &[set("fletchlog.durability", "fsync")], false)
        .unwrap();
    assert_eq!(log.recovery_point(), 3);
}

#[test]
fn lists_grow_and_shrink_from_their_default() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let policy = |op, given| {
        broker
            .alter_config(&topic("t"), &[change("cleanup.policy", op, Some(given))], false)
            .unwrap();
        value(&broker, Some("t"), "cleanup.policy").unwrap()
    };
    assert_eq!(policy(AlterConfigOp::Append, "compact"), "delete,compact");
    assert_eq!(policy(AlterConfigOp::Append, "compact"), "delete,compact");
    assert_eq!(policy(AlterConfigOp::Subtract, "delete"), "compact");
    assert_eq!(policy(AlterConfigOp::Set, "delete,compact"), "delete,compact");
    broker
        .alter_config(
            &topic("t"),
            &[change("cleanup.policy", AlterConfigOp::Delete, None)],
            false,
        )
        .unwrap();
    assert_eq!(
        entry(&broker, Some("t"), "cleanup.policy").source,
        ConfigSource::DefaultConfig
    );
}

#[test]
fn what_cannot_be_altered_is_refused_in_kafkas_words_and_changes_nothing() {
    let broker = in_memory(1);
    broker
        .create_topic("t", 1, &[("retention.ms".to_owned(), "1000000".to_owned())])
        .unwrap();
    let refuse = |changes: &[AlterConfig]| refused(broker.alter_config(&topic("t"), changes, false));
    let invalid = |text: &str| (ErrorCode::INVALID_CONFIG, text.to_owned());
    let request = |text: &str| (ErrorCode::INVALID_REQUEST, text.to_owned());
    assert_eq!(
        refuse(&[set("segment.ms", "5"), set("no.such", "1")]),
        invalid("Unknown topic config name: no.such")
    );
    assert_eq!(
        refuse(&[set("retention.ms", "abc")]),
        invalid("Invalid value abc for configuration retention.ms: Not a number of type LONG")
    );
    assert_eq!(
        refuse(&[change("retention.ms", AlterConfigOp::Append, Some("5"))]),
        invalid("Can't APPEND to key retention.ms because its type is not LIST.")
    );
    assert_eq!(
        refuse(&[change("retention.ms", AlterConfigOp::Set, None)]),
        request("Null value not supported for : retention.ms")
    );
    assert_eq!(
        refuse(&[
            set("retention.ms", "5"),
            change("retention.ms", AlterConfigOp::Delete, None)
        ]),
        request("Error due to duplicate config keys")
    );
    let unknown = |text: &str| (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text.to_owned());
    assert_eq!(
        refused(broker.alter_config(&topic("nope"), &[], false)),
        unknown("The topic 'nope' does not exist.")
    );
    assert_eq!(
        refused(broker.alter_config(&topic(""), &[], false)),
        request("Default topic resources are not allowed.")
    );
    let (code, _) = refuse(&[set("min.compaction.lag.ms", "10"), set("max.compaction.lag.ms", "5")]);
    assert_eq!(code, ErrorCode::INVALID_CONFIG);
    // Not there, so nothing to delete.
    broker
        .alter_config(&topic("t"), &[change("no.such", AlterConfigOp::Delete, None)], false)
        .unwrap();
    broker
        .alter_config(&topic("t"), &[set("retention.ms", "5")], true)
        .unwrap();
    let config = broker.describe_topic("t").unwrap().config;
    assert_eq!(
        config.into_iter().collect::<Vec<_>>(),
        [("retention.ms".to_owned(), "1000000".to_owned())]
    );
}

#[test]
fn a_full_change_replaces_what_was_set() {
    let broker = in_memory(1);
    broker
        .create_topic("t", 1, &[("retention.ms".to_owned(), "1000000".to_owned())])
        .unwrap();
    let pairs = |pairs: &[(&str, Option<&str>)]| with_config(pairs).config;
    broker
        .replace_config(&topic("t"), &pairs(&[("segment.ms", Some("2000000"))]), true)
        .unwrap();
    assert_eq!(value(&broker, Some("t"), "segment.ms").as_deref(), Some("604800000"));
    broker
        .replace_config(&topic("t"), &pairs(&[("segment.ms", Some("2000000"))]), false)
        .unwrap();
    assert_eq!(value(&broker, Some("t"), "retention.ms").as_deref(), Some("604800000"));
    assert_eq!(value(&broker, Some("t"), "segment.ms").as_deref(), Some("2000000"));
    let answer = refused(broker.replace_config(&topic("t"), &pairs(&[("retention.ms", None)]), false));
    assert_eq!(
        answer,
        (
            ErrorCode::INVALID_REQUEST,
            "Null value not supported for : retention.ms".to_owned()
        )
    );
    broker.replace_config(&topic("t"), &[], false).unwrap();
    assert!(broker.describe_topic("t").unwrap().config.is_empty());
}

#[test]
fn what_is_not_done_here_takes_its_default_alone() {
    let broker = in_memory(1);
    broker
        .create_topic_with("t", &with_config(&[("remote.storage.enable", Some("FALSE"))]))
        .unwrap();
    let tiered = with_config(&[("remote.storage.enable", Some("true"))]);
    let answer = refused(broker.create_topic_with("u", &tiered));
    assert_eq!(answer.0, ErrorCode::INVALID_CONFIG);
}
