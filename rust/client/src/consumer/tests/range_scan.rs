//! Scans of ranges: the order of partitions, read-ahead, and where ranges end.

use fletchlog_api::{Clock, ErrorCode};
use fletchlog_records::control::ControlType;
use fletchlog_records::{BatchBuilder, BatchParams};

use super::fake_broker::{FakeBroker, FakeLog, Net};
use super::fetching::marker;
use super::*;
use crate::ClientError;
use crate::consumer::range_scan::POLL_MS;

fn range(topic: &str, start: i64, end: i64) -> OffsetRange {
    OffsetRange {
        tp: tp(topic),
        topic_id: [1; 16],
        start,
        end,
    }
}

fn scan(broker: &FakeBroker, ranges: &[OffsetRange], by_timestamp: bool) -> RangeScan {
    let given = [("fetch.max.wait.ms", "20"), ("max.partition.fetch.bytes", "1")];
    let given = Config::parse(Scope::Consumer, given).unwrap();
    let config = RangeScan::config(&given, "read_uncommitted", by_timestamp).unwrap();
    RangeScan::new(config, ranges, broker.transport(), Arc::clone(&broker.clock) as _).unwrap()
}

/// Topic, first and last offset of what is read.
fn rest(scan: &mut RangeScan) -> Vec<(String, i64, i64)> {
    let mut all = Vec::new();
    while let Some(ScannedSpan { tp, span, end }) = scan.next(&mut || false).unwrap() {
        all.push((tp.topic.to_string(), span.first_offset, span.last_offset.min(end - 1)));
    }
    all
}

fn asked_for(broker: &FakeBroker, topic: &str) -> usize {
    let asks = |net: &Net| matches!(net, Net::Fetch { listed, .. } if listed.iter().any(|(tp, _)| &*tp.topic == topic));
    broker.state().net.iter().filter(|net| asks(net)).count()
}

/// The greatest offset that was asked for.
fn furthest(broker: &FakeBroker, topic: &str) -> i64 {
    let state = broker.state();
    let listed = state.net.iter().filter_map(|net| match net {
        Net::Fetch { listed, .. } => Some(listed),
        _ => None,
    });
    let offsets = listed
        .flatten()
        .filter(|(tp, _)| &*tp.topic == topic)
        .map(|(_, offset)| *offset);
    offsets.max().unwrap_or(-1)
}

fn two_topics() -> FakeBroker {
    FakeBroker::default().with("A", 0, 3, 2).with("B", 0, 3, 2)
}

#[test]
fn ranges_come_one_after_another_and_end_where_they_end() {
    let broker = two_topics();
    let found = rest(&mut scan(&broker, &[range("B", 1, 5), range("A", 0, 6)], false));
    let expected = [
        ("B", 1, 1),
        ("B", 2, 3),
        ("B", 4, 4),
        ("A", 0, 1),
        ("A", 2, 3),
        ("A", 4, 5),
    ];
    assert_eq!(
        found,
        expected.map(|(topic, first, last)| (topic.to_owned(), first, last))
    );
}

#[test]
fn a_later_partition_is_read_ahead_up_to_a_limit_and_read_on_in_its_turn() {
    let broker = FakeBroker::default().with("A", 0, 20, 2).with("B", 0, 20, 2);
    let ranges = [range("A", 0, 40), range("B", 0, 40)];
    let mut limited = scan(&broker, &ranges, false);
    limited.keep_ahead = 1;
    let mut offsets = Vec::new();
    while let Some(next) = limited.next(&mut || false).unwrap() {
        if &*next.tp.topic == "A" && next.span.last_offset == 37 {
            let kept = limited.ahead.values().flatten().count();
            assert_eq!(kept, 1, "B is paused with its first batch");
            assert_eq!(furthest(&broker, "B"), 2);
        }
        offsets.push((next.tp.topic.to_string(), next.span.first_offset));
    }
    let all = ["A", "B"]
        .iter()
        .flat_map(|topic| (0..20).map(|n| ((*topic).to_owned(), n * 2)));
    assert_eq!(offsets, all.collect::<Vec<_>>());
}

