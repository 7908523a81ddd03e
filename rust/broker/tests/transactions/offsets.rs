//! Offsets in transactions (AddOffsetsToTxn, TxnOffsetCommit).

use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::Broker;

use super::client::*;
use crate::common::{Client, tp};

/// The committed offset; an error's code.
pub fn committed(broker: &Arc<Broker>, group: &str, require_stable: bool) -> Result<Option<i64>, i16> {
    let request = OffsetFetchRequest::of(group.into(), Some(&[tp("t", 0)]), require_stable);
    let Response::OffsetFetch(response) = Client::new(broker).ask(1, Request::OffsetFetch(request)) else {
        panic!()
    };
    let (_, committed) = response.offsets().unwrap().next().unwrap();
    committed.map(|o| o.map(|o| o.offset)).map_err(ErrorCode::code)
}

fn commit_outside(broker: &Arc<Broker>, group: &str, offset: i64) -> i16 {
    let offset = OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        topics: OffsetCommitRequest::topics_of([(tp("t", 0), offset)]),
        ..Default::default()
    };
    let Response::OffsetCommit(response) = Client::new(broker).ask(1, Request::OffsetCommit(request)) else {
        panic!()
    };
    response.errors().next().unwrap().1.code()
}

#[test]
fn offsets_of_a_transaction_count_from_its_commit_and_an_abort_drops_them() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t, 5)), (0, 0));
    // Pending: a caller that must not read the same records twice has to wait.
    assert_eq!(
        (committed(&broker, "g", true), committed(&broker, "g", false)),
        (Err(88), Ok(None))
    );
    assert_eq!(committed(&broker, "other", true), Ok(None));
    assert_eq!(txn.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
    assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t, 9)), (0, 0));
    assert_eq!(committed(&broker, "g", false), Ok(Some(5)));
    assert_eq!(txn.end(false), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
}

#[test]
fn the_later_of_two_commits_counts_whenever_its_transaction_ends() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!((txn.add_offsets("g"), txn.commit_offset("g", &t, 5)), (0, 0));
    assert_eq!(commit_outside(&broker, "g", 7), 0);
    assert_eq!(txn.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(7)));
}

#[test]
fn the_marker_ends_only_what_its_partition_holds() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let (mut one, mut two) = (Txn::new(&broker, "one"), Txn::new(&broker, "two"));
    assert_eq!((one.add_offsets("g"), one.commit_offset("g", &t, 1)), (0, 0));
    assert_eq!((two.add_offsets("h"), two.commit_offset("h", &t, 2)), (0, 0));
    assert_eq!(one.end(true), 0);
    assert_eq!(committed(&broker, "g", true), Ok(Some(1)));
    assert_eq!(committed(&broker, "h", true), Err(88));
    assert_eq!(two.end(false), 0);
    assert_eq!(committed(&broker, "h", true), Ok(None));
}

#[test]
fn offsets_need_the_group_in_the_transaction_and_a_current_producer() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.commit_offset("g", &t, 5), 48, "AddOffsetsToTxn comes first");
    assert_eq!(txn.add_offsets("g"), 0);
    assert_eq!(txn.commit_offset("g", &tp("nope", 0), 5), 3);
    assert_eq!(txn.commit_offset("", &t, 5), 24);
    txn.epoch -= 1;
    assert_eq!(txn.commit_offset("g", &t, 5), 47);
    txn.epoch += 1;
    txn.producer_id += 1;
    assert_eq!(txn.commit_offset("g", &t, 5), 49);
}

/// Recorded from a real 4.4.0: what is open in the group's partition is not verified, whatever transactional id is named.
#[test]
fn an_open_transaction_takes_more_offsets_under_any_transactional_id() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut other = Txn::new(&broker, "other");
    for version_2 in [false, true] {
        let of = |id| match version_2 {
            true => Txn::of_version_2(&broker, id),
            false => Txn::new(&broker, id),
        };
        let mut txn = of("id");
        let names = ["nope", "other", "", "id"];
        let under = |txn: &mut Txn, name: &str| {
            txn.id = name.into();
            txn.commit_offset("g", &t, 5)
        };
        if !version_2 {
            txn.id = "id".into();
            assert_eq!(txn.add_offsets("g"), 0);
        }
        assert_eq!(
            names[..3].iter().map(|name| under(&mut txn, name)).collect::<Vec<_>>(),
            [49, 49, 42]
        );
        assert_eq!(under(&mut txn, "id"), 0, "it is open in the log of the group now");
        assert_eq!(names.map(|name| under(&mut txn, name)), [0; 4]);
        txn.epoch += 1;
        assert_eq!(under(&mut txn, "nope"), 49, "another epoch is not open");
        txn.epoch -= 1;
        txn.id = "id".into();
        assert_eq!(txn.end(true), 0);
        assert_eq!(committed(&broker, "g", true), Ok(Some(5)));
        assert_eq!(under(&mut txn, "nope"), 49, "it has ended");
    }
    assert_eq!(other.end(true), 48, "it was never begun");
}

#[test]
fn a_zombie_of_the_group_cannot_commit_in_a_transaction() {
    let (broker, _) = broker(&[]);
    let t = tp("t", 0);
    let mut txn = Txn::new(&broker, "id");
    assert_eq!(txn.add_offsets("g"), 0);
    assert_eq!(
        txn.commit_offset_as("g", &t, 5, 1, "gone"),
        22,
        "no such group, no such generation"
    );
    assert_eq!(commit_outside(&broker, "g", 1), 0);
    assert_eq!(txn.commit_offset_as("g", &t, 5, 1, "gone"), 25);
    assert_eq!(
        txn.commit_offset_as("g", &t, 5, -1, "gone"),
        0,
        "an empty group has no generation to be checked"
    );
}
