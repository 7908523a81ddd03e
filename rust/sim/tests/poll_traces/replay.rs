//! Rebuilds a scenario's logs in an in-memory broker and replays its calls. Time is virtual; the wire is watched.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fletchlog_api::{Clock, Completion, Config, FetchRequest, FetchResponse, NodeId, Request, Response, Scope};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::consumer::{
    PolledRecords, RecordedBatch, RecordedFetch, RecordedPartition, RecordedResponse, TraceEvent, TraceKind,
};
use fletchlog_client::{ClientError, Consumer};
use fletchlog_log::AppendOrigin;
use fletchlog_records::batch::set_offset_and_epoch;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchIter, BatchParams, Compression, TopicPartition};
use fletchlog_sim::exact_batch::{TIMESTAMP_MS, exact_batch};
use fletchlog_testing::{VirtualClock, Watch, WatchedTransport};
use serde_json::{Value, json};

use super::scenario::{Batches, Partition, Scenario, Step, tp};

/// The wire between consumer and broker: fetches and their answers as the recordings write them.
#[derive(Default)]
struct Wire {
    events: Vec<Value>,
    /// The fetches as a session has them.
    recorded: Vec<RecordedFetch>,
    in_flight: BTreeMap<NodeId, usize>,
    now_us: i64,
    /// Without an answer.
    fetches: usize,
}

/// `[topic, partition]`.
fn pair(tp: &TopicPartition) -> Value {
    json!([&*tp.topic, tp.partition])
}

impl Watch for Wire {
    const AT_ONCE: bool = true;

    fn sending(&mut self, node: NodeId, _: i32, request: &Request) {
        let Request::Fetch(fetch) = request else { return };
        self.record_request(node, fetch);
        self.fetches += 1;
        let listed: Vec<Value> = fetch
            .partitions()
            .map(|(topic, p)| json!([&**topic, p.partition, p.fetch_offset]))
            .collect();
        let forgotten: Vec<Value> = fetch
            .forgotten()
            .map(|(topic, partition)| json!([&**topic, partition]))
            .collect();
        self.events
            .push(json!(["req", i32::from(fetch.session_epoch > 0), listed, forgotten]));
    }

    fn arrived(&mut self, completion: &Completion) {
        let Ok(Response::Fetch(fetch)) = &completion.result else {
            return;
        };
        self.record_response(completion.node, fetch);
        self.fetches -= 1;
        let partitions: Vec<Value> = fetch
            .partitions()
            .map(|(topic, p)| {
                let (batches, records) = BatchIter::new(p.records.clone().unwrap())
                    .map_while(Result::ok)
                    .fold((0, 0), |(b, r), batch| (b + 1, r + batch.header().records_count));
                let mut row = vec![
                    json!(&**topic),
                    json!(p.partition_index),
                    json!(p.size()),
                    json!(batches),
                    json!(records),
                ];
                if p.error_code.code() != 0 {
                    row.push(json!(p.error_code.code()));
                }
                Value::Array(row)
            })
            .collect();
        self.events.push(json!(["resp", partitions]));
    }
}

impl Wire {
    fn record_request(&mut self, node: NodeId, fetch: &FetchRequest) {
        self.now_us += 1;
        self.in_flight.insert(node, self.recorded.len());
        let wanted = fetch.partitions();
        let forgotten = fetch.forgotten();
        self.recorded.push(RecordedFetch {
            number: self.recorded.len() as u64 + 1,
            node,
            at_us: self.now_us,
            full: fetch.session_epoch <= 0,
            wanted: wanted
                .map(|(topic, p)| (TopicPartition::new(Arc::clone(topic), p.partition), p.fetch_offset))
                .collect(),
            forgotten: forgotten
                .map(|(topic, partition)| TopicPartition::new(Arc::clone(topic), partition))
                .collect(),
            response: None,
        });
    }

    fn record_response(&mut self, node: NodeId, fetch: &FetchResponse) {
        self.now_us += 1;
        let at = self.in_flight.remove(&node).unwrap();
        let partitions = fetch.partitions().map(|(topic, p)| RecordedPartition {
            tp: TopicPartition::new(Arc::clone(topic), p.partition_index),
            error: p.error_code,
            high_watermark: p.high_watermark,
            last_stable_offset: p.last_stable_offset,
            preferred_read_replica: p.preferred_read_replica,
            aborted: p
                .aborted_transactions
                .iter()
                .flatten()
                .map(|of| (of.producer_id, of.first_offset))
                .collect(),
            batches: BatchIter::new(p.records.clone().unwrap_or_default())
                .map_while(Result::ok)
                .map(|batch| RecordedBatch {
                    base_offset: batch.header().base_offset,
                    last_offset: batch.header().last_offset(),
                    records: batch.header().records_count,
                    producer_id: batch.header().producer_id,
                    size: u64::try_from(batch.bytes().len()).unwrap(),
                    transactional: batch.header().is_transactional(),
                    control: batch.header().is_control(),
                })
                .collect(),
        });
        // The fetches were taken out when the last poll was over.
        let Some(recorded) = self.recorded.get_mut(at) else {
            return;
        };
        recorded.response = Some(RecordedResponse {
            at_us: self.now_us,
            error: fetch.error_code,
            session_id: fetch.session_id,
            partitions: partitions.collect(),
        });
    }
}

