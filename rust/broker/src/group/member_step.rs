//! What a request of a member does to its group, whichever protocol it uses: the member's record, the group's epoch, the target, the
//! member's next step. Kafka: `GroupMetadataManager#consumerGroupHeartbeat`, `#classicGroupJoinToConsumerGroup`.

use std::sync::Arc;

use fletchlog_protocol::values::ConsumerGroupMemberMetadataValue;
use fletchlog_records::planted;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_member::{Partitions, nothing_reported, regex_of};
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::metadata_hash::group_hash;
use super::reconcile::CurrentAssignmentBuilder;
use super::regex::REFRESH_INTERVAL_MS;
use super::target_assignment;
use crate::topics::TopicTable;

/// A request of a member.
pub(super) struct Step<'a> {
    pub(super) member_id: &'a Arc<str>,
    /// What it has reported of itself, with this request.
    pub(super) metadata: ConsumerGroupMemberMetadataValue,
    /// The partitions that it has, as it reports.
    pub(super) owned: Option<&'a Partitions>,
}

/// What the request did.
pub(super) struct Stepped {
    /// The partitions that are assigned to the member are others than before.
    pub(super) assigned_changed: bool,
    pub(super) current_changed: bool,
    /// The regular expressions of the group are to be resolved.
    pub(super) resolves: bool,
}

impl GroupCoordinator {
    /// Does what the request means for the group.
    pub(super) fn step(&self, change: &mut Change<'_>, step: Step<'_>) -> Stepped {
        let before = change.group.member(step.member_id).cloned();
        let old = before.as_ref().map(|member| Arc::clone(&member.metadata));
        let old = old.unwrap_or_else(|| Arc::new(nothing_reported()));
        let metadata = Arc::new(step.metadata);
        let preferred = change.group.preferred_assignor().cloned();
        let topics_changed = self.topics_changed(change);
        let last_resolved_ms = last_resolved_ms(change.group);
        let (old_regex, new_regex) = (regex_of(&old).cloned(), regex_of(&metadata).cloned());
        let brings_regex = old_regex != new_regex && new_regex.as_ref().is_some_and(|r| change.group.users_of(r) == 0);
        if before.is_none() || *old != *metadata {
            let id = Arc::clone(step.member_id);
            change.apply(ConsumerRecord::Member(id, Some(Arc::clone(&metadata))));
        }
        if let Some(regex) = old_regex.clone().filter(|regex| change.group.users_of(regex) == 0) {
            change.apply(ConsumerRecord::Regex(regex, None));
        }
        let names_changed = old.subscribed_topic_names != metadata.subscribed_topic_names;
        let regex_in_effect = match &new_regex {
            None => true,
            Some(regex) => change.group.resolved(regex).is_some(),
        };
        let subscription_changed = names_changed || old_regex != new_regex;
        let table = self.replicas.topic_table();
        let bumps = names_changed
            || (old_regex != new_regex && regex_in_effect)
            || self.effective(preferred.as_ref()) != self.effective(change.group.preferred_assignor());
        if bumps || topics_changed || subscription_changed {
            self.bump(change, &table, bumps, topics_changed);
        }
        self.update_target(change, &table);
        let resolves = brings_regex || {
            let group = &change.group;
            let unresolved = group.regexes().count() != group.all_resolved().len();
            unresolved || self.regexes_are_old(group, &table)
        };
        drop(table);
        let waited =
            last_resolved_ms.is_none_or(|ms| self.replicas.clock().now_ms() > ms.saturating_add(REFRESH_INTERVAL_MS));
        let changed = self.reconcile(change, step.member_id, subscription_changed, step.owned);
        Stepped {
            resolves: resolves && waited && change.group.regexes().next().is_some(),
            ..changed
        }
    }

    /// Whether topics that the group subscribes to were made, deleted or have grown since the last look. Kafka:
    /// `ModernGroup#hasMetadataExpired`, which is so for the groups that subscribe to a topic that changed.
    fn topics_changed(&self, change: &mut Change<'_>) -> bool {
        let table = self.replicas.topic_table();
        let Some((version, seen)) = change.group.seen else {
            return true;
        };
        if version == table.version() {
            return false;
        }
        let hash = group_hash(&table, &change.group.subscribed_topics());
        change.seen = Some((table.version(), hash));
        hash != seen
    }

