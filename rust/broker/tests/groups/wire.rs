//! Clients behind sockets: members that live by their own requests, and the rules of versions that embedded clients do not speak.
//! What is expected was recorded from a Kafka 4.3.1 (tests/golden/wire/scripts.jsonl; the number of the script is named).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::{Broker, Outcome, Port};
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;

use crate::common::*;

pub const SESSION: i32 = 10_000;
pub const REBALANCE: i32 = 60_000;

pub struct World {
    pub broker: Arc<Broker>,
    pub clock: Arc<VirtualClock>,
}

/// A connection and the member that uses it.
pub struct Conn {
    port: Port,
    arrived: Arc<Mutex<VecDeque<Response>>>,
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub generation: i32,
    pub metadata: Bytes,
}

impl World {
    pub fn new(config: &[(&str, &str)]) -> Self {
        Self::of_nodes(1, config)
    }
    pub fn of_nodes(nodes: u32, config: &[(&str, &str)]) -> Self {
        let clock = VirtualClock::new();
        let broker = Broker::in_memory(options(Some(nodes), false, config), clock.clone()).unwrap();
        broker.create_topic("t", 2, &[]).unwrap();
        Self { broker, clock }
    }
    pub fn connect(&self) -> Conn {
        self.connect_to(1)
    }
    pub fn connect_to(&self, node: NodeId) -> Conn {
        Conn {
            port: self.broker.connect(node, "/10.0.0.7"),
            arrived: Arc::default(),
            id: "".into(),
            instance: None,
            generation: -1,
            metadata: Bytes::from_static(b"m"),
        }
    }
    pub fn static_member(&self, instance: &str) -> Conn {
        let mut conn = self.connect();
        conn.instance = Some(instance.into());
        conn
    }
    /// A member of a stable group of its own.
    pub fn stable(&self) -> Conn {
        let mut conn = self.connect();
        conn.join();
        assert_eq!(conn.sync(&[(conn.id.clone(), "mine")]), ErrorCode::NONE);
        conn
    }
    /// (state, members)
    pub fn group(&self) -> (&'static str, usize) {
        let group = self.broker.describe_group("g").unwrap();
        (group.state, group.members.len())
    }
}