/// What one poll gave, in the form of the recordings.
pub struct PollResult {
    pub got: Value,
    pub err: Option<String>,
    pub net: Vec<Value>,
}

pub struct Outcome {
    pub polls: Vec<PollResult>,
    pub total: usize,
    pub positions: Vec<(TopicPartition, i64)>,
    /// Requests as the consumer's own trace records them, in the form of the recordings.
    pub traced_requests: Vec<Value>,
    /// The fetches as a session has them.
    pub recorded: Vec<RecordedFetch>,
}

fn build(batches: &Batches, base_offset: i64) -> Bytes {
    let producer_id = batches.kind.as_ref().map_or(-1, |(_, id)| 4000 + id);
    match batches.kind.as_ref().map(|(kind, _)| kind.as_str()) {
        Some(kind @ ("commit" | "abort")) => {
            let control_type = if kind == "commit" {
                ControlType::Commit
            } else {
                ControlType::Abort
            };
            let marker = EndTxnMarker {
                control_type,
                coordinator_epoch: 0,
            };
            let bytes = build_marker(base_offset, producer_id, 0, 0, TIMESTAMP_MS, marker);
            assert_eq!((bytes.len(), batches.count), (batches.size, 1));
            bytes
        }
        kind => {
            let params = BatchParams {
                base_offset,
                compression: Compression::from_name(&batches.codec).unwrap(),
                producer_id,
                producer_epoch: if kind.is_some() { 0 } else { -1 },
                base_sequence: if kind.is_some() { 0 } else { -1 },
                transactional: kind.is_some(),
                ..BatchParams::default()
            };
            let batch = exact_batch(batches.count, batches.size, &params);
            batch.unwrap_or_else(|| {
                panic!(
                    "no batch of {} records in {} bytes, {}",
                    batches.count, batches.size, batches.codec
                )
            })
        }
    }
}

fn fill(broker: &Broker, tp: &TopicPartition, partition: &Partition) {
    let log = broker.partition_log(tp).unwrap();
    for batches in &partition.batches {
        let one = build(batches, 0);
        for _ in 0..batches.repeat {
            let next = log.log_end_offset();
            if next > 0
                && partition.segments.contains(&next)
                && log.segments().last().is_some_and(|(base, _)| *base != next)
            {
                log.roll(TIMESTAMP_MS).unwrap();
            }
            let mut bytes = BytesMut::from(&one[..]);
            set_offset_and_epoch(&mut bytes, 0, 0);
            log.append_as_leader(bytes.freeze(), 0, AppendOrigin::Coordinator, TIMESTAMP_MS)
                .unwrap();
        }
    }
    let segments: Vec<i64> = log.segments().iter().map(|(base, _)| *base).collect();
    assert_eq!(
        (log.log_end_offset(), &segments),
        (partition.end, &partition.segments),
        "{tp} was not rebuilt"
    );
    if partition.log_start > 0 {
        log.delete_records(Some(partition.log_start)).unwrap();
    }
}

/// A broker with the scenario's logs.
pub fn rebuild(scenario: &Scenario, clock: &Arc<VirtualClock>) -> Arc<Broker> {
    let config = Config::parse(Scope::Broker, []).unwrap();
    let broker = Broker::in_memory(
        OpenOptions {
            nodes: Some(1),
            named_nodes: Vec::new(),
            read_only: false,
            config,
        },
        Arc::clone(clock) as Arc<dyn Clock>,
    )
    .unwrap();
    for topic in &scenario.topics {
        let partitions = i32::try_from(topic.partitions.len()).unwrap();
        broker.create_topic(&topic.name, partitions, &topic.config).unwrap();
        for (p, partition) in topic.partitions.iter().enumerate() {
            fill(
                &broker,
                &TopicPartition::new(topic.name.as_str(), i32::try_from(p).unwrap()),
                partition,
            );
        }
    }
    broker
}

/// Runs of one poll as a for-each over ConsumerRecords shows them.
fn got(records: &PolledRecords) -> Value {
    let mut rows: Vec<(TopicPartition, i64, i64, usize)> = Vec::new();
    for run in records.java_order().into_iter().map(|i| &records.runs[i]) {
        match rows.last_mut().filter(|(tp, ..)| *tp == run.tp) {
            Some(row) => {
                row.2 = run.last_offset;
                row.3 += run.count;
            }
            None => rows.push((run.tp.clone(), run.first_offset, run.last_offset, run.count)),
        }
    }
    rows.iter()
        .map(|(tp, first, last, count)| json!([&*tp.topic, tp.partition, first, last, count]))
        .collect()
}

