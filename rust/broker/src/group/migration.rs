//! Groups change between the classic and the consumer protocol while members are in them (spec 8.12). Kafka:
//! `GroupMetadataManager#convertToConsumerGroup`, `#convertToClassicGroup`, `ConsumerGroup#fromClassicGroup`,
//! `ClassicGroup#fromConsumerGroup`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::ErrorCode;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::values::consumer_group_member_metadata_value::{ClassicMemberMetadata, ClassicProtocol};
use fletchlog_protocol::values::consumer_protocol::TopicPartition as ProtocolPartitions;
use fletchlog_protocol::values::{
    ConsumerGroupMemberMetadataValue, ConsumerProtocolAssignment, ConsumerProtocolSubscription,
};
use fletchlog_protocol::{Value, WireError};
use fletchlog_records::BatchParams;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_heartbeat::Refusal;
use super::consumer_member::{Assigned, ConsumerGroupMember, CurrentAssignment, MemberState, Partitions};
use super::consumer_records::{ConsumerRecord, in_order, tombstones};
use super::coordinator::GroupCoordinator;
use super::member::{Member, Session};
use super::metadata_hash::group_hash;
use super::rebalance::{join_error, sync_error};
use super::records;
use super::state::{Group, GroupState};
use super::timers::Timer;
use crate::BrokerError;
use crate::topics::TopicTable;

