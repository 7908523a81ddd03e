//! A small broker for tests: logs of batches in memory, fetches as spec 6.2-6.6 serve them, lookups, and a place for scripted
//! errors. Time is virtual: waiting moves the clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use fletchlog_api::transport::node_of_connection;
use fletchlog_api::*;
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};
use fletchlog_protocol::messages::find_coordinator_response::Coordinator;
use fletchlog_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use fletchlog_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use fletchlog_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;
use fletchlog_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use fletchlog_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use fletchlog_records::batch::set_offset_and_epoch;
use fletchlog_records::{BatchBuilder, BatchHeader, BatchParams, TopicPartition};
use fletchlog_testing::{Answer, Peer, ScriptedTransport, Sent, VirtualClock};

use crate::net::fixtures::cluster;

#[derive(Debug, Default)]
pub struct FakeLog {
    /// (last offset, bytes) in offset order.
    pub batches: Vec<(i64, Bytes)>,
    pub start: i64,
    pub aborted: Vec<AbortedTransaction>,
    /// What a fetch of this partition answers instead, one per fetch.
    pub fetch_errors: VecDeque<ErrorCode>,
    /// Why the log cannot be read, while it cannot.
    pub unreadable: Option<&'static str>,
    /// What a lookup answers instead, one per lookup.
    pub lookup_errors: VecDeque<ErrorCode>,
    /// The leader's epoch in the metadata.
    pub leader_epoch: i32,
    /// A follower that the leader names in place of records.
    pub preferred: Option<NodeId>,
    /// What an OffsetForLeaderEpoch answers, one per question; without any: nothing was cut.
    pub epoch_ends: VecDeque<(ErrorCode, i32, i64)>,
}

impl FakeLog {
    /// The answer to a read of any kind, unless `error` comes before it.
    fn refusal(&self, error: Option<ErrorCode>) -> (ErrorCode, Option<String>) {
        match (error, self.unreadable) {
            (None, Some(why)) => (ErrorCode::KAFKA_STORAGE_ERROR, Some(why.to_owned())),
            (error, _) => (error.unwrap_or(ErrorCode::NONE), None),
        }
    }
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, |(last, _)| last + 1)
    }
    /// Appends a batch, its base offset set to the end.
    pub fn append(&mut self, batch: &Bytes) {
        let base = self.end();
        self.append_at(base, batch);
    }
    pub fn append_at(&mut self, base: i64, batch: &Bytes) {
        let mut bytes = BytesMut::from(&batch[..]);
        set_offset_and_epoch(&mut bytes, base, 0);
        let last = BatchHeader::parse(&bytes).unwrap().last_offset();
        self.batches.push((last, bytes.freeze()));
    }
    fn read(&self, offset: i64, max: usize, min_one: bool) -> Bytes {
        let from = self.batches.partition_point(|(last, _)| *last < offset);
        let Some((_, first)) = self.batches.get(from) else {
            return Bytes::new();
        };
        let max = if min_one { max.max(first.len()) } else { max };
        if max < first.len() {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        for (_, batch) in &self.batches[from..] {
            let room = max - out.len();
            out.extend_from_slice(&batch[..batch.len().min(room)]);
            if batch.len() >= room {
                break;
            }
        }
        out.freeze()
    }
}

fn tp_of(topic: &Arc<str>, partition: i32) -> TopicPartition {
    TopicPartition::new(Arc::clone(topic), partition)
}

/// (high watermark, log start), `None` = never.
type LastSent = Option<(i64, i64)>;

#[derive(Debug, Default)]
struct Session {
    node: NodeId,
    epoch: i32,
    /// In order.
    partitions: Vec<(TopicPartition, FetchPartition, LastSent)>,
}

/// What went over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Net {
    Fetch {
        full: bool,
        listed: Vec<(TopicPartition, i64)>,
        forgotten: Vec<TopicPartition>,
    },
    ListOffsets(Vec<(TopicPartition, i64)>),
    /// (partition, epoch asked for).
    LeaderEpochs(Vec<(TopicPartition, i32)>),
    Metadata,
    Commit(Vec<(TopicPartition, i64)>),
    OffsetFetch,
}

#[derive(Debug)]
struct Delayed {
    node: NodeId,
    id: i32,
    session: i32,
    until: i64,
}

#[derive(Debug, Default)]
pub struct State {
    pub logs: BTreeMap<TopicPartition, FakeLog>,
    /// The id that the metadata has for topics: 0, none.
    pub topic_id: u8,
    pub leaders: BTreeMap<TopicPartition, NodeId>,
    pub committed: BTreeMap<TopicPartition, OffsetAndMetadata>,
    pub net: Vec<Net>,
    /// Nodes that were asked for records, in the order of the requests.
    pub fetched_from: Vec<NodeId>,
    /// Nodes that lead nothing.
    pub followers: Vec<NodeId>,
    /// The next fetches get these top-level errors.
    pub session_errors: VecDeque<ErrorCode>,
    /// The next fetches lose their connection.
    pub disconnects: usize,
    /// A partition added to the next fetch answer that nobody asked for.
    pub uninvited: Option<TopicPartition>,
    sessions: BTreeMap<i32, Session>,
    next_session: i32,
    delayed: Vec<Delayed>,
}

