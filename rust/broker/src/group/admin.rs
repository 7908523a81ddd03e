//! Administration of groups. Kafka: `GroupCoordinatorService#listGroups`, `#describeGroups`, `#deleteGroups`, `#deleteOffsets`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId, OffsetAndMetadata};
use fletchlog_protocol::values::consumer_protocol::PROTOCOL_TYPE;
use fletchlog_records::TopicPartition;

use super::coordinator::GroupCoordinator;
use super::member::Member;
use super::state::{Group, GroupState};
use crate::BrokerError;

/// The error of each partition.
type PartitionErrors = Vec<(TopicPartition, ErrorCode)>;

/// A group in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupListing {
    /// group.id.
    pub group_id: Arc<str>,
    /// "consumer", "share", "connect", ...; "" while no member has joined.
    pub protocol_type: Arc<str>,
    /// Empty, PreparingRebalance, CompletingRebalance or Stable; of a consumer group Empty, Assigning, Reconciling or Stable; of a share
    /// group Empty or Stable.
    pub state: &'static str,
    /// "classic", "consumer" or "share". Kafka: `Group.GroupType`.
    pub group_type: Arc<str>,
    /// The node that coordinates it.
    pub coordinator: NodeId,
}

/// A group and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    /// group.id.
    pub group_id: Arc<str>,
    /// Empty, PreparingRebalance, CompletingRebalance or Stable.
    pub state: &'static str,
    /// "consumer", "connect", ...; "" while no member has joined.
    pub protocol_type: Arc<str>,
    /// The chosen protocol (an assignor); "" unless the group is Stable.
    pub protocol: Arc<str>,
    /// In the order in which they joined.
    pub members: Vec<GroupMember>,
    /// The node that coordinates it.
    pub coordinator: NodeId,
}

/// A member of a [`GroupDescription`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Member id.
    pub member_id: Arc<str>,
    /// group.instance.id.
    pub group_instance_id: Option<Arc<str>>,
    /// client.id.
    pub client_id: Arc<str>,
    /// `/` and the address; `in-process` for an embedded client.
    pub client_host: Arc<str>,
    /// Its metadata for the chosen protocol (a subscription); empty unless the group is Stable.
    pub metadata: Bytes,
    /// What the leader assigned; during a rebalance from Stable, the assignment of the previous generation.
    pub assignment: Bytes,
}

impl GroupCoordinator {
    /// Every group, by id.
    pub(crate) fn groups(&self) -> Result<Vec<GroupListing>, BrokerError> {
        self.tick(self.replicas.clock().monotonic_ms());
        self.load_all_groups().map_err(|code| not_loaded(code, "groups"))?;
        let mut ids = self.ids();
        ids.sort_unstable();
        let list = |id: Arc<str>| {
            self.in_group(&id, |group| {
                let (group_type, protocol_type) = match (&group.consumer, &group.share) {
                    (Some(_), _) => ("consumer", Some(Arc::from(PROTOCOL_TYPE))),
                    (None, Some(_)) => ("share", Some(Arc::from("share"))),
                    (None, None) => ("classic", None),
                };
                GroupListing {
                    group_id: group.id.clone(),
                    protocol_type: protocol_type
                        .or_else(|| group.protocol_type.clone())
                        .unwrap_or_default(),
                    state: group.state_name(),
                    group_type: group_type.into(),
                    coordinator: self.coordinator_of(&group.id),
                }
            })
        };
        Ok(ids.into_iter().filter_map(list).collect())
    }

    /// A group and its members.
    pub(crate) fn describe_group(&self, group_id: &str) -> Result<GroupDescription, BrokerError> {
        self.in_known_group(group_id, |group| {
            if group.consumer.is_some() || group.share.is_some() {
                let message = format!("Group {group_id} is not a classic group.");
                return Err(BrokerError::kafka(ErrorCode::GROUP_ID_NOT_FOUND, message));
            }
            let stable = group.state == GroupState::Stable;
            let protocol = group.protocol.clone().filter(|_| stable).unwrap_or_default();
            Ok(GroupDescription {
                group_id: group.id.clone(),
                state: group.state.name(),
                protocol_type: group.protocol_type.clone().unwrap_or_default(),
                members: group.members.iter().map(|m| describe_member(m, &protocol)).collect(),
                protocol,
                coordinator: self.coordinator_of(&group.id),
            })
        })
    }

    /// The committed offsets of a group, by partition; empty if the group does not exist.
    pub(crate) fn group_offsets(
        &self,
        group_id: &str,
    ) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, BrokerError> {
        self.tick(self.replicas.clock().monotonic_ms());
        self.load_group(group_id).map_err(|code| not_loaded(code, group_id))?;
        let offsets = self.in_group(group_id, |group| {
            let offsets = group.offsets.iter();
            offsets.map(|(tp, offset)| (tp.clone(), offset.value.clone())).collect()
        });
        Ok(offsets.unwrap_or_default())
    }

