//! The end of a share group: a last member takes everything that is left, and a broker that is killed then has nothing more for another one.

use std::collections::BTreeMap;

use fletchlog_broker::Broker;
use fletchlog_log::FetchBound;
use fletchlog_protocol::Value;
use fletchlog_protocol::values::{ShareGroupStateKey, ShareSnapshotValue, ShareUpdateValue};
use fletchlog_records::{BatchIter, DECOMPRESSION_LIMIT, RecordCursor, TopicPartition};

use super::cluster::{SHARE_STATE, TOPIC};
use super::network::lock;
use super::share_members::{Manner, SHARE_GROUP, ShareMember};
use super::world::Hand;
use crate::history::Partition;
use crate::share_history::Stored;

/// Time limit for a group on a quiet cluster, ms.
const PATIENCE_MS: i64 = 600_000;
/// Longer than a session of a member, and than a lock: after so many ms without a record nothing is left.
const QUIET_MS: i64 = 10_000;

pub(super) fn run(hand: &mut Hand) {
    if hand.world.plan.share.is_none() {
        return;
    }
    let loses = hand.world.plan.loses_acknowledged();
    let mut last = ShareMember::start(hand, "share-last");
    if let Err(left) = takes_everything(hand, &mut last) {
        if !loses {
            hand.surprise(format!("a share group does not come to its end: {left}"));
        }
        return;
    }
    last.commit(hand);
    last.close(hand);
    let mut rng = hand.rng.fork();
    hand.world.cluster().crash(&hand.world.net, &mut rng, false);
    hand.world.cluster().open(&hand.world.net);
    let mut after = ShareMember::start(hand, "share-after");
    let until = hand.now() + QUIET_MS / 2;
    while hand.now() < until {
        let found = after.poll(hand, Manner::Accepts);
        if found > 0 && !loses {
            return hand.surprise(format!(
                "{found} records of a share group come again after the broker was killed"
            ));
        }
        hand.sleep(100);
    }
    let broker = hand.world.cluster().broker().cloned();
    let Some(broker) = broker else { return };
    match stored(&broker, hand.world.plan.partitions) {
        Ok(stored) => {
            let shares = &mut lock(&hand.world.net).share_end;
            (shares.stored, shares.is_drained) = (stored, true);
        }
        Err(what) => hand.surprise(format!("{SHARE_STATE}: {what}")),
    }
}

/// Polls until there has been nothing for some time, and nothing is in flight.
fn takes_everything(hand: &mut Hand, member: &mut ShareMember) -> Result<(), String> {
    let (until, mut since) = (hand.now() + PATIENCE_MS, hand.now());
    while hand.now() < until {
        if member.poll(hand, Manner::Accepts) > 0 {
            since = hand.now();
        }
        if hand.now() > since + QUIET_MS {
            let broker = hand.world.cluster().broker().cloned();
            let Some(broker) = broker else {
                return Err("the broker is down".to_owned());
            };
            let open = broker.share_state(SHARE_GROUP, TOPIC);
            return match open {
                Ok(open) if open.is_empty() => Ok(()),
                open => {
                    let (group, topic) = (broker.describe_share_group(SHARE_GROUP), broker.describe_topic(TOPIC));
                    Err(format!("left is {open:?}, of {group:?}, in {topic:?}"))
                }
            };
        }
        hand.sleep(50);
    }
    Err("records come without end".to_owned())
}

/// The start offset of a partition, and state and delivery count by offset.
type State = (i64, BTreeMap<i64, (i8, i16)>);

/// Adds up the records of `__share_group_state`, as its documentation says.
fn stored(broker: &Broker, partitions: i32) -> Result<Vec<Stored>, String> {
    let mut found: BTreeMap<Partition, State> = BTreeMap::new();
    let described = broker.describe_topic(SHARE_STATE).map_err(|e| e.to_string())?;
    for of in described.partitions {
        let log = broker.partition_log(&TopicPartition::new(SHARE_STATE, of.partition));
        let log = log.map_err(|e| e.to_string())?;
        let mut offset = log.log_start_offset();
        while offset < log.log_end_offset() {
            let read = log.read(offset, 1 << 20, true, FetchBound::LogEnd);
            for batch in BatchIter::new(read.map_err(|e| e.to_string())?.records) {
                let batch = batch.map_err(|e| e.to_string())?;
                offset = batch.header().next_offset();
                let slice = batch.records(DECOMPRESSION_LIMIT).map_err(|e| e.to_string())?;
                let mut cursor = RecordCursor::new();
                while let Some(record) = cursor.next(&slice).map_err(|e| e.to_string())? {
                    let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
                    add(&mut found, key, value).map_err(|e| e.to_string())?;
                }
            }
        }
    }
    let numbers = 0..u32::try_from(partitions).unwrap_or(0);
    Ok(numbers
        .map(|partition| {
            let (start, states) = found.remove(&partition).unwrap_or((-1, BTreeMap::new()));
            let states = states.into_iter().map(|(at, (state, count))| (at, at, state, count));
            Stored {
                partition,
                start,
                states: states.collect(),
            }
        })
        .collect())
}

fn add(found: &mut BTreeMap<Partition, State>, key: &[u8], value: &[u8]) -> Result<(), fletchlog_protocol::WireError> {
    let value = bytes::Bytes::copy_from_slice(value);
    match ShareGroupStateKey::decode(bytes::Bytes::copy_from_slice(key))? {
        ShareGroupStateKey::Snapshot(key) => {
            let value = ShareSnapshotValue::decode(value)?;
            let states = value.state_batches.iter().flat_map(|batch| {
                let state = (batch.delivery_state, batch.delivery_count);
                (batch.first_offset..=batch.last_offset).map(move |at| (at, state))
            });
            let number = u32::try_from(key.partition).unwrap_or(0);
            found.insert(number, (value.start_offset, states.collect()));
        }
        ShareGroupStateKey::Update(key) => {
            let value = ShareUpdateValue::decode(value)?;
            let number = u32::try_from(key.partition).unwrap_or(0);
            let (start, states) = found.entry(number).or_default();
            for batch in &value.state_batches {
                for at in batch.first_offset..=batch.last_offset {
                    states.insert(at, (batch.delivery_state, batch.delivery_count));
                }
            }
            if value.start_offset >= 0 {
                *start = value.start_offset;
                *states = states.split_off(start);
            }
        }
        ShareGroupStateKey::Other(_) => {}
    }
    Ok(())
}
