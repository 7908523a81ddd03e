//! What a request costs grows with its bytes, however it is made. Processor time is compared with processor time of the same run.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};
use rustix::time::{ClockId, clock_gettime};

use super::requests::{Api, Shape, TOPICS, Values, all, thing};
use crate::Endpoint;
use crate::apis::{Apis, Handled, Peer};
use crate::limits::Limits;
use crate::security::Security;
use crate::stats::Stats;

/// Entries of a list: so many that work which grows with their square outweighs the rest. The other list is this many times as long.
const ENTRIES: usize = 1000;
const TIMES: usize = 32;
/// Entries of CreateTopics, which refuses more than 10,000 partitions.
const TOPICS_TO_CREATE: usize = 300;
/// The processor time of the longer one may be this many times what its length says.
const SLACK: f64 = 3.0;
/// Times below this one are not compared: they are of what does not depend on the list.
const NOTHING_MS: f64 = 0.5;

/// APIs whose requests have no list: there is nothing to repeat.
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

    /// A transaction of many partitions, a group with many offsets and members, a partition with many producers.
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
            transactional_id: name.as_str().into(),
            producer_id: 0,
            producer_epoch: 0,
            partitions,
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

    /// Processor time of a request, and of the same request once more, whichever is longer.
    fn time_ms(&self, api: &Api, version: i16, shape: &Shape<'_>) -> f64 {
        let frame = Bytes::from(api.request(version, 1, shape));
        let once = || {
            let begin = thread_ms();
            let (handled, _) = self.apis.handle(&self.peer, frame.clone(), &Stats::default());
            let took = thread_ms() - begin;
            if let Handled::Close(reason) = handled {
                // Its answer has a limit of its own; whatever else closes the connection is a mistake of this test.
                assert!(reason.contains("queued.max.request.bytes"), "{reason}");
            }
            took
        };
        once().max(once())
    }
}

fn member(instance: &str) -> api::JoinGroupRequest {
    api::JoinGroupRequest {
        group_id: "members".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: "".into(),
        group_instance_id: Some(instance.into()),
        client_id: "".into(),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::new())],
        requires_known_member_id: true,
        supports_skipping_assignment: true,
        reason: None,
    }
}

fn thread_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// How many times as long the longer request takes.
fn growth(api: &Api, version: i16, long: &str, values: Values) -> f64 {
    let time_ms = |count: usize| {
        let world = World::new();
        let ids = &world.ids;
        world.time_ms(
            api,
            version,
            &Shape {
                long,
                count,
                values,
                ids,
            },
        )
    };
    let entries = match &*api.name {
        "CreateTopics" => TOPICS_TO_CREATE,
        _ => ENTRIES,
    };
    let (short, longer) = (time_ms(entries), time_ms(entries * TIMES));
    longer / short.max(NOTHING_MS)
}

#[test]
fn the_time_of_a_request_grows_with_its_bytes() {
    let limit = TIMES as f64 * SLACK;
    let mut slow = Vec::new();
    for api in all() {
        // An old version where its request has other lists.
        let versions = [api.min, api.max]
            .into_iter()
            .map(|version| (api.lists(version), version));
        for version in BTreeMap::from_iter(versions).into_values() {
            for long in api.lists(version) {
                for values in [Values::Same, Values::Twice, Values::Known, Values::Unknown] {
                    // A machine that is busy with something else makes some runs slower, not all.
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

/// Lists of which each entry is answered by all that there is of one thing, which a request may name again and again.
const ANSWERED_BY_MORE: &[(&str, &str)] = &[
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
