//! The golden traces of spec 7.9: one node, every answer in the socket before the next poll.

use super::fake_broker::{FakeBroker, Net, batch};
use super::*;

/// Three topics of `batches` batches of 7 records, 180 bytes each; a fetch gets `per_fetch` of them.
fn seven(per_fetch: usize) -> (FakeBroker, String) {
    let broker = ["A", "B", "C"]
        .iter()
        .fold(FakeBroker::default(), |b, t| b.with(t, 0, 40, 7));
    assert_eq!(batch(7).len(), 180);
    (broker, (180 * per_fetch).to_string())
}

/// `full[A,B,C]` or `p3 {A | -B,C}`, as spec 7.9 writes requests; forgotten ones sorted.
fn requests(poll: usize, net: Vec<Net>) -> Vec<String> {
    let names = |list: Vec<String>| list.join(",");
    net.into_iter()
        .filter_map(|n| match n {
            Net::Fetch { full: true, listed, .. } => Some(format!(
                "full[{}]",
                names(listed.iter().map(|(t, _)| t.topic.to_string()).collect())
            )),
            Net::Fetch {
                listed, mut forgotten, ..
            } => {
                forgotten.sort();
                let listed = names(listed.iter().map(|(t, _)| t.topic.to_string()).collect());
                let dash = if forgotten.is_empty() { "" } else { " | -" };
                Some(format!(
                    "p{poll} {{{listed}{dash}{}}}",
                    names(forgotten.iter().map(|t| t.topic.to_string()).collect())
                ))
            }
            _ => None,
        })
        .collect()
}

/// Polls and requests of so many polls.
fn run(consumer: &mut Consumer, broker: &FakeBroker, polls: usize) -> (String, Vec<String>) {
    let mut tokens = Vec::new();
    let mut wire = Vec::new();
    for n in 1..=polls {
        tokens.push(token(&poll(consumer)));
        wire.extend(requests(n, broker.take_net()));
    }
    (tokens.join(" "), wire)
}

fn check(properties: &[(&str, &str)], per_fetch: usize, polls: &str, wire: &[&str]) {
    let (broker, bytes) = seven(per_fetch);
    let mut c = consumer(
        &broker,
        &[&[("max.partition.fetch.bytes", bytes.as_str())], properties].concat(),
    );
    c.assign(&abc()).unwrap();
    let (got, requests) = run(&mut c, &broker, polls.split(' ').count());
    assert_eq!(got, polls, "{properties:?}");
    assert_eq!(requests[..wire.len()], *wire, "{properties:?}");
}

#[test]
fn t1_eager_reading_hands_out_the_prefetch_without_a_gap() {
    let polls = "A3 A3 A1+B2 B3 B2+C1 C3 C3 A3 A3 A1+B2 B3 B2+C1 C3 C3 A3 A3 A1+B2 B3 B2+C1";
    let wire = [
        "full[A,B,C]",
        "p3 {A | -B,C}",
        "p5 {B | -A}",
        "p8 {C | -B}",
        "p10 {A | -C}",
        "p12 {B | -A}",
        "p15 {C | -B}",
    ];
    for version in ["2.4", "2.6", "3.1", "3.6", "3.7", "3.9"] {
        check(
            &[
                ("max.poll.records", "3"),
                ("fletchlog.network.read", "eager"),
                ("fletchlog.consumer.version", version),
            ],
            1,
            polls,
            &wire,
        );
    }
    // From 3.1 on assign() with a group reads once at the start of each poll, which gives the same.
    check(
        &[
            ("max.poll.records", "3"),
            ("group.id", "g"),
            ("fletchlog.consumer.version", "3.1"),
        ],
        1,
        polls,
        &wire,
    );
}

#[test]
fn t1_lazy_reading_is_what_assign_without_a_group_does() {
    let polls = "A3 A3 A1+B2 B3 B2+C1 C3 C3 A3 A3 A1 B3 B3 B1+C2 C3 C2 A3 A3 A1 B3 B3 B1+C2 C3 C2 A3";
    let wire = [
        "full[A,B,C]",
        "p3 {A | -B,C}",
        "p8 {B,C | -A}",
        "p11 {A | -B,C}",
        "p16 {B,C | -A}",
        "p19 {A | -B,C}",
    ];
    for version in ["2.4", "2.6.3", "3.1", "3.9"] {
        check(
            &[("max.poll.records", "3"), ("fletchlog.consumer.version", version)],
            1,
            polls,
            &wire,
        );
    }
    check(&[("max.poll.records", "3"), ("group.id", "g")], 1, polls, &wire);
}

