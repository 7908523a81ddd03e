//! A member whose coordinator answers what the test has written down.

use std::fmt::Debug;
use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_protocol::Value;
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::values::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use fletchlog_records::TopicPartition;
use fletchlog_testing::{ScriptedTransport, Sent, VirtualClock};

use crate::ClientError;
use crate::backoff::ExponentialBackoff;
use crate::consumer::SubscribeOrder;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::metadata::ConsumerMetadata;
use crate::consumer::subscription_state::SubscriptionState;
use crate::group::{ConsumerCoordinator, GroupTopics, leader};
use crate::net::Reconnect;
use crate::net::fixtures::cluster;

/// A transport to nodes that answer the requests in order with what the test has queued. Without a queued answer a request stays
/// unanswered. Metadata, asked for after a lost connection, is answered without the test.
fn script() -> ScriptedTransport {
    ScriptedTransport::new(VirtualClock::at(0), |sent: &Sent| {
        let is_metadata = matches!(sent.request, Request::Metadata(_));
        is_metadata.then(|| Ok(Response::Metadata(cluster([1], []))))
    })
}

pub struct Member {
    pub coordinator: ConsumerCoordinator,
    pub net: ConsumerNetworkClient,
    pub subs: SubscriptionState,
    metadata: ConsumerMetadata,
    transport: ScriptedTransport,
    pub topics_are_fresh: bool,
}

/// Of the topic `t`.
pub const TOPIC_ID: TopicId = [7; 16];

pub fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