fn java_error(error: &ClientError) -> String {
    match error {
        ClientError::NoOffsetForPartition(missing) => {
            let list = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!("NoOffsetForPartitionException: Undefined offset with no reset policy for partitions: [{list}]")
        }
        other => format!("{other:?}"),
    }
}

pub fn replay(scenario: &Scenario, properties: &[(&str, &str)]) -> Outcome {
    let clock = VirtualClock::at(TIMESTAMP_MS + 1000);
    let broker = rebuild(scenario, &clock);
    let given = [
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("fetch.max.wait.ms", "20"),
        ("fletchlog.trace", "true"),
    ];
    let group = scenario.group.then_some(("group.id", "fresh"));
    let client = scenario.client.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    let config = Config::parse(
        Scope::Consumer,
        given
            .into_iter()
            .chain(group)
            .chain(client)
            .chain(properties.iter().copied()),
    )
    .unwrap();
    let transport = WatchedTransport::on_clock(LocalTransport::new(broker), Wire::default(), &clock, 1);
    let mut consumer = Consumer::new(
        config,
        Box::new(transport.clone()),
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .unwrap();

    let mut polls: Vec<PollResult> = Vec::new();
    let mut total = 0;
    for step in &scenario.steps {
        match step {
            Step::Assign(tps) => consumer.assign(tps).unwrap(),
            Step::Subscribe(topics) => consumer
                .subscribe(&topics.iter().map(|t| t.as_str().into()).collect::<Vec<_>>())
                .unwrap(),
            Step::Seek(list) => list.iter().for_each(|(tp, offset)| consumer.seek(tp, *offset).unwrap()),
            Step::SeekToBeginning(tps) => consumer.seek_to_beginning(tps).unwrap(),
            Step::SeekToEnd(tps) => consumer.seek_to_end(tps).unwrap(),
            Step::Pause(tps) => consumer.pause(tps).unwrap(),
            Step::Resume(tps) => consumer.resume(tps).unwrap(),
            Step::Poll(times, until) => {
                for _ in 0..*times {
                    if until.is_some_and(|t| total >= t) {
                        break;
                    }
                    let outcome = consumer.poll(scenario.poll_timeout_ms, &mut || false);
                    settle(&transport, &clock, scenario.settle_cap_ms);
                    let net = std::mem::take(&mut transport.lock().watch.events);
                    let (got, err) = match &outcome {
                        Ok(records) => {
                            total += records.count();
                            (got(records), None)
                        }
                        Err(error) => (Value::Null, Some(java_error(error))),
                    };
                    polls.push(PollResult { got, err, net });
                }
            }
        }
    }
    let recorded = std::mem::take(&mut transport.lock().watch.recorded);
    let positions = consumer.assignment();
    let positions = positions
        .into_iter()
        .map(|tp| {
            let at = consumer.position(&tp, 1000, &mut || false).unwrap_or(-1);
            (tp, at)
        })
        .collect();
    let traced_requests = traced_requests(consumer.trace());
    Outcome {
        recorded,
        polls,
        total,
        positions,
        traced_requests,
    }
}

fn traced_requests(events: &[TraceEvent]) -> Vec<Value> {
    let asked = events.iter().filter(|e| e.kind == TraceKind::Ask);
    let request = |e: &TraceEvent| {
        let (forgotten, listed): (Vec<_>, Vec<_>) = e.partitions.iter().partition(|p| p.gone);
        let listed = listed.iter().map(|p| json!([&*p.tp.topic, p.tp.partition, p.offset]));
        let forgotten = forgotten.iter().map(|p| pair(&p.tp));
        json!([
            "req",
            i32::from(e.full == Some(false)),
            listed.collect::<Vec<_>>(),
            forgotten.collect::<Vec<_>>()
        ])
    };
    asked.map(request).collect()
}

/// Lets time pass until every fetch has been answered: the recordings waited for that between two calls.
fn settle(transport: &WatchedTransport<LocalTransport, Wire>, clock: &VirtualClock, cap_ms: i64) {
    let until = clock.monotonic_ms() + cap_ms;
    while transport.lock().watch.fetches > 0 && clock.monotonic_ms() < until {
        clock.advance(1);
        transport.lock().look();
    }
}

/// `[[t,p,offset]..]` of a recording, as sorted pairs.
pub fn positions_of(v: &Value) -> Vec<(TopicPartition, i64)> {
    let mut all: Vec<_> = super::scenario::array(v)
        .iter()
        .map(|p| (tp(p), p[2].as_i64().unwrap()))
        .collect();
    all.sort();
    all
}
