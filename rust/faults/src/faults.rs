//! The rules of a listener or of a proxy, how far each is, and the record of requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::Clock;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::topic_ids::TopicId;
use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, Reader};
use fletchlog_records::planted;

use crate::error_answers::{Refusal, errors_of, merge};
use crate::frames::{self, SIZE, concat, encoded, first_bytes, request_again, response_of};
use crate::plan::PlanError;
use crate::random::{RandomFaults, Sent};
use crate::request_view::{RequestView, TopicPartitions, partition_of, topic_of};
use crate::requests::{RequestRow, Requests, answer_batches, batches_of};
use crate::rule::{Action, Rule, When};

/// The name of a topic with this id; `None`: it is not known.
pub type TopicNames = Arc<dyn Fn(&[u8; 16]) -> Option<Arc<str>> + Send + Sync>;

/// A condition of a rule beside its selectors. It may call anything but the [`Faults`] that it belongs to.
pub type Predicate = Arc<dyn Fn(&RequestView) -> bool + Send + Sync>;

/// What a held request calls when it may go on.
type Resume = Box<dyn FnOnce() + Send>;

/// The outcome of a request without a response on an open connection.
pub const BLACK_HOLE: &str = "black hole";
/// A request between its arrival and its response.
#[derive(Debug)]
pub struct Exchange {
    number: u64,
    pub(crate) header: RequestHeader,
    /// What happens to its response.
    after: After,
    /// The rule that applies to it.
    rule: Option<Arc<Rule>>,
}

impl Exchange {
    /// The rule that applies to it: its name, or the rule as JSON.
    pub fn fault(&self) -> Option<Arc<str>> {
        self.rule.as_deref().map(describe)
    }

    /// Whether a rule says anything about the response.
    pub(crate) fn is_changed(&self) -> bool {
        !matches!(self.after, After::Nothing)
    }

    /// Whether the response will have other content.
    pub(crate) fn changes_response(&self) -> bool {
        matches!(
            self.after,
            After::Merge(..) | After::Mark(_) | After::Act(Action::Throttle(_))
        )
    }

    /// The same, whose response is left as it is.
    pub(crate) fn without_change(self) -> Self {
        let after = match self.changes_response() {
            true => After::Nothing,
            false => self.after,
        };
        Self { after, ..self }
    }

    /// The pause that a rule asks the client for, ms.
    pub(crate) fn throttle_ms(&self) -> Option<i64> {
        match self.after {
            After::Act(Action::Throttle(ms)) => Some(ms.into()),
            _ => None,
        }
    }
}

/// What happens to a response.
#[derive(Debug, Default)]
enum After {
    #[default]
    Nothing,
    Act(Action),
    /// These entries are put into the response, in place of what the rule selects.
    Merge(Box<Tree>, Arc<Rule>),
    /// Everything that the rule selects gets its error.
    Mark(Arc<Rule>),
}

/// When a request may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At once.
    No,
    /// After so many ms.
    Ms(i64),
    /// When the rule with this number is released: see [`Faults::on_release`].
    Release(u64),
}

/// What to do with a request.
#[derive(Debug)]
pub enum Step {
    /// Carry it out. The frame may be another one than arrived.
    Handle(Bytes),
    /// Answer with these bytes, the size in front.
    Answer(Vec<Bytes>),
    /// Close the connection.
    Close,
    /// Nothing: no response, no other request.
    Nothing,
}

/// The decision about a request.
#[derive(Debug)]
pub struct Arrived {
    /// Give it to [`Faults::answered`] or [`Faults::ended`].
    pub exchange: Exchange,
    /// First this.
    pub wait: Wait,
    /// Then this.
    pub step: Step,
}

/// What to do with a connection once the bytes of a response are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    Continue,
    /// Close it.
    Close,
    /// No other request.
    Nothing,
}

