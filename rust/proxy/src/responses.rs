//! The responses of a connection, in the order of its requests: those of the node, and those that rules for faults give instead.

use std::collections::VecDeque;

use bytes::Bytes;
use fletchlog_faults::{Answered, BLACK_HOLE, Then};

use crate::end::End;
use crate::frames::SIZE;
use crate::link::{Context, RequestId};
use crate::rewrite::rewrite;
use crate::seen::Seen;

/// Interval between the pieces of a slow response.
const PIECE_MS: i64 = 100;

/// Where the response to a request comes from.
#[derive(Debug)]
pub(crate) enum Kind {
    /// The node.
    Remote,
    /// These bytes, with the size in front.
    Local(Vec<Bytes>),
    /// There is none: the connection is closed.
    Close,
    /// There is none: the connection stays open.
    Silence,
}

/// A request without its response.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) seen: Option<Seen>,
    kind: Kind,
}

/// A response that a rule holds back, or sends in pieces.
struct Late {
    until_ms: i64,
    rest: Bytes,
    /// Bytes of a piece; `None`: all at once.
    piece: Option<usize>,
    then: Then,
}

/// The responses of one connection. A node answers the requests of a connection one after the other.
#[derive(Default)]
pub(crate) struct Responses {
    waiting: VecDeque<Waiting>,
    /// The request whose response is being collected.
    current: Option<(RequestId, Option<Seen>)>,
    late: Option<Late>,
    is_silent: bool,
    is_closing: bool,
}

impl Responses {
    /// Notes a request.
    pub(crate) fn expect(&mut self, id: RequestId, kind: Kind, seen: Option<Seen>) {
        self.waiting.push_back(Waiting { id, seen, kind });
    }

    /// Nothing of the node is passed on: a response is late, or there will be none.
    pub(crate) fn is_paused(&self) -> bool {
        self.late.is_some() || self.is_silent || self.is_closing
    }

    /// There will be no further response, and the connection stays open until the client closes it.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The connection is to be closed once everything is written.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// When the late response goes on (monotonic ms).
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.late.as_ref().map(|late| late.until_ms)
    }

    /// The requests that have no response.
    pub(crate) fn unanswered(&mut self) -> impl Iterator<Item = Seen> {
        let current = self.current.take().and_then(|(_, seen)| seen);
        let waiting = std::mem::take(&mut self.waiting);
        current
            .into_iter()
            .chain(waiting.into_iter().filter_map(|waiting| waiting.seen))
    }

    /// The request of the node's next response.
    ///
    /// # Errors
    /// The node answers another request than the oldest one.
    pub(crate) fn next(&mut self, correlation_id: i32) -> Result<Waiting, String> {
        let is_its = |first: &Waiting| first.id.correlation_id == correlation_id && matches!(first.kind, Kind::Remote);
        self.first_if(is_its).ok_or_else(|| {
            format!("a response with correlation id {correlation_id}, which is not that of the oldest request")
        })
    }

    fn first_if(&mut self, wanted: impl FnOnce(&Waiting) -> bool) -> Option<Waiting> {
        match self.waiting.front().is_some_and(wanted) {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// The response to this request is being collected.
    pub(crate) fn begin(&mut self, id: RequestId, seen: Option<Seen>) {
        self.current = Some((id, seen));
    }

    /// A response was collected: its addresses are replaced, and rules decide about it.
    ///
    /// # Errors
    /// It cannot be read, or has addresses for which there is no port.
    pub(crate) fn arrived(&mut self, cx: &mut Context<'_>, client: &mut End, frame: Bytes) -> Result<(), String> {
        let Some((id, seen)) = self.current.take() else {
            client.push(frame);
            return Ok(());
        };
        let rewritten = rewrite(&frame[SIZE..], id.api_key, id.version, cx.found)
            .map_err(|error| format!("a response to API {} of version {}: {error}", id.api_key, id.version))?;
        let chunks = match rewritten {
            None => vec![frame],
            Some(body) => {
                let size = i32::try_from(body.len()).map_err(|_| "a response of 2 GiB".to_owned())?;
                vec![Bytes::copy_from_slice(&size.to_be_bytes()), body.into()]
            }
        };
        match seen {
            Some(seen) => self.decided(cx, client, seen, chunks),
            None => chunks.into_iter().for_each(|chunk| client.push(chunk)),
        }
        Ok(())
    }

    /// A request that has no response was sent to the node.
    pub(crate) fn without_response(&mut self, cx: &mut Context<'_>, client: &mut End, seen: Seen) {
        self.decided(cx, client, seen, Vec::new());
    }

    fn decided(&mut self, cx: &mut Context<'_>, client: &mut End, seen: Seen, chunks: Vec<Bytes>) {
        let Answered {
            delay_ms,
            chunks,
            bytes_per_second,
            then,
            ..
        } = seen.answered(cx.faults, cx.recorder, chunks);
        let piece = bytes_per_second.map(|rate| {
            let a_second = usize::try_from(1000 / PIECE_MS).unwrap_or(1);
            usize::try_from(rate).unwrap_or(usize::MAX).div_ceil(a_second).max(1)
        });
        if delay_ms == 0 && piece.is_none() {
            chunks.into_iter().for_each(|chunk| client.push(chunk));
            return self.then(then);
        }
        self.late = Some(Late {
            until_ms: cx.now_ms.saturating_add(delay_ms),
            rest: chunks.concat().into(),
            piece,
            then,
        });
        self.send_late(cx, client);
    }

    fn then(&mut self, then: Then) {
        match then {
            Then::Continue => {}
            Then::Close => self.is_closing = true,
            Then::Nothing => self.is_silent = true,
        }
    }

    /// Sends what is due of a late response.
    pub(crate) fn send_late(&mut self, cx: &Context<'_>, client: &mut End) {
        while let Some(mut late) = self.late.take_if(|late| late.until_ms <= cx.now_ms) {
            let size = late.piece.unwrap_or(usize::MAX).min(late.rest.len());
            client.push(late.rest.split_to(size));
            if late.rest.is_empty() {
                self.then(late.then);
            } else {
                late.until_ms = cx.now_ms.saturating_add(PIECE_MS);
                self.late = Some(late);
            }
        }
    }

    /// Gives the responses of rules whose turn it is. Not in the middle of a response of the node.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, client: &mut End) {
        while !self.is_paused()
            && let Some(first) = self.first_if(|first| !matches!(first.kind, Kind::Remote))
        {
            match (first.kind, first.seen) {
                (Kind::Local(chunks), Some(seen)) => self.decided(cx, client, seen, chunks),
                (Kind::Local(chunks), None) => chunks.into_iter().for_each(|chunk| client.push(chunk)),
                (Kind::Close, seen) => {
                    self.is_closing = true;
                    if let Some(seen) = seen {
                        seen.ended(cx.faults, cx.recorder, "closed");
                    }
                }
                (Kind::Silence | Kind::Remote, seen) => {
                    self.is_silent = true;
                    // It has no response until the connection is closed.
                    self.current = seen.map(|mut seen| {
                        seen.silent(cx.recorder, BLACK_HOLE);
                        (first.id, Some(seen))
                    });
                }
            }
        }
    }
}
