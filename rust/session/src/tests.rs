//! Sessions end to end: what a server reports, and what a reader finds.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, FieldType, Writer};
use fletchlog_records::{BatchBuilder, BatchParams, Compression};
use proptest::prelude::*;

use crate::batches::{batches_of, headers_of};
use crate::body::{ApiVersion, Bodies};
use crate::capture::{Captured, without_size};
use crate::event::State;
use crate::{Columns, Item, Message, NONE, Recorder, RecorderOptions, Session, SessionError, Table};

const STRIPPING: Bodies = Bodies { keeps_records: false };

/// The bytes of a message with its header, without a size.
fn request(api: ApiKey, version: i16, tree: &Tree) -> Bytes {
    let mut writer = Writer::new();
    let header = RequestHeader {
        api_key: api.code(),
        api_version: version,
        correlation_id: 7,
        client_id: Some("client".into()),
    };
    header.encode(&mut writer).unwrap();
    tree.encode(api, Side::Request, &mut writer, version).unwrap();
    writer.into_chunks().concat().into()
}

fn response(api: ApiKey, version: i16, tree: &Tree) -> Bytes {
    let mut writer = Writer::new();
    ResponseHeader { correlation_id: 7 }.encode(&mut writer, response_header_version(api.code(), version));
    tree.encode(api, Side::Response, &mut writer, version).unwrap();
    writer.into_chunks().concat().into()
}

fn batch(base_offset: i64, values: &[&str]) -> Bytes {
    let params = BatchParams {
        base_offset,
        compression: Compression::Zstd,
        ..BatchParams::default()
    };
    let mut builder = BatchBuilder::with_capacity(0);
    for value in values {
        builder.append(0, None, Some(value.as_bytes()), &[]);
    }
    builder.build(&params)
}

/// A struct in an array of a message.
fn element(tree: &mut Tree, field: &str) -> Tree {
    let spec = tree.table.iter().find(|spec| spec.name == field).unwrap();
    match spec.field_type {
        FieldType::Array(FieldType::Struct(_, table)) => Tree::initial(table),
        other => panic!("{other:?}"),
    }
}

fn produce(records: &Bytes) -> Tree {
    let mut tree = Tree::of(ApiKey::Produce, Side::Request);
    let mut topic = element(&mut tree, "topic_data");
    let mut partition = element(&mut topic, "partition_data");
    partition.set("records", Node::Bytes(records.clone()));
    topic.set("name", Node::String("t".into()));
    topic.set("partition_data", Node::Array(vec![Node::Struct(Box::new(partition))]));
    tree.set("topic_data", Node::Array(vec![Node::Struct(Box::new(topic))]));
    tree
}

fn started(path: &Path, keeps_records: bool) -> Arc<Recorder> {
    let options = RecorderOptions {
        path: path.to_owned(),
        keeps_records,
        cluster_id: "a-cluster".to_owned(),
    };
    Recorder::start(&options).unwrap()
}

/// A size in front.
fn sent(frame: &Bytes) -> Vec<Bytes> {
    let size = u32::try_from(frame.len()).unwrap().to_be_bytes();
    vec![Bytes::copy_from_slice(&size), frame.clone()]
}

fn recorded(path: &Path, requests: usize) {
    let recorder = started(path, false);
    recorder.opened(1, 3, "127.0.0.1:9".to_owned(), &"127.0.0.1:9092".into());
    let records = batch(5, &["one", "two"]);
    for number in 0..requests {
        let frame = request(ApiKey::Produce, 9, &produce(&records));
        let request = recorder.request(1, &frame, false).unwrap();
        let answer = response(ApiKey::Produce, 9, &Tree::of(ApiKey::Produce, Side::Response));
        match number % 3 {
            0 => recorder.response(request, &sent(&answer), "answered", None),
            1 => recorder.response(request, &[], "black hole", Some("a rule".into())),
            _ => {}
        }
    }
    recorder.identified(1, "alice");
    recorder.closed(1, "");
    recorder.close();
    assert_eq!((recorder.dropped(), recorder.failure()), (0, None));
}

