//! The round robin assignor of consumer groups (spec 8.5). Kafka: `RoundRobinAssignor`.

use super::{Assignment, Subscriptions, TopicCounts, empty_assignment, sorted_members, subscribed_partitions};

/// Deals all partitions, by topic name and ascending, in turn; a member that does not subscribe to the topic is passed over.
pub fn round_robin(topics: &TopicCounts, members: &Subscriptions) -> Assignment {
    let mut assignment = empty_assignment(members);
    let mut circle = sorted_members(members).into_iter().cycle();
    for tp in subscribed_partitions(topics, members) {
        // Ends: a subscribed partition has a member that subscribes to its topic.
        let Some((member, _)) = circle.find(|(_, m)| m.topics.contains(&tp.topic)) else {
            break;
        };
        if let Some(list) = assignment.get_mut(member) {
            list.push(tp);
        }
    }
    assignment
}
