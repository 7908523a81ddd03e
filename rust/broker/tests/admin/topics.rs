use super::*;
use crate::common::*;
use fletchlog_api::{ErrorCode, ListOffsetsRequest, MetadataRequest, Request, Response};
use fletchlog_protocol::messages::metadata_response::MetadataResponsePartition;

fn assigned(assignments: &[(i32, &[i32])]) -> NewTopic {
    NewTopic {
        assignments: assignments.iter().map(|(p, nodes)| (*p, nodes.to_vec())).collect(),
        ..NewTopic::default()
    }
}

fn metadata(client: &mut Client, topic: &str) -> Vec<MetadataResponsePartition> {
    let request = Request::Metadata(MetadataRequest::for_topics(Some(vec![topic.into()]), false));
    match client.ask(1, request) {
        Response::Metadata(response) => response.topics[0].partitions.clone(),
        other => panic!("{other:?}"),
    }
}

fn replicas(broker: &std::sync::Arc<Broker>, topic: &str) -> Vec<Vec<i32>> {
    let partitions = metadata(&mut Client::new(broker), topic);
    let agree = |p: &MetadataResponsePartition| p.leader_id == p.replica_nodes[0] && p.isr_nodes == p.replica_nodes;
    assert!(partitions.iter().all(agree), "{partitions:?}");
    partitions.into_iter().map(|p| p.replica_nodes).collect()
}

/// Seen on a 4.3.1 broker, which gives them the properties of any topic then.
#[test]
fn the_topics_of_the_coordinators_can_be_created() {
    let broker = in_memory(1);
    for name in ["__consumer_offsets", "__transaction_state", "__share_group_state"] {
        broker.create_topic_with(name, &new(3, 1)).unwrap();
        let (code, text) = refused(broker.create_topic_with(name, &new(3, 1)));
        assert_eq!(code, ErrorCode::TOPIC_ALREADY_EXISTS);
        assert_eq!(text, format!("Topic '{name}' already exists."));
        let topic = broker.describe_topic(name).unwrap();
        assert_eq!(topic.partitions.len(), 3);
        assert_eq!(policy(&broker, name), "delete");
    }
    let (code, text) = refused(broker.create_topic_with("__cluster_metadata", &new(3, 1)));
    assert_eq!(code, ErrorCode::INVALID_REQUEST);
    assert_eq!(text, "Creation of internal topic __cluster_metadata is prohibited.");
}

fn policy(broker: &std::sync::Arc<Broker>, topic: &str) -> String {
    let config = broker.describe_topic(topic).unwrap().config;
    let found = config.iter().find(|(name, _)| name.as_str() == "cleanup.policy");
    found.map_or("delete", |(_, value)| value.as_str()).to_owned()
}

