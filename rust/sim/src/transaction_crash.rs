//! Power loss at every storage operation of a broker with transactional producers of version 2 (reliability C1, C2): what was answered as
//! ended is ended in the same way in every partition, and the producer goes on with the id and the epoch that it was given.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, TransactionDescription};
use fletchlog_log::FetchBound;
use fletchlog_records::control::{ControlType, marker_in};
use fletchlog_records::{BatchIter, DECOMPRESSION_LIMIT, RecordCursor};
use fletchlog_testing::VirtualClock;

use crate::coordinator_disk::{NOW_MS, open};
use crate::crash_points::{Around, CrashPoints, Crashable, Seen, Violation, check_recovery};
use crate::disk_state::DiskState;
use crate::port_client::{PortClient, ProducerIdAndEpoch, Transactional};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;
use crate::transaction_workload::{
    Fate, IDS, Model, TransactionWorkload, TxnState, nobody, partition, partition_of, partitions,
};

/// What is on a disk.
#[derive(Debug, Clone, Default, PartialEq)]
struct Found {
    txns: BTreeMap<&'static str, (TxnState, ProducerIdAndEpoch)>,
    records: BTreeMap<(i32, String), Fate>,
    offsets: BTreeMap<i32, i64>,
}

impl Crashable for TransactionWorkload {
    const AFTER_FAILURE: (usize, usize) = (2, 0);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let rng = Rng::new(self.course.seed() ^ 0x7A4A_5AC7);
        points.check_around(rng, &self.moments, |crash, image, rng, seen| {
            crash.check(image, rng, seen)
        })
    }
}

impl Around<'_, Model> {
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Found>) -> Result<(), String> {
        let disk = SimDisk::from(image.clone());
        let look = |disk: &SimDisk| found_on(disk).map(|(_, found)| found);
        check_recovery(image, self.given(), rng, seen, look, |found| self.holds(found))?;
        let (broker, found) = found_on(&disk)?;
        goes_on(&broker, &found)
    }

    fn holds(&self, found: &Found) -> Result<(), String> {
        for id in IDS {
            self.of_id(id, found).map_err(|what| format!("{id}: {what}"))?;
        }
        Ok(())
    }

    /// A transactional id, with what it has written, is as before or as after the request in progress.
    fn of_id(&self, id: &'static str, found: &Found) -> Result<(), String> {
        let is_known = |model: &Model| model.txns.contains_key(id);
        let Some(txn) = found.txns.get(id) else {
            return match is_known(self.before) {
                true => Err("is gone".to_owned()),
                false => Ok(()),
            };
        };
        let expected = |model: &Model| model.txns.get(id).map(|txn| (txn.state, txn.producer));
        let (before, after) = (expected(self.before), expected(self.after));
        let is_before = before == Some(*txn) && self.has(self.before, id, found);
        let is_after = after == Some(*txn) && self.has(self.after, id, found);
        let is_between = || {
            // A new id may have got a producer id that was lost with a failed write.
            let within = before.zip(after).is_none_or(|((_, (pid, since)), (_, (_, until)))| {
                pid == txn.1.0 && (since..=until).contains(&txn.1.1)
            });
            let has_ended = matches!(txn.0, TxnState::Empty | TxnState::Complete(Fate::Aborted));
            within && has_ended && self.has(self.after, id, found)
        };
        if is_before || is_after || (self.after.fences.contains(&id) && is_between()) {
            return Ok(());
        }
        let of_id = |(at, value): &&(i32, String)| value.starts_with(id) && *at >= 0;
        let records: Vec<_> = found.records.iter().filter(|(key, _)| of_id(key)).collect();
        Err(format!(
            "is {txn:?}, was {before:?}, was to be {after:?}, with the records {records:?} and the offset {:?}",
            found.offsets.get(&partition_of(id))
        ))
    }

    /// Whether the records and the offset of an id are those of a model. A record of the request in progress may be there or not.
    fn has(&self, model: &Model, id: &str, found: &Found) -> bool {
        let offset = |offsets: &BTreeMap<i32, i64>| offsets.get(&partition_of(id)).copied();
        let is_right = |key: &(i32, String)| match (found.records.get(key), model.records.get(key)) {
            (found, expected) if found == expected => true,
            // In progress: before its partition's end was written, or after.
            (Some(fate), None) => self.after.records.get(key) == Some(fate),
            (None, Some(_)) => !self.before.records.contains_key(key),
            _ => false,
        };
        let keys = found.records.keys().chain(model.records.keys());
        let mut of_id = keys.filter(|(_, value)| value.starts_with(id));
        offset(&found.offsets) == offset(&model.offsets) && of_id.all(is_right)
    }
}

fn found_on(disk: &SimDisk) -> Result<(Arc<Broker>, Found), String> {
    let broker = open(disk, &VirtualClock::at(NOW_MS)).map_err(|e| format!("cannot be opened: {e}"))?;
    let found = found(&broker)?;
    Ok((broker, found))
}

