//! Power loss at every storage operation of a broker: metadata, checkpoints, topics, leaders, records, committed offsets, producer ids
//! (reliability C1, C2, M8).
//!
//! Between two responses, each partition and each committed offset may be in the state before, after, or in between.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_broker::Broker;
use fletchlog_log::FetchBound;
use fletchlog_log::scan::{Scan, ScanOrder, ScanRange};
use fletchlog_records::TopicPartition;

use crate::broker_workload::{
    BrokerWorkload, Model, Records, committed, leader, new_producer_id, open, produce, value,
};
use crate::crash_points::{Around, CrashPoints, Crashable, Given, Seen, Violation};
use crate::disk_state::{DiskState, Left};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// Log ends.
pub(crate) type Ends = BTreeMap<TopicPartition, i64>;

impl Crashable for BrokerWorkload {
    const AFTER_FAILURE: (usize, usize) = (2, 0);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let promised = |now| {
            let around = Around::of(&self.moments, now);
            let crash = Crash {
                answered: around.answered,
                before: Cow::Borrowed(around.before),
                after: Cow::Borrowed(around.after),
            };
            (around.answered, crash)
        };
        points.check(Rng::new(self.course.seed() ^ 0xB0BA_FE77), promised, Crash::check)
    }
}

/// The state after the answered requests, and after the one in progress.
pub(crate) struct Crash<'a> {
    /// Number of answered requests.
    pub answered: usize,
    pub before: Cow<'a, Model>,
    pub after: Cow<'a, Model>,
}