#[test]
fn what_is_reported_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    recorded(&path, 3);
    let session = Session::open(&path).unwrap();
    assert_eq!(session.head().cluster_id, "a-cluster");
    assert!(session.has_ended() && !session.is_cut());
    let connection = session.connection(1).unwrap();
    assert_eq!((connection.node, &*connection.peer), (3, "127.0.0.1:9"));
    assert_eq!(connection.principal.as_deref(), Some("alice"));
    assert!(connection.closed_us.is_some() && connection.close_reason.is_none());
    let exchanges: Vec<_> = (0..session.exchanges())
        .map(|at| session.exchange(at).unwrap())
        .collect();
    let states: Vec<_> = exchanges
        .iter()
        .map(|exchange| {
            (
                exchange.number,
                &*exchange.outcome,
                exchange.fault.as_deref(),
                exchange.answered_us.is_some(),
            )
        })
        .collect();
    let expected = [
        (1, "answered", None, true),
        (2, "black hole", Some("a rule"), false),
        (3, "pending", None, false),
    ];
    assert_eq!(states, expected);
    let asked = session.request(&exchanges[0]).unwrap().unwrap();
    let Some(Node::Struct(topic)) = asked
        .tree
        .get("topic_data")
        .and_then(|topics| topics.elements().first())
    else {
        panic!("{asked:?}");
    };
    let Some(Node::Struct(partition)) = topic.get("partition_data").and_then(|all| all.elements().first()) else {
        panic!("{topic:?}");
    };
    let Some(Node::Bytes(headers)) = partition.get("records") else {
        panic!("{partition:?}");
    };
    let whole = batch(5, &["one", "two"]);
    let [found] = &batches_of(headers.clone(), asked.is_stripped)[..] else {
        panic!("{headers:?}");
    };
    assert_eq!((found.base_offset, found.last_offset, found.records), (5, 6, 2));
    assert_eq!((found.size, found.codec), (whole.len() as u64, "zstd"));
    assert_eq!(found.bytes, None);
    assert!(session.response(&exchanges[0]).unwrap().is_some());
    assert!(session.response(&exchanges[1]).unwrap().is_none());
    let full = request(ApiKey::Produce, 9, &produce(&whole));
    assert_eq!(exchanges[0].request_bytes, full.len() as u64);
}

#[test]
fn a_message_without_secrets_is_kept_byte_for_byte_in_every_version() {
    for api in ApiKey::ALL {
        for version in api.min_version()..=api.max_version() {
            let frame = request(*api, version, &Tree::of(*api, Side::Request));
            let longer: Bytes = [&frame[..], b"behind it"].concat().into();
            let (state, kept) = STRIPPING.request(&longer);
            assert_eq!((state, kept), (State::Whole, frame), "{api:?} {version}");
            let of = ApiVersion::of_request(&longer).unwrap();
            assert_eq!((of.key, of.version), (api.code(), version));
            let frame = response(*api, version, &Tree::of(*api, Side::Response));
            assert_eq!(
                STRIPPING.response(of, &frame, &[]),
                (State::Whole, frame),
                "{api:?} {version}"
            );
        }
    }
}

#[test]
fn bytes_fields_of_unlisted_apis_and_secret_properties_are_left_out() {
    let mut tree = Tree::of(ApiKey::SaslAuthenticate, Side::Request);
    tree.set("auth_bytes", Node::Bytes(Bytes::from_static(b"\0alice\0a-secret")));
    let (state, kept) = STRIPPING.request(&request(ApiKey::SaslAuthenticate, 2, &tree));
    assert_eq!(state, State::Stripped);
    assert!(!String::from_utf8_lossy(&kept).contains("secret"));
    let mut tree = Tree::of(ApiKey::AlterUserScramCredentials, Side::Request);
    let mut upsertion = element(&mut tree, "upsertions");
    upsertion.set("salt", Node::Bytes(Bytes::from_static(b"a-secret")));
    upsertion.set("salted_password", Node::Bytes(Bytes::from_static(b"a-secret")));
    tree.set("upsertions", Node::Array(vec![Node::Struct(Box::new(upsertion))]));
    let (_, kept) = STRIPPING.request(&request(ApiKey::AlterUserScramCredentials, 0, &tree));
    assert!(!String::from_utf8_lossy(&kept).contains("secret"));
}

