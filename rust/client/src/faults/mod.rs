//! `Faults`: scripted or seeded chaos between a producer and its broker (spec 9.5.1).
//!
//! Produce requests are held and numbered 1, 2, 3 .. as they arrive, over all connections. Nothing is answered until
//! the client has nothing more to send. Then the action of the oldest held request is applied, its answer delivered,
//! and the next idle moment awaited. So what happens is a function of configuration, calls and script, not of timing.

mod action;
mod transport;

use std::sync::{Arc, Condvar, Mutex};

use fletchlog_api::{NodeId, ProduceRequest, ProduceResponse};
use fletchlog_records::{BatchHeader, TopicPartition};

pub use action::{Action, FaultError};
pub use transport::FaultTransport;

use crate::producer::lock;

/// How often each thing happens to a request, 0 to 1; the sum must not pass 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FaultRates {
    /// Appended, but the connection is closed instead of an answer.
    pub lost_ack: f64,
    /// Not appended, answered with a retriable error (19, 7 or 6).
    pub refused: f64,
    /// Not appended, the connection is closed.
    pub disconnect: f64,
}

/// One partition of a request, as it was sent and answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPartition {
    /// Partition.
    pub tp: TopicPartition,
    /// Producer id, -1 none.
    pub producer_id: i64,
    /// Producer epoch, -1 none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 none.
    pub base_sequence: i32,
    /// Records.
    pub records: i32,
    /// (error code, base offset) of the answer, if there was one; of `lost-ack` and `drop-appended` the broker's, which the
    /// client never got.
    pub answer: Option<(i16, i64)>,
}

/// What was done to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultLogEntry {
    /// Number of the request, from 1.
    pub number: u64,
    /// Node it was sent to.
    pub node: NodeId,
    /// Number of the request treated last before this one arrived, 0 none.
    pub after: u64,
    /// The action; `lost-with-connection` where the connection was closed before its turn, `held` before its turn.
    pub action: String,
    /// Its partitions in request order.
    pub partitions: Vec<FaultPartition>,
}

enum Plan {
    Seeded(u64, FaultRates),
    Script(std::collections::BTreeMap<u64, Action>),
}

#[derive(Default)]
struct State {
    log: Vec<FaultLogEntry>,
    last_treated: u64,
    holds: usize,
    draining: usize,
}

