//! Kafka: `RangeAssignor` of the coordinator.

use super::{Assigned, GroupSpec, Topics};

/// Per topic, consecutive partitions to the subscribers: static members by instance id, then the others by member id. Nothing is sticky.
pub(super) fn assign(group: &GroupSpec, topics: &Topics) -> Assigned {
    let mut order: Vec<usize> = (0..group.members.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&group.members[a], &group.members[b]);
        let text = |m: &super::MemberSubscription| m.instance_id.clone().unwrap_or_else(|| m.member_id.clone());
        let by_text = || text(a).encode_utf16().cmp(text(b).encode_utf16());
        a.instance_id.is_none().cmp(&b.instance_id.is_none()).then_with(by_text)
    });
    let mut states: Vec<TopicState> = topics
        .subscribers
        .iter()
        .zip(&topics.partitions)
        .map(|(members, &partitions)| TopicState::of(i32::try_from(members.len()).unwrap_or(i32::MAX), partitions))
        .collect();
    let mut assigned = vec![Vec::new(); group.members.len()];
    for member in order {
        for &topic in &topics.subscribed[member] {
            let taken = states[topic].take();
            if !taken.is_empty() {
                assigned[member].push((topic, taken.collect()));
            }
        }
    }
    assigned
}

/// What is left of a topic. Kafka: `RangeAssignor.TopicMetadata`.
struct TopicState {
    next: i32,
    per_member: i32,
    /// How many of the next members get one more.
    with_extra: i32,
}

impl TopicState {
    fn of(members: i32, partitions: i32) -> Self {
        let members = members.max(1);
        Self {
            next: 0,
            per_member: partitions / members,
            with_extra: partitions % members,
        }
    }

    fn take(&mut self) -> std::ops::Range<i32> {
        let extra = i32::from(self.with_extra > 0);
        self.with_extra -= extra;
        let taken = self.next..self.next + self.per_member + extra;
        self.next = taken.end;
        taken
    }
}
