//! The next step of a member towards its target (spec 8.10). Kafka: `CurrentAssignmentBuilder`.
//!
//! | state | what brings it on |
//! |---|---|
//! | Stable | a newer target |
//! | UnrevokedPartitions | the member reports that it no longer has what it had to give up |
//! | UnreleasedPartitions | each heartbeat: a partition may have become free, the target newer |

use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_records::planted;

use super::consumer_member::{Assigned, CurrentAssignment, MemberState, Partitions};

/// What decides the step.
pub(crate) struct CurrentAssignmentBuilder<'a> {
    pub(crate) current: &'a CurrentAssignment,
    pub(crate) target_epoch: i32,
    pub(crate) target: &'a Partitions,
    /// Whether the member subscribes to an existing topic.
    pub(crate) is_subscribed: &'a dyn Fn(&TopicId) -> bool,
    /// Its subscription changed in this request.
    pub(crate) subscription_changed: bool,
    /// What it has, as it reports; `None`: as before.
    pub(crate) owned: Option<&'a Partitions>,
    /// Whether no member has the partition.
    pub(crate) is_free: &'a dyn Fn(TopicId, i32) -> bool,
}

impl CurrentAssignmentBuilder<'_> {
    /// The member after the step.
    pub(crate) fn build(&self) -> CurrentAssignment {
        match self.current.state {
            MemberState::Stable if self.current.epoch != self.target_epoch => self.next(),
            MemberState::Stable if self.subscription_changed => self.trimmed(),
            MemberState::UnrevokedPartitions if !self.has_still(&self.current.pending_revocation) => self.next(),
            MemberState::UnrevokedPartitions if self.subscription_changed => self.trimmed(),
            MemberState::Stable | MemberState::UnrevokedPartitions => self.current.clone(),
            MemberState::UnreleasedPartitions => self.next(),
        }
    }

    /// Whether the member may still read any of these.
    fn has_still(&self, asked: &Assigned) -> bool {
        let Some(owned) = self.owned else { return true };
        asked.iter().any(|(id, partitions)| {
            let owned = owned.get(id);
            owned.is_some_and(|owned| partitions.keys().any(|p| owned.contains(p)))
        }) || planted!("partitions-given-up-are-waited-for")
    }

    /// Kafka: `CurrentAssignmentBuilder#computeNextAssignment`.
    fn next(&self) -> CurrentAssignment {
        let current = self.current;
        let is_target = |id: &TopicId, p: &i32| self.target.get(id).is_some_and(|target| target.contains(p));
        let subscribed = |id: &TopicId| (self.is_subscribed)(id);
        let (mut assigned, revoked) = split(&current.assigned, |id, p| is_target(id, p) && subscribed(id));
        if !revoked.is_empty() && self.has_still(&revoked) {
            return CurrentAssignment {
                epoch: current.epoch,
                previous_epoch: current.epoch,
                state: MemberState::UnrevokedPartitions,
                assigned,
                pending_revocation: revoked,
            };
        }
        let mut waits = false;
        for (&id, partitions) in self.target.iter().filter(|(id, _)| subscribed(id)) {
            let its_own = current.pending_revocation.get(&id);
            for &p in partitions {
                if assigned.get(&id).is_some_and(|assigned| assigned.contains_key(&p)) {
                    continue;
                }
                let is_free = (self.is_free)(id, p) || planted!("partition-handed-over-before-it-is-given-up");
                if its_own.is_some_and(|own| own.contains_key(&p)) || is_free {
                    assigned.entry(id).or_default().insert(p, self.target_epoch);
                } else {
                    waits = true;
                }
            }
        }
        CurrentAssignment {
            epoch: self.target_epoch,
            previous_epoch: current.epoch,
            state: if waits {
                MemberState::UnreleasedPartitions
            } else {
                MemberState::Stable
            },
            assigned,
            pending_revocation: Assigned::new(),
        }
    }

    /// Takes away what the member does not subscribe to any more. Kafka:
    /// `CurrentAssignmentBuilder#updateCurrentAssignment`.
    fn trimmed(&self) -> CurrentAssignment {
        let current = self.current;
        let (assigned, gone) = split(&current.assigned, |id, _| (self.is_subscribed)(id));
        if gone.is_empty() {
            return current.clone();
        }
        let mut pending = current.pending_revocation.clone();
        for (id, partitions) in gone {
            pending.entry(id).or_default().extend(partitions);
        }
        let (state, pending_revocation) = match self.has_still(&pending) {
            true => (MemberState::UnrevokedPartitions, pending),
            false => (current.state, current.pending_revocation.clone()),
        };
        CurrentAssignment {
            epoch: current.epoch,
            previous_epoch: current.epoch,
            state,
            assigned,
            pending_revocation,
        }
    }
}

/// The partitions that are kept, and the others.
fn split(all: &Assigned, keep: impl Fn(&TopicId, &i32) -> bool) -> (Assigned, Assigned) {
    let (mut kept, mut others) = (Assigned::new(), Assigned::new());
    for (id, partitions) in all {
        for (p, epoch) in partitions {
            let part = if keep(id, p) { &mut kept } else { &mut others };
            part.entry(*id).or_default().insert(*p, *epoch);
        }
    }
    (kept, others)
}

#[cfg(test)]
mod tests;