#[derive(Debug, Clone, Default)]
pub struct FakeBroker {
    pub clock: Arc<VirtualClock>,
    state: Arc<Mutex<State>>,
}

/// A batch of `count` records with 10-byte values at offset 0.
pub fn batch(count: usize) -> Bytes {
    batch_of(count, &BatchParams::default())
}

pub fn batch_of(count: usize, params: &BatchParams) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(1024);
    for i in 0..count {
        builder.append(1_700_000_000_000, None, Some(format!("{i:010}").as_bytes()), &[]);
    }
    builder.build(params)
}

impl FakeBroker {
    /// A client's connections. Waiting moves the broker's clock.
    pub fn transport(&self) -> Box<dyn Transport> {
        Box::new(ScriptedTransport::new(self.clock.clone(), self.clone()))
    }
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
    /// A partition on node 1 with `batches` batches of `records` records.
    pub fn with(self, topic: &str, partition: i32, batches: usize, records: usize) -> Self {
        let tp = TopicPartition::new(topic, partition);
        let one = batch(records);
        let mut log = FakeLog::default();
        (0..batches).for_each(|_| log.append(&one));
        self.state().logs.insert(tp, log);
        self
    }
    pub fn log(&self, topic: &str, change: impl FnOnce(&mut FakeLog)) {
        change(self.state().logs.get_mut(&TopicPartition::new(topic, 0)).unwrap());
    }
    pub fn take_net(&self) -> Vec<Net> {
        std::mem::take(&mut self.state().net)
    }
}

impl State {
    fn leader(&self, tp: &TopicPartition) -> NodeId {
        self.leaders.get(tp).copied().unwrap_or(1)
    }