#[test]
fn an_api_that_is_not_known_leaves_its_header_and_broken_bytes_nothing() {
    let unknown = b"\x03\xe7\0\x01\0\0\0\x09\0\x02idand a secret";
    let (state, kept) = STRIPPING.request(&Bytes::from_static(unknown));
    assert_eq!(
        (state, &kept[..]),
        (State::Header, &b"\x03\xe7\0\x01\0\0\0\x09\0\x02id"[..])
    );
    let (state, kept) = STRIPPING.request(&Bytes::from_static(b"\0alice\0a-secret"));
    assert_eq!((state, kept.len()), (State::Nothing, 0));
    let fetch = ApiVersion { key: 1, version: 12 };
    assert_eq!(
        STRIPPING
            .response(fetch, &Bytes::from_static(b"\0\0\0\x01 a secret"), &[])
            .0,
        State::Nothing
    );
}

#[test]
fn headers_of_batches_of_every_format_are_kept_with_their_true_size() {
    let legacy = |magic: u8| {
        let mut bytes = 9_i64.to_be_bytes().to_vec();
        bytes.extend(40_i32.to_be_bytes());
        bytes.extend([1, 2, 3, 4, magic, 0]);
        bytes.extend(77_i64.to_be_bytes());
        bytes.resize(12 + 40, b'x');
        bytes
    };
    let two = batch(100, &["a", "b", "c"]);
    let all: Bytes = [&legacy(0)[..], &legacy(1), &two, &two[..70]].concat().into();
    let headers = headers_of(&all);
    assert_eq!(headers.len(), 18 + 26 + 61 + 61);
    let of_headers = batches_of(headers, true);
    assert_eq!(
        of_headers
            .iter()
            .map(|batch| (batch.magic, batch.base_offset))
            .collect::<Vec<_>>(),
        [(0, 9), (1, 9), (2, 100), (2, 100)]
    );
    assert_eq!(
        of_headers.iter().map(|batch| batch.size).collect::<Vec<_>>(),
        [52, 52, two.len() as u64, two.len() as u64]
    );
    assert_eq!((of_headers[0].max_timestamp, of_headers[1].max_timestamp), (-1, 77));
    let mut of_all = batches_of(all, false);
    assert_eq!(of_all[2].bytes.as_ref(), Some(&two));
    assert_eq!(of_all[3].bytes, None, "it is cut");
    of_all.iter_mut().for_each(|batch| batch.bytes = None);
    assert_eq!(of_all, of_headers);
}

/// A Fetch response with these records in partitions, in the pieces in which a server sends it.
fn fetched(version: i16, records: &[Bytes]) -> Vec<Bytes> {
    let mut tree = Tree::of(ApiKey::Fetch, Side::Response);
    let mut topic = element(&mut tree, "responses");
    let partition = element(&mut topic, "partitions");
    let partitions = records.iter().map(|records| {
        let mut partition = partition.clone();
        partition.set("records", Node::Bytes(records.clone()));
        Node::Struct(Box::new(partition))
    });
    topic.set("partitions", Node::Array(partitions.collect()));
    tree.set("responses", Node::Array(vec![Node::Struct(Box::new(topic))]));
    let mut writer = Writer::new();
    ResponseHeader { correlation_id: 7 }.encode(&mut writer, response_header_version(ApiKey::Fetch.code(), version));
    tree.encode(ApiKey::Fetch, Side::Response, &mut writer, version)
        .unwrap();
    let mut chunks = writer.into_chunks();
    let size = u32::try_from(chunks.iter().map(Bytes::len).sum::<usize>()).unwrap();
    chunks[0] = [&size.to_be_bytes()[..], &chunks[0]].concat().into();
    chunks
}

#[test]
fn records_in_pieces_are_taken_out_as_those_in_one_piece() {
    let small = batch(1, &["small"]);
    let values: Vec<String> = (0..400).map(|number| format!("{number} {number:x} value")).collect();
    let large = batch(2, &values.iter().map(String::as_str).collect::<Vec<_>>());
    let many: Bytes = (0..700).flat_map(|at| batch(at, &["one"])).collect();
    assert!(large.len() > 1024 && small.len() < 1024 && many.len() > 32 * 1024);
    for version in [4, 11, 12, 16] {
        let all = [
            small.clone(),
            many.clone(),
            large.clone(),
            Bytes::new(),
            many.slice(..2000),
        ];
        let chunks = fetched(version, &all);
        assert!(chunks.len() > 5, "{}", chunks.len());
        let of = ApiVersion {
            key: ApiKey::Fetch.code(),
            version,
        };
        let whole: Bytes = chunks.concat().into();
        let expected = STRIPPING.response(of, &whole.slice(4..), &[]);
        assert_eq!(expected.0, State::Stripped);
        let captured = Captured::of_response(STRIPPING, of, &chunks);
        assert!(captured.held() < whole.len());
        let Captured::Response(chunks, replaced) = captured else {
            panic!("{captured:?}");
        };
        assert_eq!(replaced.len(), 3);
        assert_eq!(
            STRIPPING.response(of, &without_size(&chunks), &replaced),
            expected,
            "version {version}"
        );
        let Captured::Ready(state, bytes) = Captured::of_response(STRIPPING, of, &[whole]) else {
            panic!("one piece");
        };
        assert_eq!((state, bytes), expected);
    }
}

