//! The watches of the legacy consumers that live in this process: when a member joins or leaves, the others take their
//! steps at once, as ZooKeeper's watches make them do. Consumers in other processes take theirs at their next call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connector::Connector;

/// Consumers that have registered, with the process that made them: a forked child shares no group with its parent.
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

/// Takes the steps of this consumer and of the others of its group, until none has one to take. An error of one's own is
/// kept for one's own next call.
pub(super) fn settle(connector: &Arc<Connector>) {
    let mut group = others(connector);
    group.insert(0, Arc::clone(connector));
    settle_all(&group);
}

/// The same without this one, which has left.
pub(super) fn settle_others(left: &Arc<Connector>) {
    settle_all(&others(left));
}

fn settle_all(group: &[Arc<Connector>]) {
    // First everyone releases, then everyone claims; one more round for a generation that changed in between.
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
