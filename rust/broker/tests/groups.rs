//! The classic group protocol (spec 8.7, 11.14) over the local transport, with a clock that stands still.
#![allow(clippy::unwrap_used, clippy::expect_used)] // The helpers of a test file are tests, too.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::*;
use fletchlog_api::*;
use fletchlog_broker::Broker;

const SESSION: i32 = 10_000;
const REBALANCE: i32 = 60_000;

struct Member {
    client: Client,
    id: Arc<str>,
    instance: Option<Arc<str>>,
    generation: i32,
    protocols: Vec<(Arc<str>, Bytes)>,
}

struct World {
    broker: Arc<Broker>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new(config: &[(&str, &str)]) -> Self {
        let clock = ManualClock::new();
        let broker = Broker::in_memory(options(None, false, config), clock.clone()).unwrap();
        broker.create_topic("t", 4, &[]).unwrap();
        Self { broker, clock }
    }
    fn member(&self) -> Member {
        Member {
            client: Client::new(&self.broker),
            id: "".into(),
            instance: None,
            generation: -1,
            protocols: vec![("range".into(), Bytes::from_static(b"meta"))],
        }
    }
    fn static_member(&self, instance: &str) -> Member {
        Member {
            instance: Some(instance.into()),
            ..self.member()
        }
    }
}

impl Member {
    fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: SESSION,
            rebalance_timeout_ms: REBALANCE,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            client_id: "c".into(),
            protocol_type: "consumer".into(),
            protocols: self.protocols.clone(),
        }
    }
    /// Sends a join, first for an id if need be.
    fn begin_join(&mut self) {
        if self.id.is_empty() && self.instance.is_none() {
            self.client.send(1, Request::JoinGroup(self.join_request()));
            let response = self.joined().expect("an id at once");
            assert_eq!(response.error, ErrorCode::MEMBER_ID_REQUIRED);
            self.id = response.member_id;
        }
        self.client.send(1, Request::JoinGroup(self.join_request()));
    }
    fn joined(&mut self) -> Option<JoinGroupResponse> {
        match self.client.take(1)? {
            Response::JoinGroup(response) => {
                if response.error == ErrorCode::NONE {
                    self.generation = response.generation_id;
                    self.id = response.member_id.clone();
                }
                Some(response)
            }
            other => panic!("{other:?}"),
        }
    }
    fn join(&mut self) -> JoinGroupResponse {
        self.begin_join();
        self.joined().expect("the join is complete")
    }
    fn begin_sync(&mut self, assignments: &[(&Arc<str>, &'static str)]) {
        let assignments = assignments
            .iter()
            .map(|(id, a)| ((*id).clone(), Bytes::from_static(a.as_bytes())))
            .collect();
        let request = SyncGroupRequest {
            group_id: "g".into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            assignments,
        };
        self.client.send(1, Request::SyncGroup(request));
    }
    fn synced(&mut self) -> Option<SyncGroupResponse> {
        match self.client.take(1)? {
            Response::SyncGroup(response) => Some(response),
            other => panic!("{other:?}"),
        }
    }
    fn heartbeat_as(&mut self, generation: i32, id: &str) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.into(),
            group_instance_id: self.instance.clone(),
        };
        match self.client.ask(1, Request::Heartbeat(request)) {
            Response::Heartbeat(code) => code,
            other => panic!("{other:?}"),
        }
    }
    fn heartbeat(&mut self) -> ErrorCode {
        let (generation, id) = (self.generation, self.id.clone());
        self.heartbeat_as(generation, &id)
    }
    fn leave(&mut self) -> ErrorCode {
        let request = LeaveGroupRequest {
            group_id: "g".into(),
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
        };
        match self.client.ask(1, Request::LeaveGroup(request)) {
            Response::LeaveGroup(code) => code,
            other => panic!("{other:?}"),
        }
    }
    fn commit_as(&mut self, generation: i32, id: &str, offset: i64) -> ErrorCode {
        let value = OffsetAndMetadata {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.into(),
            group_instance_id: self.instance.clone(),
            offsets: vec![(tp("t", 0), value)],
        };
        match self.client.ask(1, Request::OffsetCommit(request)) {
            Response::OffsetCommit(response) => response.partitions[0].1,
            other => panic!("{other:?}"),
        }
    }
    fn committed(&mut self) -> Option<i64> {
        let request = OffsetFetchRequest {
            group_id: "g".into(),
            partitions: Some(vec![tp("t", 0)]),
            require_stable: true,
        };
        match self.client.ask(1, Request::OffsetFetch(request)) {
            Response::OffsetFetch(response) => response.partitions[0].1.as_ref().map(|o| o.offset),
            other => panic!("{other:?}"),
        }
    }
}