#[test]
fn t2_a_fetch_that_ends_at_the_boundary_is_still_buffered() {
    let polls = "A7 A7 B7 B7 C7 C7 A7 A7 B7 B7 C7 C7 A7";
    check(
        &[("max.poll.records", "7")],
        2,
        polls,
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p7 {B,C | -A}",
            "p9 {A | -B,C}",
            "p13 {B,C | -A}",
        ],
    );
    let eager = ("fletchlog.network.read", "eager");
    check(
        &[("max.poll.records", "7"), eager],
        2,
        polls,
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p5 {B | -A}",
            "p7 {C | -B}",
            "p9 {A | -C}",
        ],
    );
    check(
        &[("max.poll.records", "7"), ("fletchlog.consumer.version", "4.0")],
        2,
        polls,
        &["full[A,B,C]", "p7 {A,B,C}", "p13 {A,B,C}"],
    );
    check(
        &[("max.poll.records", "7")],
        1,
        "A7 B7 C7 A7 B7 C7 A7",
        &["full[A,B,C]"],
    );
}

#[test]
fn t3_kip_387_takes_turns() {
    let kip = ("fletchlog.fetch.order", "kip-387");
    let m3 = ("max.poll.records", "3");
    let lazy = "A3 B3 C3 A3 B3 C3 A1+B1+C1 A3 B3 C3 A3 B3 C3 A1+B1+C1";
    check(
        &[kip, m3],
        1,
        lazy,
        &["full[A,B,C]", "p7 {A,B | -C}", "p8 {C | -A,B}", "p14 {A,B | -C}"],
    );
    let eager = "A3 B3 C3 A3 B3 C3 A1+B1+C1 A3 B3 A3 C3 A1+B2 A3 B2+C1 B3 C3 A3 B3 A1+B1 B3 C3 A3";
    let wire = [
        "full[A,B,C]",
        "p7 {A,B | -C}",
        "p10 {C | -A,B}",
        "p12 {A | -C}",
        "p14 {B | -A}",
        "p19 {C,A,B}",
    ];
    check(&[kip, m3, ("fletchlog.network.read", "eager")], 1, eager, &wire);
    check(
        &[kip, m3, ("fletchlog.consumer.version", "4.2")],
        1,
        lazy,
        &["full[A,B,C]", "p8 {A,B,C}"],
    );
    let strict = "A7 B7 C7 A7 B7 C7 A7 B7 C7";
    check(
        &[kip, ("max.poll.records", "7")],
        2,
        strict,
        &["full[A,B,C]", "p7 {A,B,C}"],
    );
    let five = "A5 B5 C5 A5 B5 C5 A4+B1 C4+B1 A5 B2+A3 C5 A5 B5 A1+C4 B5 A5 C5 B4+A1 A5 B5 A3+B2 C5";
    let wire = [
        "full[A,B,C]",
        "p7 {A | -B,C}",
        "p9 {C | -A}",
        "p11 {B | -C}",
        "p14 {A | -B}",
        "p18 {B | -A}",
        "p20 {C | -B}",
    ];
    check(&[kip, ("max.poll.records", "5")], 2, five, &wire);
    let five = "A5 B5 C5 A5 B5 C5 A4+B1 A5 B3+C2 B5 C2+A3 C5 A5 B5 C5 A1+B4 A5 C4+A1 B5 C5 A5 B5 C5 A3+B2";
    let wire = [
        "full[A,B,C]",
        "p7 {A | -B,C}",
        "p9 {B | -A}",
        "p11 {C | -B}",
        "p16 {A | -C}",
        "p18 {B,C | -A}",
        "p24 {A | -B,C}",
    ];
    check(
        &[kip, ("max.poll.records", "5"), ("fletchlog.network.read", "eager")],
        2,
        five,
        &wire,
    );
    let ten = "A7+B3 C7+B3 A7+B1 A7+C3 B7+C3 A7+C1 A7+B3";
    check(
        &[kip, ("max.poll.records", "10")],
        1,
        ten,
        &[
            "full[A,B,C]",
            "p1 {A | -B,C}",
            "p3 {C,B,A}",
            "p4 {A | -B,C}",
            "p6 {B,C,A}",
        ],
    );
}

