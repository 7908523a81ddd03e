//! What the consumer did and why, step by step: the source of `consumer.trace()` and of `fletchlog explain`.
//! Costs one branch per step while it is off.

use std::borrow::Cow;
use std::sync::Arc;

use fletchlog_api::{FetchRequest, FetchResponse, NodeId};
use fletchlog_records::{BatchIter, ErrorCode, TopicPartition};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceKind {
    /// The program called a method that changes what is read: `text` = its name; `partitions` (subscribe: topics) as given, with the offset
    /// of a seek; `epoch` of a seek to a committed offset.
    Call,
    /// The assignment, if it is another set than in the last event of this kind: `partitions` in request order.
    Order,
    /// poll() was called.
    Poll,
    /// A fetch request was built: `node`, `full`; `partitions` in wire order with fetch offsets, then those it removes
    /// from the session.
    Ask,
    /// A response was read and its callback ran: `node`, `full`, `text` = error; `partitions` in the order in which
    /// they joined the queue.
    Answer,
    /// `partitions` left out of requests from now on because of `text`, then those no longer left out for it.
    Skip,
    /// Records were taken from the queue: `offset` .. `last_offset`, `records` of them.
    Take,
    /// `records` of the records taken were older than one returned before them; `offset` = first of the turn.
    Late,
    /// A fetch is finished; `text` says how.
    Drained,
    /// A partition moved behind all others; `text` = the error, if that is why.
    Rotate,
    /// Buffered data of a paused partition went to the end of the queue.
    Park,
    /// A queued fetch was thrown away at its turn; `text` says why.
    Drop,
    /// A position was looked up, or a lookup was requested: `offset`, `text`; `epoch` of a committed offset.
    Place,
    /// An error of the broker or of the data: `text`.
    Error,
    /// poll() returned; `records` = number of records.
    Return,
}

impl TraceKind {
    /// The name shown in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Order => "order",
            Self::Poll => "poll",
            Self::Ask => "ask",
            Self::Answer => "answer",
            Self::Skip => "skip",
            Self::Take => "take",
            Self::Late => "late",
            Self::Drained => "drained",
            Self::Rotate => "rotate",
            Self::Park => "park",
            Self::Drop => "drop",
            Self::Place => "place",
            Self::Error => "error",
            Self::Return => "return",
        }
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
    /// Of requests and responses: a full fetch (else incremental).
    pub full: Option<bool>,
    /// Partition.
    pub tp: Option<TopicPartition>,
    /// Offset, -1 none.
    pub offset: i64,
    /// Offset of the last record taken, -1 none.
    pub last_offset: i64,
    /// Leader epoch, -1 none.
    pub epoch: i32,
    /// Number of records, -1 none.
    pub records: i64,
    /// The reason, or details.
    pub text: Cow<'static, str>,
    /// The partitions of an event that is about several.
    pub partitions: Vec<TracePartition>,
}

/// A partition of an event that is about several. Fields that do not apply are -1 or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePartition {
    /// Partition; its number is -1 where a topic was given.
    pub tp: TopicPartition,
    /// Fetch offset, or the one given to a seek.
    pub offset: i64,
    /// Number of records according to the batch headers.
    pub records: i64,
    /// Bytes.
    pub bytes: i64,
    /// Whole batches.
    pub batches: i64,
    /// Error of this partition.
    pub error: &'static str,
    /// Of `Ask`: taken out of the session. Of `Skip`: no longer left out.
    pub gone: bool,
}

impl TracePartition {
    /// A partition with an offset, -1 for none.
    pub fn at(tp: &TopicPartition, offset: i64) -> Self {
        Self {
            tp: tp.clone(),
            offset,
            records: -1,
            bytes: -1,
            batches: -1,
            error: "",
            gone: false,
        }
    }
    fn gone(tp: &TopicPartition) -> Self {
        Self {
            gone: true,
            ..Self::at(tp, -1)
        }
    }
}

