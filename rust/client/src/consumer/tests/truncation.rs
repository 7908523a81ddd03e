//! KIP-320: positions are checked against a new leader's log. Kafka: `SubscriptionStateTest#testTruncationDetection*`,
//! `testMaybeValidatePositionForCurrentLeader`, `FetcherTest#testTruncationDetected`.

use fletchlog_api::{ErrorCode, OffsetAndMetadata};

use super::fake_broker::{FakeBroker, Net};
use super::*;
use crate::ClientError;

/// One partition with two batches of four; its leader is at epoch 0.
fn eight() -> FakeBroker {
    FakeBroker::default().with("A", 0, 2, 4)
}

fn questions(broker: &FakeBroker) -> Vec<i32> {
    let asked = |net| match net {
        Net::LeaderEpochs(asked) => Some(asked[0].1),
        _ => None,
    };
    broker.take_net().into_iter().filter_map(asked).collect()
}

/// Has read everything under epoch 0; then the leader's epoch becomes 1, which the consumer learns by a refresh.
fn read_all_then_new_leader(broker: &FakeBroker, properties: &[(&str, &str)]) -> Consumer {
    let mut c = consumer(broker, properties);
    c.assign(&[tp("A")]).unwrap();
    c.seek(&tp("A"), 0).unwrap();
    assert_eq!(poll(&mut c).count(), 8);
    assert_eq!(questions(broker), [] as [i32; 0], "the first leader is taken as it is");
    broker.log("A", |log| {
        log.leader_epoch = 1;
        log.fetch_errors.push_back(ErrorCode::FENCED_LEADER_EPOCH);
    });
    c
}

fn until_asked(c: &mut Consumer, broker: &FakeBroker) -> Vec<i32> {
    for _ in 0..20 {
        poll(c);
        let asked = questions(broker);
        if !asked.is_empty() {
            return asked;
        }
        broker.clock.advance(100);
    }
    panic!("the leader was not asked");
}

#[test]
fn a_new_leader_is_asked_for_the_end_of_the_epoch_last_read_and_reading_goes_on() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[]);
    assert_eq!(until_asked(&mut c, &broker), [0]);
    broker.log("A", |log| log.append(&super::fake_broker::batch(2)));
    let more: Vec<i64> = (0..3).flat_map(|_| offsets(&poll(&mut c))).collect();
    assert_eq!(more, [8, 9]);
    assert_eq!(questions(&broker), [] as [i32; 0], "asked once");
}

#[test]
fn a_log_that_was_cut_is_read_again_from_the_first_offset_that_differs() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[]);
    broker.log("A", |log| log.epoch_ends.push_back((ErrorCode::NONE, 0, 4)));
    let mut again = Vec::new();
    for _ in 0..20 {
        again.extend(offsets(&poll(&mut c)));
        broker.clock.advance(100);
    }
    assert_eq!(again, [4, 5, 6, 7]);
}

#[test]
fn without_a_known_end_the_policy_decides() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[]);
    broker.log("A", |log| log.epoch_ends.push_back((ErrorCode::NONE, -1, -1)));
    let mut again = Vec::new();
    for _ in 0..20 {
        again.extend(offsets(&poll(&mut c)));
        broker.clock.advance(100);
    }
    assert_eq!(again, (0..8).collect::<Vec<_>>());
}

#[test]
fn policy_none_leaves_it_to_the_user() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[("auto.offset.reset", "none")]);
    broker.log("A", |log| log.epoch_ends.push_back((ErrorCode::NONE, 0, 4)));
    let failure = (0..20).find_map(|_| {
        broker.clock.advance(100);
        c.poll(0, &mut || false).err()
    });
    match failure {
        Some(ClientError::LogTruncation(cuts)) => assert_eq!(cuts[&tp("A")], (8, Some(4))),
        other => panic!("{other:?}"),
    }
    c.seek(&tp("A"), 6).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [6, 7]);
}

#[test]
fn a_leader_that_cannot_answer_yet_is_asked_again() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[]);
    broker.log("A", |log| {
        log.epoch_ends.push_back((ErrorCode::NOT_LEADER_OR_FOLLOWER, -1, -1));
    });
    assert_eq!(until_asked(&mut c, &broker), [0, 0]);
}

#[test]
fn a_committed_offset_with_an_epoch_is_validated_before_it_is_read_from() {
    let broker = eight();
    broker.log("A", |log| {
        log.leader_epoch = 3;
        log.epoch_ends.push_back((ErrorCode::NONE, 2, 5));
    });
    let committed = OffsetAndMetadata {
        offset: 7,
        leader_epoch: 2,
        metadata: "".into(),
    };
    broker.state().committed.insert(tp("A"), committed);
    let mut c = consumer(&broker, &[("group.id", "g")]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(offsets(&poll(&mut c)), [5, 6, 7]);
    assert_eq!(questions(&broker), [2]);
}

#[test]
fn a_seek_drops_a_question_under_way() {
    let broker = eight();
    let mut c = read_all_then_new_leader(&broker, &[]);
    broker.log("A", |log| log.epoch_ends.push_back((ErrorCode::NONE, 0, 4)));
    for _ in 0..20 {
        broker.clock.advance(100);
        c.poll(0, &mut || false).unwrap();
        if c.state.subs.position(&tp("A")).is_none() {
            break;
        }
    }
    assert_eq!(c.state.subs.position(&tp("A")), None, "awaits validation");
    c.seek(&tp("A"), 7).unwrap();
    let more: Vec<i64> = (0..3).flat_map(|_| offsets(&poll(&mut c))).collect();
    assert_eq!(more, [7]);
}

#[test]
fn what_a_lookup_gave_has_no_epoch_to_commit_until_a_record_was_read() {
    let broker = eight();
    let mut c = consumer(&broker, &[("group.id", "g"), ("max.poll.records", "3")]);
    c.assign(&[tp("A")]).unwrap();
    assert_eq!(c.position(&tp("A"), 1000, &mut || false).unwrap(), 0);
    c.commit(None, 1000, &mut || false).unwrap();
    assert_eq!(broker.state().committed[&tp("A")].leader_epoch, -1);
    poll(&mut c);
    c.commit(None, 1000, &mut || false).unwrap();
    assert_eq!(broker.state().committed[&tp("A")].leader_epoch, 0);
}