    fn metadata(&self, request: MetadataRequest) -> MetadataResponse {
        let mut names: Vec<Arc<str>> = self.logs.keys().map(|tp| tp.topic.clone()).collect();
        names.dedup();
        let asked = match request.topics {
            Some(topics) => topics.into_iter().filter_map(|topic| topic.name).collect(),
            None => names.clone(),
        };
        let topics = asked.into_iter().map(|name| MetadataResponseTopic {
            error_code: if names.contains(&name) {
                ErrorCode::NONE
            } else {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            },
            topic_id: [self.topic_id; 16],
            is_internal: name.starts_with("__"),
            partitions: self
                .logs
                .keys()
                .filter(|tp| tp.topic == name)
                .map(|tp| MetadataResponsePartition {
                    partition_index: tp.partition,
                    leader_id: self.leader(tp),
                    leader_epoch: self.logs[tp].leader_epoch,
                    ..Default::default()
                })
                .collect(),
            name: Some(name),
            ..Default::default()
        });
        let leaders = self.leaders.values().copied().chain([1]);
        let mut nodes: Vec<NodeId> = leaders.chain(self.followers.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        cluster(nodes, topics)
    }

    fn list_offsets(&mut self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        self.net.push(Net::ListOffsets(
            request
                .partitions()
                .map(|(topic, p)| (TopicPartition::new(topic.clone(), p.partition_index), p.timestamp))
                .collect(),
        ));
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|asked| {
                let tp = TopicPartition::new(topic.name.clone(), asked.partition_index);
                let log = self.logs.get_mut(&tp).unwrap();
                let error = log.lookup_errors.pop_front();
                let (error, error_message) = log.refusal(error);
                let offset = match asked.timestamp {
                    ListOffsetsRequest::EARLIEST_TIMESTAMP => log.start,
                    ListOffsetsRequest::LATEST_TIMESTAMP => log.end(),
                    // Every record of these logs has the same time.
                    1_700_000_000_001.. => -1,
                    _ => log.start,
                };
                ListOffsetsPartitionResponse {
                    partition_index: asked.partition_index,
                    error_code: error,
                    error_message: error_message.map(Into::into),
                    timestamp: -1,
                    offset,
                    leader_epoch: 0,
                }
            });
            ListOffsetsTopicResponse {
                partitions: partitions.collect(),
                name: topic.name,
            }
        });
        ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn leader_epochs(&mut self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        self.net.push(Net::LeaderEpochs(
            request
                .topics
                .iter()
                .flat_map(|topic| {
                    let tp = |p| TopicPartition::new(topic.topic.clone(), p);
                    topic.partitions.iter().map(move |p| (tp(p.partition), p.leader_epoch))
                })
                .collect(),
        ));
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|asked| {
                let tp = TopicPartition::new(topic.topic.clone(), asked.partition);
                let log = self.logs.get_mut(&tp).unwrap();
                let kept = (ErrorCode::NONE, asked.leader_epoch, log.end());
                let (error, leader_epoch, end_offset) = log.epoch_ends.pop_front().unwrap_or(kept);
                let (error, error_message) = log.refusal((error != ErrorCode::NONE).then_some(error));
                EpochEndOffset {
                    partition: asked.partition,
                    error_code: error,
                    error_message: error_message.map(Into::into),
                    leader_epoch,
                    end_offset,
                }
            });
            OffsetForLeaderTopicResult {
                partitions: partitions.collect(),
                topic: topic.topic,
            }
        });
        OffsetForLeaderEpochResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn fetch(&mut self, node: NodeId, id: i32, request: FetchRequest, now: i64) -> Option<Answer> {
        let full = request.session_epoch <= 0;
        self.fetched_from.push(node);
        self.net.push(Net::Fetch {
            full,
            listed: request
                .partitions()
                .map(|(topic, p)| (tp_of(topic, p.partition), p.fetch_offset))
                .collect(),
            forgotten: request.forgotten().map(|(topic, p)| tp_of(topic, p)).collect(),
        });
        if self.disconnects > 0 {
            self.disconnects -= 1;
            return Some(Err(Failure::Disconnected));
        }
        if let Some(error) = self.session_errors.pop_front() {
            return Some(Ok(Response::Fetch(FetchResponse {
                error_code: error,
                ..Default::default()
            })));
        }
        let session_id = if full {
            self.sessions.remove(&request.session_id);
            self.next_session += 1;
            let new = |(topic, p): (_, &FetchPartition)| (tp_of(topic, p.partition), p.clone(), None);
            let partitions = request.partitions().map(new).collect();
            self.sessions.insert(
                self.next_session,
                Session {
                    node,
                    epoch: 0,
                    partitions,
                },
            );
            self.next_session
        } else {
            let session = self.sessions.get_mut(&request.session_id).expect("a known session");
            assert_eq!(request.session_epoch, session.epoch + 1, "the next epoch");
            session.epoch += 1;
            for (topic, p) in request.partitions() {
                let tp = tp_of(topic, p.partition);
                match session.partitions.iter_mut().find(|(other, ..)| *other == tp) {
                    Some((_, q, _)) => *q = p.clone(),
                    None => session.partitions.push((tp, p.clone(), None)),
                }
            }
            let forgotten: Vec<_> = request.forgotten().map(|(topic, p)| tp_of(topic, p)).collect();
            session.partitions.retain(|(tp, ..)| !forgotten.contains(tp));
            request.session_id
        };
        let request = FetchRequest { session_id, ..request };
        let response = self.serve(&request, full, false);
        if response.is_none() {
            self.delayed.push(Delayed {
                node,
                id,
                session: session_id,
                until: now + i64::from(request.max_wait_ms),
            });
        }
        response.map(|response| Ok(Response::Fetch(response)))
    }

    /// `None`: nothing to answer yet.
    #[allow(clippy::too_many_lines, reason = "one walk over what is asked for")]
    fn serve(&mut self, request: &FetchRequest, full: bool, timed_out: bool) -> Option<FetchResponse> {
        let mut session = self.sessions.remove(&request.session_id).unwrap_or_default();
        let mut limit = usize::try_from(request.max_bytes).unwrap();
        let mut min_one = true;
        let mut partitions = Vec::new();
        let mut with_data = Vec::new();
        let mut errors = false;
        for (tp, p, sent) in &mut session.partitions {
            let log = self.logs.get_mut(tp).unwrap();
            let error = log.fetch_errors.pop_front();
            let (mut error, error_message) = log.refusal(error);
            if p.fetch_offset < log.start || p.fetch_offset > log.end() {
                error = ErrorCode::OFFSET_OUT_OF_RANGE;
            }
            let max = usize::try_from(p.partition_max_bytes).unwrap().min(limit);
            let preferred_read_replica = log
                .preferred
                .filter(|&other| other != session.node && error == ErrorCode::NONE);
            let records = if error == ErrorCode::NONE && preferred_read_replica.is_none() {
                log.read(p.fetch_offset, max, min_one)
            } else {
                Bytes::new()
            };
            limit = limit.saturating_sub(records.len());
            min_one &= records.is_empty();
            errors |= error != ErrorCode::NONE || preferred_read_replica.is_some();
            let ends = (log.end(), log.start);
            if full
                || !records.is_empty()
                || error != ErrorCode::NONE
                || preferred_read_replica.is_some()
                || *sent != Some(ends)
            {
                *sent = Some(ends);
                if !records.is_empty() {
                    with_data.push(tp.clone());
                }
                let aborted_transactions = Some(log.aborted.clone());
                let partition = PartitionData {
                    partition_index: tp.partition,
                    error_code: error,
                    error_message: error_message.map(Into::into),
                    high_watermark: ends.0,
                    last_stable_offset: ends.0,
                    log_start_offset: ends.1,
                    aborted_transactions,
                    preferred_read_replica: preferred_read_replica.unwrap_or(-1),
                    records: Some(records),
                    ..Default::default()
                };
                partitions.push((tp.clone(), partition));
            }
        }
        let empty = with_data.is_empty() && !errors;
        if !full {
            for tp in with_data {
                let at = session.partitions.iter().position(|(other, ..)| *other == tp).unwrap();
                let entry = session.partitions.remove(at);
                session.partitions.push(entry);
            }
        }
        if empty && !timed_out && request.min_bytes > 0 {
            // What was marked as sent was not: a delayed fetch reads again.
            let answered: Vec<_> = partitions.into_iter().map(|(tp, _)| tp).collect();
            session
                .partitions
                .iter_mut()
                .filter(|(tp, ..)| answered.contains(tp))
                .for_each(|(.., sent)| *sent = None);
            self.sessions.insert(request.session_id, session);
            return None;
        }
        self.sessions.insert(request.session_id, session);
        if let Some(tp) = self.uninvited.take() {
            let partition = PartitionData {
                partition_index: tp.partition,
                last_stable_offset: 0,
                log_start_offset: 0,
                aborted_transactions: None,
                ..Default::default()
            };
            partitions.push((tp, partition));
        }
        Some(FetchResponse {
            session_id: request.session_id,
            ..FetchResponse::of(partitions)
        })
    }

    /// Answers delayed fetches whose time has come.
    fn expire(&mut self, now: i64) -> Vec<Completion> {
        let mut answered = Vec::new();
        for d in std::mem::take(&mut self.delayed) {
            if d.until > now {
                self.delayed.push(d);
                continue;
            }
            let full = self.sessions[&d.session].epoch == 0;
            let request = FetchRequest {
                max_wait_ms: 0,
                min_bytes: 0,
                max_bytes: 1 << 20,
                isolation_level: IsolationLevel::ReadUncommitted,
                session_id: d.session,
                session_epoch: 0,
                ..Default::default()
            };
            let response = self.serve(&request, full, true).unwrap();
            answered.push(Completion {
                node: d.node,
                correlation_id: d.id,
                result: Ok(Response::Fetch(response)),
            });
        }
        answered
    }
}

