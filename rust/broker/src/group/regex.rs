//! Regular expressions that members of consumer groups subscribe to (spec 8.10). They are resolved apart from the heartbeats, when timed
//! work is next done. Kafka: `GroupMetadataManager#maybeUpdateRegularExpressions`, `#refreshRegularExpressions`,
//! `#handleRegularExpressionsResult`.
//!
//! Kafka's are RE2J's; [`super::re2j`] says which ones the crate `regex` reads as RE2J does.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_protocol::local::JoinSender;
use fletchlog_protocol::values::ConsumerGroupRegularExpressionValue;
use regex::Regex;

use super::consumer_change::Change;
use super::consumer_group::ConsumerGroup;
use super::consumer_records::ConsumerRecord;
use super::coordinator::GroupCoordinator;
use super::member::ClientLiveness;
use super::re2j;
use super::state::Group;
use crate::security::{AclOperation, Action, Principal, ResourceType};
use crate::topics::TopicTable;

/// The expressions of a group are resolved again after so many ms at the earliest. Kafka:
/// `GroupMetadataManager#REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`.
pub(super) const REFRESH_INTERVAL_MS: i64 = 10_000;

/// Bytes that a compiled expression may take.
const SIZE_LIMIT: usize = 1 << 20;

/// An expression that a whole name has to match; the error says what is wrong with it. Kafka: `Pattern#matches` of RE2J.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    if let Some(form) = re2j::other_form(text) {
        return Err(format!(
            "SubscribedTopicRegex `{text}` is not a valid regular expression: `{form}` is not supported."
        ));
    }
    // What means itself must be an expression, and not only within the brackets that are put around it.
    let whole = format!("^(?:{text})$");
    let compiled = |text: &str| regex::RegexBuilder::new(text).size_limit(SIZE_LIMIT).build();
    let why =
        |error: regex::Error| format!("SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.");
    compiled(text).map_err(why)?;
    compiled(&whole).map_err(why)
}

/// Whose request had the expressions resolved: for the whole group, only topics match that this client may describe. Kafka: the
/// `AuthorizableRequestContext` of `TopicRegexResolver#resolveRegularExpressions`.
#[derive(Debug)]
pub(crate) struct Requester {
    /// `None`: it may describe every topic.
    principal: Option<Arc<str>>,
    host: Arc<str>,
}

