//! Clients of the two coordinators: they leave groups and transactions in every state, and ask whatever a client may ask.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, HeartbeatRequest, LeaveGroupRequest, Request};
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::ConsumerGroupHeartbeatRequest;
use fletchlog_protocol::messages::consumer_group_describe_response::Member;
use fletchlog_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use fletchlog_protocol::messages::leave_group_request::MemberIdentity;
use fletchlog_records::TopicPartition;

use super::NOW_MS;
use crate::classic_member::ClassicMember;
use crate::port_client::{Committer, PortClient, Transactional};

const TOPIC: &str = "orders";
/// Members and transactional ids that are asked about, of each group and in all.
const MOST: usize = 6;

pub(super) fn member(group: &str, id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: id.into(),
        member_epoch: epoch,
        ..Default::default()
    }
}

fn joins(group: &str, id: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![TOPIC.into()]),
        topic_partitions: Some(Vec::new()),
        ..member(group, id, 0)
    }
}

fn joins_as(group: &str, id: &str, instance: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        instance_id: Some(instance.into()),
        server_assignor: Some("range".into()),
        rack_id: Some("rack".into()),
        ..joins(group, id)
    }
}

/// JoinGroup and SyncGroup of the classic protocol.
fn join_and_sync(client: &PortClient, group: &str, id: &str, instance: Option<&str>) -> Result<(), ErrorCode> {
    let member = ClassicMember {
        group,
        id,
        instance,
        topic: TOPIC,
    };
    let joined = member.join(client)?;
    member.sync(client, &joined, 0..3)
}

fn orders(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

/// Makes a topic, and everything that coordinators store.
pub(super) fn fill(broker: &Arc<Broker>) {
    broker.create_topic(TOPIC, 3, &[]).unwrap();
    let client = PortClient::new(broker);
    let beat = |request| client.heartbeat(request).unwrap();
    let nobody = |group| Committer {
        group,
        id: "",
        epoch: -1,
    };
    // One has to give up partitions that a static member waits for.
    let first = beat(joins("live", "a"));
    beat(joins_as("live", "b", "i"));
    beat(member("live", "a", first.member_epoch));
    let committer = Committer {
        group: "live",
        id: "a",
        epoch: first.member_epoch,
    };
    client.commit(committer, &orders(0), 3).unwrap();
    // One is away, one uses a regular expression.
    beat(joins_as("away", "c", "j"));
    beat(ConsumerGroupHeartbeatRequest {
        instance_id: Some("j".into()),
        ..member("away", "c", -2)
    });
    beat(ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("ord.*".into()),
        ..joins("away", "d")
    });
    broker.run_due();
    // Empty, but with an offset.
    let joined = beat(joins("empty", "e"));
    let committer = Committer {
        group: "empty",
        id: "e",
        epoch: joined.member_epoch,
    };
    client.commit(committer, &orders(1), 4).unwrap();
    beat(member("empty", "e", -1));
    // Classic groups, one of which becomes a consumer group.
    for (group, instance) in [("classic", Some("k")), ("mixed", None)] {
        join_and_sync(&client, group, "", instance).unwrap();
    }
    beat(joins("mixed", "f"));
    client.commit(nobody("simple"), &orders(2), 5).unwrap();
    // Transactions: ended, open, with offsets.
    for (id, ends) in [("committed", Some(true)), ("aborted", Some(false)), ("open", None)] {
        let producer = client.init(id).unwrap();
        let by = Transactional { id, producer };
        client.produce(by, &orders(0), 0, (NOW_MS, id)).unwrap();
        client.commit_in(by, nobody("simple"), &orders(0), 7).unwrap();
        if let Some(committed) = ends {
            client.end(by, committed).unwrap();
        }
    }
    client.init("new").unwrap();
}

/// Asks about everything, and whatever members and producers may ask. Any answer is right, but a broker that serves it all gives one.
pub(super) fn exercise(broker: &Arc<Broker>) {
    let client = PortClient::new(broker);
    for listing in broker.groups().unwrap() {
        let id = &*listing.group_id;
        let _ = broker.lag(id);
        if let Ok(group) = broker.describe_group(id) {
            let ids: Vec<_> = group.members.iter().map(|member| &*member.member_id).collect();
            classic(&client, id, &ids);
        }
        let Ok(group) = broker.describe_consumer_group(id) else {
            continue;
        };
        for of in group.members.iter().take(MOST) {
            consumer(&client, id, of);
        }
        let ids: Vec<_> = group.members.iter().map(|member| &*member.member_id).collect();
        classic(&client, id, &ids);
    }
    for group in ["live", "away", "mixed", "classic", "fresh"] {
        let _ = client.heartbeat(joins(group, "x"));
        let _ = client.heartbeat(joins_as(group, "y", "j"));
        let _ = join_and_sync(&client, group, "", None);
    }
    for (at, transaction) in broker.transactions().unwrap().iter().take(MOST).enumerate() {
        let by = Transactional {
            id: &transaction.transactional_id,
            producer: (transaction.producer_id, transaction.producer_epoch),
        };
        let _ = client.produce(by, &orders(1), 0, (NOW_MS, "again"));
        let _ = client.end(by, at % 2 == 0);
        let _ = client.init(by.id);
    }
}

/// A member goes on from what the broker says of it.
fn consumer(client: &PortClient, group: &str, of: &Member) {
    let topics = of.assignment.topic_partitions.iter();
    let owned: Vec<_> = topics
        .map(|topic| TopicPartitions {
            topic_id: topic.topic_id,
            partitions: topic.partitions.clone(),
        })
        .collect();
    let beat = |topic_partitions, epoch| {
        client.heartbeat(ConsumerGroupHeartbeatRequest {
            instance_id: of.instance_id.clone(),
            topic_partitions,
            ..member(group, &of.member_id, epoch)
        })
    };
    let _ = beat(Some(owned), of.member_epoch);
    let _ = beat(Some(Vec::new()), of.member_epoch);
    let committer = Committer {
        group,
        id: &of.member_id,
        epoch: of.member_epoch,
    };
    let _ = client.commit(committer, &orders(0), 9);
    if of.instance_id.is_some() {
        let _ = beat(None, -2);
    }
}

/// Members of the classic protocol go on.
fn classic(client: &PortClient, group: &str, ids: &[&str]) {
    for id in ids.iter().take(MOST) {
        let request = HeartbeatRequest {
            group_id: group.into(),
            generation_id: 1,
            member_id: (*id).into(),
            group_instance_id: None,
        };
        let _ = client.ask(Request::Heartbeat(request));
        let _ = join_and_sync(client, group, id, None);
    }
    let Some(id) = ids.first() else { return };
    let request = LeaveGroupRequest {
        group_id: group.into(),
        members: vec![MemberIdentity {
            member_id: (*id).into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let _ = client.ask(Request::LeaveGroup(request));
}