/// Kafka: `DefaultAutoTopicCreationManager#creatableTopic`.
#[test]
fn metadata_makes_the_topics_of_the_coordinators_with_their_own_properties() {
    let broker = Broker::in_memory(
        options(
            None,
            false,
            &[
                ("auto.create.topics.enable", "true"),
                ("offsets.topic.num.partitions", "7"),
            ],
        ),
        VirtualClock::new(),
    )
    .unwrap();
    let mut client = Client::new(&broker);
    let mut ask = |topic: &str| {
        let request = Request::Metadata(MetadataRequest::for_topics(Some(vec![topic.into()]), true));
        match client.ask(1, request) {
            Response::Metadata(response) => (response.topics[0].error_code, response.topics[0].partitions.len()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask("__consumer_offsets"), (ErrorCode::NONE, 7));
    assert_eq!(ask("__transaction_state"), (ErrorCode::NONE, 50));
    assert_eq!(policy(&broker, "__consumer_offsets"), "compact");
}

#[test]
fn what_cannot_be_created_is_refused_in_kafkas_words() {
    let broker = in_memory(1);
    broker.create_topic_with("a.b_c", &new(1, 1)).unwrap();
    let cases: &[(&str, NewTopic, ErrorCode, &str)] = &[
        (
            "a.b_c",
            new(1, 1),
            ErrorCode::TOPIC_ALREADY_EXISTS,
            "Topic 'a.b_c' already exists.",
        ),
        (
            "a_b.c",
            new(1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b.c' collides with existing topic: a.b_c",
        ),
        (
            "bad name!",
            new(1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'bad name!' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            "",
            new(1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            "..",
            new(1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: '..' is not allowed",
        ),
        (
            "x",
            new(0, 1),
            ErrorCode::INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            "x",
            new(-2, 1),
            ErrorCode::INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            "x",
            new(1, 2),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            "x",
            new(1, 0),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            "x",
            assigned(&[(0, &[9])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            "x",
            assigned(&[(0, &[1]), (2, &[1])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            "x",
            assigned(&[(0, &[1, 1])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            "x",
            assigned(&[(0, &[])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            "x",
            NewTopic {
                partitions: 2,
                replication_factor: 1,
                ..assigned(&[(0, &[1])])
            },
            ErrorCode::INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            "x",
            with_config(&[("no.such", Some("1"))]),
            ErrorCode::INVALID_CONFIG,
            "Unknown topic config name: no.such",
        ),
        (
            "x",
            with_config(&[("retention.ms", Some("abc"))]),
            ErrorCode::INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "x",
            with_config(&[("retention.ms", None)]),
            ErrorCode::INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
    ];
    for (name, new, code, text) in cases {
        for validate_only in [false, true] {
            let new = NewTopic {
                validate_only,
                ..new.clone()
            };
            let answer = refused(broker.create_topic_with(name, &new));
            assert_eq!(answer, (*code, (*text).to_owned()), "{name} {new:?}");
        }
    }
    assert_eq!(broker.topics(true).unwrap().len(), 1);
}

#[test]
fn what_is_only_validated_is_not_made() {
    let broker = in_memory(1);
    let new = NewTopic {
        validate_only: true,
        ..with_config(&[("retention.ms", Some("5"))])
    };
    let created = broker.create_topic_with("t", &new).unwrap();
    assert_eq!((created.partitions, created.replication_factor), (1, 1));
    assert!(broker.topics(false).unwrap().is_empty());
    broker.create_topic("t", 1, &[]).unwrap();
    broker.create_partitions("t", 3, None, true).unwrap();
    assert_eq!(replicas(&broker, "t").len(), 1);
}

#[test]
fn what_is_left_to_the_broker_comes_from_its_properties() {
    let config = [("num.partitions", "4"), ("default.replication.factor", "2")];
    let broker = Broker::in_memory(options(Some(3), false, &config), VirtualClock::new()).unwrap();
    let created = broker.create_topic_with("t", &NewTopic::default()).unwrap();
    assert_eq!((created.partitions, created.replication_factor), (4, 2));
    assert_eq!(replicas(&broker, "t"), [[1, 2], [2, 3], [3, 1], [1, 2]]);
    // The next topic's stripe begins one node further, as ever.
    broker.create_topic_with("u", &new(2, 3)).unwrap();
    assert_eq!(replicas(&broker, "u"), [[2, 3, 1], [3, 1, 2]]);
    assert_eq!(broker.topic_name(created.topic_id).unwrap().as_deref(), Some("t"));
    assert_eq!(broker.topic_name([1; 16]).unwrap(), None);
    // Here -1 is no number of partitions.
    let (code, _) = refused(broker.create_topic("v", -1, &[]));
    assert_eq!(code, ErrorCode::INVALID_PARTITIONS);
}

#[test]
fn placed_replicas_hold_their_logs_where_they_were_placed_and_stay_there() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Broker::open(dir.path(), options(Some(3), false, &[]), VirtualClock::new()).unwrap();
    let broker = open();
    broker
        .create_topic_with("t", &assigned(&[(0, &[3, 1]), (1, &[3, 2])]))
        .unwrap();
    let mut client = Client::new(&broker);
    client.produce(3, &tp("t", 1), batch(1, 10), -1);
    broker.create_partitions("t", 3, Some(&[vec![2, 3]]), false).unwrap();
    assert_eq!(replicas(&broker, "t"), [[3, 1], [3, 2], [2, 3]]);
    client.produce(2, &tp("t", 2), batch(2, 10), -1);
    // What is not placed by hand follows the stripe of the topic.
    broker.create_partitions("t", 4, None, false).unwrap();
    drop(client);
    broker.close().unwrap();
    let broker = open();
    assert_eq!(replicas(&broker, "t"), [vec![3, 1], vec![3, 2], vec![2, 3], vec![1, 2]]);
    for (partition, node, end) in [(1, 3, 1), (2, 2, 2)] {
        assert!(dir.path().join(format!("node-{node}/t-{partition}")).is_dir());
        assert_eq!(broker.partition_log(&tp("t", partition)).unwrap().log_end_offset(), end);
    }
}

#[test]
fn partitions_become_more_at_once_and_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker
        .create_topic("t", 1, &[("max.message.bytes".to_owned(), "200".to_owned())])
        .unwrap();
    broker.append_batches(&tp("t", 0), batch(1, 10)).unwrap();
    let before = broker.describe_topic("t").unwrap();
    broker.create_partitions("t", 3, None, false).unwrap();
    assert!((0..3).all(|p| dir.path().join(format!("t-{p}/partition.metadata")).is_file()));
    let after = broker.describe_topic("t").unwrap();
    assert_eq!((after.topic_id, after.partitions.len()), (before.topic_id, 3));
    assert_eq!(broker.append_batches(&tp("t", 2), batch(1, 10)).unwrap().0, 0);
    assert_eq!(broker.append_batches(&tp("t", 0), batch(1, 10)).unwrap().0, 1);
    let (code, _) = refused(broker.append_batches(&tp("t", 2), batch(1, 1000)));
    assert_eq!(code, ErrorCode::MESSAGE_TOO_LARGE);
    // As a killed process leaves it.
    drop(broker);
    let broker = open(dir.path()).unwrap();
    let ends = broker.describe_topic("t").unwrap().partitions;
    assert_eq!(ends.iter().map(|p| p.high_watermark).collect::<Vec<_>>(), [2, 0, 1]);
}

#[test]
fn partitions_never_become_fewer() {
    let broker = in_memory(1);
    broker.create_topic("t", 3, &[]).unwrap();
    let create =
        |count, assignments: Option<&[Vec<i32>]>| refused(broker.create_partitions("t", count, assignments, false));
    let partitions = |text: &str| (ErrorCode::INVALID_PARTITIONS, text.to_owned());
    assert_eq!(create(3, None), partitions("Topic already has 3 partition(s)."));
    assert_eq!(
        create(1, None),
        partitions("The topic t currently has 3 partition(s); 1 would not be an increase.")
    );
    assert_eq!(
        create(-1, None),
        partitions("The topic t currently has 3 partition(s); -1 would not be an increase.")
    );
    let assignment = |text: &str| (ErrorCode::INVALID_REPLICA_ASSIGNMENT, text.to_owned());
    assert_eq!(
        create(4, Some(&[vec![1], vec![1]])),
        assignment("Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.")
    );
    assert_eq!(
        create(4, Some(&[vec![9]])),
        assignment("The manual partition assignment includes broker 9, but no such broker is registered.")
    );
    assert_eq!(create(200_000, None).0, ErrorCode::INVALID_PARTITIONS);
    let (code, _) = refused(broker.create_partitions("nope", 3, None, false));
    assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(replicas(&broker, "t").len(), 3);
}

#[test]
fn a_reader_beside_the_writer_sees_new_partitions_and_keeps_its_open_logs() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    writer.append_batches(&tp("t", 0), batch(1, 10)).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    let log = reader.partition_log(&tp("t", 0)).unwrap();
    writer.create_partitions("t", 2, None, false).unwrap();
    writer.append_batches(&tp("t", 1), batch(2, 10)).unwrap();
    assert_eq!(reader.describe_topic("t").unwrap().partitions.len(), 2);
    assert_eq!(reader.partition_log(&tp("t", 1)).unwrap().log_end_offset(), 2);
    assert!(std::sync::Arc::ptr_eq(
        &log,
        &reader.partition_log(&tp("t", 0)).unwrap()
    ));
}

#[test]
fn a_partition_that_nobody_has_used_is_empty_for_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    writer.create_partitions("t", 3, None, false).unwrap();
    // A version that made directories when they were first used has left none.
    std::fs::remove_dir_all(dir.path().join("t-2")).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    let mut client = Client::new(&reader);
    for number in [1, 2] {
        let t = tp("t", number);
        for timestamp in [
            ListOffsetsRequest::EARLIEST_TIMESTAMP,
            ListOffsetsRequest::LATEST_TIMESTAMP,
        ] {
            assert_eq!(client.list_offset(1, &t, timestamp), (ErrorCode::NONE, 0), "{t}");
        }
        let answer = client.fetch(1, fetch_of(&[(&t, 0, 1000)]));
        let answer = nth(&answer, 0);
        assert_eq!((answer.error_code, answer.size()), (ErrorCode::NONE, 0), "{t}");
        writer.append_batches(&t, batch(2, 10)).unwrap();
        assert_eq!(
            client.list_offset(1, &t, ListOffsetsRequest::LATEST_TIMESTAMP),
            (ErrorCode::NONE, 2),
            "{t}"
        );
    }
}

#[test]
fn a_partition_of_a_topic_that_is_deleted_meanwhile_is_unknown_to_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    writer.delete_topic("t").unwrap();
    let answer = Client::new(&reader).list_offset(1, &tp("t", 0), ListOffsetsRequest::LATEST_TIMESTAMP);
    assert_eq!(answer, (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1));
}

#[test]
fn topics_stay_where_deleting_is_off() {
    let options = options(None, false, &[("delete.topic.enable", "false")]);
    let broker = Broker::in_memory(options, VirtualClock::new()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let answer = refused(broker.delete_topic("t"));
    assert_eq!(
        answer,
        (
            ErrorCode::TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled.".to_owned()
        )
    );
    assert_eq!(broker.topics(false).unwrap().len(), 1);
}

#[test]
fn a_reader_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    for refusal in [
        reader.create_topic_with("u", &new(1, 1)).map(drop),
        reader.create_partitions("t", 2, None, false),
        reader.alter_config(&topic("t"), &[set("retention.ms", "5")], false),
        reader.replace_config(&topic("t"), &[], false),
    ] {
        assert!(matches!(refusal, Err(BrokerError::ReadOnly(_))), "{refusal:?}");
    }
}
