//! Groups of a cluster, after a restart, and of a read-only broker.

use fletchlog_api::*;
use fletchlog_broker::Broker;

use super::member::*;
use crate::common::*;

#[test]
fn the_coordinator_is_the_leader_of_the_groups_partition_and_others_say_so() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(Some(3), false, &[]), clock).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let mut client = Client::new(&broker);
    // Java's hash of "my-group" is -1906497762, so partition 12 of 50, which leads on node 1 + 12 mod 3.
    let find = Request::FindCoordinator(FindCoordinatorRequest::of(CoordinatorType::Group, "my-group".into()));
    let Response::FindCoordinator(found) = client.ask(2, find) else {
        panic!()
    };
    assert_eq!(found.coordinator_node(), Ok(1));
    let fetch = |client: &mut Client, node: i32| {
        let request = OffsetFetchRequest::of("my-group".into(), None, false);
        match client.ask(node, Request::OffsetFetch(request)) {
            Response::OffsetFetch(response) => response.groups[0].error_code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fetch(&mut client, 1), ErrorCode::NONE);
    assert_eq!(fetch(&mut client, 3), ErrorCode::NOT_COORDINATOR);
}

#[test]
fn a_generation_goes_on_after_a_restart_without_the_members_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let clock = VirtualClock::new();
        World {
            broker: Broker::open(dir.path(), options(None, false, &[]), clock.clone()).unwrap(),
            clock,
        }
    };
    let world = open();
    world.broker.create_topic("t", 4, &[]).unwrap();
    {
        let (mut a, _b) = two(&world);
        let (id, generation) = (a.id.clone(), a.generation);
        assert_eq!(a.commit_as(generation, &id, 3), ErrorCode::NONE);
    }
    drop(world);
    let world = open();
    let mut a = world.member();
    assert_eq!(a.committed(), Some(3));
    let response = a.join();
    assert_eq!((response.generation_id, response.members.len()), (3, 1));
}

#[test]
fn groups_of_a_read_only_broker_work_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 4, &[]).unwrap();
    let clock = VirtualClock::new();
    let world = World {
        broker: Broker::open(dir.path(), options(None, true, &[]), clock.clone()).unwrap(),
        clock,
    };
    let (mut a, _b) = two(&world);
    let (id, generation) = (a.id.clone(), a.generation);
    assert_eq!(a.commit_as(generation, &id, 3), ErrorCode::POLICY_VIOLATION);
    assert_eq!(a.leave(), ErrorCode::NONE);
    assert!(
        !writer
            .topics(true)
            .unwrap()
            .iter()
            .any(|t| &**t == "__consumer_offsets")
    );
}

#[test]
fn groups_live_in_the_partitions_of_a_topic_that_a_client_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let clock = VirtualClock::new();
        World {
            broker: Broker::open(dir.path(), options(None, false, &[]), clock.clone()).unwrap(),
            clock,
        }
    };
    let world = open();
    world.broker.create_topic("__consumer_offsets", 3, &[]).unwrap();
    world.broker.create_topic("t", 4, &[]).unwrap();
    let (mut a, b) = two(&world);
    let (id, generation) = (a.id.clone(), a.generation);
    assert_eq!(a.commit_as(generation, &id, 3), ErrorCode::NONE);
    let described = world.broker.describe_topic("__consumer_offsets").unwrap();
    assert_eq!(described.partitions.len(), 3);
    assert!(described.partitions.iter().any(|p| p.high_watermark > 0));
    drop((a, b, world));
    assert_eq!(open().member().committed(), Some(3));
}
