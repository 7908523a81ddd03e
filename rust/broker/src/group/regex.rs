//! Regular expressions that members of consumer groups subscribe to (spec 8.10). They are resolved apart from the heartbeats, when timed
//! work is next done. Kafka: `GroupMetadataManager#maybeUpdateRegularExpressions`, `#refreshRegularExpressions`,
//! `#handleRegularExpressionsResult`.
//!
//! Kafka's are RE2J's. The crate `regex` has nearly the same syntax. Where it does not know a form of RE2J (`\Q..\E`, `\C`, `\pN`), knows more
//! than RE2J, or reads the same text otherwise, an expression is refused as invalid:
//!
//! | form | RE2J | the crate |
//! |---|---|---|
//! | `[` in a class, and `&&`, `--`, `~~` there | mean themselves | a class in a class, operations on classes |
//! | `{,n}` | means itself | `{0,n}` |
//! | `\<`, `\>` | mean themselves | begin and end of a word |
//! | `\b{start}` and the like | a repetition | begin and end of a word |
//! | the flags x, u, R | unknown | known |

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
    if let Some(form) = other_form(text) {
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

/// A form that RE2J reads otherwise, or not at all.
fn other_form(text: &str) -> Option<&'static str> {
    let mut chars = text.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match (c, next) {
            ('\\', Some(escaped)) => {
                chars.next();
                match escaped {
                    '<' => return Some("\\<"),
                    '>' => return Some("\\>"),
                    'b' if !in_class && chars.peek() == Some(&'{') => return Some("\\b{"),
                    _ => {}
                }
            }
            ('[', _) if !in_class => {
                in_class = true;
                chars.next_if_eq(&'^');
                chars.next_if_eq(&']');
            }
            // A class by its name, as in `[[:alpha:]]`.
            ('[', Some(':')) => drop(chars.by_ref().find(|c| *c == ']')),
            ('[', _) => return Some("["),
            (']', _) => in_class = false,
            ('&', Some('&')) if in_class => return Some("&&"),
            ('-', Some('-')) if in_class => return Some("--"),
            ('~', Some('~')) if in_class => return Some("~~"),
            ('{', Some(',')) if !in_class => return Some("{,"),
            ('(', Some('?')) if !in_class => {
                let flags = chars
                    .clone()
                    .skip(1)
                    .take_while(|c| c.is_ascii_alphabetic() || *c == '-');
                let mut flags = flags.take_while(|c| *c != 'P');
                if flags.any(|flag| matches!(flag, 'x' | 'u' | 'R')) {
                    return Some("(?x)");
                }
            }
            _ => {}
        }
    }
    None
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

    #[test]
    fn what_is_read_otherwise_than_by_re2j_is_refused() {
        let known = [
            "",
            ".*",
            "(?i)t-[[:alpha:]_]+",
            "[^]a]",
            "a{1,3}",
            "(?P<name>x)",
            "x\\.y",
            "[a-c-]",
            "\\d{2}",
            "(?:x|y)",
            "[\\[]",
        ];
        for text in known {
            assert!(compile(text).is_ok(), "{text}");
        }
        let refused = [
            "(",
            "a{2,1}",
            "(?=a)",
            "a)(b",
            "[a&&b]",
            "[a--b]",
            "[a~~b]",
            "[[a]]",
            "a{,2}",
            "\\<a",
            "a\\>",
            "\\b{start}a",
            "(?x)a",
            "(?i-u)a",
            "\\Qa\\E",
            "[",
            "\\",
        ];
        for text in refused {
            assert!(compile(text).is_err(), "{text}");
        }
    }
}
