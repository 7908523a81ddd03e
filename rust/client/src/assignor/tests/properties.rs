//! What holds for every group.

use proptest::prelude::*;

use super::*;

fn any_topics() -> impl Strategy<Value = TopicCounts> {
    proptest::collection::btree_map((0..4u8).prop_map(|i| Arc::from(format!("t{i}"))), 0..20i32, 1..4)
}

fn any_rack() -> impl Strategy<Value = Option<Arc<str>>> {
    proptest::option::of((0..3u8).prop_map(|i| Arc::from(format!("r{i}"))))
}

/// Racks of up to two replicas of most partitions.
fn any_racks() -> impl Strategy<Value = PartitionRacks> {
    let of_partition =
        proptest::collection::vec(any_rack(), 0..3).prop_map(|racks| racks.into_iter().flatten().collect());
    let of_topic = proptest::collection::vec(of_partition, 0..20);
    proptest::collection::btree_map((0..4u8).prop_map(|i| Arc::from(format!("t{i}"))), of_topic, 0..4)
}

fn any_members() -> impl Strategy<Value = Subscriptions> {
    let topics = proptest::collection::btree_set(0..5u8, 0..5).prop_map(|set| {
        set.into_iter()
            .map(|i| Arc::from(format!("t{i}")))
            .collect::<Vec<Arc<str>>>()
    });
    let owned = proptest::collection::vec((0..5u8, 0..20i32), 0..12).prop_map(|list| {
        list.into_iter()
            .map(|(t, p)| TopicPartition::new(format!("t{t}"), p))
            .collect()
    });
    let member = (
        topics,
        proptest::option::of(0..3u8),
        owned,
        proptest::option::of(0..3i32),
        any_rack(),
    )
        .prop_map(|(topics, instance, owned, generation, rack)| MemberSubscription {
            topics,
            group_instance_id: instance.map(|i| format!("i{i}").into()),
            owned,
            generation,
            rack,
            place: 0,
        });
    proptest::collection::btree_map((0..15u8).prop_map(|i| Arc::from(format!("m{i}"))), member, 1..8)
}

fn any_streams() -> impl Strategy<Value = StreamCounts> {
    let counts = proptest::collection::btree_map((0..4u8).prop_map(|i| Arc::from(format!("t{i}"))), 1..14i32, 1..4);
    proptest::collection::btree_map((0..30u8).prop_map(|i| Arc::from(format!("g_h{i}:x"))), counts, 1..6)
}

proptest! {
    // A group that needed a third round was found once in some thousand.
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_partition_goes_to_exactly_one_subscriber(counts in any_topics(), racks in any_racks(), members in any_members()) {
        for assignor in [Assignor::Range, Assignor::RoundRobin, Assignor::Sticky] {
            assert_valid(&counts, &members, &assignor.assign(&counts, &racks, &members));
        }
    }

    #[test]
    fn sticky_is_balanced_for_any_claims_and_racks(counts in any_topics(), racks in any_racks(), members in any_members()) {
        assert_balanced(&members, &sticky(&counts, &racks, &members));
    }

    #[test]
    fn sticky_does_not_move_anything_of_its_own_result(counts in any_topics(), mut members in any_members()) {
        let first = sticky(&counts, &NO_RACKS, &members);
        for (id, member) in &mut members {
            member.owned.clone_from(&first[id]);
            member.generation = Some(7);
        }
        prop_assert_eq!(by_topic(&sticky(&counts, &NO_RACKS, &members)), by_topic(&first));
        prop_assert_eq!(by_topic(&cooperative_sticky(&counts, &NO_RACKS, &members)), by_topic(&first));
    }

    #[test]
    fn cooperative_sticky_never_gives_away_what_another_member_owns_and_settles_in_two_rounds(counts in any_topics(), mut members in any_members()) {
        // Real members own disjoint sets.
        let mut seen = BTreeSet::new();
        for member in members.values_mut() {
            member.owned.retain(|tp| seen.insert(tp.clone()));
            member.generation = Some(3);
        }
        let first = cooperative_sticky(&counts, &NO_RACKS, &members);
        for (id, list) in &first {
            for tp in list {
                let other = members.iter().any(|(m, s)| m != id && s.owned.contains(tp));
                prop_assert!(!other, "{} is owned by another", tp);
            }
        }
        for (id, member) in &mut members {
            member.owned.clone_from(&first[id]);
        }
        let second = cooperative_sticky(&counts, &NO_RACKS, &members);
        assert_valid(&counts, &members, &second);
    }

    #[test]
    fn range_and_round_robin_counts_differ_by_at_most_one_where_all_subscribe(counts in any_topics(), ids in proptest::collection::btree_set(0..40u8, 1..9)) {
        let all: Vec<Arc<str>> = counts.keys().cloned().collect();
        let members: Subscriptions = ids.iter().map(|i| (Arc::from(format!("m{i}")), dynamic(all.clone()))).collect();
        let spread = |sizes: Vec<usize>| sizes.iter().max().unwrap() - sizes.iter().min().unwrap();
        for assignment in [round_robin(&counts, &members), sticky(&counts, &NO_RACKS, &members)] {
            prop_assert!(spread(assignment.values().map(Vec::len).collect()) <= 1);
        }
        for topic in &all {
            let of_topic = |list: &Vec<TopicPartition>| list.iter().filter(|tp| tp.topic == *topic).count();
            prop_assert!(spread(range(&counts, &NO_RACKS, &members).values().map(of_topic).collect()) <= 1);
        }
    }

    #[test]
    fn legacy_range_deals_consecutive_runs_in_thread_order_that_differ_by_at_most_one(counts in any_topics(), members in any_streams()) {
        let dealt = legacy_range(&counts, &members).unwrap();
        for (topic, threads) in legacy_range::consumers_per_topic(&members).unwrap() {
            let runs: Vec<&Vec<i32>> = threads.iter().map(|thread| &dealt.threads[&thread.id][&topic]).collect();
            let flat: Vec<i32> = runs.iter().copied().flatten().copied().collect();
            prop_assert_eq!(flat, (0..counts.get(&topic).copied().unwrap_or(0)).collect::<Vec<_>>());
            let sizes = || runs.iter().map(|run| run.len());
            prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            prop_assert!(sizes().collect::<Vec<_>>().is_sorted_by(|a, b| a >= b), "the extra goes to the first");
            // Threads of one consumer sit together: no consumer appears again after another one began.
            let mut consumers: Vec<_> = threads.iter().map(|thread| &thread.consumer).collect();
            consumers.dedup();
            prop_assert_eq!(consumers.len(), consumers.iter().collect::<BTreeSet<_>>().len());
        }
    }
}