impl Peer for FakeBroker {
    fn handle(&mut self, now_ms: i64, sent: &Sent) -> Option<Answer> {
        let mut state = self.state();
        assert!(node_of_connection(sent.node) <= 9);
        let response = match sent.request.clone() {
            Request::Metadata(m) => {
                state.net.push(Net::Metadata);
                Response::Metadata(state.metadata(m))
            }
            Request::ListOffsets(r) => Response::ListOffsets(state.list_offsets(r)),
            Request::OffsetForLeaderEpoch(r) => Response::OffsetForLeaderEpoch(state.leader_epochs(r)),
            Request::Fetch(r) => return state.fetch(sent.node, sent.correlation_id, r, now_ms),
            Request::FindCoordinator(_) => Response::FindCoordinator(FindCoordinatorResponse {
                coordinators: vec![Coordinator {
                    node_id: 1,
                    ..Default::default()
                }],
                ..Default::default()
            }),
            Request::OffsetFetch(r) => {
                state.net.push(Net::OffsetFetch);
                let committed = |topic: &OffsetFetchRequestTopics| {
                    let of = |partition| TopicPartition::new(Arc::clone(&topic.name), partition);
                    topic.answered(|partition| Ok(state.committed.get(&of(partition))))
                };
                Response::OffsetFetch(OffsetFetchResponse {
                    groups: vec![OffsetFetchResponseGroup {
                        topics: r.groups[0].topics.iter().flatten().map(committed).collect(),
                        ..Default::default()
                    }],
                    ..Default::default()
                })
            }
            Request::OffsetCommit(r) => {
                let offsets = r.offsets().map(|(tp, o)| (tp, o.offset));
                state.net.push(Net::Commit(offsets.collect()));
                state.committed.extend(r.offsets());
                Response::OffsetCommit(r.answered(std::iter::repeat(ErrorCode::NONE)))
            }
            other => panic!("not served here: {other:?}"),
        };
        Some(Ok(response))
    }
    fn due(&mut self, now_ms: i64) -> Vec<Completion> {
        self.state().expire(now_ms)
    }
    fn next_due_ms(&self) -> Option<i64> {
        self.state().delayed.iter().map(|d| d.until).min()
    }
}
