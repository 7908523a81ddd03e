//! A node that leads a share group's partitions and coordinates the group. It notes what it is asked, in words.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::{
    FindCoordinatorResponse, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, share_acknowledge_response as acknowledged,
    share_fetch_response as fetched, share_group_heartbeat_response as heartbeat,
};
use fletchlog_records::{BatchBuilder, BatchParams};
use fletchlog_testing::{Answer, Peer};
use fletchlog_testing::{ScriptedTransport, Sent, VirtualClock};

use crate::net::fixtures::{cluster, topic};
use crate::share_consumer::{AcknowledgeType, ShareConsumer};

/// Of the topic `t`.
pub const TOPIC_ID: TopicId = [7; 16];

/// What the test sets, and what was asked.
#[derive(Default)]
pub struct State {
    pub log: Vec<String>,
    /// Acquired records of each partition that the next fetch returns: first offset, last offset, delivery count.
    pub records: BTreeMap<i32, Vec<(i64, i64, i16)>>,
    /// The error of the next ShareFetch or ShareAcknowledge as a whole.
    pub refuses: VecDeque<ErrorCode>,
    /// Errors of acknowledgements of a partition.
    pub acknowledge_errors: BTreeMap<i32, ErrorCode>,
    /// Answers of heartbeats: epoch, partitions.
    pub heartbeats: VecDeque<(i32, Option<Vec<i32>>)>,
    pub leaders: Vec<NodeId>,
    waiting: Vec<(i64, Completion)>,
    member_id: Option<Arc<str>>,
}

#[derive(Clone)]
pub struct Leader(pub Arc<Mutex<State>>);

fn partitions_in_words(of: impl IntoIterator<Item = (i32, Vec<(i64, i64, Vec<i8>)>)>) -> String {
    let mut text = String::new();
    for (partition, batches) in of {
        let _ = write!(text, " {partition}");
        for (first, last, types) in batches {
            let _ = write!(text, ":{first}-{last}={types:?}");
        }
    }
    text
}

fn records_of(ranges: &[(i64, i64, i16)]) -> Bytes {
    let mut all = Vec::new();
    for &(first, last, _) in ranges {
        let mut builder = BatchBuilder::with_capacity(64);
        for offset in first..=last {
            builder.append(0, None, Some(format!("v{offset}").as_bytes()), &[]);
        }
        let params = BatchParams {
            base_offset: first,
            ..Default::default()
        };
        all.extend_from_slice(&builder.build(&params));
    }
    all.into()
}

