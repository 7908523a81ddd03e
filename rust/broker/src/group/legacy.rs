//! The registry of legacy consumer groups: what ZooKeeper's nodes under `/consumers/<group>` were to the 0.8 high-level
//! consumer (spec 8.2). Kafka: `ZookeeperConsumerConnector` and `ZkUtils`, 0.8.2.
//!
//! | node                         | here                                   | lives                                |
//! |------------------------------|----------------------------------------|--------------------------------------|
//! | `ids/<consumerId>`           | `Group::members`                       | with the consumer's session          |
//! | `owners/<topic>/<partition>` | `Group::owners`                        | with the session of the owner        |
//! | `offsets/<topic>/<partition>`| committed offsets, generation -1       | in the broker's directory            |
//! | watches                      | `Group::generation`, read with a View  | -                                    |
//!
//! A session lives as long as the consumer's connection, and zookeeper.session.timeout.ms longer; every request of the group checks
//! for expired sessions. Nothing here is written to disk: ephemeral nodes do not outlive a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, LegacyGroupAction, LegacyGroupMember, LegacyGroupRequest, LegacyGroupResponse};
use fletchlog_records::TopicPartition;

use super::ClientLiveness;
use crate::sync::{Mutex, Rank};

/// All legacy groups of a broker. Thread-safe.
#[derive(Debug)]
pub(crate) struct LegacyGroups {
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    /// Groups with members.
    by_id: BTreeMap<Arc<str>, Group>,
    /// Highest generation of a removed group. A consumer that returns to its group must not find the old generation.
    last_generation: i32,
}

impl Default for LegacyGroups {
    fn default() -> Self {
        Self {
            groups: Mutex::new(Rank::LegacyGroups, Groups::default()),
        }
    }
}

#[derive(Debug, Default)]
struct Group {
    generation: i32,
    members: BTreeMap<Arc<str>, Member>,
    owners: BTreeMap<TopicPartition, Owner>,
    /// Numbers of partitions of the subscribed topics at the group's last check.
    topics: BTreeMap<Arc<str>, i32>,
}

#[derive(Debug)]
struct Member {
    streams: BTreeMap<Arc<str>, i32>,
    session_timeout_ms: i64,
    client: Arc<ClientLiveness>,
}

impl Member {
    fn is_expired(&self, now_ms: i64) -> bool {
        self.client
            .gone_since_ms()
            .is_some_and(|since| now_ms >= since.saturating_add(self.session_timeout_ms))
    }
}

#[derive(Debug)]
struct Owner {
    consumer_id: Arc<str>,
    thread_id: Arc<str>,
}

impl LegacyGroups {
    /// Does one step of the consumer behind the connection `client`. `now_ms` is monotonic; `partitions` returns the number of
    /// partitions of a topic, `None` = no such topic.
    pub(crate) fn handle(
        &self,
        client: &Arc<ClientLiveness>,
        request: &LegacyGroupRequest,
        now_ms: i64,
        partitions: &dyn Fn(&str) -> Option<i32>,
    ) -> LegacyGroupResponse {
        let groups = &mut *self.groups.lock();
        let new = || Group {
            generation: groups.last_generation,
            ..Group::default()
        };
        let group = groups.by_id.entry(Arc::clone(&request.group_id)).or_insert_with(new);
        group.expire(now_ms);
        let error = group.act(client, &request.consumer_id, &request.action);
        group.look_at_topics(partitions);
        let answer = group.answer(error);
        if group.members.is_empty() {
            groups.last_generation = groups.last_generation.max(group.generation);
            groups.by_id.remove(&request.group_id);
        }
        answer
    }
}

impl Group {
    fn act(&mut self, client: &Arc<ClientLiveness>, consumer_id: &Arc<str>, action: &LegacyGroupAction) -> ErrorCode {
        let known = self.members.get(consumer_id);
        if let LegacyGroupAction::Register {
            session_timeout_ms,
            streams,
        } = action
        {
            if known.is_some_and(|m| !Arc::ptr_eq(&m.client, client) && m.client.gone_since_ms().is_none()) {
                return ErrorCode::UNRELEASED_INSTANCE_ID;
            }
            let streams = streams.iter().cloned().collect();
            let session_timeout_ms = i64::from(*session_timeout_ms);
            self.register(
                consumer_id,
                Member {
                    streams,
                    session_timeout_ms,
                    client: Arc::clone(client),
                },
            );
            return ErrorCode::NONE;
        }
        if known.is_none_or(|m| !Arc::ptr_eq(&m.client, client)) {
            return ErrorCode::UNKNOWN_MEMBER_ID;
        }
        match action {
            LegacyGroupAction::Unregister => {
                self.remove(consumer_id);
                ErrorCode::NONE
            }
            LegacyGroupAction::Release => {
                self.owners.retain(|_, owner| owner.consumer_id != *consumer_id);
                ErrorCode::NONE
            }
            LegacyGroupAction::Claim { generation, owners } => self.claim(consumer_id, *generation, owners),
            LegacyGroupAction::View | LegacyGroupAction::Register { .. } => ErrorCode::NONE,
        }
    }

