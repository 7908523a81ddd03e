//! A rule: which requests, and what happens to them.

use std::ops::RangeInclusive;

use fletchlog_records::ErrorCode;

use crate::request_view::RequestView;

/// What a connection gets for [`Action::TlsFailure`]. A TLS record: alert, version 1.2, two bytes: fatal, `handshake_failure`. RFC 8446,
/// section 6.
pub const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// A text with `*` for any characters, also none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(pub String);

impl Glob {
    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// Which requests a rule is about. What is not given matches every request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    /// Kafka's names of APIs, such as "Produce".
    pub api: Vec<&'static str>,
    /// Versions of the API.
    pub version: Option<RangeInclusive<i16>>,
    /// client.id.
    pub client_id: Option<Glob>,
    /// Number of the connection: the first one that a listener accepts is 1.
    pub connection: Option<u64>,
    /// Id of the node that was asked.
    pub node: Option<i32>,
    /// A topic of the request.
    pub topic: Option<Glob>,
    /// A partition of the request.
    pub partition: Option<i32>,
    /// A group of the request.
    pub group: Option<Glob>,
    /// A transactional id of the request.
    pub transactional_id: Option<Glob>,
}

/// When an action without an answer of its own happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The request is not carried out.
    BeforeHandling,
    /// The request is carried out, and its response is discarded.
    AfterHandling,
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The response has an error: in the partitions that the rule selects, or everywhere. Partitions without it are carried out.
    Error {
        /// The error.
        code: ErrorCode,
        /// The request is carried out all the same.
        handled: bool,
        /// `log_start_offset` beside the error, in a response of Produce; `None`: -1.
        log_start_offset: Option<i64>,
    },
    /// The connection is closed.
    Close(When),
    /// No response, and the connection stays open.
    BlackHole(When),
    /// The request is carried out after this many ms.
    Delay(i64),
    /// The response is sent this many ms after it was made.
    DelayResponse(i64),
    /// The request waits until the rule is released.
    Hold,
    /// The response asks the client to pause for this many ms.
    Throttle(i32),
    /// Only so many bytes of the response are sent (its size included), then the connection is closed.
    Cut(usize),
    /// The response has another correlation id.
    WrongCorrelationId,
    /// The response is sent at this many bytes a second.
    Slow(u32),
    /// A connection is closed as soon as it is accepted.
    RefuseConnection,
    /// A connection gets a TLS alert (`handshake_failure`) and is closed.
    TlsFailure,
}

/// A rule of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name in reports; empty: it is described by its content.
    pub name: String,
    /// Which requests.
    pub selector: Selector,
    /// What happens.
    pub action: Action,
    /// How long the request waits before that, ms; 0: not at all.
    pub delay_ms: i64,
    /// The first match that it applies to, from 1.
    pub nth: u64,
    /// To how many requests it applies at most; `None`: until it is cleared.
    pub times: Option<u64>,
    /// Whether it may never apply.
    pub optional: bool,
}

impl Selector {
    /// Whether it selects single topics or partitions of a request.
    pub fn is_partial(&self) -> bool {
        self.topic.is_some() || self.partition.is_some()
    }

    /// Whether it selects this partition of a topic; `None`: a request that names topics without partitions.
    pub fn has(&self, topic: &str, partition: Option<i32>) -> bool {
        self.topic.as_ref().is_none_or(|glob| glob.matches(topic))
            && self
                .partition
                .is_none_or(|wanted| partition.is_none_or(|found| wanted == found))
    }

    /// Whether it is for connections of this node.
    pub(crate) fn matches_connection(&self, connection: u64, node: i32) -> bool {
        self.connection.is_none_or(|wanted| wanted == connection) && self.node.is_none_or(|wanted| wanted == node)
    }

    /// Whether it selects a request.
    pub fn matches(&self, request: &RequestView) -> bool {
        let any = |glob: &Option<Glob>, texts: &[std::sync::Arc<str>]| {
            glob.as_ref()
                .is_none_or(|glob| texts.iter().any(|text| glob.matches(text)))
        };
        (self.api.is_empty() || self.api.contains(&request.api))
            && self
                .version
                .as_ref()
                .is_none_or(|range| range.contains(&request.version))
            && self
                .client_id
                .as_ref()
                .is_none_or(|glob| glob.matches(&request.client_id))
            && self.matches_connection(request.connection, request.node)
            && any(&self.group, &request.groups)
            && any(&self.transactional_id, &request.transactional_ids)
            && (!self.is_partial() || self.selects_any(request))
    }

    fn selects_any(&self, request: &RequestView) -> bool {
        request
            .topics
            .iter()
            .any(|(topic, partitions)| match partitions.is_empty() {
                true => self.partition.is_none() && self.has(topic, None),
                false => partitions.iter().any(|partition| self.has(topic, Some(*partition))),
            })
    }
}

impl Action {
    /// Whether it is about connections, not requests.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::RefuseConnection | Self::TlsFailure)
    }

    /// Whether it is about the bytes of a socket, which a client in this process does not have.
    pub(crate) fn is_of_bytes(&self) -> bool {
        self.is_of_connection() || matches!(self, Self::Cut(_) | Self::WrongCorrelationId | Self::Slow(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        for (glob, text, expected) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("", "", true),
            ("*", "", true),
            ("orders-*", "orders-7", true),
            ("*-7", "orders-7", true),
            ("o*d*s", "orders", true),
            ("o*d*s", "order", false),
            ("a*a", "a", false),
            ("a*ab*b", "aabb", true),
            ("ä*", "äü", true),
        ] {
            assert_eq!(Glob(glob.to_owned()).matches(text), expected, "{glob} {text}");
        }
    }
}
