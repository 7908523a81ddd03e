//! `fletchlog.explain.session`: the polls of a Java consumer, derived from its recorded fetches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fletchlog_api::{Config, ErrorCode, NodeId, Scope};
use fletchlog_client::consumer::{
    DerivedPolls, RecordedAssignment, RecordedBatch, RecordedCommit, RecordedFetch, RecordedPartition, RecordedReader,
    RecordedResponse, RecordedTopics, derive_polls as derive,
};
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::gate::gate;

/// Topic and partition.
type Lane = (String, i32);
/// Time, partitions, whether partitions assigned before keep their positions.
type PyAssignment = (i64, Vec<Lane>, bool);
/// Time, partitions with offsets.
type PyCommit = (i64, Vec<(String, i32, i64)>);
/// Properties, assignments, topics of the subscription, commits, topics of Metadata requests with their times, lookups, whether another thread sends the
/// fetches, whether responses are read between polls.
type PyReader = (
    BTreeMap<String, String>,
    Vec<PyAssignment>,
    Option<Vec<String>>,
    Vec<PyCommit>,
    Vec<(i64, Vec<String>)>,
    Vec<(i64, Lane)>,
    bool,
    bool,
);
/// First and last offset, records, producer id, bytes, transactional, control.
type PyBatch = (i64, i64, i32, i64, u64, bool, bool);
/// Topic, partition, error, high watermark, last stable offset, preferred read replica, aborted transactions (producer id, first offset), batches.
type PyPartition = (String, i32, i16, i64, i64, NodeId, Vec<(i64, i64)>, Vec<PyBatch>);
/// Time, error, fetch session, partitions.
type PyResponse = (i64, i16, i32, Vec<PyPartition>);
/// Number, node, time, whether it is a full one, partitions with offsets, partitions taken out of the session, response.
type PyFetch = (
    u64,
    NodeId,
    i64,
    bool,
    Vec<(String, i32, i64)>,
    Vec<Lane>,
    Option<PyResponse>,
);

/// Topics by name, each in memory once.
#[derive(Default)]
struct Topics(HashMap<String, Arc<str>>);

impl Topics {
    fn partition(&mut self, topic: String, partition: i32) -> TopicPartition {
        let name = self
            .0
            .entry(topic)
            .or_insert_with_key(|topic| Arc::from(topic.as_str()));
        TopicPartition::new(Arc::clone(name), partition)
    }
}

fn error(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)
}

fn batch((base_offset, last_offset, records, producer_id, size, transactional, control): PyBatch) -> RecordedBatch {
    RecordedBatch {
        base_offset,
        last_offset,
        records,
        producer_id,
        size,
        transactional,
        control,
    }
}

fn response((at_us, code, session_id, partitions): PyResponse, topics: &mut Topics) -> RecordedResponse {
    let partition =
        |(topic, partition, code, high_watermark, last_stable_offset, replica, aborted, batches): PyPartition| {
            RecordedPartition {
                tp: topics.partition(topic, partition),
                error: error(code),
                high_watermark,
                last_stable_offset,
                preferred_read_replica: replica,
                aborted,
                batches: batches.into_iter().map(batch).collect(),
            }
        };
    RecordedResponse {
        at_us,
        error: error(code),
        session_id,
        partitions: partitions.into_iter().map(partition).collect(),
    }
}

fn fetch((number, node, at_us, full, wanted, forgotten, answer): PyFetch, topics: &mut Topics) -> RecordedFetch {
    RecordedFetch {
        number,
        node,
        at_us,
        full,
        wanted: wanted
            .into_iter()
            .map(|(topic, partition, offset)| (topics.partition(topic, partition), offset))
            .collect(),
        forgotten: forgotten
            .into_iter()
            .map(|(topic, partition)| topics.partition(topic, partition))
            .collect(),
        response: answer.map(|answer| response(answer, topics)),
    }
}

fn assignment((at_us, partitions, keeps_positions): PyAssignment, topics: &mut Topics) -> RecordedAssignment {
    RecordedAssignment {
        at_us,
        partitions: partitions
            .into_iter()
            .map(|(topic, partition)| topics.partition(topic, partition))
            .collect(),
        keeps_positions,
    }
}

fn commit((at_us, offsets): PyCommit, topics: &mut Topics) -> RecordedCommit {
    RecordedCommit {
        at_us,
        offsets: offsets
            .into_iter()
            .map(|(topic, partition, offset)| (topics.partition(topic, partition), offset))
            .collect(),
    }
}

fn reader(given: PyReader, topics: &mut Topics) -> Result<RecordedReader, Failure> {
    let (properties, assignments, subscribed, commits, asked, lookups, fetches_in_background, reads_between_polls) =
        given;
    let properties = properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let asked = asked.into_iter().map(|(at_us, names)| RecordedTopics {
        at_us,
        topics: names.into_iter().map(Arc::from).collect(),
    });
    Ok(RecordedReader {
        config: Config::parse(Scope::Consumer, properties)?,
        assignments: assignments.into_iter().map(|one| assignment(one, topics)).collect(),
        subscribed: subscribed.map(|names| names.iter().map(|name| Arc::from(name.as_str())).collect()),
        commits: commits.into_iter().map(|one| commit(one, topics)).collect(),
        topics: asked.collect(),
        lookups: lookups
            .into_iter()
            .map(|(at_us, (topic, partition))| (at_us, topics.partition(topic, partition)))
            .collect(),
        fetches_in_background,
        reads_between_polls,
    })
}

#[doc = stub!(derive_polls)]
#[pyfunction]
pub fn derive_polls<'py>(
    py: Python<'py>,
    consumer: PyReader,
    fetches: Vec<PyFetch>,
    max_poll_records: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    if max_poll_records == Some(0) {
        return Err(Failure::argument("max_poll_records is 0; give 1 or more").into());
    }
    let mut topics = Topics::default();
    let reader = reader(consumer, &mut topics)?;
    let fetches: Vec<RecordedFetch> = fetches.into_iter().map(|one| fetch(one, &mut topics)).collect();
    let derived = gate(py, |_| Ok(derive(&reader, &fetches, max_poll_records)?))?;
    shown(py, &derived)
}

fn shown<'py>(py: Python<'py>, derived: &DerivedPolls) -> PyResult<Bound<'py, PyDict>> {
    let lane = |tp: &TopicPartition| (tp.topic.to_string(), tp.partition);
    let lanes = |tps: &[TopicPartition]| tps.iter().map(lane).collect::<Vec<Lane>>();
    let polls = derived.polls.iter().map(|poll| {
        let runs = poll.runs.iter();
        let runs = runs.map(|run| (lane(&run.tp), run.first_offset, run.last_offset, run.count, run.exact));
        (
            runs.collect::<Vec<_>>(),
            poll.fetch,
            lanes(&poll.buffered),
            poll.decided,
        )
    });
    let calls = derived
        .calls
        .iter()
        .map(|call| (call.method, lane(&call.tp), call.offset, call.fetch));
    let fields = PyDict::new(py);
    fields.set_item("polls", polls.collect::<Vec<_>>())?;
    fields.set_item("calls", calls.collect::<Vec<_>>())?;
    fields.set_item("parted", derived.parted.as_ref().map(|at| (at.fetch, at.why.as_str())))?;
    fields.set_item("agreeing", derived.agreeing)?;
    fields.set_item("buffered", lanes(&derived.buffered))?;
    fields.set_item("max_poll_records", derived.max_poll_records)?;
    fields.set_item("max_poll_records_between", derived.max_poll_records_between)?;
    Ok(fields)
}