/// All batches of a message, and whether it has a text.
fn batches_in(message: &Message) -> (Vec<i64>, bool) {
    let (mut offsets, mut has_text) = (Vec::new(), false);
    let mut left: Vec<&Node> = message.tree.values.iter().collect();
    while let Some(node) = left.pop() {
        match node {
            Node::Bytes(bytes) => {
                has_text |= bytes.windows(6).any(|bytes| bytes == b"secret");
                let batches = batches_of(bytes.clone(), message.is_stripped);
                offsets.extend(batches.iter().map(|batch| batch.base_offset));
            }
            Node::Array(elements) => left.extend(elements),
            Node::Struct(tree) => left.extend(&tree.values),
            _ => {}
        }
    }
    (offsets, has_text)
}

#[test]
fn large_frames_have_the_headers_of_their_batches_and_records_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    let params = BatchParams::default();
    let mut builder = BatchBuilder::with_capacity(0);
    (0..5000).for_each(|_| builder.append(0, None, Some(b"a secret"), &[]));
    let records = builder.build(&params);
    assert!(records.len() > 64 * 1024);
    for keeps_records in [false, true] {
        let recorder = started(&path, keeps_records);
        recorder.opened(1, 1, String::new(), &"".into());
        let frame = request(ApiKey::Produce, 9, &produce(&records));
        let asked = recorder.request(1, &frame, false).unwrap();
        recorder.response(asked, &[], "without response", None);
        let ask = request(ApiKey::Fetch, 12, &Tree::of(ApiKey::Fetch, Side::Request));
        let chunks = fetched(12, &[records.clone(), batch(9, &["secret"]), records.clone()]);
        for chunks in [chunks.clone(), vec![chunks.concat().into()]] {
            let asked = recorder.request(1, &ask, false).unwrap();
            recorder.response(asked, &chunks, "answered", None);
        }
        recorder.close();
        let session = Session::open(&path).unwrap();
        let exchange = |place| session.exchange(place).unwrap();
        let asked = session.request(&exchange(0)).unwrap().unwrap();
        assert_eq!(batches_in(&asked), (vec![0], keeps_records));
        assert_eq!(exchange(0).request_bytes, frame.len() as u64);
        for place in [1, 2] {
            let answer = session.response(&exchange(place)).unwrap().unwrap();
            let (mut offsets, has_text) = batches_in(&answer);
            offsets.sort_unstable();
            assert_eq!((offsets, has_text), (vec![0, 0, 9], keeps_records));
            let sent: usize = chunks.iter().map(Bytes::len).sum();
            assert_eq!(exchange(place).response_bytes, Some(sent as u64 - 4));
        }
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(keeps_records || size < 1024, "{size}");
    }
}

#[test]
fn a_cut_file_is_read_up_to_its_last_whole_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    recorded(&path, 5);
    let whole = std::fs::read(&path).unwrap();
    let cut = directory.path().join("cut.fltrace");
    let mut most = 0;
    for length in 0..whole.len() {
        std::fs::write(&cut, &whole[..length]).unwrap();
        match Session::open(&cut) {
            Ok(session) => {
                assert!(!session.has_ended());
                most = most.max(session.exchanges());
            }
            Err(SessionError::NotASession(_)) => assert!(length < 8),
            Err(error) => assert!(error.to_string().contains("header is cut"), "{error}"),
        }
    }
    assert_eq!(most, 0, "the file has one block");
}

fn columns_of(session: &Session) -> Columns {
    let mut columns = Columns::new(|_| "an id".to_owned());
    for place in 0..session.exchanges() {
        columns.add(session, &session.exchange(place).unwrap()).unwrap();
    }
    columns
}

