//! Regular expressions that members of consumer groups subscribe to (spec 8.10). They are resolved apart from the heartbeats, when timed
//! work is next done. Kafka: `GroupMetadataManager#maybeUpdateRegularExpressions`, `#refreshRegularExpressions`,
//! `#handleRegularExpressionsResult`.
//!
//! Kafka's are RE2J's, whose syntax is the one of the crate `regex` but for a few rare forms. An expression that only RE2J knows is
//! refused as invalid.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_protocol::values::ConsumerGroupRegularExpressionValue;
use regex::Regex;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::state::Group;
use crate::topics::TopicTable;

/// The expressions of a group are resolved again after so many ms at the earliest. Kafka:
/// `GroupMetadataManager#REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`.
pub(super) const REFRESH_INTERVAL_MS: i64 = 10_000;

/// Bytes that a compiled expression may take.
const SIZE_LIMIT: usize = 1 << 20;

/// An expression that a whole name has to match; the error says what is wrong with it. Kafka: `Pattern#matches` of RE2J.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    // What stands for itself must be an expression, and not only within the brackets that are put around it.
    let whole = format!("^(?:{text})$");
    let compiled = |text: &str| regex::RegexBuilder::new(text).size_limit(SIZE_LIMIT).build();
    let why =
        |error: regex::Error| format!("SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.");
    compiled(text).map_err(why)?;
    compiled(&whole).map_err(why)
}

impl GroupCoordinator {
    /// Whether topics may match that were created since the expressions were resolved, or that was long ago.
    pub(super) fn regexes_are_old(&self, group: &ConsumerGroup, table: &TopicTable) -> bool {
        let interval_ms = i64::from(self.config_in_effect().int("group.consumer.regex.refresh.interval.ms"));
        let now_ms = self.replicas.clock().now_ms();
        let is_old = |resolved: &Arc<ConsumerGroupRegularExpressionValue>| {
            resolved.version != table.created() || now_ms > resolved.timestamp.saturating_add(interval_ms)
        };
        !group.regexes_checked || group.all_resolved().values().any(is_old)
    }

    /// Resolves all regular expressions of the group. If any matches other topics than before, the group has a new epoch.
    pub(super) fn resolve_regexes(&self, group: &mut Group) {
        let group_id = Arc::clone(&group.id);
        let Some(consumer) = group.consumer.as_deref_mut().filter(|consumer| consumer.resolves) else {
            return;
        };
        consumer.resolves = false;
        consumer.regexes_checked = true;
        let table = self.replicas.topic_table();
        let resolved = matches(consumer.regexes(), &table);
        let mut change = Change::of(&group_id, consumer);
        let mut bumps = false;
        for (regex, topics) in resolved {
            let known = change.group.resolved(&regex).map(|known| known.topics.as_slice());
            bumps |= known.unwrap_or_default() != topics;
            let value = ConsumerGroupRegularExpressionValue {
                topics,
                version: table.created(),
                timestamp: self.replicas.clock().now_ms(),
            };
            change.apply(ConsumerRecord::Regex(regex, Some(Arc::new(value))));
        }
        if bumps {
            self.bump(&mut change, &table, true, false);
        }
        drop(table);
        // The failure is logged where the records are written; a later heartbeat tries again.
        let _ = self.commit_change(change);
    }
}

/// The topics that match each expression.
fn matches<'a>(regexes: impl Iterator<Item = &'a Arc<str>>, table: &TopicTable) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let topics_of = |text: &Arc<str>| {
        let regex = compile(text).ok()?;
        let topics = table.iter().filter(|topic| regex.is_match(&topic.name));
        Some((Arc::clone(text), topics.map(|topic| Arc::clone(&topic.name)).collect()))
    };
    regexes.filter_map(topics_of).collect()
}
