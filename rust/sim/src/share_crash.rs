//! Power loss at every storage operation of a broker with a share group (reliability C1, C2): what was acknowledged stays so, the group has
//! its members and epochs, and another member gets what is left, and nothing else.

use std::sync::Arc;

use fletchlog_broker::Broker;
use fletchlog_protocol::messages::share_group_describe_response::DescribedGroup;
use fletchlog_testing::VirtualClock;

use crate::coordinator_disk::open;
use crate::crash_points::{Around, CrashPoints, Crashable, Seen, Violation, check_recovery};
use crate::disk_state::DiskState;
use crate::port_client::PortClient;
use crate::rng::Rng;
use crate::share_workload::{Model, ShareWorkload};
use crate::shared_group::{MOST_DELIVERIES, Persisted, Shared, TOPIC, acknowledge, beat, described, fetch, partitions};
use crate::sim_disk::SimDisk;

/// Heartbeats within which a new member has its partitions.
const BEATS: usize = 6;
/// After so many fetches without a record there are none.
const EMPTY: usize = 2;
/// Fetches within which it has everything.
const FETCHES: usize = 400;

impl Crashable for ShareWorkload {
    const AFTER_FAILURE: (usize, usize) = (2, 0);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let rng = Rng::new(self.course.seed() ^ 0x5A4E_5EED);
        points.check_around(rng, &self.moments, |crash, image, rng, seen| {
            crash.check(image, rng, seen)
        })
    }
}

impl Around<'_, Model> {
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Shared>) -> Result<(), String> {
        let disk = SimDisk::from(image.clone());
        let now_ms = self.after.now_ms;
        let look = |disk: &SimDisk| found_on(disk, now_ms).map(|(_, found)| found);
        check_recovery(image, self.given(), rng, seen, look, |found| self.holds(found))?;
        let (broker, found) = found_on(&disk, now_ms)?;
        goes_on(&broker, &found).map_err(|what| format!("{what}; after the power loss there was {found:?}"))
    }

    fn holds(&self, found: &Shared) -> Result<(), String> {
        let (before, after) = (&self.before.shared, &self.after.shared);
        group_goes_on(before.group.as_ref(), found.group.as_ref())?;
        group_goes_on(found.group.as_ref(), after.group.as_ref())
            .map_err(|what| format!("ahead of what was to be: {what}"))?;
        for (number, was) in &before.partitions {
            let now = found
                .partitions
                .get(number)
                .ok_or_else(|| format!("{number} has no state, it had {was:?}"))?;
            let becomes = after.partitions.get(number).unwrap_or(was);
            if !is_between(was, now, becomes) {
                return Err(format!("{number} is {now:?}, was {was:?}, was to be {becomes:?}"));
            }
        }
        let limit = |(_, (_, count)): (&i64, &(i8, i16))| *count > MOST_DELIVERIES;
        match found.partitions.iter().find(|(_, now)| now.records.iter().any(limit)) {
            Some((number, now)) => Err(format!("{number} has too many deliveries: {now:?}")),
            None => Ok(()),
        }
    }
}

/// Epochs do not go back, and members stay as they were or as they are to be.
fn group_goes_on(before: Option<&DescribedGroup>, after: Option<&DescribedGroup>) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let after = after.ok_or_else(|| format!("the group is gone, it was {before:?}"))?;
    let member = |id: &str| after.members.iter().find(|m| *m.member_id == *id);
    let went_back = after.group_epoch < before.group_epoch || after.assignment_epoch < before.assignment_epoch;
    let behind = before
        .members
        .iter()
        .find(|m| member(&m.member_id).is_some_and(|now| now.member_epoch < m.member_epoch));
    match went_back || behind.is_some() {
        true => Err(format!("an epoch went back, {behind:?}: {before:?}, then {after:?}")),
        false => Ok(()),
    }
}

/// Whether each record is as before, or as after the step in progress, or between, where that makes several changes.
fn is_between(was: &Persisted, now: &Persisted, becomes: &Persisted) -> bool {
    if was.state_epoch != becomes.state_epoch {
        return now == was || now == becomes;
    }
    let starts = was.start..=becomes.start.max(was.start);
    let offsets = was
        .records
        .keys()
        .chain(becomes.records.keys())
        .chain(now.records.keys());
    let mut offsets = offsets.filter(|at| **at >= now.start);
    now.state_epoch == was.state_epoch
        && starts.contains(&now.start)
        && offsets.all(|at| {
            let of = |state: &Persisted| state.records.get(at).copied();
            let found = of(now);
            let is_known =
                found == of(was) || found == of(becomes) || (*at < becomes.start && !was.records.contains_key(at));
            is_known
                || (*at < becomes.start && found.is_some_and(|(state, _)| crate::shared_group::DONE.contains(&state)))
        })
}

fn found_on(disk: &SimDisk, now_ms: i64) -> Result<(Arc<Broker>, Shared), String> {
    let broker = open(disk, &VirtualClock::at(now_ms)).map_err(|e| format!("cannot be opened: {e}"))?;
    let found = described(&broker)?;
    Ok((broker, found))
}

/// A new member joins, and gets what is not done, each record once; then nothing is left.
fn goes_on(broker: &Arc<Broker>, found: &Shared) -> Result<(), String> {
    let Ok(Some(topic_id)) = broker.topic_id(TOPIC) else {
        return Ok(());
    };
    let client = PortClient::new(broker);
    let mut epoch = beat(&client, "new", 0).map_err(|e| format!("a new member: {e}"))?;
    for _ in 0..BEATS {
        epoch = beat(&client, "new", epoch).map_err(|e| format!("a heartbeat of a new member: {e}"))?;
    }
    let mut empty = 0;
    let mut delivered = std::collections::BTreeSet::new();
    for _ in 0..FETCHES {
        let acquired = fetch(&client, topic_id, "new", 100).map_err(|e| format!("a fetch of a new member: {e}"))?;
        // The first fetch of a partition may only read its state.
        empty = if acquired.is_empty() { empty + 1 } else { 0 };
        if empty > EMPTY {
            break;
        }
        for (nth, (number, (first, last, deliveries))) in (1..).zip(acquired) {
            let known = found.partitions.get(&number);
            for at in first..=last {
                let is_done = known.is_some_and(|known| known.is_done(at));
                if is_done || deliveries > MOST_DELIVERIES || !delivered.insert((number, at)) {
                    return Err(format!("{number}: {at} comes again, delivery {deliveries}"));
                }
            }
            let done = acknowledge(&client, topic_id, ("new", nth), (number, first, last), vec![1]);
            done.map_err(|e| format!("{number}: an acknowledgement of {first} to {last}: {e}"))?;
        }
    }
    let now = described(broker)?;
    for number in partitions() {
        let (known, end) = (
            found.partitions.get(&number),
            found.ends.get(&number).copied().unwrap_or(0),
        );
        let begin = known.map_or(0, |known| known.start.max(0));
        let is_due = |at: &i64| !known.is_some_and(|known| known.is_done(*at));
        if let Some(missing) = (begin..end)
            .filter(is_due)
            .find(|at| !delivered.contains(&(number, *at)))
        {
            return Err(format!("{number}: {missing} of {end} does not come"));
        }
        let is_left = |now: &Persisted| (begin..end).any(|at| !now.is_done(at));
        if begin < end && now.partitions.get(&number).is_none_or(is_left) {
            return Err(format!("{number} is not done: {:?}", now.partitions.get(&number)));
        }
    }
    Ok(())
}