/// Two members in a stable group: (leader, follower).
fn two(world: &World) -> (Member, Member) {
    let (mut a, mut b) = (world.member(), world.member());
    a.join();
    b.begin_join();
    assert!(b.joined().is_none(), "waits for the first member");
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    let to_leader = a.join();
    let to_follower = b.joined().unwrap();
    assert_eq!((to_leader.generation_id, to_follower.generation_id), (2, 2));
    assert_eq!((&to_leader.leader, &to_follower.leader), (&a.id, &a.id));
    let ids: Vec<_> = to_leader.members.iter().map(|m| m.member_id.clone()).collect();
    assert_eq!(ids, [a.id.clone(), b.id.clone()]);
    assert_eq!(to_leader.members[1].metadata, Bytes::from_static(b"meta"));
    assert!(to_follower.members.is_empty());
    b.begin_sync(&[]);
    assert!(b.synced().is_none(), "the follower waits for the leader");
    let id = b.id.clone();
    a.begin_sync(&[(&id, "for b")]);
    assert_eq!(a.synced().unwrap().assignment, Bytes::new());
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"for b"));
    (a, b)
}

fn join_code(world: &World, change: impl FnOnce(&mut JoinGroupRequest)) -> ErrorCode {
    let mut member = world.member();
    let mut request = member.join_request();
    change(&mut request);
    member.client.send(1, Request::JoinGroup(request));
    member.joined().unwrap().error
}

#[test]
fn a_session_timeout_outside_the_limits_is_refused() {
    let world = World::new(&[]);
    for (timeout, code) in [
        (5_999, ErrorCode::INVALID_SESSION_TIMEOUT),
        (1_800_001, ErrorCode::INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode::MEMBER_ID_REQUIRED),
    ] {
        assert_eq!(join_code(&world, |r| r.session_timeout_ms = timeout), code, "{timeout}");
    }
}