impl GroupCoordinator {
    /// Makes a consumer group of a classic one: its generation is the group's epoch, its assignments are the target. Kafka:
    /// `GroupMetadataManager#validateOnlineUpgrade`, `#convertToConsumerGroup`.
    pub(super) fn upgrade(&self, classic: &Group, change: &mut Change<'_>) -> Result<(), Refusal> {
        change.end_classic();
        if classic.state == GroupState::Empty {
            return Ok(());
        }
        let refuse = |why: &str| {
            let message = format!("Group {} is not a consumer group: {why}.", classic.id);
            Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, message))
        };
        if !self.upgrades() {
            return refuse("group.consumer.migration.policy does not let it become one");
        }
        if !classic.uses_consumer_protocol() {
            return refuse("its members are not consumers");
        }
        if classic.members.len() > self.consumer_group_max_size() {
            return refuse("it has more members than group.consumer.max.size");
        }
        let table = self.replicas.topic_table();
        let mut members = Vec::new();
        for member in &classic.members {
            match upgraded_member(member, &table) {
                Some(upgraded) => members.push((Arc::clone(&member.id), upgraded)),
                None => return refuse("a subscription or an assignment has user data, or cannot be read"),
            }
        }
        let epoch = classic.generation;
        for (id, (metadata, _)) in &members {
            change.apply(ConsumerRecord::Member(Arc::clone(id), Some(Arc::new(metadata.clone()))));
        }
        let hash = group_hash(&table, &change.group.subscribed_topics());
        change.apply(ConsumerRecord::Epoch(Some((epoch, hash))));
        for (id, (_, target)) in &members {
            change.apply(ConsumerRecord::Target(Arc::clone(id), Some(Arc::new(target.clone()))));
        }
        change.apply(ConsumerRecord::TargetEpoch(Some((epoch, 0))));
        for (id, (_, target)) in members {
            let current = CurrentAssignment {
                epoch,
                previous_epoch: epoch,
                state: MemberState::Stable,
                assigned: since(&target, epoch),
                pending_revocation: Assigned::new(),
            };
            change.apply(ConsumerRecord::Current(id, Some(current)));
        }
        Ok(())
    }

    /// The consumer group takes the place of the classic one. Its members that wait for a rebalance have to join again.
    pub(super) fn upgraded(&self, group: &mut Group, mut consumer: Box<ConsumerGroup>, now_ms: i64) {
        for member in &mut group.members {
            let nobody = Arc::from("");
            member.answer_join(join_error(ErrorCode::REBALANCE_IN_PROGRESS, nobody), self.changes());
            member.answer_sync(sync_error(ErrorCode::REBALANCE_IN_PROGRESS), self.changes());
            let is_classic = consumer
                .member(&member.id)
                .is_some_and(|member| member.classic().is_some());
            if !is_classic {
                continue;
            }
            match member.session() {
                Some(session @ Session::Client { .. }) => {
                    drop(consumer.sessions.insert(Arc::clone(&member.id), session))
                }
                _ => {
                    let at_ms = now_ms.saturating_add(i64::from(member.session_timeout_ms));
                    consumer.timers.set(&member.id, Timer::Session, at_ms);
                }
            }
        }
        group.end_classic();
        group.consumer = Some(consumer);
    }

    /// Whether the group becomes a classic one when these members go: all others use the classic protocol. Kafka:
    /// `GroupMetadataManager#validateOnlineDowngradeWithFencedMembers`.
    pub(super) fn may_downgrade(&self, group: &ConsumerGroup, leaving: &[Arc<str>]) -> bool {
        let leaving: BTreeSet<&Arc<str>> = leaving.iter().collect();
        let staying = group.len().saturating_sub(leaving.len());
        let uses_classic = |id: &&&Arc<str>| group.member(id).is_some_and(|member| member.classic().is_some());
        let classic_leaving = leaving.iter().filter(uses_classic).count();
        let all_classic = staying > 0 && group.classic_members() - classic_leaving == staying;
        all_classic && self.downgrades() && staying <= self.max_size
    }

    /// Makes a classic group of the members that stay, with the group's epoch as its generation and the target as the assignment. It is
    /// Stable.
    pub(super) fn downgrade(&self, group: &mut Group, leaving: &[Arc<str>], now_ms: i64) -> Result<(), ErrorCode> {
        let Some(consumer) = group.consumer.take() else {
            return Ok(());
        };
        let leaving: BTreeSet<&Arc<str>> = leaving.iter().collect();
        let stays = |member: &&&ConsumerGroupMember| !leaving.contains(&member.id);
        let all = consumer.members();
        let staying = all.iter().filter(stays);
        let table = self.replicas.topic_table();
        group.members = staying
            .map(|member| downgraded_member(&consumer, member, &table, now_ms))
            .collect();
        drop(table);
        group.state = GroupState::Stable;
        group.generation = consumer.epoch;
        group.protocol_type = Some(Arc::from(PROTOCOL_TYPE));
        group.leader = group.members.first().map(|member| Arc::clone(&member.id));
        group.protocol = group.select_protocol();
        group.subscribed_topics = group.compute_subscribed_topics();
        group.state_timestamp_ms = Some(self.replicas.clock().now_ms());
        if let Err(error) = self.write_downgrade(group, &consumer) {
            self.replicas
                .failures()
                .failed(format!("storing group {}", group.id), &error);
            group.end_classic();
            group.consumer = Some(consumer);
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        group.is_stored = true;
        Ok(())
    }

    /// An empty consumer group becomes an empty classic one; its offsets stay. Kafka:
    /// `GroupMetadataManager#maybeDeleteEmptyConsumerGroup`.
    pub(super) fn end_empty_consumer_group(&self, group: &mut Group) -> Result<(), ErrorCode> {
        let Some(consumer) = group.consumer.take_if(|consumer| consumer.is_empty()) else {
            return Ok(());
        };
        group.end_classic();
        if let Err(error) = self.write_downgrade(group, &consumer) {
            self.replicas
                .failures()
                .failed(format!("storing group {}", group.id), &error);
            group.consumer = Some(consumer);
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        group.is_stored = true;
        Ok(())
    }

    /// Writes the end of a consumer group, and the classic group in its place.
    fn write_downgrade(&self, group: &Group, consumer: &ConsumerGroup) -> Result<(), BrokerError> {
        if self.replicas.is_read_only() {
            return Ok(());
        }
        let mut batch = Vec::new();
        for record in tombstones(consumer) {
            batch.push(record.encode(&group.id)?);
        }
        batch.push(records::group_record(group, self.replicas.clock().now_ms())?);
        self.store_records(&group.id, &batch, &BatchParams::default()).map(drop)
    }
}

const PROTOCOL_TYPE: &str = fletchlog_protocol::values::consumer_protocol::PROTOCOL_TYPE;

/// A classic member's record and target in a consumer group; `None`: its bytes cannot be read, or have user data.
fn upgraded_member(member: &Member, table: &TopicTable) -> Option<(ConsumerGroupMemberMetadataValue, Partitions)> {
    let first = member.protocols.first()?;
    let subscription = ConsumerProtocolSubscription::decode(first.metadata.clone()).ok()?;
    let assignment = ConsumerProtocolAssignment::of_member(member.assignment.clone()).ok()?;
    let has_data = |data: &Option<Bytes>| data.as_ref().is_some_and(|data| !data.is_empty());
    if has_data(&subscription.user_data) || has_data(&assignment.user_data) {
        return None;
    }
    let protocols = member.protocols.iter().map(|protocol| ClassicProtocol {
        name: Arc::clone(&protocol.name),
        metadata: protocol.metadata.clone(),
    });
    let mut names = subscription.topics;
    in_order(&mut names);
    let metadata = ConsumerGroupMemberMetadataValue {
        instance_id: member.instance_id.clone(),
        rack_id: subscription.rack_id,
        client_id: Arc::clone(&member.client_id),
        client_host: Arc::clone(&member.client_host),
        subscribed_topic_names: names,
        subscribed_topic_regex: Some(Arc::default()),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        server_assignor: None,
        classic_member_metadata: Some(ClassicMemberMetadata {
            session_timeout_ms: member.session_timeout_ms,
            supported_protocols: protocols.collect(),
        }),
    };
    Some((metadata, with_ids(&assignment.assigned_partitions, table)))
}

fn downgraded_member(group: &ConsumerGroup, member: &ConsumerGroupMember, table: &TopicTable, now_ms: i64) -> Member {
    let none = Partitions::new();
    let target = group.target(&member.id).map_or(&none, |target| target);
    let assignment = assignment_bytes(member, target.iter().map(|(id, p)| (id, p.iter().copied())), table);
    let session = group.sessions.get(&member.id);
    Member::downgraded(member, assignment.unwrap_or_default(), session, now_ms)
}

/// What a member of the classic protocol gets from SyncGroup, in the version of its own subscription. Kafka:
/// `GroupMetadataManager#prepareAssignment`.
pub(super) fn assignment_bytes<'a, P: Iterator<Item = i32>>(
    member: &ConsumerGroupMember,
    assigned: impl Iterator<Item = (&'a TopicId, P)>,
    table: &TopicTable,
) -> Result<Bytes, WireError> {
    let named = assigned.filter_map(|(id, partitions)| {
        let topic = Arc::clone(table.name_of(id)?);
        Some(ProtocolPartitions {
            topic,
            partitions: partitions.collect(),
        })
    });
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: named.collect(),
        user_data: None,
    };
    let version = member
        .classic_protocols()
        .first()
        .and_then(|protocol| protocol.metadata.first_chunk());
    let version = version.map_or(0, |version| i16::from_be_bytes(*version));
    assignment.encode(version.clamp(
        ConsumerProtocolAssignment::MIN_VERSION,
        ConsumerProtocolAssignment::MAX_VERSION,
    ))
}

/// Partitions of topics that exist, by the topics' ids.
pub(super) fn with_ids(named: &[ProtocolPartitions], table: &TopicTable) -> Partitions {
    let mut partitions: Partitions = BTreeMap::new();
    for entry in named.iter().filter(|entry| !entry.partitions.is_empty()) {
        if let Some(topic) = table.get(&entry.topic) {
            partitions.entry(topic.record.id).or_default().extend(&entry.partitions);
        }
    }
    partitions
}

fn since(partitions: &Partitions, epoch: i32) -> Assigned {
    let of = |(&id, partitions): (&TopicId, &BTreeSet<i32>)| (id, partitions.iter().map(|&p| (p, epoch)).collect());
    partitions.iter().map(of).collect()
}
