//! Observes the share group at the broker: what its members fetch and acknowledge, and when their sessions may end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fletchlog_api::{Clock, ErrorCode, NodeId, Request, Response, SettableClock};
use fletchlog_protocol::messages::{ShareAcknowledgeRequest, ShareFetchRequest};

use crate::history::{Partition, Value};
use crate::share_history::{Acquisition, Offsets, ShareEvent};

/// A connection: its number, and the client's number for the node.
pub(super) type Line = (u64, NodeId);

/// An acknowledgement of a request.
type Said = (Offsets, i8);

/// A request without a response.
#[derive(Debug)]
struct Asked {
    member: Arc<str>,
    said: Vec<Said>,
    /// It is a fetch, and its connection has not ended.
    may_acquire: bool,
    since: usize,
    since_ms: i64,
}

/// The tap, which all parts of the network have.
pub(super) type SharedTap = Arc<Mutex<ShareTap>>;

#[derive(Debug)]
pub(super) struct ShareTap {
    clock: Arc<SettableClock>,
    pub events: Vec<ShareEvent>,
    asked: BTreeMap<(Line, i32), Asked>,
    /// The member behind a connection that has, or may have, a session.
    sessions: BTreeMap<Line, Arc<str>>,
    /// All responses before were observed: how many events there were, and the time.
    observed: (usize, i64),
}

pub(super) fn tap(tap: &Mutex<ShareTap>) -> MutexGuard<'_, ShareTap> {
    tap.lock().unwrap_or_else(PoisonError::into_inner)
}

fn said(partition: i32, batches: impl Iterator<Item = (i64, i64, Vec<i8>)>) -> Vec<Said> {
    let partition = u32::try_from(partition).unwrap_or(0);
    let mut said = Vec::new();
    for (first, last, types) in batches {
        match types[..] {
            [kind] => said.push((Offsets { partition, first, last }, kind)),
            _ => said.extend((first..=last).zip(types).map(|(at, kind)| {
                let one = Offsets {
                    partition,
                    first: at,
                    last: at,
                };
                (one, kind)
            })),
        }
    }
    said
}

fn said_in_fetch(request: &ShareFetchRequest) -> Vec<Said> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let all = partitions.flat_map(|p| {
        let batches = p.acknowledgement_batches.iter();
        said(
            p.partition_index,
            batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types.clone())),
        )
    });
    all.collect()
}

fn said_in(request: &ShareAcknowledgeRequest) -> Vec<Said> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let all = partitions.flat_map(|p| {
        let batches = p.acknowledgement_batches.iter();
        said(
            p.partition_index,
            batches.map(|b| (b.first_offset, b.last_offset, b.acknowledge_types.clone())),
        )
    });
    all.collect()
}

impl ShareTap {
    pub fn new(clock: Arc<SettableClock>) -> SharedTap {
        Arc::new(Mutex::new(Self {
            clock,
            events: Vec::new(),
            asked: BTreeMap::new(),
            sessions: BTreeMap::new(),
            observed: (0, 0),
        }))
    }

    /// The broker receives a request.
    pub fn asked(&mut self, line: Line, id: i32, request: &Request) {
        let (member, epoch, said) = match request {
            Request::ShareFetch(fetch) => (&fetch.member_id, fetch.share_session_epoch, said_in_fetch(fetch)),
            Request::ShareAcknowledge(ack) => (&ack.member_id, ack.share_session_epoch, said_in(ack)),
            _ => return,
        };
        let Some(member) = member else { return };
        match epoch {
            -1 => {
                self.events.push(ShareEvent::Ended(Arc::clone(member)));
                self.sessions.remove(&line);
            }
            _ => drop(self.sessions.insert(line, Arc::clone(member))),
        }
        let acknowledging = said
            .iter()
            .map(|(offsets, kind)| ShareEvent::Acknowledging(Arc::clone(member), *offsets, *kind));
        let since = self.events.len();
        self.events.extend(acknowledging);
        let asked = Asked {
            member: Arc::clone(member),
            said,
            may_acquire: matches!(request, Request::ShareFetch(_)),
            since,
            since_ms: self.clock.monotonic_ms(),
        };
        self.asked.insert((line, id), asked);
    }

