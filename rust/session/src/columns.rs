//! What a session says as columns: a row for each request, for each Fetch with what it names and gets, for each batch of a Produce, for
//! each Heartbeat and each offset of an OffsetCommit, for each offset that is looked up, for each ShareFetch and ShareAcknowledge. A million requests are columns in seconds. What
//! `explain` reads of other requests it reads one by one.

mod positions;
mod shares;

use std::sync::Arc;

use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_protocol::messages::{
    FetchRequest, FetchResponse, HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse,
    ProduceRequest, ProduceResponse,
};
use fletchlog_protocol::{ApiKey, IsolationLevel, Message};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::batches::batches_of;
use crate::fetch_sessions::{FetchSession, FetchSessions};
use crate::format::SessionError;
use crate::index::Exchange;
use crate::session::{Body, Session};

/// No value: of a request without a response, of a batch without an offset.
pub const NONE: i64 = i64::MIN;
/// The size of a response that its request does not limit.
const NO_LIMIT: i64 = 1 << 31;

/// Rows as columns of equal length, each with a name.
#[derive(Debug)]
pub struct Table<const N: usize> {
    /// Names of the columns.
    pub names: [&'static str; N],
    /// Their values.
    pub columns: [Vec<i64>; N],
}

impl<const N: usize> Table<N> {
    fn of(names: [&'static str; N]) -> Self {
        let columns = std::array::from_fn(|_| Vec::new());
        Self { names, columns }
    }

    fn push(&mut self, row: [i64; N]) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
    }

    fn rows(&self) -> i64 {
        self.columns.first().map_or(0, |column| int(column.len()))
    }
}

/// The tables of a session. Times are us since the epoch. A text, a partition and the partitions of a fetch session are numbers of
/// [`texts`](Self::texts), [`lanes`](Self::lanes) and [`wanted`](Self::wanted).
#[derive(Debug)]
pub struct Columns {
    /// Requests in the order of arrival.
    pub lines: Table<11>,
    /// Those that are a Fetch; `place` is the row in `lines`, `named` and `got` are the first rows in these tables.
    pub fetches: Table<10>,
    /// The partitions that a Fetch names.
    pub named: Table<2>,
    /// What a Fetch response has of a partition; `asked` is the offset that was asked for, -1 if it is not known.
    pub got: Table<12>,
    /// Batches of Produce requests.
    pub batches: Table<15>,
    /// Heartbeats of classic groups: texts of group, member and instance.
    pub heartbeats: Table<6>,
    /// Offsets of OffsetCommit requests: texts of group and member, a generation or the epoch of a member.
    pub commits: Table<7>,
    /// Offsets of OffsetFetch responses, with the text of the group, and of ListOffsets, with the time that was asked for.
    pub positions: Table<6>,
    /// ShareFetch and ShareAcknowledge; `acknowledged` and `acquired` are the first rows in these tables.
    pub shares: Table<17>,
    /// What they acknowledge; the kind is a number of [`types`](Self::types).
    pub acknowledged: Table<5>,
    /// What a ShareFetch response hands out; `written_ms` is the largest timestamp of its batches, -1: none.
    pub acquired: Table<5>,
    /// Responses of these APIs that ask a client to pause, ms.
    pub throttled: Table<2>,
    /// Requests of these APIs whose responses have errors.
    pub failed: Table<1>,
    /// Texts by number.
    pub texts: Vec<Arc<str>>,
    /// Partitions by number: text of the topic, partition.
    pub lanes: Vec<(u32, i32)>,
    /// Partitions of fetch sessions by number, in the order of the session. Fetches share them.
    pub wanted: Vec<Vec<u32>>,
    /// Kinds of acknowledgements by number: one for all offsets, or one for each.
    pub types: Vec<Vec<i8>>,
    type_numbers: FxHashMap<Vec<i8>, u32>,
    /// Partitions of share sessions, by connection and text of the member.
    share_sessions: FxHashMap<(u64, u32), Vec<u32>>,
    numbers: FxHashMap<Arc<str>, u32>,
    lane_numbers: FxHashMap<(u32, i32), u32>,
    topics: FxHashMap<[u8; 16], u32>,
    sessions: FetchSessions,
    topic_id: fn(&[u8; 16]) -> String,
}

impl Columns {
    /// Without rows. `topic_id` makes the text of a topic's id, where its name is not known.
    pub fn new(topic_id: fn(&[u8; 16]) -> String) -> Self {
        Self {
            lines: Table::of([
                "number",
                "connection",
                "client_id",
                "api_key",
                "version",
                "arrived_us",
                "answered_us",
                "request_bytes",
                "response_bytes",
                "outcome",
                "fault",
            ]),
            fetches: Table::of([
                "place",
                "named",
                "got",
                "wanted",
                "max_wait_ms",
                "min_bytes",
                "max_bytes",
                "partition_max_bytes",
                "isolation",
                "size",
            ]),
            named: Table::of(["lane", "offset"]),
            got: Table::of([
                "lane",
                "asked",
                "error",
                "high_watermark",
                "last_stable",
                "log_start",
                "first",
                "last",
                "records",
                "size",
                "transactional",
                "aborted",
            ]),
            batches: Table::of([
                "place",
                "lane",
                "records",
                "size",
                "producer_id",
                "producer_epoch",
                "sequence",
                "first_timestamp",
                "max_timestamp",
                "codec",
                "transactional",
                "acks",
                "transactional_id",
                "error",
                "base_offset",
            ]),
            heartbeats: Table::of(["place", "group", "member", "instance", "generation", "error"]),
            commits: Table::of(["place", "group", "member", "generation", "lane", "offset", "error"]),
            positions: Table::of(["place", "group", "lane", "timestamp", "offset", "error"]),
            shares: Table::of(shares::NAMES),
            acknowledged: Table::of(["lane", "first", "last", "types", "error"]),
            acquired: Table::of(["lane", "first", "last", "deliveries", "written_ms"]),
            throttled: Table::of(["place", "ms"]),
            failed: Table::of(["place"]),
            texts: Vec::new(),
            lanes: Vec::new(),
            wanted: Vec::new(),
            types: Vec::new(),
            type_numbers: FxHashMap::default(),
            share_sessions: FxHashMap::default(),
            numbers: FxHashMap::default(),
            lane_numbers: FxHashMap::default(),
            topics: FxHashMap::default(),
            sessions: FetchSessions::default(),
            topic_id,
        }
    }