impl ConsumerGroup {
    /// Has the expressions resolved when timed work is next done. The first request since they were resolved counts.
    pub(super) fn resolve_for(&mut self, sender: &JoinSender, client: &ClientLiveness) {
        self.resolves.get_or_insert_with(|| Requester {
            principal: sender.principal.clone(),
            host: Arc::from(client.host().trim_start_matches('/')),
        });
    }
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
        let Some(consumer) = group.consumer.as_deref_mut() else {
            return;
        };
        let Some(requester) = consumer.resolves.take() else {
            return;
        };
        consumer.regexes_checked = true;
        let authorizer = self.replicas.controller().authorizer();
        let may_describe = |topic: &str| match (&authorizer, &requester.principal) {
            (Some(authorizer), Some(name)) => authorizer.authorize(
                Principal {
                    name,
                    host: &requester.host,
                },
                Action {
                    operation: AclOperation::Describe,
                    resource_type: ResourceType::Topic,
                    resource_name: topic,
                },
            ),
            _ => true,
        };
        let table = self.replicas.topic_table();
        let resolved = matches(consumer.regexes(), &table, may_describe);
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

/// The topics that match each expression, of those that the client may describe; each topic is asked about once. Kafka:
/// `TopicRegexResolver#filterTopicDescribeAuthorizedTopics`.
fn matches<'a>(
    regexes: impl Iterator<Item = &'a Arc<str>>,
    table: &TopicTable,
    may_describe: impl Fn(&str) -> bool,
) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let compiled = regexes.filter_map(|text| Some((Arc::clone(text), compile(text).ok()?, Vec::new())));
    let mut compiled: Vec<_> = compiled.collect();
    for topic in table.iter() {
        let mut may = None;
        for (_, regex, topics) in &mut compiled {
            if regex.is_match(&topic.name) && *may.get_or_insert_with(|| may_describe(&topic.name)) {
                topics.push(Arc::clone(&topic.name));
            }
        }
    }
    compiled.into_iter().map(|(text, _, topics)| (text, topics)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_has_to_match() {
        let regex = compile("a|b.").unwrap();
        let matching: Vec<&str> = ["a", "b", "bx", "xa", "bxy"]
            .into_iter()
            .filter(|n| regex.is_match(n))
            .collect();
        assert_eq!(matching, ["a", "bx"]);
    }

    /// Recorded from a real 4.4.0 (which topics each expression matched).
    #[test]
    fn what_both_read_matches_what_kafka_matched() {
        let topics = ["a", "b", "A", "K", "aa", "ab", "a1", "11", "a-b", "t.1", "pN"];
        let expected = [
            ("", ""),
            (".*", "a b A K aa ab a1 11 a-b t.1 pN"),
            ("(?i)A", "a A"),
            ("(?i:a)b|(?-i)B", "ab"),
            ("(?m)^a$", "a"),
            ("(?U)a{1,2}", "a aa"),
            ("\\Aa\\z|\\bb\\b", "a b"),
            ("[[:alpha:]]+", "a b A K aa ab pN"),
            ("[^]a]", "b A K"),
            ("[a-c-]+", "a b aa ab a-b"),
            ("a[\\d-]?\\w?", "a aa ab a1 a-b"),
            ("\\p{Lu}", "A K"),
            ("\\p{Ll}\\p{N}|\\pL\\P{Ll}", "a1 pN"),
            ("(?i)\\p{Latin}", "a b A K"),
            ("(?P<n>a)(?<m>b)", "ab"),
            ("\\x61|t\\.\\x{31}", "a t.1"),
            ("(a*)*|(a|b)(b|)", "a b aa ab"),
            ("(?i)\u{212A}", "K"),
            ("\\p{Greek}|\\p{Any}\\pN", "a1 11"),
        ];
        for (text, wanted) in expected {
            let regex = compile(text).unwrap_or_else(|why| panic!("{why}"));
            let matching = topics.into_iter().filter(|topic| regex.is_match(topic));
            assert_eq!(matching.collect::<Vec<_>>().join(" "), wanted, "{text}");
        }
    }

    /// Kafka refuses these too (4.4.0), but those of the last two lines: it reads them otherwise than the crate.
    #[test]
    fn what_is_read_otherwise_than_by_re2j_is_refused() {
        let refused = "( a) a)(b a{2,1} (?=a) (?<!a)b (?>a) (a)\\1 \\C \\Z \\h \\e \\cA [ [a [b-a] [\\b] \\ * a|* \
            \\p{IsLatin} \\p{Alpha} \\p{lu} \\p{latin} \\p{Letter} \\p{sc=Latin} \\p{Alphabetic} \\p{Cn} \\p{LC} \\p{L&} \\p{Foo} [\\p{ASCII}] \
            \\u0061 \\u{61} \\U00000061 [\\u0061] [a-\\u{62}] \\x{110000} [[:foo:]] [[::]] (?P<n>a)(?P<n>b) (?P<\u{e9}>a) (?P<n.m>a) \
            a** a*+ a++ a+* (a+){2}{3} a{2}?? a{2}+ a{1001} a{1,1001} a{1001,} (?x)a (?i-u)a (?R)a (?u:a) (?i-)a (?#a) \
            [a&&b] [a~~b] [a--b] [--a] [^--a] [[a]] [a-z&&[^b]] a{,2} a{ {a} \\<a a\\> \\b{start}a \\B{x} \\Qa\\E \\Q.\\E \
            \\0 \\141 \\p{^L} (?ii)a (?P<1>a) [[a] \\\u{e9}";
        for text in refused.split_whitespace() {
            assert!(compile(text).is_err(), "{text}");
        }
        let why = compile("a\\pN\\p{Letter}").unwrap_err();
        assert!(why.contains("`\\p{Letter}` is not supported"), "{why}");
    }
}