impl State {
    fn heartbeat(&mut self, request: &ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse {
        let topics = request.subscribed_topic_names.as_ref().map(|names| names.join(","));
        self.log
            .push(format!("heartbeat {} {:?}", request.member_epoch, topics));
        let same = self.member_id.get_or_insert_with(|| Arc::clone(&request.member_id));
        assert_eq!(same, &request.member_id, "a member keeps its id");
        let (member_epoch, assigned) = match request.member_epoch {
            -1 => (-1, None),
            epoch => self.heartbeats.pop_front().unwrap_or((epoch, None)),
        };
        let assigned = assigned.map(|partitions| heartbeat::Assignment {
            topic_partitions: match partitions.is_empty() {
                true => Vec::new(),
                false => vec![heartbeat::TopicPartitions {
                    topic_id: TOPIC_ID,
                    partitions,
                }],
            },
        });
        ShareGroupHeartbeatResponse {
            member_epoch,
            heartbeat_interval_ms: 5000,
            assignment: assigned,
            ..Default::default()
        }
    }

    /// Notes a fetch in words. Returns the partitions that it acknowledges records of.
    fn note_fetch(&mut self, request: &ShareFetchRequest) -> Vec<i32> {
        let epoch = request.share_session_epoch;
        let mut acknowledges = Vec::new();
        let named = request
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| {
                let batches = partition.acknowledgement_batches.iter();
                let batches: Vec<_> = batches
                    .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types.clone()))
                    .collect();
                if !batches.is_empty() {
                    acknowledges.push(partition.partition_index);
                }
                (partition.partition_index, batches)
            });
        let named = partitions_in_words(named.collect::<Vec<_>>());
        let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| &topic.partitions);
        let forgotten: Vec<i32> = forgotten.copied().collect();
        let renews = if request.is_renew_ack { " renews" } else { "" };
        let forgets = if forgotten.is_empty() {
            String::new()
        } else {
            format!(" forgets {forgotten:?}")
        };
        let asks = match request.max_records == 0 && !request.is_renew_ack {
            true => " for no records",
            false => "",
        };
        self.log.push(format!("fetch {epoch}{named}{forgets}{renews}{asks}"));
        acknowledges
    }

    /// The answer, and whether it waits for records.
    fn fetch(&mut self, request: &ShareFetchRequest) -> (ShareFetchResponse, bool) {
        let epoch = request.share_session_epoch;
        let acknowledges = self.note_fetch(request);
        let limits = [
            request.max_wait_ms,
            request.min_bytes,
            request.max_records,
            request.batch_size,
        ];
        let is_for_none = limits == [0; 4];
        assert!(is_for_none || !limits.contains(&0), "{limits:?}");
        assert!(is_for_none || !request.is_renew_ack, "{limits:?}");
        if let Some(error_code) = self.refuses.pop_front() {
            let refused = ShareFetchResponse {
                error_code,
                ..Default::default()
            };
            return (refused, false);
        }
        assert!(
            epoch > 0 || acknowledges.is_empty(),
            "no acknowledgements open a session"
        );
        let records = if is_for_none {
            BTreeMap::new()
        } else {
            std::mem::take(&mut self.records)
        };
        let mut partitions: BTreeMap<i32, fetched::PartitionData> = BTreeMap::new();
        for partition in acknowledges {
            let of = partitions.entry(partition).or_default();
            of.acknowledge_error_code = self
                .acknowledge_errors
                .get(&partition)
                .copied()
                .unwrap_or(ErrorCode::NONE);
        }
        let waits = records.is_empty() && !is_for_none;
        for (partition, ranges) in records {
            let of = partitions.entry(partition).or_default();
            of.records = Some(records_of(&ranges));
            let acquired = ranges.iter().map(
                |&(first_offset, last_offset, delivery_count)| fetched::AcquiredRecords {
                    first_offset,
                    last_offset,
                    delivery_count,
                },
            );
            of.acquired_records = acquired.collect();
        }
        let partitions = partitions
            .into_iter()
            .map(|(partition_index, of)| fetched::PartitionData { partition_index, ..of });
        let response = ShareFetchResponse {
            acquisition_lock_timeout_ms: 30_000,
            responses: vec![fetched::ShareFetchableTopicResponse {
                topic_id: TOPIC_ID,
                partitions: partitions.collect(),
            }],
            ..Default::default()
        };
        (response, waits)
    }

    fn acknowledge(&mut self, request: &ShareAcknowledgeRequest) -> ShareAcknowledgeResponse {
        let named = request
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| {
                let batches = partition.acknowledgement_batches.iter();
                let batches =
                    batches.map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types.clone()));
                (partition.partition_index, batches.collect())
            });
        let named: Vec<(i32, Vec<_>)> = named.collect();
        let partitions: Vec<i32> = named.iter().map(|(partition, _)| *partition).collect();
        let words = partitions_in_words(named);
        self.log
            .push(format!("acknowledge {}{words}", request.share_session_epoch));
        let partitions = partitions
            .into_iter()
            .map(|partition_index| acknowledged::PartitionData {
                partition_index,
                error_code: self
                    .acknowledge_errors
                    .get(&partition_index)
                    .copied()
                    .unwrap_or(ErrorCode::NONE),
                ..Default::default()
            });
        let responses = vec![acknowledged::ShareAcknowledgeTopicResponse {
            topic_id: TOPIC_ID,
            partitions: partitions.collect(),
        }];
        ShareAcknowledgeResponse {
            error_code: self.refuses.pop_front().unwrap_or(ErrorCode::NONE),
            responses,
            ..Default::default()
        }
    }
}