    /// Adds the next request.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn add(&mut self, session: &Session, exchange: &Exchange) -> Result<(), SessionError> {
        let place = self.lines.rows();
        let optional = |this: &mut Self, text: Option<&Arc<str>>| text.map_or(NONE, |text| this.text(text).into());
        let row = [
            number(exchange.number),
            number(exchange.connection),
            optional(self, exchange.client_id.as_ref()),
            exchange.api_key.into(),
            exchange.version.into(),
            exchange.arrived_us,
            exchange.answered_us.unwrap_or(NONE),
            number(exchange.request_bytes),
            exchange.response_bytes.map_or(NONE, number),
            self.text(&exchange.outcome).into(),
            optional(self, exchange.fault.as_ref()),
        ];
        self.lines.push(row);
        match ApiKey::from_code(exchange.api_key) {
            Some(ApiKey::Fetch) => self.fetch(session, exchange, place),
            Some(ApiKey::Produce) => self.produce(session, exchange, place),
            Some(ApiKey::Heartbeat) => self.heartbeat(session, exchange, place),
            Some(ApiKey::OffsetCommit) => self.commit(session, exchange, place),
            Some(ApiKey::OffsetFetch) => self.offset_fetch(session, exchange, place),
            Some(ApiKey::ListOffsets) => self.list_offsets(session, exchange, place),
            Some(ApiKey::ShareFetch) => self.share_fetch(session, exchange, place),
            Some(ApiKey::ShareAcknowledge) => self.share_acknowledge(session, exchange, place),
            _ => Ok(()),
        }
    }

