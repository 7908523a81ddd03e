//! A panic in a handler or a timer ends only that request or that work. Other connections, timers and later requests are served, and the
//! panic is logged.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::panics::PLANTED;
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::messages::*;
use fletchlog_protocol::{Message, Reader, frame};
use fletchlog_records::ErrorCode;
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use super::requests::{Shape, Values, all};
use crate::{ListenOptions, SocketServer};

/// Time limit that only a failing test reaches.
const PATIENCE: Duration = Duration::from_secs(30);

struct Lines;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Lines {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }
    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.lock().unwrap().push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

/// A listener with short timers and a topic `t0` with two partitions.
struct Listener {
    server: SocketServer,
    broker: Arc<Broker>,
}

impl Listener {
    fn open() -> Self {
        static LOGGER: Once = Once::new();
        LOGGER.call_once(|| {
            log::set_logger(&Lines).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
        });
        let options = OpenOptions {
            nodes: None,
            named_nodes: Vec::new(),
            read_only: false,
            config: Config::parse(
                Scope::Broker,
                [
                    ("group.initial.rebalance.delay.ms", "50"),
                    ("group.min.session.timeout.ms", "50"),
                    ("offsets.retention.check.interval.ms", "100"),
                    ("share.coordinator.cold.partition.snapshot.interval.ms", "100"),
                    ("share.coordinator.state.topic.prune.interval.ms", "100"),
                    ("group.share.min.record.lock.duration.ms", "1000"),
                    ("group.share.record.lock.duration.ms", "1000"),
                    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"),
                ],
            )
            .unwrap(),
        };
        let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
        broker.create_topic("t0", 2, &[]).unwrap();
        let options = ListenOptions {
            host: "127.0.0.1".to_owned(),
            port: 0,
            advertised: None,
            config: vec![("connections.max.idle.ms".to_owned(), "3000".to_owned())],
            record: None,
        };
        let server = SocketServer::start(&broker, &options).unwrap();
        Self { server, broker }
    }

    /// Gives a share group its state of the first partition.
    fn initialize_share(&self, group: &str) {
        let request = InitializeShareGroupStateRequest {
            group_id: group.into(),
            topics: vec![initialize_share_group_state_request::InitializeStateData {
                topic_id: self.broker.describe_topic("t0").unwrap().topic_id,
                partitions: vec![initialize_share_group_state_request::PartitionData {
                    start_offset: -1,
                    ..Default::default()
                }],
            }],
        };
        self.broker.initialize_state(&request).unwrap();
    }

    /// A fetch of the member of a share group from the first partition, without limits of time and bytes.
    fn share_fetch(&self, group: &str, epoch: i32) -> ShareFetchRequest {
        ShareFetchRequest {
            group_id: Some(group.into()),
            member_id: Some("m".into()),
            share_session_epoch: epoch,
            min_bytes: 1,
            max_records: 10,
            batch_size: 10,
            topics: vec![share_fetch_request::FetchTopic {
                topic_id: self.broker.describe_topic("t0").unwrap().topic_id,
                partitions: vec![share_fetch_request::FetchPartition::default()],
            }],
            ..Default::default()
        }
    }

    fn connect(&self) -> Client {
        let endpoint = &self.server.endpoints()[0];
        let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    /// Also true once the group has expired: without members and offsets it does so soon.
    fn is_without_members(&self, group: &str) -> bool {
        self.broker
            .describe_group(group)
            .map_or(true, |group| group.members.is_empty())
    }

    /// Checks that a new connection and an old one are served.
    fn works(&self, witness: &mut Client) {
        for client in [witness, &mut self.connect()] {
            let request = MetadataRequest {
                topics: Some(vec![metadata_request::MetadataRequestTopic {
                    name: Some("t0".into()),
                    ..Default::default()
                }]),
                ..Default::default()
            };
            let answer: MetadataResponse = client.ask(3, 12, &request).expect("an answer");
            assert_eq!(answer.topics[0].partitions.len(), 2);
        }
    }
}

/// One connection.
struct Client(TcpStream);

impl Client {
    fn send(&mut self, request: &[u8]) {
        let size = i32::try_from(request.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&size, request].concat()).unwrap();
    }

