//! Unclean elections: the log is cut to that of the new leader, which ended when its node did. What each node's replica has is known here from
//! the events alone.

use std::collections::BTreeMap;

use fletchlog_api::NodeId;
use fletchlog_broker::Broker;
use fletchlog_records::TopicPartition;

use super::cluster::TOPIC;
use super::network::lock;
use super::world::Hand;
use crate::history::{Action, Partition};

/// Where the logs of replicas end whose nodes do not run.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<(NodeId, Partition), i64>);

/// A partition before or after an event.
struct Seen {
    partition: Partition,
    tp: TopicPartition,
    leader: NodeId,
    isr: Vec<NodeId>,
    start: i64,
    end: i64,
}

fn look(hand: &Hand, broker: &Broker) -> Vec<Seen> {
    let Ok(described) = broker.describe_topic(TOPIC) else {
        return Vec::new();
    };
    let seen = described.partitions.into_iter().filter_map(|p| {
        let tp = TopicPartition::new(TOPIC, p.partition);
        let log = broker.partition_log(&tp).ok()?;
        Some(Seen {
            partition: hand.world.number(&tp),
            leader: p.leader,
            isr: p.isr,
            start: log.log_start_offset(),
            end: log.log_end_offset(),
            tp,
        })
    });
    seen.collect()
}

/// Lets an event of the cluster happen, and records which logs were cut. A log that was cut elsewhere, or not at all, is a surprise.
pub(super) fn around<T>(hand: &Hand, process: u32, broker: &Broker, event: impl FnOnce(&Broker) -> T) -> T {
    if !hand.world.plan.events.unclean {
        return event(broker);
    }
    let before = look(hand, broker);
    let outcome = event(broker);
    for (before, after) in before.into_iter().zip(look(hand, broker)) {
        compare(hand, process, broker, &before, &after);
    }
    outcome
}

fn compare(hand: &Hand, process: u32, broker: &Broker, before: &Seen, after: &Seen) {
    let partition = before.partition;
    let mut cluster = hand.world.cluster();
    let ends = &mut cluster.ends.0;
    let stopped = before.isr.iter().filter(|node| !broker.is_node_up(**node));
    for &node in stopped {
        ends.entry((node, partition)).or_insert(before.end);
    }
    let is_unclean = after.leader != before.leader && !before.isr.contains(&after.leader) && after.leader >= 0;
    let expected = match ends.get(&(after.leader, partition)) {
        Some(end) if is_unclean => (*end).max(before.start),
        _ => before.end,
    };
    if after.end < before.end {
        let cut = Action::Cut {
            partition,
            offset: after.end,
        };
        hand.world.recorder().note(process, cut);
        lock(&hand.world.net).memory.cut(&before.tp, after.end);
        let of_partition = ends.iter_mut().filter(|((_, of), _)| *of == partition);
        of_partition.for_each(|(_, end)| *end = after.end.min(*end));
    }
    ends.retain(|(node, of), _| *of != partition || !after.isr.contains(node));
    drop(cluster);
    if after.end != expected {
        hand.surprise(format!(
            "{} ended at {}, and node {} leads, whose log ended at {expected}: now it ends at {}",
            before.tp, before.end, after.leader, after.end
        ));
    }
}