#[test]
fn t4_from_4_0_on_a_node_with_buffered_data_is_left_alone() {
    let wire = ["full[A,B,C]", "p8 {A,B,C}", "p15 {A,B,C}"];
    let lazy = "A3 A3 A1+B2 B3 B2+C1 C3 C3 A3 A3 A1+B2 B3 B2+C1 C3 C3 A3";
    for version in ["4.0", "4.1", "4.2", "4.3"] {
        for read in ["lazy", "eager", "auto"] {
            check(
                &[
                    ("max.poll.records", "3"),
                    ("fletchlog.consumer.version", version),
                    ("fletchlog.network.read", read),
                ],
                1,
                lazy,
                &wire,
            );
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one list of cases")]
fn t5_fetch_max_bytes_and_the_rotation_of_the_session() {
    let m = ("max.poll.records", "7");
    let max = ("fetch.max.bytes", "540");
    let eager = ("fletchlog.network.read", "eager");
    check(
        &[m, max],
        2,
        "A7 A7 B7 A7 A7 C7 C7 B7 A7 A7 C7 C7 B7 A7 A7 C7 C7 B7",
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p4 {C,B | -A}",
            "p6 {A | -B,C}",
            "p9 {C,B | -A}",
            "p11 {A | -B,C}",
            "p14 {C,B | -A}",
        ],
    );
    check(
        &[m, max, eager],
        2,
        "A7 A7 B7 A7 A7 C7 C7 B7 A7 A7 C7 C7 B7 B7 A7 A7 C7 C7 B7 B7",
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p4 {C,B | -A}",
            "p6 {A | -B,C}",
            "p8 {C | -A}",
            "p9 {B | -C}",
            "p11 {A | -B}",
            "p13 {C | -A}",
        ],
    );
    let v37 = ("fletchlog.consumer.version", "3.7");
    check(
        &[m, max, v37],
        2,
        "A7 A7 B7 A7 A7 B7 B7 C7 A7 A7 B7 B7 C7 A7 A7 B7 B7 C7",
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p4 {B,C | -A}",
            "p6 {A | -B,C}",
            "p9 {B,C | -A}",
        ],
    );
    check(
        &[m, max, v37, eager],
        2,
        "A7 A7 B7 A7 A7 B7 B7 C7 A7 A7 B7 B7 C7 C7 A7 A7 B7 B7 C7 C7",
        &[
            "full[A,B,C]",
            "p3 {A | -B,C}",
            "p4 {B,C | -A}",
            "p6 {A | -B,C}",
            "p8 {B | -A}",
            "p9 {C | -B}",
            "p11 {A | -C}",
        ],
    );
    for version in ["4.0", "4.3"] {
        for read in ["lazy", "eager"] {
            check(
                &[
                    m,
                    max,
                    ("fletchlog.consumer.version", version),
                    ("fletchlog.network.read", read),
                ],
                2,
                "A7 A7 B7 A7 A7 B7 C7 C7 A7 B7 B7 C7 A7 A7 B7 C7 C7 A7",
                &[
                    "full[A,B,C]",
                    "p4 {A,B}",
                    "p7 {A,B}",
                    "p10 {A,C}",
                    "p13 {B,C}",
                    "p16 {A,B}",
                ],
            );
        }
    }
}

/// TopicA, TopicB, TopicC with 1,000,000 ten-byte values each, default settings.
fn seed_000(properties: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let (full, last) = (batch(910), batch(820));
    assert_eq!((full.len(), last.len()), (16_377, 14_757));
    let broker = FakeBroker::default();
    for topic in ["A", "B", "C"] {
        let mut log = fake_broker::FakeLog::default();
        (0..1098).for_each(|_| log.append(&full));
        log.append(&last);
        broker
            .state()
            .logs
            .insert(TopicPartition::new(format!("Topic{topic}"), 0), log);
    }
    let mut c = consumer(&broker, properties);
    c.assign(&["TopicA", "TopicB", "TopicC"].map(tp)).unwrap();
    let (mut polls, mut wire, mut total) = (Vec::new(), Vec::new(), 0);
    while total < 3_000_000 {
        let records = poll(&mut c);
        total += records.count();
        polls.push(token(&records).replace("Topic", ""));
        wire.extend(
            requests(polls.len(), broker.take_net())
                .iter()
                .map(|r| r.replace("Topic", "")),
        );
    }
    assert_eq!(total, 3_000_000);
    (polls, wire)
}