    /// A response without its size; `None`: the connection was closed.
    fn receive(&mut self) -> Option<Bytes> {
        let mut size = [0; 4];
        match self.0.read_exact(&mut size) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("neither an answer nor an end"),
            Err(_) => return None,
        }
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.0.read_exact(&mut answer).ok()?;
        Some(answer.into())
    }

    fn ask<Q: Message, A: Message>(&mut self, key: i16, version: i16, request: &Q) -> Option<A> {
        self.begin(key, version, request, next_id());
        self.end(key, version)
    }

    fn begin<Q: Message>(&mut self, api_key: i16, api_version: i16, request: &Q, correlation_id: i32) {
        let mut writer = frame::begin();
        let header = RequestHeader {
            api_key,
            api_version,
            correlation_id,
            client_id: None,
        };
        header.encode(&mut writer).unwrap();
        request.encode(&mut writer, api_version).unwrap();
        self.0.write_all(&frame::finish(writer).unwrap().concat()).unwrap();
    }

    fn end<A: Message>(&mut self, key: i16, version: i16) -> Option<A> {
        let mut reader = Reader::new(self.receive()?);
        ResponseHeader::decode(&mut reader, response_header_version(key, version)).unwrap();
        Some(A::decode(&mut reader, version).unwrap())
    }

    fn fetch(&mut self, partition: i32, correlation_id: i32) {
        let request = FetchRequest {
            max_wait_ms: 300,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![fetch_request::FetchTopic {
                topic: "t0".into(),
                partitions: vec![fetch_request::FetchPartition {
                    partition,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        self.begin(1, 12, &request, correlation_id);
    }

    fn join(&mut self, group_id: &str, correlation_id: i32) {
        let request = JoinGroupRequest {
            group_id: group_id.into(),
            session_timeout_ms: 200,
            rebalance_timeout_ms: 200,
            protocol_type: "consumer".into(),
            protocols: vec![join_group_request::JoinGroupRequestProtocol {
                name: "range".into(),
                metadata: Bytes::new(),
            }],
            ..Default::default()
        };
        self.begin(11, 3, &request, correlation_id);
    }
}

/// A correlation id that no other request has, so that a panic can be planted for one request.
fn next_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn plant(place: &str) {
    PLANTED.lock().unwrap().insert(place.to_owned(), 1);
}

/// Waits until the panic has happened and is in the log.
fn has_happened(place: &str) {
    until(place, || PLANTED.lock().unwrap()[place] == 0);
    let text = format!("planted at `{place}`");
    until(place, || LINES.lock().unwrap().iter().any(|line| line.contains(&text)));
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_panic_in_the_handler_of_any_api_closes_its_connection_alone() {
    let listener = Listener::open();
    let mut witness = listener.connect();
    listener.works(&mut witness);
    for api in all() {
        let shape = Shape {
            long: "",
            count: 1,
            values: Values::Known,
            ids: &[],
        };
        // Before its work, and after it.
        for when in ["", ", handled"] {
            let id = next_id();
            let place = format!("request {id}{when}");
            plant(&place);
            let mut client = listener.connect();
            client.send(&api.request(api.max, id, &shape));
            assert_eq!(client.receive(), None, "{} has an answer", api.name);
            has_happened(&place);
            listener.works(&mut witness);
        }
        // The next request of its kind is served.
        let id = next_id();
        let mut client = listener.connect();
        client.send(&api.request(api.max, id, &shape));
        let answer = client
            .receive()
            .unwrap_or_else(|| panic!("{} is not served any more", api.name));
        assert_eq!(answer[..4], id.to_be_bytes(), "{}", api.name);
    }
}

#[test]
fn a_panic_while_a_late_answer_is_made_closes_its_connection_alone() {
    let listener = Listener::open();
    let mut witness = listener.connect();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    let id = next_id();
    plant(&format!("answer {id}"));
    first.fetch(1, id);
    second.fetch(1, next_id());
    assert_eq!(first.receive(), None);
    has_happened(&format!("answer {id}"));
    assert!(second.end::<FetchResponse>(1, 12).is_some());
    listener.works(&mut witness);
}

#[test]
fn a_panic_in_the_time_out_of_a_fetch_fails_that_fetch_alone() {
    let listener = Listener::open();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    for _ in 0..2 {
        plant("answer of a fetch of t0-0");
        first.fetch(0, next_id());
        second.fetch(1, next_id());
        let failed: FetchResponse = first.end(1, 12).unwrap();
        assert_eq!(failed.error_code, ErrorCode::UNKNOWN_SERVER_ERROR);
        has_happened("answer of a fetch of t0-0");
        assert_eq!(second.end::<FetchResponse>(1, 12).unwrap().error_code, ErrorCode::NONE);
    }
    first.fetch(0, next_id());
    assert_eq!(first.end::<FetchResponse>(1, 12).unwrap().error_code, ErrorCode::NONE);
}

#[test]
fn a_panic_in_the_time_out_of_a_share_fetch_fails_that_fetch_alone() {
    let listener = Listener::open();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    listener.initialize_share("a-share");
    listener.initialize_share("b-share");
    plant("answer of a fetch of share group a-share");
    let request = |group: &str, epoch| ShareFetchRequest {
        max_wait_ms: 300,
        ..listener.share_fetch(group, epoch)
    };
    first.begin(78, 2, &request("a-share", 0), next_id());
    second.begin(78, 2, &request("b-share", 0), next_id());
    let failed: ShareFetchResponse = first.end(78, 2).unwrap();
    assert_eq!(failed.error_code, ErrorCode::UNKNOWN_SERVER_ERROR);
    has_happened("answer of a fetch of share group a-share");
    assert_eq!(
        second.end::<ShareFetchResponse>(78, 2).unwrap().error_code,
        ErrorCode::NONE
    );
    let next: ShareFetchResponse = first.ask(78, 2, &request("a-share", 1)).unwrap();
    assert_eq!(next.error_code, ErrorCode::NONE);
}

#[test]
fn a_panic_in_a_job_of_the_share_coordinator_ends_it_alone() {
    let listener = Listener::open();
    let mut client = listener.connect();
    for job in [
        "pruning of the states of share groups",
        "snapshots of cold share partitions",
    ] {
        plant(job);
        client.fetch(0, next_id());
        let fetched = client.end::<FetchResponse>(1, 12).unwrap();
        assert_eq!(
            fetched.error_code,
            ErrorCode::NONE,
            "its time-out is when jobs are done"
        );
        has_happened(job);
    }
}

#[test]
fn a_panic_at_the_end_of_locks_delays_those_of_that_share_partition_alone() {
    let listener = Listener::open();
    let mut witness = listener.connect();
    let request = |group: &str, epoch| ShareFetchRequest {
        max_wait_ms: 200,
        max_bytes: 1 << 20,
        ..listener.share_fetch(group, epoch)
    };
    let deliveries = |client: &mut Client, group: &str, epoch| {
        let found: ShareFetchResponse = client.ask(78, 2, &request(group, epoch)).unwrap();
        assert_eq!(found.error_code, ErrorCode::NONE);
        let of_partition = found.responses.into_iter().flat_map(|topic| topic.partitions).next();
        let acquired = of_partition.and_then(|partition| partition.acquired_records.into_iter().next());
        acquired.map(|range| range.delivery_count)
    };
    let mut clients = Vec::new();
    for group in ["a-locks", "b-locks"] {
        let mut client = listener.connect();
        listener.initialize_share(group);
        assert_eq!(deliveries(&mut client, group, 0), None);
        clients.push((client, group));
    }
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(0, None, Some(b"v"), &[]);
    let t0 = TopicPartition::new("t0", 0);
    listener
        .broker
        .append_batches(&t0, builder.build(&BatchParams::default()))
        .unwrap();
    plant("locks of share group a-locks");
    for (client, group) in &mut clients {
        assert_eq!(deliveries(client, group, 1), Some(1));
    }
    has_happened("locks of share group a-locks");
    for (client, group) in &mut clients {
        let mut epochs = 2..;
        let mut found = None;
        until(group, || {
            found = deliveries(client, group, epochs.next().unwrap_or(0));
            found.is_some()
        });
        assert_eq!(found, Some(2), "{group}");
    }
    listener.works(&mut witness);
}

#[test]
fn a_panic_of_the_thread_that_does_what_is_due_delays_it_and_no_more() {
    let listener = Listener::open();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    plant("timers");
    first.fetch(1, next_id());
    second.join("of-timers", next_id());
    has_happened("timers");
    assert_eq!(first.end::<FetchResponse>(1, 12).unwrap().error_code, ErrorCode::NONE);
    assert_eq!(
        second.end::<JoinGroupResponse>(11, 3).unwrap().error_code,
        ErrorCode::NONE
    );
}

#[test]
fn a_panic_in_a_timer_of_a_group_delays_that_group_alone() {
    let listener = Listener::open();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    plant("timer of group a-join");
    first.join("a-join", next_id());
    second.join("b-join", next_id());
    has_happened("timer of group a-join");
    for client in [&mut second, &mut first] {
        assert_eq!(
            client.end::<JoinGroupResponse>(11, 3).unwrap().error_code,
            ErrorCode::NONE
        );
    }
    // Neither sends heartbeats, so both sessions end, also that of the group with another panic.
    plant("timer of group a-join");
    has_happened("timer of group a-join");
    for group in ["b-join", "a-join"] {
        until(group, || listener.is_without_members(group));
    }
    listener.works(&mut first);
}

#[test]
fn a_panic_under_the_lock_of_a_group_leaves_the_group_usable() {
    let listener = Listener::open();
    let mut client = listener.connect();
    client.join("locked", next_id());
    assert_eq!(
        client.end::<JoinGroupResponse>(11, 3).unwrap().error_code,
        ErrorCode::NONE
    );
    plant("work on group locked");
    client.join("locked", next_id());
    assert_eq!(client.receive(), None);
    has_happened("work on group locked");
    // Its timers run: the existing member sends no heartbeats.
    until("the session ends", || listener.is_without_members("locked"));
    let mut client = listener.connect();
    client.join("locked", next_id());
    assert_eq!(
        client.end::<JoinGroupResponse>(11, 3).unwrap().error_code,
        ErrorCode::NONE
    );
}

#[test]
fn a_panic_in_the_expiry_of_offsets_of_a_group_spares_the_other_groups() {
    let listener = Listener::open();
    let mut client = listener.connect();
    plant("expiry of offsets of group a-expiry");
    for group in ["a-expiry", "b-expiry"] {
        client.join(group, next_id());
        let joined: JoinGroupResponse = client.end(11, 3).unwrap();
        let leave = LeaveGroupRequest {
            group_id: group.into(),
            member_id: joined.member_id,
            ..Default::default()
        };
        assert_eq!(
            client.ask::<_, LeaveGroupResponse>(13, 2, &leave).unwrap().error_code,
            ErrorCode::NONE
        );
    }
    // Groups without members and offsets expire.
    let mut names = || {
        let listed: ListGroupsResponse = client.ask(16, 2, &ListGroupsRequest::default()).unwrap();
        listed
            .groups
            .into_iter()
            .map(|group| group.group_id.to_string())
            .collect::<Vec<_>>()
    };
    until("b goes", || !names().contains(&"b-expiry".to_owned()));
    has_happened("expiry of offsets of group a-expiry");
    until("a goes", || names().is_empty());
}

#[test]
fn a_panic_in_the_time_out_of_a_transaction_spares_the_other_transactions() {
    let listener = Listener::open();
    let mut client = listener.connect();
    plant("timer of transaction a");
    for id in ["a", "b"] {
        let init = InitProducerIdRequest {
            transactional_id: Some(id.into()),
            transaction_timeout_ms: 100,
            ..Default::default()
        };
        let producer: InitProducerIdResponse = client.ask(22, 4, &init).unwrap();
        let add = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id.into(),
            v3_and_below_producer_id: producer.producer_id,
            v3_and_below_producer_epoch: producer.producer_epoch,
            v3_and_below_topics: vec![add_partitions_to_txn_request::AddPartitionsToTxnTopic {
                name: "t0".into(),
                partitions: vec![0],
            }],
            ..Default::default()
        };
        let added: AddPartitionsToTxnResponse = client.ask(24, 3, &add).unwrap();
        assert_eq!(
            added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            ErrorCode::NONE
        );
    }
    has_happened("timer of transaction a");
    for id in ["b", "a"] {
        until(id, || {
            listener.broker.describe_transaction(1, id).unwrap().state == "CompleteAbort"
        });
    }
}

#[test]
fn a_panic_in_the_time_out_of_an_idle_connection_closes_it_all_the_same() {
    let listener = Listener::open();
    let [mut first, mut second] = [listener.connect(), listener.connect()];
    let place = format!("time-out of {:?}", Some(first.0.local_addr().unwrap()));
    plant(&place);
    assert_eq!((first.receive(), second.receive()), (None, None));
    has_happened(&place);
    listener.works(&mut listener.connect());
}

/// A broker with compacted topics, each with three closed segments and an active one.
fn with_compacted(topics: &[&str], cleaner: &str) -> Arc<Broker> {
    let config = [("log.cleaner.enable", cleaner), ("log.cleaner.backoff.ms", "1")];
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, config).unwrap(),
    };
    let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
    topics.iter().for_each(|topic| add_topic(&broker, topic));
    broker
}

fn add_topic(broker: &Broker, topic: &str) {
    let config = [
        ("cleanup.policy", "compact,delete"),
        ("segment.bytes", "100"),
        ("retention.ms", "-1"),
    ];
    let config = config.map(|(name, value)| (name.to_owned(), value.to_owned()));
    broker.create_topic(topic, 1, &config).unwrap();
    append_keyed(broker, topic);
}

fn append_keyed(broker: &Broker, topic: &str) {
    for _ in 0..4 {
        let mut records = BatchBuilder::with_capacity(100);
        records.append(1, Some(b"k"), Some(&[b'v'; 20]), &[]);
        let records = records.build(&BatchParams::default());
        broker.append_batches(&TopicPartition::new(topic, 0), records).unwrap();
    }
}

/// Whether the log was cleaned: its first segment is then empty.
fn is_cleaned(broker: &Broker, topic: &str) -> bool {
    let log = broker.partition_log(&TopicPartition::new(topic, 0)).unwrap();
    log.segments()[0].1 == 0
}

#[test]
fn a_panic_in_the_cleaning_of_a_log_leaves_out_this_log_alone() {
    for place in ["cleaning bad-0", "looking at bad-0"] {
        plant(place);
        let broker = with_compacted(&["bad", "good"], "true");
        has_happened(place);
        until("the other log is cleaned", || is_cleaned(&broker, "good"));
        // The thread continues, without the log that failed.
        append_keyed(&broker, "bad");
        add_topic(&broker, "later");
        until("a later log is cleaned", || is_cleaned(&broker, "later"));
        assert!(!is_cleaned(&broker, "bad"), "{place}");
        // A call of the user cleans that log.
        assert!(broker.clean_topic("bad", false, &mut || false).unwrap()[0].rounds > 0);
        assert!(is_cleaned(&broker, "bad"));
        broker.close().unwrap();
    }
}

#[test]
fn a_panic_in_the_cleaning_or_retention_of_a_log_is_the_error_of_the_call_that_wanted_it() {
    let broker = with_compacted(&["p", "q"], "false");
    let partitions = [TopicPartition::new("p", 0), TopicPartition::new("q", 0)];
    plant("cleaning p-0");
    let error = broker.clean_topic("p", true, &mut || false).unwrap_err().to_string();
    assert!(error.starts_with("cleaning p-0 failed with a panic"), "{error}");
    assert_eq!(broker.clean_topic("p", true, &mut || false).unwrap()[0].rounds, 1);
    for partition in &partitions {
        broker.delete_records(partition, None).unwrap();
    }
    plant("retention of p-0");
    let error = broker.run_retention().unwrap_err().to_string();
    assert!(error.starts_with("retention of p-0 failed with a panic"), "{error}");
    let segments = |broker: &Broker| {
        partitions
            .clone()
            .map(|tp| broker.partition_log(&tp).unwrap().segments().len())
    };
    let [p, q] = segments(&broker);
    assert!(p > 1 && q == 1, "{p} {q}");
    broker.run_retention().unwrap();
    assert_eq!(segments(&broker), [1, 1]);
}
