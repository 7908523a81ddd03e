//! The vectors of spec 8.1 - 8.6 and 11.7.

use super::*;

fn one_consumer(partitions: i32, threads: i32) -> Vec<Vec<i32>> {
    let dealt = legacy_range(&topics(&[("t", partitions)]), &streams(&[("c", &[("t", threads)])])).unwrap();
    dealt.threads.values().map(|topics| topics["t"].clone()).collect()
}

#[test]
fn legacy_range_gives_the_remainder_to_the_first_threads() {
    assert_eq!(one_consumer(10, 3), [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8, 9]]);
    assert_eq!(one_consumer(3, 2), [vec![0, 1], vec![2]]);
    assert_eq!(one_consumer(2, 3), [vec![0], vec![1], vec![]]);
    assert_eq!(one_consumer(6, 6), (0..6).map(|p| vec![p]).collect::<Vec<_>>());
}

#[test]
fn legacy_range_sorts_thread_ids_as_strings() {
    let dealt = legacy_range(&topics(&[("t", 12)]), &streams(&[("c", &[("t", 12)])])).unwrap();
    let owners: Vec<Arc<str>> = owners_of(&dealt)["t"].values().cloned().collect();
    let texts: Vec<&str> = owners.iter().map(AsRef::as_ref).collect();
    assert_eq!(
        texts,
        [
            "c-0", "c-1", "c-10", "c-11", "c-2", "c-3", "c-4", "c-5", "c-6", "c-7", "c-8", "c-9"
        ]
    );
}

#[test]
fn of_three_machines_with_six_threads_and_six_partitions_one_works_and_twelve_threads_warn() {
    let group = ["my-topic-group_c", "my-topic-group_a", "my-topic-group_b"];
    let six: &[(&str, i32)] = &[("my-topic", 6)];
    let dealt = legacy_range(&topics(six), &streams(&group.map(|id| (id, six)))).unwrap();
    assert_eq!(dealt.threads.len(), 18);
    for (i, (partition, thread)) in owners_of(&dealt)["my-topic"].iter().enumerate() {
        assert_eq!(
            (usize::try_from(*partition).unwrap(), &**thread),
            (i, format!("my-topic-group_a-{i}").as_str())
        );
    }
    assert!(dealt.threads["my-topic-group_c-5"]["my-topic"].is_empty());
    // 0.8.2: each idle machine writes its own six lines; 0.9: every machine writes all twelve.
    assert!(dealt.warnings(WarnAbout::OwnThreads("my-topic-group_a")).is_empty());
    let own = dealt.warnings(WarnAbout::OwnThreads("my-topic-group_b"));
    assert_eq!(own.len(), 6);
    assert_eq!(
        own[3],
        "No broker partitions consumed by consumer thread my-topic-group_b-3 for topic my-topic"
    );
    assert_eq!(dealt.warnings(WarnAbout::AllThreads).len(), 12);
}

#[test]
fn legacy_range_treats_topics_one_by_one_and_unknown_ones_as_empty() {
    let group = streams(&[("a", &[("x", 2), ("y", 1), ("gone", 1)]), ("b", &[("x", 1)])]);
    let dealt = legacy_range(&topics(&[("x", 4), ("y", 2)]), &group).unwrap();
    assert_eq!(dealt.threads["a-0"]["x"], [0, 1]);
    assert_eq!(dealt.threads["a-1"]["x"], [2]);
    assert_eq!(dealt.threads["b-0"]["x"], [3]);
    assert_eq!(dealt.threads["a-0"]["y"], [0, 1]);
    assert!(!dealt.threads["a-1"].contains_key("y"));
    assert_eq!(
        dealt.warnings(WarnAbout::AllThreads),
        ["No broker partitions consumed by consumer thread a-0 for topic gone"]
    );
}

#[test]
fn legacy_assignors_refuse_fewer_than_one_stream() {
    let group = streams(&[("a", &[("x", 0)])]);
    assert!(matches!(
        legacy_range(&topics(&[("x", 1)]), &group),
        Err(AssignorError::Streams { streams: 0, .. })
    ));
    assert!(legacy_round_robin(&topics(&[("x", 1)]), &group).is_err());
}

