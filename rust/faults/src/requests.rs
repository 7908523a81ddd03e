//! The record of what clients asked for, and of what became of it.

use std::collections::VecDeque;
use std::sync::Arc;

use fletchlog_records::ErrorCode;

use crate::request_view::RequestView;

/// Most requests that are kept.
const KEPT: usize = 100_000;

/// One request and what became of it.
#[derive(Debug, Clone)]
pub struct RequestRow {
    /// Number of the request, from 1, over all connections in the order of arrival.
    pub number: u64,
    /// When it arrived, ms since the epoch, by the broker's clock.
    pub time_ms: i64,
    /// What it asked for.
    pub request: RequestView,
    /// How long it took until its response was ready, ms; `None`: it has none yet.
    pub duration_ms: Option<i64>,
    /// Bytes of the response with its header, without its size.
    pub response_bytes: Option<usize>,
    /// The errors in the response, each once, in the order of the response.
    pub errors: Vec<ErrorCode>,
    /// "pending", "answered", "without response" (acks=0), "closed" (the broker ended the connection), "client gone", or what a rule did.
    pub outcome: &'static str,
    /// The rule that applied to it.
    pub fault: Option<Arc<str>>,
    /// Monotonic time of its arrival.
    pub(crate) arrived_ms: i64,
}

/// The newest requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    rows: VecDeque<RequestRow>,
    last: u64,
}

impl Requests {
    /// Adds a request; returns its number.
    pub(crate) fn push(&mut self, is_kept: bool, row: impl FnOnce(u64) -> RequestRow) -> u64 {
        self.last += 1;
        if is_kept {
            if self.rows.len() == KEPT {
                self.rows.pop_front();
            }
            self.rows.push_back(row(self.last));
        }
        self.last
    }

    /// A row that is still kept.
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut RequestRow> {
        let first = self.rows.front()?.number;
        let row = self.rows.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)?;
        (row.number == number).then_some(row)
    }

    /// All rows, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &RequestRow> {
        self.rows.iter()
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }
}