    /// Deletes a group without members and all of its offsets.
    pub(crate) fn delete_group(&self, group_id: &str) -> Result<(), BrokerError> {
        self.replicas.for_writing("delete groups")?;
        self.delete_share_states_of(group_id)?;
        self.in_known_group(group_id, |group| {
            check_empty(group)?;
            self.drop_group(group)
        })
    }

    /// Deletes committed offsets. Errors per partition: 3 (no such partition), 86 (a member may read it).
    pub(crate) fn delete_offsets(
        &self,
        group_id: &str,
        tps: &[TopicPartition],
    ) -> Result<PartitionErrors, BrokerError> {
        self.replicas.for_writing("delete offsets")?;
        let known = |tp: &TopicPartition| self.replicas.partition(tp).is_ok();
        if group_id.is_empty() {
            return Err(BrokerError::kafka(
                ErrorCode::INVALID_GROUP_ID,
                "a group id is not empty",
            ));
        }
        self.in_known_group(group_id, |group| {
            check_has_offsets(group)?;
            if !group.uses_consumer_protocol() {
                check_empty(group)?;
            }
            let code = |tp: &TopicPartition| match known(tp) {
                false => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                true if group.is_subscribed_to(&tp.topic) => ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC,
                true => ErrorCode::NONE,
            };
            let results: PartitionErrors = tps.iter().map(|tp| (tp.clone(), code(tp))).collect();
            let deleted = results.iter().filter(|(_, code)| *code == ErrorCode::NONE);
            let with_offset: BTreeSet<&TopicPartition> = group.with_offsets().collect();
            // Each partition once, even if it is named twice.
            let deleted: BTreeSet<_> = deleted
                .map(|(tp, _)| tp)
                .filter(|tp| with_offset.contains(tp))
                .collect();
            let deleted: Vec<TopicPartition> = deleted.into_iter().cloned().collect();
            self.drop_offsets(group, &deleted)?;
            Ok(results)
        })
    }

    /// Commits offsets for a group without members: all of them or, after an error, none.
    pub(crate) fn alter_offsets(
        &self,
        group_id: &Arc<str>,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<(), BrokerError> {
        self.replicas.for_writing("alter offsets")?;
        self.tick(self.replicas.clock().monotonic_ms());
        for (tp, _) in offsets {
            self.replicas.partition(tp)?;
        }
        let (codes, _) = self.accept_offsets(offsets, None);
        let mut codes = codes.into_iter().zip(offsets);
        if let Some((code, (tp, _))) = codes.find(|(code, _)| *code != ErrorCode::NONE) {
            return Err(BrokerError::kafka(code, format!("{tp}: {}", code.message())));
        }
        self.load_group(group_id).map_err(|code| not_loaded(code, group_id))?;
        self.in_new_group(group_id, |group| {
            check_has_offsets(group)?;
            check_empty(group)?;
            let committed = self.commit_accepted(group, offsets, None, false);
            committed.map(drop).map_err(|refused| {
                let why = refused
                    .failure
                    .as_ref()
                    .map_or(refused.code.message(), |failure| &failure.message);
                let message = format!("the offsets of group {group_id} cannot be written: {why}");
                BrokerError::kafka(refused.code, message)
            })
        })
    }

    /// Runs `work` on a group; GROUP_ID_NOT_FOUND unless it exists.
    pub(super) fn in_known_group<T>(
        &self,
        group_id: &str,
        work: impl FnOnce(&mut Group) -> Result<T, BrokerError>,
    ) -> Result<T, BrokerError> {
        self.tick(self.replicas.clock().monotonic_ms());
        self.load_group(group_id).map_err(|code| not_loaded(code, group_id))?;
        let unknown = || {
            let message = format!("there is no group `{group_id}`; groups() lists what there is");
            Err(BrokerError::kafka(ErrorCode::GROUP_ID_NOT_FOUND, message))
        };
        self.in_group(group_id, work).unwrap_or_else(unknown)
    }
}

fn describe_member(member: &Member, protocol: &str) -> GroupMember {
    GroupMember {
        member_id: member.id.clone(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        metadata: member.metadata(protocol),
        assignment: member.assignment.clone(),
    }
}

/// GROUP_ID_NOT_FOUND of a share group, which has no committed offsets. Kafka: `ShareGroup#validateOffsetDelete`.
fn check_has_offsets(group: &Group) -> Result<(), BrokerError> {
    if group.share.is_none() {
        return Ok(());
    }
    let message = format!("Group {} is a share group and has no committed offsets.", group.id);
    Err(BrokerError::kafka(ErrorCode::GROUP_ID_NOT_FOUND, message))
}

/// NON_EMPTY_GROUP while the group has members.
pub(super) fn check_empty(group: &Group) -> Result<(), BrokerError> {
    if group.is_empty() {
        return Ok(());
    }
    let message = format!(
        "group {} is {} and has members; they have to leave first",
        group.id,
        group.state_name()
    );
    Err(BrokerError::kafka(ErrorCode::NON_EMPTY_GROUP, message))
}

pub(super) fn not_loaded(code: ErrorCode, what: &str) -> BrokerError {
    BrokerError::kafka(
        code,
        format!("`__consumer_offsets` cannot be read, so {what} cannot be reported"),
    )
}
