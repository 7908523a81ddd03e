//! Members that send one request after the other, and their broker.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;

use crate::common::*;

pub const SESSION: i32 = 10_000;
pub const REBALANCE: i32 = 60_000;

pub struct Member {
    pub client: Client,
    pub id: Arc<str>,
    pub instance: Option<Arc<str>>,
    pub generation: i32,
    pub protocols: Vec<JoinGroupRequestProtocol>,
}

pub struct World {
    pub broker: Arc<Broker>,
    pub clock: Arc<VirtualClock>,
}

impl World {
    pub fn new(config: &[(&str, &str)]) -> Self {
        let clock = VirtualClock::new();
        let broker = Broker::in_memory(options(None, false, config), clock.clone()).unwrap();
        broker.create_topic("t", 4, &[]).unwrap();
        Self { broker, clock }
    }
    pub fn member(&self) -> Member {
        Member {
            client: Client::new(&self.broker),
            id: "".into(),
            instance: None,
            generation: -1,
            protocols: vec![protocol("range", "meta")],
        }
    }
    pub fn static_member(&self, instance: &str) -> Member {
        Member {
            instance: Some(instance.into()),
            ..self.member()
        }
    }
}

impl Member {
    pub fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: SESSION,
            rebalance_timeout_ms: REBALANCE,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: self.protocols.clone(),
            reason: None,
            sender: sender(8),
        }
    }
    /// Sends a join, first for an id if need be.
    pub fn begin_join(&mut self) {
        if self.id.is_empty() && self.instance.is_none() {
            self.client.send(1, Request::JoinGroup(self.join_request()));
            let response = self.joined().expect("an id at once");
            assert_eq!(response.error_code, ErrorCode::MEMBER_ID_REQUIRED);
            self.id = response.member_id;
        }
        self.client.send(1, Request::JoinGroup(self.join_request()));
    }
    pub fn joined(&mut self) -> Option<JoinGroupResponse> {
        match self.client.take(1)? {
            Response::JoinGroup(response) => {
                if response.error_code == ErrorCode::NONE {
                    self.generation = response.generation_id;
                    self.id = response.member_id.clone();
                }
                Some(response)
            }
            other => panic!("{other:?}"),
        }
    }
    pub fn join(&mut self) -> JoinGroupResponse {
        self.begin_join();
        self.joined().expect("the join is complete")
    }
    pub fn begin_sync(&mut self, assignments: &[(&Arc<str>, &'static str)]) {
        let assignments = assignments
            .iter()
            .map(|(id, assignment)| assigned(id, *assignment))
            .collect();
        let request = SyncGroupRequest {
            group_id: "g".into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: None,
            protocol_name: None,
            assignments,
        };
        self.client.send(1, Request::SyncGroup(request));
    }
    pub fn synced(&mut self) -> Option<SyncGroupResponse> {
        match self.client.take(1)? {
            Response::SyncGroup(response) => Some(response),
            other => panic!("{other:?}"),
        }
    }
    pub fn heartbeat_as(&mut self, generation: i32, id: &str) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.into(),
            group_instance_id: self.instance.clone(),
        };
        match self.client.ask(1, Request::Heartbeat(request)) {
            Response::Heartbeat(response) => response.error_code,
            other => panic!("{other:?}"),
        }
    }
    pub fn heartbeat(&mut self) -> ErrorCode {
        let (generation, id) = (self.generation, self.id.clone());
        self.heartbeat_as(generation, &id)
    }
    pub fn leave(&mut self) -> ErrorCode {
        let request = LeaveGroupRequest {
            group_id: "g".into(),
            members: vec![MemberIdentity {
                member_id: self.id.clone(),
                group_instance_id: self.instance.clone(),
                reason: None,
            }],
            ..Default::default()
        };
        match self.client.ask(1, Request::LeaveGroup(request)) {
            Response::LeaveGroup(response) => response.members[0].error_code,
            other => panic!("{other:?}"),
        }
    }
    pub fn commit_as(&mut self, generation: i32, id: &str, offset: i64) -> ErrorCode {
        let value = OffsetAndMetadata {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id_or_member_epoch: generation,
            member_id: id.into(),
            group_instance_id: self.instance.clone(),
            topics: OffsetCommitRequest::topics_of([(tp("t", 0), value)]),
            ..Default::default()
        };
        match self.client.ask(1, Request::OffsetCommit(request)) {
            Response::OffsetCommit(response) => response.errors().next().unwrap().1,
            other => panic!("{other:?}"),
        }
    }
    pub fn committed(&mut self) -> Option<i64> {
        let request = OffsetFetchRequest::of("g".into(), Some(&[tp("t", 0)]), true);
        match self.client.ask(1, Request::OffsetFetch(request)) {
            Response::OffsetFetch(response) => {
                let (_, committed) = response.offsets().unwrap().next().unwrap();
                committed.unwrap().map(|o| o.offset)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Two members in a stable group: (leader, follower).
pub fn two(world: &World) -> (Member, Member) {
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

pub fn join_code(world: &World, change: impl FnOnce(&mut JoinGroupRequest)) -> ErrorCode {
    let mut member = world.member();
    let mut request = member.join_request();
    change(&mut request);
    member.client.send(1, Request::JoinGroup(request));
    member.joined().unwrap().error_code
}