impl Crash<'_> {
    pub(crate) fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Ends>) -> Result<(), String> {
        let (fingerprint, clean) = (image.fingerprint(), image.is_clean());
        if seen.meet(&image, self.given()).is_some() {
            return Ok(());
        }
        let disk = SimDisk::from(image);
        disk.record_one(rng.fork());
        let broker = open(&disk).map_err(|e| format!("cannot be opened: {e}"))?;
        let ends = self.contents(&broker)?;
        let (middle, end) = (disk.crash_point(), disk.state());
        self.goes_on(&broker, &ends)?;
        drop(broker);
        if clean {
            seen.remember(fingerprint, self.given(), ends.clone());
        }
        // Whatever a reader may have seen after the first recovery must survive a second power loss (reliability C2).
        let again = self.recover_again(&end, seen)?;
        if let Some((tp, end)) = ends.iter().find(|(tp, end)| again.get(tp) != Some(end)) {
            return Err(format!(
                "{tp} ended at {end} after the first recovery, {:?} after a second power loss",
                again.get(tp)
            ));
        }
        middle.map_or(Ok(()), |state| self.recover_again(&state, seen).map(drop))
    }

    /// Recovers again after a power loss during or after a recovery. Returns the ends of the logs.
    fn recover_again(&self, state: &DiskState, seen: &mut Seen<Ends>) -> Result<Ends, String> {
        let again = |e: String| format!("second recovery: {e}");
        let image = state.left(Left::Nothing);
        if let Some(ends) = seen.meet(&image, self.given()) {
            return Ok(ends.clone());
        }
        let broker = open(&image.into()).map_err(|e| again(format!("cannot be opened: {e}")))?;
        self.contents(&broker).map_err(again)
    }

    /// The expected state depends on the answered requests.
    fn given(&self) -> Given {
        (i64::try_from(self.answered).unwrap_or(i64::MAX), 0)
    }

    /// Checks all promises. Returns the ends of the logs.
    fn contents(&self, broker: &Arc<Broker>) -> Result<Ends, String> {
        let topics = broker.topics(false).map_err(|e| e.to_string())?;
        for name in self
            .before
            .topics
            .keys()
            .filter(|name| self.after.topics.contains_key(*name))
        {
            if !topics.iter().any(|found| **found == **name) {
                return Err(format!("topic {name} is gone"));
            }
        }
        let mut ends = Ends::new();
        for name in &topics {
            let known = |model: &Model| model.topics.get(&**name).copied();
            let incarnation = known(&self.after).or_else(|| known(&self.before));
            let incarnation = incarnation.ok_or_else(|| format!("topic {name} is back"))?;
            let description = broker.describe_topic(name).map_err(|e| format!("{name}: {e}"))?;
            for partition in &description.partitions {
                let tp = TopicPartition::new(name.clone(), partition.partition);
                let end = self
                    .partition(broker, &tp, incarnation)
                    .map_err(|e| format!("{tp}: {e}"))?;
                ends.insert(tp, end);
            }
        }
        self.offsets(broker, &ends)?;
        self.leaders(broker, &ends)?;
        Ok(ends)
    }

    fn partition(&self, broker: &Broker, tp: &TopicPartition, incarnation: usize) -> Result<i64, String> {
        let before = self.before.records.get(tp).or(self.after.records.get(tp));
        let after = self.after.records.get(tp).or(before);
        let (before, after) = before.zip(after).ok_or("it was never made")?;
        let log = broker.partition_log(tp).map_err(|e| e.to_string())?;
        let found = Records {
            start: log.log_start_offset(),
            end: log.log_end_offset(),
        };
        // Retention moves the start as well.
        if found.start < before.start || found.start > found.end || !(before.end..=after.end).contains(&found.end) {
            return Err(format!("is {found:?}, was {before:?}, was to be {after:?}"));
        }
        let range = (Some(found.start), Some(found.end));
        let range = ScanRange::resolve(log, range.0, range.1, FetchBound::LogEnd).map_err(|e| e.to_string())?;
        let mut scan = Scan::new(&[range], FetchBound::LogEnd, ScanOrder::Offset);
        let mut offset = found.start;
        while let Some(batch) = scan.next_batch().map_err(|e| e.to_string())? {
            while let Some(record) = batch.cursor.next(batch.slice).map_err(|e| e.to_string())? {
                let expected = value(tp, incarnation, offset);
                if record.offset != offset || record.value != Some(expected.as_bytes()) {
                    return Err(format!("at {offset} is {record:?}"));
                }
                offset += 1;
            }
        }
        if offset != found.end {
            return Err(format!("a scan ends at {offset}, the log at {}", found.end));
        }
        Ok(found.end)
    }

    fn offsets(&self, broker: &Arc<Broker>, ends: &Ends) -> Result<(), String> {
        for (tp, before) in self.before.committed.iter().filter(|(tp, _)| ends.contains_key(tp)) {
            let Some(after) = self.after.committed.get(tp) else {
                continue;
            };
            let found = committed(broker, tp)?;
            if found != Some(*before) && found != Some(*after) {
                return Err(format!(
                    "committed for {tp}: {found:?}, was {before}, was to be {after}"
                ));
            }
        }
        Ok(())
    }

    fn leaders(&self, broker: &Arc<Broker>, ends: &Ends) -> Result<(), String> {
        for (tp, before) in self.before.leaders.iter().filter(|(tp, _)| ends.contains_key(tp)) {
            let Some(after) = self.after.leaders.get(tp) else {
                continue;
            };
            let found = leader(broker, tp)?;
            if found != *before && found != *after {
                return Err(format!(
                    "the leader of {tp} and its epoch: {found:?}, was {before:?}, was to be {after:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that everything works: each partition recognizes its last record as a repeat and accepts the next one, and a new producer id
    /// is unused.
    fn goes_on(&self, broker: &Arc<Broker>, ends: &Ends) -> Result<(), String> {
        for (tp, end) in ends {
            let known = |model: &Model| model.topics.get(&*tp.topic).copied();
            let incarnation = known(&self.after).or_else(|| known(&self.before)).unwrap_or_default();
            let start = broker.partition_log(tp).map_err(|e| e.to_string())?.log_start_offset();
            for offset in [end - 1, *end].into_iter().filter(|offset| *offset >= start) {
                let placed = produce(broker, tp, incarnation, offset).map_err(|e| format!("{tp}: {e}"))?;
                if placed != offset {
                    return Err(format!("{tp}: record {offset} went to {placed}"));
                }
            }
        }
        let id = new_producer_id(broker)?;
        if id <= self.before.producer_id {
            return Err(format!(
                "producer id {id} again, {} was given out",
                self.before.producer_id
            ));
        }
        Ok(())
    }
}
