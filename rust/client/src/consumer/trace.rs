//! What the consumer did and why, event by event: the source of `consumer.trace()` and of `fletchlog explain`.
//! Costs one branch per event while it is off.

use std::borrow::Cow;

use fletchlog_api::{FetchRequest, FetchResponse, NodeId};
use fletchlog_records::{BatchIter, TopicPartition};

use super::trace_events::TraceEvents;

/// What happened. The name is the value of the `kind` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceKind {
    /// The program called a method that changes what is read: `text` = its name, `records` = partitions (topics) given.
    Called,
    /// A partition (subscribe: a topic) given to that call, in the order given; `offset` of a seek.
    CalledPartition,
    /// The assignment is another one since the last event of this kind: one event per partition, in request order;
    /// `records` = its place, from 0.
    Assigned,
    /// poll() was called.
    PollStarted,
    /// A fetch was built (and is fixed from now on): one event per request, `records` = partitions listed.
    RequestSent,
    /// A partition listed in that request, in wire order; `offset` = fetch offset.
    RequestPartition,
    /// A partition that this request takes out of the session.
    RequestForgotten,
    /// An answer was read and its callback ran: one event per answer, `records` = partitions in it.
    ResponseRead,
    /// A partition of that answer, in wire order, put at the end of the queue; `offset` = fetch offset.
    ResponseQueued,
    /// From now on left out of requests, or for another reason than before; `text` says why, and is empty when it is left out no longer.
    Excluded,
    /// Its records were taken from the queue; `offset` = first offset, `text` = last offset.
    RecordsReturned,
    /// Some of these were older than a record handed out before them: `records` = how many, `offset` = first of the turn.
    Late,
    /// A fetch is finished; `text` says how.
    PartitionDrained,
    /// Rotated behind all others.
    MovedToEnd,
    /// Buffered data of a paused partition went to the end of the queue.
    Paused,
    /// A queued fetch was thrown away at its turn; `text` says why.
    Discarded,
    /// A position was looked up, or asked to be.
    Reset,
    /// An error, of the broker or of the data.
    Error,
    /// poll() returned; `records` = how many records.
    PollReturned,
}

impl TraceKind {
    /// All of them, each at its number.
    pub const ALL: [Self; 19] = [
        Self::Called,
        Self::CalledPartition,
        Self::Assigned,
        Self::PollStarted,
        Self::RequestSent,
        Self::RequestPartition,
        Self::RequestForgotten,
        Self::ResponseRead,
        Self::ResponseQueued,
        Self::Excluded,
        Self::RecordsReturned,
        Self::Late,
        Self::PartitionDrained,
        Self::MovedToEnd,
        Self::Paused,
        Self::Discarded,
        Self::Reset,
        Self::Error,
        Self::PollReturned,
    ];

    /// Text of the `kind` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Called => "called",
            Self::CalledPartition => "called-partition",
            Self::Assigned => "assigned",
            Self::PollStarted => "poll-started",
            Self::RequestSent => "request-sent",
            Self::RequestPartition => "request-partition",
            Self::RequestForgotten => "request-forgotten",
            Self::ResponseRead => "response-read",
            Self::ResponseQueued => "response-queued",
            Self::Excluded => "excluded",
            Self::RecordsReturned => "records-returned",
            Self::Late => "late",
            Self::PartitionDrained => "partition-drained",
            Self::MovedToEnd => "moved-to-end",
            Self::Paused => "paused",
            Self::Discarded => "discarded",
            Self::Reset => "reset",
            Self::Error => "error",
            Self::PollReturned => "poll-returned",
        }
    }
}

/// Why, or more. A number is not written out before somebody reads it: a poll that is traced does not allocate for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TraceText {
    /// Written in the program.
    Fixed(&'static str),
    /// Written for this event.
    Own(Box<str>),
    /// A number.
    Number(i64),
}

impl TraceText {
    /// As the `text` column has it.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Fixed(text) => Cow::Borrowed(text),
            Self::Own(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
        }
    }
}

impl From<&'static str> for TraceText {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<String> for TraceText {
    fn from(text: String) -> Self {
        Self::Own(text.into())
    }
}

impl From<i64> for TraceText {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// One event. Fields that do not apply are `None`, -1 or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// Number of the poll, from 1; 0 before the first.
    pub poll: u64,
    /// What happened.
    pub kind: TraceKind,
    /// Node, -1 none.
    pub node: NodeId,
    /// Partition.
    pub tp: Option<TopicPartition>,
    /// Offset, -1 none.
    pub offset: i64,
    /// Bytes, -1 none.
    pub bytes: i64,
    /// Whole batches, -1 none.
    pub batches: i64,
    /// Records (of requests and answers: partitions), -1 none.
    pub records: i64,
    /// Of requests and answers: a full fetch (else incremental).
    pub full: Option<bool>,
    /// Why, or more.
    pub text: TraceText,
}

