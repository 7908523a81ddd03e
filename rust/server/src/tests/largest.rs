//! What a request costs grows with its bytes, however it is made. Processor time is compared with processor time of the same run.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api as api;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};
use rustix::time::{ClockId, clock_gettime};

use super::requests::{Api, Shape, TOPICS, Values, all, thing};
use crate::Endpoint;
use crate::apis::{Apis, Handled, Peer};
use crate::limits::Limits;
use crate::security::Security;
use crate::stats::Stats;

/// Entries of a list, and of one that is this many times as long.
const ENTRIES: usize = 1000;
const TIMES: usize = 8;
/// The processor time of the longer one may be this many times what its length says.
const SLACK: f64 = 3.0;
/// Times below this one are not compared: they are of what does not depend on the list.
const NOTHING_MS: f64 = 2.0;

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
        let config = [
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
            config: Config::parse(Scope::Broker, config).unwrap(),
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

    /// Processor time of a request, and of the same request once more, whichever is longer.
    fn time_ms(&self, api: &Api, version: i16, shape: &Shape<'_>) -> f64 {
        let frame = Bytes::from(api.request(version, 1, shape));
        let once = || {
            let begin = thread_ms();
            let (handled, _) = self.apis.handle(&self.peer, frame.clone(), &Stats::default());
            let took = thread_ms() - begin;
            if let Handled::Close(reason) = handled {
                panic!("{reason}");
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
    let (short, longer) = (time_ms(ENTRIES), time_ms(ENTRIES * TIMES));
    longer / short.max(NOTHING_MS)
}

#[test]
fn the_time_of_a_request_grows_with_its_bytes() {
    let limit = TIMES as f64 * SLACK;
    let mut slow = Vec::new();
    for api in all() {
        let versions = BTreeSet::from([api.min, api.max]);
        for version in versions {
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