#[test]
fn a_partition_that_is_read_to_its_end_is_not_asked_for_again() {
    let broker = FakeBroker::default().with("A", 0, 20, 2).with("B", 0, 20, 2);
    let found = rest(&mut scan(&broker, &[range("A", 0, 40), range("B", 0, 2)], false));
    assert_eq!(found.len(), 21);
    // Once for its range, and once more with the poll that found it read to its end.
    assert!(asked_for(&broker, "B") <= 2, "{:?}", broker.take_net());
}

#[test]
fn by_timestamp_the_partitions_are_merged() {
    let broker = FakeBroker::default();
    for (topic, first) in [("A", 0), ("B", 10)] {
        let mut log = FakeLog::default();
        for time in [first, first + 20, first + 40] {
            let mut builder = BatchBuilder::with_capacity(100);
            builder.append(1_700_000_000_000 + time, None, Some(b"value"), &[]);
            log.append(&builder.build(&BatchParams::default()));
        }
        broker.state().logs.insert(tp(topic), log);
    }
    let found = rest(&mut scan(&broker, &[range("A", 0, 3), range("B", 0, 3)], true));
    let expected = [("A", 0), ("B", 0), ("A", 1), ("B", 1), ("A", 2), ("B", 2)];
    assert_eq!(
        found,
        expected.map(|(topic, offset)| (topic.to_owned(), offset, offset))
    );
}

#[test]
fn a_range_without_records_takes_no_longer_than_its_fetch() {
    for by_timestamp in [false, true] {
        let topics: Vec<String> = (0..50).map(|n| format!("T{n:02}")).collect();
        let broker = topics
            .iter()
            .fold(FakeBroker::default(), |broker, topic| broker.with(topic, 0, 1, 2));
        for topic in &topics {
            broker.log(topic, |log| log.append(&marker(1, ControlType::Commit)));
        }
        let began_ms = broker.clock.now_ms();
        let ranges: Vec<OffsetRange> = topics.iter().map(|topic| range(topic, 2, 3)).collect();
        assert_eq!(rest(&mut scan(&broker, &ranges, by_timestamp)), []);
        let took_ms = broker.clock.now_ms() - began_ms;
        assert!(took_ms < POLL_MS, "{took_ms} ms");
    }
}

/// What a broker answers that is asked by names may be of a topic that was made again: the end shows it at the latest.
#[test]
fn a_topic_that_has_another_id_at_the_end_is_an_error() {
    let error = |id: u8, ranges: &[OffsetRange]| {
        let broker = two_topics();
        broker.state().topic_id = 1;
        let mut read = scan(&broker, ranges, false);
        let first = read.next(&mut || false).unwrap().unwrap();
        assert_eq!(first.span.first_offset, 0);
        broker.state().topic_id = id;
        loop {
            match read.next(&mut || false) {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(ClientError::Kafka { code, message }) => break Some((code, message)),
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let text = "topic A was deleted and made again while it was read; read it again".to_owned();
    let replaced = Some((ErrorCode::INCONSISTENT_TOPIC_ID, text));
    assert_eq!(error(2, &[range("A", 0, 2)]), replaced);
    assert_eq!(error(2, &[range("A", 0, 6)]), replaced);
    assert_eq!(error(1, &[range("A", 0, 6)]), None);
    assert_eq!(error(0, &[range("A", 0, 6)]), None, "the metadata has no id");
}

#[test]
fn records_that_do_not_come_are_a_time_out_with_their_partition() {
    let broker = two_topics();
    let mut beyond = scan(&broker, &[range("A", 6, 9)], false);
    let error = beyond.next(&mut || false).unwrap_err();
    assert!(
        matches!(&error, ClientError::Timeout(text) if text.contains("A-0 within 60000 ms")),
        "{error}"
    );
}