#[test]
fn legacy_round_robin_refuses_topics_with_different_threads() {
    let group = streams(&[("a", &[("x", 1), ("y", 1)]), ("b", &[("x", 1)])]);
    let error = legacy_round_robin(&topics(&[("x", 1), ("y", 1)]), &group).unwrap_err();
    assert!(matches!(error, AssignorError::UnequalThreads { .. }), "{error}");
}

#[test]
fn range_vectors_of_the_specification() {
    let two = members(&[("c1", &["t1", "t2"]), ("c2", &["t1", "t2"])]);
    assert_eq!(
        shown(&range(&topics(&[("t1", 3), ("t2", 3)]), &NO_RACKS, &two)),
        ["t1-0 t1-1 t2-0 t2-1", "t1-2 t2-2"]
    );
    let mixed = members(&[("c1", &["t1"]), ("c2", &["t1", "t2"]), ("c3", &["t1"])]);
    assert_eq!(
        shown(&range(&topics(&[("t1", 3), ("t2", 2)]), &NO_RACKS, &mixed)),
        ["t1-0", "t1-1 t2-0 t2-1", "t1-2"]
    );
    let all: &[&str] = &["t1", "t2", "t3"];
    let three = members(&[("c1", all), ("c2", all), ("c3", all)]);
    assert_eq!(
        shown(&range(&topics(&[("t1", 6), ("t2", 7), ("t3", 2)]), &NO_RACKS, &three)),
        [
            "t1-0 t1-1 t2-0 t2-1 t2-2 t3-0",
            "t1-2 t1-3 t2-3 t2-4 t3-1",
            "t1-4 t1-5 t2-5 t2-6"
        ]
    );
}

#[test]
fn range_puts_static_members_first_and_does_not_care_about_their_member_ids() {
    let group = |dynamic: &str, renamed: &str| {
        let both: &[&str] = &["t1", "t2"];
        let mut group = members(&[(renamed, both), ("c2", both), ("c3", both), (dynamic, both)]);
        for (id, instance) in [(renamed, "instance1"), ("c2", "instance2"), ("c3", "instance3")] {
            group.get_mut(id).unwrap().group_instance_id = Some(instance.into());
        }
        group
    };
    let counts = topics(&[("t1", 5), ("t2", 4)]);
    let expected = ["t1-0 t1-1 t2-0", "t1-2 t2-1", "t1-3 t2-2", "t1-4 t2-3"];
    assert_eq!(shown(&range(&counts, &NO_RACKS, &group("c4", "c1"))), expected);
    assert_eq!(shown(&range(&counts, &NO_RACKS, &group("c5", "c1"))), expected);
    // "zz" sorts last by member id, but its instance id is the first.
    let renamed = range(&counts, &NO_RACKS, &group("c4", "zz"));
    assert_eq!(renamed["zz"], tps("t1-0 t1-1 t2-0").as_slice());
    assert_eq!(renamed["c4"], tps("t1-4 t2-3").as_slice());
}

#[test]
fn range_ignores_unknown_topics_and_keeps_members_without_partitions() {
    assert_eq!(
        shown(&range(&topics(&[]), &NO_RACKS, &members(&[("c1", &["gone"])]))),
        [""]
    );
    assert_eq!(
        shown(&range(
            &topics(&[("t", 1)]),
            &NO_RACKS,
            &members(&[("c1", &["t"]), ("c2", &["t"])])
        )),
        ["t-0", ""]
    );
    assert_eq!(
        shown(&range(
            &topics(&[("t", 1), ("other", 3)]),
            &NO_RACKS,
            &members(&[("c1", &["t"]), ("c2", &[])])
        )),
        ["t-0", ""]
    );
}

#[test]
fn members_are_compared_as_java_compares_strings() {
    // U+10000 is the surrogate pair D800 DC00 in Java and sorts before U+FFFF; as UTF-8 it sorts after it.
    let group = members(&[("\u{ffff}", &["t"]), ("\u{10000}", &["t"])]);
    assert_eq!(
        range(&topics(&[("t", 1)]), &NO_RACKS, &group)["\u{10000}"],
        tps("t-0").as_slice()
    );
}

#[test]
fn round_robin_vector_of_the_specification() {
    let two = members(&[("c1", &["t1", "t2"]), ("c2", &["t1", "t2"])]);
    assert_eq!(
        shown(&round_robin(&topics(&[("t1", 3), ("t2", 3)]), &two)),
        ["t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"]
    );
}