impl Peer for Leader {
    fn handle(&mut self, now_ms: i64, sent: &Sent) -> Option<Answer> {
        let mut state = self.0.lock().unwrap();
        let response = match &sent.request {
            Request::Metadata(request) => {
                let mut of_topic = topic("t", state.leaders.iter().map(|leader| (*leader, 1)));
                of_topic.topic_id = TOPIC_ID;
                let mut asked = request.topics.iter().flatten();
                let is_asked = asked.any(|topic| topic.name.as_deref() == Some("t"));
                Response::Metadata(cluster([1, 2], is_asked.then_some(of_topic)))
            }
            Request::FindCoordinator(_) => Response::FindCoordinator(FindCoordinatorResponse {
                coordinators: vec![Coordinator {
                    node_id: 1,
                    ..Default::default()
                }],
                ..Default::default()
            }),
            Request::ShareGroupHeartbeat(request) => Response::ShareGroupHeartbeat(state.heartbeat(request)),
            Request::ShareAcknowledge(request) => Response::ShareAcknowledge(state.acknowledge(request)),
            Request::ShareFetch(request) => {
                let (response, waits) = state.fetch(request);
                let response = Response::ShareFetch(response);
                if waits {
                    let completion = Completion {
                        node: sent.node,
                        correlation_id: sent.correlation_id,
                        result: Ok(response),
                    };
                    state
                        .waiting
                        .push((now_ms + i64::from(request.max_wait_ms), completion));
                    return None;
                }
                response
            }
            other => panic!("{other:?}"),
        };
        Some(Ok(response))
    }

    fn due(&mut self, now_ms: i64) -> Vec<Completion> {
        let mut state = self.0.lock().unwrap();
        let (due, waiting) = std::mem::take(&mut state.waiting)
            .into_iter()
            .partition(|(at_ms, _)| *at_ms <= now_ms);
        state.waiting = waiting;
        let due: Vec<(i64, Completion)> = due;
        due.into_iter().map(|(_, completion)| completion).collect()
    }

    fn next_due_ms(&self) -> Option<i64> {
        self.0.lock().unwrap().waiting.iter().map(|(at_ms, _)| *at_ms).min()
    }
}

/// A consumer of the topic `t` with two partitions, and its leader.
pub struct Member {
    pub consumer: ShareConsumer,
    pub leader: Leader,
    pub transport: ScriptedTransport,
}

impl Member {
    pub fn new(config: &[(&str, &str)]) -> Self {
        let state = State {
            leaders: vec![1, 1],
            heartbeats: VecDeque::from([(2, Some(vec![])), (2, None), (3, Some(vec![0, 1]))]),
            ..Default::default()
        };
        let leader = Leader(Arc::new(Mutex::new(state)));
        let transport = ScriptedTransport::new(VirtualClock::at(0), leader.clone());
        let given = [("group.id", "g"), ("client.id", "c")];
        let config = Config::parse(Scope::Consumer, given.into_iter().chain(config.iter().copied())).unwrap();
        let clock = transport.clock.clone();
        let mut consumer = ShareConsumer::new(&config, Box::new(transport.clone()), clock).unwrap();
        consumer.subscribe(&["t".into()], &mut || false).unwrap();
        Self {
            consumer,
            leader,
            transport,
        }
    }

    /// Accepts these records of partition 0.
    pub fn accepts(&mut self, first: i64, last: i64) {
        self.consumer
            .acknowledge(&super::tp(0), first, last, AcknowledgeType::Accept)
            .unwrap();
    }

    /// A member that has its partitions and has fetched once.
    pub fn joined(config: &[(&str, &str)]) -> Self {
        let mut member = Self::new(config);
        assert_eq!(member.poll(1000), "");
        member.log();
        member
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.leader.0.lock().unwrap()
    }

    /// What the next fetch returns.
    pub fn acquires(&self, partition: i32, ranges: &[(i64, i64, i16)]) {
        self.state().records.insert(partition, ranges.to_vec());
    }

    /// The requests since the last call.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    /// The records of a poll: partition, first and last offset, delivery count of each run.
    pub fn poll(&mut self, timeout_ms: i64) -> String {
        let polled = self.consumer.poll(None, timeout_ms, &mut || false).unwrap();
        let runs = polled.runs.iter().map(|run| {
            let count = run.delivery_count.unwrap();
            format!("{}:{}-{}x{count}", run.tp.partition, run.first_offset, run.last_offset)
        });
        runs.collect::<Vec<_>>().join(" ")
    }
}
