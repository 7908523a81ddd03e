//! A request on its way: what is decided about it, and about its response.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::tree::Tree;

use crate::rule::{Action, Rule};

/// The outcome of a request without a response on an open connection.
pub const BLACK_HOLE: &str = "black hole";

/// A request between its arrival and its response.
#[derive(Debug)]
pub struct Exchange {
    pub(super) number: u64,
    pub(crate) header: RequestHeader,
    /// What happens to its response.
    pub(super) after: After,
    /// The rule that applies to it.
    pub(super) rule: Option<Arc<Rule>>,
}

impl Exchange {
    /// The rule that applies to it: its name, or the rule as JSON.
    pub fn fault(&self) -> Option<Arc<str>> {
        self.rule.as_deref().map(describe)
    }

    /// Whether a rule says anything about the response.
    pub(crate) fn is_changed(&self) -> bool {
        !matches!(self.after, After::Nothing)
    }

    /// Whether the response will have other content.
    pub(crate) fn changes_response(&self) -> bool {
        matches!(
            self.after,
            After::Merge(..) | After::Mark(_) | After::Act(Action::Throttle(_))
        )
    }

    /// The same, whose response is left as it is.
    pub(crate) fn without_change(self) -> Self {
        let after = match self.changes_response() {
            true => After::Nothing,
            false => self.after,
        };
        Self { after, ..self }
    }

    /// The pause that a rule asks the client for, ms.
    pub(crate) fn throttle_ms(&self) -> Option<i64> {
        match self.after {
            After::Act(Action::Throttle(ms)) => Some(ms.into()),
            _ => None,
        }
    }
}

/// What happens to a response.
#[derive(Debug, Default)]
pub(super) enum After {
    #[default]
    Nothing,
    Act(Action),
    /// These entries are put into the response, in place of what the rule selects.
    Merge(Box<Tree>, Arc<Rule>),
    /// Everything that the rule selects gets its error.
    Mark(Arc<Rule>),
}

/// When a request may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At once.
    No,
    /// After so many ms.
    Ms(i64),
    /// When the rule with this number is released: see [`Faults::on_release`].
    Release(u64),
}

/// What to do with a request.
#[derive(Debug)]
pub enum Step {
    /// Carry it out. The frame may be another one than arrived.
    Handle(Bytes),
    /// Answer with these bytes, the size in front.
    Answer(Vec<Bytes>),
    /// Close the connection.
    Close,
    /// Nothing: no response, no other request.
    Nothing,
}

/// The decision about a request.
#[derive(Debug)]
pub struct Arrived {
    /// Give it to [`Faults::answered`] or [`Faults::ended`].
    pub exchange: Exchange,
    /// First this.
    pub wait: Wait,
    /// Then this.
    pub step: Step,
}

/// What to do with a connection once the bytes of a response are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    Continue,
    /// Close it.
    Close,
    /// No other request.
    Nothing,
}

/// The decision about a response.
#[derive(Debug)]
pub struct Answered {
    /// Wait for so many ms first.
    pub delay_ms: i64,
    /// The bytes to send.
    pub chunks: Vec<Bytes>,
    /// At most so many bytes a second; `None`: at once.
    pub bytes_per_second: Option<u32>,
    /// And then.
    pub then: Then,
    /// What became of the request, as in [`RequestRow::outcome`].
    pub outcome: &'static str,
}

/// A rule in one line.
pub(super) fn describe(rule: &Rule) -> Arc<str> {
    match rule.name.is_empty() {
        true => crate::plan::rule_json(rule).to_string().into(),
        false => rule.name.as_str().into(),
    }
}
