//! The cost of any request grows no faster than its size. The tests compare processor times within one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{
    Acl, AclOperation, Broker, CLUSTER_NAME, MorePartitions, NewTopic, OpenOptions, PatternType, PermissionType,
    ResourceType,
};
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use rustix::time::{ClockId, clock_gettime};

use super::requests::{Api, Shape, TOPICS, Values, all, thing};
use crate::Endpoint;
use crate::apis::{Apis, Handled, Peer};
use crate::limits::Limits;
use crate::security::Security;
use crate::stats::Stats;

/// Entries of the short list. They double until it takes `SHORT_MS` of processor time: in a shorter time, fixed costs would dominate.
const FIRST_ENTRIES: usize = 75;
const MOST_ENTRIES: usize = 1200;
const SHORT_MS: f64 = 1.0;
/// The long list is this many times as long. Quadratic work then outweighs the rest, even if one step of it is ten thousand times as cheap
/// as an entry. A much longer list would leave the caches, which makes each entry slower. CreateTopics refuses more than 10,000 partitions.
const TIMES: usize = 64;
/// The longer list may take this many times the processor time that is proportional to its length.
const SLACK: f64 = 4.0;

/// APIs whose requests have no list.
const WITHOUT_A_LIST: &[&str] = &[
    "AddOffsetsToTxn",
    "ApiVersions",
    "DescribeAcls",
    "DescribeCluster",
    "EndTxn",
    "Heartbeat",
    "InitProducerId",
    "SaslAuthenticate",
    "SaslHandshake",
];

/// A broker with topics, a transaction, and a group with many members.
struct World {
    apis: Apis,
    peer: Peer,
    ids: Vec<[u8; 16]>,
}

impl World {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(config: &[(&str, &str)]) -> Self {
        let own = [
            (
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            ),
            ("super.users", "User:ANONYMOUS"),
            ("group.initial.rebalance.delay.ms", "0"),
        ];
        let options = OpenOptions {
            nodes: None,
            named_nodes: Vec::new(),
            read_only: false,
            config: Config::parse(Scope::Broker, own.iter().chain(config).copied()).unwrap(),
        };
        let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
        for at in 0..TOPICS {
            let partitions = if at == 0 { 200 } else { 1 };
            broker.create_topic(&thing(at), partitions, &[]).unwrap();
        }
        let ids = (0..TOPICS)
            .map(|at| broker.topic_id(&thing(at)).unwrap().unwrap())
            .collect();
        let port = broker.connect(1, "/127.0.0.1");
        port.handle(api::Request::InitProducerId(api::InitProducerIdRequest {
            transactional_id: Some(thing(0).into()),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        }));
        for at in 0..TOPICS {
            port.handle(api::Request::JoinGroup(member(&thing(at))));
        }
        let limits = Limits::new(broker.config()).unwrap();
        let security = Security::new(broker.config()).unwrap();
        let endpoint = Endpoint {
            node: 1,
            host: "localhost".to_owned(),
            port: 9092,
        };
        Self {
            apis: Apis::new(broker, vec![endpoint], &limits, security),
            peer: Peer::new(port, "127.0.0.1:1".parse().unwrap(), false),
            ids,
        }
    }

    /// Adds a transaction with many partitions, a group with many offsets and members, and many producers on a partition.
    fn fill(&self) {
        let (broker, name) = (self.apis.broker(), thing(0));
        let partitions: Vec<_> = (0..200).map(|p| TopicPartition::new(&*name, p)).collect();
        let offset = api::OffsetAndMetadata {
            offset: 1,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let offsets: Vec<_> = partitions.iter().map(|tp| (tp.clone(), offset.clone())).collect();
        broker.alter_offsets(&name.as_str().into(), &offsets).unwrap();
        let port = broker.connect(1, "/127.0.0.1");
        port.handle(api::Request::AddPartitionsToTxn(api::AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: name.as_str().into(),
            v3_and_below_topics: api::AddPartitionsToTxnRequest::topics_of(partitions),
            ..Default::default()
        }));
        for at in 0..20 {
            let mut request = member(&thing(at));
            request.group_id = name.as_str().into();
            port.handle(api::Request::JoinGroup(request));
            let mut batch = BatchBuilder::with_capacity(100);
            batch.append(0, None, Some(b"v"), &[]);
            let params = BatchParams {
                producer_id: 1000 + i64::try_from(at).unwrap(),
                producer_epoch: 0,
                base_sequence: 0,
                ..BatchParams::default()
            };
            let tp = TopicPartition::new(&*name, 0);
            broker.append_batches(&tp, batch.build(&params)).unwrap();
        }
    }