fn column<'a, const N: usize>(table: &'a Table<N>, name: &str) -> &'a [i64] {
    let at = table.names.iter().position(|known| *known == name).unwrap();
    &table.columns[at]
}

fn place(number: i64) -> usize {
    usize::try_from(number).unwrap()
}

#[test]
fn requests_and_batches_are_rows_of_columns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    recorded(&path, 3);
    let columns = columns_of(&Session::open(&path).unwrap());
    assert_eq!(column(&columns.lines, "number"), [1, 2, 3]);
    let outcomes = column(&columns.lines, "outcome").iter();
    let outcomes: Vec<_> = outcomes.map(|text| &*columns.texts[place(*text)]).collect();
    assert_eq!(outcomes, ["answered", "black hole", "pending"]);
    assert_eq!(
        column(&columns.lines, "answered_us")
            .iter()
            .filter(|time| **time == NONE)
            .count(),
        2
    );
    assert_eq!(column(&columns.batches, "place"), [0, 1, 2]);
    assert_eq!(column(&columns.batches, "records"), [2; 3]);
    assert_eq!(column(&columns.batches, "base_offset"), [NONE; 3]);
    let (topic, partition) = columns.lanes[place(column(&columns.batches, "lane")[0])];
    assert_eq!((&*columns.texts[topic as usize], partition), ("t", 0));
}

/// A Fetch of version 12 for partitions of `t` with offsets: session id and epoch, partitions that are taken out.
fn fetch(ids: (i64, i64), named: &[(i64, i64)], forgotten: &[i64]) -> Tree {
    let mut tree = Tree::of(ApiKey::Fetch, Side::Request);
    let of_topic = |tree: &mut Tree, field: &str, partitions: Vec<Node>| {
        let mut topic = element(tree, field);
        topic.set("topic", Node::String("t".into()));
        topic.set("partitions", Node::Array(partitions));
        tree.set(field, Node::Array(vec![Node::Struct(Box::new(topic))]));
    };
    let mut topic = element(&mut tree, "topics");
    let partitions = named.iter().map(|(number, offset)| {
        let mut partition = element(&mut topic, "partitions");
        partition.set("partition", Node::Int(*number));
        partition.set("fetch_offset", Node::Int(*offset));
        partition.set("partition_max_bytes", Node::Int(100));
        Node::Struct(Box::new(partition))
    });
    of_topic(&mut tree, "topics", partitions.collect());
    let forgotten = forgotten.iter().map(|number| Node::Int(*number)).collect();
    of_topic(&mut tree, "forgotten_topics_data", forgotten);
    tree.set("session_id", Node::Int(ids.0));
    tree.set("session_epoch", Node::Int(ids.1));
    tree
}

/// Its response: for each partition records.
fn fetched_of(session_id: i64, partitions: &[(i64, Bytes)]) -> Tree {
    let mut tree = Tree::of(ApiKey::Fetch, Side::Response);
    let mut topic = element(&mut tree, "responses");
    let partitions = partitions.iter().map(|(number, records)| {
        let mut partition = element(&mut topic, "partitions");
        partition.set("partition_index", Node::Int(*number));
        partition.set("high_watermark", Node::Int(50));
        partition.set("records", Node::Bytes(records.clone()));
        Node::Struct(Box::new(partition))
    });
    let partitions = Node::Array(partitions.collect());
    topic.set("topic", Node::String("t".into()));
    topic.set("partitions", partitions);
    tree.set("responses", Node::Array(vec![Node::Struct(Box::new(topic))]));
    tree.set("session_id", Node::Int(session_id));
    tree
}