#[test]
fn sticky_vectors_of_the_specification() {
    let both: &[&str] = &["t1", "t2"];
    let fresh = members(&[("c1", both), ("c2", both)]);
    assert_eq!(
        shown(&sticky(&topics(&[("t1", 3), ("t2", 3)]), &NO_RACKS, &fresh)),
        ["t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"]
    );
    let joined = owning(members(&[("c1", &["t"]), ("c2", &["t"])]), &[("c1", "t-0 t-1 t-2", 1)]);
    assert_eq!(
        shown(&sticky(&topics(&[("t", 3)]), &NO_RACKS, &joined)),
        ["t-0 t-1", "t-2"]
    );
    let kept = owning(
        members(&[("c1", both), ("c2", both)]),
        &[("c1", "t1-0 t2-1", 1), ("c2", "t1-1 t2-2", 1)],
    );
    assert_eq!(
        shown(&sticky(&topics(&[("t1", 2), ("t2", 3)]), &NO_RACKS, &kept)),
        ["t1-0 t2-0 t2-1", "t1-1 t2-2"]
    );
}

#[test]
fn sticky_moves_only_the_partitions_of_a_member_that_left() {
    let counts = topics(&[("t", 9)]);
    let before = sticky(
        &counts,
        &NO_RACKS,
        &members(&[("c1", &["t"]), ("c2", &["t"]), ("c3", &["t"])]),
    );
    let mut rest = members(&[("c1", &["t"]), ("c3", &["t"])]);
    for (id, member) in &mut rest {
        member.owned.clone_from(&before[id]);
        member.generation = Some(1);
    }
    let after = sticky(&counts, &NO_RACKS, &rest);
    assert_valid(&counts, &rest, &after);
    for id in ["c1", "c3"] {
        assert!(before[id].iter().all(|tp| after[id].contains(tp)));
    }
}

#[test]
fn sticky_drops_a_partition_claimed_twice_in_a_generation_and_believes_the_higher_generation() {
    let counts = topics(&[("t", 4)]);
    let group = || members(&[("c1", &["t"]), ("c2", &["t"])]);
    let same = owning(group(), &[("c1", "t-0 t-3", 4), ("c2", "t-1 t-3", 4)]);
    assert_eq!(owned_by(&counts, &same), ["t-0", "t-1"]);
    let higher = owning(group(), &[("c1", "t-0 t-3", 4), ("c2", "t-1 t-3", 5)]);
    let assignment = sticky(&counts, &NO_RACKS, &higher);
    assert_eq!(assignment["c2"], tps("t-1 t-3").as_slice());
}

fn owned_by(counts: &TopicCounts, members: &Subscriptions) -> Vec<String> {
    shown(&owned::Owned::of(counts, members).by_member)
}

/// Answers of Java's assignor 4.3.1.
#[test]
fn sticky_lets_a_member_of_an_older_generation_keep_what_nobody_else_claims() {
    let late = owning(
        members(&[("c1", &["t"]), ("c2", &["t"])]),
        &[("c1", "t-4", 7), ("c2", "t-0", 6)],
    );
    assert_eq!(
        shown(&sticky(&topics(&[("t", 5)]), &NO_RACKS, &late)),
        ["t-1 t-3 t-4", "t-0 t-2"]
    );
}

/// Answers of Java's assignor 4.3.1: five members own three or more, four may keep three.
#[test]
fn sticky_lets_the_members_met_first_in_a_walk_of_javas_table_keep_the_larger_number() {
    let both: &[&str] = &["t-2", "Z"];
    let ids = [
        "c-0-14ad",
        "c-1-1660",
        "consumer-2-c94a",
        "consumer-4-4c01",
        "consumer-5-3737",
        "x-3-4d1e",
        "x-6-b62b",
        "x-7-7852",
    ];
    let owned = owning(
        members(&ids.map(|id| (id, both))),
        &[
            ("c-1-1660", "Z-0 Z-6 t-2-4 t-2-10", 7),
            ("consumer-4-4c01", "Z-1 Z-7 t-2-5", 7),
            ("consumer-5-3737", "Z-2 t-2-0 t-2-6", 7),
            ("x-3-4d1e", "Z-4 t-2-2 t-2-8", 7),
            ("x-7-7852", "Z-5 t-2-3 t-2-9", 7),
        ],
    );
    assert_eq!(
        shown(&sticky(&topics(&[("t-2", 12), ("Z", 8)]), &NO_RACKS, &owned)),
        [
            "Z-3 t-2-7",
            "Z-0 t-2-4",
            "Z-6 t-2-10",
            "Z-1 Z-7 t-2-5",
            "Z-2 t-2-0 t-2-6",
            "Z-4 t-2-2 t-2-8",
            "t-2-1 t-2-11",
            "Z-5 t-2-3 t-2-9",
        ]
    );
}

