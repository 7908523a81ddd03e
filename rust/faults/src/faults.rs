//! The rules of a listener or of a proxy, how far each is, and the record of requests.

mod answered;
mod arrived;
mod exchange;
mod sessions;
#[cfg(test)]
mod tests;

pub use exchange::{Answered, Arrived, BLACK_HOLE, Exchange, Step, Then, Wait};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fletchlog_api::Clock;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_records::planted;
use sessions::{Session, ShareSessionKey};

use crate::plan::PlanError;
use crate::random::{RandomFaults, Sent};
use crate::request_view::RequestView;
use crate::requests::{RequestRow, Requests};
use crate::rule::{Action, Rule};

/// The name of a topic with this id; `None`: it is not known.
pub type TopicNames = Arc<dyn Fn(&[u8; 16]) -> Option<Arc<str>> + Send + Sync>;

/// A condition of a rule beside its selectors. It may call anything but the [`Faults`] that it belongs to.
pub type Predicate = Arc<dyn Fn(&RequestView) -> bool + Send + Sync>;

/// What a held request calls when it may go on.
type Resume = Box<dyn FnOnce() + Send>;

/// How far a rule is.
#[derive(Debug, Clone)]
pub struct RuleReport {
    /// Its number, from 1 in the order in which the rules were added.
    pub number: u64,
    /// The rule.
    pub rule: Arc<Rule>,
    /// How many requests matched.
    pub matched: u64,
    /// To how many it applied.
    pub applied: u64,
    /// Requests that it holds now.
    pub held: usize,
    /// It was cleared.
    pub is_cleared: bool,
}

struct Progress {
    report: RuleReport,
    predicate: Option<Predicate>,
    /// Requests it holds, in the order of arrival.
    waiting: Vec<Resume>,
    is_released: bool,
}

#[derive(Default)]
struct State {
    rules: Vec<Progress>,
    random: Option<RandomFaults>,
    sent: Sent,
    /// What random faults did, as rules.
    drawn: Vec<Rule>,
    requests: Requests,
    records: bool,
    /// Partitions of the fetch session of each connection, with the topic's name or id of the request.
    sessions: HashMap<u64, Session>,
    /// The same of share sessions, of which a connection may have several.
    share_sessions: HashMap<u64, HashMap<ShareSessionKey, Session>>,
    connections: u64,
    /// Clients in this process that the rules are for, which know nothing of bytes.
    clients: usize,
    /// Number of the Produce request of such a client whose turn was last.
    last_turn: u64,
    /// While it is not 0, producers in this process send nothing.
    collecting: usize,
    /// Producers that are choosing what to send.
    draining: usize,
}

/// Rules and the record of requests. Thread-safe; rules may be added and cleared at any time, and apply from the next request on.
pub struct Faults {
    clock: Arc<dyn Clock>,
    names: TopicNames,
    /// There are rules, or requests are recorded.
    is_active: AtomicBool,
    state: Mutex<State>,
    /// A request has come to a rule that holds it.
    held: Condvar,
    /// No producer is choosing what to send.
    drained: Condvar,
    learned: Learned,
}