    fn fetch(&mut self, session: &Session, exchange: &Exchange, place: i64) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<FetchRequest>(exchange)? else {
            return Ok(());
        };
        let responds = session.response_body::<FetchResponse>(exchange)?;
        let named_from = self.named.rows();
        let (mut named, mut limit) = (Vec::new(), 0);
        for topic in &asks.topics {
            let name = self.topic(session, &topic.topic, &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition);
                named.push((lane, partition.fetch_offset));
                self.named.push([lane.into(), partition.fetch_offset]);
                limit = limit.max(partition.partition_max_bytes.into());
            }
        }
        let mut forgotten = FxHashSet::default();
        for topic in &asks.forgotten_topics_data {
            let name = self.topic(session, &topic.topic, &topic.topic_id);
            forgotten.extend(topic.partitions.iter().map(|partition| self.lane(name, *partition)));
        }
        let opened = responds.as_ref().map_or(0, |responds| responds.message.session_id);
        let ids = (asks.session_id, opened);
        let mut state = self.sessions.take(exchange.connection, ids, asks.session_epoch);
        state.update(&named, &forgotten, limit);
        let wanted = state.wanted(&mut self.sessions, &mut self.wanted);
        let got_from = self.got.rows();
        let size = match &responds {
            Some(responds) => self.gets(session, place, (&state, asks.max_bytes.into()), responds),
            None => 0,
        };
        self.sessions.put(state);
        self.fetches.push([
            place,
            named_from,
            got_from,
            wanted.into(),
            asks.max_wait_ms.into(),
            asks.min_bytes.into(),
            asks.max_bytes.into(),
            limit,
            (asks.isolation_level == IsolationLevel::ReadCommitted).into(),
            size,
        ]);
        Ok(())
    }

    /// What a Fetch response has; its bytes.
    fn gets(
        &mut self,
        session: &Session,
        place: i64,
        asked: (&FetchSession, i64),
        responds: &Body<FetchResponse>,
    ) -> i64 {
        let (state, most) = asked;
        self.throttled(place, &responds.message);
        let mut failed = responds.message.error_code.code() != 0;
        let (mut size, mut left) = (0, if most == 0 { NO_LIMIT } else { most });
        for topic in &responds.message.responses {
            let name = self.topic(session, &topic.topic, &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition_index);
                let limit = if state.limit == 0 { NO_LIMIT } else { state.limit }.min(left);
                let row = got(
                    (lane, state.asked(lane)),
                    partition,
                    responds.is_stripped,
                    limit,
                    size == 0,
                );
                let [_, _, error, .., arrived, _, _] = row;
                size += arrived;
                left -= arrived.min(left);
                failed |= error != 0;
                self.got.push(row);
            }
        }
        if failed {
            self.failed.push([place]);
        }
        size
    }

    fn produce(&mut self, session: &Session, exchange: &Exchange, place: i64) -> Result<(), SessionError> {
        let Some(Body {
            message: asks,
            is_stripped,
        }) = session.request_body::<ProduceRequest>(exchange)?
        else {
            return Ok(());
        };
        let mut results = FxHashMap::default();
        if let Some(responds) = session.response_body::<ProduceResponse>(exchange)? {
            self.throttled(place, &responds.message);
            for topic in &responds.message.responses {
                let name = self.topic(session, &topic.name, &topic.topic_id);
                for partition in &topic.partition_responses {
                    let result = (i64::from(partition.error_code.code()), partition.base_offset);
                    results.insert(self.lane(name, partition.index), result);
                }
            }
        }
        if results.values().any(|(error, _)| *error != 0) {
            self.failed.push([place]);
        }
        let transactional_id = asks.transactional_id.map_or(NONE, |id| self.text(&id).into());
        for topic in &asks.topic_data {
            let name = self.topic(session, &topic.name, &topic.topic_id);
            for partition in &topic.partition_data {
                let lane = self.lane(name, partition.index);
                let (error, base) = match results.get(&lane) {
                    Some((0, base)) => (0, *base),
                    Some((error, _)) => (*error, NONE),
                    None => (0, NONE),
                };
                for batch in partition
                    .records
                    .iter()
                    .flat_map(|records| batches_of(records.clone(), is_stripped))
                {
                    let codec = self.text(batch.codec);
                    self.batches.push([
                        place,
                        lane.into(),
                        batch.records.into(),
                        number(batch.size),
                        batch.producer_id,
                        batch.producer_epoch.into(),
                        batch.base_sequence.into(),
                        batch.first_timestamp,
                        batch.max_timestamp,
                        codec.into(),
                        batch.is_transactional.into(),
                        asks.acks.into(),
                        transactional_id,
                        error,
                        base,
                    ]);
                }
            }
        }
        Ok(())
    }

    fn heartbeat(&mut self, session: &Session, exchange: &Exchange, place: i64) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<HeartbeatRequest>(exchange)? else {
            return Ok(());
        };
        let mut error = 0;
        if let Some(Body { message: responds, .. }) = session.response_body::<HeartbeatResponse>(exchange)? {
            self.throttled(place, &responds);
            error = responds.error_code.code();
        }
        if error != 0 {
            self.failed.push([place]);
        }
        let row = [
            place,
            self.text(&asks.group_id).into(),
            self.text(&asks.member_id).into(),
            asks.group_instance_id.map_or(NONE, |id| self.text(&id).into()),
            asks.generation_id.into(),
            error.into(),
        ];
        self.heartbeats.push(row);
        Ok(())
    }

    fn commit(&mut self, session: &Session, exchange: &Exchange, place: i64) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<OffsetCommitRequest>(exchange)? else {
            return Ok(());
        };
        let mut errors = FxHashMap::default();
        if let Some(Body { message: responds, .. }) = session.response_body::<OffsetCommitResponse>(exchange)? {
            self.throttled(place, &responds);
            for topic in &responds.topics {
                let name = self.topic(session, &topic.name, &topic.topic_id);
                for partition in &topic.partitions {
                    let lane = self.lane(name, partition.partition_index);
                    errors.insert(lane, i64::from(partition.error_code.code()));
                }
            }
        }
        if errors.values().any(|error| *error != 0) {
            self.failed.push([place]);
        }
        let (group, member) = (self.text(&asks.group_id), self.text(&asks.member_id));
        for topic in &asks.topics {
            let name = self.topic(session, &topic.name, &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition_index);
                self.commits.push([
                    place,
                    group.into(),
                    member.into(),
                    asks.generation_id_or_member_epoch.into(),
                    lane.into(),
                    partition.committed_offset,
                    errors.get(&lane).copied().unwrap_or(0),
                ]);
            }
        }
        Ok(())
    }

    /// Notes how long a response asks its client to pause.
    fn throttled(&mut self, place: i64, response: &impl Message) {
        let ms = response.throttle_time_ms();
        if ms > 0 {
            self.throttled.push([place, ms.into()]);
        }
    }

    /// The text of a topic: its name, else its id.
    fn topic(&mut self, session: &Session, name: &str, id: &[u8; 16]) -> u32 {
        if !name.is_empty() {
            return self.text(name);
        }
        if let Some(known) = self.topics.get(id) {
            return *known;
        }
        let name = session.topic(id).unwrap_or_else(|| (self.topic_id)(id).into());
        let number = self.text(&name);
        self.topics.insert(*id, number);
        number
    }

    fn lane(&mut self, topic: u32, partition: i32) -> u32 {
        let lane = (topic, partition);
        *self.lane_numbers.entry(lane).or_insert_with(|| {
            self.lanes.push(lane);
            u32::try_from(self.lanes.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }
}

/// What a response has of a partition. The last batch may be a part, where the size is at its limit: that has not arrived.
fn got(of: (u32, i64), fields: &PartitionData, is_stripped: bool, limit: i64, is_first: bool) -> [i64; 12] {
    let high = fields.high_watermark;
    let stable = Some(fields.last_stable_offset).filter(|stable| *stable >= 0);
    let records = fields.records.iter();
    let batches: Vec<_> = records
        .flat_map(|records| batches_of(records.clone(), is_stripped))
        .collect();
    let mut size = batches
        .iter()
        .fold(0, |size: i64, batch| size.saturating_add(number(batch.size)));
    let mut records: i64 = batches.iter().map(|batch| i64::from(batch.records)).sum();
    // Only the first batch of a response may be larger. Kafka: `LogSegment#read`
    let is_cut = size > limit && (batches.len() > 1 || !is_first);
    let (mut first, mut last) = (-1, -1);
    match batches.as_slice() {
        [] => {}
        [_] if is_cut => (records, size) = (0, 0),
        [begin, .., end] if is_cut => {
            (first, last) = (begin.base_offset, end.base_offset.wrapping_sub(1));
            (records, size) = (records - i64::from(end.records), size - number(end.size));
        }
        [begin, ..] => (first, last) = (begin.base_offset, batches[batches.len() - 1].last_offset),
    }
    let aborted = fields.aborted_transactions.as_ref().map_or(0, Vec::len);
    let transactional = batches.iter().any(|batch| batch.is_transactional);
    [
        of.0.into(),
        of.1,
        fields.error_code.code().into(),
        high,
        stable.unwrap_or(high),
        fields.log_start_offset,
        first,
        last,
        records,
        size,
        transactional.into(),
        int(aborted),
    ]
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
