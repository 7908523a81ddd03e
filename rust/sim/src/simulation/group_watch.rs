//! An actor that looks at the consumer group (KIP-848) as the broker has it: no partition has two members, and no epoch goes back.

use std::collections::BTreeMap;

use fletchlog_protocol::messages::consumer_group_describe_response::DescribedGroup;

use super::consumers::{GROUP, group_id};
use super::world::Hand;

/// Most ms between two looks.
const PAUSE_MS: usize = 400;

pub(super) fn run(hand: &mut Hand) {
    let mut before = None;
    while hand.in_chaos() {
        hand.sleep_some(PAUSE_MS);
        let broker = hand.world.cluster().broker().cloned();
        // It is down, it has no such group yet, or a call of its disk has failed.
        let Some(Ok(now)) = broker.map(|broker| broker.describe_consumer_group(&group_id(GROUP))) else {
            continue;
        };
        if let Err(what) = no_partition_twice(&now)
            && !hand.world.plan.loses_acknowledged()
        {
            hand.surprise(format!("{what}: {now:?}"));
        }
        if let Some(before) = before.replace(now.clone())
            && !hand.world.plan.loses_acknowledged()
            && goes_back(&before, &now)
        {
            hand.surprise(format!("an epoch goes back: {before:?}, then {now:?}"));
        }
    }
}

fn no_partition_twice(group: &DescribedGroup) -> Result<(), String> {
    let mut owners = BTreeMap::new();
    for member in &group.members {
        for topic in &member.assignment.topic_partitions {
            for &partition in &topic.partitions {
                let place = (topic.topic_id, partition);
                if let Some(other) = owners.insert(place, &member.member_id) {
                    return Err(format!("partition {partition} has {other} and {}", member.member_id));
                }
            }
        }
    }
    Ok(())
}

/// A static member that is away has an epoch below 0, and begins anew when it is back.
fn goes_back(before: &DescribedGroup, now: &DescribedGroup) -> bool {
    let members = before.members.iter().filter_map(|member| {
        let same = now.members.iter().find(|other| other.member_id == member.member_id);
        Some((member.member_epoch, same?.member_epoch))
    });
    let groups = [
        (before.group_epoch, now.group_epoch),
        (before.assignment_epoch, now.assignment_epoch),
    ];
    groups
        .into_iter()
        .chain(members)
        .any(|(before, now)| now >= 0 && now < before)
}