    /// Handles a request twice. Returns the longer processor time.
    fn time_of_frame(&self, frame: &Bytes) -> f64 {
        let once = || {
            let begin = thread_ms();
            let (handled, _) = self.apis.handle(&self.peer, frame.clone(), &Stats::default());
            let took = thread_ms() - begin;
            if let Handled::Close(reason) = handled {
                // Only the limit of the response's size may close the connection; anything else is a mistake in this test.
                assert!(reason.contains("queued.max.request.bytes"), "{reason}");
            }
            took
        };
        once().max(once())
    }

    /// [`World::time_of_frame`] of a request with one long list.
    fn time_of_list(&self, api: &Api, version: i16, long: &str, count: usize, values: Values) -> f64 {
        let ids = &self.ids;
        let shape = Shape {
            long,
            count,
            values,
            ids,
        };
        self.time_of_frame(&api.request(version, 1, &shape).into())
    }
}

fn member(instance: &str) -> api::JoinGroupRequest {
    api::JoinGroupRequest {
        group_id: "members".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: "".into(),
        group_instance_id: Some(instance.into()),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn thread_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The ratio of the long request's time to the short one's.
fn growth(api: &Api, version: i16, long: &str, values: Values) -> f64 {
    let time_ms = |count: usize| World::new().time_of_list(api, version, long, count, values);
    let mut entries = FIRST_ENTRIES;
    let mut short = time_ms(entries);
    while short < SHORT_MS && entries * 2 <= MOST_ENTRIES {
        entries *= 2;
        short = time_ms(entries);
    }
    time_ms(entries * TIMES) / short.max(SHORT_MS)
}

// Two tests, which run beside each other: they take longer than all others of the crate.
#[test]
fn the_time_of_a_request_grows_with_its_bytes() {
    no_list_is_slow(&[Values::Same, Values::Unknown]);
}

#[test]
fn the_time_of_a_request_grows_with_its_bytes_if_it_names_what_exists_or_a_thing_twice() {
    no_list_is_slow(&[Values::Twice, Values::Known]);
}

fn no_list_is_slow(kinds: &[Values]) {
    let limit = TIMES as f64 * SLACK;
    let mut slow = Vec::new();
    for api in all() {
        // The old version is tested too if its request has other lists.
        let versions = [api.min, api.max]
            .into_iter()
            .map(|version| (api.lists(version), version));
        for version in BTreeMap::from_iter(versions).into_values() {
            for long in api.lists(version) {
                for &values in kinds {
                    // Other load on the machine slows down some runs, not all.
                    let best = (0..3)
                        .map(|_| growth(&api, version, &long, values))
                        .find(|growth| *growth <= limit);
                    if best.is_none() {
                        slow.push(format!("{} {version} {long} {values:?}", api.name));
                    }
                }
            }
        }
    }
    assert!(
        slow.is_empty(),
        "more than {limit} times as long with {TIMES} times as many entries: {slow:#?}"
    );
}

/// Requests sent to a nearly empty broker and to one with many things that they do not name: API, list, entries, how often it is sent.
const BESIDE_MUCH: &[(&str, &str, usize, usize)] = &[
    ("DeleteAcls", "/filters", 10_000, 1),
    ("DescribeAcls", "", 1, 2000),
    ("DescribeTopicPartitions", "/topics", 2000, 1),
    ("FindCoordinator", "/coordinator_keys", 2000, 1),
    ("ListOffsets", "/topics", 2000, 1),
    ("Metadata", "/topics", 2000, 1),
];
/// They may take this many times as long on the full broker: a look-up in a larger sorted collection takes a few more steps.
const SLACK_BESIDE: f64 = 5.0;

/// A broker with this many ACLs, topics, and partitions of one topic. The client has only the rights that the ACLs give it.
fn world_beside(acls: usize, topics: usize, partitions: i32) -> World {
    let world = World::with(&[("super.users", "")]);
    let broker = world.apis.broker();
    let acl = |resource_type, resource_name: String, operation| Acl {
        resource_type,
        resource_name,
        pattern_type: PatternType::Literal,
        principal: "User:ANONYMOUS".to_owned(),
        host: "*".to_owned(),
        operation,
        permission_type: PermissionType::Allow,
    };
    let of_topic = |at| acl(ResourceType::Topic, thing(at), AclOperation::Describe);
    let of_cluster = acl(ResourceType::Cluster, CLUSTER_NAME.to_owned(), AclOperation::All);
    let all: Vec<Acl> = (0..acls).map(of_topic).chain([of_cluster]).collect();
    broker.create_acls(&all).unwrap();
    let names: Vec<String> = (TOPICS..topics).map(thing).collect();
    let one = NewTopic::default();
    let new: Vec<_> = names.iter().map(|name| (name.as_str(), &one)).collect();
    for created in broker.create_topics(&new).unwrap() {
        created.unwrap();
    }
    let more = MorePartitions {
        topic: thing(0).into(),
        count: partitions,
        assignments: None,
    };
    for grown in broker.grow_topics(&[more], false).unwrap() {
        grown.unwrap();
    }
    world
}

#[test]
fn what_a_request_does_not_name_adds_little_to_its_time() {
    let (little, much) = (world_beside(100, TOPICS, 201), world_beside(10_000, 3000, 5000));
    let all = all();
    let mut slow = Vec::new();
    for (name, long, count, times) in BESIDE_MUCH {
        let api = all.iter().find(|api| api.name == *name).unwrap();
        let time_ms = |world: &World| -> f64 {
            let time_ms = |_| world.time_of_list(api, api.max, long, *count, Values::Unknown);
            (0..*times).map(time_ms).sum()
        };
        let growths = [(); 3].map(|()| time_ms(&much) / time_ms(&little).max(SHORT_MS));
        if growths.iter().all(|growth| *growth > SLACK_BESIDE) {
            slow.push(format!("{name} {long}: {growths:?}"));
        }
    }
    assert!(slow.is_empty(), "more than {SLACK_BESIDE} times as long: {slow:#?}");
}

#[test]
fn a_page_of_a_large_topic_takes_as_long_as_one_of_a_small_topic() {
    let world = world_beside(0, TOPICS, 10_000);
    let page_ms = |topic: &str| -> f64 {
        // DescribeTopicPartitions, version 0, from a client without an id.
        let mut frame = vec![0, 75, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0];
        frame.extend([2, u8::try_from(topic.len() + 1).unwrap()]);
        frame.extend(topic.bytes());
        // One partition, from the first one.
        frame.extend([0, 0, 0, 0, 1, 0xff, 0]);
        (0..200).map(|_| world.time_of_frame(&frame.clone().into())).sum()
    };
    let growths = [(); 3].map(|()| page_ms(&thing(0)) / page_ms(&thing(1)).max(SHORT_MS));
    assert!(growths.iter().any(|growth| *growth <= SLACK_BESIDE), "{growths:?}");
}

#[test]
fn every_api_with_a_list_is_looked_at() {
    let all = all();
    let without = all
        .iter()
        .filter(|api| api.lists(api.max).is_empty() && api.lists(api.min).is_empty());
    let mut without: Vec<&str> = without.map(|api| &*api.name).collect();
    without.sort_unstable();
    assert_eq!(without, WITHOUT_A_LIST);
}

/// Lists whose entries each return everything about one thing; a request may repeat the same entry.
const ANSWERED_BY_MORE: &[(&str, &str)] = &[
    ("ConsumerGroupDescribe", "/group_ids"),
    ("DescribeConfigs", "/resources"),
    ("DescribeGroups", "/groups"),
    ("DescribeProducers", "/topics/partition_indexes"),
    ("DescribeTransactions", "/transactional_ids"),
    ("OffsetFetch", "/groups"),
];

#[test]
fn the_answer_to_what_is_named_again_and_again_has_a_limit() {
    let world = World::with(&[
        ("queued.max.request.bytes", "20000"),
        ("socket.request.max.bytes", "20000"),
    ]);
    world.fill();
    for api in all() {
        let Some((_, long)) = ANSWERED_BY_MORE.iter().find(|(name, _)| *name == api.name) else {
            continue;
        };
        let values = Values::Same;
        let ids = &world.ids;
        let handled = |count: usize| {
            let request = api.request(
                api.max,
                1,
                &Shape {
                    long,
                    count,
                    values,
                    ids,
                },
            );
            world.apis.handle(&world.peer, request.into(), &Stats::default()).0
        };
        assert!(matches!(handled(1), Handled::Answer(_)), "{}", api.name);
        let Handled::Close(reason) = handled(2000) else {
            panic!("{} has no limit", api.name);
        };
        assert!(reason.contains("queued.max.request.bytes"), "{reason}");
    }
}
