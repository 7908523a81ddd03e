//! Stands in for ZooKeeper's watches: when a member joins or leaves, the other legacy consumers of this process run
//! their steps at once. Consumers in other processes run theirs at their next call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connector::Connector;

/// Registered consumers, each with the process that created it: a forked child shares no group with its parent.
static LIVE: Mutex<Vec<(u32, Weak<Connector>)>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<(u32, Weak<Connector>)>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(connector: &Arc<Connector>) {
    let mut live = live();
    live.retain(|(_, weak)| weak.strong_count() > 0);
    live.push((std::process::id(), Arc::downgrade(connector)));
}

pub(super) fn remove(connector: &Arc<Connector>) {
    live().retain(|(_, weak)| weak.as_ptr() != Arc::as_ptr(connector) && weak.strong_count() > 0);
}

fn others(of: &Arc<Connector>) -> Vec<Arc<Connector>> {
    let pid = std::process::id();
    let all: Vec<Arc<Connector>> = live()
        .iter()
        .filter(|(p, _)| *p == pid)
        .filter_map(|(_, weak)| weak.upgrade())
        .collect();
    all.into_iter()
        .filter(|other| !Arc::ptr_eq(other, of) && other.same_group(of))
        .collect()
}

/// Runs the steps of this consumer and of the others of its group until all have settled, for a few rounds. Each
/// consumer keeps its error for its own next call.
pub(super) fn settle(connector: &Arc<Connector>) {
    let mut group = others(connector);
    group.insert(0, Arc::clone(connector));
    settle_all(&group);
}

/// As `settle`, without the consumer that has left.
pub(super) fn settle_others(left: &Arc<Connector>) {
    settle_all(&others(left));
}

fn settle_all(group: &[Arc<Connector>]) {
    // First all release, then all claim; one more round if the generation changed in between.
    for _ in 0..3 {
        let mut settled = true;
        for connector in group {
            settled &= connector.step_quietly();
        }
        if settled {
            return;
        }
    }
}