    /// A consumer that reconnects has a new session: it does not own what the old session owned.
    fn register(&mut self, consumer_id: &Arc<str>, member: Member) {
        let unchanged = |known: &Member| known.streams == member.streams && Arc::ptr_eq(&known.client, &member.client);
        if self.members.get(consumer_id).is_some_and(unchanged) {
            return;
        }
        self.remove(consumer_id);
        self.members.insert(Arc::clone(consumer_id), member);
        self.next_generation();
    }

    /// Claims all partitions or none, as with ZooKeeper's owner nodes: if one has another owner, none is claimed.
    fn claim(&mut self, consumer_id: &Arc<str>, generation: i32, claimed: &[(TopicPartition, Arc<str>)]) -> ErrorCode {
        if generation != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        if claimed.iter().any(|(tp, _)| {
            self.owners
                .get(tp)
                .is_some_and(|owner| owner.consumer_id != *consumer_id)
        }) {
            return ErrorCode::REBALANCE_IN_PROGRESS;
        }
        for (tp, thread_id) in claimed {
            let owner = Owner {
                consumer_id: Arc::clone(consumer_id),
                thread_id: Arc::clone(thread_id),
            };
            self.owners.insert(tp.clone(), owner);
        }
        ErrorCode::NONE
    }

    fn expire(&mut self, now_ms: i64) {
        let expired: Vec<Arc<str>> = self
            .members
            .iter()
            .filter(|(_, m)| m.is_expired(now_ms))
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for consumer_id in expired {
            self.remove(&consumer_id);
        }
    }

    fn remove(&mut self, consumer_id: &Arc<str>) {
        if self.members.remove(consumer_id).is_some() {
            self.owners.retain(|_, owner| owner.consumer_id != *consumer_id);
            self.next_generation();
        }
    }

    /// Starts a rebalance if a topic was created, deleted or got more partitions, as the watch on its partitions did.
    fn look_at_topics(&mut self, partitions: &dyn Fn(&str) -> Option<i32>) {
        let topics: BTreeMap<Arc<str>, i32> = self
            .members
            .values()
            .flat_map(|member| member.streams.keys())
            .map(|topic| (Arc::clone(topic), partitions(topic).unwrap_or(0)))
            .collect();
        let changed = self
            .topics
            .iter()
            .any(|(topic, count)| topics.get(topic).is_some_and(|now| now != count));
        self.topics = topics;
        if changed {
            self.next_generation();
        }
    }

