//! Reading from a follower that the leader names (KIP-392). Kafka: `FetcherTest#testPreferredReadReplica` and what follows it.

use fletchlog_api::ErrorCode;

use super::fake_broker::{Net, batch};
use super::*;

const LEADER: i32 = 1;
const FOLLOWER: i32 = 2;

/// Topic A, whose leader names a follower.
fn setup(properties: &[(&str, &str)]) -> (FakeBroker, Consumer) {
    let broker = FakeBroker::default().with("A", 0, 2, 10);
    broker.state().followers = vec![FOLLOWER];
    broker.log("A", |log| log.preferred = Some(FOLLOWER));
    let mut consumer = consumer(&broker, properties);
    consumer.assign(&[tp("A")]).unwrap();
    (broker, consumer)
}

/// Appends so many records and reads them, a few times: the first answer may be to a request of before. The nodes that were asked
/// for records meanwhile.
fn read(broker: &FakeBroker, consumer: &mut Consumer, count: usize) -> Vec<i32> {
    let one = |_| {
        let first = broker.state().logs[&tp("A")].end();
        broker.log("A", |log| log.append(&batch(count)));
        read_on(broker, consumer, (first..).take(count).collect())
    };
    (0..3).flat_map(one).collect()
}

fn read_on(broker: &FakeBroker, consumer: &mut Consumer, expected: Vec<i64>) -> Vec<i32> {
    broker.state().fetched_from.clear();
    let mut found = Vec::new();
    for _ in 0..100 {
        found.extend(offsets(&poll(consumer)));
        if found.len() >= expected.len() {
            break;
        }
    }
    assert_eq!(found, expected);
    std::mem::take(&mut broker.state().fetched_from)
}

#[test]
fn a_follower_that_the_leader_names_is_read_from_then_on() {
    let (broker, mut consumer) = setup(&[]);
    let nodes = read_on(&broker, &mut consumer, (0..20).collect());
    assert_eq!(nodes[..2], [LEADER, FOLLOWER]);
    assert!(nodes[2..].iter().all(|&node| node == FOLLOWER));
    for _ in 0..3 {
        assert!(read(&broker, &mut consumer, 7).iter().all(|&node| node == FOLLOWER));
    }
    assert!(!broker.take_net().iter().any(|net| matches!(net, Net::LeaderEpochs(_))));
}

#[test]
fn the_leader_is_asked_again_after_metadata_max_age_ms() {
    let (broker, mut consumer) = setup(&[("metadata.max.age.ms", "600000")]);
    read_on(&broker, &mut consumer, (0..20).collect());
    broker.clock.advance(500_000);
    assert!(!read(&broker, &mut consumer, 3).contains(&LEADER));
    broker.clock.advance(100_001);
    assert!(read(&broker, &mut consumer, 3).contains(&LEADER));
    assert!(
        !read(&broker, &mut consumer, 3).contains(&LEADER),
        "it named the follower again"
    );
}

#[test]
fn a_follower_that_does_not_have_the_offset_makes_way_for_the_leader_and_no_position_is_reset() {
    let (broker, mut consumer) = setup(&[("auto.offset.reset", "none")]);
    consumer.seek(&tp("A"), 0).unwrap();
    read_on(&broker, &mut consumer, (0..20).collect());
    broker.take_net();
    broker.log("A", |log| log.fetch_errors.push_back(ErrorCode::OFFSET_OUT_OF_RANGE));
    let nodes = read(&broker, &mut consumer, 5);
    assert!(nodes.windows(2).any(|pair| pair == [LEADER, FOLLOWER]), "{nodes:?}");
    assert!(!broker.take_net().iter().any(|net| matches!(net, Net::ListOffsets(_))));
    broker.log("A", |log| {
        log.preferred = None;
        log.fetch_errors.extend([ErrorCode::OFFSET_OUT_OF_RANGE; 2]);
    });
    let failed = (0..100).find_map(|_| consumer.poll(100, &mut || false).err());
    assert!(failed.is_some(), "the leader says so, too");
}

#[test]
fn after_an_error_that_asks_for_metadata_or_a_lost_connection_the_leader_is_asked() {
    for error in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ] {
        let (broker, mut consumer) = setup(&[]);
        read_on(&broker, &mut consumer, (0..20).collect());
        broker.log("A", |log| log.fetch_errors.push_back(error));
        assert!(read(&broker, &mut consumer, 5).contains(&LEADER), "{error}");
    }
    let (broker, mut consumer) = setup(&[]);
    read_on(&broker, &mut consumer, (0..20).collect());
    broker.state().disconnects = 1;
    assert!(read(&broker, &mut consumer, 5).contains(&LEADER));
    // The leader itself knows better than an error that says nothing of replicas.
    broker.log("A", |log| log.fetch_errors.push_back(ErrorCode::UNKNOWN_LEADER_EPOCH));
    assert!(!read(&broker, &mut consumer, 5).contains(&LEADER));
}

#[test]
fn a_follower_that_the_metadata_does_not_name_any_more_makes_way_for_the_leader() {
    let (broker, mut consumer) = setup(&[("metadata.max.age.ms", "600000")]);
    read_on(&broker, &mut consumer, (0..20).collect());
    broker.state().followers.clear();
    broker.log("A", |log| log.preferred = None);
    broker.clock.advance(599_000);
    assert!(!read(&broker, &mut consumer, 5).contains(&LEADER), "not known yet");
    broker.clock.advance(500);
    consumer.state.metadata.request_update();
    read(&broker, &mut consumer, 5);
    assert!(!read(&broker, &mut consumer, 5).contains(&FOLLOWER));
}

#[test]
fn a_new_leader_ends_it() {
    let (broker, mut consumer) = setup(&[]);
    read_on(&broker, &mut consumer, (0..20).collect());
    broker.state().leaders.insert(tp("A"), 3);
    broker.log("A", |log| log.preferred = None);
    broker.clock.advance(1000); // past retry.backoff.ms
    consumer.state.metadata.request_update();
    read(&broker, &mut consumer, 5);
    assert!(read(&broker, &mut consumer, 5).iter().all(|&node| node == 3));
}