impl Member {
    pub fn new(config: &[(&str, &str)]) -> Self {
        let given = [
            ("group.id", "g"),
            ("client.id", "c"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ];
        let config = Config::parse(Scope::Consumer, given.into_iter().chain(config.iter().copied())).unwrap();
        let transport = script();
        let mut subs = SubscriptionState::new(&config, SubscribeOrder::Sorted);
        subs.subscribe(&["t".into()]).unwrap();
        Self {
            coordinator: ConsumerCoordinator::new(&config).unwrap(),
            net: ConsumerNetworkClient::new(
                Box::new(transport.clone()),
                transport.clock.clone(),
                30_000,
                Reconnect {
                    backoff: ExponentialBackoff::new(0, 0),
                    rebootstrap_after_ms: None,
                },
            ),
            subs,
            metadata: ConsumerMetadata::new(100, 300_000, true),
            transport,
            topics_are_fresh: true,
        }
    }

    pub fn answer(&self, response: Response) -> &Self {
        self.transport.answer_next(Ok(response));
        self
    }

    pub fn lose_connection(&self) {
        self.transport.answer_next(Err(Failure::Disconnected));
    }

    pub fn advance(&self, ms: i64) {
        self.transport.clock.advance(ms);
    }

    pub fn now(&self) -> i64 {
        self.transport.clock.now_ms()
    }

    /// Turns until nothing more is sent; the kinds of the requests that were.
    pub fn turn(&mut self) -> Result<Vec<String>, ClientError> {
        self.transport.take_sent();
        for _ in 0..10 {
            let now = self.now();
            let topics = GroupTopics {
                partitions: &|t| (t == "t").then_some(1),
                racks: &|_| &[],
                are_fresh: self.topics_are_fresh,
                name: &|id| (*id == TOPIC_ID).then(|| "t".into()),
                version: 1,
            };
            self.coordinator.poll(&mut self.net, &mut self.subs, topics, now)?;
            self.network()?;
        }
        Ok(self.sent().iter().map(|(_, request)| kind(request)).collect())
    }

    pub fn network(&mut self) -> Result<(), ClientError> {
        let now = self.now();
        self.net.try_send(&self.metadata);
        self.net.net_poll(&mut self.metadata, None)?;
        for completion in self.net.take_done() {
            assert!(self.coordinator.on_completion(completion, &mut self.subs, now)?);
        }
        self.coordinator.leave_out_deleted(&mut self.metadata);
        Ok(())
    }

    /// The requests of this turn but those for metadata.
    fn sent(&self) -> Vec<(NodeId, Request)> {
        let wire = self.transport.wire();
        let sent = wire.sent.iter().map(|sent| (sent.node, sent.request.clone()));
        sent.filter(|(_, request)| !matches!(request, Request::Metadata(_)))
            .collect()
    }

    pub fn last_sent(&self) -> (NodeId, Request) {
        self.sent().pop().unwrap()
    }

    /// A member with an assignment.
    pub fn stable(config: &[(&str, &str)]) -> Self {
        let mut member = Self::new(config);
        member.answer(found()).answer(joined(1)).answer(synced());
        assert_eq!(
            member.turn().unwrap(),
            ["FindCoordinator", "JoinGroup \"\"", "SyncGroup"]
        );
        assert_eq!(member.subs.assigned_partitions(), [tp()]);
        member
    }
}

/// The code of a result that is an error of Kafka's.
pub fn code_of<T: Debug>(result: Result<T, ClientError>) -> ErrorCode {
    match result {
        Err(ClientError::Kafka { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

pub fn kind(request: &Request) -> String {
    match request {
        Request::FindCoordinator(_) => "FindCoordinator".into(),
        Request::JoinGroup(r) => format!("JoinGroup {:?}", r.member_id),
        Request::SyncGroup(_) => "SyncGroup".into(),
        Request::Heartbeat(_) => "Heartbeat".into(),
        Request::LeaveGroup(_) => "LeaveGroup".into(),
        Request::ConsumerGroupHeartbeat(r) => {
            let names = r
                .subscribed_topic_names
                .as_ref()
                .map(|names| format!(" names {names:?}"));
            let regex = r
                .subscribed_topic_regex
                .as_ref()
                .map(|regex| format!(" regex {regex:?}"));
            let assignor = r
                .server_assignor
                .as_ref()
                .map(|assignor| format!(" assignor {assignor}"));
            let owned = r.topic_partitions.as_ref().map(|topics| {
                let partitions: Vec<i32> = topics.iter().flat_map(|topic| topic.partitions.clone()).collect();
                format!(" owns {partitions:?}")
            });
            let said = [names, regex, assignor, owned].map(Option::unwrap_or_default).concat();
            format!("{}{said}", r.member_epoch)
        }
        Request::OffsetCommit(r) => format!("OffsetCommit {}", r.generation_id_or_member_epoch),
        Request::OffsetFetch(_) => "OffsetFetch".into(),
        other => format!("{other:?}"),
    }
}

pub fn found() -> Response {
    Response::FindCoordinator(FindCoordinatorResponse {
        coordinators: vec![Coordinator {
            node_id: 3,
            ..Default::default()
        }],
        ..Default::default()
    })
}

pub fn join_answer(error: ErrorCode, generation_id: i32, members: Vec<JoinGroupResponseMember>) -> Response {
    join_answer_of("range", error, generation_id, members)
}

fn join_answer_of(
    protocol: &str,
    error: ErrorCode,
    generation_id: i32,
    members: Vec<JoinGroupResponseMember>,
) -> Response {
    let (member_id, leader): (Arc<str>, Arc<str>) = ("m".into(), "m".into());
    Response::JoinGroup(JoinGroupResponse {
        error_code: error,
        generation_id,
        protocol_type: Some("consumer".into()),
        protocol_name: Some(protocol.into()),
        leader,
        member_id,
        members,
        ..Default::default()
    })
}

/// Leader of a group of its own.
pub fn joined(generation: i32) -> Response {
    joined_with("range", generation)
}

pub fn joined_with(protocol: &str, generation: i32) -> Response {
    let metadata = ConsumerProtocolSubscription {
        topics: vec!["t".into()],
        ..Default::default()
    }
    .encode(1)
    .unwrap();
    join_answer_of(
        protocol,
        ErrorCode::NONE,
        generation,
        vec![JoinGroupResponseMember {
            member_id: "m".into(),
            group_instance_id: None,
            metadata,
        }],
    )
}

pub fn synced() -> Response {
    synced_with("range", &[tp()])
}

pub fn synced_with(protocol: &str, assigned: &[TopicPartition]) -> Response {
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: leader::by_topic(assigned),
        user_data: None,
    }
    .encode(1)
    .unwrap();
    Response::SyncGroup(SyncGroupResponse {
        protocol_type: Some("consumer".into()),
        protocol_name: Some(protocol.into()),
        assignment,
        ..Default::default()
    })
}

pub fn sync_error(error: ErrorCode) -> Response {
    Response::SyncGroup(SyncGroupResponse {
        error_code: error,
        ..Default::default()
    })
}

pub fn commit_answer(error: ErrorCode) -> Response {
    let request = OffsetCommitRequest {
        topics: OffsetCommitRequest::topics_of(offsets()),
        ..Default::default()
    };
    Response::OffsetCommit(request.answered([error]))
}

pub fn offsets() -> Vec<(TopicPartition, OffsetAndMetadata)> {
    vec![(
        tp(),
        OffsetAndMetadata {
            offset: 7,
            leader_epoch: -1,
            metadata: "".into(),
        },
    )]
}

pub fn heartbeat_answer(error_code: ErrorCode) -> Response {
    Response::Heartbeat(HeartbeatResponse {
        error_code,
        ..Default::default()
    })
}