/// Answers of Java's assignor 4.3.1: with equal subscriptions even a claimant has to wait for a round.
#[test]
fn cooperative_sticky_holds_back_what_two_members_claim() {
    let counts = topics(&[("t", 2)]);
    let contested = owning(
        members(&[("c1", &["t"]), ("c2", &["t"])]),
        &[("c1", "t-0", 4), ("c2", "t-0 t-1", 4)],
    );
    assert_eq!(shown(&cooperative_sticky(&counts, &NO_RACKS, &contested)), ["", "t-1"]);
}

#[test]
fn cooperative_sticky_holds_back_what_another_member_still_owns() {
    let counts = topics(&[("t", 3)]);
    let joined = owning(members(&[("c1", &["t"]), ("c2", &["t"])]), &[("c1", "t-0 t-1 t-2", 1)]);
    assert_eq!(shown(&cooperative_sticky(&counts, &NO_RACKS, &joined)), ["t-0 t-1", ""]);
    let revoked = owning(
        members(&[("c1", &["t"]), ("c2", &["t"])]),
        &[("c1", "t-0 t-1", 2), ("c2", "", 2)],
    );
    assert_eq!(
        shown(&cooperative_sticky(&counts, &NO_RACKS, &revoked)),
        ["t-0 t-1", "t-2"]
    );
}

#[test]
fn sticky_evens_out_unequal_subscriptions_by_chains_and_keeps_what_it_can() {
    // a can only give to b, and b only to c.
    let group = members(&[("a", &["x"]), ("b", &["x", "y"]), ("c", &["y"])]);
    let counts = topics(&[("x", 4), ("y", 2)]);
    let owned = owning(group, &[("a", "x-0 x-1 x-2", 1), ("b", "x-3 y-0 y-1", 1), ("c", "", 1)]);
    let assignment = sticky(&counts, &NO_RACKS, &owned);
    assert_valid(&counts, &owned, &assignment);
    assert_eq!(assignment.values().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    let left_alone = owning(
        members(&[("a", &["x"]), ("b", &["x", "y"])]),
        &[("a", "x-0 x-1", 1), ("b", "y-0 y-1", 1)],
    );
    assert_eq!(
        shown(&sticky(&topics(&[("x", 2), ("y", 2)]), &NO_RACKS, &left_alone)),
        ["x-0 x-1", "y-0 y-1"]
    );
}

/// Java 4.3.1 keeps t-2-2 with its owner, too.
#[test]
fn sticky_gives_a_moved_partition_back_for_one_that_its_owner_did_not_own() {
    let group = owning(
        members(&[("c", &["t2", "z"]), ("d", &["o", "t2"]), ("x", &["t1", "t2"])]),
        &[
            ("c", "z-2 z-4 t2-1", 7),
            ("d", "o-0 o-1 o-2 t2-2", 7),
            ("x", "t1-0 t1-1 t2-0", 7),
        ],
    );
    let counts = topics(&[("t1", 2), ("t2", 3), ("z", 5), ("o", 3)]);
    assert_eq!(
        shown(&sticky(&counts, &NO_RACKS, &group)),
        ["z-0 z-1 z-2 z-3 z-4", "o-0 o-1 o-2 t2-2", "t1-0 t1-1 t2-0 t2-1"]
    );
}

#[test]
fn sticky_lets_only_as_many_members_keep_the_larger_number_as_there_are_partitions_over() {
    let group = members(&[("a", &["t"]), ("b", &["t"]), ("c", &["t"])]);
    let owned = owning(group, &[("a", "t-0 t-1", 1), ("b", "t-2 t-3", 1), ("c", "", 1)]);
    assert_eq!(
        shown(&sticky(&topics(&[("t", 4)]), &NO_RACKS, &owned)),
        ["t-0 t-1", "t-2", "t-3"]
    );
}