#[test]
fn unknown_members_empty_groups_and_foreign_protocols_are_refused() {
    let world = World::new(&[]);
    assert_eq!(
        join_code(&world, |r| r.member_id = "nobody".into()),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(
        join_code(&world, |r| r.group_id = "".into()),
        ErrorCode::INVALID_GROUP_ID
    );
    let (_a, _b) = two(&world);
    assert_eq!(
        join_code(&world, |r| r.member_id = "nobody".into()),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(
        join_code(&world, |r| r.protocol_type = "connect".into()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(
        join_code(&world, |r| r.protocols = vec![("sticky".into(), Bytes::new())]),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(
        join_code(&world, |r| r.protocols.clear()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
}

#[test]
fn a_first_join_gets_an_id_of_its_client_and_ids_sort_in_the_order_they_were_given() {
    let world = World::new(&[]);
    let (a, b) = two(&world);
    assert!(a.id.starts_with("c-") && a.id.len() == 38, "{}", a.id);
    assert!(a.id < b.id);
}

#[test]
fn the_leaders_sync_releases_the_followers_with_their_assignment() {
    two(&World::new(&[]));
}

#[test]
fn a_heartbeat_tells_the_generation_the_rebalance_and_the_unknown() {
    let world = World::new(&[]);
    let (mut a, b) = two(&world);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    let id = a.id.clone();
    assert_eq!(a.heartbeat_as(1, &id), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(a.heartbeat_as(2, "nobody"), ErrorCode::UNKNOWN_MEMBER_ID);
    drop(b);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.heartbeat_as(2, "nobody"), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_sync_of_another_generation_or_member_is_refused_and_one_in_a_stable_group_answered() {
    let world = World::new(&[]);
    let (_a, mut b) = two(&world);
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"for b"));
    b.generation = 1;
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().error, ErrorCode::ILLEGAL_GENERATION);
    b.generation = 2;
    b.id = "nobody".into();
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().error, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_follower_that_joins_again_unchanged_keeps_the_generation_and_one_with_news_begins_a_rebalance() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    assert_eq!(b.join().generation_id, 2);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    b.protocols = vec![("range".into(), Bytes::from_static(b"other topics"))];
    b.begin_join();
    assert!(b.joined().is_none());
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().generation_id, 3);
    assert_eq!(b.joined().unwrap().generation_id, 3);
}

#[test]
fn a_leader_that_joins_again_begins_a_rebalance() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    a.begin_join();
    assert_eq!(b.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_rebalance_interrupts_the_syncs_of_the_one_before() {
    let world = World::new(&[]);
    let mut a = world.member();
    a.join();
    let mut b = world.member();
    b.begin_join();
    a.join();
    b.joined().unwrap();
    b.begin_sync(&[]);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(b.synced().unwrap().error, ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn the_group_uses_the_protocol_that_all_know_and_most_prefer() {
    let world = World::new(&[]);
    let list = |names: &[&'static str]| {
        names
            .iter()
            .map(|n| (Arc::from(*n), Bytes::from_static(n.as_bytes())))
            .collect()
    };
    let (mut a, mut b, mut c) = (world.member(), world.member(), world.member());
    a.protocols = list(&["range", "roundrobin"]);
    b.protocols = list(&["sticky", "roundrobin", "range"]);
    c.protocols = list(&["roundrobin", "range"]);
    a.join();
    b.begin_join();
    c.begin_join();
    let response = a.join();
    assert_eq!(&*response.protocol_name, "roundrobin");
    assert_eq!(response.members[1].metadata, Bytes::from_static(b"roundrobin"));
}

#[test]
fn who_does_not_rejoin_in_time_is_left_behind() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    let mut c = world.member();
    c.begin_join();
    b.begin_join();
    world.clock.advance(i64::from(REBALANCE) - 1);
    assert!(b.joined().is_none());
    // The silent one is seen as alive, but the rebalance does not wait for it any longer.
    a.client.transport.keep_alive();
    world.clock.advance(1);
    let response = b.joined().unwrap();
    assert_eq!((response.generation_id, &response.leader), (3, &b.id));
    assert_eq!(c.joined().unwrap().generation_id, 3);
    assert_eq!(a.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_client_that_vanishes_is_missed_after_its_session_timeout_and_the_rest_goes_on() {
    let world = World::new(&[]);
    let (mut a, b) = two(&world);
    drop(b);
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    world.clock.advance(1);
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    let response = a.join();
    assert_eq!((response.generation_id, response.members.len()), (3, 1));
}

#[test]
fn a_connected_client_that_does_something_in_time_is_alive_and_a_silent_one_is_not() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    for _ in 0..5 {
        world.clock.advance(i64::from(REBALANCE) - 1);
        b.client.transport.keep_alive();
        assert_eq!(a.heartbeat(), ErrorCode::NONE);
    }
    world.clock.advance(i64::from(REBALANCE) - 1);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    world.clock.advance(1);
    assert_eq!(
        a.heartbeat(),
        ErrorCode::REBALANCE_IN_PROGRESS,
        "b was silent for max.poll.interval.ms"
    );
}

#[test]
fn a_waiting_join_is_woken_by_the_end_of_a_vanished_members_session() {
    let world = World::new(&[]);
    let (a, b) = two(&world);
    let mut c = world.member();
    c.begin_join();
    drop((a, b));
    world.clock.advance(i64::from(SESSION));
    assert_eq!(c.joined().unwrap().generation_id, 3);
}

#[test]
fn leaving_begins_a_rebalance_and_the_last_one_empties_the_group() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    assert_eq!(b.leave(), ErrorCode::NONE);
    assert_eq!(b.leave(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().generation_id, 3);
    assert_eq!(a.leave(), ErrorCode::NONE);
    assert_eq!(a.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(world.member().join().generation_id, 5, "4 was the empty generation");
}

#[test]
fn a_static_member_returns_without_a_rebalance_and_its_old_id_is_fenced() {
    let world = World::new(&[]);
    let (mut a, mut s) = (world.static_member("leader"), world.static_member("i"));
    a.join();
    s.begin_join();
    a.join();
    s.joined().unwrap();
    let s_id = s.id.clone();
    assert!(s_id.starts_with("i-"));
    a.begin_sync(&[(&s_id, "for s")]);
    a.synced().unwrap();
    let mut again = world.static_member("i");
    // As a sticky member's is after a restart; what counts is which protocol the group has.
    again.protocols[0].1 = Bytes::from_static(b"other meta");
    let response = again.join();
    assert_eq!(response.generation_id, 2);
    assert_ne!(again.id, s_id);
    again.begin_sync(&[]);
    assert_eq!(again.synced().unwrap().assignment, Bytes::from_static(b"for s"));
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    assert_eq!(s.heartbeat(), ErrorCode::FENCED_INSTANCE_ID);
    assert_eq!(s.leave(), ErrorCode::FENCED_INSTANCE_ID);
    let (generation, id) = (s.generation, s.id.clone());
    assert_eq!(s.commit_as(generation, &id, 1), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn a_static_member_whose_return_cannot_be_stored_stays_who_it_was() {
    let world = World::new(&[("message.max.bytes", "600")]);
    let mut a = world.static_member("i");
    a.join();
    a.begin_sync(&[]);
    a.synced().unwrap();
    let mut again = world.static_member("i");
    again.protocols[0].1 = Bytes::from_static(&[b'm'; 1_000]);
    again.begin_join();
    assert_eq!(again.joined().unwrap().error, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    again.protocols[0].1 = Bytes::from_static(b"short");
    assert_eq!(again.join().generation_id, 1);
    assert_eq!(a.heartbeat(), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn commits_are_accepted_by_group_state_and_membership() {
    let world = World::new(&[]);
    let mut simple = world.member();
    assert_eq!(simple.commit_as(7, "x", 1), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(simple.committed(), None);
    assert_eq!(simple.commit_as(-1, "", 5), ErrorCode::NONE);
    assert_eq!(simple.committed(), Some(5));
    let (mut a, _b) = two(&world);
    assert_eq!(simple.commit_as(-1, "", 6), ErrorCode::UNKNOWN_MEMBER_ID);
    let id = a.id.clone();
    assert_eq!(a.commit_as(1, &id, 6), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(a.commit_as(2, &id, 7), ErrorCode::NONE);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(a.commit_as(2, &id, 8), ErrorCode::NONE, "while a rebalance is prepared");
    assert_eq!(simple.committed(), Some(8));
}

#[test]
fn a_commit_before_the_new_assignment_is_known_is_refused() {
    let world = World::new(&[]);
    let mut a = world.member();
    a.join();
    let id = a.id.clone();
    assert_eq!(a.commit_as(1, &id, 1), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn commits_of_unknown_partitions_or_with_long_metadata_are_refused_one_by_one() {
    let world = World::new(&[]);
    let mut member = world.member();
    let value = |len: usize| OffsetAndMetadata {
        offset: 1,
        leader_epoch: -1,
        metadata: "m".repeat(len).into(),
    };
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id: -1,
        member_id: "".into(),
        group_instance_id: None,
        offsets: vec![
            (tp("t", 9), value(0)),
            (tp("t", 0), value(4097)),
            (tp("t", 1), value(4096)),
        ],
    };
    let Response::OffsetCommit(response) = member.client.ask(1, Request::OffsetCommit(request)) else {
        panic!()
    };
    let codes: Vec<i16> = response.partitions.iter().map(|(_, e)| e.code()).collect();
    assert_eq!(codes, [3, 12, 0]);
    assert_eq!(member.committed(), None);
}

#[test]
fn an_initial_delay_gathers_members_into_the_first_generation() {
    let world = World::new(&[("group.initial.rebalance.delay.ms", "3000")]);
    let (mut a, mut b) = (world.member(), world.member());
    a.begin_join();
    world.clock.advance(2000);
    assert!(a.joined().is_none());
    b.begin_join();
    // A member that came in the meantime extends the wait once more.
    world.clock.advance(1000);
    assert!(a.joined().is_none());
    world.clock.advance(3000);
    assert_eq!(a.joined().unwrap().members.len(), 2);
    assert_eq!(b.joined().unwrap().generation_id, 1);
}

#[test]
fn a_full_group_takes_nobody_in() {
    let world = World::new(&[("group.max.size", "2")]);
    let (_a, _b) = two(&world);
    assert_eq!(join_code(&world, |_| {}), ErrorCode::GROUP_MAX_SIZE_REACHED);
}

#[test]
fn offsets_of_an_empty_group_expire_and_those_of_a_live_one_do_not() {
    let config = [
        ("offsets.retention.minutes", "20"),
        ("offsets.retention.check.interval.ms", "1000"),
    ];
    let world = World::new(&config);
    let (mut a, mut b) = two(&world);
    let (id, generation) = (a.id.clone(), a.generation);
    assert_eq!(a.commit_as(generation, &id, 9), ErrorCode::NONE);
    for _ in 0..40 {
        world.clock.advance(30_000);
        a.heartbeat();
        b.heartbeat();
    }
    assert_eq!(a.committed(), Some(9), "the group is in use");
    a.leave();
    b.leave();
    world.clock.advance(20 * 60_000 - 1);
    assert_eq!(a.committed(), Some(9));
    world.clock.advance(1000);
    assert_eq!(a.committed(), None);
}

#[test]
fn a_deleted_topic_takes_its_commits_with_it() {
    let world = World::new(&[]);
    let mut member = world.member();
    member.commit_as(-1, "", 5);
    world.broker.delete_topic("t").unwrap();
    world.broker.create_topic("t", 4, &[]).unwrap();
    assert_eq!(member.committed(), None);
}

#[test]
fn the_coordinator_is_the_leader_of_the_groups_partition_and_others_say_so() {
    let clock = ManualClock::new();
    let broker = Broker::in_memory(options(Some(3), false, &[]), clock).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let mut client = Client::new(&broker);
    // Java's hash of "my-group" is -1906497762, so partition 12 of 50, which leads on node 1 + 12 mod 3.
    let find = Request::FindCoordinator(FindCoordinatorRequest {
        key: "my-group".into(),
        key_type: CoordinatorType::Group,
    });
    let Response::FindCoordinator(found) = client.ask(2, find) else {
        panic!()
    };
    assert_eq!((found.error, found.node), (ErrorCode::NONE, 1));
    let fetch = |client: &mut Client, node: i32| {
        let request = OffsetFetchRequest {
            group_id: "my-group".into(),
            partitions: None,
            require_stable: false,
        };
        match client.ask(node, Request::OffsetFetch(request)) {
            Response::OffsetFetch(response) => response.error,
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
        let clock = ManualClock::new();
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
    let clock = ManualClock::new();
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