    fn next_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }

    fn answer(&self, error: ErrorCode) -> LegacyGroupResponse {
        let streams_of = |member: &Member| {
            member
                .streams
                .iter()
                .map(|(topic, n)| (Arc::clone(topic), *n))
                .collect()
        };
        LegacyGroupResponse {
            error,
            generation: self.generation,
            members: self
                .members
                .iter()
                .map(|(id, member)| LegacyGroupMember {
                    consumer_id: Arc::clone(id),
                    streams: streams_of(member),
                })
                .collect(),
            topics: self
                .topics
                .iter()
                .map(|(topic, count)| (Arc::clone(topic), *count))
                .collect(),
            owners: self
                .owners
                .iter()
                .map(|(tp, owner)| (tp.clone(), Arc::clone(&owner.thread_id)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consumer and its connection.
    struct Client {
        id: &'static str,
        liveness: Arc<ClientLiveness>,
    }

    fn client(id: &'static str) -> Client {
        Client {
            id,
            liveness: Arc::new(ClientLiveness::new(0)),
        }
    }

    fn step(groups: &LegacyGroups, client: &Client, now_ms: i64, action: LegacyGroupAction) -> LegacyGroupResponse {
        let request = LegacyGroupRequest {
            group_id: "g".into(),
            consumer_id: client.id.into(),
            action,
        };
        groups.handle(&client.liveness, &request, now_ms, &|topic| (topic == "t").then_some(2))
    }

    fn register(groups: &LegacyGroups, client: &Client) -> LegacyGroupResponse {
        step(
            groups,
            client,
            0,
            LegacyGroupAction::Register {
                session_timeout_ms: 6000,
                streams: vec![("t".into(), 1)],
            },
        )
    }

    fn claim(generation: i32, partitions: &[i32], thread: &str) -> LegacyGroupAction {
        let owners = partitions
            .iter()
            .map(|&p| (TopicPartition::new("t", p), thread.into()))
            .collect();
        LegacyGroupAction::Claim { generation, owners }
    }

    #[test]
    fn a_claim_is_all_or_nothing_and_waits_for_the_old_owner_to_release() {
        let (groups, a, b) = (LegacyGroups::default(), client("g_a"), client("g_b"));
        let one = register(&groups, &a).generation;
        assert_eq!(
            step(&groups, &a, 0, claim(one, &[0, 1], "g_a-0")).error,
            ErrorCode::NONE
        );
        let two = register(&groups, &b).generation;
        assert!(two > one);
        let refused = step(&groups, &b, 0, claim(two, &[0, 1], "g_b-0"));
        assert_eq!(refused.error, ErrorCode::REBALANCE_IN_PROGRESS);
        assert!(refused.owners.iter().all(|(_, thread)| &**thread == "g_a-0"));
        assert_eq!(
            step(&groups, &a, 0, claim(one, &[0], "g_a-0")).error,
            ErrorCode::ILLEGAL_GENERATION
        );
        assert!(step(&groups, &a, 0, LegacyGroupAction::Release).owners.is_empty());
        assert_eq!(step(&groups, &b, 0, claim(two, &[1], "g_b-0")).error, ErrorCode::NONE);
        let view = step(&groups, &a, 0, claim(two, &[0], "g_a-0"));
        let owners: Vec<&str> = view.owners.iter().map(|(_, thread)| &**thread).collect();
        assert_eq!(owners, ["g_a-0", "g_b-0"]);
        assert_eq!(view.topics, [("t".into(), 2)]);
    }

    #[test]
    fn a_session_ends_with_its_owners_when_its_connection_has_been_gone_for_the_timeout_and_not_before() {
        let (groups, a, b) = (LegacyGroups::default(), client("g_a"), client("g_b"));
        register(&groups, &a);
        let two = register(&groups, &b).generation;
        step(&groups, &a, 0, claim(two, &[0], "g_a-0"));
        assert_eq!(step(&groups, &b, 1_000_000, LegacyGroupAction::View).generation, two);
        a.liveness.disconnected(1_000_000);
        assert_eq!(step(&groups, &b, 1_005_999, LegacyGroupAction::View).generation, two);
        let after = step(&groups, &b, 1_006_000, LegacyGroupAction::View);
        assert_eq!(
            (after.generation, after.members.len(), after.owners.len()),
            (two + 1, 1, 0)
        );
        assert_eq!(
            step(&groups, &a, 1_006_000, LegacyGroupAction::View).error,
            ErrorCode::UNKNOWN_MEMBER_ID
        );
    }

    #[test]
    fn a_consumer_id_belongs_to_one_connection_at_a_time() {
        let (groups, first, second) = (LegacyGroups::default(), client("g_a"), client("g_a"));
        let one = register(&groups, &first).generation;
        step(&groups, &first, 0, claim(one, &[0], "g_a-0"));
        assert_eq!(register(&groups, &second).error, ErrorCode::UNRELEASED_INSTANCE_ID);
        assert_eq!(
            step(&groups, &second, 0, LegacyGroupAction::Release).error,
            ErrorCode::UNKNOWN_MEMBER_ID
        );
        first.liveness.disconnected(1);
        let taken_over = register(&groups, &second);
        assert_eq!(
            (taken_over.error, taken_over.generation, taken_over.owners.len()),
            (ErrorCode::NONE, one + 2, 0)
        );
    }

    #[test]
    fn registering_again_unchanged_is_no_reason_to_rebalance_but_leaving_and_new_partitions_are() {
        let (groups, a, b) = (LegacyGroups::default(), client("g_a"), client("g_b"));
        let one = register(&groups, &a).generation;
        assert_eq!(register(&groups, &a).generation, one);
        let request = LegacyGroupRequest {
            group_id: "g".into(),
            consumer_id: "g_a".into(),
            action: LegacyGroupAction::View,
        };
        let grown = groups.handle(&a.liveness, &request, 2, &|_| Some(3));
        assert_eq!((grown.generation, grown.topics), (one + 1, vec![("t".into(), 3)]));
        register(&groups, &b);
        let left = step(&groups, &b, 4, LegacyGroupAction::Unregister);
        assert_eq!(left.members.len(), 1);
        assert_eq!(groups.groups.lock().by_id.len(), 1);
        assert_eq!(
            step(&groups, &b, 4, LegacyGroupAction::View).error,
            ErrorCode::UNKNOWN_MEMBER_ID
        );
    }

    #[test]
    fn a_group_without_members_is_forgotten() {
        let (groups, a, b) = (LegacyGroups::default(), client("g_a"), client("g_b"));
        // One that asks about a group, and no member.
        assert_eq!(
            step(&groups, &b, 0, LegacyGroupAction::View).error,
            ErrorCode::UNKNOWN_MEMBER_ID
        );
        assert_eq!(groups.groups.lock().by_id.len(), 0);
        let before = register(&groups, &a).generation;
        assert_eq!(groups.groups.lock().by_id.len(), 1);
        assert!(step(&groups, &a, 0, LegacyGroupAction::Unregister).members.is_empty());
        assert_eq!(groups.groups.lock().by_id.len(), 0);
        assert!(register(&groups, &a).generation > before);
    }
}