/// The decision about a response.
#[derive(Debug)]
pub struct Answered {
    /// Wait for so many ms first.
    pub delay_ms: i64,
    /// The bytes to send.
    pub chunks: Vec<Bytes>,
    /// At most so many bytes a second; `None`: at once.
    pub bytes_per_second: Option<u32>,
    /// And then.
    pub then: Then,
    /// What became of the request, as in [`RequestRow::outcome`].
    pub outcome: &'static str,
}

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

type Session = BTreeMap<Arc<str>, (Node, BTreeSet<i32>)>;
/// Group and member.
type ShareSessionKey = (Arc<str>, Arc<str>);

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
    /// equal whatever the time of each was.
    pub fn drawn(&self) -> Vec<Rule> {
        let mut drawn = self.lock().drawn.clone();
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

    /// A connection was closed.
    pub fn disconnected(&self, connection: u64) {
        let mut state = self.lock();
        state.sessions.remove(&connection);
        state.share_sessions.remove(&connection);
    }

    /// A request has arrived; `None`: its header cannot be read, and nothing is decided.
    pub fn arrived(&self, connection: u64, node: i32, request: &Bytes) -> Option<Arrived> {
        let mut reader = Reader::of_trees(request.clone());
        let header = RequestHeader::decode(&mut reader).ok()?;
        let api = ApiKey::from_code(header.api_key);
        let tree = api.and_then(|api| Tree::decode(api, Side::Request, &mut reader, header.api_version).ok());
        let mut view = RequestView::new(&header, connection, node, request.len());
        if let Some(tree) = &tree {
            view.add(tree, header.api_version, &self.names);
        }
        let session = tree
            .as_ref()
            .filter(|_| api == Some(ApiKey::Fetch))
            .map(|tree| self.fetch_session(&mut view, tree));
        if let Some(tree) = tree.as_ref().filter(|_| api == Some(ApiKey::ShareFetch)) {
            self.share_session(&mut view, tree);
        }
        let rule = self.rule_for(&view);
        let number = self.recorded(
            view,
            rule.as_ref(),
            tree.as_ref().filter(|_| api == Some(ApiKey::Produce)),
        );
        let mut exchange = Exchange {
            number,
            header,
            after: After::Nothing,
            rule: rule.as_ref().map(|(_, rule)| Arc::clone(rule)),
        };
        let Some((of, rule)) = rule else {
            return Some(Arrived {
                exchange,
                wait: Wait::No,
                step: Step::Handle(request.clone()),
            });
        };
        let handle = || Step::Handle(request.clone());
        let wait = match rule.delay_ms {
            0 => Wait::No,
            ms => Wait::Ms(ms),
        };
        let (wait, step) = match &rule.action {
            Action::Error { .. } => (
                wait,
                self.refuse(&mut exchange, request, tree, session.as_deref(), &rule),
            ),
            Action::Close(When::BeforeHandling) => (wait, Step::Close),
            Action::BlackHole(When::BeforeHandling) => {
                self.finish(&exchange, BLACK_HOLE, None);
                (wait, Step::Nothing)
            }
            Action::Delay(ms) => (Wait::Ms(*ms), handle()),
            Action::Hold => (Wait::Release(of), handle()),
            action => {
                exchange.after = After::Act(action.clone());
                (wait, handle())
            }
        };
        Some(Arrived { exchange, wait, step })
    }

    /// The rule whose turn it is. Every rule counts the request.
    fn rule_for(&self, view: &RequestView) -> Option<(u64, Arc<Rule>)> {
        let state = self.lock();
        let candidates = state.rules.iter().filter(|progress| !progress.report.is_cleared);
        let candidates =
            candidates.filter(|p| !p.report.rule.action.is_of_connection() && p.report.rule.selector.matches(view));
        let candidates: Vec<_> = candidates.map(|p| (p.report.number, p.predicate.clone())).collect();
        drop(state);
        // Predicates are asked without the lock: they may need a lock that its holder waits for.
        let holds = |predicate: &Option<Predicate>| predicate.as_ref().is_none_or(|predicate| predicate(view));
        let matching: Vec<u64> = candidates
            .iter()
            .filter(|(_, predicate)| holds(predicate))
            .map(|(number, _)| *number)
            .collect();
        let mut state = self.lock();
        let mut found = None;
        for number in matching {
            if let Some(progress) = progress_of(&mut state, number)
                && progress.is_its_turn()
                && found.is_none()
            {
                progress.report.applied += 1;
                found = Some((number, Arc::clone(&progress.report.rule)));
            }
        }
        let State {
            random, sent, drawn, ..
        } = &mut *state;
        let random = random.as_ref().and_then(|random| random.decide(sent, view));
        found.or_else(|| {
            let rule = random?;
            drawn.push(rule.clone());
            Some((0, Arc::new(rule)))
        })
    }

    /// Records a request; returns its number.
    fn recorded(&self, request: RequestView, rule: Option<&(u64, Arc<Rule>)>, produce: Option<&Tree>) -> u64 {
        let mut state = self.lock();
        let (records, after) = (state.records, state.last_turn);
        let batches = produce.filter(|_| records);
        let batches = batches.map(|tree| batches_of(tree, request.version, &self.names));
        state.requests.push(records, |number| RequestRow {
            number,
            time_ms: self.clock.now_ms(),
            arrived_ms: self.clock.monotonic_ms(),
            request,
            duration_ms: None,
            response_bytes: None,
            errors: Vec::new(),
            outcome: "pending",
            batches: batches.unwrap_or_default(),
            after,
            fault: rule.map(|(_, rule)| describe(rule)),
        })
    }

    /// Follows the fetch session of a connection, and adds its partitions to the request.
    fn fetch_session(&self, view: &mut RequestView, request: &Tree) -> Vec<(Node, TopicPartitions)> {
        let mut state = self.lock();
        let session = state.sessions.entry(view.connection).or_default();
        self.follow(session, view, request, "session_epoch")
    }

    /// As [`Self::fetch_session`], for the share session of a member.
    fn share_session(&self, view: &mut RequestView, request: &Tree) {
        let text = |field| request.get(field).and_then(Node::text).cloned().unwrap_or_default();
        let key = (text("group_id"), text("member_id"));
        let mut state = self.lock();
        let sessions = state.share_sessions.entry(view.connection).or_default();
        let session = sessions.entry(key.clone()).or_default();
        self.follow(session, view, request, "share_session_epoch");
        if view.topics.is_empty() {
            sessions.remove(&key);
        }
    }

    /// Takes into a session what a request adds and forgets, and puts its partitions into the view.
    fn follow(
        &self,
        session: &mut Session,
        view: &mut RequestView,
        request: &Tree,
        epoch: &str,
    ) -> Vec<(Node, TopicPartitions)> {
        let version = view.version;
        let epoch = request.get(epoch).and_then(Node::int).unwrap_or(-1);
        if epoch <= 0 {
            session.clear();
        }
        for element in request.get("topics").map(Node::elements).unwrap_or_default() {
            if let Some((name, key, numbers)) = self.topic_in_fetch(element, version) {
                session
                    .entry(name)
                    .or_insert_with(|| (key, BTreeSet::new()))
                    .1
                    .extend(numbers);
            }
        }
        for element in request
            .get("forgotten_topics_data")
            .map(Node::elements)
            .unwrap_or_default()
        {
            if let Some((name, _, numbers)) = self.topic_in_fetch(element, version)
                && let Some((_, known)) = session.get_mut(&name)
            {
                known.retain(|number| !numbers.contains(number));
            }
        }
        session.retain(|_, (_, numbers)| !numbers.is_empty());
        let all = session.iter().map(|(name, (key, numbers))| {
            (
                key.clone(),
                (Arc::clone(name), numbers.iter().copied().collect::<Vec<_>>()),
            )
        });
        let all: Vec<_> = all.collect();
        view.topics = all.iter().map(|(_, topic)| topic.clone()).collect();
        all
    }

    fn topic_in_fetch(&self, element: &Node, version: i16) -> Option<(Arc<str>, Node, Vec<i32>)> {
        let Node::Struct(tree) = element else { return None };
        let name = topic_of(tree, version, &self.names)?;
        let key = match tree.get("topic_id") {
            Some(Node::Uuid(id)) if *id != [0; 16] => Node::Uuid(*id),
            _ => Node::String(Arc::clone(&name)),
        };
        let numbers = tree
            .get("partitions")
            .map(Node::elements)
            .unwrap_or_default()
            .iter()
            .filter_map(partition_of);
        Some((name, key, numbers.collect()))
    }

    /// Answers with a rule's error what it selects, and lets the rest be carried out.
    fn refuse(
        &self,
        exchange: &mut Exchange,
        request: &Bytes,
        tree: Option<Tree>,
        session: Option<&[(Node, TopicPartitions)]>,
        rule: &Arc<Rule>,
    ) -> Step {
        let api = ApiKey::from_code(exchange.header.api_key);
        // An API or a version that is not known is carried out: the broker knows how it refuses it.
        let (Some(mut tree), Some(api), Action::Error { handled, .. }) = (tree, api, &rule.action) else {
            return Step::Handle(request.clone());
        };
        let Some(refusal) = self.refusal(api, exchange.header.api_version, rule) else {
            return Step::Handle(request.clone());
        };
        if let Some(session) = session.filter(|_| rule.selector.is_partial() || *handled) {
            exchange.after = After::Merge(Box::new(refusal.fetch_response(session)), Arc::clone(rule));
            // A response with an error does not wait for data.
            tree.set("max_wait_ms", Node::Int(0));
            return Step::Handle(request_again(&exchange.header, &tree, request));
        }
        let Some(response) = refusal.response(&tree) else {
            exchange.after = After::Mark(Arc::clone(rule));
            return Step::Handle(request.clone());
        };
        let is_whole = !rule.selector.is_partial() || !refusal.take_out(&mut tree, None);
        if (*handled && !planted!("handled-error-not-handled")) || !is_whole {
            exchange.after = After::Merge(Box::new(response), Arc::clone(rule));
            return match *handled {
                true => Step::Handle(request.clone()),
                false => Step::Handle(request_again(&exchange.header, &tree, request)),
            };
        }
        encoded(&exchange.header, &response).map_or_else(|| Step::Handle(request.clone()), Step::Answer)
    }

    /// The response of a request is ready; `chunks` has its size in front. No bytes: the request has no response (acks=0).
    pub fn answered(&self, exchange: Exchange, chunks: Vec<Bytes>) -> Answered {
        let mut answered = Answered {
            delay_ms: 0,
            chunks,
            bytes_per_second: None,
            then: Then::Continue,
            outcome: "answered",
        };
        // What the broker said in a response that is discarded.
        let mut discarded = None;
        let mut outcome = match answered.chunks.is_empty() {
            true => "without response",
            false => "answered",
        };
        match &exchange.after {
            After::Nothing => {}
            After::Merge(errors, rule) => self.change(
                &exchange,
                &mut answered.chunks,
                |refusal, response| {
                    refusal.take_out(response, None);
                    merge(response, (**errors).clone());
                },
                rule,
            ),
            After::Mark(rule) => {
                self.change(
                    &exchange,
                    &mut answered.chunks,
                    |refusal, response| refusal.mark(response, None),
                    rule,
                );
            }
            After::Act(action) => match action {
                Action::Close(_) => {
                    discarded = Some(std::mem::take(&mut answered.chunks));
                    (answered.then, outcome) = (Then::Close, "response lost");
                }
                Action::BlackHole(_) => {
                    discarded = Some(std::mem::take(&mut answered.chunks));
                    (answered.then, outcome) = (Then::Nothing, BLACK_HOLE);
                }
                Action::DelayResponse(ms) => answered.delay_ms = *ms,
                Action::Slow(rate) => answered.bytes_per_second = Some(*rate),
                Action::Cut(bytes) => {
                    let first = first_bytes(&answered.chunks, *bytes);
                    discarded = Some(std::mem::replace(&mut answered.chunks, first));
                    (answered.then, outcome) = (Then::Close, "response cut");
                }
                Action::WrongCorrelationId => {
                    let mut bytes = concat(&answered.chunks);
                    if let Some(id) = bytes.get_mut(SIZE..2 * SIZE) {
                        id.copy_from_slice(&exchange.header.correlation_id.wrapping_add(1).to_be_bytes());
                    }
                    answered.chunks = vec![bytes.freeze()];
                }
                Action::Throttle(ms) => frames::change(&exchange.header, &mut answered.chunks, |_, response| {
                    response.set("throttle_time_ms", Node::Int((*ms).into()));
                }),
                _ => {}
            },
        }
        if let Some(chunks) = discarded {
            self.note_batches(&exchange, &chunks);
        }
        answered.outcome = outcome;
        self.finish(&exchange, outcome, Some(&answered.chunks));
        answered
    }

    /// Records what a response says about the batches of a Produce request.
    fn note_batches(&self, exchange: &Exchange, chunks: &[Bytes]) {
        if exchange.header.api_key != ApiKey::Produce.code() || !self.lock().records {
            return;
        }
        if let Some((_, response)) = response_of(&exchange.header, concat(chunks).freeze()) {
            let version = exchange.header.api_version;
            if let Some(row) = self.lock().requests.get(exchange.number) {
                answer_batches(&mut row.batches, &response, version, &self.names);
            }
        }
    }

    /// A request ends without a response: "closed", "client gone".
    pub fn ended(&self, exchange: &Exchange, outcome: &'static str) {
        self.finish(exchange, outcome, None);
    }

    /// Records what became of a request.
    fn finish(&self, exchange: &Exchange, outcome: &'static str, chunks: Option<&[Bytes]>) {
        if !self.lock().records {
            return;
        }
        if let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty()) {
            self.note_batches(exchange, chunks);
        }
        let mut errors = Vec::new();
        let bytes = chunks.filter(|chunks| !chunks.is_empty()).map(concat);
        if let Some((_, response)) = bytes
            .as_ref()
            .and_then(|bytes| response_of(&exchange.header, bytes.clone().freeze()))
        {
            errors_of(&response, exchange.header.api_version, &mut errors);
        }
        let now_ms = self.clock.monotonic_ms();
        if let Some(row) = self.lock().requests.get(exchange.number)
            && row.outcome != BLACK_HOLE
        {
            row.duration_ms = Some(now_ms - row.arrived_ms);
            row.response_bytes = bytes.map(|bytes| bytes.len().saturating_sub(SIZE));
            row.errors = errors;
            row.outcome = outcome;
        }
    }

    /// Changes the response to a request, if it can be read.
    fn change(
        &self,
        exchange: &Exchange,
        chunks: &mut Vec<Bytes>,
        change: impl FnOnce(&Refusal<'_>, &mut Tree),
        rule: &Rule,
    ) {
        let header = &exchange.header;
        frames::change(header, chunks, |api, response| {
            if let Some(refusal) = self.refusal(api, header.api_version, rule) {
                change(&refusal, response);
            }
        });
    }

    /// The error of a rule; `None`: it has another action.
    fn refusal<'a>(&'a self, api: ApiKey, version: i16, rule: &'a Rule) -> Option<Refusal<'a>> {
        let Action::Error {
            code, log_start_offset, ..
        } = rule.action
        else {
            return None;
        };
        Some(Refusal {
            api,
            version,
            code,
            log_start_offset,
            selector: &rule.selector,
            names: &self.names,
        })
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

/// A rule in one line.
fn describe(rule: &Rule) -> Arc<str> {
    match rule.name.is_empty() {
        true => crate::plan::rule_json(rule).to_string().into(),
        false => rule.name.as_str().into(),
    }
}

#[cfg(test)]
mod tests;