impl TraceEvent {
    /// An event about no single partition.
    #[inline]
    pub fn new(kind: TraceKind) -> Self {
        Self {
            poll: 0,
            kind,
            node: -1,
            full: None,
            tp: None,
            offset: -1,
            last_offset: -1,
            epoch: -1,
            records: -1,
            text: Cow::Borrowed(""),
            partitions: Vec::new(),
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
    pub fn because(self, text: impl Into<Cow<'static, str>>) -> Self {
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
    /// With partitions.
    #[inline]
    pub fn partitions(self, partitions: impl IntoIterator<Item = TracePartition>) -> Self {
        Self {
            partitions: partitions.into_iter().collect(),
            ..self
        }
    }
}

/// Collects events when on.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    on: bool,
    poll: u64,
    events: Vec<TraceEvent>,
    /// Version of the assignment at the last check.
    assignment: Option<u64>,
    /// Partitions of the last `Order` event, sorted, because a rotation is no new assignment.
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

    /// Records that a poll begins.
    pub fn start_poll(&mut self) {
        self.poll += 1;
        self.push(|| TraceEvent::new(TraceKind::Poll));
    }

    /// Keeps an event; `event` is not called when off.
    #[inline]
    pub fn push(&mut self, event: impl FnOnce() -> TraceEvent) {
        if self.is_on() {
            self.keep(event);
        }
    }

    /// Not inlined, so that it costs nothing in polls without a trace.
    #[inline(never)]
    fn keep(&mut self, event: impl FnOnce() -> TraceEvent) {
        let poll = self.poll;
        self.events.push(TraceEvent { poll, ..event() });
    }

    /// Records a call by the program; an offset or epoch of -1 means none.
    pub fn called<'a>(
        &mut self,
        method: &'static str,
        given: impl IntoIterator<Item = (&'a TopicPartition, i64)>,
        epoch: i32,
    ) {
        self.push(|| TraceEvent {
            epoch,
            ..TraceEvent::new(TraceKind::Call)
                .because(method)
                .partitions(given.into_iter().map(|(tp, offset)| TracePartition::at(tp, offset)))
        });
    }

    /// Records the assignment, unless it is the set reported last, as it is if `version` has not changed.
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
        if !current.is_empty() {
            let listed = current.iter().map(|tp| TracePartition::at(tp, -1));
            self.push(|| TraceEvent::new(TraceKind::Order).partitions(listed));
        }
    }

    /// Records a fetch request.
    pub fn request(&mut self, node: NodeId, request: &FetchRequest) {
        let tp = |topic: &Arc<str>, partition| TopicPartition::new(Arc::clone(topic), partition);
        let asked = request.partitions();
        let asked = asked.map(|(topic, p)| TracePartition::at(&tp(topic, p.partition), p.fetch_offset));
        let forgotten = request.forgotten();
        let partitions = asked.chain(forgotten.map(|(topic, p)| TracePartition::gone(&tp(topic, p))));
        self.push(|| TraceEvent {
            full: Some(request.session_epoch <= 0),
            ..TraceEvent::new(TraceKind::Ask).node(node).partitions(partitions)
        });
    }

    /// Records a response; `fetch_offset` returns the requested offset.
    pub fn response(
        &mut self,
        node: NodeId,
        full: bool,
        response: &FetchResponse,
        fetch_offset: impl Fn(&TopicPartition) -> i64,
    ) {
        let partitions = response.partitions().map(|(topic, p)| {
            let tp = TopicPartition::new(Arc::clone(topic), p.partition_index);
            let (batches, records) = p.records.as_ref().map(whole_batches).unwrap_or_default();
            TracePartition {
                bytes: count(p.size()),
                batches,
                records,
                error: name(p.error_code),
                ..TracePartition::at(&tp, fetch_offset(&tp))
            }
        });
        self.push(|| TraceEvent {
            full: Some(full),
            ..TraceEvent::new(TraceKind::Answer)
                .node(node)
                .because(name(response.error_code))
                .partitions(partitions)
        });
    }

    /// Records the partitions whose reason to be left out has changed: (partition, reason before, reason now).
    pub fn left_out(&mut self, changes: &[(TopicPartition, Option<&'static str>, Option<&'static str>)]) {
        let came = changes.iter().filter_map(|&(_, _, why)| why);
        let mut reasons: Vec<&str> = Vec::new();
        for reason in came.chain(changes.iter().filter_map(|&(_, before, _)| before)) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        for reason in reasons {
            let came = changes.iter().filter(|(_, _, why)| *why == Some(reason));
            let went = changes.iter().filter(|(_, before, _)| *before == Some(reason));
            let came = came.map(|(tp, ..)| TracePartition::at(tp, -1));
            let partitions = came.chain(went.map(|(tp, ..)| TracePartition::gone(tp)));
            self.push(|| TraceEvent::new(TraceKind::Skip).because(reason).partitions(partitions));
        }
    }

    /// Events so far.
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }
}

/// Name of an error, empty for none.
fn name(error: ErrorCode) -> &'static str {
    if error == ErrorCode::NONE { "" } else { error.name() }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Number of whole batches in a response, and of records according to their headers.
fn whole_batches(bytes: &bytes::Bytes) -> (i64, i64) {
    BatchIter::new(bytes.clone())
        .map_while(Result::ok)
        .fold((0, 0), |(batches, records), batch| {
            (batches + 1, records + i64::from(batch.header().records_count))
        })
}
