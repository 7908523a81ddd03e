//! Elections that cut the logs of coordinators.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_broker::{Broker, ElectionType, NewTopic};

use super::{OneAtATime, VirtualClock, options};

const CONFIG: [(&str, &str); 8] = [
    ("offsets.topic.num.partitions", "1"),
    ("offsets.topic.replication.factor", "2"),
    ("transaction.state.log.num.partitions", "1"),
    ("transaction.state.log.replication.factor", "2"),
    ("share.coordinator.state.topic.num.partitions", "1"),
    ("share.coordinator.state.topic.replication.factor", "2"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

/// The internal topics.
const TOPICS: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Three nodes: the logs of coordinators have replicas on 1 and 2, where 1 leads; partition 0 of topic `t` is on node 1 alone, partition 1 on
/// node 3.
pub fn cluster(config: &[(&str, &str)]) -> (Arc<Broker>, Arc<VirtualClock>) {
    cluster_of(config, &[1, 3])
}

/// The same, with a partition of `t` on each of these nodes.
pub fn cluster_of(config: &[(&str, &str)], of_topic: &[NodeId]) -> (Arc<Broker>, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    let options = options(Some(3), false, &[&CONFIG[..], config].concat());
    let broker = Broker::in_memory(options, clock.clone()).unwrap();
    create(&broker, of_topic);
    (broker, clock)
}

/// The same as [`cluster`], in a directory. If it exists there, it is opened again.
pub fn cluster_in(dir: &Path) -> (Arc<Broker>, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    let broker = Broker::open(dir, options(Some(3), false, &CONFIG), clock.clone()).unwrap();
    if broker.topic_id("t").unwrap().is_none() {
        create(&broker, &[1, 3]);
    }
    (broker, clock)
}

fn create(broker: &Broker, of_topic: &[NodeId]) {
    let new = NewTopic {
        assignments: (0..).zip(of_topic.iter().map(|node| vec![*node])).collect(),
        ..NewTopic::default()
    };
    broker.create_topic_with("t", &new).unwrap();
}

/// What coordinators write from now on is what [`lose`] cuts off.
pub fn begin(broker: &Broker) {
    broker.kill_node(2).unwrap();
}

/// Elects node 2, whose logs have ended at [`begin`]; then node 1 leads again.
pub fn lose(broker: &Broker) {
    broker.kill_node(1).unwrap();
    broker.start_node(2).unwrap();
    // The partition of `t` on node 1 waits for it.
    let elected = broker.elect_leaders(ElectionType::Unclean, None).unwrap();
    let of_coordinators = elected.into_iter().filter(|(tp, _)| TOPICS.contains(&&*tp.topic));
    let elected: Vec<_> = of_coordinators
        .map(|(tp, result)| result.map(|()| tp).unwrap())
        .collect();
    assert!(!elected.is_empty());
    broker.start_node(1).unwrap();
    for tp in elected {
        broker.move_leader(&tp, 1).unwrap();
    }
}
