//! What a session says as columns: a row for each request, for each Fetch with what it names and gets, for each batch of a Produce. A million
//! requests are columns in seconds. What `explain` reads of other requests it reads one by one.

use std::sync::Arc;

use fletchlog_protocol::ApiKey;
use fletchlog_protocol::tree::{Node, Tree};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::batches::{Batch, batches_of};
use crate::fetch_sessions::FetchSessions;
use crate::format::SessionError;
use crate::index::Exchange;
use crate::session::{Message, Session};

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
    /// Responses to Fetch and Produce that ask a client to pause, ms.
    pub throttled: Table<2>,
    /// Fetch and Produce requests whose responses have errors.
    pub failed: Table<1>,
    /// Texts by number.
    pub texts: Vec<Arc<str>>,
    /// Partitions by number: text of the topic, partition.
    pub lanes: Vec<(u32, i32)>,
    /// Partitions of fetch sessions by number, in the order of the session. Fetches share them.
    pub wanted: Vec<Vec<u32>>,
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
            throttled: Table::of(["place", "ms"]),
            failed: Table::of(["place"]),
            texts: Vec::new(),
            lanes: Vec::new(),
            wanted: Vec::new(),
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
        let api = ApiKey::from_code(exchange.api_key);
        if !matches!(api, Some(ApiKey::Fetch | ApiKey::Produce)) {
            return Ok(());
        }
        let Some(request) = session.request(exchange)? else {
            return Ok(());
        };
        let response = session.response(exchange)?;
        let throttle = response
            .as_ref()
            .map_or(0, |response| fields(response).int("throttle_time_ms", 0));
        if throttle > 0 {
            self.throttled.push([place, throttle]);
        }
        let failed = match api {
            Some(ApiKey::Fetch) => self.fetch(session, exchange.connection, place, &request, response.as_ref()),
            _ => self.produce(session, place, &request, response.as_ref()),
        };
        if failed {
            self.failed.push([place]);
        }
        Ok(())
    }

    /// A Fetch; whether its response has an error.
    fn fetch(
        &mut self,
        session: &Session,
        connection: u64,
        place: i64,
        request: &Message,
        response: Option<&Message>,
    ) -> bool {
        let (asks, responds) = (fields(request), response.map(fields));
        let named_from = self.named.rows();
        let (mut named, mut limit) = (Vec::new(), 0);
        for topic in asks.structs("topics") {
            let name = self.topic(session, topic);
            for partition in topic.structs("partitions") {
                let lane = self.lane(name, partition.int("partition", 0));
                let offset = partition.int("fetch_offset", -1);
                named.push((lane, offset));
                self.named.push([lane.into(), offset]);
                limit = limit.max(partition.int("partition_max_bytes", 0));
            }
        }
        let mut forgotten = FxHashSet::default();
        for topic in asks.structs("forgotten_topics_data") {
            let name = self.topic(session, topic);
            for partition in topic.elements("partitions").iter().filter_map(Node::int) {
                forgotten.insert(self.lane(name, partition));
            }
        }
        let ids = (
            asks.int("session_id", 0),
            responds.map_or(0, |fields| fields.int("session_id", 0)),
        );
        let epoch = asks.int("session_epoch", -1);
        let mut state = self.sessions.take(connection, ids, epoch);
        state.update(&named, &forgotten, limit);
        let wanted = state.wanted(&mut self.sessions, &mut self.wanted);
        let got_from = self.got.rows();
        let mut failed = responds.is_some_and(|fields| fields.int("error_code", 0) != 0);
        let (mut size, most) = (0, asks.int("max_bytes", 0));
        let mut left = if most == 0 { NO_LIMIT } else { most };
        for topic in responds.into_iter().flat_map(|fields| fields.structs("responses")) {
            let name = self.topic(session, topic);
            for partition in topic.structs("partitions") {
                let lane = self.lane(name, partition.int("partition_index", 0));
                let limit = if state.limit == 0 { NO_LIMIT } else { state.limit }.min(left);
                let is_stripped = response.is_some_and(|response| response.is_stripped);
                let row = got((lane, state.asked(lane)), partition, is_stripped, limit, size == 0);
                let [_, _, error, .., arrived, _, _] = row;
                size += arrived;
                left -= arrived.min(left);
                failed |= error != 0;
                self.got.push(row);
            }
        }
        self.sessions.put(state);
        self.fetches.push([
            place,
            named_from,
            got_from,
            wanted.into(),
            asks.int("max_wait_ms", 0),
            asks.int("min_bytes", 0),
            most,
            limit,
            asks.int("isolation_level", 0),
            size,
        ]);
        failed
    }

    /// The batches of a Produce; whether its response has an error.
    fn produce(&mut self, session: &Session, place: i64, request: &Message, response: Option<&Message>) -> bool {
        let mut results = FxHashMap::default();
        let responds = response.map(fields);
        for topic in responds.into_iter().flat_map(|fields| fields.structs("responses")) {
            let name = self.topic(session, topic);
            for partition in topic.structs("partition_responses") {
                let lane = self.lane(name, partition.int("index", 0));
                let result = (partition.int("error_code", 0), partition.int("base_offset", -1));
                results.insert(lane, result);
            }
        }
        let asks = fields(request);
        let transactional_id = match asks.get("transactional_id") {
            Some(Node::String(id)) => self.text(id).into(),
            _ => NONE,
        };
        let acks = asks.int("acks", 0);
        for topic in asks.structs("topic_data") {
            let name = self.topic(session, topic);
            for partition in topic.structs("partition_data") {
                let lane = self.lane(name, partition.int("index", 0));
                let (error, base) = match results.get(&lane) {
                    Some((0, base)) => (0, *base),
                    Some((error, _)) => (*error, NONE),
                    None => (0, NONE),
                };
                for batch in partition.batches(request.is_stripped) {
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
                        acks,
                        transactional_id,
                        error,
                        base,
                    ]);
                }
            }
        }
        results.values().any(|(error, _)| *error != 0)
    }

    /// The text of a topic: its name, else its id.
    fn topic(&mut self, session: &Session, of: Fields<'_>) -> u32 {
        let mut id = None;
        for (spec, node) in of.tree.fields(of.version) {
            match (spec.name, node) {
                ("topic" | "name", Node::String(name)) if !name.is_empty() => return self.text(name),
                ("topic_id", Node::Uuid(given)) => id = Some(given),
                _ => {}
            }
        }
        let Some(id) = id else { return self.text("?") };
        if let Some(known) = self.topics.get(id) {
            return *known;
        }
        let name = session.topic(id).unwrap_or_else(|| (self.topic_id)(id).into());
        let number = self.text(&name);
        self.topics.insert(*id, number);
        number
    }

    fn lane(&mut self, topic: u32, partition: i64) -> u32 {
        let lane = (topic, i32::try_from(partition).unwrap_or(-1));
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
fn got(of: (u32, i64), fields: Fields<'_>, is_stripped: bool, limit: i64, is_first: bool) -> [i64; 12] {
    let high = fields.int("high_watermark", -1);
    let stable = Some(fields.int("last_stable_offset", -1)).filter(|stable| *stable >= 0);
    let batches = fields.batches(is_stripped);
    let mut size = batches
        .iter()
        .fold(0, |size: i64, batch| size.saturating_add(number(batch.size)));
    let mut records: i64 = batches.iter().map(|batch| i64::from(batch.records)).sum();
    let (mut first, mut last) = (-1, -1);
    if let (Some(begin), Some(end)) = (batches.first(), batches.last()) {
        (first, last) = (begin.base_offset, end.last_offset);
        // Only the first batch of a response may be larger. Kafka: `LogSegment#read`
        if size > limit && (batches.len() > 1 || !is_first) {
            (last, records, size) = match batches.len() {
                1 => (-1, 0, 0),
                _ => (
                    end.base_offset.wrapping_sub(1),
                    records - i64::from(end.records),
                    size - number(end.size),
                ),
            };
            if batches.len() == 1 {
                first = -1;
            }
        }
    }
    let aborted = fields.elements("aborted_transactions").len();
    let transactional = batches.iter().any(|batch| batch.is_transactional);
    [
        of.0.into(),
        of.1,
        fields.int("error_code", 0),
        high,
        stable.unwrap_or(high),
        fields.int("log_start_offset", -1),
        first,
        last,
        records,
        size,
        transactional.into(),
        int(aborted),
    ]
}

/// The fields that a message or a struct has in its version.
#[derive(Clone, Copy)]
struct Fields<'a> {
    tree: &'a Tree,
    version: i16,
}

fn fields(message: &Message) -> Fields<'_> {
    Fields {
        tree: &message.tree,
        version: message.version,
    }
}

impl<'a> Fields<'a> {
    fn get(self, name: &str) -> Option<&'a Node> {
        let found = self.tree.fields(self.version).find(|(spec, _)| spec.name == name);
        found.map(|(_, node)| node)
    }

    fn int(self, name: &str, absent: i64) -> i64 {
        self.get(name).and_then(Node::int).unwrap_or(absent)
    }

    fn elements(self, name: &str) -> &'a [Node] {
        self.get(name).map(Node::elements).unwrap_or_default()
    }

    fn structs(self, name: &str) -> impl Iterator<Item = Fields<'a>> + use<'a> {
        let version = self.version;
        self.elements(name).iter().filter_map(move |node| match node {
            Node::Struct(tree) => Some(Fields { tree, version }),
            _ => None,
        })
    }

    fn batches(self, is_stripped: bool) -> Vec<Batch> {
        match self.get("records") {
            Some(Node::Bytes(records)) => batches_of(records.clone(), is_stripped),
            _ => Vec::new(),
        }
    }
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