/// Names of topics that Metadata responses have had.
type Learned = Arc<Mutex<HashMap<TopicId, Arc<str>>>>;

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Faults {
    /// Without a rule, and without a record.
    pub fn new(clock: Arc<dyn Clock>, names: TopicNames) -> Self {
        let learned = Learned::default();
        let known = Arc::clone(&learned);
        let find = move |id: &TopicId| names(id).or_else(|| known.lock().ok()?.get(id).cloned());
        Self {
            clock,
            names: Arc::new(find),
            is_active: AtomicBool::new(false),
            state: Mutex::default(),
            held: Condvar::new(),
            drained: Condvar::new(),
            learned,
        }
    }

    /// The same, for clients in this process alone: rules about bytes are refused.
    pub fn of_clients(clock: Arc<dyn Clock>) -> Self {
        let faults = Self::new(clock, Arc::new(|_: &TopicId| None));
        faults.lock().clients = 1;
        faults
    }

    /// From now on they are for one more client in this process, until [`Faults::detach`].
    ///
    /// # Errors
    /// A rule is about the bytes of a socket.
    pub(crate) fn attach(&self) -> Result<(), PlanError> {
        let mut state = self.lock();
        let mut rules = state.rules.iter().filter(|progress| !progress.report.is_cleared);
        if let Some(progress) = rules.find(|progress| progress.report.rule.action.is_of_bytes()) {
            return Err(PlanError::of_bytes(progress.report.number, &progress.report.rule));
        }
        state.clients += 1;
        Ok(())
    }

    /// Such a client is closed.
    pub(crate) fn detach(&self) {
        let mut state = self.lock();
        state.clients = state.clients.saturating_sub(1);
    }

    /// Whether these rules can be added. Thread-safe, but another thread may add a client before they are.
    ///
    /// # Errors
    /// A rule is about the bytes of a socket, and a client in this process uses the rules.
    pub fn check(&self, rules: &[Rule]) -> Result<(), PlanError> {
        let state = self.lock();
        let refused = rules.iter().find(|rule| state.clients > 0 && rule.action.is_of_bytes());
        refused.map_or(Ok(()), |rule| {
            Err(PlanError::of_bytes(state.rules.len() as u64 + 1, rule))
        })
    }

    /// The name of a topic, as a Metadata response has it.
    pub(crate) fn learn(&self, id: TopicId, name: &Arc<str>) {
        self.learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(id)
            .or_insert_with(|| Arc::clone(name));
    }

    /// Collects sends: until [`Faults::resume_sends`] producers in this process send nothing. When this returns, none is about to send. May
    /// be called several times.
    pub fn collect_sends(&self) {
        let mut state = self.lock();
        state.collecting += 1;
        while state.draining > 0 {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The reverse of [`Faults::collect_sends`].
    pub fn resume_sends(&self) {
        let mut state = self.lock();
        state.collecting = state.collecting.saturating_sub(1);
    }

    /// A producer is about to choose what to send; false: it must not.
    pub(crate) fn begin_drain(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.collecting == 0;
        state.draining += usize::from(is_free);
        is_free
    }

    /// It has sent what it chose.
    pub(crate) fn end_drain(&self) {
        let mut state = self.lock();
        state.draining = state.draining.saturating_sub(1);
        self.drained.notify_all();
    }

    /// The turn of a Produce request of a client in this process.
    pub(crate) fn begin_turn(&self, exchange: &Exchange) {
        self.lock().last_turn = exchange.number;
    }

    /// Whether faults come from a seed.
    pub(crate) fn are_random(&self) -> bool {
        self.lock().random.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has to be asked about requests.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Whether it is asked from now on: there are rules that may still apply, or requests are recorded.
    fn set_active(&self, state: &State) {
        let has_rules = state.rules.iter().any(|p| !p.report.is_cleared) || state.random.is_some();
        self.is_active.store(has_rules || state.records, Ordering::Relaxed);
    }

    /// Records requests from now on, or ends that. What was recorded before is forgotten.
    pub fn record(&self, records: bool) {
        let mut state = self.lock();
        state.records = records;
        state.requests.clear();
        self.set_active(&state);
    }

    /// Adds a rule; returns its number. The predicate is asked about requests that the selectors match.
    pub fn add(&self, rule: Rule, predicate: Option<Predicate>) -> u64 {
        let mut state = self.lock();
        let number = state.rules.len() as u64 + 1;
        let report = RuleReport {
            number,
            rule: Arc::new(rule),
            matched: 0,
            applied: 0,
            held: 0,
            is_cleared: false,
        };
        state.rules.push(Progress {
            report,
            predicate,
            waiting: Vec::new(),
            is_released: false,
        });
        self.set_active(&state);
        number
    }

    /// Random faults from now on, in place of those before; `None`: none.
    pub fn set_random(&self, random: Option<RandomFaults>) {
        let mut state = self.lock();
        (state.random, state.drawn) = (random, Vec::new());
        state.sent.clear();
        self.set_active(&state);
    }

    /// Clears a rule: it applies to nothing more, and what it holds is carried out. `None`: every rule, and random faults with what they did.
    pub fn clear(&self, number: Option<u64>) {
        let mut resumed = Vec::new();
        let mut state = self.lock();
        for progress in &mut state.rules {
            if number.is_none_or(|number| number == progress.report.number) {
                progress.report.is_cleared = true;
                resumed.append(&mut progress.waiting);
            }
        }
        if number.is_none() {
            (state.random, state.drawn) = (None, Vec::new());
        }
        self.set_active(&state);
        drop(state);
        resumed.into_iter().for_each(|resume| resume());
    }

    /// How far every rule is, in the order in which they were added.
    pub fn report(&self) -> Vec<RuleReport> {
        let state = self.lock();
        let report = |progress: &Progress| RuleReport {
            held: progress.waiting.len(),
            ..progress.report.clone()
        };
        state.rules.iter().map(report).collect()
    }

    /// The seed of random faults; `None` without them.
    pub fn seed(&self) -> Option<u64> {
        self.lock().random.as_ref().map(|random| random.seed)
    }

    /// The random faults that happened so far, as rules that do the same without the seed: by client id, API and number of the request, so
    /// equal whatever the time of each was. They are optional: a client may send fewer requests the next time.
    pub fn drawn(&self) -> Vec<Rule> {
        let mut drawn = self.lock().drawn.clone();
        drawn.iter_mut().for_each(|rule| rule.optional = true);
        let client_id = |rule: &Rule| rule.selector.client_id.as_ref().map(|id| id.0.clone());
        drawn.sort_by_cached_key(|rule| (client_id(rule), rule.selector.api.clone(), rule.nth));
        drawn
    }

    /// What was recorded, oldest first: the last 100,000 requests.
    pub fn requests(&self) -> Vec<RequestRow> {
        self.lock().requests.rows().cloned().collect()
    }

    /// Calls `resume` when a rule releases what it holds; at once if it has. In the order of the calls.
    pub fn on_release(&self, number: u64, resume: Resume) {
        let mut state = self.lock();
        match progress_of(&mut state, number) {
            Some(progress) if !progress.is_released && !progress.report.is_cleared => progress.waiting.push(resume),
            _ => {
                drop(state);
                return resume();
            }
        }
        drop(state);
        self.held.notify_all();
    }

    /// Waits until a rule holds a request, at most this long. Returns whether it does.
    pub fn wait_until_held(&self, number: u64, at_most: Duration) -> bool {
        let holds_none = |state: &mut State| {
            progress_of(state, number).is_some_and(|p| p.waiting.is_empty() && !p.report.is_cleared)
        };
        let (mut state, _) = self
            .held
            .wait_timeout_while(self.lock(), at_most, holds_none)
            .unwrap_or_else(PoisonError::into_inner);
        progress_of(&mut state, number).is_some_and(|progress| !progress.waiting.is_empty())
    }

    /// Carries out what a rule holds. It holds nothing from now on.
    pub fn release(&self, number: u64) {
        let mut state = self.lock();
        let resumed = progress_of(&mut state, number).map(|progress| {
            progress.is_released = true;
            std::mem::take(&mut progress.waiting)
        });
        drop(state);
        if planted!("held-requests-forgotten") {
            return;
        }
        resumed.into_iter().flatten().for_each(|resume| resume());
    }

    /// A connection was accepted: its number, and what happens to it.
    pub fn connected(&self, node: i32) -> (u64, Option<Action>) {
        let mut state = self.lock();
        state.connections += 1;
        let connection = state.connections;
        let mut action = None;
        for progress in &mut state.rules {
            let rule = Arc::clone(&progress.report.rule);
            if rule.action.is_of_connection()
                && rule.selector.matches_connection(connection, node)
                && progress.is_its_turn()
                && action.is_none()
            {
                progress.report.applied += 1;
                action = Some(rule.action.clone());
            }
        }
        (connection, action)
    }
}

impl Progress {
    /// Counts a match; whether the rule applies to it.
    fn is_its_turn(&mut self) -> bool {
        let report = &mut self.report;
        report.matched += 1;
        let has_begun = report.matched >= report.rule.nth;
        let has_ended = report.rule.times.is_some_and(|times| report.applied >= times);
        has_begun && !has_ended && !report.is_cleared && !self.is_released
    }
}

fn progress_of(state: &mut State, number: u64) -> Option<&mut Progress> {
    let at = usize::try_from(number.checked_sub(1)?).ok()?;
    state.rules.get_mut(at)
}