impl TraceEvent {
    /// An event about nothing in particular.
    #[inline]
    pub fn new(kind: TraceKind) -> Self {
        Self {
            poll: 0,
            kind,
            node: -1,
            tp: None,
            offset: -1,
            bytes: -1,
            batches: -1,
            records: -1,
            full: None,
            text: TraceText::Fixed(""),
        }
    }
    /// About a partition.
    #[inline]
    pub fn of(kind: TraceKind, tp: &TopicPartition) -> Self {
        Self {
            tp: Some(tp.clone()),
            ..Self::new(kind)
        }
    }
    /// With an offset.
    #[inline]
    pub fn at(self, offset: i64) -> Self {
        Self { offset, ..self }
    }
    /// With a count of records.
    #[inline]
    pub fn records(self, records: usize) -> Self {
        Self {
            records: count(records),
            ..self
        }
    }
    /// With a text.
    #[inline]
    pub fn because(self, text: impl Into<TraceText>) -> Self {
        Self {
            text: text.into(),
            ..self
        }
    }
    /// With a node.
    #[inline]
    pub fn node(self, node: NodeId) -> Self {
        Self { node, ..self }
    }
}

/// Collects events when on.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    poll: u64,
    events: TraceEvents,
    /// Version of the assignment looked at last.
    assignment: Option<u64>,
    /// Of the last `Assigned` events, sorted: rotation is no new assignment.
    assigned: Vec<TopicPartition>,
}

impl Trace {
    /// On or off for good.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Whether events are kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The next poll begins.
    pub fn start_poll(&mut self) {
        self.poll += 1;
        self.push(|| TraceEvent::new(TraceKind::PollStarted));
    }

    /// Keeps an event; `event` is not called when off.
    #[inline]
    pub fn push(&mut self, event: impl FnOnce() -> TraceEvent) {
        if self.is_on() {
            self.keep(event);
        }
    }

    /// Out of the way of polls that are not traced.
    #[inline(never)]
    fn keep(&mut self, event: impl FnOnce() -> TraceEvent) {
        let poll = self.poll;
        self.events.push(&TraceEvent { poll, ..event() });
    }

    /// Events of a call of the program's; offsets below 0 stand for none.
    pub fn called<'a>(
        &mut self,
        method: impl Into<TraceText>,
        given: impl IntoIterator<Item = (&'a TopicPartition, i64)>,
    ) {
        if !self.is_on() {
            return;
        }
        let given: Vec<_> = given.into_iter().collect();
        self.push(|| TraceEvent::new(TraceKind::Called).records(given.len()).because(method));
        for (tp, offset) in given {
            self.push(|| TraceEvent::of(TraceKind::CalledPartition, tp).at(offset));
        }
    }

    /// Events of the assignment, if it is not the one told last; under the same `version` it is.
    pub fn assignment(&mut self, version: u64, current: impl FnOnce() -> Vec<TopicPartition>) {
        if !self.is_on() || self.assignment == Some(version) {
            return;
        }
        self.assignment = Some(version);
        let current = current();
        let mut sorted = current.clone();
        sorted.sort();
        if sorted == self.assigned {
            return;
        }
        self.assigned = sorted;
        for (place, tp) in current.iter().enumerate() {
            self.push(|| TraceEvent::of(TraceKind::Assigned, tp).records(place));
        }
    }

    /// Events of a fetch request.
    pub fn request(&mut self, node: NodeId, request: &FetchRequest) {
        if !self.is_on() {
            return;
        }
        let full = Some(request.session_epoch <= 0);
        self.push(|| TraceEvent {
            full,
            ..TraceEvent::new(TraceKind::RequestSent)
                .node(node)
                .records(request.partitions.len())
        });
        for p in &request.partitions {
            self.push(|| TraceEvent {
                full,
                ..TraceEvent::of(TraceKind::RequestPartition, &p.tp)
                    .node(node)
                    .at(p.fetch_offset)
            });
        }
        for tp in &request.forgotten {
            self.push(|| TraceEvent {
                full,
                ..TraceEvent::of(TraceKind::RequestForgotten, tp).node(node)
            });
        }
    }

    /// Events of an answer; `fetch_offset` tells the offset that was asked for.
    pub fn response(
        &mut self,
        node: NodeId,
        full: bool,
        response: &FetchResponse,
        fetch_offset: impl Fn(&TopicPartition) -> i64,
    ) {
        if !self.is_on() {
            return;
        }
        let full = Some(full);
        let head = TraceEvent::new(TraceKind::ResponseRead)
            .node(node)
            .records(response.partitions.len())
            .because(response.error.name());
        self.push(|| TraceEvent { full, ..head });
        for p in &response.partitions {
            let (batches, records) = whole_batches(&p.records);
            let event = TraceEvent::of(TraceKind::ResponseQueued, &p.tp)
                .node(node)
                .at(fetch_offset(&p.tp))
                .because(p.error.name());
            self.push(|| TraceEvent {
                full,
                bytes: count(p.records.len()),
                batches,
                records,
                ..event
            });
        }
    }

    /// Events so far.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.events.iter().collect()
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Whole batches in an answer's bytes, and the records their headers announce.
fn whole_batches(bytes: &bytes::Bytes) -> (i64, i64) {
    BatchIter::new(bytes.clone())
        .map_while(Result::ok)
        .fold((0, 0), |(batches, records), batch| {
            (batches + 1, records + i64::from(batch.header().records_count))
        })
}