#[test]
fn fetch_sessions_say_what_a_fetch_asks_for_and_cut_batches_have_not_arrived() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    let recorder = started(&path, false);
    recorder.opened(1, 3, "127.0.0.1:9".to_owned(), &"127.0.0.1:9092".into());
    let two = [batch(5, &["one", "two"]), batch(7, &["three"])].concat().into();
    let steps = [
        (fetch((0, 0), &[(0, 5), (1, 0)], &[]), fetched_of(9, &[(0, two)])),
        (
            fetch((9, 1), &[(0, 7)], &[]),
            fetched_of(9, &[(1, batch(0, &["four"]))]),
        ),
        (fetch((9, 2), &[], &[1]), fetched_of(9, &[(1, batch(0, &["five"]))])),
    ];
    for (asks, responds) in steps {
        let request = recorder.request(1, &request(ApiKey::Fetch, 12, &asks), false).unwrap();
        let answer = response(ApiKey::Fetch, 12, &responds);
        recorder.response(request, &sent(&answer), "answered", None);
    }
    recorder.close();
    let columns = columns_of(&Session::open(&path).unwrap());
    assert_eq!(column(&columns.named, "offset"), [5, 0, 7]);
    assert_eq!(column(&columns.fetches, "named"), [0, 2, 3]);
    assert_eq!(columns.wanted, [vec![0, 1], vec![0]]);
    assert_eq!(column(&columns.fetches, "wanted"), [0, 0, 1]);
    assert_eq!(column(&columns.got, "asked"), [5, 0, -1]);
    // Two batches are more than the limit of 100 bytes: the second is a part.
    assert_eq!(column(&columns.got, "last"), [6, 0, 0]);
    assert_eq!(column(&columns.got, "records"), [2, 1, 1]);
}

#[test]
fn a_session_that_grows_is_read_on() {
    let directory = tempfile::tempdir().unwrap();
    let (path, growing) = (directory.path().join("all"), directory.path().join("growing"));
    recorded(&path, 5);
    let whole = std::fs::read(&path).unwrap();
    let head = crate::format::Head::decode(&whole).unwrap().1;
    std::fs::write(&growing, &whole[..head + 20]).unwrap();
    let session = Session::open(&growing).unwrap();
    assert!(session.read_on().unwrap().is_empty() && session.is_cut());
    std::fs::write(&growing, &whole).unwrap();
    let items = session.read_on().unwrap();
    let numbers: Vec<_> = items
        .iter()
        .map(|item| match item {
            Item::Connection(connection) => (0, connection.number),
            Item::Exchange(exchange) => (1, exchange.number),
        })
        .collect();
    assert_eq!(numbers, [(0, 1), (1, 1), (1, 2), (1, 4), (1, 5), (0, 1)]);
    assert!(session.has_ended() && !session.is_cut());
}

#[test]
fn every_request_is_in_the_file_or_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.fltrace");
    let recorder = started(&path, true);
    recorder.opened(1, 1, String::new(), &"".into());
    let records: Bytes = vec![b'x'; 1 << 20].into();
    let frame = request(ApiKey::Produce, 9, &produce(&records));
    let answers: Vec<_> = (0..150).map(|_| recorder.request(1, &frame, false)).collect();
    answers
        .iter()
        .flatten()
        .for_each(|request| recorder.response(*request, &[], "closed", None));
    recorder.close();
    let session = Session::open(&path).unwrap();
    let dropped = recorder.dropped();
    assert_eq!(session.exchanges() as u64 + dropped, 150);
    assert_eq!(session.dropped(), (dropped, 0));
    assert_eq!(
        dropped,
        answers.iter().filter(|request| request.is_none()).count() as u64
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_bytes_are_an_error_or_a_session(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), fixes: bool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.fltrace");
        recorded(&path, 4);
        let mut bytes = std::fs::read(&path).unwrap();
        let head = crate::format::Head::decode(&bytes).unwrap().1;
        if fixes {
            // the raw bytes are changed, and packed again: checksums do not find it
            let block = crate::format::BlockHead::decode(bytes[head..].first_chunk().unwrap());
            let frame = &bytes[head + 12..head + 12 + block.length];
            let mut raw = block.raw(&bytes[head..], frame).unwrap();
            for (at, byte) in &changes {
                let at = at.index(raw.len());
                raw[at] = *byte;
            }
            bytes.truncate(head);
            bytes.extend(crate::format::block(&raw, 1).unwrap());
        } else {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(session) = Session::open(&path) {
            assert_eq!(columns_of(&session).lines.columns[0].len(), session.exchanges());
            for place in 0..session.exchanges() {
                let exchange = session.exchange(place).unwrap();
                for message in [session.request(&exchange).unwrap(), session.response(&exchange).unwrap()].into_iter().flatten() {
                    for (_, node) in message.tree.fields(message.version) {
                        if let Node::Bytes(bytes) = node {
                            batches_of(bytes.clone(), message.is_stripped);
                        }
                    }
                }
            }
        }
    }
}