fn found(broker: &Arc<Broker>) -> Result<Found, String> {
    let mut found = Found::default();
    let described = broker.transactions().map_err(|e| e.to_string())?;
    for id in IDS {
        if let Some(txn) = described.iter().find(|t| *t.transactional_id == *id) {
            found
                .txns
                .insert(id, (state_of(txn)?, (txn.producer_id, txn.producer_epoch)));
        }
    }
    if broker.describe_topic("a").is_err() {
        return Ok(found);
    }
    let client = PortClient::new(broker);
    for number in partitions() {
        fates(broker, number, &mut found.records).map_err(|e| format!("partition {number}: {e}"))?;
        let committed = client.committed(nobody().group, &partition(number));
        if let Some(offset) = committed.map_err(|e| format!("committed offset: {e}"))? {
            found.offsets.insert(number, offset);
        }
    }
    Ok(found)
}

fn state_of(txn: &TransactionDescription) -> Result<TxnState, String> {
    match txn.state {
        "Empty" => Ok(TxnState::Empty),
        "Ongoing" => Ok(TxnState::Ongoing),
        "CompleteCommit" => Ok(TxnState::Complete(Fate::Committed)),
        "CompleteAbort" => Ok(TxnState::Complete(Fate::Aborted)),
        other => Err(format!("{} is {other}", txn.transactional_id)),
    }
}

/// The records of a partition, and what its markers decide. A marker of version 2 has the epoch after that of the records.
fn fates(broker: &Broker, number: i32, records: &mut BTreeMap<(i32, String), Fate>) -> Result<(), String> {
    let log = broker.partition_log(&partition(number)).map_err(|e| e.to_string())?;
    let mut open: BTreeMap<i64, Vec<(i16, String)>> = BTreeMap::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1 << 20, true, FetchBound::LogEnd);
        for batch in BatchIter::new(read.map_err(|e| e.to_string())?.records) {
            let batch = batch.map_err(|e| e.to_string())?;
            let slice = batch.records(DECOMPRESSION_LIMIT).map_err(|e| e.to_string())?;
            let header = batch.header();
            let (producer, epoch) = (header.producer_id, header.producer_epoch);
            offset = header.next_offset();
            if let Some(marker) = marker_in(&slice)
                .map_err(|e| e.to_string())?
                .filter(|_| header.is_control())
            {
                let fate = Fate::of(marker.control_type == ControlType::Commit);
                for (written, value) in open.remove(&producer).unwrap_or_default() {
                    if written >= epoch {
                        return Err(format!(
                            "{value} of epoch {written} is ended by a marker of epoch {epoch}"
                        ));
                    }
                    records.insert((number, value), fate);
                }
                continue;
            }
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&slice).map_err(|e| e.to_string())? {
                let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
                if records.insert((number, value.clone()), Fate::Open).is_some() {
                    return Err(format!("{value} is there twice"));
                }
                open.entry(producer).or_default().push((epoch, value));
            }
        }
    }
    Ok(())
}

/// Producers go on: an end that is asked for again has the same answer, one the other way is refused, an epoch that has ended writes no
/// more, and the epoch in effect writes and ends.
fn goes_on(broker: &Arc<Broker>, found: &Found) -> Result<(), String> {
    let client = PortClient::new(broker);
    for (&id, &(state, producer)) in &found.txns {
        let by = Transactional { id, producer };
        let earlier = Transactional {
            id,
            producer: (producer.0, producer.1.saturating_sub(1)),
        };
        if let TxnState::Complete(fate) = state {
            let committed = fate == Fate::Committed;
            let again = client.end(earlier, committed);
            if again != Ok(producer) {
                return Err(format!("{id}: {found:?}: EndTxn again: {again:?}"));
            }
            let other = client.end(earlier, !committed);
            if other != Err(ErrorCode::INVALID_TXN_STATE) {
                return Err(format!("{id}: {found:?}: EndTxn the other way: {other:?}"));
            }
        }
        if producer.1 > 0 {
            let late = client.produce(earlier, &partition(0), 1_000, (NOW_MS, "late"));
            if late != Err(ErrorCode::INVALID_PRODUCER_EPOCH) {
                return Err(format!("{id}: {found:?}: a producer of an earlier epoch: {late:?}"));
            }
        }
        let next = (producer.0, producer.1.saturating_add(1));
        if state == TxnState::Ongoing {
            let ended = client.end(by, true);
            if ended != Ok(next) {
                return Err(format!("{id}: {found:?}: EndTxn: {ended:?}"));
            }
        } else {
            let value = format!("{id}-more");
            let written = client.produce(by, &partition(1), 0, (NOW_MS, &value));
            let committed = written.and_then(|_| client.commit_in(by, nobody(), &partition(partition_of(id)), 5_000));
            let ended = committed.and_then(|()| client.end(by, false));
            if ended != Ok(next) {
                return Err(format!(
                    "{id}: {found:?}: a transaction with the epoch in effect: {ended:?}"
                ));
            }
        }
    }
    let now = self::found(broker)?;
    let is_open = |fate: &&Fate| **fate == Fate::Open;
    match now.records.values().find(is_open) {
        Some(_) => Err(format!("after {found:?} and the ends of all, there is {now:?}")),
        None => Ok(()),
    }
}
