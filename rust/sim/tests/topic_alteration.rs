//! A change of a topic, or of a node's properties, that a fault or a power loss interrupts (reliability C1, C2).
//!
//! A change that fails has changed nothing, now or after the next start; one that succeeds holds, whatever is lost afterwards. A
//! power loss in between leaves one or the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::ConfigResource;
use fletchlog_broker::{AlterConfig, AlterConfigOp, Broker, BrokerError};
use fletchlog_sim::crash_points::images;
use fletchlog_sim::disk_state::Left;
use fletchlog_sim::rng::Rng;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

use crate::broker_disk::{FSYNC, OTHER, TOPIC, append, directories, new_disk, open, partitions, send};

fn alter(broker: &Broker, of: &ConfigResource, name: &str, value: &str) -> Result<(), BrokerError> {
    let change = AlterConfig {
        name: name.to_owned(),
        op: AlterConfigOp::Set,
        value: Some(value.to_owned()),
    };
    broker.alter_config(of, &[change], false)
}

const NODES_PROPERTY: &str = "log.index.interval.bytes";

fn topic() -> ConfigResource {
    ConfigResource::Topic(TOPIC.to_owned())
}

/// What changes.
#[derive(Debug, Clone, Copy)]
enum Change {
    Config,
    Node,
    Partitions,
    Placed,
}

impl Change {
    const ALL: [Self; 4] = [Self::Config, Self::Node, Self::Partitions, Self::Placed];

    fn make(self, broker: &Broker) -> Result<(), BrokerError> {
        match self {
            Self::Config => alter(broker, &topic(), "max.message.bytes", "2000"),
            Self::Node => alter(broker, &ConfigResource::Broker(2), NODES_PROPERTY, "300"),
            Self::Partitions => broker.create_partitions(TOPIC, 4, None, false),
            Self::Placed => broker.create_partitions(TOPIC, 3, Some(&[vec![2]]), false),
        }
    }
}

/// Properties of the topic and of a node, and the leaders of the partitions.
type Shape = ((BTreeMap<String, String>, i32), Vec<i32>);

fn shape(broker: &Broker) -> Shape {
    let topic = broker.describe_topic(TOPIC).unwrap();
    let of_node = broker.config_of(2).int(NODES_PROPERTY);
    (
        (topic.config, of_node),
        topic.partitions.iter().map(|p| p.leader).collect(),
    )
}

fn prepare(durability: &str) -> (SimDisk, Arc<Broker>) {
    let disk = new_disk();
    let broker = open(&disk, durability).unwrap();
    broker.create_topic(OTHER, 1, &[]).unwrap();
    let config = [("max.message.bytes".to_owned(), "1000".to_owned())];
    broker.create_topic(TOPIC, 2, &config).unwrap();
    send(&broker, TOPIC, 2, "old");
    (disk, broker)
}

/// A partition's directory is there before the topic has it, as for a new topic; one that was not to be is gone again.
fn has_directories(disk: &SimDisk, broker: &Broker, what: &str) {
    let topic = broker.describe_topic(TOPIC).unwrap();
    let of_topic = topic.partitions.iter();
    let mut expected: Vec<String> = of_topic
        .map(|p| format!("node-{}/{TOPIC}-{}", p.leader, p.partition))
        .collect();
    expected.sort();
    assert_eq!(directories(disk, TOPIC), expected, "{what}");
}

/// The topic takes records in every partition it has, and keeps them over a power loss.
fn is_usable(disk: &SimDisk, broker: &Broker, what: &str) {
    let (config, leaders) = shape(broker);
    for tp in partitions(TOPIC, i32::try_from(leaders.len()).unwrap()) {
        append(broker, &tp, b"new").unwrap_or_else(|e| panic!("{what}: {tp}: {e}"));
    }
    let disk: SimDisk = disk.state().left(Left::Nothing).into();
    let broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(shape(&broker), (config, leaders), "{what}");
    for partition in broker.describe_topic(TOPIC).unwrap().partitions {
        let had = i64::from(partition.partition < 2);
        assert_eq!(partition.high_watermark, had + 1, "{what}: {partition:?}");
    }
}

/// Lets one call of a change fail. Whether there was such a call.
fn change_with_fault(change: Change, fault: Fault, call: u64, rng: &mut Rng) -> bool {
    let what = format!("{change:?}, call {call}, {fault:?}");
    let (disk, broker) = prepare(FSYNC);
    let before = shape(&broker);
    let earlier = disk.failed();
    disk.fail(disk.calls() + call, fault);
    let made = change.make(&broker);
    disk.fail(u64::MAX, fault);
    let met = disk.failed() != earlier;
    assert!(met || made.is_ok(), "{what}: {made:?}");
    assert_eq!(shape(&broker) == before, made.is_err(), "{what}");
    has_directories(&disk, &broker, &what);
    for image in images(&disk.state(), rng, 3) {
        let disk: SimDisk = image.into();
        let broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(shape(&broker) == before, made.is_err(), "{what}: after a start");
    }
    is_usable(&disk, &broker, &what);
    met
}

#[test]
fn a_change_that_fails_has_changed_nothing_and_one_that_succeeds_holds() {
    let mut rng = Rng::new(3);
    for (change, fault) in Change::ALL.into_iter().flat_map(|c| Fault::ALL.map(|f| (c, f))) {
        let calls = (0..)
            .take_while(|call| change_with_fault(change, fault, *call, &mut rng))
            .count();
        assert!(calls > 1, "{change:?}, {fault:?}: {calls} calls failed");
    }
}

#[test]
fn power_that_goes_during_a_change_leaves_all_of_it_or_nothing() {
    let mut rng = Rng::new(4);
    for change in Change::ALL {
        let (disk, broker) = prepare(FSYNC);
        let before = shape(&broker);
        disk.record();
        change.make(&broker).unwrap();
        let after = shape(&broker);
        let history = disk.history();
        let (end, on_the_way) = history.split_last().unwrap();
        let mut found = [0, 0];
        for state in on_the_way {
            let what = format!("{change:?}, after {} operations", state.operations());
            for image in images(state, &mut rng, 3) {
                let disk: SimDisk = image.into();
                let broker = open(&disk, FSYNC).unwrap_or_else(|e| panic!("{what}: {e}"));
                let now = shape(&broker);
                assert!(now == before || now == after, "{what}: {now:?}");
                found[usize::from(now == after)] += 1;
                is_usable(&disk, &broker, &what);
            }
        }
        assert!(found.into_iter().all(|times| times > 0), "{change:?}: {found:?}");
        for image in images(end, &mut rng, 20) {
            let disk: SimDisk = image.into();
            assert_eq!(shape(&open(&disk, FSYNC).unwrap()), after, "{change:?}");
        }
    }
}

#[test]
fn a_topic_that_becomes_durable_loses_nothing_of_what_it_had() {
    let (disk, broker) = prepare("page-cache");
    alter(&broker, &topic(), "fletchlog.durability", "fsync").unwrap();
    let ends = |disk: &SimDisk| -> Vec<i64> {
        let disk: SimDisk = disk.state().left(Left::Nothing).into();
        let partitions = open(&disk, "page-cache")
            .unwrap()
            .describe_topic(TOPIC)
            .unwrap()
            .partitions;
        partitions.iter().map(|partition| partition.high_watermark).collect()
    };
    assert_eq!(ends(&disk), [1, 1]);
    send(&broker, TOPIC, 2, "new");
    assert_eq!(ends(&disk), [2, 2]);
}
