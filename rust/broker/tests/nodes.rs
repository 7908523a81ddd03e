//! Ids and racks of nodes, and fetches that leaders send to followers near the client (KIP-392, recorded from a Kafka 4.4.0).

use std::path::Path;

use fletchlog_api::*;
use fletchlog_broker::{Broker, NewTopic, OpenOptions};
use fletchlog_log::fs::MemoryFs;

use crate::common::*;

const SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// Nodes with these ids and racks.
fn named(nodes: &[(NodeId, &str)], config: &[(&str, &str)]) -> OpenOptions {
    let rack = |rack: &str| (!rack.is_empty()).then(|| rack.into());
    OpenOptions {
        named_nodes: nodes.iter().map(|(id, name)| (*id, rack(name))).collect(),
        ..options(None, false, config)
    }
}

fn placed_on(replicas: &[NodeId]) -> NewTopic {
    NewTopic {
        assignments: vec![(0, replicas.to_vec())],
        ..NewTopic::default()
    }
}

/// The error, PreferredReadReplica, whether there are records, the high watermark.
fn fetched(client: &mut Client, node: NodeId, rack: &str, offset: i64) -> (ErrorCode, i32, bool, i64) {
    let mut request = fetch_of(&[(&tp("t", 0), offset, 1 << 20)]);
    request.rack_id = rack.into();
    // A client that is sent elsewhere does not wait.
    request.max_wait_ms = if offset < 3 { 60_000 } else { 0 };
    let answer = client.fetch(node, request);
    let p = nth(&answer, 0);
    (p.error_code, p.preferred_read_replica, p.size() > 0, p.high_watermark)
}

#[test]
fn a_leader_sends_a_client_to_a_follower_in_its_rack() {
    let racks = [(1, "r1"), (2, "r2"), (3, "r3")];
    let broker = Broker::in_memory(
        named(&racks, &[("replica.selector.class", SELECTOR)]),
        VirtualClock::new(),
    )
    .unwrap();
    broker.create_topic_with("t", &placed_on(&[1, 2])).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(
        client.produce(1, &tp("t", 0), batch(3, 1), 1).error_code,
        ErrorCode::NONE
    );
    let none = ErrorCode::NONE;
    for offset in [0, 3] {
        assert_eq!(fetched(&mut client, 1, "r2", offset), (none, 2, false, 3), "{offset}");
    }
    for rack in ["r1", "r9", ""] {
        assert_eq!(fetched(&mut client, 1, rack, 0), (none, -1, true, 3), "{rack}");
    }
    assert_eq!(
        fetched(&mut client, 1, "r3", 0),
        (none, -1, true, 3),
        "no replica is there"
    );
    assert_eq!(fetched(&mut client, 1, "r2", 4).0, ErrorCode::OFFSET_OUT_OF_RANGE);
    for rack in ["r1", "r2", "r3"] {
        assert_eq!(
            fetched(&mut client, 2, rack, 0),
            (none, -1, true, 3),
            "a follower answers itself"
        );
    }
    broker.kill_node(2).unwrap();
    assert_eq!(
        fetched(&mut client, 1, "r2", 0),
        (none, -1, true, 3),
        "it is not in sync"
    );
    broker.start_node(2).unwrap();
    assert_eq!(fetched(&mut client, 1, "r2", 0), (none, 2, false, 3));
}

#[test]
fn a_session_names_the_follower_in_every_answer() {
    let racks = [(1, "r1"), (2, "r2")];
    let broker = Broker::in_memory(
        named(&racks, &[("replica.selector.class", SELECTOR)]),
        VirtualClock::new(),
    )
    .unwrap();
    broker.create_topic_with("t", &placed_on(&[1, 2])).unwrap();
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(3, 1), 1);
    let mut request = fetch_of(&[(&tp("t", 0), 0, 1 << 20)]);
    (request.rack_id, request.session_epoch) = ("r2".into(), 0);
    let mut answer = client.fetch(1, request.clone());
    for epoch in 1..3 {
        assert_eq!(nth(&answer, 0).preferred_read_replica, 2);
        (request.session_id, request.session_epoch) = (answer.session_id, epoch);
        request.topics.clear();
        answer = client.fetch(1, request.clone());
    }
}

#[test]
fn without_a_selector_racks_change_nothing() {
    let broker = Broker::in_memory(named(&[(1, "r1"), (2, "r2")], &[]), VirtualClock::new()).unwrap();
    broker.create_topic_with("t", &placed_on(&[1, 2])).unwrap();
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(3, 1), 1);
    assert_eq!(fetched(&mut client, 1, "r2", 0), (ErrorCode::NONE, -1, true, 3));
}

#[test]
fn nodes_have_the_ids_that_they_were_given() {
    let fs = std::sync::Arc::new(MemoryFs::new());
    let open = |options| Broker::open_in(fs.clone(), Path::new("/d"), options, VirtualClock::new());
    let broker = open(named(&[(7, ""), (0, "a"), (2, "")], &[])).unwrap();
    assert_eq!(broker.nodes(), [0, 2, 7]);
    assert_eq!(broker.rack_of(0).map(|rack| &**rack), Some("a"));
    let spread = NewTopic {
        partitions: 3,
        replication_factor: 2,
        ..NewTopic::default()
    };
    broker.create_topic_with("spread", &spread).unwrap();
    let replicas = [0, 1, 2].map(|p| broker.replicas_of(&tp("spread", p)).unwrap().unwrap());
    assert_eq!(replicas, [[0, 2], [2, 7], [7, 0]]);
    broker.create_topic_with("t", &placed_on(&[7, 0])).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(
        client.produce(7, &tp("t", 0), batch(3, 1), -1).error_code,
        ErrorCode::NONE
    );
    broker.stop_node(7).unwrap();
    assert_eq!(client.produce(0, &tp("t", 0), batch(1, 1), -1).base_offset, 3);
    broker.start_node(7).unwrap();
    let refused = broker.create_topic_with("u", &placed_on(&[1])).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    assert!(
        broker
            .stop_node(1)
            .unwrap_err()
            .to_string()
            .contains("its nodes are 0, 2, 7")
    );
    broker.close().unwrap();

    let broker = open(options(None, false, &[])).unwrap();
    assert_eq!((broker.nodes(), broker.rack_of(0)), (vec![0, 2, 7], None));
    let shown = broker.describe_topic("t").unwrap();
    assert_eq!((shown.partitions[0].leader, shown.partitions[0].high_watermark), (0, 4));
    broker.close().unwrap();
    for wrong in [
        named(&[(0, ""), (1, ""), (2, "")], &[]),
        options(Some(3), false, &[]),
        named(&[(1, ""), (1, "")], &[]),
        named(&[(-1, "")], &[]),
    ] {
        assert!(open(wrong).is_err());
    }
}