fn run_lengths(polls: &[String]) -> Vec<(String, usize)> {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for part in polls.iter().flat_map(|p| p.split('+')) {
        let (topic, n) = (part[..1].to_owned(), part[1..].parse().unwrap());
        match runs.last_mut().filter(|(t, _)| *t == topic) {
            Some((_, count)) => *count += n,
            None => runs.push((topic, n)),
        }
    }
    runs
}

#[test]
fn t6_a_million_records_of_each_of_three_topics_come_in_runs_of_58240() {
    let expected: Vec<(String, usize)> = [58_240; 17]
        .into_iter()
        .chain([9920])
        .flat_map(|n| ["C", "B", "A"].map(|t| (t.to_owned(), n)))
        .collect();
    let (polls, wire) = seed_000(&[]);
    assert_eq!(run_lengths(&polls), expected);
    assert_eq!(polls.len(), 6010);
    assert_eq!(
        [117, 233, 350, 467, 584, 700, 817, 934].map(|n: usize| polls[n - 1].as_str()),
        [
            "C240+B260",
            "B480+A20",
            "A220",
            "C240",
            "B240+A260",
            "A480",
            "C240",
            "B240+A260"
        ]
    );
    assert_eq!(
        wire[..5],
        [
            "full[C,B,A]",
            "p117 {C | -A,B}",
            "p351 {B,A | -C}",
            "p468 {C | -A,B}",
            "p701 {B,A | -C}"
        ]
    );

    let (polls, wire) = seed_000(&[("fletchlog.network.read", "eager")]);
    assert_eq!((run_lengths(&polls), polls.len()), (expected.clone(), 6000));
    assert_eq!(
        [117, 233, 350, 466, 583].map(|n: usize| polls[n - 1].as_str()),
        ["C240+B260", "B480+A20", "A220+C280", "C460+B40", "B200+A300"]
    );
    assert_eq!(
        wire[..4],
        ["full[C,B,A]", "p117 {C | -A,B}", "p233 {B | -C}", "p350 {A | -B}"]
    );

    let (polls, wire) = seed_000(&[("fletchlog.consumer.version", "4.3")]);
    assert_eq!((run_lengths(&polls), polls.len()), (expected, 6010));
    assert_eq!(wire[..3], ["full[C,B,A]", "p350 {C,B,A}", "p700 {C,B,A}"]);
}

#[test]
fn t6_kip_387_takes_turns_of_500() {
    let (polls, _) = seed_000(&[("fletchlog.fetch.order", "kip-387")]);
    assert_eq!(polls.len(), 6010);
    assert_eq!(polls[..4], ["C500", "B500", "A500", "C500"]);
    assert_eq!(
        [349, 350, 699, 700].map(|n: usize| polls[n - 1].as_str()),
        ["C240+B240+A20", "A220", "C240+B240+A20", "A220"]
    );
}

#[test]
fn a_for_each_walks_partitions_in_hash_order_whatever_the_drain_order() {
    let (broker, bytes) = seven(1);
    let mut c = consumer(
        &broker,
        &[
            ("max.poll.records", "10"),
            ("max.partition.fetch.bytes", &bytes),
            ("fletchlog.network.read", "eager"),
        ],
    );
    c.assign(&abc()).unwrap();
    let polls: Vec<PolledRecords> = (0..30).map(|_| poll(&mut c)).collect();
    let mixed = polls
        .iter()
        .find(|p| token(p).starts_with('C') && p.runs.len() > 1)
        .expect("a poll that drained C before A or B");
    let order: Vec<&str> = mixed
        .java_order()
        .into_iter()
        .map(|i| &*mixed.runs[i].tp.topic)
        .collect();
    assert!(order.is_sorted(), "{order:?}");
}