    /// The broker answers.
    pub fn answered(&mut self, line: Line, id: i32, response: &Response) {
        let Some(asked) = self.asked.remove(&(line, id)) else {
            return;
        };
        match response {
            Response::ShareFetch(fetch) if fetch.error_code == ErrorCode::NONE => {
                for partition in fetch.responses.iter().flat_map(|topic| &topic.partitions) {
                    let number = u32::try_from(partition.partition_index).unwrap_or(0);
                    self.acknowledged(&asked, number, partition.acknowledge_error_code);
                    for acquired in partition
                        .acquired_records
                        .iter()
                        .filter(|r| r.first_offset <= r.last_offset)
                    {
                        let offsets = Offsets {
                            partition: number,
                            first: acquired.first_offset,
                            last: acquired.last_offset,
                        };
                        self.acquired(&asked, offsets, acquired.delivery_count);
                    }
                }
            }
            Response::ShareAcknowledge(acknowledged) if acknowledged.error_code == ErrorCode::NONE => {
                for partition in acknowledged.responses.iter().flat_map(|topic| &topic.partitions) {
                    let number = u32::try_from(partition.partition_index).unwrap_or(0);
                    self.acknowledged(&asked, number, partition.error_code);
                }
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, asked: &Asked, partition: Partition, code: ErrorCode) {
        if code != ErrorCode::NONE {
            return;
        }
        let of = asked.said.iter().filter(|(offsets, _)| offsets.partition == partition);
        let member = || Arc::clone(&asked.member);
        let events = of.map(|(offsets, kind)| ShareEvent::Acknowledged(member(), *offsets, *kind, asked.since));
        self.events.extend(events);
    }

    fn acquired(&mut self, asked: &Asked, offsets: Offsets, deliveries: i16) {
        let acquisition = Acquisition {
            member: Arc::clone(&asked.member),
            offsets,
            deliveries,
            since: asked.since.max(self.observed.0),
            between_ms: (asked.since_ms.max(self.observed.1), self.clock.monotonic_ms()),
        };
        self.events.push(ShareEvent::Acquired(acquisition));
    }

    /// All responses that the broker has are observed.
    pub fn observed(&mut self) {
        self.observed = (self.events.len(), self.clock.monotonic_ms());
    }

    /// A connection ends. With its last session the broker forgets what a group has acquired.
    pub fn ended(&mut self, line: Line) {
        let fetches = self.asked.range_mut((line, i32::MIN)..=(line, i32::MAX));
        let unanswered = fetches.filter_map(|(_, asked)| {
            let may_acquire = std::mem::take(&mut asked.may_acquire);
            may_acquire.then(|| ShareEvent::Unanswered(Arc::clone(&asked.member)))
        });
        self.events.extend(unanswered);
        let Some(member) = self.sessions.remove(&line) else {
            return;
        };
        self.events.push(ShareEvent::Ended(member));
        if self.sessions.is_empty() {
            self.events.push(ShareEvent::Restarted);
        }
    }

    /// The broker restarts, or leaders change.
    pub fn restarted(&mut self) {
        self.events.push(ShareEvent::Restarted);
    }

    /// Leaders may change at any time.
    pub fn unsettled(&mut self) {
        self.events.push(ShareEvent::Unsettled);
    }

    /// A client was told that its acknowledgement has taken effect.
    pub fn confirmed(&mut self, member: &Arc<str>, offsets: Offsets, kind: i8) {
        self.events
            .push(ShareEvent::Confirmed(Arc::clone(member), offsets, kind));
    }

    /// A poll returned a record.
    pub fn polled(&mut self, member: &Arc<str>, at: (Partition, i64), value: Value, deliveries: i16) {
        self.events
            .push(ShareEvent::Polled(Arc::clone(member), at.0, at.1, value, deliveries));
    }
}