    /// A new epoch of the group if it has to have one, or if its topics have changed and their hash is another than that of the epoch.
    pub(super) fn bump(&self, change: &mut Change<'_>, table: &TopicTable, bumps: bool, topics_changed: bool) {
        let group = &change.group;
        let hash = group_hash(table, &group.subscribed_topics());
        let epoch = group.epoch.saturating_add(1);
        change.seen = Some((table.version(), hash));
        if (bumps && !planted!("group-epoch-not-raised")) || (topics_changed && hash != group.metadata_hash) {
            change.apply(ConsumerRecord::Epoch(Some((epoch, hash))));
        }
    }

    /// Computes the target if the group's epoch is newer, unless the previous one was computed a moment ago. Kafka:
    /// `GroupMetadataManager#maybeUpdateTargetAssignment`.
    fn update_target(&self, change: &mut Change<'_>, table: &TopicTable) {
        let group = &change.group;
        if group.epoch <= group.assignment_epoch {
            return;
        }
        let interval_ms = i64::from(self.group_config(&change.group_id, "consumer.assignment.interval.ms"));
        if !self.may_assign(group.assignment_timestamp_ms, interval_ms) {
            return;
        }
        let assignor = self.effective(group.preferred_assignor());
        let target = target_assignment::compute(group, &assignor, table);
        let epoch = group.epoch;
        for (id, target) in target {
            if change.group.target(&id).is_none_or(|known| **known != target) {
                change.apply(ConsumerRecord::Target(id, Some(Arc::new(target))));
            }
        }
        change.apply(ConsumerRecord::TargetEpoch(Some((
            epoch,
            self.replicas.clock().now_ms(),
        ))));
    }

    /// The member's next step. Kafka: `GroupMetadataManager#maybeReconcile`.
    fn reconcile(
        &self,
        change: &mut Change<'_>,
        id: &Arc<str>,
        subscription_changed: bool,
        owned: Option<&Partitions>,
    ) -> Stepped {
        let mut stepped = Stepped {
            assigned_changed: false,
            current_changed: false,
            resolves: false,
        };
        let group: &ConsumerGroup = change.group;
        let Some(member) = group.member(id) else { return stepped };
        let none = Partitions::new();
        let table = self.replicas.topic_table();
        let is_subscribed = |topic: &_| {
            let name = table.name_of(topic);
            name.is_some_and(|name| group.subscribes(&member.metadata, name))
        };
        let builder = CurrentAssignmentBuilder {
            current: &member.current,
            target_epoch: group.assignment_epoch,
            target: group.target(id).map_or(&none, |target| target),
            is_subscribed: &is_subscribed,
            subscription_changed,
            owned,
            is_free: &|topic, partition| group.is_free(topic, partition),
        };
        let next = builder.build();
        stepped.current_changed = next != member.current;
        stepped.assigned_changed = !same_partitions(&next, &member.current);
        drop(table);
        if stepped.current_changed {
            change.apply(ConsumerRecord::Current(Arc::clone(id), Some(next)));
        }
        stepped
    }

    /// The assignor in effect: the one that most members ask for, else the broker's first.
    pub(super) fn effective(&self, preferred: Option<&Arc<str>>) -> Arc<str> {
        match preferred {
            Some(preferred) => Arc::clone(preferred),
            None => self.assignors().first().cloned().unwrap_or_default(),
        }
    }
}

fn same_partitions(
    a: &super::consumer_member::CurrentAssignment,
    b: &super::consumer_member::CurrentAssignment,
) -> bool {
    let same = |(x, y): (
        &std::collections::BTreeMap<i32, i32>,
        &std::collections::BTreeMap<i32, i32>,
    )| x.keys().eq(y.keys());
    a.assigned.keys().eq(b.assigned.keys()) && a.assigned.values().zip(b.assigned.values()).all(same)
}

/// When regular expressions were last resolved (wall clock), if any are. Kafka:
/// `ConsumerGroup#lastResolvedRegularExpressionRefreshTimeMs`.
fn last_resolved_ms(group: &ConsumerGroup) -> Option<i64> {
    group.all_resolved().values().map(|resolved| resolved.timestamp).max()
}