impl Conn {
    /// The same member, connected to another node.
    pub fn at(&self, world: &World, node: NodeId) -> Self {
        Self {
            id: self.id.clone(),
            instance: self.instance.clone(),
            generation: self.generation,
            metadata: self.metadata.clone(),
            ..world.connect_to(node)
        }
    }
    pub fn send(&self, request: Request) {
        let arrived = self.arrived.clone();
        match self.port.handle(request) {
            Outcome::Now(response) => arrived.lock().unwrap().push_back(response),
            Outcome::Later(ticket) => ticket.on_ready(move |response| arrived.lock().unwrap().push_back(response)),
            Outcome::After(deferred) => deferred
                .ticket
                .on_ready(move |response| arrived.lock().unwrap().push_back(response)),
            Outcome::Close => panic!("the connection is closed"),
        }
    }
    pub fn take(&self) -> Option<Response> {
        self.arrived.lock().unwrap().pop_front()
    }
    pub fn ask(&self, request: Request) -> Response {
        self.send(request);
        self.take().expect("answered at once")
    }
    pub fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: SESSION,
            rebalance_timeout_ms: REBALANCE,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![protocol("range", self.metadata.clone())],
            reason: None,
            sender: sender(if self.instance.is_some() { 9 } else { 3 }),
        }
    }
    pub fn begin_join(&self) {
        self.send(Request::JoinGroup(self.join_request()));
    }
    pub fn joined(&mut self) -> Option<JoinGroupResponse> {
        let Response::JoinGroup(joined) = self.take()? else {
            panic!()
        };
        if joined.error_code == ErrorCode::NONE {
            (self.id, self.generation) = (joined.member_id.clone(), joined.generation_id);
        }
        Some(joined)
    }
    pub fn join(&mut self) -> JoinGroupResponse {
        self.begin_join();
        self.joined().expect("the join is complete")
    }
    pub fn begin_sync(&self, assignments: &[(Arc<str>, &'static str)]) {
        self.send(Request::SyncGroup(SyncGroupRequest {
            group_id: "g".into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assignments
                .iter()
                .map(|(id, assignment)| assigned(id, *assignment))
                .collect(),
        }));
    }
    pub fn synced(&self) -> Option<SyncGroupResponse> {
        let Response::SyncGroup(synced) = self.take()? else {
            panic!()
        };
        Some(synced)
    }
    pub fn sync(&self, assignments: &[(Arc<str>, &'static str)]) -> ErrorCode {
        self.begin_sync(assignments);
        self.synced().expect("the sync is complete").error_code
    }
    pub fn heartbeat(&self) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
        };
        let Response::Heartbeat(response) = self.ask(Request::Heartbeat(request)) else {
            panic!()
        };
        response.error_code
    }
    /// Per (member id, instance id).
    pub fn leave(&self, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let who = |(id, instance): &(&str, Option<&str>)| MemberIdentity {
            member_id: (*id).into(),
            group_instance_id: instance.map(Into::into),
            reason: Some("the test says so".into()),
        };
        let request = LeaveGroupRequest {
            group_id: "g".into(),
            members: members.iter().map(who).collect(),
            ..Default::default()
        };
        let Response::LeaveGroup(left) = self.ask(Request::LeaveGroup(request)) else {
            panic!()
        };
        assert_eq!(left.error_code, ErrorCode::NONE);
        left.members.into_iter().map(|member| member.error_code).collect()
    }
}

#[test]
fn a_member_lives_by_its_own_requests_and_not_by_its_connection() {
    let world = World::new(&[]);
    let member = world.stable();
    let (id, generation) = (member.id.clone(), member.generation);
    drop(member);
    let mut other = world.connect();
    (other.id, other.generation) = (id.clone(), generation);
    for _ in 0..3 {
        world.clock.advance(i64::from(SESSION) - 1);
        assert_eq!(other.heartbeat(), ErrorCode::NONE, "groups-094");
    }
    // A commit counts as a heartbeat, another request does not.
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!(
        super::commits::commit(&other, "g", generation, &id, None, &[("t", 0, 1)]),
        [0]
    );
    world.clock.advance(i64::from(SESSION) - 1);
    let find = FindCoordinatorRequest::of(CoordinatorType::Group, "g".into());
    other.ask(Request::FindCoordinator(find));
    assert_eq!(world.group(), ("Stable", 1));
    world.clock.advance(1);
    assert_eq!(world.group(), ("Empty", 0));
    assert_eq!(other.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_member_that_waits_in_a_join_is_kept_and_a_new_one_for_five_minutes() {
    let world = World::new(&[]);
    let (mut old, mut new) = (world.stable(), world.connect());
    let mut request = new.join_request();
    request.session_timeout_ms = 6_000;
    request.rebalance_timeout_ms = 1_000_000;
    new.send(Request::JoinGroup(request));
    for _ in 0..9 {
        world.clock.advance(6_000);
        assert_eq!(old.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    assert_eq!(world.group(), ("PreparingRebalance", 2), "groups-115");
    assert!(new.joined().is_none());
    for _ in 0..41 {
        world.clock.advance(6_000);
        old.heartbeat();
    }
    let answer = new.joined().unwrap();
    assert_eq!(
        (answer.error_code, &*answer.member_id),
        (ErrorCode::UNKNOWN_MEMBER_ID, "")
    );
    assert_eq!(world.group(), ("PreparingRebalance", 1));
    assert_eq!(old.join().generation_id, 2);
}

#[test]
fn the_sync_phase_ends_with_the_rebalance_time_out() {
    let world = World::new(&[]);
    let mut leader = world.connect();
    leader.join();
    for _ in 0..8 {
        world.clock.advance(i64::from(REBALANCE) / 8 - 1);
        assert_eq!(leader.heartbeat(), ErrorCode::NONE);
    }
    world.clock.advance(8);
    assert_eq!(world.group(), ("Empty", 0), "groups-112");
    assert_eq!(leader.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
    let (mut a, mut b) = (world.stable(), world.connect());
    b.begin_join();
    a.join();
    b.joined().unwrap();
    b.begin_sync(&[]);
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    for _ in 0..6 {
        world.clock.advance(i64::from(SESSION) - 1);
        a.heartbeat();
    }
    assert_eq!(
        b.synced().unwrap().error_code,
        ErrorCode::REBALANCE_IN_PROGRESS,
        "groups-113"
    );
    assert_eq!(world.group(), ("PreparingRebalance", 1));
    assert_eq!(b.join().leader, b.id);
}

#[test]
fn a_first_join_gets_an_id_or_a_place_by_its_version() {
    let world = World::new(&[]);
    let mut old = world.connect();
    let joined = old.join();
    assert_eq!(
        (joined.error_code, joined.generation_id),
        (ErrorCode::NONE, 1),
        "groups-058"
    );
    assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
    let new = world.connect();
    let mut request = new.join_request();
    request.group_id = "h".into();
    request.sender.version = 9;
    let Response::JoinGroup(asked) = new.ask(Request::JoinGroup(request)) else {
        panic!()
    };
    assert_eq!(
        (asked.error_code, asked.generation_id),
        (ErrorCode::MEMBER_ID_REQUIRED, -1)
    );
    assert!(asked.member_id.starts_with("c-") && asked.protocol_type.is_none());
    // The id makes the group exist (groups-067).
    let listed = world.broker.groups().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|g| (&*g.group_id, &*g.protocol_type, g.state))
        .collect();
    assert_eq!(listed, [("g", "consumer", "CompletingRebalance"), ("h", "", "Empty")]);
}

#[test]
fn another_type_or_no_common_protocol_is_refused_unless_the_group_is_empty() {
    let world = World::new(&[]);
    let code = |change: fn(&mut JoinGroupRequest)| {
        let mut request = world.connect().join_request();
        change(&mut request);
        let Response::JoinGroup(answer) = world.connect().ask(Request::JoinGroup(request)) else {
            panic!()
        };
        answer.error_code
    };
    assert_eq!(
        code(|r| r.protocols.clear()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        "groups-007"
    );
    assert_eq!(
        code(|r| r.protocol_type = "connect".into()),
        ErrorCode::NONE,
        "any type will do"
    );
    assert_eq!(
        code(|r| r.protocol_type = "consumer".into()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(code(|r| r.group_id = "".into()), ErrorCode::INVALID_GROUP_ID);
    assert_eq!(
        code(|r| r.session_timeout_ms = 5_999),
        ErrorCode::INVALID_SESSION_TIMEOUT
    );
    assert_eq!(
        code(|r| r.member_id = "nobody".into()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
}

#[test]
fn a_sync_that_names_another_protocol_is_refused_after_member_and_generation() {
    let world = World::new(&[]);
    let member = world.stable();
    let code = |change: &dyn Fn(&mut SyncGroupRequest)| {
        let mut request = SyncGroupRequest {
            group_id: "g".into(),
            generation_id: 1,
            member_id: member.id.clone(),
            group_instance_id: None,
            protocol_type: None,
            protocol_name: None,
            assignments: Vec::new(),
        };
        change(&mut request);
        let Response::SyncGroup(answer) = member.ask(Request::SyncGroup(request)) else {
            panic!()
        };
        (answer.error_code.code(), answer.protocol_name.is_some())
    };
    // groups-034
    assert_eq!(code(&|_| ()), (0, true));
    assert_eq!(code(&|r| r.protocol_name = Some("other".into())), (23, false));
    assert_eq!(code(&|r| r.protocol_type = Some("connect".into())), (23, false));
    assert_eq!(
        code(&|r| (r.generation_id, r.protocol_name) = (8, Some("other".into()))),
        (22, false)
    );
    assert_eq!(
        code(&|r| (r.member_id, r.generation_id) = ("nobody".into(), 8)),
        (25, false)
    );
    assert_eq!(code(&|r| r.group_id = "".into()), (24, false));
}

#[test]
fn a_static_leader_that_returns_may_skip_the_assignment() {
    let world = World::new(&[]);
    let mut leader = world.static_member("i");
    leader.join();
    leader.sync(&[(leader.id.clone(), "st")]);
    let mut again = world.static_member("i");
    again.metadata = Bytes::from_static(b"other");
    let joined = again.join();
    // groups-130, -131
    assert_eq!((joined.generation_id, joined.skip_assignment), (1, true));
    assert_eq!((joined.leader, joined.members.len()), (again.id.clone(), 1));
    assert_eq!(leader.heartbeat(), ErrorCode::FENCED_INSTANCE_ID);
    let described = world.broker.describe_group("g").unwrap();
    assert_eq!(described.members[0].metadata, Bytes::from_static(b"other"));
    assert_eq!(described.members[0].assignment, Bytes::from_static(b"st"));
    // Older versions: the answer of a follower (groups-132).
    let mut request = world.static_member("i").join_request();
    request.sender.version = 8;
    let Response::JoinGroup(joined) = again.ask(Request::JoinGroup(request)) else {
        panic!()
    };
    assert_eq!((joined.skip_assignment, joined.members.len()), (false, 0));
    assert_eq!(joined.leader, again.id);
}

#[test]
fn members_leave_together_by_their_ids_or_by_their_instances() {
    let world = World::new(&[]);
    let (mut a, mut b) = (world.stable(), world.static_member("i"));
    b.begin_join();
    a.join();
    b.joined().unwrap();
    a.begin_sync(&[]);
    let mut waits = world.connect();
    waits.begin_join();
    let id = world.broker.describe_group("g").unwrap().members[2].member_id.clone();
    let admin = world.connect();
    // groups-139
    assert_eq!(admin.leave(&[("nobody", Some("i"))]), [ErrorCode::FENCED_INSTANCE_ID]);
    let codes = admin.leave(&[("", Some("i")), ("", Some("j")), ("nobody", None), (&id, None)]);
    assert_eq!(codes.map_codes(), [0, 25, 25, 0]);
    // A waiting join is answered without an id (groups-088).
    let answer = waits.joined().unwrap();
    assert_eq!(
        (answer.error_code, &*answer.member_id),
        (ErrorCode::UNKNOWN_MEMBER_ID, "")
    );
    assert_eq!(world.group(), ("PreparingRebalance", 1));
    assert_eq!(admin.leave(&[]), []);
    let nobodys = LeaveGroupRequest {
        group_id: "".into(),
        members: Vec::new(),
        ..Default::default()
    };
    let Response::LeaveGroup(left) = admin.ask(Request::LeaveGroup(nobodys)) else {
        panic!()
    };
    assert_eq!(left.error_code, ErrorCode::INVALID_GROUP_ID, "groups-121");
}

#[test]
fn a_full_group_puts_out_the_old_member_that_comes_back_last() {
    let world = World::new(&[("group.max.size", "2")]);
    let mut old = world.stable();
    let mut new: Vec<Conn> = (0..3).map(|_| world.connect()).collect();
    new.iter_mut().for_each(|conn| conn.begin_join());
    assert_eq!(
        new[2].joined().unwrap().error_code,
        ErrorCode::GROUP_MAX_SIZE_REACHED,
        "groups-126"
    );
    assert_eq!(world.group(), ("PreparingRebalance", 3));
    let refused = old.join();
    assert_eq!(
        (refused.error_code, &*refused.member_id),
        (ErrorCode::GROUP_MAX_SIZE_REACHED, "")
    );
    // All that are left have joined, but nobody looks before the time is over.
    assert_eq!(world.group(), ("PreparingRebalance", 2));
    assert!(new[0].joined().is_none());
    world.clock.advance(i64::from(REBALANCE));
    assert_eq!(world.group(), ("CompletingRebalance", 2));
    assert_eq!(new[0].joined().unwrap().generation_id, 2);
}

#[test]
fn a_second_join_or_sync_of_a_member_takes_the_place_of_the_first() {
    let world = World::new(&[]);
    let (mut a, mut b) = (world.stable(), world.connect());
    b.begin_join();
    let id = world.broker.describe_group("g").unwrap().members[1].member_id.clone();
    let mut c = world.connect();
    c.id = id;
    c.begin_join();
    a.join();
    assert!(b.joined().is_none(), "groups-087");
    assert_eq!(c.joined().unwrap().generation_id, 2);
    let d = world.connect();
    (b.id, b.generation) = (c.id.clone(), c.generation);
    c.begin_sync(&[]);
    b.begin_sync(&[]);
    a.begin_sync(&[(b.id.clone(), "for b")]);
    assert!(c.synced().is_none(), "groups-073");
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"for b"));
    assert!(d.take().is_none());
}

trait Codes {
    fn map_codes(self) -> Vec<i16>;
}

impl Codes for Vec<ErrorCode> {
    fn map_codes(self) -> Vec<i16> {
        self.into_iter().map(ErrorCode::code).collect()
    }
}