/// A plan of faults and how far it is. Share it between the [`FaultTransport`]s of one or several producers.
pub struct Faults {
    plan: Plan,
    state: Mutex<State>,
    drained: Condvar,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

/// Codes of seeded refusals: each is retriable and may pass by itself.
const SEEDED_CODES: [fletchlog_api::ErrorCode; 3] = [
    fletchlog_api::ErrorCode::NOT_ENOUGH_REPLICAS,
    fletchlog_api::ErrorCode::REQUEST_TIMED_OUT,
    fletchlog_api::ErrorCode::NOT_LEADER_OR_FOLLOWER,
];

impl Faults {
    fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            plan,
            state: Mutex::default(),
            drained: Condvar::new(),
        })
    }

    /// Random faults: what happens to request n depends on the seed and n alone.
    ///
    /// # Errors
    /// A rate outside 0 .. 1, or a sum above 1.
    pub fn seeded(seed: u64, rates: FaultRates) -> Result<Arc<Self>, FaultError> {
        let each = [
            ("lost_ack", rates.lost_ack),
            ("refused", rates.refused),
            ("disconnect", rates.disconnect),
        ];
        for (name, rate) in each {
            if !(0.0..=1.0).contains(&rate) {
                return Err(FaultError::Rate { name, rate });
            }
        }
        let sum: f64 = each.iter().map(|(_, rate)| rate).sum();
        if sum > 1.0 {
            return Err(FaultError::Sum(sum));
        }
        Ok(Self::new(Plan::Seeded(seed, rates)))
    }

    /// Actions by number of the request; every other request is `ok`.
    ///
    /// # Errors
    /// Names the first action that cannot be read.
    pub fn scripted<'a>(script: impl IntoIterator<Item = (u64, &'a str)>) -> Result<Arc<Self>, FaultError> {
        let mut actions = std::collections::BTreeMap::new();
        for (number, text) in script {
            let action = Action::parse(text).map_err(|reason| FaultError::Action {
                number,
                text: text.to_owned(),
                reason,
            })?;
            if number == 0 {
                return Err(FaultError::Action {
                    number,
                    text: text.to_owned(),
                    reason: "requests are numbered from 1".to_owned(),
                });
            }
            actions.insert(number, action);
        }
        Ok(Self::new(Plan::Script(actions)))
    }

    /// Collects sends: while the guard exists, producers behind these faults send nothing. When this returns, none of
    /// them is about to send.
    pub fn hold(self: &Arc<Self>) -> Held {
        let mut state = lock(&self.state);
        state.holds += 1;
        while state.draining > 0 {
            state = self
                .drained
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(state);
        Held { faults: self.clone() }
    }

    /// What was done to every request so far, in order of arrival.
    pub fn log(&self) -> Vec<FaultLogEntry> {
        lock(&self.state).log.clone()
    }

    fn is_scripted(&self) -> bool {
        matches!(self.plan, Plan::Script(_))
    }

    fn action(&self, number: u64) -> Action {
        match &self.plan {
            Plan::Script(actions) => actions.get(&number).cloned().unwrap_or(Action::Ok),
            Plan::Seeded(seed, rates) => {
                let bits = mix(seed.wrapping_add(mix(number)));
                #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
                let draw = (bits >> 11) as f64 / (1u64 << 53) as f64;
                if draw < rates.lost_ack {
                    Action::LostAck
                } else if draw < rates.lost_ack + rates.refused {
                    let pick = usize::try_from(mix(bits) % 3).unwrap_or(0);
                    Action::refused(SEEDED_CODES[pick])
                } else if draw < rates.lost_ack + rates.refused + rates.disconnect {
                    Action::Disconnect
                } else {
                    Action::Ok
                }
            }
        }
    }

    fn arrived(&self, node: NodeId, request: &ProduceRequest) -> u64 {
        let mut state = lock(&self.state);
        let number = state.log.len() as u64 + 1;
        let partitions = request
            .partitions()
            .map(|(topic, partition)| {
                let header = BatchHeader::parse(partition.records.as_deref().unwrap_or_default()).ok();
                FaultPartition {
                    tp: TopicPartition::new(Arc::clone(topic), partition.index),
                    producer_id: header.map_or(-1, |h| h.producer_id),
                    producer_epoch: header.map_or(-1, |h| h.producer_epoch),
                    base_sequence: header.map_or(-1, |h| h.base_sequence),
                    records: header.map_or(0, |h| h.records_count),
                    answer: None,
                }
            })
            .collect();
        let after = state.last_treated;
        state.log.push(FaultLogEntry {
            number,
            node,
            after,
            action: "held".to_owned(),
            partitions,
        });
        number
    }

    fn entry(&self, number: u64, change: impl FnOnce(&mut FaultLogEntry)) {
        let at = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(entry) = lock(&self.state).log.get_mut(at) {
            change(entry);
        }
    }
    fn treated(&self, number: u64, action: &Action) {
        self.entry(number, |entry| entry.action = action.to_string());
        lock(&self.state).last_treated = number;
    }
    fn lost(&self, number: u64) {
        self.entry(number, |entry| entry.action = "lost-with-connection".to_owned());
    }
    fn answered(&self, number: u64, response: &ProduceResponse) {
        self.entry(number, |entry| {
            for (topic, answer) in response.partitions() {
                let is_of = |part: &&mut FaultPartition| part.tp.partition == answer.index && part.tp.topic == *topic;
                if let Some(part) = entry.partitions.iter_mut().find(is_of) {
                    part.answer = Some((answer.error_code.code(), answer.base_offset));
                }
            }
        });
    }

    fn begin_drain(&self) -> bool {
        let mut state = lock(&self.state);
        let free = state.holds == 0;
        if free {
            state.draining += 1;
        }
        free
    }
    fn end_drain(&self) {
        let mut state = lock(&self.state);
        state.draining = state.draining.saturating_sub(1);
        self.drained.notify_all();
    }
}

/// splitmix64's finalizer: every bit of the number decides.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// See [`Faults::hold`].
#[derive(Debug)]
pub struct Held {
    faults: Arc<Faults>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = lock(&self.faults.state);
        state.holds = state.holds.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
